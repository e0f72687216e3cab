//! A core comes back from its volume as it was, whenever the power is cut.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod cores;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conquest_flash::device::{Faults, Faulty, Work};
use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_format::image::{LOG, ROOT};
use conquest_image::{Error, Image};
use conquest_pm::Options;
use conquest_pm::attach::{NewRegion, make};
use conquest_testkit::flash::crash::{Choice, crash};
use conquest_testkit::flash::{Event, Mark, Medium, Recorder, Sweep};
use conquest_testkit::scenario;
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::{DyingMemory, Image as Words, RecordingMemory, Rng, World, become_actor};
use cores::{
    Core, SHAPE, TestImage, brought_back, len, memory_device, new_region, new_volume, push, volume,
};

#[test]
fn a_core_comes_back_as_it_was_when_it_was_made_durable() {
    let device = memory_device(600);
    let mut image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let mut core = Core::new(1);
    let mut rng = Rng::new(5);
    let mut number = 0;
    for round in 0..12 {
        for _ in 0..12 {
            number += 1;
            shelf::perform(&core.core, 0, Op::random(&mut rng, 0, number, 40)).unwrap();
        }
        image.sync(&core.core).unwrap();
        let expected = core.contents();
        image.sync(&core.core).unwrap();
        if round % 3 == 1 {
            image.checkpoint(&core.core).unwrap();
            let root = image.root().unwrap();
            assert!(root.log_end - root.log_start < 1000, "{root:?}");
            let (first, _) = image.volume().allocated(LOG).unwrap().unwrap();
            assert!(first >= LOG + root.log_start);
        }
        // What was not made durable is gone.
        push(&core.core, 0, round << 32 | 7, 1);
        drop(image);
        image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
        core = Core::restored(&image).unwrap();
        assert_eq!(core.contents(), expected, "{round}");
    }
}

#[test]
fn more_runs_than_an_atomic_write_takes_come_back() {
    let device = memory_device(3000);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    // Runs of a page each, every other one of which goes again.
    for id in 1..600 {
        push(&core.core, id as u32 % 2, id, 1);
    }
    for _ in 0..299 {
        assert!(shelf::perform(&core.core, 0, Op::Pop { list: 1 }).unwrap());
    }
    image.sync(&core.core).unwrap();
    let expected = core.contents();
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    let again = Core::restored(&image).unwrap();
    assert_eq!(again.contents(), expected);
    // Touched, they are in the log, and by a checkpoint in the image.
    for _ in 0..20 {
        assert!(shelf::perform(&again.core, 0, Op::Touch { list: 0 }).unwrap());
        assert!(shelf::perform(&again.core, 0, Op::Move { from: 0, to: 2 }).unwrap());
    }
    image.checkpoint(&again.core).unwrap();
    let expected = again.contents();
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    assert_eq!(Core::restored(&image).unwrap().contents(), expected);
}

#[test]
fn what_was_done_to_a_page_before_it_was_used_anew_does_not_count() {
    let device = memory_device(3000);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    // Pages are used in turn; the region has room for seven such runs.
    for id in 1..=20 {
        push(&core.core, 0, id, 200);
        for _ in 0..id % 3 {
            assert!(shelf::perform(&core.core, 0, Op::Touch { list: 0 }).unwrap());
        }
        assert!(shelf::perform(&core.core, 0, Op::Pop { list: 0 }).unwrap());
    }
    push(&core.core, 0, 100, 200);
    image.sync(&core.core).unwrap();
    let expected = core.contents();
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    assert_eq!(Core::restored(&image).unwrap().contents(), expected);
}

#[test]
fn several_who_sync_at_once_are_served_together() {
    let device = memory_device(600);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    let others = [1, 2].map(|id| core.other(id));
    std::thread::scope(|scope| {
        for (id, other) in (1..).zip(&others) {
            let image = &image;
            scope.spawn(move || {
                become_actor(id);
                for number in 0..20 {
                    let op = Op::Push { list: id % 3, id: number << 8 | u64::from(id), pages: 1 };
                    assert!(shelf::perform(other, id, op).unwrap());
                    image.sync(other).unwrap();
                    assert!(other.durable() > 0);
                    if number % 7 == u64::from(id) {
                        image.checkpoint(other).unwrap();
                    }
                }
            });
        }
    });
    let expected = core.contents();
    assert_eq!(expected.nodes(), 40);
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    assert_eq!(Core::restored(&image).unwrap().contents(), expected);
}

