//! Slices of the power cuts of volumes, of the deaths on them and of their corruptions; all of
//! them: `cargo xtask explore flash`, `kill flash`, `fuzz flash`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use conquest_flash::device::{Access, Device, FileDevice};
use conquest_testkit::Rng;
use conquest_testkit::cuts::{Tally, Way};
use conquest_testkit::flash::crash::{Choice, crash};
use conquest_testkit::flash::explore::explore;
use conquest_testkit::flash::{Event, Log, Medium, Recorder, Sweep};

#[test]
fn what_a_power_cut_leaves_can_be_used() {
    let mut total = Tally::default();
    // One is of several threads, one of full volumes, and the last two on a device with FUA, of one
    // thread and of several.
    for seed in [2, 5, 3, 14, 4, 7] {
        total += explore(seed, 48);
    }
    assert!(total.failures.is_empty(), "{:#?}", total.failures);
    assert!(total.cuts > 80 && total.inside["durable writes"] > 3, "{total}");
    assert!(total.inside.values().all(|&count| count > 1), "{total}");
}

#[test]
fn one_thread_does_the_same_again() {
    let (one, other) = (explore(5, 200), explore(5, 200));
    assert_eq!((one.cuts, one.states, one.inside), (other.cuts, other.states, other.inside));
    assert_eq!(one.outcomes, other.outcomes);
}

#[test]
fn ways_are_read_as_they_are_written() {
    for text in ["7", "7:12.0", "7:12.0/3.1/0.4294967295"] {
        assert_eq!(Way::parse(text).unwrap().to_string(), text);
    }
    assert!(["", "x", "7:1", "7:1.x"].into_iter().all(|text| Way::parse(text).is_none()));
}

/// The medium that `choice` leaves of a log of two writes to one place, of which the first one was
/// flushed, and of one that is under way elsewhere.
fn left(choice: Choice, seed: u64) -> Medium {
    let recorder = Recorder::new(Medium::new(1 << 20), true).unwrap();
    recorder.write(0, &[1; 1024]).unwrap();
    recorder.flush().unwrap();
    recorder.write(0, &[2; 1024]).unwrap();
    recorder.write(8192, &[3; 4096]).unwrap();
    let log = recorder.take_log();
    let mut sweep = Sweep::new(Medium::new(1 << 20));
    let (_, log) = log.split_last().unwrap();
    for event in log {
        sweep.pass(event);
    }
    assert!(matches!(log.last(), Some(Event::Write { bytes, .. }) if **bytes == [3; 4096]));
    assert_eq!(sweep.pending.len(), 2);
    crash(&sweep, 512, choice, &mut Rng::new(seed))
}

#[test]
fn flushed_is_there_and_the_rest_may_be() {
    let read = |medium: &Medium, at: u64| {
        let mut bytes = [0; 512];
        medium.read(at, &mut bytes).map(|()| bytes).ok()
    };
    for seed in 0..50 {
        let old = left(Choice::Old, seed);
        assert_eq!((read(&old, 0), read(&old, 8192)), (Some([1; 512]), Some([0; 512])));
        let new = left(Choice::New, seed);
        assert_eq!((read(&new, 512), read(&new, 8192)), (Some([2; 512]), Some([3; 512])));
        let any = left(Choice::Random(4), seed);
        assert!([Some([1; 512]), Some([2; 512])].contains(&read(&any, 512)));
        // Only what is under way can be damaged.
        let spoilt = left(Choice::Garbage, seed);
        assert_eq!(read(&spoilt, 0), Some([2; 512]));
        assert_eq!(read(&spoilt, 4096), Some([0; 512]));
    }
    let damaged = (0..50).filter(|&seed| read(&left(Choice::Garbage, seed), 8192).is_none());
    assert!((2..20).contains(&damaged.count()));
}

