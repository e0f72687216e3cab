//! Large files of stores with a volume: what is there after a restart of the machine, on a full
//! volume, and of several processes at once.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conquest::{
    Attach, Error, File, Files, KeeperProgram, Medium, NewStore, OpenOptions, Placement,
    RestoreOptions, SaveOptions, Store, VolumePlace, restore, save,
};
use conquest_testkit::Rng;
use support::{
    Temporary, attach, check, core_of, ends_well, forced, indexes, kill, populate, role, small,
    start, text, tree, write_file,
};

const VOLUME: u64 = 128 << 20;
/// Bytes above which files are large.
const THRESHOLD: u64 = 64 << 10;
/// Most bytes of a file.
const MOST: u64 = 3 << 20;
/// Files that there are at most.
const FILES: u64 = 4;
const PAGE: usize = 4096;

fn new() -> NewStore {
    NewStore {
        volume: Some(VolumePlace::Size(VOLUME)),
        placement: Placement { threshold: THRESHOLD, ..Placement::default() },
        ..small()
    }
}

fn made(place: &Temporary) -> PathBuf {
    let directory = place.path().join("store");
    Store::make(&directory, &new()).unwrap();
    directory
}

/// Attaches it without a keeper.
fn alone(directory: &Path) -> Store {
    let how = Attach { keeper: KeeperProgram::None, ..Attach::default() };
    Store::attach(directory, &how).unwrap()
}

/// Takes away what is in RAM, as a power failure does. Nobody has the store attached.
fn power_cut(directory: &Path) {
    let _was_there = std::fs::remove_file(core_of(directory));
    for index in indexes(directory) {
        std::fs::remove_file(index).unwrap();
    }
}

/// Bytes that tell where they are.
fn filler(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| (rng.word() | 1).to_le_bytes());
    words.take(len as usize).collect()
}

fn read(files: &Files, name: &str) -> Vec<u8> {
    let file = files.open(name).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize + 1];
    let mut len = 0;
    while let count @ 1.. = file.read_at(&mut bytes[len..], len as u64).unwrap() {
        len += count;
    }
    bytes.truncate(len);
    bytes
}

// --- operations, and what they give --------------------------------------------------------------

#[derive(Clone, Debug)]
enum Op {
    Write(u64, u64, u64),
    Truncate(u64, u64),
    Remove(u64),
    Rename(u64, u64),
    Punch(u64, Range<u64>),
    Allocate(u64, Range<u64>),
    Sync,
}

/// Files by their numbers.
type Model = BTreeMap<u64, Vec<u8>>;

fn name(file: u64) -> String {
    format!("/{file}")
}

fn open(files: &Files, file: u64) -> File {
    let mut options = OpenOptions::new();
    files.open_with(name(file), options.read(true).write(true).create(true).mode(0o644)).unwrap()
}

impl Op {
    fn random(rng: &mut Rng) -> Op {
        let file = rng.below(FILES);
        let most = [100, 5000, 70_000, 300_000, 1_200_000][rng.below(5) as usize];
        let len = 1 + rng.below(most);
        let at = rng.below(MOST - len);
        let at = if rng.chance(1, 2) { at / 4096 * 4096 } else { at };
        match rng.below(16) {
            0..=6 => Op::Write(file, at, len),
            7 => Op::Write(file, 0, len),
            8..=9 => Op::Truncate(file, if rng.chance(1, 3) { 0 } else { at }),
            10 => Op::Remove(file),
            11 => Op::Rename(file, rng.below(FILES)),
            12 => Op::Punch(file, at..at + len),
            13 => Op::Allocate(file, at..at + len),
            _ => Op::Sync,
        }
    }

    fn perform(&self, number: u64, store: &Store, files: &Files) {
        match self {
            Op::Write(file, at, len) => {
                open(files, *file).write_all_at(&filler(number, *len), *at).unwrap();
            }
            Op::Truncate(file, len) => open(files, *file).set_len(*len).unwrap(),
            Op::Remove(file) => drop(files.remove_file(name(*file))),
            Op::Rename(from, to) => drop(files.rename(name(*from), name(*to))),
            Op::Punch(file, range) => open(files, *file).punch_hole(range.clone()).unwrap(),
            Op::Allocate(file, range) => open(files, *file).allocate(range.clone(), false).unwrap(),
            Op::Sync => store.sync().unwrap(),
        }
    }

