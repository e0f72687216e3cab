//! Power cuts of the volume of a store whose core stays, as it is on persistent memory and on a
//! battery: what was not settled of the volume is gone, but for the beginning of it. Everything
//! that was done is there all the same, but for what was overwritten in place and not synced, of
//! which each page is one that was there since the last sync.
//!
//! `CONQUEST_OPERATIONS` says how many for each seed, `CONQUEST_SEEDS` how many seeds.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use conquest_format::fs::chunk::{self, Chunk};
use conquest_format::inode::{Content, Inode, offset_of};
use conquest_format::label::{LABEL_BYTES, Label, label_block};
use conquest_format::{Offset, PAGE, WORD};
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::large::{Answer, NewLarge, Room, Space};
use conquest_fs::locks::Wait;
use conquest_fs::names::Removal;
use conquest_fs::placement::Form;
use conquest_fs::{FileId, NewFileSystem};
use conquest_pm::memory::Memory;
use conquest_testkit::Rng;
use conquest_testkit::files::{RamSpace, root_user};
use conquest_testkit::store::CutSpace;
use store::{NEW, Store};

/// Bytes above which files are large.
const THRESHOLD: u64 = 20 << 10;
/// Blocks of a chunk.
const BLOCKS: u64 = chunk::BLOCKS_MIN;
/// Blocks of a page.
const PER: u64 = PAGE / 512;
/// Most bytes of a file.
const MOST: u64 = 3 << 20;
/// Bytes from which on a write may go to the volume at once.
const DIRECT: u64 = 256 << 10;
/// Pages that are certainly not pushed by themselves, if no more were written.
const UNPUSHED: usize = 250;
/// Files that there are.
const FILES: usize = 3;
/// Operations that are told of if one fails.
const LAST: usize = 12;

type Page = Vec<u8>;

/// What a file should be.
#[derive(Default)]
struct Model {
    size: u64,
    /// What each page may be after a power cut; the last is what it is now. Others are zeros.
    pages: BTreeMap<u64, Vec<Page>>,
    /// Pages that the core has for sure, unless there are too many of them.
    in_core: BTreeSet<u64>,
}

impl Model {
    fn page(&self, page: u64) -> Page {
        let found = self.pages.get(&page).and_then(|found| found.last());
        found.cloned().unwrap_or_else(|| vec![0; PAGE as usize])
    }

    /// Stores `byte` in `range`; what was there may come back if it `is_quiet`.
    fn store(&mut self, range: &Range<u64>, byte: u8, is_quiet: bool) {
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let mut bytes = self.page(page);
            let start = page * PAGE;
            let (from, to) = (range.start.max(start), range.end.min(start + PAGE));
            bytes[(from - start) as usize..(to - start) as usize].fill(byte);
            let old = self.page(page);
            let all = self.pages.entry(page).or_insert_with(|| vec![old]);
            if !is_quiet {
                all.clear();
            }
            all.push(bytes);
        }
    }

    fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.store(&(size..self.size), 0, false);
            self.pages.split_off(&size.div_ceil(PAGE));
            self.in_core.split_off(&size.div_ceil(PAGE));
        }
        self.size = size;
    }

    /// What is there now is what is there.
    fn settle(&mut self) {
        for all in self.pages.values_mut() {
            all.drain(..all.len() - 1);
        }
    }
}

#[derive(Debug)]
enum Op {
    Write(u64, u64),
    /// The same as to a file that was opened with `O_DIRECT`: whole pages.
    Direct(u64, u64),
    Truncate(u64),
    Allocate(Allocate, u64, u64),
    Push,
    Close,
    Remove,
    Trim,
    Sync,
    SyncAll,
    /// Lets the file have space behind its end.
    Reserve,
    /// Writes behind the end, to the volume at once.
    Grow,
    /// A process dies that has written to the volume behind the end, before its record.
    Stray,
    /// Of the requests that were not settled, so many of a hundred stay.
    Cut(u64),
}