#[test]
fn what_is_durable_by_itself_is_there_and_nothing_else() {
    let recorder = Recorder::new(Medium::new(1 << 20), true).unwrap().with_fua(true);
    recorder.write(8192, &[1; 4096]).unwrap();
    recorder.write(0, &[2; 4096]).unwrap();
    recorder.write_durable(1024, &[3; 512]).unwrap();
    recorder.write(1024, &[4; 512]).unwrap();
    let log = recorder.take_log();
    assert_eq!(log.iter().filter(|event| matches!(event, Event::Durable { .. })).count(), 1);
    let mut sweep = Sweep::new(Medium::new(1 << 20));
    for event in &log {
        sweep.pass(event);
    }
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let choice = Choice::random(&mut rng);
        let medium = crash(&sweep, 512, choice, &mut rng);
        let byte = |at: u64| {
            let mut bytes = [0; 512];
            medium.read(at, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == bytes[0]));
            bytes[0]
        };
        assert!([3, 4].contains(&byte(1024)), "{choice}");
        assert!([0, 1].contains(&byte(8192)) && [0, 2].contains(&byte(512)), "{choice}");
    }
    let old = crash(&sweep, 512, Choice::Old, &mut Rng::new(1));
    let mut bytes = [0; 1024];
    old.read(512, &mut bytes).unwrap();
    assert_eq!(bytes, [[0; 512], [3; 512]].as_flattened());
}

#[test]
fn openers_know_of_each_other() {
    let recorder = Arc::new(Recorder::new(Medium::new(1 << 20), false).unwrap());
    let other = recorder.as_other();
    assert!(recorder.enter(5).unwrap() && other.is_entered(5).unwrap());
    assert!(!other.enter(5).unwrap());
    drop(recorder);
    assert!(!other.is_anyone_entered().unwrap());
}

#[test]
fn a_log_tells_what_openers_do_in_order() {
    let root = std::env::temp_dir().join(format!("conquest-log-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let path = root.join("device");
    drop(FileDevice::create(&path, 1 << 16, 0o600, &mut |_| {}).unwrap());
    let open = || Log::beside(Arc::new(FileDevice::open(&path, Access::Write).unwrap())).unwrap();
    assert_eq!(open().file_count(), 1);
    Log::begin(std::slice::from_ref(&path)).unwrap();
    let (one, other) = (open(), open());
    let log = Log::open(&Log::directory(&root)).unwrap();
    assert_eq!(one.file_count(), 0);
    one.write(4096, &[1; 4096]).unwrap();
    assert_eq!(log.mark().unwrap(), 2);
    other.write(0, &[2; 4096]).unwrap();
    other.flush().unwrap();
    let mut read = [0; 4096];
    one.read(0, &mut read).unwrap();
    assert_eq!(read, [2; 4096]);
    let said = Log::load(&Log::directory(&root)).unwrap();
    assert_eq!(said.iter().map(|(time, ..)| *time).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6]);
    assert!(matches!(&said[2].2, Event::Write { at: 0, bytes, .. } if **bytes == [2; 4096]));
    let mut sweep = Sweep::new(Medium::new(1 << 16));
    for (_, device, event) in &said {
        assert_eq!(*device, 0);
        sweep.pass(event);
    }
    assert!(sweep.pending.is_empty());
    sweep.durable.read(4096, &mut read).unwrap();
    assert_eq!(read, [1; 4096]);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn what_a_dead_process_was_writing_is_there_in_part() {
    let mut counts = [0; 3];
    for request in 0..60 {
        let mut sweep = Sweep::new(Medium::new(1 << 16));
        let write = Event::Write { request, at: 4096, bytes: [5; 4096].as_slice().into() };
        let events = [write, Event::Ceased { request }, Event::Flush { request: 100 }];
        for event in &events {
            sweep.pass(event);
        }
        assert!(sweep.pending.iter().all(|pending| pending.is_done));
        sweep.pass(&Event::Flushed { request: 100 });
        let mut bytes = [0; 4096];
        sweep.durable.read(4096, &mut bytes).unwrap();
        let sectors = bytes.chunks(512).filter(|sector| **sector == [5; 512]).count();
        counts[sectors.div_ceil(8).max(sectors / 8 * 2)] += 1;
    }
    assert!(counts.iter().all(|&count| count > 5), "{counts:?}");
}

/// Runs `program` with `arguments`, which has to succeed; what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, why) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{why}");
    said
}

#[test]
fn what_was_acknowledged_survives_those_who_are_killed() {
    let program = env!("CARGO_BIN_EXE_kill-flash");
    let few = ["--operations", "20000", "--openings", "20", "--mib", "24", "--cuts", "30"];
    let said = run(program, &few);
    assert!(said.contains("0 failed") && said.contains("30 power cuts"), "{said}");
    let devices = ["--devices", "mirrored:2", "--operations", "5000", "--openings", "5"];
    run(program, &[&devices[..], &["--mib", "24", "--processes", "2"]].concat());
}

#[test]
fn corrupted_volumes_do_no_harm() {
    run(env!("CARGO_BIN_EXE_fuzz-flash"), &["--cases", "300", "--seed", "7"]);
}
