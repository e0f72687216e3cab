//! Regions that are loaded while they are used: every access finds what was there, whoever loads
//! it, and whoever dies at that.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use conquest_format::geometry::{STATE, Shape};
use conquest_format::kind::KindSpec;
use conquest_format::superblock::{LOADING, RawSuperblock, SIZE};
use conquest_format::{GROUP, Geometry, Offset, PAGE};
use conquest_pm::attach::NewRegion;
use conquest_pm::log::{Origin, Replay};
use conquest_pm::media::{
    Fill, FillError, LoadFrom, MapOptions, Mapped, Medium, OsHost, Progress, Source, Step,
};
use conquest_pm::memory::Memory;
use conquest_pm::persist::Request;
use conquest_pm::{Access, Error, Options, Region};
use media_support::*;

const GROUPS: u64 = 3;
const SHAPE: Shape = Shape { max_groups: 6, lanes: 4, slots: 8, locks: 64, chunks: 9, log: 8 };

fn layout() -> Geometry {
    Geometry::new(SHAPE).unwrap()
}

fn at(bytes: u64) -> Offset {
    Offset::new(bytes)
}

/// The word of the image at `at`: never 0.
fn word_of(at: u64) -> u64 {
    (at + 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// An image of which each word says where it is, or one that is given.
#[derive(Debug, Default)]
struct Fake {
    image: Option<Vec<u8>>,
    calls: AtomicU32,
    /// Whether it can't be read.
    fails: AtomicBool,
    life: AtomicU32,
    /// How many steps there are before the process dies; none if it does not.
    dies: Option<AtomicU32>,
    /// Of a thread that reads slowly.
    delay: Duration,
}

impl Fill for Fake {
    fn fill(&self, incarnation: u64, at: Offset, out: &mut [u8]) -> Result<(), FillError> {
        assert_eq!(incarnation, 7);
        self.calls.fetch_add(1, Relaxed);
        if self.fails.load(Relaxed) {
            return Err("the device is gone".into());
        }
        std::thread::sleep(self.delay);
        match &self.image {
            Some(image) => out.copy_from_slice(&image[at.bytes() as usize..][..out.len()]),
            None => {
                for (index, word) in (0..).zip(out.as_chunks_mut().0) {
                    *word = word_of(at.bytes() + index * 8).to_le_bytes();
                }
            }
        }
        Ok(())
    }

    fn reopen(&self, life: u32) -> Result<(), FillError> {
        self.life.store(life, Relaxed);
        Ok(())
    }

    fn at_step(&self, _step: Step) {
        if let Some(left) = &self.dies
            && left.fetch_sub(1, Relaxed) == 0
        {
            // SAFETY: ends the child at once, as a kill would.
            unsafe { libc::_exit(0) };
        }
    }
}

fn load_from(medium: &Arc<Medium>, fill: &Arc<Fake>) -> LoadFrom {
    let fill: Arc<dyn Fill> = Arc::<Fake>::clone(fill);
    LoadFrom { medium: Arc::clone(medium), geometry: layout(), fill }
}

fn map(medium: &Arc<Medium>, fill: &Arc<Fake>, options: MapOptions) -> Mapped {
    let options = MapOptions { load_from: Some(load_from(medium, fill)), ..options };
    Mapped::map(medium, layout().len(), &options).unwrap()
}

/// A file of which everything is to be loaded, and has space otherwise.
fn begun() -> (OwnedFd, Arc<Medium>, Arc<Fake>) {
    let file = memfd(0);
    let medium = create(file.as_fd().try_clone_to_owned().unwrap());
    let geometry = layout();
    let never = geometry.never_loaded();
    medium.back(&[0..STATE.bytes(), never], geometry.len_at(GROUPS)).unwrap();
    let fill = Arc::new(Fake::default());
    load_from(&medium, &fill).make_table().unwrap();
    let memory = map(&medium, &fill, MapOptions::default());
    memory.begin_loading(7);
    memory.made_anew(GROUPS, 8);
    (file, medium, fill)
}

/// What is loaded.
fn loaded() -> Vec<Range<u64>> {
    layout().loaded(GROUPS, 8)
}

/// What a region in which all is resident has, as a mapping of its own.
fn model() -> Mapped {
    let medium = create(memfd(0));
    let len = layout().len();
    medium.back(core::slice::from_ref(&(0..layout().len_at(GROUPS))), len).unwrap();
    let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
    for range in loaded() {
        for word in (range.start..range.end).step_by(8) {
            memory.put(at(word), word_of(word), Relaxed);
        }
    }
    memory
}

fn bytes(memory: &Mapped, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    memory.read(at(range.start), &mut bytes);
    bytes
}

fn assert_same(found: &Mapped, expected: &Mapped, what: &str) {
    for range in loaded() {
        let (found, expected) = (bytes(found, range.clone()), bytes(expected, range.clone()));
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs.map(|index| range.start + index as u64), None, "{what}");
    }
    assert_eq!(found.failed(), None, "{what}");
}

type Access1 = (&'static str, fn(&Mapped, u64) -> Vec<u8>);

/// What can be done to the persistent part at an offset.
fn accesses() -> Vec<Access1> {
    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
    const FIVE: [u8; 5 << 10] = [5; 5 << 10];
    vec![
        ("load", |m, x| words(&[m.load(at(x), Acquire)])),
        ("read", |m, x| bytes(m, x + 3..x + 4)),
        ("read across a word", |m, x| bytes(m, x - 3..x + 21)),
        ("read across pages", |m, x| bytes(m, x - 5000..x + 9001)),
        ("put", |m, x| {
            m.put(at(x), 1, Relaxed);
            vec![]
        }),
        ("put_or", |m, x| {
            m.put_or(at(x), 0b110);
            vec![]
        }),
        ("put_and_not", |m, x| {
            m.put_and_not(at(x), u64::MAX << 7);
            vec![]
        }),
        ("put_bytes in a word", |m, x| {
            m.put_bytes(at(x + 2), &[1, 2]);
            vec![]
        }),
        ("put_bytes across pages", |m, x| {
            m.put_bytes(at(x - 1027), &FIVE);
            vec![]
        }),
        ("put_zeros", |m, x| {
            m.put_zeros(at(x - 3), 6);
            vec![]
        }),
        ("put_zeros of pages", |m, x| {
            m.put_zeros(at(x - 13), 3 * PAGE);
            vec![]
        }),
        ("store", |m, x| {
            m.store(at(x), 2, Relaxed);
            vec![]
        }),
        ("compare_exchange", |m, x| {
            let (Ok(was) | Err(was)) = m.compare_exchange(at(x), word_of(x), 3, AcqRel, Acquire);
            words(&[was])
        }),
        ("write_back", |m, x| {
            m.write_back(at(x - 9), 18);
            vec![]
        }),
        ("wait", |m, x| {
            m.wait(at(x), word_of(x) as u32 ^ 1, LIMIT);
            m.wake(at(x), 1);
            vec![]
        }),
    ]
}

#[test]
fn every_access_to_what_is_not_resident_finds_and_leaves_what_is_right() {
    let geometry = layout();
    let heap = geometry.page(0).bytes();
    // In a page, at its start, at that of a group, in the tables.
    let places =
        [heap + 3 * PAGE + 64, heap + 7 * PAGE, heap + GROUP, geometry.descriptor(600).bytes()];
    for request in [Request::ByMedium, Request::Always] {
        for (name, access) in accesses() {
            for place in places {
                let (_file, medium, fill) = begun();
                let options = MapOptions { write_back: request, ..MapOptions::default() };
                let (memory, model) = (map(&medium, &fill, options), model());
                let what = format!("{name} at {place}");
                assert_eq!(access(&memory, place), access(&model, place), "{what}");
                assert_same(&memory, &model, &what);
            }
        }
    }
}

#[test]
fn what_is_never_loaded_asks_nobody_and_what_is_not_there_is_refused() {
    let (_file, medium, fill) = begun();
    let memory = map(&medium, &fill, MapOptions::default());
    let geometry = layout();
    let never = [at(0), at(PAGE), geometry.image_page(0), geometry.log_chunk(3), geometry.head(0)];
    for place in never.into_iter().chain([geometry.chunk(8)]) {
        memory.put(place, 5, Relaxed);
        memory.store(place.plus(8), 6, Relaxed);
        assert_eq!(bytes(&memory, place.bytes()..place.bytes() + 16)[8], 6);
        assert_eq!(memory.load(place, Relaxed), 5);
    }
    // Groups that have come since are not in the image.
    let new = geometry.page(512 * GROUPS);
    medium.back(&geometry.space(GROUPS, GROUPS + 1), geometry.len_at(GROUPS + 1)).unwrap();
    assert_eq!(memory.load(new, Relaxed), 0);
    assert_eq!((fill.calls.load(Relaxed), memory.failed()), (0, None));
    // Behind what the table's first page has: the table itself can't be reached.
    for bad in [geometry.len(), geometry.len() + 8, geometry.page(0).bytes() + 4, u64::MAX - 7] {
        let memory = map(&medium, &fill, MapOptions::default());
        assert_eq!(memory.load(at(bad), Relaxed), 0);
        memory.put(at(bad), 99, Relaxed);
        assert!(memory.failed().unwrap().contains("out of bounds"));
    }
    assert_eq!(fill.calls.load(Relaxed), 0);
}

#[test]
fn what_cant_be_read_fails_the_mapping_and_is_never_taken_for_zeros() {
    let (_file, medium, fill) = begun();
    let (memory, other) = (map(&medium, &fill, MapOptions::default()), model());
    let place = layout().page(3);
    fill.fails.store(true, Relaxed);
    assert_eq!(memory.load(place, Relaxed), 0);
    memory.put(place.plus(8), 1, Relaxed);
    memory.put_bytes(place.plus(16), &[1; 5000]);
    assert!(memory.failed().unwrap().contains("can't be read from the volume"));
    let stop = AtomicBool::new(false);
    let error = memory.load_groups(&memory.groups_to_load(), 3, &stop).unwrap_err();
    assert!(error.to_string().contains("the device is gone"), "{error}");
    assert!(!memory.complete_loading());
    fill.fails.store(false, Relaxed);
    let memory = map(&medium, &fill, MapOptions::default());
    assert_same(&memory, &other, "afterwards");
}

#[test]
fn a_lack_of_memory_fails_the_mapping() {
    let place = Temporary::shm();
    fork(|_| {
        mount_privately("tmpfs", "size=6m", &place.0);
        let medium = create(place.0.join("core"));
        let geometry = layout();
        let never = geometry.never_loaded();
        medium.back(&[0..STATE.bytes(), never], geometry.len_at(GROUPS)).unwrap();
        let fill = Arc::new(Fake::default());
        load_from(&medium, &fill).make_table().unwrap();
        let memory = map(&medium, &fill, MapOptions::default());
        memory.begin_loading(7);
        memory.made_anew(GROUPS, 8);
        let all: Vec<u64> =
            (0..GROUPS).map(|n| memory.load(geometry.page(n * 512), Relaxed)).collect();
        let failed = memory.failed().unwrap();
        assert!(failed.contains("no memory for a page"), "{failed}");
        assert_eq!(all[0], word_of(geometry.page(0).bytes()));
        assert_eq!(all[2], 0);
    })
    .join();
}

#[test]
fn mappings_for_reading_only_and_shielded_ones_load_as_well() {
    let geometry = layout();
    let volatile = geometry.volatile();
    let (_file, medium, fill) = begun();
    let options = MapOptions { read_only: Some(volatile.clone()), ..MapOptions::default() };
    let reader = map(&medium, &fill, options);
    let place = geometry.page(5);
    assert_eq!(reader.load(place, Relaxed), word_of(place.bytes()));
    reader.store(geometry.head(0), 4, Relaxed);
    assert_eq!((reader.load(geometry.head(0), Relaxed), reader.failed()), (4, None));
    let options = MapOptions { shield: Some(volatile), ..MapOptions::default() };
    let shielded = map(&medium, &fill, options);
    let place = geometry.page(600);
    assert_eq!(shielded.load(place, Relaxed), word_of(place.bytes()));
    assert!(shielded.open_window());
    shielded.put(place, 9, Relaxed);
    shielded.close_window();
    assert_eq!(reader.load(place, Relaxed), 9);
    reader.put(place, 10, Relaxed);
    assert!(reader.failed().unwrap().contains("for reading only"));
    assert_eq!(shielded.load(place, Relaxed), 9);
}

#[test]
fn when_all_is_resident_nobody_asks_any_more() {
    let (_file, medium, fill) = begun();
    let memories = [(); 2].map(|()| map(&medium, &fill, MapOptions::default()));
    let [memory, other] = &memories;
    let total = loaded().iter().map(|range| range.end - range.start).sum();
    assert_eq!(memory.progress(), Some(Progress { resident: 0, total }));
    assert_eq!(memory.load(layout().page(0), Relaxed), word_of(layout().page(0).bytes()));
    assert_eq!(other.progress(), Some(Progress { resident: GROUP, total }));
    assert!(!memory.complete_loading());
    let groups = memory.groups_to_load();
    memory.load_groups(&groups, 4, &AtomicBool::new(false)).unwrap();
    assert_eq!(other.progress(), Some(Progress { resident: total, total }));
    assert!(memory.complete_loading() && memory.complete_loading());
    let calls = fill.calls.load(Relaxed);
    assert_eq!(
        (memory.progress(), other.progress(), memory.groups_to_load()),
        (None, None, vec![])
    );
    let later = map(&medium, &fill, MapOptions::default());
    for memory in [other, &later] {
        assert_same(memory, &model(), "complete");
    }
    assert_eq!(fill.calls.load(Relaxed), calls);
    assert_eq!(memory.len_without_table(), Some(layout().len_at(GROUPS)));
    memory.note_len(layout().len_at(GROUPS + 1));
    memory.note_len(5);
    assert_eq!(later.len_without_table(), Some(layout().len_at(GROUPS + 1)));
}

/// Adds 1 to many words, as one of several.
fn add(memory: &Mapped, rounds: u64) {
    let ranges = loaded();
    for round in 0..rounds {
        for range in &ranges {
            for place in
                (range.start..range.end).step_by((PAGE + 8 * (round as usize % 9) as u64) as usize)
            {
                let place = at(place / 8 * 8);
                let mut old = memory.load(place, Relaxed);
                while let Err(found) =
                    memory.compare_exchange(place, old, old.wrapping_add(1), AcqRel, Relaxed)
                {
                    old = found;
                }
            }
        }
    }
}

#[test]
fn several_threads_and_processes_load_the_same_and_lose_nothing_that_is_changed() {
    for round in 0..6 {
        let (_file, medium, _) = begun();
        let delay = Duration::from_micros(round * 300);
        let fill = || Arc::new(Fake { delay, ..Fake::default() });
        let children: Vec<Child> = (0..3)
            .map(|_| fork(|_| add(&map(&medium, &fill(), MapOptions::default()), 4)))
            .collect();
        let memory = map(&medium, &fill(), MapOptions::default());
        std::thread::scope(|scope| {
            let two = [(); 2].map(|()| scope.spawn(|| add(&memory, 4)));
            let groups: Vec<u64> = memory.groups_to_load().into_iter().rev().collect();
            memory.load_groups(&groups, 2, &AtomicBool::new(false)).unwrap();
            assert!(memory.complete_loading());
            two.into_iter().for_each(|it| it.join().unwrap());
        });
        children.into_iter().for_each(Child::join);
        let model = model();
        (0..5).for_each(|_| add(&model, 4));
        assert_same(&memory, &model, &format!("{round}"));
    }
}

/// Loads all, and dies after `steps` steps; false if there are not so many.
fn dies_after(medium: &Arc<Medium>, steps: u32, groups: &[u64]) -> bool {
    let mut child = fork(|_| {
        let fill = Arc::new(Fake { dies: Some(AtomicU32::new(steps)), ..Fake::default() });
        let memory = map(medium, &fill, MapOptions::default());
        memory.load_groups(groups, 1, &AtomicBool::new(false)).unwrap();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(3) };
    });
    match libc::WEXITSTATUS(child.wait()) {
        0 => true,
        3 => false,
        other => panic!("{other}"),
    }
}

#[test]
fn who_loads_may_die_at_every_step_while_others_go_on() {
    let geometry = layout();
    // One with pages that are there already, in several runs.
    let (first, group) = (geometry.page(0).bytes(), geometry.page(0).bytes() / GROUP);
    let there: Vec<u64> = [0, 1, 70, 200, 201, 511].map(|page| first + page * PAGE).to_vec();
    let mut steps = 0;
    loop {
        let (_file, medium, fill) = begun();
        let memory = map(&medium, &fill, MapOptions::default());
        let pages = there.iter().copied().map(Offset::new).collect();
        memory.load_pages(&pages, 2).unwrap();
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let died = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Once at least, however late it comes to it.
                loop {
                    for &place in &there {
                        memory.put(at(place + 16), count.load(Relaxed) + 1, Relaxed);
                    }
                    count.fetch_add(1, Relaxed);
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            });
            let died = dies_after(&medium, steps, &[group]);
            stop.store(true, Relaxed);
            died
        });
        let model = model();
        for &place in &there {
            model.put(at(place + 16), count.load(Relaxed), Relaxed);
        }
        let other = map(&medium, &fill, MapOptions::default());
        assert_same(&other, &model, &format!("{steps} steps"));
        if !died {
            break;
        }
        steps += 1;
    }
    // Claimed, a run written between those that were there, eight words of bits, released.
    assert_eq!(steps, 1 + 3 + 8 + 1);
}