impl Op {
    fn random(rng: &mut Rng, size: u64) -> Op {
        let most = [100, 5000, 40_000, 100_000, 700_000][rng.below(5) as usize];
        let len = 1 + rng.below(most);
        let at = rng.below(MOST - len);
        // Often inside, and where a page begins.
        let at = if rng.chance(1, 2) { at.min(size / 2) } else { at };
        let (at, len) = match rng.chance(1, 2) {
            true => (at / PAGE * PAGE, len.next_multiple_of(PAGE)),
            false => (at, len),
        };
        let keeps_size = rng.chance(1, 2);
        match rng.below(46) {
            0..=4 => Op::Direct(at / PAGE * PAGE, len.next_multiple_of(PAGE)),
            5..=14 => Op::Write(at, len),
            15 => Op::Write(0, DIRECT + rng.below(DIRECT) / PAGE * PAGE),
            16..=17 => Op::Truncate(at),
            18 => Op::Truncate(size / 2),
            19 => Op::Allocate(Allocate::Space { keeps_size }, at, len),
            20 => Op::Allocate(Allocate::Zeros { keeps_size }, at, len),
            21..=22 => Op::Allocate(Allocate::Hole, at, len),
            23..=26 => Op::Push,
            27 => Op::Close,
            28 => Op::Remove,
            29..=30 => Op::Trim,
            31..=32 => Op::Sync,
            33 => Op::SyncAll,
            34..=35 => Op::Reserve,
            36..=37 => Op::Grow,
            38..=39 => Op::Stray,
            _ => Op::Cut([0, 0, rng.below(101)][rng.below(3) as usize]),
        }
    }
}

/// What loses its power.
#[derive(Clone)]
enum Volume {
    /// A space in memory, of which the beginning of what was not settled stays.
    Ram(RamSpace),
    /// A volume on a simulated device, of which anything may stay that was not flushed.
    Flash(CutSpace),
}

impl Volume {
    fn space(&self) -> &dyn Space {
        match self {
            Volume::Ram(space) => space,
            Volume::Flash(space) => space,
        }
    }

    /// Cuts the power; `share` of a hundred requests stay, or what chance says.
    fn cut(&self, share: u64, rng: &mut Rng) {
        match self {
            Volume::Ram(space) => space.cut(space.unsettled() * share as usize / 100),
            Volume::Flash(space) => space.cut(rng).unwrap(),
        }
    }

    /// Pages in use from block `at` to block `end`.
    fn used(&self, mut at: u64, end: u64) -> u64 {
        let mut used = 0;
        while at < end
            && let Some((block, count)) = self.space().allocated(at, end - at).unwrap()
            && block < end
        {
            used += (block + count).min(end) - block;
            at = block + count;
        }
        used / PER
    }
}

struct Test {
    store: Store,
    volume: Volume,
    files: Vec<(FileId, Model)>,
    rng: Rng,
}

impl Test {
    fn new(seed: u64, volume: Volume) -> Test {
        let large = NewLarge { threshold: THRESHOLD, chunk_blocks: BLOCKS };
        let new = NewFileSystem { large: Some(large), ..NEW };
        let store = match volume.clone() {
            Volume::Ram(space) => Store::with_space(16, &new, Box::new(space)),
            Volume::Flash(space) => Store::with_space(16, &new, Box::new(space)),
        };
        let files =
            (0..FILES).map(|number| (store.file(&number.to_string(), b""), Model::default()));
        let files = files.collect();
        Test { store, volume, files, rng: Rng::stream(8, seed) }
    }

    fn write(&mut self, which: usize, at: u64, len: u64, asks_direct: bool) {
        let byte = 1 + self.rng.below(255) as u8;
        let bytes = vec![byte; len as usize];
        let is_large = self.chunk(self.files[which].0).is_some();
        let (file, model) = &mut self.files[which];
        match asks_direct {
            true => {
                let to = WriteAt::Offset(at);
                let done = self.store.write_direct(&root_user(), *file, to, &bytes).unwrap();
                assert_eq!(done, (at, len));
            }
            false => self.store.put(*file, at, &bytes),
        }
        let (range, pages) = (at..at + len, at / PAGE..(at + len).div_ceil(PAGE));
        let reach = if is_large { range.end.max(model.size) } else { range.end };
        let least = if asks_direct { PAGE } else { DIRECT };
        let is_direct = at.is_multiple_of(PAGE) && len >= least && reach > THRESHOLD;
        let has_core =
            model.in_core.len() < UNPUSHED && model.in_core.range(pages.clone()).count() > 0;
        let is_quiet = is_direct && range.end <= model.size && !has_core;
        model.store(&range, byte, is_quiet);
        model.size = model.size.max(range.end);
        match is_direct {
            true => model.in_core.retain(|page| !pages.contains(page)),
            false => model.in_core.extend(pages),
        }
    }

