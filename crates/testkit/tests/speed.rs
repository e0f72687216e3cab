//! How many states and schedules there are in a second. Slow machines don't fail.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use conquest_format::geometry::Shape;
use conquest_format::{Geometry, Offset};
use conquest_pm::memory::Memory;
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, Image, Mark, Options, RecordingMemory, explore};

/// The layout of an ordinary region of four groups.
fn geometry() -> Option<Geometry> {
    let shape = Shape { max_groups: 4, lanes: 8, slots: 8, locks: 256, chunks: 4, log: 0 };
    Geometry::new(shape)
}

fn memory(geometry: &Geometry) -> RecordingMemory {
    let base = Arc::new(Image::new(geometry.len()));
    RecordingMemory::new(base, geometry.volatile(), true)
}

#[test]
fn speed() {
    let geometry = geometry().unwrap();
    let memory = memory(&geometry);
    let actor = memory.actor(0);
    for round in 0..40 {
        actor.mark(Mark::Begun(round));
        for word in 0..11 {
            let at = geometry.page(word * 7 % 16).plus(round % 8 * 8);
            actor.put(at, round * 100 + word, SeqCst);
            actor.write_back(at, 8);
        }
        actor.fence();
    }
    let states = if cfg!(debug_assertions) { 2000 } else { 80_000 };
    for depth in [0, 1] {
        let options =
            Options { depth, death: false, states, inner_states: states, ..Options::default() };
        let found = explore(&memory.recording(), &options, |memory, _| {
            let actor = memory.actor(0);
            let mut sum = 0_u64;
            for word in 0..300 {
                sum = sum.wrapping_add(actor.load(geometry.page(word % 16), SeqCst));
            }
            for word in 0..100 {
                actor.put(geometry.descriptor(word), sum, SeqCst);
                actor.store(geometry.head(word % 8 * 8), sum, SeqCst);
                actor.write_back(geometry.descriptor(word), 8);
            }
            actor.fence();
            actor.mark(Mark::Recovered);
            Ok(sum)
        });
        assert_eq!(found.failed, 0);
        let all = found.states + found.inner_states;
        let rate = all as f64 / found.elapsed.as_secs_f64();
        println!("{found}\ndepth {depth}: {rate:.0} states/s on {} threads", options.threads);
    }
}

#[test]
fn schedule_speed() {
    let geometry = geometry().unwrap();
    let options = ScheduleOptions {
        search: Search::Random { seed: 1, first: 0, runs: 2000 },
        ..ScheduleOptions::default()
    };
    let body = |(): &(), id: u32, actor: &Actor| {
        for word in 0..10 {
            actor.put(Offset::new((u64::from(id) * 10 + word) * 8), word, SeqCst);
        }
        Ok(())
    };
    let found = run(&options, || (memory(&geometry), ()), body, |(), m| Ok(m.image().get(3)));
    assert_eq!(found.failed, 0);
    let rate = found.runs as f64 / found.elapsed.as_secs_f64();
    println!("{found}\n{rate:.0} schedules/s");
}