/// A region as it is made, and the file of one that is loaded from it.
fn region(fill: impl FnOnce(Vec<u8>) -> Fake) -> (OwnedFd, Arc<Fake>) {
    let kinds = [KindSpec::UNUSED; conquest_format::kind::KINDS];
    let new = NewRegion { shape: SHAPE, kinds, uuid: [3; 16], created: 1, groups: GROUPS };
    let whole = memfd(0);
    Region::create(Source::Descriptor(whole.try_clone().unwrap()), 0o600, &new).unwrap();
    let mut image =
        std::fs::read(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&whole)))
            .unwrap();
    image.resize(layout().len() as usize, 0);
    let last = layout().page(GROUPS * 512 - 1).bytes() as usize;
    image[last..last + 8].copy_from_slice(&77_u64.to_le_bytes());
    let fill = Arc::new(fill(image));
    let file = memfd(0);
    let medium = create(file.try_clone().unwrap());
    let host = OsHost::new(Arc::clone(&medium), &layout()).unwrap();
    load_from(&medium, &fill).make_table().unwrap();
    let memory = map(&medium, &fill, MapOptions::default());
    memory.begin_loading(7);
    let origin = Origin { first: 100, incarnation: 7 };
    let mut replay = Replay::loading(&memory, &host, Path::new("region"), &new, origin).unwrap();
    let mut state = [0; PAGE as usize];
    memory.read(STATE, &mut state);
    assert!(replay.put_page(STATE, &state).unwrap());
    let (groups, chunks) = replay.finish().unwrap();
    assert_eq!((groups, chunks), (GROUPS, 8));
    memory.made_anew(groups, chunks);
    (file, fill)
}