#[test]
fn what_comes_while_a_checkpoint_is_written_in_parts_is_not_lost() {
    let device = memory_device(3000);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    // More pages that were changed than one epoch takes of a checkpoint.
    for id in 1..400 {
        push(&core.core, 0, id, 1);
        assert!(shelf::perform(&core.core, 0, Op::Touch { list: 0 }).unwrap());
    }
    image.sync(&core.core).unwrap();
    let other = core.other(1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_actor(1);
            let mut number = 1000;
            // The log has room for so many.
            while !is_over.load(Ordering::SeqCst) && number < 1800 {
                number += 1;
                let op = Op::Push { list: 1, id: number, pages: 0 };
                assert!(shelf::perform(&other, 1, op).unwrap());
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        // It is at work.
        while shelf::done(&core.core, 1) < 10 {
            std::thread::yield_now();
        }
        image.checkpoint(&core.core).unwrap();
        is_over.store(true, Ordering::SeqCst);
    });
    image.sync(&core.core).unwrap();
    let expected = core.contents();
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    assert_eq!(Core::restored(&image).unwrap().contents(), expected);
}

#[test]
fn a_log_that_is_getting_full_is_made_durable() {
    let device = memory_device(600);
    let few = NewRegion { shape: Shape { log: 8, ..SHAPE }, ..new_region(1) };
    let image = Arc::new(Image::make(volume(Arc::new(device.as_other())), &few).unwrap());
    become_actor(0);
    let geometry = Geometry::new(few.shape).unwrap();
    let words = Arc::new(Words::new(geometry.len()));
    let memory = RecordingMemory::new(words, geometry.volatile(), false);
    let world = World::new(memory.clock());
    make(&memory.actor(0), &world.process(9), Path::new("new"), &few).unwrap();
    let attached = |options| {
        let memory = DyingMemory::counting(memory.actor(0));
        Arc::into_inner(
            conquest_pm::Core::attach(
                memory,
                world.process(0),
                Path::new("c"),
                &few.kinds,
                options,
            )
            .unwrap(),
        )
        .unwrap()
    };
    let mut rng = Rng::new(9);
    let mut work = |core: &conquest_pm::Core<_, _>, count: u64| {
        (1..=count).try_for_each(|number| {
            shelf::perform(core, 0, Op::random(&mut rng, 0, number, 9)).map(drop)
        })
    };
    // Who can't do that is told.
    let core = attached(scenario::options());
    assert!(matches!(work(&core, 100_000), Err(conquest_pm::Error::LogFull { .. })));
    core.detach().unwrap();
    drop(core);
    let make_durable = Some(Image::maker(&image));
    let core = attached(Options { make_durable, ..scenario::options() });
    work(&core, 3000).unwrap();
    image.sync(&core).unwrap();
    let expected = shelf::examine(&core).unwrap().0;
    drop((core, image));
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    let (memory, world) = restored_memory(&image);
    let found = Core::attached(memory, world).contents();
    assert_eq!(found, expected);
}

fn restored_memory(image: &TestImage) -> (RecordingMemory, World) {
    let geometry = Geometry::new(image.region().unwrap().shape).unwrap();
    let words = Arc::new(Words::new(geometry.len()));
    let memory = RecordingMemory::new(words, geometry.volatile(), false);
    let world = World::new(memory.clock());
    image.restore(&memory.actor(0), &world.process(9), Path::new("restored")).unwrap();
    (memory, world)
}

