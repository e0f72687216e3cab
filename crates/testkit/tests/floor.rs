//! A follower comes to what it waits for, although something else is published whenever it looks.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conquest_format::WORD;
use conquest_format::feed::{BATCH_HEADER, BATCH_MAX};
use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::volatile::lane;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{BatchWords, Core, Heard, Mode, Options};
use conquest_testkit::scenario::{fresh, shape};
use conquest_testkit::{Look, WatchedMemory, shelf};

type Act = Box<dyn FnMut() + Send>;

/// Changes the word of `thing` under its lock, and tells of it.
fn change<M: Memory, H: Host>(core: &Core<M, H>, thing: u32) {
    let changed = core.run(|tx| {
        tx.lock(thing, Mode::Exclusive)?;
        let at = STATE_ROOTS.plus(u64::from(thing) * WORD);
        tx.set(at, tx.get(at) + 1)?;
        tx.tell(&[thing.into()])
    });
    changed.unwrap();
}

#[test]
fn nobody_is_put_off_by_versions_that_stay_behind() {
    let (memory, world) = fresh(Shape { slots: 4, lanes: 4, ..shape() }, false).unwrap();
    let (at, act) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None::<Act>)));
    let attach = |id| {
        let (at, act) = (Arc::clone(&at), Arc::clone(&act));
        // Something is done before each load of one word.
        let memory = WatchedMemory::new(memory.actor(id), move |look| {
            if let Look::Load(loaded) = look
                && loaded.bytes() == at.load(Ordering::Relaxed)
                && let Some(act) = act.lock().unwrap().as_mut()
            {
                act();
            }
        });
        let path = Path::new("simulated");
        Core::attach(memory, world.process(id), path, &shelf::kinds(), Options::default()).unwrap()
    };
    let (core, other) = (attach(0), attach(1));
    (0..30).for_each(|_| change(&core, 0));
    let mut follower = core.follow();
    change(&core, 0);
    // The other one gets another lane.
    let _lane = core.begin().unwrap();
    let feed = |number| core.geometry().lane_record(number).plus(lane::FEED);
    let told = |number| memory.actor(0).load(feed(number), Ordering::Relaxed) != 0;
    let mine = (0..4).find(|&number| told(number)).unwrap();
    change(&other, 1);
    let others = (0..4).find(|&number| number != mine && told(number)).unwrap();
    // After the first look at that lane, and before the second one.
    at.store(feed(if others < 3 { 3 } else { 0 }).bytes(), Ordering::Relaxed);
    *act.lock().unwrap() = Some(Box::new({
        let memory = memory.clone();
        let world = world.clone();
        let path = Path::new("simulated");
        let kinds = shelf::kinds();
        let own = Core::attach(memory.actor(2), world.process(2), path, &kinds, Options::default())
            .unwrap();
        move || change(&own, 1)
    }) as Act);
    let mut out: BatchWords = [0; (BATCH_MAX - BATCH_HEADER) as usize];
    let heard = (0..20).map(|_| match follower.next(&mut out).unwrap() {
        Heard::Batch(_) => out[0],
        other => panic!("{other:?}"),
    });
    let before = heard.take_while(|&thing| thing != 0).count();
    assert!((1..8).contains(&before), "{before}");
}
