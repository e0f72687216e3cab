//! What tests of large files share: stores with a volume, and files in them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use conquest::{
    Attach, File, Files, KeeperProgram, NewStore, OpenOptions, Placement, Setting, Store,
    THRESHOLD as OWN_THRESHOLD, VolumePlace,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use conquest_testkit::Rng;

use super::{Temporary, core_of, indexes, small};

pub const VOLUME: u64 = 128 << 20;
/// Bytes above which files are large.
pub const THRESHOLD: u64 = 64 << 10;
/// Most bytes of a file.
pub const MOST: u64 = 3 << 20;
/// Files that there are at most.
pub const FILES: u64 = 4;
pub const PAGE: usize = 4096;

pub fn new() -> NewStore {
    NewStore {
        volume: Some(VolumePlace::Size(VOLUME)),
        placement: Placement { threshold: THRESHOLD, ..Placement::default() },
        ..small()
    }
}

pub fn made(place: &Temporary) -> PathBuf {
    let directory = place.path().join("store");
    Store::make(&directory, &new()).unwrap();
    directory
}

/// Attaches it without a keeper.
pub fn alone(directory: &Path) -> Store {
    let how = Attach { keeper: KeeperProgram::None, ..Attach::default() };
    Store::attach(directory, &how).unwrap()
}

/// Takes away what is in RAM, as a power failure does. Nobody has the store attached.
pub fn power_cut(directory: &Path) {
    let _was_there = std::fs::remove_file(core_of(directory));
    for index in indexes(directory) {
        std::fs::remove_file(index).unwrap();
    }
}

/// Bytes that tell where they are.
pub fn filler(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| (rng.word() | 1).to_le_bytes());
    words.take(len as usize).collect()
}

pub fn read(files: &Files, name: &str) -> Vec<u8> {
    let file = files.open(name).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize + 1];
    let mut len = 0;
    while let count @ 1.. = file.read_at(&mut bytes[len..], len as u64).unwrap() {
        len += count;
    }
    bytes.truncate(len);
    bytes
}

/// Files by their numbers.
pub type Model = BTreeMap<u64, Vec<u8>>;

pub fn name(file: u64) -> String {
    format!("/{file}")
}

pub fn open(files: &Files, file: u64) -> File {
    let mut options = OpenOptions::new();
    files.open_with(name(file), options.read(true).write(true).create(true).mode(0o644)).unwrap()
}

/// Gives a file, if it is there, a threshold of its own.
pub fn set_threshold(files: &Files, path: &str, value: &str) {
    if let Ok(file) = files.find(path, true) {
        file.set_attribute(OsStr::from_bytes(OWN_THRESHOLD), value.as_bytes(), Setting::Any)
            .unwrap();
    }
}

/// The threshold of its own that a file has.
pub fn threshold(files: &Files, path: &str) -> String {
    let value =
        files.find(path, true).unwrap().attribute(OsStr::from_bytes(OWN_THRESHOLD)).unwrap();
    String::from_utf8(value).unwrap()
}

/// What is found in a store.
pub fn found(files: &Files) -> Model {
    let there = (0..FILES).filter(|file| files.metadata(name(*file)).is_ok());
    there.map(|file| (file, read(files, &name(file)))).collect()
}

// --- operations, and what they give --------------------------------------------------------------

#[derive(Clone, Debug)]
pub enum Op {
    Write(u64, u64, u64),
    Truncate(u64, u64),
    Remove(u64),
    Rename(u64, u64),
    Punch(u64, Range<u64>),
    Allocate(u64, Range<u64>),
    /// The threshold of the file's own.
    Threshold(u64, &'static str),
    Sync,
}

impl Op {
    pub fn random(rng: &mut Rng) -> Op {
        let file = rng.below(FILES);
        let most = [100, 5000, 70_000, 300_000, 1_200_000][rng.below(5) as usize];
        let len = 1 + rng.below(most);
        let at = rng.below(MOST - len);
        let at = if rng.chance(1, 2) { at / 4096 * 4096 } else { at };
        let thresholds = ["0", "10K", "200K", "1M", "core"];
        match rng.below(17) {
            0..=6 => Op::Write(file, at, len),
            7 => Op::Write(file, 0, len),
            8..=9 => Op::Truncate(file, if rng.chance(1, 3) { 0 } else { at }),
            10 => Op::Remove(file),
            11 => Op::Rename(file, rng.below(FILES)),
            12 => Op::Punch(file, at..at + len),
            13 => Op::Allocate(file, at..at + len),
            14 => Op::Threshold(file, thresholds[rng.below(5) as usize]),
            _ => Op::Sync,
        }
    }

