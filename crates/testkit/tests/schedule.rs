//! Schedules find races, deadlocks and forgotten wakes, and find none where there are none.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use conquest_format::Offset;
use conquest_pm::host::Host;
use conquest_pm::memory::{Memory, Wake};
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, parse, run};
use conquest_testkit::{Actor, DyingMemory, Fate, Image, RecordingMemory, World};

const COUNTER: Offset = Offset::new(4096);
const LOCKS: [Offset; 2] = [Offset::new(4160), Offset::new(4224)];

fn memory() -> RecordingMemory {
    RecordingMemory::new(Arc::new(Image::new(8192)), 4096..8192, true)
}

fn racy(actor: &Actor) {
    let count = actor.load(COUNTER, SeqCst);
    actor.store(COUNTER, count + 1, SeqCst);
}

fn exact(actor: &Actor) {
    loop {
        let count = actor.load(COUNTER, SeqCst);
        if actor.compare_exchange(COUNTER, count, count + 1, SeqCst, SeqCst).is_ok() {
            return;
        }
    }
}

fn counted(options: &ScheduleOptions, add: fn(&Actor)) -> Schedules {
    let body = |(): &(), _, actor: &Actor| {
        add(actor);
        Ok(())
    };
    run(
        options,
        || (memory(), ()),
        body,
        |(), memory| {
            // As any thread may, also one that is an actor's namesake.
            match memory.this_thread().load(COUNTER, SeqCst) {
                count if count == u64::from(options.actors) => Ok(count),
                count => Err(format!("counted {count}")),
            }
        },
    )
}

fn random(runs: u64) -> ScheduleOptions {
    ScheduleOptions {
        search: Search::Random { seed: 3, first: 0, runs },
        ..ScheduleOptions::default()
    }
}

fn exhaustive(preemptions: u32) -> ScheduleOptions {
    let search = Search::Exhaustive { preemptions, runs: 100_000 };
    ScheduleOptions { search, ..ScheduleOptions::default() }
}

#[test]
fn a_lost_update_is_found_and_replayed() {
    for options in [random(100), exhaustive(1), exhaustive(9)] {
        let found = counted(&options, racy);
        assert!(found.failed > 0 && found.failed < found.runs, "{found}");
        for failure in &found.failures {
            let search = parse(failure).unwrap();
            let again = counted(&ScheduleOptions { search, ..options.clone() }, racy);
            assert_eq!(again.failed, 1, "{failure}");
            assert!(again.failures[0].ends_with("counted 1"), "{again}");
        }
        let found = counted(&options, exact);
        assert_eq!(found.failed, 0, "{found}");
    }
    assert_eq!(counted(&exhaustive(0), racy).failed, 0, "needs a preemption");
}

#[test]
fn all_interleavings_are_run_once_each() {
    // Each actor has three stretches: up to its load, up to its store, and the rest. Six stretches
    // in all, of which three are the first actor's: 20 orders.
    let found = counted(&exhaustive(9), racy);
    assert!(found.complete);
    assert_eq!(found.runs, 20, "{found}");
    let three = ScheduleOptions { actors: 3, ..exhaustive(9) };
    assert_eq!(counted(&three, racy).runs, 1680, "9! / (3! 3! 3!)");
}

fn take(actor: &Actor, lock: Offset) {
    while actor.compare_exchange(lock, 0, 1, SeqCst, SeqCst).is_err() {
        actor.wait(lock, 1, Duration::MAX);
    }
}

fn release(actor: &Actor, lock: Offset) {
    actor.store(lock, 0, SeqCst);
    actor.wake(lock, 1);
}

#[test]
fn a_deadlock_is_found() {
    let two_locks = |options: &ScheduleOptions, crossed: bool| {
        let body = move |(): &(), id: u32, actor: &Actor| {
            let swap = usize::from(crossed && id == 1);
            take(actor, LOCKS[swap]);
            take(actor, LOCKS[1 - swap]);
            racy(actor);
            release(actor, LOCKS[0]);
            release(actor, LOCKS[1]);
            Ok(())
        };
        run(options, || (memory(), ()), body, |(), m| Ok(m.actor(9).load(COUNTER, SeqCst)))
    };
    for options in [random(200), exhaustive(2)] {
        let found = two_locks(&options, true);
        assert!(found.failed > 0, "{found}");
        assert!(found.failures[0].contains("deadlock"), "{found}");
        let search = parse(&found.failures[0]).unwrap();
        let again = two_locks(&ScheduleOptions { search, ..options.clone() }, true);
        assert_eq!((again.runs, again.failed), (1, 1));
        let found = two_locks(&options, false);
        assert_eq!((found.failed, found.outcomes.len()), (0, 1), "{found}");
    }
}

