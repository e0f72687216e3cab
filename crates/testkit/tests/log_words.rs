//! What the words of a log's head say, and that a region without a log has none of them.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conquest_format::geometry::Shape;
use conquest_format::log::{FIRST, chunk, head, lane};
use conquest_format::{Geometry, Offset, PAGE, WORD};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::log::{Refusal, Stands};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Options};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, options, shape};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{
    DyingMemory, Event, Image, Kind, RecordingMemory, SimHost, World, become_actor,
};

const LOGGED: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };

/// A core that counts how often it is to make something durable, and does so.
fn counting(memory: &RecordingMemory, world: &World) -> (SimCore, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let made = move |core: &Core<SimMemory, SimHost>| {
        counted.fetch_add(1, Ordering::Relaxed);
        if core.is_logged() { core.set_durable(core.next_sequence()) } else { Ok(()) }
    };
    let options = Options { make_durable: Some(Box::new(made)), ..options() };
    let alive = DyingMemory::counting(memory.actor(0));
    let path = Path::new("simulated core");
    (Core::attach(alive, world.process(0), path, &shelf::kinds(), options).unwrap(), count)
}

fn push(core: &SimCore, id: u64, pages: u64) {
    assert!(shelf::perform(core, 0, Op::Push { list: 0, id, pages }).unwrap());
}

fn volatile(memory: &RecordingMemory, geometry: &Geometry) -> Vec<u64> {
    let memory = memory.this_thread();
    let words = geometry.volatile().step_by(WORD as usize);
    words.map(|at| memory.load(Offset::new(at), Ordering::Relaxed)).collect()
}

#[test]
fn a_region_without_a_log_has_none_of_its_words() {
    become_actor(0);
    let (memory, world) = fresh(shape(), false).unwrap();
    let geometry = Geometry::new(shape()).unwrap();
    let is_volatile = |event: &Event| matches!(event.kind, Kind::Store { .. });
    assert!(!memory.recording().events.iter().any(is_volatile), "it is new");
    let (core, count) = counting(&memory, &world);
    push(&core, 1, 1);
    // Where they would be is something else: not all of that is in use here.
    let at = |word| geometry.log_head(word);
    assert_ne!(core.memory().load(at(head::NEXT), Ordering::Relaxed), 0);
    assert_eq!(core.memory().load(at(head::DURABLE), Ordering::Relaxed), 0);
    for word in [head::REFUSED, head::PAGES, head::PASSING] {
        core.memory().store(at(word), 3, Ordering::Relaxed);
    }
    let before = volatile(&memory, &geometry);
    core.pages_are_to_pass(5).unwrap();
    core.pages_have_passed(2).unwrap();
    core.count_passing_anew(7).unwrap();
    assert_eq!((core.refusal(), core.passing_pages()), (None, 0));
    for why in [None, Some(Refusal::Failed)] {
        core.refuse(why);
    }
    assert_eq!((core.refusal(), core.is_logged(), core.is_log_long()), (None, false, false));
    assert_eq!(Stands::of(core.memory(), &geometry), None);
    assert_eq!(volatile(&memory, &geometry), before);
    core.make_durable().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0, "all is durable when it is committed");
    assert_eq!(memory.violation(), None);
}

