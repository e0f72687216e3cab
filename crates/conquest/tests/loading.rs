//! Stores whose core was brought back of its volume, used before all of it is there: nobody sees a
//! byte that is not, whoever loads it, whoever is killed, and whenever the power is cut. And a
//! keeper that makes more of a core before that is needed.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use conquest::{
    Attach, Files, Form, KeeperProgram, NewStore, RestoreOptions, SaveOptions, Store, SyncMode,
    VolumePlace, restore, save,
};
use conquest_format::{GROUP, PAGE};
use conquest_peers::child::fork;
use conquest_testkit::Rng;
use support::large::set_threshold;
use support::{
    Seen, Temporary, await_file, check, core_of, ends_well, indexes, kill, role, small, start,
    text, tree,
};

const FILLERS: u64 = 160;
const FILLER: usize = 150_000;
const PATIENCE: Duration = Duration::from_secs(10);

fn logged() -> NewStore {
    let volume = Some(VolumePlace::Size(176 << 20));
    NewStore { size_max: 64 << 20, slots: 24, volume, sync: Some(SyncMode::Fsync), ..small() }
}

/// What file number `number` has been given for the `version`-th time.
fn content(number: u64, version: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = [number, version].into_iter().flat_map(u64::to_le_bytes).collect();
    let mut rng = Rng::new(number << 32 | version);
    while bytes.len() < len {
        bytes.extend(rng.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(len.max(16));
    bytes
}

fn filler(number: u64) -> Vec<u8> {
    content(number, 0, FILLER)
}

/// A store with many groups of files, nobody attached.
fn made(place: &Temporary) -> PathBuf {
    let directory = place.path().join("store");
    Store::make(&directory, &logged()).unwrap();
    let store = alone(&directory);
    let files = store.files().unwrap();
    for number in 0..FILLERS {
        if number % 40 == 0 {
            files.create_dir(format!("/{}", number / 40)).unwrap();
        }
        files.write(filler_name(number), filler(number)).unwrap();
    }
    drop(files);
    store.detach().unwrap();
    directory
}

fn filler_name(number: u64) -> String {
    format!("/{}/{number}", number / 40)
}

fn with(directory: &Path, keeper: KeeperProgram) -> Store {
    Store::attach(directory, &Attach { keeper, ..Attach::default() }).unwrap()
}

/// Attaches it without a keeper.
fn alone(directory: &Path) -> Store {
    with(directory, KeeperProgram::None)
}

/// Takes away what is in RAM, as a power failure does. Nobody has the store attached.
fn power_cut(directory: &Path) {
    let _was_there = std::fs::remove_file(core_of(directory));
    for index in indexes(directory) {
        std::fs::remove_file(index).unwrap();
    }
}

/// What there is in the store, but for when it was read.
fn files_of(store: &Store) -> BTreeMap<String, Seen> {
    let mut tree = tree(store.fs());
    tree.values_mut().for_each(|seen| seen.1[2] = 0);
    tree
}

/// Bytes of the core that are there, and that are to be; none if all are.
fn loading(store: &Store) -> Option<(u64, u64)> {
    let progress = store.info().volume.unwrap().loading?;
    assert!(progress.resident <= progress.total);
    Some((progress.resident, progress.total))
}

fn read_fillers(files: &Files, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        assert!(files.read(filler_name(number)).unwrap() == filler(number), "{number}");
    }
}

/// Bytes above which the files of workers are large.
const LARGE: &str = "16K";

/// The file of a worker.
fn worked(number: u64) -> String {
    format!("/w/{number}")
}

/// A directory for the files of workers.
fn make_place_for_work(directory: &Path) {
    let store = alone(directory);
    let files = store.files().unwrap();
    files.create_dir("/w").unwrap();
    set_threshold(&files, "/w", LARGE);
    drop(files);
    store.detach().unwrap();
}

/// How many bytes files of a worker have.
fn len_of(number: u64, version: u64) -> usize {
    (number.wrapping_mul(7919).wrapping_add(version.wrapping_mul(104_729)) % 40_000) as usize
}

/// Makes and replaces files for ever, and notes each that is durable.
fn work(directory: &Path, worker: u64, log: &Path) {
    let store = alone(directory);
    let files = store.files().unwrap();
    let mut log = std::fs::File::options().append(true).create(true).open(log).unwrap();
    let mut rng = Rng::new(u64::from(std::process::id()));
    // Above all that was there before.
    let first = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    for version in first.. {
        let number = worker << 16 | rng.below(30);
        let name = worked(number);
        let mut file = files.create(format!("{name}.new")).unwrap();
        file.write_all(&content(number, version, len_of(number, version))).unwrap();
        files.rename(format!("{name}.new"), &name).unwrap();
        if rng.chance(1, 3) {
            file.sync_all().unwrap();
            log.write_all(format!("{number} {version}\n").as_bytes()).unwrap();
        }
        if rng.chance(1, 4) {
            read_fillers(&files, [rng.below(FILLERS)]);
        }
    }
}

#[test]
fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["work", directory, worker, log] => {
            work(Path::new(directory), worker.parse().unwrap(), Path::new(log));
        }
        // Is the keeper.
        ["keep", directory] => conquest::keep(Path::new(directory)).unwrap(),
        ["read", directory, seed] => {
            let store = alone(Path::new(directory));
            let mut rng = Rng::new(seed.parse().unwrap());
            read_fillers(&store.files().unwrap(), (0..20).map(|_| rng.below(FILLERS)));
            store.detach().unwrap();
        }
        ["fork", directory] => {
            let store = alone(Path::new(directory));
            for number in 0..4 {
                let store = &store;
                fork(move || {
                    read_fillers(&store.files().unwrap(), [number * 40, number * 40 + 39]);
                    store.files().unwrap().write(format!("/by {number}"), b"a child").unwrap();
                })
                .wait();
            }
            assert!(loading(&store).is_some());
            read_fillers(&store.files().unwrap(), 0..FILLERS);
            store.detach().unwrap();
        }
        ["hold", directory, sign] => {
            let store = alone(Path::new(directory));
            read_fillers(&store.files().unwrap(), [3]);
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_core_is_used_at_once_and_all_of_it_is_there_when_it_is_looked_at() {
    let place = Temporary::on_disk("at-once");
    let directory = made(&place);
    let expected = files_of(&alone(&directory));
    for round in 0..3 {
        power_cut(&directory);
        let store = alone(&directory);
        assert!(store.info().volume.unwrap().was_brought_back);
        let (first, total) = loading(&store).unwrap();
        assert!(first < total / 3, "{first} of {total}");
        read_fillers(&store.files().unwrap(), [round * 50 + 7]);
        let (then, _) = loading(&store).unwrap();
        assert!(first < then && then < total);
        // Who attaches it then goes on with it.
        store.detach().unwrap();
        let store = alone(&directory);
        assert_eq!(loading(&store), Some((then, total)));
        assert!(!store.info().volume.unwrap().was_brought_back);
        assert_eq!(files_of(&store), expected);
        check(store.fs());
        store.files().unwrap().write("/new", b"bytes").unwrap();
        store.files().unwrap().remove_file("/new").unwrap();
        store.detach().unwrap();
    }
    Store::quiet(&directory, PATIENCE).unwrap();
    let store = alone(&directory);
    assert_eq!((loading(&store), files_of(&store)), (None, expected));
    let geometry = store.fs().core().geometry().clone();
    let len = std::fs::metadata(core_of(&directory)).unwrap().len();
    assert_eq!(len, geometry.len_at(store.fs().core().groups()));
    store.detach().unwrap();
}

#[test]
fn a_keeper_loads_all_behind_those_who_use_it() {
    let place = Temporary::on_disk("keeper");
    let directory = made(&place);
    power_cut(&directory);
    let store = alone(&directory);
    assert!(loading(&store).is_some());
    let keeper = start(&["keep", text(&directory)]);
    let files = store.files().unwrap();
    let mut rng = Rng::new(1);
    let since = Instant::now();
    while loading(&store).is_some() {
        read_fillers(&files, [rng.below(FILLERS)]);
        assert!(since.elapsed() < PATIENCE);
    }
    read_fillers(&files, 0..FILLERS);
    check(store.fs());
    drop(files);
    store.detach().unwrap();
    // It leaves when nobody needs it, and the core is as any other one then.
    assert!(ends_well(keeper));
    let store = alone(&directory);
    assert_eq!(loading(&store), None);
    let len = std::fs::metadata(core_of(&directory)).unwrap().len();
    let core = store.fs().core();
    assert_eq!(len, core.geometry().len_at(core.groups()));
}

#[test]
fn a_forked_child_loads_what_it_needs() {
    let place = Temporary::on_disk("forked");
    let directory = made(&place);
    power_cut(&directory);
    assert!(ends_well(start(&["fork", text(&directory)])));
    power_cut(&directory);
    let store = alone(&directory);
    for number in 0..4 {
        assert_eq!(store.files().unwrap().read(format!("/by {number}")).unwrap(), b"a child");
    }
}

#[test]
fn a_shielded_store_loads_what_it_needs() {
    let place = Temporary::on_disk("shielded");
    let directory = made(&place);
    power_cut(&directory);
    let how = Attach { keeper: KeeperProgram::None, shield: true, ..Attach::default() };
    let store = Store::attach(&directory, &how).unwrap();
    let files = store.files().unwrap();
    files.write("/new", b"bytes").unwrap();
    files.write(filler_name(5), b"other bytes").unwrap();
    read_fillers(&files, (0..FILLERS).filter(|number| *number != 5));
    store.sync().unwrap();
    drop(files);
    store.detach().unwrap();
    power_cut(&directory);
    let store = alone(&directory);
    assert_eq!(store.files().unwrap().read(filler_name(5)).unwrap(), b"other bytes");
    assert_eq!(store.files().unwrap().read("/new").unwrap(), b"bytes");
}

#[test]
fn what_cant_be_read_of_the_volume_is_an_error_and_nobody_takes_zeros_for_it() {
    let place = Temporary::on_disk("unreadable");
    let directory = made(&place);
    let (volume, copy) = (directory.join("volume"), place.path().join("copy"));
    std::fs::copy(&volume, &copy).unwrap();
    power_cut(&directory);
    let store = alone(&directory);
    let device = std::fs::File::options().write(true).open(&volume).unwrap();
    let len = device.metadata().unwrap().len();
    // The core's file, but for what has been brought back, from the beginning on.
    device.set_len(0).unwrap();
    device.set_len(len).unwrap();
    let files = store.files().unwrap();
    let found = (0..FILLERS).map(|number| (number, files.read(filler_name(number))));
    let mut refused = 0;
    for (number, found) in found {
        match found {
            Ok(bytes) => assert!(bytes == filler(number), "{number}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > FILLERS / 2, "{refused}");
    drop(files);
    let _failed = store.detach();
    // What is there again is as it was: nothing has been stored meanwhile.
    for index in indexes(&directory) {
        std::fs::remove_file(index).unwrap();
    }
    let mut from = std::fs::File::open(&copy).unwrap();
    let mut to = &device;
    std::io::copy(&mut from, &mut to).unwrap();
    power_cut(&directory);
    let store = alone(&directory);
    read_fillers(&store.files().unwrap(), 0..FILLERS);
    check(store.fs());
}

/// To be restored while the one that was saved is there.
fn other_one() -> RestoreOptions<'static> {
    RestoreOptions { new_identity: true, ..RestoreOptions::default() }
}

#[test]
fn a_store_is_saved_restored_and_destroyed_while_it_is_loaded() {
    let place = Temporary::on_disk("saved");
    let directory = made(&place);
    let expected = files_of(&alone(&directory));
    let (copy, other) = (place.path().join("copy"), place.path().join("other"));
    power_cut(&directory);
    let store = alone(&directory);
    read_fillers(&store.files().unwrap(), [9]);
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    restore(&copy, &other, other_one()).unwrap();
    let store = alone(&other);
    assert_eq!(files_of(&store), expected);
    check(store.fs());
    store.detach().unwrap();
    // And over one that is not all there.
    power_cut(&other);
    drop(alone(&other));
    restore(&copy, &other, RestoreOptions { force: true, ..other_one() }).unwrap();
    assert_eq!(files_of(&alone(&other)), expected);
    power_cut(&other);
    let store = alone(&other);
    assert!(loading(&store).is_some());
    store.detach().unwrap();
    Store::destroy(&other, PATIENCE).unwrap();
    assert!(!other.exists());
    // Also where somebody was killed who had it attached.
    power_cut(&directory);
    let sign = place.path().join("sign");
    let child = start(&["hold", text(&directory), text(&sign)]);
    await_file(&sign);
    kill(child);
    save(&directory, &copy, SaveOptions { force: true, ..SaveOptions::default() }).unwrap();
    restore(&copy, &other, other_one()).unwrap();
    assert_eq!(files_of(&alone(&other)), expected);
}

/// The newest versions that a worker's `log` says are durable.
fn durable(log: &Path) -> BTreeMap<u64, u64> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut newest = BTreeMap::new();
    for line in text.lines() {
        // The last one may not be there as a whole.
        let (number, version) = line.split_once(' ').unwrap_or_default();
        if let (Ok(number), Ok(version)) = (number.parse(), version.parse())
            && text.contains(&format!("{line}\n"))
        {
            newest.insert(number, version);
        }
    }
    newest
}

/// Bytes of the `logs`.
fn lengths(logs: &[PathBuf]) -> u64 {
    logs.iter().map(|log| std::fs::metadata(log).map_or(0, |found| found.len())).sum()
}

/// Looks at some of the files: each is one that was made, and not older than what is durable.
fn verify(store: &Store, logs: &[PathBuf], rng: &mut Rng) {
    let files = store.files().unwrap();
    for (number, durable) in logs.iter().flat_map(|log| durable(log)) {
        if rng.chance(1, 2) {
            let bytes = files.read(worked(number)).unwrap();
            let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
            let version = word(8);
            assert_eq!(word(0), number);
            assert!(version >= durable, "{number}: {version}, {durable}");
            assert!(bytes == content(number, version, len_of(number, version)), "{number}");
        }
    }
    read_fillers(&files, (0..20).map(|_| rng.below(FILLERS)));
}

/// Whether a file of the first worker is large.
fn is_large(store: &Store, number: u64) -> bool {
    let (files, name) = (store.files().unwrap(), worked(number));
    let form = |id| store.fs().placement(id, u64::MAX).unwrap().form;
    files.find(&name, true).is_ok_and(|file| form(file.id()) == Form::Large)
}

#[test]
fn nothing_is_lost_when_those_who_load_and_work_are_killed_and_the_power_is_cut() {
    let place = Temporary::on_disk("killed");
    let directory = made(&place);
    make_place_for_work(&directory);
    let times = |name: &str, usual| std::env::var(name).map_or(usual, |it| it.parse().unwrap());
    let all_rounds = times("CONQUEST_TIMES", 14);
    // What was asked of a device may still be done when its process has died.
    let later = Duration::from_millis(times("CONQUEST_MILLISECONDS", 0));
    let mut rng = Rng::new(11);
    let logs: Vec<PathBuf> =
        (0..3).map(|number| place.path().join(format!("log{number}"))).collect();
    power_cut(&directory);
    let (mut midway, mut rounds) = (0, 0);
    for round in 0..all_rounds {
        let worker = |(number, log): (usize, &PathBuf)| {
            start(&["work", text(&directory), &number.to_string(), text(log)])
        };
        let mut children: Vec<Child> = logs.iter().enumerate().map(worker).collect();
        let readers: Vec<Child> = (0..2)
            .map(|number| start(&["read", text(&directory), &(round * 2 + number).to_string()]))
            .collect();
        for _ in 0..rng.below(3) {
            children.push(start(&["keep", text(&directory)]));
        }
        let before = lengths(&logs);
        std::thread::sleep(Duration::from_millis(rng.below(160)));
        // On a busy machine they take their time to begin.
        let since = Instant::now();
        while round % 3 == 0 && lengths(&logs) == before && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        while !children.is_empty() {
            let next = rng.below(children.len() as u64) as usize;
            kill(children.swap_remove(next));
            std::thread::sleep(Duration::from_millis(rng.below(12)));
        }
        assert!(readers.into_iter().all(ends_well));
        if rng.chance(1, 2) {
            // All is as they have left it, be it loaded or not.
            let store = alone(&directory);
            midway += u32::from(loading(&store).is_some());
            verify(&store, &logs, &mut rng);
            if rng.chance(1, 3) {
                check(store.fs());
            }
            store.detach().unwrap();
        }
        if rng.chance(2, 3) {
            std::thread::sleep(later);
            power_cut(&directory);
            rounds += 1;
            let store = alone(&directory);
            verify(&store, &logs, &mut rng);
            store.detach().unwrap();
        }
    }
    let store = alone(&directory);
    check(store.fs());
    read_fillers(&store.files().unwrap(), 0..FILLERS);
    let acknowledged: usize = logs.iter().map(|log| durable(log).len()).sum();
    assert!(acknowledged > 4 && rounds > 2 && midway > 0, "{acknowledged} {rounds} {midway}");
    assert!((0..30).any(|number| is_large(&store, number)), "no file of a worker is large");
    println!("{all_rounds} rounds, {rounds} power cuts, {midway} while it was loaded");
}

/// Who fills it would wait for the host's memory otherwise.
#[test]
fn a_keeper_lets_the_core_grow_ahead_of_those_who_fill_it() {
    const AHEAD: u64 = 32 << 20;
    let place = Temporary::on_disk("ahead");
    let directory = place.path().join("store");
    let volume = Some(VolumePlace::Size(256 << 20));
    Store::make(&directory, &NewStore { size_max: 160 << 20, volume, ..small() }).unwrap();
    let store = alone(&directory);
    let files = store.files().unwrap();
    let core = store.fs().core();
    let free = || core.groups() * GROUP - core.pages_used() * PAGE;
    let mut number = 0;
    while free() > AHEAD / 4 {
        files.write(format!("/{number}"), [7; 40_000]).unwrap();
        number += 1;
    }
    // Without a keeper it stays so, however often what is there is written anew.
    let rewrite =
        || (0..8).for_each(|file| files.write(format!("/{file}"), vec![8; 1 << 20]).unwrap());
    rewrite();
    assert!(free() < AHEAD);
    let keeper = start(&["keep", text(&directory)]);
    let limit = Instant::now() + Duration::from_secs(60);
    while free() < AHEAD {
        rewrite();
        assert!(Instant::now() < limit, "{} bytes are free", free());
    }
    drop(files);
    store.detach().unwrap();
    assert!(ends_well(keeper));
}
