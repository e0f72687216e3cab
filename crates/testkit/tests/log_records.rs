//! What stands in the log of a region: the items of records, also of those that do not fit a chunk,
//! that could not be written down, or whose owners die.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use core::mem::ManuallyDrop;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use conquest_format::geometry::{STATE_ROOTS, STATE_SLAB_GROUPS, Shape};
use conquest_format::journal::Action;
use conquest_format::kind::Kind;
use conquest_format::log::{
    CHUNK, Fragments, Item, ItemKind, Items, Owner, State, chunk, end, fragment,
};
use conquest_format::log::{lane, unpack_end};
use conquest_format::{GROUP_PAGES, Geometry, Offset, PAGE, WORD};
use conquest_pm::log::Copied;
use conquest_pm::memory::Memory;
use conquest_pm::{Error, Place, Result, Tx};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::shelf::Node;
use conquest_testkit::{DyingMemory, Fate, RecordingMemory, SimHost, World, become_actor};

const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };
/// A lane that nobody uses.
const IDLE: u32 = SHAPE.lanes - 1;
/// Pages of the run that records are about.
const PAGES: u64 = 40;
/// Bytes of all that [`fill`] may leave of a chunk.
const LEFT_MAX: u64 = 1248;

fn paper() -> Kind {
    Kind::new(2).unwrap()
}

fn root(index: u64) -> Offset {
    STATE_ROOTS.plus(index * WORD)
}

/// A region with a run, all of which is durable.
struct Region {
    memory: RecordingMemory,
    world: World,
    core: SimCore,
    geometry: Geometry,
    run: Place,
}

impl Region {
    fn new() -> Region {
        become_actor(0);
        let (memory, world) = fresh(SHAPE, false).unwrap();
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
        let made = core.run(|tx| {
            let run = tx.alloc_run(paper(), PAGES, None)?;
            let at = tx.finish_run(run);
            tx.set(root(0), at.bytes())?;
            Ok(at)
        });
        let run = core.resolve_run(made.unwrap(), PAGES, paper()).unwrap();
        core.set_durable(core.next_sequence()).unwrap();
        let geometry = core.geometry().clone();
        Region { memory, world, core, geometry, run }
    }

    /// What the log has that is not durable, which is so from now on.
    fn sealed(&self) -> Vec<u8> {
        let sealed = self.core.seal(self.core.durable(), Copied::new()).unwrap();
        let fragments = sealed.map_or_else(Vec::new, |sealed| {
            self.core.set_durable(sealed.cut).unwrap();
            sealed.fragments
        });
        assert_eq!(self.memory.violation(), None);
        fragments
    }

    fn owner(&self, number: u32) -> Owner {
        let at = self.geometry.log_header(number).plus(chunk::OWNER);
        Owner::unpack(self.core.memory().load(at, Ordering::Relaxed))
    }

    /// Lets all chunks be an idle lane's, or those nobody's.
    fn hog(&self, is_hogged: bool) {
        hog(&self.memory, &self.geometry, is_hogged);
    }

    /// No lane holds more than one chunk when it is with no record.
    fn assert_few_held(&self) {
        let mut held = BTreeSet::new();
        for owner in (0..SHAPE.log).map(|number| self.owner(number)).filter(|owner| owner.is_held) {
            assert!(held.insert(owner.lane), "lane {:?} holds two chunks", owner.lane);
        }
    }
}

fn hog(memory: &RecordingMemory, geometry: &Geometry, is_hogged: bool) {
    let memory = memory.this_thread();
    for number in 0..SHAPE.log {
        let at = geometry.log_header(number).plus(chunk::OWNER);
        let owner = Owner::unpack(memory.load(at, Ordering::Relaxed));
        let lane = is_hogged.then_some(IDLE);
        if is_hogged || owner.lane == Some(IDLE) {
            memory.store(at, Owner { lane, is_held: is_hogged, ..owner }.pack(), Ordering::Relaxed);
        }
    }
}

/// What records say, wherever it stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Said {
    bytes: BTreeMap<u64, u8>,
    words: Vec<(Offset, Action, u64)>,
    pages: BTreeSet<u64>,
}

impl Said {
    fn of(fragments: &[u8]) -> Said {
        let mut said = Said::default();
        for (_, _, fragment) in Fragments::of(fragments) {
            Items::of(fragment).for_each(|item| said.note(item));
        }
        said
    }

