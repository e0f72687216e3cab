//! Weak memory finds orderings that are missing, and only those; the engine misses none.

use std::sync::Arc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use conquest_format::Offset;
use conquest_pm::memory::Memory;
use conquest_testkit::scenario::Plan;
use conquest_testkit::schedule::{ScheduleOptions, Schedules, Search, run};
use conquest_testkit::{Actor, Image, RecordingMemory};

const DATA: Offset = Offset::new(4096);
const FLAG: Offset = Offset::new(4160);
const THIRD: Offset = Offset::new(4224);

/// Runs of the engine, each of other operations.
const PLANS: u64 = 400;

/// What each actor saw, as one number; runs in which an actor fails count as failed.
fn outcomes(actors: u32, body: impl Fn(u32, &Actor) -> Result<(), String> + Sync) -> Schedules {
    let options = ScheduleOptions {
        actors,
        search: Search::Random { seed: 9, first: 0, runs: 500 },
        weak_memory: true,
        ..ScheduleOptions::default()
    };
    let memory = || RecordingMemory::new(Arc::new(Image::new(8192)), 4096..8192, false);
    run(&options, || (memory(), ()), |(), id, actor| body(id, actor), |(), _| Ok(0))
}

fn message(store: Ordering, load: Ordering) -> Schedules {
    outcomes(2, |id, actor| {
        if id == 0 {
            actor.store(DATA, 7, Relaxed);
            actor.store(FLAG, 1, store);
        } else if actor.load(FLAG, load) == 1 && actor.load(DATA, Relaxed) != 7 {
            return Err(String::from("the message is older than its flag"));
        }
        Ok(())
    })
}

#[test]
fn a_message_needs_a_release_and_an_acquire() {
    assert_eq!(message(Release, Acquire).failed, 0);
    for (store, load) in [(Relaxed, Acquire), (Release, Relaxed), (Relaxed, Relaxed)] {
        assert!(message(store, load).failed > 0, "{store:?} {load:?}");
    }
}

#[test]
fn an_exchange_passes_on_what_it_replaces() {
    let chain = |middle: Ordering| {
        outcomes(3, move |id, actor| {
            match id {
                0 => {
                    actor.store(DATA, 7, Relaxed);
                    actor.store(FLAG, 1, Release);
                }
                1 => _ = actor.compare_exchange(FLAG, 1, 2, middle, Relaxed),
                _ if actor.load(FLAG, Acquire) == 2 && actor.load(DATA, Relaxed) != 7 => {
                    return Err(String::from("lost on the way"));
                }
                _ => {}
            }
            Ok(())
        })
    };
    assert_eq!((chain(AcqRel).failed, chain(Relaxed).failed), (0, 0));
    let by_store = outcomes(3, |id, actor| {
        match id {
            0 => {
                actor.store(DATA, 7, Relaxed);
                actor.store(FLAG, 1, Release);
            }
            1 if actor.load(FLAG, Relaxed) == 1 => actor.store(THIRD, 2, Release),
            2 if actor.load(THIRD, Acquire) == 2 && actor.load(DATA, Relaxed) != 7 => {
                return Err(String::from("lost on the way"));
            }
            _ => {}
        }
        Ok(())
    });
    assert!(by_store.failed > 0, "{by_store}");
}

#[test]
fn only_full_fences_keep_stores_before_loads() {
    let both_miss = |fenced: bool| {
        let missed = std::sync::atomic::AtomicU64::new(0);
        let missed = &missed;
        let options = ScheduleOptions {
            search: Search::Random { seed: 9, first: 0, runs: 500 },
            weak_memory: true,
            ..ScheduleOptions::default()
        };
        let setup = || {
            missed.store(0, Relaxed);
            (RecordingMemory::new(Arc::new(Image::new(8192)), 4096..8192, false), ())
        };
        let body = |(): &(), id: u32, actor: &Actor| {
            let (mine, other) = if id == 0 { (DATA, FLAG) } else { (FLAG, DATA) };
            actor.store(mine, 1, Release);
            if fenced {
                actor.full_fence();
            }
            missed.fetch_add(u64::from(actor.load(other, Acquire) == 0), Relaxed);
            Ok(())
        };
        let verdict = |(): &(), _: &RecordingMemory| match missed.load(Relaxed) {
            2 => Err(String::from("neither saw the other")),
            count => Ok(count),
        };
        run(&options, setup, body, verdict).failed
    };
    assert_eq!(both_miss(true), 0);
    assert!(both_miss(false) > 0);
}

#[test]
fn a_load_fence_makes_relaxed_loads_acquire() {
    let fenced = |fence: bool| {
        outcomes(2, move |id, actor| {
            if id == 0 {
                actor.store(DATA, 7, Relaxed);
                actor.store(FLAG, 1, Release);
            } else if actor.load(FLAG, Relaxed) == 1 {
                if fence {
                    actor.load_fence();
                }
                if actor.load(DATA, Relaxed) != 7 {
                    return Err(String::from("older than the flag"));
                }
            }
            Ok(())
        })
    };
    assert_eq!(fenced(true).failed, 0);
    assert!(fenced(false).failed > 0);
}

#[test]
fn nobody_sees_a_word_go_back() {
    let found = outcomes(3, |id, actor| {
        if id == 0 {
            (1..5).for_each(|value| actor.store(DATA, value, Relaxed));
            return Ok(());
        }
        let mut last = 0;
        for _ in 0..6 {
            // What somebody else has seen, and told us of, we see too.
            let told = actor.load(FLAG, Acquire);
            let now = actor.load(DATA, Relaxed);
            if now < last || now < told {
                return Err(format!("{now} after {last}, told of {told}"));
            }
            last = now;
            if id == 1 {
                actor.store(FLAG, now, Release);
            }
        }
        Ok(())
    });
    assert_eq!(found.failed, 0, "{found}");
}

#[test]
fn the_engine_needs_no_order_that_it_does_not_ask_for() {
    for seed in 0..PLANS {
        let plan = Plan {
            weak_memory: true,
            ..Plan::random(seed, 2 + (seed % 2) as u32, 5, seed % 3 == 0)
        };
        if let Err(error) = plan.record() {
            panic!("seed {seed}: {error}");
        }
    }
}
