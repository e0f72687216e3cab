//! Checkpoints: whoever is stopped while one is written, and whatever others do meanwhile, all that
//! is durable stays so; and of the log no more is left than is needed.
//!
//! Somebody is stopped before one of his stores in the region, and then before the next one, and so
//! on: each time something else is done meanwhile.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod cores;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, spawn};

use conquest_flash::device::Work;
use conquest_image::Image;
use conquest_testkit::flash::{Medium, Recorder, Sweep, Watched};
use conquest_testkit::scenario::SimCore;
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::stop::{PATIENCE, Stopped, stop};
use conquest_testkit::{Fate, become_actor};
use cores::{
    Core, TestImage, as_process, brought_back, brought_back_of, len, memory_device, new_region,
    new_volume, push, volume,
};

/// Who works, who writes checkpoints, and a third one.
struct Three {
    watched: Arc<Watched>,
    image: Arc<TestImage>,
    core: Core,
    other: SimCore,
    third: SimCore,
}

impl Three {
    fn new() -> Three {
        Three::on(Watched::new(Arc::new(memory_device(80))))
    }

    fn on(watched: Arc<Watched>) -> Three {
        let image = Image::make(volume(Arc::clone(&watched) as _), &new_region(1)).unwrap();
        let core = Core::new(1);
        let (other, third) = (core.other(1), core.other(2));
        Three { watched, image: Arc::new(image), core, other, third }
    }

    /// Puts a node with a run to the front of the first list, and makes that durable.
    fn prepare(&self, id: u64) {
        push(&self.core.core, 0, id, 2);
        self.image.sync(&self.core.core).unwrap();
    }

    /// Makes what there is durable, and looks whether it comes back.
    fn check(&self, when: &str) {
        self.image.sync(&self.core.core).unwrap();
        assert_eq!(brought_back(&*self.watched).0, self.core.contents(), "{when}");
    }
}

/// Lets `core` be stopped before its store number `store` from now, where `what` happens.
fn before_store(core: &SimCore, store: u64, what: impl FnOnce() + Send + 'static) {
    let mut what = Some(what);
    let fate = Fate::Call(Box::new(move || what.take().into_iter().for_each(|what| what())));
    core.memory().meet(store, fate);
}

/// Nothing happens to `core` any more.
fn forget(core: &SimCore) {
    core.memory().meet(1, Fate::Live);
}

/// Does what `act` does as process `id`, which nobody may keep waiting.
fn in_time<T: Send + 'static>(id: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = channel();
    spawn(move || {
        become_actor(id);
        done.send(act()).unwrap();
    });
    is_done.recv_timeout(PATIENCE).unwrap()
}

/// An operation of process 0 that is stopped before one of its stores.
struct Slow {
    stopped: Stopped,
    thread: JoinHandle<()>,
}

impl Slow {
    /// Begins it; none if it has no such store, and is done.
    fn begin(core: &SimCore, op: Op, store: u64) -> Option<Slow> {
        let (stop, stopped) = stop();
        before_store(core, store, || stop.here());
        let core = Arc::clone(core);
        let thread = spawn(move || {
            become_actor(0);
            assert!(shelf::perform(&core, 0, op).unwrap());
            forget(&core);
        });
        let slow = Slow { stopped, thread };
        if slow.stopped.is_there() {
            return Some(slow);
        }
        slow.thread.join().unwrap();
        None
    }

    fn end(self) {
        self.stopped.let_go();
        self.thread.join().unwrap();
    }
}

/// Operations on the first list that are stopped.
const OPERATIONS: [Op; 3] =
    [Op::Touch { list: 0 }, Op::Push { list: 0, id: 1, pages: 2 }, Op::Pop { list: 0 }];

/// Stores from one that somebody is stopped before to the next one: `CONQUEST_STEP`. Applying a
/// record takes more.
fn step() -> usize {
    std::env::var("CONQUEST_STEP").map_or(5, |step| step.parse().unwrap())
}

/// `op` with an id that only it has.
fn numbered(op: Op, number: u64) -> Op {
    match op {
        Op::Push { list, pages, .. } => Op::Push { list, id: 1 << 32 | number, pages },
        op => op,
    }
}