    fn note(&mut self, item: Item<'_>) {
        match item {
            Item::Words(_) => self
                .words
                .extend(item.entries().map(|entry| (entry.target, entry.action, entry.operand))),
            Item::Bytes(at, bytes) => self.put(at, bytes),
            Item::Zeros(at, len) => self.put(at, &vec![0; len as usize]),
            Item::Pages(at, count) => {
                self.pages.extend((0..count).map(|page| at.bytes() + page * PAGE));
            }
        }
    }

    fn put(&mut self, at: Offset, bytes: &[u8]) {
        self.bytes.extend((at.bytes()..).zip(bytes.iter().copied()));
    }
}

/// Bytes that an item has at least where it stands: what is too much for a chunk is cut.
fn least(item: Item<'_>) -> u64 {
    match item {
        Item::Words(_) => 3 * WORD,
        Item::Bytes(_, bytes) => 2 * WORD + (bytes.len() as u64).next_multiple_of(WORD).min(64),
        Item::Zeros(..) | Item::Pages(..) => 2 * WORD,
    }
}

type SimTx<'c> = Tx<'c, SimMemory, SimHost>;

fn put(tx: &mut SimTx<'_>, run: Place, said: &mut Said, start: u64, bytes: &[u8]) -> Result<()> {
    said.put(run.offset().plus(start), bytes);
    tx.put_unseen(run, start, bytes)
}

/// Lets `left` bytes of the first chunk of a record be left.
fn fill(tx: &mut SimTx<'_>, run: Place, said: &mut Said, left: u64) -> Result<()> {
    for page in 0..16 {
        put(tx, run, said, page * PAGE, &[page as u8 + 1; 4000])?;
    }
    match LEFT_MAX - left {
        0 => Ok(()),
        len => put(tx, run, said, 16 * PAGE, &vec![99; len as usize]),
    }
}

fn set(tx: &mut SimTx<'_>, said: &mut Said, index: u64, value: u64) -> Result<()> {
    said.words.push((root(index), Action::Set, value));
    tx.set(root(index), value)
}

/// What a record has behind what [`fill`] gives it.
#[derive(Clone, Copy, Debug)]
enum Behind {
    Zeros,
    Page,
    Bytes,
    Words,
    Copy,
}

impl Behind {
    const ALL: [Behind; 5] =
        [Behind::Zeros, Behind::Page, Behind::Bytes, Behind::Words, Behind::Copy];

    fn stage(self, tx: &mut SimTx<'_>, run: Place, said: &mut Said) -> Result<()> {
        let at = run.offset();
        match self {
            Behind::Zeros => {
                said.put(at.plus(20 * PAGE + 3), &[0; 40]);
                tx.zero_unseen(run, 20 * PAGE + 3, 40)?;
            }
            Behind::Page => {
                said.pages.insert(at.plus(21 * PAGE).bytes());
                tx.put_unseen(run, 21 * PAGE, &[21; PAGE as usize])?;
            }
            Behind::Bytes => put(tx, run, said, 22 * PAGE + 3, &[22; 1001])?,
            Behind::Words => (2..9).try_for_each(|index| set(tx, said, index, index))?,
            Behind::Copy => {
                said.put(at.plus(23 * PAGE), &[23; 1504]);
                tx.overwrite(run.part(23 * PAGE, 1504).unwrap(), &[23; 1504])?;
            }
        }
        set(tx, said, 1, 77)
    }
}

/// Commits a record that [`fill`] and `behind` make, which begins a chunk.
fn commit(region: &Region, left: u64, behind: Behind) -> Said {
    let mut said = Said::default();
    let mut tx = region.core.begin().unwrap();
    fill(&mut tx, region.run, &mut said, left).unwrap();
    behind.stage(&mut tx, region.run, &mut said).unwrap();
    tx.commit().unwrap();
    said
}

#[test]
fn a_record_that_fits_no_chunk_goes_on_in_others_when_the_first_one_is_full() {
    let region = Region::new();
    for behind in Behind::ALL {
        for left in (0..=112).step_by(8).chain([LEFT_MAX]) {
            let said = commit(&region, left, behind);
            region.assert_few_held();
            let fragments = region.sealed();
            assert_eq!(Said::of(&fragments), said, "{behind:?}, {left} bytes are left");
            let all: Vec<_> = Fragments::of(&fragments).collect();
            for (index, pair) in (0..).zip(all.windows(2)) {
                let [(_, first, full), (_, second, next)] = pair else { panic!() };
                assert_eq!((*first, *second), (index, index + 1));
                let needed = least(Items::of(next).next().unwrap());
                let free = CHUNK - full.len() as u64;
                assert!(free < needed, "{behind:?}, {left}: {free} bytes for {needed}");
            }
        }
    }
}

