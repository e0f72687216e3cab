//! The operations of fsx on one file: reading, writing, appending, truncating, allocating, punching
//! holes, zeroing, copying, seeking, closing; each checked against what the file should be, and all
//! of the store now and then.
//!
//! `CONQUEST_OPERATIONS` says how many for each seed and size, `CONQUEST_SEEDS` how many seeds.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_access::Removal;
use conquest_format::PAGE;
use conquest_format::fs::{self, chunk};
use conquest_format::geometry::Shape;
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::large::{NewLarge, Space};
use conquest_fs::locks::Wait;
use conquest_fs::names::New;
use conquest_fs::placement::THRESHOLD;
use conquest_fs::xattr::Setting;
use conquest_fs::{Clock, Errno, Error, FileId, FileSystem, NewFileSystem, finish_intent};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access, Options, Region};
use conquest_testkit::Rng;
use conquest_testkit::files::{RamSpace, new_file_system, root_user};
use conquest_testkit::judge::judge_attached;

/// Most bytes of one operation, as with fsx.
const LEN_MAX: u64 = 64 << 10;
/// Most bytes of one operation on a large file.
const LARGE_LEN_MAX: u64 = 1 << 20;
/// Blocks of a chunk.
const CHUNK_BLOCKS: u64 = chunk::BLOCKS_MIN;

/// Files of up to so many bytes are read after each operation.
const ALWAYS_CHECKED: u64 = 64 << 10;
/// Operations that are told of if one fails.
const LAST: usize = 15;

type Files = FileSystem<Mapped, OsHost>;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

/// One with the space of a volume for files above `threshold` bytes, if that is given.
fn store(max_groups: u64, large: Option<(u64, RamSpace)>) -> Files {
    let clock = || -> Clock {
        Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
    };
    let memory = sys::memory_file(c"store").unwrap();
    let copy = memory.try_clone().unwrap();
    let shape = Shape { max_groups, lanes: 4, slots: 4, locks: 64, chunks: 4, log: 0 };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    Region::create(Source::from(memory), 0o600, &new).unwrap();
    let options = Options {
        intents: Some(Box::new(finish_intent)),
        burials: Some(Box::new(conquest_fs::open::bury)),
        ..Options::default()
    };
    let core = Region::open(Source::from(copy), &fs::kinds(), Access::default(), options).unwrap();
    let threshold = large.as_ref().map(|(threshold, _)| *threshold);
    let large_files = threshold.map(|threshold| NewLarge { threshold, chunk_blocks: CHUNK_BLOCKS });
    let new = NewFileSystem { large: large_files, ..new_file_system() };
    FileSystem::make(&core, &new, &clock()).unwrap();
    let files = FileSystem::open(core, clock()).unwrap();
    match large {
        Some((_, space)) => files.with_space(Box::new(space)),
        None => files,
    }
}

/// A space in which files that were lost have left something.
fn used_space() -> RamSpace {
    let space = RamSpace::default();
    for number in 0..4 {
        let block = (chunk::first(CHUNK_BLOCKS) + number) * CHUNK_BLOCKS;
        space.write(block, &[0xEE; 8 << 20]).unwrap();
    }
    space
}

/// What a file should be: its pages that are not zeros.
#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, Vec<u8>>,
    size: u64,
}

impl Model {
    fn read(&self, from: u64, len: u64) -> Vec<u8> {
        let end = self.size.min(from + len).max(from);
        let mut bytes = vec![0; (end - from) as usize];
        for (page, content) in self.pages.range(from / PAGE..end.div_ceil(PAGE)) {
            let start = page * PAGE;
            let (a, b) = (start.max(from), (start + PAGE).min(end));
            if a < b {
                bytes[(a - from) as usize..(b - from) as usize]
                    .copy_from_slice(&content[(a - start) as usize..(b - start) as usize]);
            }
        }
        bytes
    }

    /// Stores without changing the size.
    fn store(&mut self, from: u64, bytes: &[u8]) {
        let mut at = from;
        let mut left = bytes;
        while !left.is_empty() {
            let len = left.len().min((PAGE - at % PAGE) as usize);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            let within = (at % PAGE) as usize;
            page[within..within + len].copy_from_slice(&left[..len]);
            at += len as u64;
            left = &left[len..];
        }
    }

    fn write(&mut self, from: u64, bytes: &[u8]) {
        self.store(from, bytes);
        self.size = self.size.max(from + bytes.len() as u64);
    }

    fn zero(&mut self, from: u64, end: u64) {
        let end = end.min(self.size);
        if from < end {
            self.store(from, &vec![0; (end - from) as usize]);
        }
    }