#[test]
fn a_volume_that_is_not_the_cores_is_refused() {
    let device = memory_device(600);
    let on = volume(Arc::new(device.as_other()));
    assert!(matches!(Image::find(Arc::clone(&on)), Err(Error::Missing { .. })));
    let without = NewRegion { shape: Shape { log: 0, ..SHAPE }, ..new_region(1) };
    assert!(matches!(Image::make(Arc::clone(&on), &without), Err(Error::NoLog { .. })));
    let image = Image::make(Arc::clone(&on), &new_region(1)).unwrap();
    assert!(matches!(Image::make(Arc::clone(&on), &new_region(1)), Err(Error::Exists { .. })));
    // Another core's.
    let other = Core::new(2);
    push(&other.core, 0, 1, 0);
    assert!(matches!(image.sync(&other.core), Err(Error::Other { .. })));
    // One that has gone on with another volume; and one that has not.
    let core = Core::new(1);
    push(&core.core, 0, 1, 0);
    image.sync(&core.core).unwrap();
    let late = Core::new(1);
    push(&late.core, 0, 1, 0);
    push(&core.core, 0, 2, 0);
    push(&core.core, 0, 3, 0);
    image.sync(&core.core).unwrap();
    assert!(matches!(image.sync(&late.core), Err(Error::Newer { .. })));
    let young = memory_device(600);
    let young = Image::make(volume(Arc::new(young)), &new_region(1)).unwrap();
    push(&core.core, 0, 4, 0);
    assert!(matches!(young.sync(&core.core), Err(Error::Older { .. })));
    // One that was brought back since.
    let young = Core::restored(&image).unwrap();
    assert!(matches!(image.sync(&core.core), Err(Error::Superseded { expected: 0, found: 1, .. })));
    image.sync(&young.core).unwrap();
    // Damaged.
    on.write(ROOT, &[7; 512]).unwrap();
    assert!(matches!(Image::find(on), Err(Error::Corrupt { .. })));
}