#[test]
fn whole_pages_that_are_new_are_named_and_the_rest_is_copied() {
    let region = Region::new();
    let (run, at) = (region.run, region.run.offset());
    let byte = |start: u64, len: u64| Item::Bytes(at.plus(start), &[5; 8192][..len as usize]);
    let page = |start: u64, count| Item::Pages(at.plus(start), count);
    let second = PAGE;
    for (start, len, expected) in [
        (0, PAGE, vec![page(0, 1)]),
        (second, 2 * PAGE, vec![page(second, 2)]),
        (100, 50, vec![byte(100, 50)]),
        (second - 10, 20, vec![byte(second - 10, 20)]),
        (second - 10, 10, vec![byte(second - 10, 10)]),
        (second, 10, vec![byte(second, 10)]),
        (second - 10, PAGE + 10, vec![byte(second - 10, 10), page(second, 1)]),
        (second, PAGE + 10, vec![page(second, 1), byte(2 * PAGE, 10)]),
        (10, 2 * PAGE - 20, vec![byte(10, 2 * PAGE - 20)]),
    ] {
        let bytes = vec![5; len as usize];
        region
            .core
            .run(|tx| {
                tx.put_unseen(run, start, &bytes)?;
                tx.set(root(1), start)
            })
            .unwrap();
        let fragments = region.sealed();
        let (_, _, fragment) = Fragments::of(&fragments).next().unwrap();
        let is_other = |item: &Item<'_>| !matches!(item, Item::Words(_));
        let found: Vec<_> = Items::of(fragment).filter(is_other).collect();
        assert_eq!(found, expected, "{len} bytes at {start}");
    }
    // Tables are copied, whatever they are filled with.
    let made = region.core.run(|tx| {
        let run = tx.alloc_run(paper(), GROUP_PAGES, None)?;
        Ok(tx.finish_run_ahead(run))
    });
    let number = region.geometry.page_of(made.unwrap()).unwrap();
    let said = Said::of(&region.sealed());
    let descriptors = region.geometry.descriptor(number).bytes();
    assert!(said.pages.is_empty(), "{:?}", said.pages);
    assert!((descriptors..descriptors + PAGE).all(|at| said.bytes.contains_key(&at)));
}

/// The number of no store.
const NEVER: u64 = u64::MAX >> 1;