    fn truncate(&mut self, size: u64) {
        if size < self.size {
            let last = size / PAGE;
            self.pages.split_off(&(last + 1));
            if let Some(page) = self.pages.get_mut(&last) {
                page[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }
}

#[derive(Debug)]
enum Op {
    Read(u64, u64),
    Write(u64, u64),
    Append(u64),
    Truncate(u64),
    Allocate(Allocate, u64, u64),
    Copy(u64, u64, u64),
    Seek(Seek, u64),
    Close,
    Push,
    Trim,
    /// The threshold of the file's own.
    Threshold(Option<&'static str>),
}

impl Op {
    fn random(rng: &mut Rng, size: u64, max: u64, is_large: bool) -> Op {
        let most = match rng.below(if is_large { 5 } else { 4 }) {
            0 => 64,
            1 => 3000,
            4 => LARGE_LEN_MAX,
            _ => LEN_MAX,
        };
        let len = 1 + rng.below(most.min(max));
        // Often near the end.
        let at = if most == LARGE_LEN_MAX {
            rng.below((max - len) / PAGE + 1) * PAGE
        } else if rng.chance(1, 4) {
            (size + rng.below(5000)).saturating_sub(rng.below(5000)).min(max - len)
        } else {
            rng.below(max - len + 1)
        };
        let keeps_size = rng.chance(1, 2);
        let thresholds = [None, Some("0"), Some("20K"), Some("150K"), Some("2M"), Some("core")];
        match rng.below(if is_large { 28 } else { 24 }) {
            0..=3 => Op::Read(at, len),
            4..=10 => Op::Write(at, len),
            11..=12 if size + len <= max => Op::Append(len),
            11..=14 => Op::Truncate(if rng.chance(1, 3) { at } else { size.saturating_sub(len) }),
            15 => Op::Truncate((size + len).min(max)),
            16 => Op::Allocate(Allocate::Space { keeps_size }, at, len),
            17 => Op::Allocate(Allocate::Zeros { keeps_size }, at, len),
            18..=19 => Op::Allocate(Allocate::Hole, at, len),
            20 => Op::Copy(rng.below(max - len + 1), at, len),
            21 => Op::Seek(Seek::Data, at),
            22 => Op::Seek(Seek::Hole, at),
            23 => Op::Close,
            24..=25 => Op::Push,
            26 => Op::Trim,
            _ => Op::Threshold(thresholds[rng.below(6) as usize]),
        }
    }
}

struct Test {
    files: Files,
    file: FileId,
    model: Model,
    rng: Rng,
    space: Option<RamSpace>,
}

impl Test {
    fn new(seed: u64, max_groups: u64, threshold: Option<u64>) -> Test {
        let space = threshold.map(|_| used_space());
        let files = store(max_groups, threshold.zip(space.clone()));
        let who = &root_user();
        let file = files.create(who, files.root(), b"file", New::Regular, 0o600).unwrap();
        Test { files, file, model: Model::default(), rng: Rng::stream(7, seed), space }
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let word = self.rng.word();
        (0..len).map(|index| (word >> (index % 8 * 8)) as u8 | 1).collect()
    }

    fn write(&mut self, at: WriteAt, from: u64, bytes: &[u8]) {
        // It makes no difference to what is there.
        let done = match self.rng.chance(1, 3) {
            true => self.files.write_direct(&root_user(), self.file, at, bytes).unwrap(),
            false => self.files.write(&root_user(), self.file, at, bytes).unwrap(),
        };
        assert_eq!(done, (from, bytes.len() as u64));
        self.model.write(from, bytes);
    }

    fn perform(&mut self, op: &Op) {
        let who = &root_user();
        match *op {
            Op::Read(at, len) => self.check_range(at, len),
            Op::Write(at, len) => {
                let bytes = self.bytes(len);
                self.write(WriteAt::Offset(at), at, &bytes);
            }
            Op::Append(len) => {
                let bytes = self.bytes(len);
                self.write(WriteAt::End, self.model.size, &bytes);
            }
            Op::Truncate(size) => {
                self.files.truncate(who, self.file, size).unwrap();
                self.model.truncate(size);
            }
            Op::Allocate(how, at, len) => {
                self.files.allocate(who, self.file, how, at, len).unwrap();
                let keeps = match how {
                    Allocate::Space { keeps_size } => keeps_size,
                    Allocate::Zeros { keeps_size } => {
                        self.model.zero(at, at + len);
                        keeps_size
                    }
                    Allocate::Hole => {
                        self.model.zero(at, at + len);
                        true
                    }
                };
                if !keeps {
                    self.model.size = self.model.size.max(at + len);
                }
            }
            Op::Copy(from, to, len) => {
                let bytes = self.model.read(from, len);
                if !bytes.is_empty() {
                    self.write(WriteAt::Offset(to), to, &bytes);
                }
            }
            Op::Seek(what, at) => self.check_seek(what, at),
            Op::Close => self.files.trim(self.file).unwrap(),
            Op::Push => self.files.push(self.file, Wait::Forever).unwrap(),
            Op::Trim => drop(self.files.trim_chunks().unwrap()),
            Op::Threshold(value) => {
                let value = value.map_or(&[][..], str::as_bytes);
                let set = match value {
                    [] => self.files.remove_attribute(who, self.file, THRESHOLD),
                    _ => self.files.set_attribute(who, self.file, THRESHOLD, value, Setting::Any),
                };
                assert!(matches!(set, Ok(()) | Err(Error::Refused(Errno::ENODATA))), "{set:?}");
            }
        }
        assert_eq!(self.files.stat(self.file).unwrap().size, self.model.size);
    }

    fn check_range(&self, at: u64, len: u64) {
        let mut found = vec![9; len as usize];
        let count = self.files.read_file(self.file, at, &mut found).unwrap();
        let expected = self.model.read(at, len);
        assert_eq!(count, expected.len());
        if let Some(place) = (0..count).find(|&index| found[index] != expected[index]) {
            let (found, expected) = (found[place], expected[place]);
            panic!("byte {}: {found} instead of {expected}", at + place as u64);
        }
    }

    /// What is said to be a hole must be zeros.
    fn check_seek(&self, what: Seek, at: u64) {
        let found = self.files.seek(self.file, what, at);
        let size = self.model.size;
        let zeros_until = match (what, found) {
            (_, Err(Error::Refused(Errno::ENXIO))) if at >= size => return,
            (Seek::Data, Err(Error::Refused(Errno::ENXIO))) => size,
            (Seek::Data, Ok(data)) => data,
            (Seek::Hole, Ok(hole)) => {
                assert!(
                    hole == size || self.files.seek(self.file, Seek::Hole, hole).unwrap() == hole
                );
                return;
            }
            other => panic!("{other:?}"),
        };
        assert!(at <= zeros_until && zeros_until <= size);
        let skipped = self.model.read(at, zeros_until - at);
        assert!(skipped.iter().all(|byte| *byte == 0), "data before {zeros_until}");
    }

    fn check_all(&self) {
        let mut at = 0;
        while at < self.model.size {
            self.check_range(at, 1 << 20);
            at += 1 << 20;
        }
        judge_attached(self.files.core()).unwrap();
        let census = self.files.check().unwrap();
        assert_eq!(census.findings, []);
    }

    /// Removes the file: nothing stays.
    fn end(self, pages: u64) {
        self.check_all();
        let who = &root_user();
        self.files.remove(who, self.files.root(), b"file", Removal::File).unwrap();
        judge_attached(self.files.core()).unwrap();
        assert_eq!(self.files.check().unwrap().findings, []);
        if let Some(space) = &self.space {
            self.files.trim_chunks().unwrap();
            assert_eq!(self.files.check().unwrap().findings, []);
            // All but what lost files have left in chunks that nobody has had. The file has had
            // more than one if it has moved back to the core.
            let (left, each) = (space.pages(), (8 << 20) / PAGE as usize);
            assert!(left % each == 0 && left <= 3 * each, "{left} pages");
        }
        let left = self.files.core().pages_used().saturating_sub(pages);
        // A slab of each kind may stay with its lane.
        assert!(left <= 18 * 4, "{left} pages are left");
    }
}

fn run(max: u64, seed: u64, operations: u64, threshold: Option<u64>) {
    let mut test = Test::new(seed, (max >> 21) * 3 + 16, threshold);
    let pages = test.files.core().pages_used();
    let mut last = VecDeque::new();
    for number in 0..operations {
        let op = Op::random(&mut test.rng, test.model.size, max, threshold.is_some());
        last.push_back(format!("{op:?} at size {}", test.model.size));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test.perform(&op);
            if max <= ALWAYS_CHECKED {
                test.check_range(0, max);
            }
        }));
        assert!(done.is_ok(), "size {max}, seed {seed}, operation {number}: {last:#?}");
        while last.len() > LAST {
            last.pop_front();
        }
        if number % 1000 == 999 && (max < 1 << 24 || number % 20_000 == 19_999) {
            test.check_all();
        }
    }
    test.end(pages);
}

fn run_all(max: u64, operations: u64) {
    run_all_in(max, operations, None);
}

fn run_all_in(max: u64, operations: u64, threshold: Option<u64>) {
    let operations = number("CONQUEST_OPERATIONS", operations);
    let seeds = number("CONQUEST_SEEDS", 2);
    for seed in 0..seeds {
        run(max, seed, operations, threshold);
    }
    println!("{seeds} seeds, {operations} operations each on a file of up to {max} bytes: equal");
}

#[test]
fn a_file_of_up_to_10_kib_is_what_was_written() {
    run_all(10 << 10, 10_000);
}

#[test]
fn a_file_of_up_to_1_mib_is_what_was_written() {
    run_all(1 << 20, 10_000);
}

#[test]
fn a_file_of_up_to_256_mib_is_what_was_written() {
    run_all(256 << 20, 10_000);
}

#[test]
fn a_large_file_of_up_to_200_kib_is_what_was_written() {
    run_all_in(200 << 10, 10_000, Some(20 << 10));
}

#[test]
fn a_large_file_of_up_to_6_mib_is_what_was_written() {
    run_all_in(6 << 20, 10_000, Some(100_000));
}