/// What there is after `op`.
fn after(contents: &Contents, op: Op) -> Contents {
    let mut contents = contents.clone();
    contents.apply(0, op);
    contents
}

/// A record that is committed, and not applied when the checkpoint copies pages: these lack it, and
/// the log begins behind it.
#[test]
fn a_record_that_is_not_applied_yet_is_repeated_by_a_checkpoint() {
    for op in OPERATIONS {
        let three = Three::new();
        let mut unapplied = 0;
        for store in (1..).step_by(step()) {
            three.prepare(store);
            let before = three.core.contents();
            let op = numbered(op, store);
            let Some(slow) = Slow::begin(&three.core.core, op, store) else {
                break;
            };
            let (image, other) = (Arc::clone(&three.image), Arc::clone(&three.other));
            let has_some = in_time(1, move || {
                let has_some = !other.begin_checkpoint().unwrap().unapplied.is_empty();
                image.checkpoint(&other).unwrap();
                has_some
            });
            let when = format!("{op:?} stopped before store {store}");
            let (found, _) = brought_back(&*three.watched);
            if has_some {
                assert_eq!(found, after(&before, op), "{when}");
                unapplied += 1;
            } else {
                assert!(found == before || found == after(&before, op), "{when}: {found:?}");
            }
            slow.end();
            three.check(&when);
        }
        assert!(unapplied > 0, "{op:?}");
    }
}

/// A record that gets its number when the checkpoint has begun, is durable with what that syncs,
/// and is not applied when it copies pages: the log begins before it.
#[test]
fn a_record_that_comes_when_a_checkpoint_has_begun_stays_in_the_log() {
    for op in OPERATIONS.into_iter().take(2) {
        let three = Three::new();
        let (image, core, other) = (&three.image, &three.core.core, &three.other);
        let mut durable = 0;
        for store in (1..).step_by(step()) {
            three.prepare(store);
            // What the checkpoint has to sync.
            push(core, 2, 1 << 33 | store, 0);
            let before = three.core.contents();
            let op = numbered(op, store);
            let slow = Arc::new(Mutex::new(None));
            let next = core.next_sequence();
            // It has begun by then: that stores nothing.
            before_store(other, 1, {
                let (core, slow) = (Arc::clone(core), Arc::clone(&slow));
                move || *slow.lock().unwrap() = Slow::begin(&core, op, store)
            });
            as_process(1, || image.checkpoint(other)).unwrap();
            let (root, when) = (image.root().unwrap(), format!("{op:?}, store {store}"));
            assert!(root.checkpoint <= next, "{when}: {root:?}, {next}");
            let (found, _) = brought_back(&*three.watched);
            let is_after = found == after(&before, op);
            assert!(is_after || found == before, "{when}: {found:?}");
            let Some(slow) = slow.lock().unwrap().take() else {
                break;
            };
            durable += u64::from(is_after);
            slow.end();
            three.check(&when);
        }
        assert!(durable > 0, "{op:?}");
    }
}

/// What had come before a checkpoint began, synced or not, is in the image, and the log is free of
/// it: a restart has no record to replay.
#[test]
fn a_checkpoint_leaves_nothing_in_the_log_of_what_came_before_it() {
    let three = Three::new();
    for id in 1..20 {
        push(&three.core.core, 0, id, id % 3);
        if id % 4 == 1 {
            three.image.sync(&three.core.core).unwrap();
        }
        assert!(shelf::perform(&three.core.core, 0, Op::Touch { list: 0 }).unwrap());
        three.image.checkpoint(&three.core.core).unwrap();
        assert_eq!(brought_back(&*three.watched), (three.core.contents(), 0), "{id}");
    }
}