    fn apply(&self, number: u64, model: &mut Model) {
        let grow = |bytes: &mut Vec<u8>, len: u64| bytes.resize(bytes.len().max(len as usize), 0);
        match self {
            Op::Write(file, at, len) => {
                let bytes = model.entry(*file).or_default();
                grow(bytes, at + len);
                let (at, len) = (*at as usize, *len as usize);
                bytes[at..at + len].copy_from_slice(&filler(number, len as u64));
            }
            Op::Truncate(file, len) => model.entry(*file).or_default().resize(*len as usize, 0),
            Op::Remove(file) => drop(model.remove(file)),
            Op::Rename(from, to) => {
                if let Some(bytes) = model.remove(from) {
                    model.insert(*to, bytes);
                }
            }
            Op::Punch(file, range) => {
                let bytes = model.entry(*file).or_default();
                let end = bytes.len().min(range.end as usize);
                if let Some(part) = bytes.get_mut(range.start as usize..end) {
                    part.fill(0);
                }
            }
            Op::Allocate(file, range) => grow(model.entry(*file).or_default(), range.end),
            Op::Sync => {}
        }
    }
}

/// What is found in a store.
fn found(files: &Files) -> Model {
    let there = (0..FILES).filter(|file| files.metadata(name(*file)).is_ok());
    there.map(|file| (file, read(files, &name(file)))).collect()
}

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
        ["restore", copy, directory] => {
            restore(Path::new(copy), Path::new(directory), forced()).unwrap();
        }
        ["share", directory, number] => share(Path::new(directory), number.parse().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// The number behind the last `word` in `log`.
fn last(log: &str, word: &str) -> Option<u64> {
    let lines = log.lines().rev().filter_map(|line| line.strip_prefix(word));
    lines.filter_map(|number| number.trim().parse().ok()).next()
}

/// Whether `there` is what a file should be after an operation, where the bytes of a page may be
/// those of a later one: `states` are what it should be from then on.
fn is_one_of(there: &[u8], states: &[&Vec<u8>]) -> bool {
    let fits = |len: usize| {
        let (before, after) = (states[0].len(), states.get(1).map_or(states[0].len(), |s| s.len()));
        // An operation of several records may be done in part.
        len == before || (before..=after).contains(&len)
    };
    let page_of = |bytes: &[u8], page: usize| -> Vec<u8> {
        let mut part: Vec<u8> = bytes.iter().skip(page * PAGE).take(PAGE).copied().collect();
        part.resize(PAGE, 0);
        part
    };
    fits(there.len())
        && (0..there.len().div_ceil(PAGE)).all(|page| {
            let inside = (there.len() - page * PAGE).min(PAGE);
            let mine = page_of(there, page);
            states.iter().any(|state| page_of(state, page)[..inside] == mine[..inside])
        })
}

/// Fails unless `there` is what the operations have given up to one of those that were begun, and
/// not before the last one that is durable.
fn judge(there: &Model, seed: u64, log: &str) {
    let (durable, begun) = (last(log, "durable "), last(log, "begun ").unwrap_or(0));
    let mut rng = Rng::new(seed);
    let mut model = Model::new();
    let mut states = vec![model.clone()];
    for number in 0..=begun {
        let op = Op::random(&mut rng);
        op.apply(number, &mut model);
        if durable.is_some_and(|durable| number <= durable) {
            states.clear();
        }
        states.push(model.clone());
        let _trims = rng.chance(1, 20);
    }
    let is_state = |k: usize| {
        let later = &states[k..];
        let next = later.get(1).unwrap_or(&later[0]);
        let names_fit = there.keys().eq(later[0].keys()) || there.keys().eq(next.keys());
        names_fit
            && there.iter().all(|(file, bytes)| {
                let all: Vec<&Vec<u8>> = later.iter().filter_map(|s| s.get(file)).collect();
                !all.is_empty() && is_one_of(bytes, &all)
            })
    };
    let is_found = (0..states.len()).any(is_state);
    let lens = |model: &Model| model.iter().map(|(f, b)| (*f, b.len())).collect::<Vec<_>>();
    assert!(
        is_found,
        "seed {seed}: {:?} is none of {:?} (operations {durable:?} to {begun})",
        lens(there),
        states.iter().map(lens).collect::<Vec<_>>()
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
        let begun = last(&told, "begun ").unwrap_or(0);
        let told = format!("{told}durable {}\n", begun.saturating_sub(1));
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

/// Large files of several kinds, small ones, and one that was removed: what is in them.
fn large_files(store: &Store) -> Model {
    let files = store.files().unwrap();
    let mut model = Model::new();
    let ops = [
        Op::Write(0, 0, 1_200_000),
        // Sparse: most of it nowhere.
        Op::Write(1, 0, 300_000),
        Op::Write(1, 2_500_000, 400_001),
        // Some pages in the core, over those that the volume has.
        Op::Write(2, 0, 900_000),
        Op::Punch(2, 100_000..400_000),
        Op::Write(2, 500_000, 70),
        // Cut off, and longer again.
        Op::Write(3, 0, 1_000_000),
        Op::Truncate(3, 200_000),
        Op::Truncate(3, 700_000),
    ];
    for (number, op) in (50..).zip(ops) {
        op.perform(number, store, &files);
        op.apply(number, &mut model);
    }
    files.write("/removed", filler(9, 400_000)).unwrap();
    files.remove_file("/removed").unwrap();
    populate(store.fs(), 3, 20);
    model
}

/// A store with large files that nobody has attached, and what is in it.
fn with_large_files(directory: &Path) -> (Model, BTreeMap<String, support::Seen>) {
    Store::make(directory, &new()).unwrap();
    let store = alone(directory);
    let model = large_files(&store);
    assert_eq!(found(&store.files().unwrap()), model);
    let tree = tree(store.fs());
    store.detach().unwrap();
    (model, tree)
}

/// Fails unless `directory` is a store with all that, also after a power cut, and can be used.
fn is_restored(directory: &Path, model: &Model, expected: &BTreeMap<String, support::Seen>) {
    for round in 0..2 {
        let store = alone(directory);
        assert_eq!(store.info().medium, Medium::Logged);
        check(store.fs());
        assert!(tree(store.fs()) == *expected, "round {round}");
        assert!(found(&store.files().unwrap()) == *model, "round {round}");
        store.detach().unwrap();
        power_cut(directory);
    }
    let store = alone(directory);
    let files = store.files().unwrap();
    let (mut there, mut rng) = (model.clone(), Rng::new(3));
    for number in 1000..1040 {
        let op = Op::random(&mut rng);
        op.perform(number, &store, &files);
        op.apply(number, &mut there);
    }
    store.fs().trim_chunks().unwrap();
    drop(files);
    store.detach().unwrap();
    power_cut(directory);
    let store = alone(directory);
    assert!(found(&store.files().unwrap()) == there);
    check(store.fs());
    store.detach().unwrap();
}

#[test]
fn large_files_are_saved_and_restored() {
    let place = Temporary::on_disk("saved");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let (model, expected) = with_large_files(&directory);
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    // What is in use below the ends, and no more.
    let whole: usize = model.values().map(Vec::len).sum();
    assert!(saved.large_bytes > 2_000_000 && saved.large_bytes < whole as u64, "{saved:?}");
    assert_eq!(saved.len, std::fs::metadata(&copy).unwrap().len());
    assert_eq!(indexes(&directory), Vec::<PathBuf>::new());

    // Where there is nothing: a volume like that of the saved store.
    let other = place.path().join("other");
    let again = RestoreOptions { new_identity: true, ..RestoreOptions::default() };
    let restored = restore(&copy, &other, again).unwrap();
    assert_eq!((restored.bytes, restored.large_bytes), (saved.bytes, saved.large_bytes));
    assert_eq!(restored.volume, [other.join("volume")]);
    assert_eq!(std::fs::metadata(other.join("volume")).unwrap().len(), VOLUME);
    assert_eq!(indexes(&other), Vec::<PathBuf>::new());
    is_restored(&other, &model, &expected);

    // Over the store that was saved, which has the same, and then over one that has changed.
    let restored = restore(&copy, &directory, RestoreOptions::default()).unwrap();
    assert_eq!(restored.store, saved.store);
    is_restored(&directory, &model, &expected);
    let newer = restore(&copy, &directory, RestoreOptions::default()).unwrap_err();
    assert!(matches!(newer, Error::CoreNewer { .. }), "{newer}");
    restore(&copy, &directory, forced()).unwrap();
    is_restored(&directory, &model, &expected);
    let names = std::fs::read_dir(&directory).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn large_files_need_a_volume() {
    let place = Temporary::on_disk("needs");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let (model, expected) = with_large_files(&directory);
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let says = |error: Error, other: &Path| {
        assert!(matches!(error, Error::LargeFiles { .. }), "{error}");
        assert!(error.to_string().contains("--volume"), "{error}");
        assert!(!other.exists(), "{error}");
    };
    let other = place.path().join("other");
    let as_new = || RestoreOptions { new_identity: true, ..RestoreOptions::default() };
    let in_ram = RestoreOptions { medium: Medium::Ram, ..as_new() };
    says(restore(&copy, &other, in_ram).unwrap_err(), &other);
    // One that is too small leaves nothing.
    let small_one = Some(VolumePlace::Size(64 << 20));
    let error = restore(&copy, &other, RestoreOptions { volume: small_one, ..as_new() });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::TooSmall { .. }), "{error}");
    assert!(!other.exists(), "{error}");
    // Into a store that has none, and has the identity of the saved one.
    Store::destroy(&directory, Duration::from_secs(5)).unwrap();
    let (plain, other_copy) = (place.path().join("plain"), place.path().join("plain-copy"));
    Store::make(&plain, &small()).unwrap();
    write_file(attach(&plain).fs(), "of a plain store", b"1");
    save(&plain, &other_copy, SaveOptions::default()).unwrap();
    let ids = [&copy, &other_copy].map(|path| std::fs::read(path).unwrap()[32..48].to_vec());
    assert_ne!(ids[0], ids[1]);
    restore(&copy, &plain, RestoreOptions::default()).unwrap_err();
    // The settings say whose store it is.
    let text = std::fs::read_to_string(plain.join("store.toml")).unwrap();
    let own = text.split('"').nth(1).unwrap().to_owned();
    let id: String = ids[0].iter().map(|byte| format!("{byte:02x}")).collect();
    let text = text.replacen(&own, &id, 1);
    std::fs::write(plain.join("store.toml"), text).unwrap();
    let error = restore(&copy, &plain, forced()).unwrap_err();
    says(error, &place.path().join("none"));
    assert!(support::names(attach(&plain).fs()).contains(&"of a plain store".to_owned()));
    // With a volume it is one.
    let volume = Some(VolumePlace::Size(VOLUME));
    restore(&copy, &plain, RestoreOptions { volume, ..forced() }).unwrap();
    is_restored(&plain, &model, &expected);
}

#[test]
fn a_volume_on_devices_is_made_anew_on_them() {
    let place = Temporary::on_disk("devices");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let paths: Vec<PathBuf> = ["one", "two"].map(|name| place.path().join(name)).into();
    let make = |len: u64| {
        for path in &paths {
            let file = std::fs::File::create(path).unwrap();
            file.set_len(len).unwrap();
        }
    };
    make(VOLUME);
    let volume = Some(VolumePlace::Devices { paths: paths.clone(), mirror: true });
    Store::make(&directory, &NewStore { volume: volume.clone(), ..new() }).unwrap();
    let store = alone(&directory);
    let model = large_files(&store);
    // Which changes the times at which they were read.
    assert_eq!(found(&store.files().unwrap()), model);
    let expected = tree(store.fs());
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    // Nothing is lost, so nobody has to say so.
    let restored = restore(&copy, &directory, RestoreOptions::default()).unwrap();
    assert_eq!(restored.volume, paths);
    is_restored(&directory, &model, &expected);
    // Each of both has everything.
    std::fs::remove_file(&paths[0]).unwrap();
    let text = std::fs::read_to_string(directory.join("store.toml")).unwrap();
    assert!(text.contains("devices"), "{text}");
    // Another store's are not overwritten unasked.
    make(VOLUME);
    std::fs::write(&paths[1], vec![7; VOLUME as usize]).unwrap();
    let other = place.path().join("other");
    let options = RestoreOptions { volume, new_identity: true, ..RestoreOptions::default() };
    let error = restore(&copy, &other, options).unwrap_err();
    assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
    assert!(!other.exists());
}

#[test]
fn an_interrupted_save_goes_on_within_large_files() {
    let place = Temporary::on_disk("resume");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let (model, expected) = with_large_files(&directory);
    let mut progress = |done: u64, total: u64| {
        if done * 10 > total * 8 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = SaveOptions { progress: Some(&mut progress), ..SaveOptions::default() };
    let cancelled = save(&directory, &copy, options).unwrap_err();
    assert!(matches!(cancelled, Error::Cancelled), "{cancelled}");
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert!(saved.resumed > saved.bytes && saved.resumed < saved.bytes + saved.large_bytes);
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    is_restored(&directory, &model, &expected);
}

#[test]
fn a_volume_that_is_damaged_or_not_the_cores_is_not_saved() {
    let place = Temporary::on_disk("not-saved");
    let (directory, copy) = (made(&place), place.path().join("copy"));
    let volume = directory.join("volume");
    let older = place.path().join("older");
    let store = alone(&directory);
    let bytes = filler(1, 900_000);
    open(&store.files().unwrap(), 0).write_all_at(&bytes, 0).unwrap();
    store.detach().unwrap();
    std::fs::copy(&volume, &older).unwrap();
    let store = alone(&directory);
    open(&store.files().unwrap(), 1).write_all_at(&bytes, 0).unwrap();
    store.detach().unwrap();
    let none = |error: Error, says: &str| {
        assert!(error.to_string().contains(says), "{error}");
        assert!(!copy.exists() && !place.path().join("copy.partial").exists());
        assert_eq!(indexes(&directory), Vec::<PathBuf>::new());
    };
    let newer = place.path().join("newer");
    std::fs::rename(&volume, &newer).unwrap();
    none(save(&directory, &copy, SaveOptions::default()).unwrap_err(), "volume");
    std::fs::rename(&older, &volume).unwrap();
    none(save(&directory, &copy, SaveOptions::default()).unwrap_err(), "older copy");
    // A flipped bit in what a large file has.
    std::fs::rename(&newer, &volume).unwrap();
    let whole = std::fs::read(&volume).unwrap();
    // In all copies: some may be of what was written over.
    let (mut bad, mut count) = (whole.clone(), 0);
    let part = &bytes[500_000..500_064];
    for at in (500_000 % PAGE..whole.len() - part.len()).step_by(PAGE) {
        if whole[at..at + part.len()] == *part {
            bad[at] ^= 1;
            count += 1;
        }
    }
    assert!(count > 0);
    std::fs::write(&volume, bad).unwrap();
    none(save(&directory, &copy, SaveOptions::default()).unwrap_err(), "not what was written");
    std::fs::write(&volume, whole).unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
}

/// The names in a store's directory that are not always there.
fn others_in(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !["store.toml", "store.lock", "core"].contains(&name.as_str()));
    names.sort();
    names
}

#[test]
fn whoever_is_killed_while_restoring_leaves_the_old_store_or_the_new_one() {
    let place = Temporary::on_disk("killed");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let (model, _) = with_large_files(&directory);
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let since = Instant::now();
    assert!(ends_well(start(&["restore", text(&copy), text(&directory)])));
    let whole = since.elapsed().as_millis() as u64;
    let rounds = std::env::var("CONQUEST_TIMES").map_or(14, |times| times.parse().unwrap());
    let mut rng = Rng::new(6);
    let (mut old, mut left) = (0, 0);
    for round in 0..rounds {
        let store = alone(&directory);
        open(&store.files().unwrap(), 0).write_all_at(&filler(round, 500_000), 0).unwrap();
        let before = found(&store.files().unwrap());
        store.detach().unwrap();
        let child = start(&["restore", text(&copy), text(&directory)]);
        std::thread::sleep(Duration::from_millis(rng.below(whole + whole / 8)));
        kill(child);
        left += u64::from(others_in(&directory).len() > 1);
        if rng.chance(1, 2) {
            power_cut(&directory);
        }
        let store = alone(&directory);
        let there = found(&store.files().unwrap());
        assert!(there == before || there == model, "round {round}");
        old += u64::from(there == before);
        check(store.fs());
        store.detach().unwrap();
        assert_eq!(others_in(&directory).len(), 1, "{:?}", others_in(&directory));
        power_cut(&directory);
        assert!(found(&alone(&directory).files().unwrap()) == there, "round {round}");
    }
    println!("{old} of {rounds} have the old store, {left} had something left behind");
    assert!(left > 0, "nobody was killed while the new store was made");
}

#[test]
fn which_core_is_in_place_decides_which_volume_counts() {
    let place = Temporary::on_disk("decides");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let (model, _) = with_large_files(&directory);
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let store = alone(&directory);
    open(&store.files().unwrap(), 0).write_all_at(&filler(99, 500_000), 0).unwrap();
    let before = found(&store.files().unwrap());
    store.detach().unwrap();
    let keep = |name: &str| place.path().join(name);
    let path = directory.join("store.toml");
    let (core, old_text) = (core_of(&directory), std::fs::read_to_string(&path).unwrap());
    std::fs::copy(directory.join("volume"), keep("old volume")).unwrap();
    std::fs::copy(&core, keep("old core")).unwrap();
    restore(&copy, &directory, forced()).unwrap();
    let new_text = std::fs::read_to_string(&path).unwrap();
    std::fs::copy(directory.join("volume2"), keep("new volume")).unwrap();
    std::fs::copy(&core, keep("new core")).unwrap();
    // Where a death is before the last writing of the settings.
    let part = |text: &str, name: &str| {
        let rest = text.split(&format!("[{name}]\n")).nth(1).unwrap();
        rest.split("\n[").next().unwrap().trim().to_owned()
    };
    let (live, volume) = (part(&new_text, "live"), part(&new_text, "volume"));
    let between = format!(
        "{old_text}\n[next]\n{live}\nmedium = \"logged\"\npath = {core:?}\n\n\
         [next.volume]\n{volume}\n"
    );
    for (there, expected, volume) in [
        (Some("new core"), &model, "volume2"),
        (None, &model, "volume2"),
        (Some("old core"), &before, "volume"),
    ] {
        power_cut(&directory);
        for (from, to) in [("old volume", "volume"), ("new volume", "volume2")] {
            std::fs::copy(keep(from), directory.join(to)).unwrap();
        }
        let mut text = between.clone();
        if let Some(name) = there {
            std::fs::copy(keep(name), &core).unwrap();
            let inode = std::fs::metadata(&core).unwrap().ino();
            let wanted = if name == "new core" { "next" } else { "live" };
            let was = part(&between, wanted);
            let line = was.lines().find(|line| line.starts_with("inode")).unwrap();
            let is = was.replace(line, &format!("inode = {inode}"));
            text = text.replace(&format!("[{wanted}]\n{was}"), &format!("[{wanted}]\n{is}"));
        }
        std::fs::write(&path, &text).unwrap();
        let store = alone(&directory);
        assert!(found(&store.files().unwrap()) == *expected, "{there:?}");
        check(store.fs());
        store.detach().unwrap();
        assert_eq!(others_in(&directory), [volume], "{there:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("\n[next"), "{text}");
        power_cut(&directory);
        assert!(found(&alone(&directory).files().unwrap()) == *expected, "{there:?}");
    }
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