    pub fn perform(&self, number: u64, store: &Store, files: &Files) {
        match self {
            Op::Write(file, at, len) => {
                open(files, *file).write_all_at(&filler(number, *len), *at).unwrap();
            }
            Op::Truncate(file, len) => open(files, *file).set_len(*len).unwrap(),
            Op::Remove(file) => drop(files.remove_file(name(*file))),
            Op::Rename(from, to) => drop(files.rename(name(*from), name(*to))),
            Op::Punch(file, range) => open(files, *file).punch_hole(range.clone()).unwrap(),
            Op::Allocate(file, range) => open(files, *file).allocate(range.clone(), false).unwrap(),
            Op::Threshold(file, value) => set_threshold(files, &name(*file), value),
            Op::Sync => store.sync().unwrap(),
        }
    }

    pub fn apply(&self, number: u64, model: &mut Model) {
        let grow = |bytes: &mut Vec<u8>, len: u64| bytes.resize(bytes.len().max(len as usize), 0);
        match self {
            Op::Write(file, at, len) => {
                let bytes = model.entry(*file).or_default();
                grow(bytes, at + len);
                let (at, len) = (*at as usize, *len as usize);
                bytes[at..at + len].copy_from_slice(&filler(number, len as u64));
            }
            Op::Truncate(file, len) => model.entry(*file).or_default().resize(*len as usize, 0),
            Op::Remove(file) => drop(model.remove(file)),
            Op::Rename(from, to) => {
                if let Some(bytes) = model.remove(from) {
                    model.insert(*to, bytes);
                }
            }
            Op::Punch(file, range) => {
                let bytes = model.entry(*file).or_default();
                let end = bytes.len().min(range.end as usize);
                if let Some(part) = bytes.get_mut(range.start as usize..end) {
                    part.fill(0);
                }
            }
            Op::Allocate(file, range) => grow(model.entry(*file).or_default(), range.end),
            Op::Threshold(..) => {}
            Op::Sync => {}
        }
    }
}

/// What files there are after an operation: their bytes, and which file has which name.
#[derive(Clone, Default)]
pub struct State {
    pub bytes: Model,
    pub files: BTreeMap<u64, u64>,
}

impl State {
    pub fn apply(&mut self, op: &Op, number: u64) {
        op.apply(number, &mut self.bytes);
        match op {
            Op::Remove(name) => drop(self.files.remove(name)),
            Op::Rename(from, to) => {
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(*to, file);
                }
            }
            _ => {}
        }
        for name in self.bytes.keys() {
            self.files.entry(*name).or_insert(number);
        }
    }

    /// The bytes of `file`, whatever its name is, if it is there.
    pub fn bytes_of(&self, file: u64) -> Option<&Vec<u8>> {
        let (name, _) = self.files.iter().find(|(_, found)| **found == file)?;
        self.bytes.get(name)
    }
}

/// The last number behind `word` in a `log`.
pub fn last(log: &str, word: &str) -> Option<u64> {
    let lines = log.lines().rev().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|number| number.trim().parse().ok()).next()
}

/// Whether each page of `there` is as in one of `states`, as far as `there` has it.
pub fn has_pages_of(there: &[u8], states: &[&Vec<u8>]) -> bool {
    let page_of = |bytes: &[u8], page: usize| -> Vec<u8> {
        let mut part: Vec<u8> = bytes.iter().skip(page * PAGE).take(PAGE).copied().collect();
        part.resize(PAGE, 0);
        part
    };
    (0..there.len().div_ceil(PAGE)).all(|page| {
        let inside = (there.len() - page * PAGE).min(PAGE);
        let mine = page_of(there, page);
        states.iter().any(|state| page_of(state, page)[..inside] == mine[..inside])
    })
}