    fn perform(&mut self, which: usize, op: &Op) {
        let who = &root_user();
        let (file, model) = &mut self.files[which];
        match *op {
            Op::Write(at, len) => self.write(which, at, len, false),
            Op::Direct(at, len) => self.write(which, at, len, true),
            Op::Truncate(size) => {
                self.store.truncate(who, *file, size).unwrap();
                model.truncate(size);
            }
            Op::Allocate(how, at, len) => {
                self.store.allocate(who, *file, how, at, len).unwrap();
                if !matches!(how, Allocate::Space { .. }) {
                    let end = (at + len).min(model.size);
                    if at < end {
                        model.store(&(at..end), 0, false);
                    }
                }
                let keeps = Allocate::Space { keeps_size: false };
                if how == keeps || how == (Allocate::Zeros { keeps_size: false }) {
                    model.size = model.size.max(at + len);
                }
                model.in_core.clear();
            }
            Op::Push => {
                self.store.push(*file, Wait::Forever).unwrap();
                model.in_core.clear();
            }
            Op::Close => self.store.trim(*file).unwrap(),
            Op::Remove => {
                let name = which.to_string();
                let root = self.store.root();
                self.store.remove(who, root, name.as_bytes(), Removal::File).unwrap();
                self.files[which] = (self.store.file(&name, b""), Model::default());
            }
            Op::Trim => drop(self.store.trim_chunks().unwrap()),
            Op::Sync => {
                let open = self.store.open_path(who, &which.to_string(), libc::O_WRONLY).unwrap();
                self.store.sync(&open).unwrap();
                model.settle();
                // Before it is closed: what is in the core is pushed then.
                self.perform(which, &Op::Cut(0));
                self.store.close(&open).unwrap();
                self.files[which].1.in_core.clear();
            }
            Op::SyncAll => {
                self.store.sync_all().unwrap();
                self.files.iter_mut().for_each(|(_, model)| model.settle());
            }
            Op::Reserve => {
                let space = Allocate::Space { keeps_size: true };
                self.store.allocate(who, *file, space, model.size, DIRECT + 5 * PAGE).unwrap();
                model.in_core.clear();
            }
            Op::Grow => {
                let at = model.size.next_multiple_of(PAGE);
                if at + DIRECT < MOST {
                    self.write(which, at, DIRECT, false);
                }
            }
            Op::Stray => self.stray(which),
            Op::Cut(share) => {
                self.volume.cut(share, &mut self.rng);
                (0..FILES).for_each(|which| self.find(which));
            }
        }
    }

    /// Writes to where the volume has space for a file behind its end.
    fn stray(&self, which: usize) {
        let (file, model) = &self.files[which];
        let Some(chunk) = self.chunk(*file) else { return };
        let first = chunk.number * BLOCKS;
        for page in model.size.div_ceil(PAGE)..chunk.end {
            let block = first + page * PER;
            if self.volume.used(block, block + PER) == 1 {
                self.volume.space().write(block, &[0xEE; PAGE as usize]).unwrap();
            }
        }
        self.volume.space().settle().unwrap();
    }

    /// Looks at a file after a power cut: from now on what is found is what it is.
    fn find(&mut self, which: usize) {
        let (file, model) = &mut self.files[which];
        let bytes = self.store.get(*file);
        assert_eq!(bytes.len() as u64, model.size, "file {which}");
        for (page, found) in (0..).zip(bytes.chunks(PAGE as usize)) {
            let all = model.pages.get(&page).cloned().unwrap_or_default();
            let zeros = vec![0; PAGE as usize];
            let fits = |one: &Page| one[..found.len()] == *found;
            let which_one = match all.is_empty() {
                true => fits(&zeros).then_some(zeros),
                false => all.iter().rev().find(|one| fits(one)).cloned(),
            };
            let Some(one) = which_one else {
                panic!("file {which}, page {page}: {} instead of one of {}", found[0], all.len());
            };
            model.pages.insert(page, vec![one]);
        }
        self.look_at_chunk(self.files[which].0);
    }

    /// Where the chunk of a file is, if it is large.
    fn place(&self, file: FileId) -> Option<Offset> {
        let memory = self.store.core().memory();
        let at = offset_of(file.number).unwrap();
        let load = |index| memory.load(at.plus(index * WORD), Ordering::Relaxed);
        let words: Vec<u64> = (0..16).map(load).collect();
        let inode = Inode::from_words(words.try_into().unwrap(), file.number).unwrap();
        let Content::Large { chunk: at, .. } = inode.content else { return None };
        Some(at)
    }