#[test]
fn a_forgotten_wake_is_a_time_out_or_a_deadlock() {
    let wait_for_it = |options: &ScheduleOptions, timeout: Duration, wake: bool| {
        let body = move |(): &(), id: u32, actor: &Actor| {
            if id == 0 {
                while actor.load(COUNTER, SeqCst) == 0 {
                    actor.wait(COUNTER, 0, timeout);
                }
            } else {
                actor.store(COUNTER, 1, SeqCst);
                if wake {
                    actor.wake(COUNTER, 1);
                }
            }
            Ok(())
        };
        run(options, || (memory(), ()), body, |(), m| Ok(m.clock().now()))
    };
    let second = Duration::from_secs(1);
    let found = wait_for_it(&exhaustive(3), second, false);
    assert!(found.failed == 0 && found.timeouts > 0, "{found}");
    assert!(found.outcomes.contains(&1_000_000_000), "{:?}", found.outcomes);
    assert!(wait_for_it(&exhaustive(3), Duration::MAX, false).failed > 0);
    for (wake, wake_on_change) in [(true, false), (false, true)] {
        let options = ScheduleOptions { wake_on_change, ..exhaustive(3) };
        let found = wait_for_it(&options, Duration::MAX, wake);
        assert_eq!((found.failed, found.timeouts), (0, 0), "{found}");
    }
}

#[test]
fn spinning_lets_others_go_on_and_endless_runs_end() {
    let spin = |last: u64| {
        let options = ScheduleOptions { steps: 5000, ..exhaustive(2) };
        let body = move |(): &(), id: u32, actor: &Actor| {
            if id == 0 {
                while actor.load(COUNTER, SeqCst) != last {}
            } else {
                actor.store(COUNTER, 1, SeqCst);
            }
            Ok(())
        };
        run(&options, || (memory(), ()), body, |(), _| Ok(0))
    };
    let found = spin(1);
    assert!(found.failed == 0 && found.runs > 1, "{found}");
    let found = spin(2);
    assert!(found.failures[0].contains("still running"), "{found}");
}

#[test]
fn an_actor_dies_at_each_of_its_stores_and_the_other_goes_on() {
    for nth in 1..=3 {
        let setup = || {
            let memory = memory();
            let world = World::new(memory.clock());
            (memory, world)
        };
        let body = |world: &World, id: u32, actor: &Actor| {
            let host = world.process(id);
            let slot = host.claim(id).unwrap();
            if id == 0 {
                let world = world.clone();
                let kill = Box::new(move || world.kill(0));
                let dying = DyingMemory::new(actor.clone(), nth, Fate::Unwind(kill));
                (0..3).for_each(|word| dying.put(Offset::new(word * 8), 1, SeqCst));
                return Err(String::from("should have died"));
            }
            while host.is_claimed(0).map_err(|e| e.to_string())? {
                assert_eq!(actor.wait(COUNTER, 0, Duration::from_millis(1)), Wake::TimedOut);
            }
            (slot.is_some()).then_some(()).ok_or_else(|| String::from("no slot"))
        };
        let found = run(&random(50), setup, body, |_, memory| {
            let puts = (0..3).filter(|&word| memory.image().get(word) == 1).count() as u64;
            if puts == nth - 1 { Ok(puts) } else { Err(format!("{puts} stores")) }
        });
        assert_eq!(found.failed, 0, "{found}");
    }
}

#[test]
fn a_panic_or_an_error_fails_the_run_alone() {
    let body = |(): &(), id: u32, actor: &Actor| {
        racy(actor);
        if id == 1 { Err(String::from("no")) } else { Ok(()) }
    };
    let found = run(&random(20), || (memory(), ()), body, |(), _| Ok(0));
    assert_eq!(found.failed, 20);
    assert!(found.failures[0].ends_with("actor 1: no"), "{found}");
}
