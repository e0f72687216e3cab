//! Sealing while others go on: what is named, freed or made durable between two looks at the log.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_format::geometry::Shape;
use conquest_format::log::{
    FRAGMENT, Fragments, Owner, chunk, end, fragment, head, unpack_end, unpack_fragment,
};
use conquest_format::{PAGE, WORD};
use conquest_pm::log::{Copied, Sealed};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Error, Options, Result};
use conquest_testkit::scenario::{SimCore, attach, fresh, shape};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{
    Actor, DyingMemory, Look, RecordingMemory, SimHost, WatchedMemory, become_actor,
};

const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, ..shape() };

type Hook = Box<dyn FnMut(u32) + Send>;
type Watch = Box<dyn FnMut(Look) + Send>;
type Sealer = Arc<Core<WatchedMemory, SimHost>>;

/// A region, of which process 0 changes something while process 1 seals.
struct Two {
    memory: RecordingMemory,
    core: SimCore,
    sealer: Sealer,
    /// What is called before process 1 copies a page, with the number of that, from 0.
    hook: Arc<Mutex<(u32, Option<Hook>)>>,
    /// What is called before each look of process 1.
    watch: Arc<Mutex<Option<Watch>>>,
}

impl Two {
    fn new() -> Two {
        become_actor(0);
        let (memory, world) = fresh(SHAPE, false).unwrap();
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
        // The lists have something, and there are slabs.
        for list in 0..shelf::LISTS {
            push(&core, list, 1 + u64::from(list), 0);
        }
        core.set_durable(core.next_sequence()).unwrap();
        let hook = Arc::new(Mutex::new((0, None::<Hook>)));
        let called = Arc::clone(&hook);
        let watch = Arc::new(Mutex::new(None::<Watch>));
        let watching = Arc::clone(&watch);
        let watched = WatchedMemory::new(memory.actor(1), move |look| {
            if let Some(call) = &mut *watching.lock().unwrap() {
                call(look);
            }
            if let Look::Read(_, len) = look
                && len as u64 == PAGE
                && let (number, Some(call)) = &mut *called.lock().unwrap()
            {
                call(*number);
                *number += 1;
            }
        });
        let options = Options { intents: Some(Box::new(shelf::step)), ..Options::default() };
        let path = Path::new("simulated core");
        become_actor(1);
        let sealer =
            Core::attach(watched, world.process(1), path, &shelf::kinds(), options).unwrap();
        become_actor(0);
        Two { memory, core, sealer, hook, watch }
    }

    /// What is sealed while `hook` is called with the number of each page that is about to be
    /// copied.
    fn seal(&self, hook: impl FnMut(&SimCore, u32) + Send + 'static) -> Result<Option<Sealed>> {
        let (mut hook, core) = (hook, Arc::clone(&self.core));
        let call = move |number| {
            become_actor(0);
            hook(&core, number);
            become_actor(1);
        };
        *self.hook.lock().unwrap() = (0, Some(Box::new(call)));
        become_actor(1);
        let sealed = self.sealer.seal(self.sealer.durable(), Copied::new());
        become_actor(0);
        *self.hook.lock().unwrap() = (0, None);
        assert_eq!(self.memory.violation(), None);
        sealed
    }

    /// Does `op` in the lane behind that of what was done last, and so in the chunk behind its
    /// chunk.
    fn in_next_lane(&self, op: Op) {
        let open = self.core.begin().unwrap();
        become_actor(1);
        assert!(shelf::perform(&self.sealer, 1, op).unwrap());
        become_actor(0);
        drop(open);
    }

    /// The pages of the heap in what is sealed.
    fn pages(&self, sealed: &Sealed) -> usize {
        let heap = self.core.geometry().page(0);
        sealed.pages.places().filter(|at| *at >= heap).count()
    }
}

fn push(core: &SimCore, list: u32, id: u64, pages: u64) {
    assert!(shelf::perform(core, 0, Op::Push { list, id, pages }).unwrap());
}

fn pop(core: &SimCore, list: u32) {
    assert!(shelf::perform(core, 0, Op::Pop { list }).unwrap());
}

fn held_back(memory: &impl Memory, core: &SimCore) -> u64 {
    memory.load(core.geometry().log_head(head::HELD_BACK), Ordering::Relaxed)
}