fn open(file: &OwnedFd, fill: Option<&Arc<Fake>>) -> conquest_pm::Result<Arc<Region>> {
    let fill = fill.map(|fill| -> Arc<dyn Fill> { Arc::<Fake>::clone(fill) });
    let kinds = [KindSpec::UNUSED; conquest_format::kind::KINDS];
    let options = Options { fill, ..Options::default() };
    let source = Source::Descriptor(file.try_clone().unwrap());
    Region::open(source, &kinds, Access::default(), options)
}

fn is_loading(file: &OwnedFd) -> bool {
    let medium = Medium::open(Source::Descriptor(file.try_clone().unwrap())).unwrap();
    let features = [0, PAGE].map(|copy| {
        let mut bytes = [0; SIZE];
        medium.peek(copy, &mut bytes).unwrap();
        let found = RawSuperblock::from_bytes(&bytes).check().unwrap();
        (found.sequence, found.features_incompatible)
    });
    features.into_iter().max().unwrap().1 & LOADING != 0
}

fn len(file: &OwnedFd) -> u64 {
    Medium::open(Source::Descriptor(file.try_clone().unwrap())).unwrap().len().unwrap()
}

#[test]
fn a_region_that_is_loaded_is_attached_only_by_who_can_load_it_until_it_is_whole() {
    let (file, fill) = region(|image| Fake { image: Some(image), ..Fake::default() });
    assert!(matches!(open(&file, None), Err(Error::Loading { .. })));
    let last = layout().page(GROUPS * 512 - 1);
    for _ in 0..2 {
        let core = open(&file, Some(&fill)).unwrap();
        assert_eq!((core.groups(), core.memory().load(last, Relaxed)), (GROUPS, 77));
        core.detach().unwrap();
        assert!(is_loading(&file));
    }
    assert!(len(&file) > layout().len());
    // Who has come before it is whole, who comes then, and who comes after that.
    let core = open(&file, Some(&fill)).unwrap();
    let groups = core.memory().groups_to_load();
    core.memory().load_groups(&groups, 2, &AtomicBool::new(false)).unwrap();
    assert!(core.memory().complete_loading());
    let other = open(&file, Some(&fill)).unwrap();
    core.detach().unwrap();
    assert!(is_loading(&file));
    other.memory().put(last, 78, Relaxed);
    other.detach().unwrap();
    assert!(!is_loading(&file));
    assert_eq!(len(&file), layout().len_at(GROUPS));
    let core = open(&file, None).unwrap();
    assert_eq!(core.memory().load(last, Relaxed), 78);
    core.check_health().unwrap();
}

#[test]
fn a_forked_child_opens_what_it_loads_from_and_one_inside_an_operation_gets_nothing() {
    let (file, fill) = region(|image| Fake { image: Some(image), ..Fake::default() });
    let core = open(&file, Some(&fill)).unwrap();
    let last = layout().page(GROUPS * 512 - 1);
    fork(|_| {
        drop(core.begin().unwrap());
        assert_eq!(fill.life.load(Relaxed), 1);
        assert_eq!((core.memory().load(last, Relaxed), core.memory().failed()), (77, None));
    })
    .join();
    let other = layout().page(GROUPS * 512 - 600);
    let transaction = core.begin().unwrap();
    let child = fork(|_| {
        assert_eq!(core.memory().load(other, Relaxed), 0);
        assert!(core.memory().failed().unwrap().contains("forked inside an operation"));
    });
    child.join();
    drop(transaction);
    assert_eq!((core.memory().load(last, Relaxed), core.memory().failed()), (77, None));
}
