//! Large files of stores with a volume: what is there after a restart of the machine, on a full
//! volume, and of several processes at once.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use conquest::{Form, OpenOptions, Store};
use conquest_testkit::Rng;
use support::large::{
    FILES, Model, Op, PAGE, State, THRESHOLD, VOLUME, alone, filler, found, has_pages_of, last,
    made, name, open, power_cut, read, set_threshold, threshold,
};
use support::{Temporary, check, ends_well, kill, role, start, text, write_file};

/// Performs random operations for ever, and says in a file which were begun, and done durably.
fn work(directory: &Path, seed: u64, log: &Path) {
    let store = alone(directory);
    let files = store.files().unwrap();
    let mut log = std::fs::File::options().append(true).create(true).open(log).unwrap();
    let mut rng = Rng::new(seed);
    for number in 0_u64.. {
        let op = Op::random(&mut rng);
        log.write_all(format!("begun {number}\n").as_bytes()).unwrap();
        op.perform(number, &store, &files);
        if matches!(op, Op::Sync) {
            log.write_all(format!("durable {number}\n").as_bytes()).unwrap();
        }
        if rng.chance(1, 20) {
            store.fs().trim_chunks().unwrap();
        }
    }
}

#[test]
fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["work", directory, seed, log] => {
            work(Path::new(directory), seed.parse().unwrap(), Path::new(log));
        }
        ["drop", directory, sign] => {
            let store = alone(Path::new(directory));
            let files = store.files().unwrap();
            (0..2).for_each(|file| {
                open(&files, file).write_all_at(&filler(file, 300_000), 0).unwrap();
            });
            store.sync().unwrap();
            files.remove_file("/0").unwrap();
            open(&files, 1).set_len(0).unwrap();
            store.fs().trim_chunks().unwrap();
            // So much that the volume flushes what was done before, too.
            let (other, bytes) = (open(&files, 2), filler(7, 2 << 20));
            (0..50).for_each(|_| other.write_all_at(&bytes, 0).unwrap());
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["hold", directory, sign] => {
            let _store = alone(Path::new(directory));
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["share", directory, number] => share(Path::new(directory), number.parse().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Whether `there` is what a file should be after an operation, where the bytes of a page may be
/// those of a later one: `states` are what it should be from then on.
fn is_one_of(there: &[u8], states: &[&Vec<u8>]) -> bool {
    let (before, after) = (states[0].len(), states.get(1).map_or(states[0].len(), |s| s.len()));
    // An operation of several records may be done in part.
    let is_fitting = there.len() == before || (before..=after).contains(&there.len());
    is_fitting && has_pages_of(there, states)
}

/// Fails unless `there` is what the operations have given up to one of those that were begun, and
/// not before the last one that is durable.
fn judge(there: &Model, seed: u64, log: &str) {
    let (durable, begun) = (last(log, "durable "), last(log, "begun ").unwrap_or(0));
    let mut rng = Rng::new(seed);
    let mut state = State::default();
    let mut states = vec![state.clone()];
    for number in 0..=begun {
        state.apply(&Op::random(&mut rng), number);
        if durable.is_some_and(|durable| number <= durable) {
            states.clear();
        }
        states.push(state.clone());
        let _trims = rng.chance(1, 20);
    }
    let empty: Vec<u8> = Vec::new();
    let is_state = |k: usize| {
        let later = &states[k..];
        let next = later.get(1).unwrap_or(&later[0]);
        let has_names = |state: &&State| there.keys().eq(state.bytes.keys());
        let Some(named) = [&later[0], next].into_iter().find(has_names) else {
            return false;
        };
        there.iter().all(|(name, bytes)| {
            // What is written to a page may be there before it has got its present name.
            let file = named.files[name];
            let mut all: Vec<&Vec<u8>> = later.iter().filter_map(|s| s.bytes_of(file)).collect();
            // One that the next operation makes is there, without bytes, before that goes on.
            if later[0].bytes_of(file).is_none() {
                all.insert(0, &empty);
            }
            is_one_of(bytes, &all)
        })
    };
    let is_found = (0..states.len()).any(is_state);
    let lens = |model: &Model| model.iter().map(|(f, b)| (*f, b.len())).collect::<Vec<_>>();
    assert!(
        is_found,
        "seed {seed}: {:?} is none of {:?} (operations {durable:?} to {begun})",
        lens(there),
        states.iter().map(|state| lens(&state.bytes)).collect::<Vec<_>>()
    );
}

#[test]
fn what_was_durable_is_there_after_a_power_cut_whoever_died_and_when() {
    let place = Temporary::on_disk("cuts");
    let (directory, log) = (made(&place), place.path().join("log"));
    let rounds = std::env::var("CONQUEST_TIMES").map_or(12, |times| times.parse().unwrap());
    let mut rng = Rng::new(4);
    let mut operations = 0;
    for seed in 0..rounds {
        let child = start(&["work", text(&directory), &seed.to_string(), text(&log)]);
        std::thread::sleep(Duration::from_millis(100 + rng.below(1500)));
        kill(child);
        power_cut(&directory);
        let told = std::fs::read_to_string(&log).unwrap_or_default();
        let store = alone(&directory);
        check(store.fs());
        let files = store.files().unwrap();
        judge(&found(&files), seed, &told);
        operations += last(&told, "begun ").unwrap_or(0);
        (0..FILES).for_each(|file| drop(files.remove_file(name(file))));
        let _was_there = std::fs::remove_file(&log);
        drop(files);
        store.detach().unwrap();
    }
    assert!(operations > rounds * 5, "{operations} operations in {rounds} rounds");
    println!("{operations} operations, {rounds} power cuts");
}

#[test]
fn a_death_without_a_power_cut_loses_nothing() {
    let place = Temporary::on_disk("deaths");
    let (directory, log) = (made(&place), place.path().join("log"));
    let mut rng = Rng::new(5);
    for seed in 100..108 {
        let child = start(&["work", text(&directory), &seed.to_string(), text(&log)]);
        std::thread::sleep(Duration::from_millis(100 + rng.below(800)));
        kill(child);
        let told = std::fs::read_to_string(&log).unwrap_or_default();
        // All that was begun but the last one was done.
        let done = last(&told, "begun ").and_then(|begun| begun.checked_sub(1));
        let told = done.map_or(told.clone(), |done| format!("{told}durable {done}\n"));
        let store = alone(&directory);
        check(store.fs());
        let files = store.files().unwrap();
        judge(&found(&files), seed, &told);
        (0..FILES).for_each(|file| drop(files.remove_file(name(file))));
        let _was_there = std::fs::remove_file(&log);
        drop(files);
        store.detach().unwrap();
    }
}

/// Writes pages of its own to files that others write to as well, and reads them back.
fn share(directory: &Path, number: u64) {
    let store = alone(directory);
    let files = store.files().unwrap();
    let mut rng = Rng::new(number);
    for round in 0..120 {
        let file = open(&files, rng.below(2));
        // Odd places, so that neighbours are in the same page.
        let slot = rng.below(40) * 8 + number;
        let at = slot * 5000;
        let bytes = filler(number * 1000 + round, 5000);
        file.write_all_at(&bytes, at).unwrap();
        if round % 10 == 0 {
            store.fs().push(file.id(), conquest_fs::locks::Wait::Forever).unwrap();
        }
        let mut there = vec![0; 5000];
        assert_eq!(file.read_at(&mut there, at).unwrap(), 5000);
        assert!(there == bytes, "process {number}, round {round}, at {at}");
    }
}

#[test]
fn several_processes_write_to_parts_of_a_page() {
    let place = Temporary::on_disk("share");
    let directory = made(&place);
    let store = alone(&directory);
    let numbers: Vec<String> = (0..4).map(|number: u64| number.to_string()).collect();
    let children: Vec<_> =
        numbers.iter().map(|number| start(&["share", text(&directory), number])).collect();
    assert!(children.into_iter().all(ends_well));
    check(store.fs());
    store.detach().unwrap();
}

#[test]
fn a_full_volume_refuses_and_what_is_removed_can_be_had_again() {
    let place = Temporary::on_disk("full");
    let directory = made(&place);
    let store = alone(&directory);
    let files = store.files().unwrap();
    let mut most = 0;
    for round in 0..3 {
        let mut written = 0;
        let piece = filler(1, 1 << 20);
        let file = open(&files, 0);
        let error = loop {
            match file.write_at(&piece, written) {
                Ok(len) => written += len as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), libc::ENOSPC, "{error}");
        assert!(written > VOLUME / 4 && written + (4 << 20) > most, "{written} after {most}");
        most = most.max(written);
        // Others go on, and all is durable.
        write_file(store.fs(), "small", b"content");
        store.sync().unwrap();
        let mut there = vec![0; piece.len()];
        for at in (0..written).step_by(piece.len()) {
            let len = file.read_at(&mut there, at).unwrap();
            assert!(there[..len] == piece[..len], "round {round}, at {at}");
        }
        drop(file);
        match round {
            0 => files.remove_file(name(0)).unwrap(),
            _ => open(&files, 0).set_len(0).unwrap(),
        }
    }
    check(store.fs());
    drop(files);
    store.detach().unwrap();
}

#[test]
fn pages_pass_from_when_their_file_is_large_until_they_are_pushed() {
    let place = Temporary::on_disk("passing");
    let directory = made(&place);
    let store = alone(&directory);
    let files = store.files().unwrap();
    // It stays open: who closes a file pushes what it has, as there is no keeper.
    let file = open(&files, 0);
    let append = |pages: usize| {
        let size = file.metadata().unwrap().len();
        for page in 0..pages {
            file.write_all_at(&filler(1, PAGE as u64), size + (page * PAGE) as u64).unwrap();
        }
    };
    let passing = || store.fs().core().passing_pages();
    append(THRESHOLD as usize / PAGE);
    assert_eq!(passing(), 0);
    // Of the page with which it becomes large nobody knew that before.
    append(1);
    assert_eq!(passing(), THRESHOLD / PAGE as u64);
    append(20);
    assert_eq!(passing(), THRESHOLD / PAGE as u64 + 20);
    assert_eq!(store.fs().push_due(|| false).unwrap(), 1);
    assert_eq!(passing(), 0);
    // And the node of its tree.
    append(20);
    assert_eq!(passing(), 21);
    // As long as they are in the core, durable or not.
    store.sync().unwrap();
    assert_eq!(passing(), 21);
    append(200);
    assert!(passing() >= 221);
    // What is freed counts until somebody looks.
    file.set_len(THRESHOLD + 30 * PAGE as u64).unwrap();
    assert!(passing() >= 221);
    assert_eq!(store.fs().push_due(|| true).unwrap(), 0);
    assert!((9..40).contains(&passing()), "{}", passing());
    drop((file, files));
    store.detach().unwrap();
}

#[test]
fn programs_stay_in_the_core() {
    let place = Temporary::on_disk("programs");
    let directory = made(&place);
    let store = alone(&directory);
    let files = store.files().unwrap();
    let mut program = filler(1, 2 << 20);
    program[..4].copy_from_slice(b"\x7FELF");
    open(&files, 0).write_all_at(&program, 0).unwrap();
    open(&files, 1).write_all_at(&program[4..], 0).unwrap();
    let forms = [0, 1].map(|file| {
        let id = files.metadata(name(file)).unwrap().id();
        format!("{:?}", store.fs().placement(id, THRESHOLD).unwrap().form)
    });
    assert_eq!(forms, ["Extent", "Large"]);
    assert!(read(&files, "/0") == program && read(&files, "/1") == program[4..]);
    drop(files);
    store.detach().unwrap();
}

#[test]
fn thresholds_of_directories_outlive_a_power_cut() {
    let place = Temporary::on_disk("thresholds");
    let directory = made(&place);
    let form = |store: &Store, path: &str| {
        let id = store.files().unwrap().metadata(path).unwrap().id();
        store.fs().placement(id, THRESHOLD).unwrap().form
    };
    for round in 0..3 {
        let store = alone(&directory);
        let files = store.files().unwrap();
        if round == 0 {
            for (path, value) in [("/low", "8K"), ("/core", "core")] {
                files.create_dir(path).unwrap();
                set_threshold(&files, path, value);
            }
            files.create_dir("/low/below").unwrap();
        }
        let [low, core] = ["/low/below", "/core"].map(|at| format!("{at}/{round}"));
        files.write(&low, filler(1, 9000)).unwrap();
        files.write(&core, filler(2, 1 << 20)).unwrap();
        assert_eq!((form(&store, &low), form(&store, &core)), (Form::Large, Form::Extent));
        assert_eq!(
            (threshold(&files, &low), threshold(&files, &core)),
            (8192.to_string(), "core".into())
        );
        drop(files);
        store.sync().unwrap();
        store.detach().unwrap();
        power_cut(&directory);
    }
    let store = alone(&directory);
    let files = store.files().unwrap();
    for round in 0..3 {
        assert!(read(&files, &format!("/low/below/{round}")) == filler(1, 9000));
        assert!(read(&files, &format!("/core/{round}")) == filler(2, 1 << 20));
    }
    check(store.fs());
    drop(files);
    store.detach().unwrap();
}

#[test]
fn without_the_volume_small_files_are_there_and_large_ones_say_so() {
    let place = Temporary::on_disk("gone");
    let directory = made(&place);
    let store = alone(&directory);
    let files = store.files().unwrap();
    write_file(store.fs(), "small", b"content");
    let bytes = filler(1, 300_000);
    open(&files, 0).write_all_at(&bytes, 0).unwrap();
    drop(files);
    store.sync().unwrap();
    // Somebody else has it, so that the core stays.
    let child = start(&["hold", text(&directory), text(&place.path().join("sign"))]);
    support::await_file(&place.path().join("sign"));
    store.detach().unwrap();
    let (volume, elsewhere) = (directory.join("volume"), place.path().join("elsewhere"));
    std::fs::rename(&volume, &elsewhere).unwrap();
    let store = alone(&directory);
    let files = store.files().unwrap();
    assert_eq!(read(&files, "/small"), b"content");
    let file = files.open("/0").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 300_000);
    let error = file.read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EIO);
    assert!(error.to_string().contains("volume"), "{error}");
    drop((file, files));
    std::fs::rename(&elsewhere, &volume).unwrap();
    assert!(read(&store.files().unwrap(), "/0") == bytes);
    kill(child);
    store.detach().unwrap();
}

#[test]
fn nobody_waits_for_ever_for_what_is_behind_the_end() {
    let place = Temporary::on_disk("tail");
    let directory = made(&place);
    let store = alone(&directory);
    let files = store.files().unwrap();
    // A program that has more space behind its end than may wait to be pushed, and is none later.
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).mode(0o755);
    let file = files.open_with("/0", file).unwrap();
    file.allocate(0..1100 * PAGE as u64, true).unwrap();
    file.set_permissions(0o644).unwrap();
    let bytes = filler(1, 200_000);
    for (at, part) in (0..).step_by(PAGE).zip(bytes.chunks(PAGE)) {
        file.write_all_at(part, at).unwrap();
    }
    file.close().unwrap();
    assert!(read(&files, "/0") == bytes);
    check(store.fs());
    drop(files);
    store.detach().unwrap();
}

#[test]
fn nothing_is_trimmed_that_a_power_cut_brings_back() {
    let place = Temporary::on_disk("drop");
    let (directory, sign) = (made(&place), place.path().join("sign"));
    let child = start(&["drop", text(&directory), text(&sign)]);
    support::await_file(&sign);
    kill(child);
    power_cut(&directory);
    let store = alone(&directory);
    let files = store.files().unwrap();
    if files.metadata("/0").is_ok() {
        assert!(read(&files, "/0") == filler(0, 300_000));
    }
    let cut = read(&files, "/1");
    assert!(cut.is_empty() || cut == filler(1, 300_000));
    drop(files);
    store.detach().unwrap();
}