#[test]
fn pages_that_are_freed_while_they_are_copied_are_not_written() {
    let two = Two::new();
    push(&two.core, 0, 10, 3);
    push(&two.core, 1, 11, 2);
    let begin = two.core.durable();
    let sealed = two.seal(|core, number| match number {
        // It was copied, or not; and what is named meanwhile is copied, too.
        3 => pop(core, 0),
        4 => push(core, 2, 12, 1),
        _ => (),
    });
    let sealed = sealed.unwrap().unwrap();
    assert_eq!(two.pages(&sealed), 3);
    assert_eq!((sealed.from, sealed.cut), (begin, two.core.next_sequence()));
    let numbers: BTreeSet<_> = Fragments::of(&sealed.fragments).map(|(of, ..)| of).collect();
    assert_eq!(numbers, (sealed.from..sealed.cut).collect());
}

#[test]
fn it_is_the_later_record_that_counts_in_whatever_chunk_it_stands() {
    let two = Two::new();
    for id in 20..24 {
        two.in_next_lane(Op::Push { list: 0, id, pages: 0 });
    }
    let none = || assert_eq!(two.pages(&two.seal(|_, _| ()).unwrap().unwrap()), 0);
    // From the last lane to the first one, and to the second one.
    for list in [1, 2] {
        push(&two.core, list, 30 + u64::from(list), 2);
        two.in_next_lane(Op::Pop { list });
        none();
    }
}

#[test]
fn pages_that_are_freed_and_named_again_meanwhile_are_written_as_they_are() {
    let two = Two::new();
    push(&two.core, 0, 10, 3);
    let sealed = two.seal(|core, number| {
        if number == 2 {
            pop(core, 0);
            push(core, 0, 11, 3);
        }
    });
    let sealed = sealed.unwrap().unwrap();
    assert_eq!(two.pages(&sealed), 3);
    let memory = two.memory.this_thread();
    for (at, page) in sealed.pages.iter() {
        let mut now = [0; PAGE as usize];
        memory.read(at, &mut now);
        assert!(now == *page, "the page at {at} is older than its record");
    }
}

#[test]
fn what_somebody_else_has_made_durable_meanwhile_is_not_sealed() {
    let two = Two::new();
    push(&two.core, 0, 10, 1);
    let from = two.core.durable();
    let cut = two.core.next_sequence();
    let sealed = two.seal(move |core, _| core.set_durable(from + 1).unwrap());
    assert!(matches!(sealed, Err(Error::Again)), "{sealed:?}");
    assert_eq!((from + 1, two.core.durable()), (cut, cut));
    // There is nothing any more; but what was copied goes with nothing, too.
    assert_eq!(two.seal(|_, _| ()).unwrap(), None);
    let mut copied = Copied::new();
    two.core.copy_page(two.core.geometry().page(0), &mut copied);
    let sealed = two.core.seal(cut, copied).unwrap().unwrap();
    assert_eq!((sealed.from, sealed.cut, two.pages(&sealed)), (cut, cut, 1));
    assert!(sealed.fragments.is_empty());
    // And what is sealed without pages is something.
    push(&two.core, 1, 11, 0);
    let sealed = two.seal(|_, _| ()).unwrap().unwrap();
    assert_eq!((sealed.from, sealed.cut, two.pages(&sealed)), (cut, cut + 1, 0));
}

/// Its records were durable before. What begins it anew has bytes where the next fragment was that
/// look like one which is sealed.
#[test]
fn a_chunk_that_is_begun_anew_while_it_is_read_is_read_again() {
    let two = Two::new();
    two.in_next_lane(Op::Push { list: 0, id: 10, pages: 0 });
    let expected = two.seal(|_, _| ()).unwrap().unwrap();
    let (geometry, memory) = (two.core.geometry(), two.memory.actor(0));
    let load = |at| memory.load(at, Ordering::Relaxed);
    let (header, place) = (geometry.log_header(0), geometry.log_chunk(0));
    let owner = Owner::unpack(load(header.plus(chunk::OWNER)));
    let bytes = unpack_fragment(load(place)).unwrap().0;
    let second = place.plus(bytes);
    assert!(unpack_end(load(header.plus(chunk::END)), owner.life) > bytes);
    let begun = Arc::new(Mutex::new(false));
    let (is_begun, next, memory) = (Arc::clone(&begun), expected.cut, two.memory.actor(0));
    let begin = move |look| {
        let mut is_begun = is_begun.lock().unwrap();
        if *is_begun || !matches!(look, Look::Load(at) if at == second) {
            return;
        }
        *is_begun = true;
        let store = |at, value| memory.store(at, value, Ordering::Relaxed);
        let put = |at, value| memory.put(at, value, Ordering::Relaxed);
        let owner = owner.begun(owner.lane.unwrap());
        store(header.plus(chunk::OWNER), owner.pack());
        memory.full_fence();
        store(header.plus(chunk::END), end(0, owner.life));
        put(place, fragment(2 * bytes, 0));
        put(place.plus(WORD), next);
        put(second, fragment(FRAGMENT, 7));
        put(second.plus(WORD), next - 1);
    };
    *two.watch.lock().unwrap() = Some(Box::new(begin));
    let sealed = two.seal(|_, _| ()).unwrap().unwrap();
    *two.watch.lock().unwrap() = None;
    assert!(*begun.lock().unwrap());
    assert_eq!(sealed, expected);
}