/// The log is given back only when what makes it superfluous is durable; and that is so when the
/// checkpoint is over.
#[test]
fn a_checkpoint_that_is_over_is_durable() {
    let recorder = Recorder::new(Medium::new(len(200)), true).unwrap();
    new_volume(Arc::new(recorder.as_other()));
    let volume = volume(Arc::new(recorder.as_other()));
    let image = Image::make(volume, &new_region(1)).unwrap();
    let core = Core::new(1);
    let mut sweep = Sweep::new(Medium::new(len(200)));
    for id in 1..10 {
        push(&core.core, 0, id, 1);
        image.sync(&core.core).unwrap();
        image.checkpoint(&core.core).unwrap();
        for event in recorder.take_log() {
            sweep.pass(&event);
        }
        // Nothing that was not flushed is there.
        let left = Recorder::new(sweep.durable.clone(), false).unwrap();
        assert_eq!(brought_back_of(Arc::new(left)), (core.contents(), 0), "{id}");
    }
}

/// After each epoch that is read, and after each that is written; it may become durable there.
#[test]
fn other_work_is_done_while_a_checkpoint_is_written() {
    const EPOCHS: u64 = 6;
    let device = memory_device(600);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    for id in 1..=EPOCHS {
        push(&core.core, 0, id, 1);
        image.sync(&core.core).unwrap();
    }
    let mut times = 0;
    let other = || {
        times += 1;
        push(&core.core, 1, 100 + times, 1);
        image.sync(&core.core).unwrap();
    };
    image.checkpoint_beside(&core.core, other).unwrap();
    assert_eq!(times, EPOCHS + 1);
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    assert_eq!(Core::restored(&image).unwrap().contents(), core.contents());
}

/// Lets `meanwhile` happen before store number `store` of a checkpoint; whether it has that many.
fn in_checkpoint(three: &Three, store: u64, meanwhile: impl FnOnce() + Send + 'static) -> bool {
    let has_happened = Arc::new(AtomicBool::new(false));
    before_store(&three.other, store, {
        let has_happened = Arc::clone(&has_happened);
        move || {
            meanwhile();
            has_happened.store(true, Ordering::SeqCst);
        }
    });
    as_process(1, || three.image.checkpoint(&three.other)).unwrap();
    forget(&three.other);
    has_happened.load(Ordering::SeqCst)
}

/// The third one does something, and is stopped in the flush that is to make it durable.
fn written_and_not_flushed(three: &Three) -> impl FnOnce() -> Slow + Send + 'static {
    let (watched, image) = (Arc::clone(&three.watched), Arc::clone(&three.image));
    let third = Arc::clone(&three.third);
    move || {
        let (stop, stopped) = stop();
        watched.in_next(Work::Flush, 0, || stop.here());
        let thread = spawn(move || {
            become_actor(2);
            for _ in 0..20 {
                assert!(shelf::perform(&third, 2, Op::Touch { list: 0 }).unwrap());
            }
            image.sync(&third).unwrap();
        });
        assert!(stopped.is_there());
        Slow { stopped, thread }
    }
}

/// Somebody else writes an epoch, which is not durable yet: the checkpoint goes on from there.
#[test]
fn what_others_have_written_meanwhile_is_not_written_again() {
    let three = Three::new();
    let mut rounds = 0;
    for store in 1.. {
        three.prepare(store);
        let slow = Arc::new(Mutex::new(None));
        // Where the log ended before the third one's epoch, and ends with it.
        let ends = Arc::new([const { AtomicU64::new(0) }; 2]);
        let meanwhile = {
            let (image, slow, ends) =
                (Arc::clone(&three.image), Arc::clone(&slow), Arc::clone(&ends));
            let write = written_and_not_flushed(&three);
            move || {
                ends[0].store(image.root().unwrap().log_end, Ordering::SeqCst);
                *slow.lock().unwrap() = Some(write());
                ends[1].store(image.root().unwrap().log_end, Ordering::SeqCst);
            }
        };
        let has_happened = in_checkpoint(&three, store, meanwhile);
        let Some(slow) = slow.lock().unwrap().take().filter(|_| has_happened) else {
            break;
        };
        let root = three.image.root().unwrap();
        slow.end();
        let [before, with] = [0, 1].map(|index| ends[index].load(Ordering::SeqCst));
        let added = root.log_end - with;
        assert!(added < (with - before) / 2, "store {store}: {} and {added}", with - before);
        three.check(&format!("store {store}"));
        rounds += 1;
    }
    assert!(rounds > 5, "{rounds}");
}

