//! The log of a region: its chunks, when somebody makes room in it, and how checkpoints begin.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conquest_format::geometry::Shape;
use conquest_format::log::{CHUNK, FIRST, Fragments, Owner, chunk, end, head, lane, unpack_end};
use conquest_format::{Geometry, Offset, WORD};
use conquest_pm::log::{Asked, Copied, Refusal};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Options};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, options, shape};
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, run};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{Actor, DyingMemory, RecordingMemory, SimHost, World, become_actor};

const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };

/// A region that one process has attached.
struct Region {
    memory: RecordingMemory,
    core: SimCore,
    geometry: Geometry,
    /// Times that it had to make records durable.
    made: Arc<AtomicU32>,
}

impl Region {
    fn new(shape: Shape) -> Region {
        become_actor(0);
        let (memory, world) = fresh(shape, false).unwrap();
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
        let geometry = Geometry::new(shape).unwrap();
        Region { memory, core, geometry, made: Arc::default() }
    }

    /// One whose process makes records durable when there is no room.
    fn that_makes_room(shape: Shape) -> Region {
        become_actor(0);
        let (memory, world) = fresh(shape, false).unwrap();
        let made = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&made);
        let make = move |core: &Core<SimMemory, SimHost>| {
            counted.fetch_add(1, Ordering::Relaxed);
            core.set_durable(core.next_sequence())
        };
        let options = Options { make_durable: Some(Box::new(make)), ..options() };
        let alive = DyingMemory::counting(memory.actor(0));
        let (host, path) = (world.process(0), Path::new("core"));
        let core = Core::attach(alive, host, path, &shelf::kinds(), options).unwrap();
        let geometry = Geometry::new(shape).unwrap();
        Region { memory, core, geometry, made }
    }

    fn perform(&self, op: Op) {
        assert!(shelf::perform(&self.core, 0, op).unwrap());
    }

    fn push(&self, id: u64) {
        self.perform(Op::Push { list: 0, id, pages: 0 });
    }

    fn load(&self, at: Offset) -> u64 {
        self.core.memory().load(at, Ordering::Relaxed)
    }

    fn store(&self, at: Offset, value: u64) {
        self.core.memory().store(at, value, Ordering::Relaxed);
    }

    fn head(&self, word: u64) -> u64 {
        self.load(self.geometry.log_head(word))
    }

    fn set_head(&self, word: u64, value: u64) {
        self.store(self.geometry.log_head(word), value);
    }

    fn header(&self, chunk: u32, word: u64) -> Offset {
        self.geometry.log_header(chunk).plus(word)
    }

    fn owner(&self, chunk: u32) -> Owner {
        Owner::unpack(self.load(self.header(chunk, chunk::OWNER)))
    }

    fn chunks(&self) -> std::ops::Range<u32> {
        0..self.geometry.shape().log
    }

    /// The chunk that is held, of which there is one, and the lane that holds it.
    fn held(&self) -> (u32, u32) {
        let mut held = self.chunks().filter(|&number| self.owner(number).is_held);
        let found = held.next().unwrap();
        assert_eq!(held.next(), None);
        (found, self.owner(found).lane.unwrap())
    }

    /// Chunks that somebody has.
    fn used(&self) -> u64 {
        self.chunks().filter(|&number| self.owner(number).lane.is_some()).count() as u64
    }

    /// Looks whether all records from `from` on are in what is sealed.
    #[track_caller]
    fn all_is_sealed(&self, from: u64, about: &str) {
        let sealed = self.core.seal(from, Copied::new()).unwrap();
        let fragments = sealed.map(|sealed| sealed.fragments).unwrap_or_default();
        let mut found: Vec<u64> = Fragments::of(&fragments).map(|(number, ..)| number).collect();
        found.dedup();
        let expected: Vec<u64> = (from..self.core.next_sequence()).collect();
        assert_eq!(found, expected, "{about}");
        assert_eq!(self.memory.violation(), None, "{about}");
    }

    fn made(&self) -> u32 {
        self.made.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn a_lane_whose_next_chunk_is_not_its_own_takes_another_one() {
    let (behind, free) = (u64::from(SHAPE.log), 7);
    for chunk in
        [u64::from(free), behind, behind + 1, 1 << 20, u64::from(u32::MAX), 1 << 32, u64::MAX - 1]
    {
        let region = Region::new(SHAPE);
        region.push(1);
        let (_, lane) = region.held();
        // What stands behind the headers may look like the header of a chunk that it holds.
        let owner = Owner { lane: Some(lane), is_held: true, life: 1 };
        region.store(region.geometry.log_header(SHAPE.log), owner.pack());
        region.store(region.geometry.log_lane(lane).plus(lane::CHUNK), chunk + 1);
        (2..6).for_each(|id| region.push(id));
        region.all_is_sealed(FIRST, &format!("chunk {chunk}"));
        assert_eq!(region.owner(free), Owner::unpack(0), "chunk {chunk}");
    }
}

#[test]
fn a_chunk_that_ends_at_an_impossible_place_is_left() {
    let region = Region::new(SHAPE);
    let mut id = 1;
    region.push(id);
    for beyond in [1, 4, CHUNK, CHUNK - WORD, u64::from(u32::MAX), (1 << 32) - WORD] {
        let (number, _) = region.held();
        let life = region.owner(number).life;
        let at = region.header(number, chunk::END);
        let last = unpack_end(region.load(at), life);
        let wrong = if beyond < WORD { last + beyond } else { beyond };
        region.store(at, end(wrong, life));
        for _ in 0..3 {
            id += 1;
            region.push(id);
        }
        assert_ne!(region.held().0, number, "it ends at {wrong}");
        region.all_is_sealed(FIRST, &format!("it ends at {wrong}"));
    }
}

#[test]
fn a_lane_whose_records_become_durable_stays_in_its_chunk() {
    let region = Region::new(SHAPE);
    region.push(1);
    let (number, _) = region.held();
    for _ in 0..500 {
        region.core.set_durable(region.core.next_sequence()).unwrap();
        region.perform(Op::Touch { list: 0 });
        assert_eq!(region.core.lag().records, 1);
        assert_eq!((region.held().0, region.used()), (number, 1));
    }
    // One life for each time that all was durable.
    assert_eq!(region.owner(number).life, 501);
}

#[test]
fn a_chunk_is_free_when_all_in_it_is_durable_and_not_before() {
    let region = Region::new(SHAPE);
    region.push(1);
    while region.used() < 4 {
        region.perform(Op::Touch { list: 0 });
    }
    let next = region.core.next_sequence();
    let mut used = Vec::new();
    for cut in FIRST..=next {
        region.core.set_durable(cut).unwrap();
        region.all_is_sealed(cut, &format!("cut {cut}"));
        used.push(region.used());
        assert_eq!(region.head(head::USED), region.used(), "cut {cut}");
    }
    // They become free one by one; one is held.
    used.dedup();
    assert_eq!(used, [4, 3, 2, 1]);
    // Who says late what was durable earlier changes nothing.
    region.core.set_durable(FIRST + 1).unwrap();
    assert_eq!((region.core.durable(), region.head(head::USED)), (next, 1));
}

/// What counts the chunks in use is not exact.
#[test]
fn who_finds_no_chunk_free_makes_room_if_he_can() {
    let take_all = |region: &Region| {
        for number in region.chunks() {
            let owner = Owner { lane: Some(0), is_held: false, life: 1 };
            region.store(region.header(number, chunk::OWNER), owner.pack());
        }
        assert_eq!(region.head(head::USED), 0);
    };
    let push = Op::Push { list: 0, id: 1, pages: 0 };
    let region = Region::that_makes_room(SHAPE);
    take_all(&region);
    region.perform(push);
    assert_eq!((region.made(), region.used()), (1, 1));
    let region = Region::new(SHAPE);
    take_all(&region);
    let found = shelf::perform(&region.core, 0, push);
    assert!(matches!(found, Err(Error::LogFull { chunks: 24, .. })), "{found:?}");
}

/// What is done before an operation with so many chunks free, and so many pages named.
fn before_an_operation(region: &Region, free: u64, pages: u64) -> (u32, Asked) {
    region.set_head(head::USED, u64::from(region.geometry.shape().log) - free);
    region.set_head(head::PAGES, pages);
    drop(region.core.begin().unwrap());
    (region.made(), region.core.await_asked(Duration::ZERO))
}

#[test]
fn room_is_made_when_a_quarter_is_free_and_the_keeper_asked_from_three_quarters_on() {
    // Chunks that lanes do not have anyway: 100.
    let region = Region::that_makes_room(Shape { log: 105, ..SHAPE });
    let found = |free| before_an_operation(&region, free, 0);
    assert_eq!(found(105), (0, Asked::Nothing));
    assert_eq!(found(75), (0, Asked::Nothing));
    assert_eq!(found(74), (0, Asked::Hurry));
    assert_eq!(found(25), (0, Asked::Hurry));
    assert_eq!(found(24), (1, Asked::Nothing));
    assert_eq!(found(0), (1, Asked::Nothing));
    // Of a small log there is to be a chunk for each lane, if that is not more than a half.
    let region = Region::that_makes_room(Shape { log: 17, ..SHAPE });
    assert_eq!(before_an_operation(&region, 5, 0), (0, Asked::Hurry));
    assert_eq!(before_an_operation(&region, 4, 0), (1, Asked::Nothing));
    let region = Region::that_makes_room(Shape { log: 10, ..SHAPE });
    assert_eq!(before_an_operation(&region, 2, 0), (0, Asked::Hurry));
    assert_eq!(before_an_operation(&region, 1, 0), (1, Asked::Nothing));
}

#[test]
fn named_pages_are_made_durable_when_there_are_many() {
    let region = Region::that_makes_room(Shape { log: 105, ..SHAPE });
    let found = |pages| before_an_operation(&region, 105, pages);
    assert_eq!(found(4096), (0, Asked::Nothing));
    assert_eq!(found(4097), (0, Asked::Hurry));
    assert_eq!(found(8192), (0, Asked::Hurry));
    assert_eq!(found(8193), (1, Asked::Nothing));
}

#[test]
fn nobody_makes_room_where_nothing_can_be_durable() {
    let region = Region::that_makes_room(Shape { log: 105, ..SHAPE });
    region.core.refuse(Some(Refusal::Missing));
    assert_eq!(before_an_operation(&region, 24, 9000), (0, Asked::Nothing));
    region.core.refuse(None);
    assert_eq!(before_an_operation(&region, 24, 9000), (1, Asked::Nothing));
}

#[test]
fn a_log_is_long_when_less_than_half_of_it_is_free() {
    let region = Region::new(Shape { log: 105, ..SHAPE });
    let is_long = |free: u64| {
        region.set_head(head::USED, 105 - free);
        region.core.is_log_long()
    };
    assert_eq!([105, 50, 49, 0].map(is_long), [false, false, true, true]);
    assert!(!Region::new(Shape { log: 0, ..SHAPE }).core.is_log_long());
}

/// Two processes of which each has changed the same list, in turn.
struct Two {
    cores: [SimCore; 2],
    /// The number that comes next.
    next: u64,
}

/// Begins a checkpoint as one of the two, while the other one does something else: the numbers that
/// it repeats.
fn checkpoints(weak_memory: bool, search: Search) -> Schedules {
    let setup = || {
        become_actor(0);
        let (memory, world) = fresh(SHAPE, false).unwrap();
        let cores = [0, 1].map(|pid| attached(&memory, &world, pid));
        for (actor, core) in (0..).zip(&cores) {
            become_actor(actor);
            let op = Op::Push { list: 0, id: u64::from(actor) + 1, pages: 0 };
            assert!(shelf::perform(core, actor, op).unwrap());
        }
        become_actor(0);
        let next = cores[0].next_sequence();
        (memory, Two { cores, next })
    };
    let body = |two: &Two, id: u32, _: &Actor| {
        let core = &two.cores[id as usize];
        if id == 0 {
            let op = Op::Push { list: 1, id: 9, pages: 0 };
            return shelf::perform(core, 0, op).map(drop).map_err(|why| why.to_string());
        }
        let begun = core.begin_checkpoint().map_err(|why| why.to_string())?;
        if begun.unapplied.range(begun.sequence..).next().is_some() {
            return Err(format!("repeated besides what is needed anyway: {begun:?}"));
        }
        if begun.unapplied.range(..two.next).next().is_some() {
            return Err(format!("repeated although it was applied before: {begun:?}"));
        }
        Ok(())
    };
    let options = ScheduleOptions {
        search,
        persistent_loads: true,
        weak_memory,
        ..ScheduleOptions::default()
    };
    run(&options, setup, body, |_, memory| memory.violation().map_or(Ok(0), Err))
}

fn attached(memory: &RecordingMemory, world: &World, pid: u32) -> SimCore {
    become_actor(pid);
    attach(DyingMemory::counting(memory.actor(pid)), world, pid).unwrap()
}

#[test]
fn a_checkpoint_repeats_no_record_that_was_applied_when_it_began() {
    let found = checkpoints(false, Search::Exhaustive { preemptions: 2, runs: 20_000 });
    assert_eq!(found.failed, 0, "{found}");
    assert!(found.complete, "{found}");
    let found = checkpoints(true, Search::Random { seed: 1, first: 0, runs: 500 });
    assert_eq!(found.failed, 0, "{found}");
}

/// One seals while another one says that all is durable, and a third one begins the chunk anew.
#[test]
fn what_is_sealed_is_nothing_that_was_begun_anew_meanwhile() {
    let setup = || {
        become_actor(0);
        let (memory, world) = fresh(SHAPE, false).unwrap();
        let cores = [0, 1, 2].map(|pid| attached(&memory, &world, pid));
        become_actor(0);
        for id in 1..3 {
            assert!(shelf::perform(&cores[0], 0, Op::Push { list: 0, id, pages: 0 }).unwrap());
        }
        // Its lane has let it go, and it is the next one that is looked at.
        let header = cores[0].geometry().log_header(0).plus(chunk::OWNER);
        let owner = Owner::unpack(memory.actor(0).load(header, Ordering::Relaxed));
        let owner = Owner { is_held: false, ..owner };
        memory.actor(0).store(header, owner.pack(), Ordering::Relaxed);
        memory.actor(0).store(cores[0].geometry().log_head(head::ROTOR), 0, Ordering::Relaxed);
        let expected = cores[0].seal(FIRST, Copied::new()).unwrap().unwrap().fragments;
        world.order(&memory);
        (memory, (cores, expected))
    };
    let body = |(cores, expected): &([SimCore; 3], Vec<u8>), id: u32, _: &Actor| {
        let core = &cores[id as usize];
        match id {
            0 => core.set_durable(FIRST + 2).map_err(|why| why.to_string()),
            1 => {
                let op = Op::Push { list: 1, id: 3, pages: 0 };
                shelf::perform(core, 1, op).map(drop).map_err(|why| why.to_string())
            }
            _ => (0..5).try_for_each(|_| match core.seal(FIRST, Copied::new()) {
                Ok(Some(sealed)) if sealed.fragments.starts_with(expected) => Ok(()),
                Err(Error::Again) => Ok(()),
                found => Err(format!("{found:?}")),
            }),
        }
    };
    let options = ScheduleOptions {
        actors: 3,
        search: Search::Random { seed: 1, first: 0, runs: 2000 },
        persistent_loads: true,
        weak_memory: true,
        ..ScheduleOptions::default()
    };
    let found = run(&options, setup, body, |_, memory| memory.violation().map_or(Ok(0), Err));
    assert_eq!(found.failed, 0, "{found}");
}