    fn chunk_at(&self, at: Offset) -> Chunk {
        let memory = self.store.core().memory();
        let load = |index| memory.load(at.plus(index * WORD), Ordering::Relaxed);
        let words: Vec<u64> = (0..8).map(load).collect();
        Chunk::from_words(words.try_into().unwrap(), at).unwrap()
    }

    /// The chunk of a file, if it is large.
    fn chunk(&self, file: FileId) -> Option<Chunk> {
        self.place(file).map(|at| self.chunk_at(at))
    }

    /// What the core says of the volume is so.
    fn look_at_chunk(&self, file: FileId) {
        let Some(chunk) = self.chunk(file) else { return };
        let label_page = BLOCKS / PER - 1;
        if chunk.list == 0 {
            let first = chunk.number * BLOCKS;
            let used = |from: u64, to: u64| self.volume.used(first + from * PER, first + to * PER);
            assert_eq!(used(0, chunk.end), chunk.allocated, "{chunk:?}");
            assert_eq!(used(chunk.end, label_page), 0, "behind the end of {chunk:?}");
        }
        // What there is on the volume says whose it is.
        if chunk.end > 0 {
            let label = self.label(&chunk);
            let region = self.store.core().uuid().unwrap();
            let (inode, generation) = (file.number, file.generation);
            // What was cut off and is not trimmed is told of.
            let is_exact = chunk.list == 0;
            let end = if is_exact { chunk.end } else { label.end.max(chunk.end) };
            let chunk = chunk.number;
            assert_eq!(label, Label { region, chunk, inode, generation, end, ..label });
        }
    }

    /// What the volume says of a chunk.
    fn label(&self, chunk: &Chunk) -> Label {
        let mut bytes = [0; LABEL_BYTES];
        let block = label_block(chunk.number, BLOCKS);
        self.volume.space().read(block, &mut bytes).unwrap();
        Label::from_bytes(&bytes).unwrap()
    }

    /// Removes all: nothing stays on the volume.
    fn end(mut self) {
        (0..FILES).for_each(|which| self.find(which));
        self.store.examine();
        (0..FILES).for_each(|which| self.perform(which, &Op::Remove));
        self.store.trim_chunks().unwrap();
        self.volume.cut(0, &mut self.rng);
        assert_eq!(self.volume.used(0, u64::MAX), 0);
        self.store.examine();
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

#[test]
fn what_was_done_is_there_whatever_the_volume_loses() {
    run(8, 1200, || Volume::Ram(RamSpace::default().losing()));
}

#[test]
fn what_was_done_is_there_whatever_a_device_has_lost() {
    run(2, 500, || Volume::Flash(CutSpace::new(600).unwrap()));
}

fn run(seeds: u64, operations: u64, volume: impl Fn() -> Volume) {
    let seeds = number("CONQUEST_SEEDS", seeds);
    let operations = number("CONQUEST_OPERATIONS", operations);
    for seed in 0..seeds {
        let mut test = Test::new(seed, volume());
        let mut last = Vec::new();
        for number in 0..operations {
            let which = test.rng.below(FILES as u64) as usize;
            let op = Op::random(&mut test.rng, test.files[which].1.size);
            last.push(format!("{which}: {op:?} at size {}", test.files[which].1.size));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                test.perform(which, &op);
            }));
            let from = last.len().saturating_sub(LAST);
            assert!(done.is_ok(), "seed {seed}, operation {number}: {:#?}", &last[from..]);
        }
        test.end();
    }
}