#[test]
fn who_names_pages_faster_than_they_are_copied_is_held_back_for_a_moment() {
    let two = Two::new();
    push(&two.core, 0, 10, 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (notes, clock, memory) = (Arc::clone(&seen), two.memory.clock(), two.memory.clone());
    let name_more = move |core: &SimCore, number: u32| {
        let held = || held_back(&memory.this_thread(), core);
        let (before, since) = (held(), clock.now());
        // Who names none is not held back.
        push(core, 1, 100 + u64::from(number), 0);
        assert_eq!((held(), clock.now()), (before, since));
        if number < 4 {
            push(core, 2, 200 + u64::from(number), 1);
        }
        notes.lock().unwrap().push((before, held(), clock.now() - since));
    };
    let sealed = two.seal(name_more).unwrap().unwrap();
    assert_eq!(two.pages(&sealed), 5);
    // In the third round: that is over when somebody was.
    let moment = Duration::from_millis(1).as_nanos() as u64;
    let expected = [(0, 0, 0), (0, 0, 0), (1, 2, moment), (2, 2, 0), (2, 2, 0)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn nobody_is_held_back_once_it_is_sealed() {
    let two = Two::new();
    push(&two.core, 0, 10, 1);
    let memory = two.memory.clone();
    let sealed = two.seal(move |core, number| {
        assert_eq!(held_back(&memory.this_thread(), core), u64::from(number == 2));
        if number < 2 {
            push(core, 2, 200 + u64::from(number), 1);
        }
    });
    assert_eq!(two.pages(&sealed.unwrap().unwrap()), 3);
    assert_eq!(held_back(&two.memory.this_thread(), &two.core), 2);
    let since = two.memory.clock().now();
    push(&two.core, 0, 11, 1);
    assert_eq!(two.memory.clock().now(), since);
}

#[test]
fn who_is_held_back_is_woken_when_it_is_sealed() {
    let options = ScheduleOptions {
        actors: 2,
        search: Search::Random { seed: 1, first: 0, runs: 10 },
        persistent_loads: true,
        ..ScheduleOptions::default()
    };
    let setup = || {
        let Two { memory, core, sealer, .. } = Two::new();
        (memory, (core, sealer))
    };
    let body = |(core, sealer): &(SimCore, Sealer), id: u32, _: &Actor| {
        if id == 0 {
            (10..50).for_each(|number| push(core, 0, number, 1));
            return Ok(());
        }
        while shelf::done(sealer, 0) < 43 {
            match sealer.seal(sealer.durable(), Copied::new()) {
                Ok(Some(Sealed { from, cut, fragments, .. })) => {
                    // Some numbers were drawn in vain.
                    let numbers = Fragments::of(&fragments).map(|(number, ..)| number);
                    assert!(numbers.clone().all(|number| (from..cut).contains(&number)));
                    assert!(numbers.is_sorted());
                    sealer.set_durable(cut).unwrap();
                }
                Ok(None) | Err(Error::Again) => (),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    };
    let held = Cell::new(0);
    let verdict = |_: &(SimCore, Sealer), memory: &RecordingMemory| {
        memory.violation().map_or(Ok(()), Err)?;
        let geometry = conquest_format::Geometry::new(SHAPE).unwrap();
        let count =
            memory.this_thread().load(geometry.log_head(head::HELD_BACK), Ordering::Relaxed);
        held.set(held.get() + count);
        if count.is_multiple_of(2) { Ok(count) } else { Err(format!("{count}: held back")) }
    };
    let found = run(&options, setup, body, verdict);
    println!("{found}, held back {} times", held.get());
    assert_eq!((found.failed, found.timeouts), (0, 0), "{found}");
    assert!(held.get() > 10, "{}", held.get());
}