/// Does what `stage` does while no chunk of the log is free, up to store `store` of it: whether
/// that could be committed.
fn while_full(region: &Region, store: u64, stage: impl Fn(&mut SimTx<'_>) -> Result<()>) -> bool {
    region.sealed();
    region.hog(true);
    let mut tx = region.core.begin().unwrap();
    let (memory, geometry) = (region.memory.clone(), region.geometry.clone());
    let room = Fate::Call(Box::new(move || hog(&memory, &geometry, false)));
    region.core.memory().meet(store, room);
    stage(&mut tx).unwrap();
    region.core.memory().meet(0, Fate::Live);
    region.hog(false);
    tx.set(root(1), store).unwrap();
    match tx.commit() {
        Ok(()) => true,
        Err(Error::LogFull { chunks: 24, .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_could_not_be_written_down_is_not_committed() {
    let region = Region::new();
    let run = region.run;
    let value = || region.core.memory().load(root(1), Ordering::Relaxed);
    // Nothing was to be written down while there was no room.
    assert!(while_full(&region, NEVER, |_| Ok(())));
    let stages: [fn(&mut SimTx<'_>, Place) -> Result<()>; 3] = [
        |tx, run| tx.put_unseen(run, 8, &[1; 100]),
        |tx, run| tx.zero_unseen(run, 8, 100),
        |tx, run| tx.put_unseen(run, 0, &[1; PAGE as usize]),
    ];
    for stage in stages {
        // There is room at once, or when all is staged.
        assert!(while_full(&region, 1, |tx| stage(tx, run)));
        assert_eq!(value(), 1);
        let said = Said::of(&region.sealed());
        let count = said.bytes.len() + said.pages.len() * PAGE as usize;
        assert!([100, PAGE as usize].contains(&count), "{count}");
        assert!(!while_full(&region, NEVER, |tx| stage(tx, run)));
        assert_eq!((value(), region.sealed()), (1, vec![]));
    }
}

#[test]
fn a_record_has_all_or_is_not_committed_whenever_there_is_room_again() {
    let mut done = Vec::new();
    for store in 1..60 {
        let region = Region::new();
        let is_done = while_full(&region, store, |tx| {
            let node = tx.alloc::<Node>()?;
            let node = tx.seal(node);
            tx.set(root(2), node.word())
        });
        done.push(is_done);
        if is_done {
            // Among others a slab that there was not before.
            let said = Said::of(&region.sealed());
            let is_mask = |word: &&(Offset, Action, u64)| word.0 == STATE_SLAB_GROUPS;
            assert_eq!(said.words.iter().filter(is_mask).count(), 1, "store {store}");
            assert!(said.bytes.len() > 384, "store {store}: {}", said.bytes.len());
        }
    }
    assert!(done.contains(&true) && done.contains(&false), "{done:?}");
}

#[test]
fn a_record_that_is_dropped_leaves_its_chunks() {
    let region = Region::new();
    for round in 0..100 {
        let mut said = Said::default();
        let mut tx = region.core.begin().unwrap();
        fill(&mut tx, region.run, &mut said, 8).unwrap();
        Behind::Bytes.stage(&mut tx, region.run, &mut said).unwrap();
        drop(tx);
        region.assert_few_held();
        // Something else takes nothing of it.
        region.core.run(|tx| tx.set(root(3), round)).unwrap();
        let mut expected = Said::default();
        expected.words.push((root(3), Action::Set, round));
        assert_eq!(Said::of(&region.sealed()), expected);
    }
}

/// Lets a process die before its store number `store` of a record in two fragments, and another one
/// recover. Whether it died.
fn dies_at(store: u64) -> bool {
    let region = Region::new();
    become_actor(1);
    let memory = DyingMemory::counting(region.memory.actor(1));
    let core = ManuallyDrop::new(attach(memory, &region.world, 1).unwrap());
    let world = region.world.clone();
    core.memory().meet(store, Fate::Unwind(Box::new(move || world.kill(1))));
    let mut said = Said::default();
    let perform = || {
        let mut tx = core.begin().unwrap();
        fill(&mut tx, region.run, &mut said, 8).unwrap();
        Behind::Words.stage(&mut tx, region.run, &mut said).unwrap();
        tx.commit().unwrap();
    };
    let has_died = catch_unwind(AssertUnwindSafe(perform)).is_err();
    become_actor(0);
    region.core.recover().unwrap();
    region.assert_few_held();
    let is_done = region.core.memory().load(root(1), Ordering::Relaxed) == 77;
    let expected = if is_done { said } else { Said::default() };
    assert_eq!(Said::of(&region.sealed()), expected, "store {store}");
    has_died
}

#[test]
fn whoever_dies_in_the_middle_of_several_chunks_leaves_them() {
    // The last one of all of its stores.
    let mut most = 1;
    while dies_at(most) {
        most *= 2;
    }
    let mut least = most / 2;
    while least + 1 < most {
        let middle = u64::midpoint(least, most);
        *(if dies_at(middle) { &mut least } else { &mut most }) = middle;
    }
    assert!(least > 1000);
    for store in least - 150..least {
        assert!(dies_at(store));
    }
}

/// Damages what a process has left that died when it had committed a record in the log and not
/// counted it in its chunk: how far that counts after recovery, and how far it did before.
fn after_damage(damage: impl Fn(&mut [u64; 2], &mut u64)) -> [u64; 2] {
    let set_once = |core: &SimCore, value| {
        core.run(|tx| {
            tx.put_unseen(
                core.resolve_run(Offset::new(tx.get(root(0))), 1, paper())?,
                0,
                &[1; 100],
            )?;
            tx.set(root(1), value)
        })
    };
    for store in 1.. {
        let region = Region::new();
        become_actor(1);
        let memory = DyingMemory::counting(region.memory.actor(1));
        let core = ManuallyDrop::new(attach(memory, &region.world, 1).unwrap());
        set_once(&core, 1).unwrap();
        let sequence = core.next_sequence();
        let world = region.world.clone();
        core.memory().meet(store, Fate::Unwind(Box::new(move || world.kill(1))));
        let has_died = catch_unwind(AssertUnwindSafe(|| set_once(&core, 2))).is_err();
        become_actor(0);
        assert!(has_died, "it was counted at once");
        let memory = region.memory.this_thread();
        let load = |at: Offset| memory.load(at, Ordering::Relaxed);
        let state = |number| load(region.geometry.log_lane(number).plus(lane::STATE));
        let is_committed = |&number: &u32| state(number) == State::Committed(sequence).pack();
        let Some(number) = (0..SHAPE.lanes).find(is_committed) else {
            continue;
        };
        let is_its = |&of: &u32| region.owner(of).is_held && region.owner(of).lane == Some(number);
        let of = (0..SHAPE.log).find(is_its).unwrap();
        let header = region.geometry.log_header(of);
        let life = region.owner(of).life;
        let before = unpack_end(load(header.plus(chunk::END)), life);
        let place = region.geometry.log_chunk(of).plus(before);
        let (mut words, mut counted) = ([load(place), load(place.plus(WORD))], before);
        assert_eq!(words[1], sequence);
        damage(&mut words, &mut counted);
        memory.put(place, words[0], Ordering::Relaxed);
        memory.put(place.plus(WORD), words[1], Ordering::Relaxed);
        memory.store(header.plus(chunk::END), end(counted, life), Ordering::Relaxed);
        region.core.recover().unwrap();
        assert_eq!(region.memory.violation(), None);
        // The lane itself has the record.
        assert_eq!(load(root(1)), 2);
        return [unpack_end(load(header.plus(chunk::END)), life), counted];
    }
    unreachable!()
}

#[test]
fn what_is_damaged_where_a_chunk_ends_does_not_count() {
    let [after, before] = after_damage(|_, _| ());
    assert!(after > before + 100, "what is not damaged does");
    let nothing = |[after, before]: [u64; 2]| assert_eq!(after, before);
    // Another record's; longer than the chunk; nothing that can be; no place for a fragment.
    nothing(after_damage(|words, _| words[1] -= 1));
    nothing(after_damage(|words, _| words[1] += 1));
    nothing(after_damage(|words, _| words[0] = fragment(CHUNK, 0)));
    nothing(after_damage(|words, _| words[0] = 8));
    nothing(after_damage(|_, counted| *counted += 4));
    nothing(after_damage(|_, counted| *counted = CHUNK));
    nothing(after_damage(|_, counted| *counted = CHUNK - WORD));
    nothing(after_damage(|_, counted| *counted = 0xFFFF_FFF8));
}

/// The chunk that begins with the first record that is not durable.
fn first_chunk(region: &Region) -> Offset {
    let memory = region.memory.this_thread();
    let begins = |number: &u32| {
        let second = region.geometry.log_chunk(*number).plus(WORD);
        memory.load(second, Ordering::Relaxed) == region.core.durable()
    };
    region.geometry.log_chunk((0..SHAPE.log).find(begins).unwrap())
}

#[test]
fn what_an_earlier_life_has_left_in_a_chunk_that_is_full_is_no_record() {
    let region = Region::new();
    let mut said = Said::default();
    // What is left is too little for another record.
    let mut tx = region.core.begin().unwrap();
    fill(&mut tx, region.run, &mut said, 200).unwrap();
    set(&mut tx, &mut said, 1, 1).unwrap();
    tx.commit().unwrap();
    region.core.run(|tx| set(tx, &mut said, 2, 2)).unwrap();
    let forged = [fragment(32, 1), region.core.next_sequence() - 1, ItemKind::Zeros.head(8), 4096];
    let end = first_chunk(&region).plus(CHUNK - 200 + 3 * WORD);
    for (index, word) in (0..).zip(forged) {
        region.memory.this_thread().put(end.plus(index * WORD), word, Ordering::Relaxed);
    }
    assert_eq!(Said::of(&region.sealed()), said);
}

#[test]
fn what_is_damaged_in_a_chunk_is_not_sealed() {
    let region = Region::new();
    let (run, geometry) = (region.run, region.geometry.clone());
    let both = |word: u64, damaged: u64| {
        for index in [1, 2] {
            region
                .core
                .run(|tx| {
                    tx.put_unseen(run, 0, &[index; PAGE as usize])?;
                    tx.set(root(index.into()), damaged)
                })
                .unwrap();
        }
        let place = first_chunk(&region).plus(word * WORD);
        region.memory.this_thread().put(place, damaged, Ordering::Relaxed);
        let sealed = region.core.seal(region.core.durable(), Copied::new()).unwrap().unwrap();
        region.core.set_durable(sealed.cut).unwrap();
        assert_eq!(region.memory.violation(), None);
        (Fragments::of(&sealed.fragments).count(), sealed.pages.places().collect::<Vec<_>>())
    };
    // A fragment has two words, a page that is named two, and a word that is set three.
    let sound = both(3, run.offset().bytes());
    assert_eq!(sound, (2, vec![run.offset()]));
    assert_eq!(both(7, fragment(CHUNK, 0)), (1, vec![run.offset()]));
    assert_eq!(both(7, 0), (1, vec![run.offset()]));
    // No page that the image has.
    let end = geometry.len_at(region.core.groups());
    for at in [0, geometry.log_chunk(0).bytes(), geometry.volatile().start, end, geometry.len()] {
        assert_eq!(both(3, at), sound, "{at}");
    }
}