#[test]
fn the_log_of_a_new_region_is_empty_whatever_was_there() {
    become_actor(0);
    let geometry = Geometry::new(LOGGED).unwrap();
    let memory =
        RecordingMemory::new(Arc::new(Image::new(geometry.len())), geometry.volatile(), false);
    let world = World::new(memory.clock());
    let actor = memory.this_thread();
    let heads = [head::USED, head::REFUSED, head::HELD_BACK, head::ROTOR, head::LEADER];
    let more = [head::PAGES, head::PASSING, head::INCARNATION, head::KEEPER, head::KEEPER_ASKED];
    let mut words: Vec<Offset> =
        heads.into_iter().chain(more).map(|word| geometry.log_head(word)).collect();
    for number in 0..LOGGED.log {
        let header = geometry.log_header(number);
        words.extend([chunk::OWNER, chunk::END, chunk::LAST].map(|word| header.plus(word)));
    }
    for number in 0..LOGGED.lanes {
        words.extend([lane::STATE, lane::CHUNK].map(|word| geometry.log_lane(number).plus(word)));
    }
    words.iter().for_each(|at| actor.store(*at, 7, Ordering::Relaxed));
    let kinds = shelf::kinds();
    let new = NewRegion { shape: LOGGED, kinds, uuid: [1; 16], created: 1, groups: 1 };
    make(&actor, &world.process(9), Path::new("new"), &new).unwrap();
    let left: Vec<_> = words.iter().filter(|at| actor.load(**at, Ordering::Relaxed) != 0).collect();
    assert!(left.is_empty(), "{left:?}");
    let stands = Stands { incarnation: 0, durable: FIRST, next: FIRST };
    assert_eq!(Stands::of(&actor, &geometry), Some(stands));
}

#[test]
fn somebody_makes_durable_what_is_not_or_what_is_in_the_way() {
    become_actor(0);
    let (memory, world) = fresh(LOGGED, false).unwrap();
    let (core, count) = counting(&memory, &world);
    let made = || {
        core.make_durable().unwrap();
        count.swap(0, Ordering::Relaxed)
    };
    assert_eq!(made(), 0);
    push(&core, 1, 0);
    let next = core.next_sequence();
    let stands = Stands { incarnation: 0, durable: FIRST, next };
    assert_eq!(Stands::of(core.memory(), core.geometry()), Some(stands));
    assert_eq!((made(), core.durable()), (1, next));
    assert_eq!(made(), 0, "all is durable");
    core.refuse(Some(Refusal::Missing));
    assert_eq!((made(), made()), (1, 1));
    core.refuse(None);
    assert_eq!(made(), 0);
}

#[test]
fn all_processes_are_told_why_changes_are_refused_and_once() {
    become_actor(0);
    let (memory, world) = fresh(LOGGED, false).unwrap();
    let one = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    become_actor(1);
    let other = attach(DyingMemory::counting(memory.actor(1)), &world, 1).unwrap();
    become_actor(0);
    use Refusal::{Failed, Missing, Newer, Older, Other, Superseded, Unreadable};
    for why in [Missing, Other, Older, Newer, Superseded, Unreadable, Failed] {
        for said in [Some(why), None] {
            one.refuse(said);
            assert_eq!((one.refusal(), other.refusal()), (said, said));
            // All processes read that line.
            let stores = other.memory().stores();
            other.refuse(said);
            assert_eq!(other.memory().stores(), stores);
        }
    }
}

#[test]
fn pages_are_counted_once_whether_they_pass_or_not() {
    become_actor(0);
    let (memory, world) = fresh(LOGGED, false).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
    push(&core, 1, 3);
    let lag = core.lag().bytes;
    assert!((3 * PAGE..4 * PAGE).contains(&lag), "{lag}");
    core.pages_are_to_pass(2).unwrap();
    assert_eq!((core.lag().bytes, core.passing_pages()), (lag, 2));
    core.count_passing_anew(7).unwrap();
    assert_eq!((core.lag().bytes, core.passing_pages()), (lag + 5 * PAGE, 7));
    // What is durable counts only if it passes.
    let (clock, second) = (memory.clock(), Duration::from_secs(1));
    clock.advance(second);
    core.set_durable(core.next_sequence()).unwrap();
    clock.advance(2 * second);
    push(&core, 2, 0);
    let lag = core.lag();
    assert_eq!(lag.age, Some(2 * second));
    assert!((7 * PAGE..8 * PAGE).contains(&lag.bytes), "{lag:?}");
    assert_eq!(lag.records, 1);
}