#[test]
fn a_log_that_is_damaged_is_refused_whatever_it_says() {
    let device = memory_device(600);
    let on = volume(Arc::new(device.as_other()));
    let image = Image::make(Arc::clone(&on), &new_region(1)).unwrap();
    let core = Core::new(1);
    push(&core.core, 0, 1, 0);
    image.sync(&core.core).unwrap();
    let mut first = [0; 512];
    on.read(LOG, &mut first).unwrap();
    let restore = || {
        let geometry = Geometry::new(SHAPE).unwrap();
        let words = Arc::new(Words::new(geometry.len()));
        let memory = RecordingMemory::new(words, geometry.volatile(), false);
        let world = World::new(memory.clock());
        image.restore(&memory.actor(0), &world.process(9), Path::new("restored"))
    };
    restore().unwrap();
    // Any word, but for the one that nobody looks at; also how many bytes there are, up to what no
    // memory has.
    for at in (0..16).filter(|at| *at != 6) {
        for value in [1, 1 << 20, LOG, LOG - 1, u64::MAX] {
            let mut damaged = first;
            damaged[at * 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
            if damaged != first {
                on.write(LOG, &damaged).unwrap();
                assert!(matches!(restore(), Err(Error::Corrupt { .. })), "word {at}: {value}");
            }
        }
    }
    on.write(LOG, &first).unwrap();
    restore().unwrap();
}

#[test]
fn a_device_that_fails_makes_nothing_durable() {
    let device = memory_device(600);
    let faults = Arc::new(Faults::default());
    let faulty = Faulty::new(device.as_other(), Arc::clone(&faults));
    let image = Image::make(volume(Arc::new(faulty)), &new_region(1)).unwrap();
    let core = Core::new(1);
    push(&core.core, 0, 1, 2);
    image.sync(&core.core).unwrap();
    let expected = core.contents();
    let durable = core.core.durable();
    push(&core.core, 0, 2, 2);
    faults.fail(Work::Flush, 0, rustix::io::Errno::IO.raw_os_error());
    assert!(matches!(image.sync(&core.core), Err(Error::Volume(_))));
    assert_eq!(core.core.durable(), durable);
    assert!(matches!(image.sync(&core.core), Err(Error::Volume(_))));
    drop(image);
    let image = Image::find(volume(Arc::new(device.as_other()))).unwrap();
    let found = Core::restored(&image).unwrap().contents();
    // It may have come so far.
    assert!(found == expected || found == core.contents());
}

/// Who brings a core back is the only one who goes on with it, also after a power cut.
#[test]
fn what_was_brought_back_is_durably_superseded() {
    let recorder = Recorder::new(blank(200), true).unwrap();
    let image = Image::find(volume(Arc::new(recorder.as_other()))).unwrap();
    let core = Core::new(1);
    push(&core.core, 0, 1, 1);
    image.sync(&core.core).unwrap();
    drop(recorder.take_log());
    let mut sweep = Sweep::new(recorder.medium());
    drop(Core::restored(&image).unwrap());
    for event in recorder.take_log() {
        sweep.pass(&event);
    }
    // Nothing that was not flushed is there.
    let left = Recorder::new(sweep.durable.clone(), false).unwrap();
    let image = Image::find(volume(Arc::new(left))).unwrap();
    push(&core.core, 0, 2, 1);
    let told = image.sync(&core.core);
    assert!(matches!(told, Err(Error::Superseded { .. })), "{told:?}");
}

/// A page that only the log has, and that a later epoch writes to the image, is as it is there,
/// also if the first record of that epoch names it.
#[test]
fn pages_of_the_log_that_were_written_to_the_image_since_do_not_count() {
    let device = memory_device(3000);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    let pop = |list| assert!(shelf::perform(&core.core, 0, Op::Pop { list }).unwrap());
    // Runs of a page each, more than an epoch writes to the image.
    (1..600).for_each(|id| push(&core.core, id as u32 % 2, id, 1));
    (0..299).for_each(|_| pop(1));
    image.sync(&core.core).unwrap();
    (0..300).for_each(|_| pop(0));
    image.sync(&core.core).unwrap();
    // All pages that there are, in turn.
    for id in 1000..1010 {
        push(&core.core, 0, id, 100);
        image.sync(&core.core).unwrap();
        let (found, records) = brought_back(&device);
        assert_eq!(found, core.contents(), "{id}");
        assert!(records > 0);
    }
}

/// A core that has changed nothing needs no checkpoint.
#[test]
fn a_checkpoint_of_nothing_writes_nothing() {
    let device = memory_device(600);
    let image = Image::make(volume(Arc::new(device.as_other())), &new_region(1)).unwrap();
    let core = Core::new(1);
    let before = image.root().unwrap();
    image.checkpoint(&core.core).unwrap();
    assert_eq!(image.root().unwrap(), before);
    push(&core.core, 0, 1, 0);
    image.checkpoint(&core.core).unwrap();
    assert!(image.root().unwrap().epoch > before.epoch);
}

/// What was done by how many events of the device's log.
struct Done {
    events: usize,
    /// Operations that were begun, and those that had been made durable.
    begun: usize,
    durable: usize,
}

/// A recorded run.
struct Recorded {
    /// What was on the device before.
    before: Medium,
    /// What was done to it.
    log: Vec<Event>,
    done: Vec<Done>,
    /// What the shelf held after each operation.
    states: Vec<Contents>,
}

/// A device with an image that has no record yet.
fn blank(segments: u64) -> Medium {
    let blank = Recorder::new(Medium::new(len(segments)), false).unwrap();
    new_volume(Arc::new(blank.as_other()));
    drop(Image::make(volume(Arc::new(blank.as_other())), &new_region(1)).unwrap());
    blank.medium()
}

/// A run of one process.
fn recorded(seed: u64) -> Recorded {
    let mut rng = Rng::new(seed);
    let before = blank(200);
    let recorder = Recorder::new(before.clone(), true).unwrap();
    let image = Image::find(volume(Arc::new(recorder.as_other()))).unwrap();
    let core = Core::new(1);
    let mut log = recorder.take_log();
    let mut states = vec![core.contents()];
    let mut done = Vec::new();
    let (mut number, mut durable) = (0, 0);
    for _ in 0..14 {
        for _ in 0..rng.below(4) {
            number += 1;
            shelf::perform(&core.core, 0, Op::random(&mut rng, 0, number, 3)).unwrap();
            states.push(core.contents());
        }
        let begun = states.len() - 1;
        done.push(Done { events: log.len(), begun, durable });
        match rng.chance(1, 3) {
            true => image.checkpoint(&core.core).unwrap(),
            false => image.sync(&core.core).unwrap(),
        }
        log.extend(recorder.take_log());
        durable = begun;
    }
    done.push(Done { events: log.len(), begun: durable, durable });
    Recorded { before, log, done, states }
}

/// A run in which one process works and syncs now and then, while others sync and write
/// checkpoints all the time.
fn recorded_together(seed: u64) -> Recorded {
    let before = blank(300);
    let recorder = Recorder::new(before.clone(), true).unwrap();
    let image = Image::find(volume(Arc::new(recorder.as_other().shared()))).unwrap();
    let core = Core::new(1);
    let others = [core.other(2), core.other(3)];
    let is_over = AtomicBool::new(false);
    let mut states = vec![core.contents()];
    std::thread::scope(|scope| {
        for (id, other) in (2..).zip(&others) {
            let (image, is_over) = (&image, &is_over);
            scope.spawn(move || {
                become_actor(id);
                let mut rng = Rng::new(seed ^ u64::from(id));
                while !is_over.load(Ordering::SeqCst) {
                    match rng.chance(1, 4) {
                        true => image.checkpoint(other).unwrap(),
                        false => image.sync(other).unwrap(),
                    }
                    std::thread::sleep(Duration::from_micros(rng.below(300)));
                }
            });
        }
        let mut rng = Rng::new(seed);
        for number in 1..=40 {
            recorder.mark(Mark::Begun(number));
            shelf::perform(&core.core, 0, Op::random(&mut rng, 0, number.into(), 3)).unwrap();
            states.push(core.contents());
            // The others come in between.
            std::thread::sleep(Duration::from_micros(rng.below(1000)));
            if rng.chance(1, 5) {
                image.sync(&core.core).unwrap();
                recorder.mark(Mark::Done(number));
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let log = recorder.take_log();
    let (mut begun, mut durable) = (0, 0);
    let done = log.iter().enumerate().filter_map(|(events, event)| {
        match event {
            Event::Mark(Mark::Begun(number)) => begun = *number as usize,
            Event::Mark(Mark::Done(number)) => durable = *number as usize,
            _ => return None,
        }
        Some(Done { events, begun, durable })
    });
    let done = done.collect();
    Recorded { before, log, done, states }
}

/// Cuts the power in a run, and looks at what comes back: how often, and how many states there
/// were.
fn cut(seed: u64, recorded: Recorded) -> (usize, usize) {
    let Recorded { before, log, done, states } = recorded;
    let (mut cuts, mut distinct) = (0, HashSet::new());
    let mut sweep = Sweep::new(before);
    let mut rng = Rng::new(seed ^ 0x5EED);
    for (at, event) in log.iter().enumerate() {
        if !sweep.pass(event) || rng.chance(1, 2) {
            continue;
        }
        let now = done.iter().rev().find(|done| done.events <= at);
        let (least, most) = now.map_or((0, 0), |now| (now.durable, now.begun));
        let choice = Choice::random(&mut rng);
        let medium = crash(&sweep, 512, choice, &mut rng);
        let device = Recorder::new(medium, false).unwrap();
        let image = Image::find(volume(Arc::new(device))).unwrap();
        let found = Core::restored(&image)
            .unwrap_or_else(|error| panic!("seed {seed}, cut {at}, {choice}: {error}"))
            .contents();
        let place = states.get(least..=most).unwrap().iter().position(|it| *it == found);
        assert!(place.is_some(), "seed {seed}, cut {at}, {choice}: {found:?}");
        cuts += 1;
        distinct.insert(least + place.unwrap_or(0));
    }
    (cuts, distinct.len())
}

fn cut_all(seeds: std::ops::Range<u64>, run: fn(u64) -> Recorded) -> (usize, usize) {
    let found = seeds.map(|seed| cut(seed, run(seed)));
    found.fold((0, 0), |(cuts, states), (more, other)| (cuts + more, states + other))
}

#[test]
fn nothing_durable_is_lost_by_a_power_cut() {
    let (cuts, states) = cut_all(0..20, recorded);
    println!("{cuts} power cuts, {states} states");
    assert!(cuts >= 300 && states >= 50, "{cuts} cuts, {states} states");
}

#[test]
fn nothing_durable_is_lost_by_a_power_cut_while_several_are_at_it() {
    let (cuts, states) = cut_all(0..8 * times(), recorded_together);
    println!("{cuts} power cuts, {states} states");
    assert!(cuts >= 300 && states >= 50, "{cuts} cuts, {states} states");
}

/// How many times as long as usual: `CONQUEST_TIMES`.
fn times() -> u64 {
    std::env::var("CONQUEST_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}