/// Compares what is said to be durable with what a power cut leaves that keeps nothing else.
struct Cuts {
    recorder: Recorder,
    sweep: Mutex<Sweep>,
    core: OnceLock<SimCore>,
}

impl Cuts {
    fn compare(&self) {
        let Some(core) = self.core.get() else {
            return;
        };
        let durable = core.durable();
        let left = {
            let mut sweep = self.sweep.lock().unwrap();
            for event in self.recorder.take_log() {
                sweep.pass(&event);
            }
            Recorder::new(sweep.durable.clone(), false).unwrap()
        };
        let image: TestImage = Image::find(volume(Arc::new(left))).unwrap();
        let found = image.root().unwrap().cut;
        assert!(found >= durable, "{found} of {durable}");
    }
}

/// Whatever a checkpoint goes on from, it says that it is durable only if it is, also while others
/// are stopped in the flush of what they have written.
#[test]
fn a_checkpoint_says_of_nothing_too_early_that_it_is_durable() {
    let medium = Medium::new(len(80));
    let recorder = Recorder::new(medium.clone(), true).unwrap();
    new_volume(Arc::new(recorder.as_other()));
    let (sweep, core) = (Mutex::new(Sweep::new(medium)), OnceLock::new());
    let cuts = Arc::new(Cuts { recorder: recorder.as_other(), sweep, core });
    let compared = Arc::clone(&cuts);
    let watched = Watched::each(Arc::new(recorder), move |request| {
        if request.written().is_some() {
            compared.compare();
        }
        Ok(())
    });
    let three = Three::on(watched);
    assert!(cuts.core.set(Arc::clone(&three.third)).is_ok());
    for store in 1.. {
        three.prepare(store);
        let slow = Arc::new(Mutex::new(None));
        let meanwhile = {
            let (slow, write) = (Arc::clone(&slow), written_and_not_flushed(&three));
            move || *slow.lock().unwrap() = Some(write())
        };
        let has_happened = in_checkpoint(&three, store, meanwhile);
        cuts.compare();
        let Some(slow) = slow.lock().unwrap().take().filter(|_| has_happened) else {
            assert!(store > 5, "{store}");
            break;
        };
        slow.end();
    }
}

/// A store before which a record that touches is committed, and not applied.
fn amid_touching(three: &Three) -> u64 {
    let is_amid = |store: &u64| {
        three.prepare(*store);
        let Some(slow) = Slow::begin(&three.core.core, Op::Touch { list: 0 }, *store) else {
            panic!("it is never so");
        };
        let begun = as_process(1, || three.other.begin_checkpoint().unwrap());
        slow.end();
        !begun.unapplied.is_empty()
    };
    let first = (1..).find(is_amid).unwrap();
    // It takes some stores to apply it.
    first + 10
}

/// Two checkpoints at once: the first one has a record to repeat, which others have overwritten
/// when the second one begins; that is stopped until the first one is over.
fn overlapping(is_synced: bool) {
    let three = Three::new();
    let (core, second) = (&three.core.core, three.core.other(3));
    let amid = amid_touching(&three);
    for store in 1.. {
        three.prepare(1000 + store);
        let slow = Slow::begin(core, Op::Touch { list: 0 }, amid).unwrap();
        let unapplied = as_process(1, || three.other.begin_checkpoint().unwrap().unapplied);
        assert!(!unapplied.is_empty());
        let late = Arc::new(Mutex::new(None));
        let (image, third) = (Arc::clone(&three.image), Arc::clone(&three.third));
        let meanwhile = {
            let (late, second) = (Arc::clone(&late), Arc::clone(&second));
            move || {
                slow.end();
                as_process(2, || {
                    assert!(shelf::perform(&third, 2, Op::Touch { list: 0 }).unwrap());
                    if is_synced {
                        image.sync(&third).unwrap();
                    }
                });
                let (stop, stopped) = stop();
                before_store(&second, 1, || stop.here());
                let thread = spawn(move || {
                    become_actor(3);
                    image.checkpoint(&second).unwrap();
                });
                assert!(stopped.is_there());
                *late.lock().unwrap() = Some(Slow { stopped, thread });
                as_process(2, || {
                    let push = Op::Push { list: 2, id: 1 << 34 | store, pages: 0 };
                    assert!(shelf::perform(&third, 2, push).unwrap());
                });
            }
        };
        if !in_checkpoint(&three, store, meanwhile) {
            assert!(store > 5, "{store}");
            break;
        }
        let late = late.lock().unwrap().take().unwrap();
        late.end();
        three.check(&format!("store {store}, {is_synced}"));
    }
}