#[test]
fn what_is_overwritten_in_place_is_settled_by_who_syncs() {
    let space = RamSpace::default().losing();
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: BLOCKS };
    let new = NewFileSystem { large: Some(large), ..NEW };
    let store = Store::with_space(16, &new, Box::new(space.clone()));
    let who = &root_user();
    let (file, small) = (store.file("file", b""), store.file("small", b"small"));
    let bytes = vec![1; DIRECT as usize];
    store.put(file, 0, &bytes);
    let open = |path, flags| store.open_path(who, path, libc::O_WRONLY | flags).unwrap();
    let write = |open| assert_eq!(store.write_at(who, open, 0, &bytes).unwrap(), bytes.len());
    let (plain, other) = (open("file", 0), open("small", 0));
    assert_eq!(space.unsettled(), 0);
    write(&plain);
    assert_ne!(space.unsettled(), 0);
    // A small file has nothing there.
    store.sync(&other).unwrap();
    assert_ne!(space.unsettled(), 0);
    store.sync(&plain).unwrap();
    assert_eq!(space.unsettled(), 0);
    write(&plain);
    store.sync_all().unwrap();
    assert_eq!(space.unsettled(), 0);
    let synced = open("file", libc::O_DSYNC);
    write(&synced);
    assert_eq!(space.unsettled(), 0);
    store.set_flags(who, file, conquest_access::flag::SYNC, None).unwrap();
    write(&plain);
    assert_eq!(space.unsettled(), 0);
    store.set_flags(who, file, 0, None).unwrap();
    write(&plain);
    assert_ne!(space.unsettled(), 0);
    for open in [plain, other, synced] {
        store.close(&open).unwrap();
    }
    let store = store.synchronous();
    store.put(file, 0, &bytes);
    store.put(small, 0, b"SMALL");
    assert_eq!(space.unsettled(), 0);
    store.examine();
}

/// Who writes a part of a page as well does so in a turn, which is not to be settled either, and
/// that part goes to the core.
#[test]
fn what_is_overwritten_in_a_turn_is_settled_by_who_syncs() {
    let space = RamSpace::default().losing();
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: BLOCKS };
    let new = NewFileSystem { large: Some(large), ..NEW };
    let store = Store::with_space(16, &new, Box::new(space.clone()));
    let (file, bytes) = (store.file("file", b""), [1; DIRECT as usize + 5]);
    store.put(file, 0, &bytes);
    assert_eq!(space.unsettled(), 0);
    store.put(file, 0, &bytes);
    assert_eq!(space.unsettled(), 1);
    store.sync_all().unwrap();
    assert_eq!(space.unsettled(), 0);
    // What the core has directly behind it is no matter.
    store.put(file, DIRECT + 1, &[2]);
    store.put(file, 0, &bytes[..DIRECT as usize]);
    assert_eq!(space.unsettled(), 1);
    store.sync_all().unwrap();
    let store = store.synchronous();
    store.put(file, 0, &bytes);
    assert_eq!(space.unsettled(), 0);
    store.examine();
}

#[test]
fn a_label_says_how_long_its_file_was_when_the_end_was_moved() {
    let mut test = Test::new(0, Volume::Ram(RamSpace::default().losing()));
    let file = test.files[0].0;
    let (keeps, grows) =
        (Allocate::Space { keeps_size: true }, Allocate::Space { keeps_size: false });
    let pages = |pages: u64| pages * PAGE;
    let steps = [
        (Op::Direct(0, pages(70)), pages(70), 70),
        (Op::Allocate(keeps, pages(60), pages(40)), pages(70), 100),
        (Op::Allocate(grows, pages(80), pages(40) + 7), pages(120) + 7, 121),
        (Op::Write(pages(130) + 9, 100), pages(130) + 109, 121),
        (Op::Push, pages(130) + 109, 131),
        (Op::Direct(pages(140), pages(3)), pages(143), 143),
        (Op::Truncate(pages(50)), pages(50), 143),
        (Op::Trim, pages(50), 50),
    ];
    for (op, size, end) in steps {
        test.perform(0, &op);
        assert_eq!(test.files[0].1.size, size, "{op:?}");
        let label = test.label(&test.chunk(file).unwrap());
        assert_eq!(label.end, end, "{op:?}");
        // Only with the end the size is told.
        let is_told = !matches!(op, Op::Write(..) | Op::Truncate(_));
        assert_eq!(label.size == size, is_told, "{op:?}: {label:?}");
    }
    test.end();
}

/// A process has died that has written there before its record.
#[test]
fn what_is_behind_the_end_is_trimmed_by_who_has_space_behind_that() {
    for keeps_size in [false, true] {
        let mut test = Test::new(0, Volume::Ram(RamSpace::default().losing()));
        let file = test.files[0].0;
        test.perform(0, &Op::Direct(0, 70 * PAGE));
        let block = test.chunk(file).unwrap().number * BLOCKS + 75 * PER;
        test.volume.space().write(block, &[0xEE; 20 * PAGE as usize]).unwrap();
        let space = Allocate::Space { keeps_size };
        test.perform(0, &Op::Allocate(space, 100 * PAGE, 10 * PAGE));
        test.find(0);
        test.perform(0, &Op::Truncate(110 * PAGE));
        test.end();
    }
}

/// Whatever fails of it.
#[test]
fn while_what_is_cut_off_is_trimmed_there_is_a_label() {
    let space = RamSpace::default().losing();
    let mut test = Test::new(0, Volume::Ram(space.clone()));
    let file = test.files[0].0;
    test.perform(0, &Op::Direct(0, 70 * PAGE));
    test.perform(0, &Op::Truncate(50 * PAGE));
    for requests in 0.. {
        space.fail_after(Some(requests));
        let trimmed = test.store.trim_chunks();
        space.fail_after(None);
        let label = test.label(&test.chunk(file).unwrap());
        assert_eq!(label.inode, file.number, "{requests} requests");
        if trimmed.is_ok() {
            assert!(requests > 2 && label.end == 50, "{requests} requests");
            break;
        }
    }
    test.end();
}

#[test]
fn a_chunk_that_nobody_needs_has_nothing_on_the_volume() {
    let mut test = Test::new(0, Volume::Ram(RamSpace::default().losing()));
    test.perform(0, &Op::Direct(0, 70 * PAGE));
    let at = test.place(test.files[0].0).unwrap();
    assert_eq!((test.chunk_at(at).end, test.chunk_at(at).allocated), (70, 70));
    test.perform(0, &Op::Remove);
    test.perform(0, &Op::Trim);
    let Chunk { inode, end, allocated, .. } = test.chunk_at(at);
    assert_eq!((inode, end, allocated), (0, 0, 0));
    test.end();
}

type Work = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Others do something before something is written, or before it is looked what is in use.
#[derive(Clone)]
struct Hooked {
    space: RamSpace,
    work: Work,
    looked: Work,
}

impl Hooked {
    fn store() -> (Arc<Store>, Hooked) {
        let space = RamSpace::default().losing();
        let space = Hooked { space, work: Arc::default(), looked: Arc::default() };
        let large = NewLarge { threshold: THRESHOLD, chunk_blocks: BLOCKS };
        let new = NewFileSystem { large: Some(large), ..NEW };
        (Arc::new(Store::with_space(16, &new, Box::new(space.clone()))), space)
    }
}

impl Space for Hooked {
    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.space.read(block, into)
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        let work = self.work.lock().unwrap().take();
        work.into_iter().for_each(|work| work());
        self.space.write(block, bytes)
    }

    fn trim(&self, block: u64, count: u64) -> Answer<()> {
        self.space.trim(block, count)
    }

    fn settle(&self) -> Answer<()> {
        self.space.settle()
    }

    fn is_labelled(&self) -> bool {
        self.space.is_labelled()
    }

    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>> {
        let work = self.looked.lock().unwrap().take();
        work.into_iter().for_each(|work| work());
        self.space.allocated(block, count)
    }

    fn room(&self) -> Answer<Room> {
        self.space.room()
    }
}

/// It has a chunk still, as somebody was at it when it was cut off.
#[test]
fn what_has_nothing_on_the_volume_has_no_label() {
    let (store, space) = Hooked::store();
    let file = store.file("file", &[1; DIRECT as usize]);
    // Its pages and the label.
    assert_eq!(space.space.pages() as u64, DIRECT / PAGE + 1);
    store.put(file, 5, &[2; 9]);
    let others = Arc::clone(&store);
    let cut = move || others.truncate(&root_user(), file, 0).unwrap();
    *space.work.lock().unwrap() = Some(Box::new(cut));
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.placement(file, THRESHOLD).unwrap().form, Form::Large);
    assert_eq!(store.trim_chunks().unwrap(), 1);
    assert_eq!(space.space.pages(), 0);
    store.put(file, 0, &[3; 9]);
    assert!(store.get(file) == [3; 9]);
    store.examine();
}

/// It has moved back to the core when the volume is asked.
#[test]
fn what_moves_back_while_it_is_looked_for_is_not_a_hole() {
    let (store, space) = Hooked::store();
    let file = store.file("file", &[1; DIRECT as usize]);
    let others = Arc::clone(&store);
    *space.looked.lock().unwrap() = Some(Box::new(move || {
        others.truncate(&root_user(), file, 3 * PAGE).unwrap();
        others.trim_chunks().unwrap();
    }));
    assert_eq!(store.seek(file, Seek::Data, PAGE).unwrap(), PAGE);
    assert!(space.looked.lock().unwrap().is_none());
    assert_ne!(store.placement(file, THRESHOLD).unwrap().form, Form::Large);
    assert_eq!(space.space.pages(), 0);
    store.examine();
}