#[test]
fn of_two_checkpoints_neither_undoes_what_the_other_one_does_not_repeat() {
    overlapping(true);
    overlapping(false);
}

/// Pushes nodes with a run of a page each until there is no space: how many.
fn fill(three: &Three, id: u64, lists: &[u32], most: u64) -> u64 {
    as_process(2, || {
        for number in 0..most {
            let list = lists[number as usize % lists.len()];
            let push = Op::Push { list, id: id + number, pages: 1 };
            if !shelf::perform(&three.third, 2, push).unwrap() {
                return number;
            }
        }
        most
    })
}

/// Pops so many nodes from a list.
fn pop(three: &Three, list: u32, count: u64) {
    as_process(2, || {
        for _ in 0..count {
            assert!(shelf::perform(&three.third, 2, Op::Pop { list }).unwrap());
        }
        three.image.sync(&three.third).unwrap();
    });
}

/// A page that a repeated record has named is another one's by the time that the checkpoint ends,
/// and is in the log with that: what the older record says of it does not count.
#[test]
fn a_repeated_record_takes_nothing_from_who_has_its_pages_now() {
    let three = Arc::new(Three::on(Watched::new(Arc::new(memory_device(400)))));
    // Every other page is free, and more of them are than an epoch writes to the image; they are
    // used in turn.
    let used = fill(&three, 1 << 20, &[0, 1], u64::MAX);
    pop(&three, 1, used / 2);
    let some = fill(&three, 2 << 20, &[2], 300);
    pop(&three, 2, some);
    let id = 3 << 20;
    let push = Op::Push { list: 2, id, pages: 1 };
    for store in 1.. {
        let slow = Slow::begin(&three.core.core, push, store).unwrap();
        let begun = as_process(1, || three.other.begin_checkpoint().unwrap());
        if begun.unapplied.is_empty() {
            slow.end();
            pop(&three, 2, 1);
            continue;
        }
        as_process(1, || three.image.sync(&three.other)).unwrap();
        let meanwhile = {
            let three = Arc::clone(&three);
            move || {
                slow.end();
                pop(&three, 2, 1);
                let before = three.image.root().unwrap();
                fill(&three, 4 << 20, &[1], u64::MAX);
                three.image.sync(&three.third).unwrap();
                let root = three.image.root().unwrap();
                // Pages as well.
                assert!(root.log_end - before.log_end > 3000, "{before:?}, {root:?}");
            }
        };
        assert!(in_checkpoint(&three, 1, meanwhile));
        three.check("others have its pages");
        return;
    }
}

/// Somebody dies who has drawn a number and not committed: nobody gets that number any more, and
/// who syncs does not wait for it.
#[test]
fn who_has_died_holds_no_sync_up() {
    for store in 1.. {
        let three = Three::new();
        three.prepare(1);
        let world = three.core.world.clone();
        let core = &three.core.core;
        core.memory().meet(store, Fate::Unwind(Box::new(move || world.kill(0))));
        let touch = || shelf::perform(core, 0, Op::Touch { list: 0 }).unwrap();
        let has_died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(touch)).is_err();
        forget(core);
        let (image, other) = (Arc::clone(&three.image), Arc::clone(&three.other));
        in_time(1, move || image.sync(&other).unwrap());
        if !has_died {
            assert!(store > 30, "{store}");
            break;
        }
    }
}
