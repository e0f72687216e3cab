//! Large files of stores whose core is durable by itself, here RAM on a battery: the volume loses
//! its power and the core does not, either of them is an older copy, and copies are saved and
//! restored.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conquest::{
    Attach, Error, KeeperProgram, Medium, NewStore, RestoreOptions, SaveOptions, Store, SyncMode,
    VolumePlace, restore, save,
};
use conquest_fs::large::{Marks, marks, set_marks};
use conquest_testkit::Rng;
use support::large::{
    Model, Op, State, alone, filler, found, has_pages_of, last, new, open, power_cut, read,
};
use support::{
    Temporary, await_file, check, core_of, forced, indexes, kill, role, small, start, text, tree,
    write_file,
};

/// Operations before a process is killed, at most.
const OPERATIONS: u64 = 400;

fn battery() -> NewStore {
    NewStore { medium: Medium::Battery, volume: Some(VolumePlace::Size(96 << 20)), ..new() }
}

fn made(place: &Temporary) -> PathBuf {
    let directory = place.path().join("store");
    Store::make(&directory, &battery()).unwrap();
    directory
}

/// Takes away what of the volume is in RAM, as a power failure does that the core outlives.
fn volume_cut(directory: &Path) {
    for index in indexes(directory) {
        std::fs::remove_file(index).unwrap();
    }
}

/// Performs random operations, and says in a file which were begun, and done.
fn work(directory: &Path, seed: u64, log: &Path) {
    let store = alone(directory);
    let files = store.files().unwrap();
    let mut log = std::fs::File::options().append(true).create(true).open(log).unwrap();
    let mut rng = Rng::new(seed);
    for number in 0..OPERATIONS {
        let op = Op::random(&mut rng);
        log.write_all(format!("begun {number}\n").as_bytes()).unwrap();
        op.perform(number, &store, &files);
        if rng.chance(1, 10) {
            store.fs().trim_chunks().unwrap();
        }
        log.write_all(format!("done {number}\n").as_bytes()).unwrap();
    }
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["work", directory, seed, log] => {
            work(Path::new(directory), seed.parse().unwrap(), Path::new(log));
        }
        ["write", directory, sign] => {
            let store = alone(Path::new(directory));
            let files = store.files().unwrap();
            open(&files, 0).write_all_at(&filler(1, 700_000), 0).unwrap();
            let file = open(&files, 1);
            file.write_all_at(&filler(2, 700_000), 0).unwrap();
            file.write_all_at(&filler(3, 300_000), 0).unwrap();
            file.sync_all().unwrap();
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["keep", directory] => conquest::keep(Path::new(directory)).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Whether `there` may be left of a file that was what `states` say, one after the other, the last
/// one under way: it is as long as it should be, and each page is one of theirs.
fn is_one_of(there: &[u8], states: &[&Vec<u8>]) -> bool {
    let lens: Vec<usize> = states.iter().rev().take(2).map(|state| state.len()).collect();
    let (least, most) = (*lens.iter().min().unwrap(), *lens.iter().max().unwrap());
    (least..=most).contains(&there.len()) && has_pages_of(there, states)
}

/// Fails unless `there` is what the operations that were done have given; the one that was under
/// way may have been, and what was overwritten since the last sync may be as it was.
fn judge(there: &Model, seed: u64, log: &str) {
    let (done, begun) = (last(log, "done "), last(log, "begun ").unwrap());
    let mut rng = Rng::new(seed);
    let mut state = State::default();
    let mut states = vec![state.clone()];
    for number in 0..=begun {
        let op = Op::random(&mut rng);
        state.apply(&op, number);
        if matches!(op, Op::Sync) && done.is_some_and(|done| number <= done) {
            states.clear();
        }
        states.push(state.clone());
        let _trims = rng.chance(1, 10);
    }
    if done == Some(begun) {
        // Nothing was under way.
        states.push(state.clone());
    }
    let [.., before, after] = states.as_slice() else { panic!("two states") };
    let has_names = |state: &&State| there.keys().eq(state.bytes.keys());
    let named = [before, after].into_iter().find(has_names);
    let lens = |model: &Model| model.iter().map(|(f, b)| (*f, b.len())).collect::<Vec<_>>();
    let text =
        format!("seed {seed}, operation {begun}: {:?}, {:?}", lens(there), lens(&after.bytes));
    let named = named.unwrap_or_else(|| panic!("{text}"));
    for (name, bytes) in there {
        // A page may be as it was when the file had another name. It is made before it is written
        // to.
        let (file, empty) = (named.files[name], Vec::new());
        let all: Vec<&Vec<u8>> =
            states.iter().map(|state| state.bytes_of(file).unwrap_or(&empty)).collect();
        assert!(is_one_of(bytes, &all), "file {name}, {text}");
    }
}

#[test]
fn what_was_done_is_there_when_the_volume_loses_its_power() {
    let place = Temporary::on_disk("settled");
    let rounds = std::env::var("CONQUEST_TIMES").map_or(5, |times| times.parse().unwrap());
    let mut rng = Rng::new(5);
    let mut operations = 0;
    for seed in 0..rounds {
        let (directory, log) = (made(&place), place.path().join("log"));
        let child = start(&["work", text(&directory), &seed.to_string(), text(&log)]);
        std::thread::sleep(Duration::from_millis(150 + rng.below(1200)));
        kill(child);
        volume_cut(&directory);
        let told = std::fs::read_to_string(&log).unwrap_or_default();
        let store = alone(&directory);
        check(store.fs());
        if last(&told, "begun ").is_some() {
            judge(&found(&store.files().unwrap()), seed, &told);
        }
        operations += last(&told, "done ").unwrap_or(0);
        // It can be used.
        let files = store.files().unwrap();
        files.write("/after", filler(7, 500_000)).unwrap();
        assert!(read(&files, "/after") == filler(7, 500_000));
        store.fs().trim_chunks().unwrap();
        check(store.fs());
        drop(files);
        store.detach().unwrap();
        Store::destroy(&directory, Duration::from_secs(5)).unwrap();
        std::fs::remove_file(&log).unwrap();
    }
    println!("{rounds} power cuts of volumes, {operations} operations: all there");
    assert!(operations > rounds, "{operations}");
}

#[test]
fn what_is_overwritten_is_there_once_it_is_synced() {
    let place = Temporary::on_disk("synced");
    let (directory, sign) = (made(&place), place.path().join("sign"));
    let child = start(&["write", text(&directory), text(&sign)]);
    await_file(&sign);
    kill(child);
    volume_cut(&directory);
    let store = alone(&directory);
    let info = store.info();
    assert_eq!(info.medium, Medium::Battery);
    let stands = info.volume.unwrap();
    assert_eq!((stands.committed, stands.durable, stands.lag_bytes), (0, 0, 0));
    assert_eq!(stands.sync, SyncMode::default());
    let files = store.files().unwrap();
    assert!(read(&files, "/0") == filler(1, 700_000));
    let mut expected = filler(2, 700_000);
    expected[..300_000].copy_from_slice(&filler(3, 300_000));
    assert!(read(&files, "/1") == expected);
    check(store.fs());
    drop(files);
    store.detach().unwrap();
    assert_eq!(indexes(&directory), Vec::<PathBuf>::new());
}

/// Attaches the store, and looks at a small file, and at a large one of `len` bytes of `seed`,
/// which can't be had if the volume does not fit, for the reason `why`.
fn look(directory: &Path, (seed, len): (u64, u64), why: Option<&str>) {
    let store = alone(directory);
    let files = store.files().unwrap();
    assert_eq!(read(&files, "/small"), b"content");
    let notes = store.info().notes.join("\n");
    match why {
        None => {
            assert!(read(&files, "/0") == filler(seed, len));
            assert!(!notes.contains("can't be used"), "{notes}");
        }
        Some(why) => {
            let file = files.open("/0").unwrap();
            let error = file.read_at(&mut [0; 10], 0).unwrap_err();
            assert_eq!(error.raw_os_error(), libc::EIO, "{error}");
            assert!(error.to_string().contains(why), "{error}");
            let all = format!("large files can't be used: {}", directory.display());
            assert!(notes.contains(&all) && notes.contains(why), "{notes}");
            // More than the core takes can't be written there either.
            let mut options = conquest::OpenOptions::new();
            let file = options.write(true).create(true).mode(0o644);
            let file = files.open_with("/new", file).unwrap();
            let bytes = filler(1, 100_000);
            let mut pieces = (0..80).map(|piece| file.write_all_at(&bytes, piece * 100_000));
            let error = pieces.find_map(Result::err).unwrap();
            assert_eq!(error.raw_os_error(), libc::EIO, "{error}");
            drop(pieces);
            drop(file);
            files.remove_file("/new").unwrap();
        }
    }
    drop(files);
    store.detach().unwrap();
}

/// Makes the large file that one of `len` bytes of `seed`.
fn fill(directory: &Path, (seed, len): (u64, u64)) {
    let store = alone(directory);
    let files = store.files().unwrap();
    write_file(store.fs(), "small", b"content");
    files.write("/0", filler(seed, len)).unwrap();
    drop(files);
    store.detach().unwrap();
}

#[test]
fn an_older_copy_of_volume_or_core_is_found_out() {
    let place = Temporary::on_disk("older");
    let directory = made(&place);
    let (volume, core) = (directory.join("volume"), core_of(&directory));
    let copies = ["volume", "core"].map(|name| place.path().join(format!("old {name}")));
    let [old_volume, old_core] = &copies;
    fill(&directory, (1, 300_000));
    std::fs::copy(&volume, old_volume).unwrap();
    std::fs::copy(&core, old_core).unwrap();
    look(&directory, (1, 300_000), None);
    fill(&directory, (2, 500_000));
    let newest = ["volume", "core"].map(|name| place.path().join(format!("new {name}")));
    let [new_volume, new_core] = &newest;
    std::fs::copy(&volume, new_volume).unwrap();
    std::fs::copy(&core, new_core).unwrap();

    std::fs::copy(old_volume, &volume).unwrap();
    look(&directory, (2, 500_000), Some("it is an older copy than the core needs"));
    std::fs::copy(new_volume, &volume).unwrap();
    look(&directory, (2, 500_000), None);
    // Each of them has another mark by now.
    std::fs::copy(old_core, &core).unwrap();
    look(&directory, (1, 300_000), Some("it was used with a later state of the core"));
    // Both of the same time are a store again.
    std::fs::copy(old_volume, &volume).unwrap();
    look(&directory, (1, 300_000), None);
    // Which has gone another way: what it has now is not what the other one had.
    fill(&directory, (3, 400_000));
    std::fs::copy(new_core, &core).unwrap();
    look(&directory, (2, 500_000), Some("does not fit"));
    std::fs::copy(new_volume, &volume).unwrap();
    look(&directory, (2, 500_000), None);
}

#[test]
fn a_volume_of_another_core_and_one_without_a_mark_are_refused() {
    let place = Temporary::on_disk("other");
    let directory = made(&place);
    fill(&directory, (1, 300_000));
    let copy = place.path().join("copy");
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let other = place.path().join("other");
    let again = RestoreOptions { new_identity: true, ..RestoreOptions::default() };
    restore(&copy, &other, again).unwrap();
    let logged = place.path().join("logged");
    Store::make(&logged, &new()).unwrap();
    let own = place.path().join("own");
    std::fs::rename(directory.join("volume"), &own).unwrap();
    for (store, why) in [(&other, "the volume of another core"), (&logged, "has not been")] {
        // Its name in `store.toml`, too.
        let uuid = |directory: &Path| {
            let text = std::fs::read_to_string(directory.join("store.toml")).unwrap();
            let part = text.split("[volume]").nth(1).unwrap().to_owned();
            (text, part.split('"').nth(1).unwrap().to_owned())
        };
        let (text, mine) = uuid(&directory);
        let wrong = text.replace(&mine, &uuid(store).1);
        std::fs::write(directory.join("store.toml"), wrong).unwrap();
        std::fs::copy(store.join("volume"), directory.join("volume")).unwrap();
        look(&directory, (1, 300_000), Some(why));
        let refused = save(&directory, &place.path().join("wrong"), SaveOptions::default());
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::VolumeUnfit { .. }), "{refused}");
        std::fs::write(directory.join("store.toml"), text).unwrap();
    }
    std::fs::rename(&own, directory.join("volume")).unwrap();
    look(&directory, (1, 300_000), None);
}

#[test]
fn a_death_between_the_marks_of_both_sides_harms_nothing() {
    let place = Temporary::on_disk("marks");
    let directory = made(&place);
    fill(&directory, (1, 300_000));
    let with = |change: fn(Marks) -> Marks| {
        let store = alone(&directory);
        let core = store.fs().core();
        let found = marks(core).unwrap();
        assert_eq!(found.seen, found.next);
        set_marks(core, change(found)).unwrap();
        store.detach().unwrap();
    };
    // Before the volume got its next one, and after it.
    with(|found| Marks { next: found.next ^ 1, ..found });
    look(&directory, (1, 300_000), None);
    with(|found| Marks { seen: found.seen ^ 1, ..found });
    look(&directory, (1, 300_000), None);
    with(|found| Marks { seen: found.seen ^ 1, next: found.next ^ 1 });
    look(&directory, (1, 300_000), Some("does not fit"));
}

#[test]
fn copies_are_saved_and_restored_with_the_volume() {
    let place = Temporary::on_disk("copies");
    let (directory, copy) = (made(&place), place.path().join("copy"));
    let store = alone(&directory);
    let (mut model, mut rng) = (Model::new(), Rng::new(6));
    let files = store.files().unwrap();
    for number in 0..60 {
        let op = Op::random(&mut rng);
        op.perform(number, &store, &files);
        op.apply(number, &mut model);
    }
    write_file(store.fs(), "small", b"content");
    let expected = tree(store.fs());
    drop(files);
    store.detach().unwrap();
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert!(saved.large_bytes > 100_000, "{saved:?}");
    let is_there = |directory: &Path, medium: Medium| {
        let store = alone(directory);
        check(store.fs());
        assert!(tree(store.fs()) == expected && found(&store.files().unwrap()) == model);
        assert_eq!(store.info().medium, medium);
        let files = store.files().unwrap();
        files.write("/another", filler(5, 300_000)).unwrap();
        assert!(read(&files, "/another") == filler(5, 300_000));
        drop(files);
        store.detach().unwrap();
        match medium {
            Medium::Logged => power_cut(directory),
            _ => volume_cut(directory),
        }
        assert!(found(&alone(directory).files().unwrap()) == model);
        assert!(read(&alone(directory).files().unwrap(), "/another") == filler(5, 300_000));
    };
    // As it was: in its place, and elsewhere.
    restore(&copy, &directory, forced()).unwrap();
    is_there(&directory, Medium::Battery);
    let as_new = || RestoreOptions { new_identity: true, ..RestoreOptions::default() };
    let other = place.path().join("other");
    restore(&copy, &other, as_new()).unwrap();
    is_there(&other, Medium::Battery);
    // With a log, as there is room for one.
    let logged = place.path().join("logged");
    restore(&copy, &logged, RestoreOptions { medium: Medium::Logged, ..as_new() }).unwrap();
    is_there(&logged, Medium::Logged);
    // What can't be: large files without a volume.
    let nowhere = place.path().join("nowhere");
    let ram = RestoreOptions { medium: Medium::Ram, ..as_new() };
    let error = restore(&copy, &nowhere, ram).unwrap_err();
    assert!(matches!(error, Error::LargeFiles { .. }), "{error}");
    assert!(!nowhere.exists());
    // A logged one becomes one on a battery, whose records are durable at once.
    let (logged, other_copy) = (place.path().join("was logged"), place.path().join("other copy"));
    Store::make(&logged, &new()).unwrap();
    fill(&logged, (4, 300_000));
    save(&logged, &other_copy, SaveOptions::default()).unwrap();
    let third = place.path().join("third");
    let options = RestoreOptions {
        medium: Medium::Battery,
        volume: Some(VolumePlace::Size(96 << 20)),
        ..as_new()
    };
    restore(&other_copy, &third, options).unwrap();
    look(&third, (4, 300_000), None);
    volume_cut(&third);
    look(&third, (4, 300_000), None);
}

#[test]
fn a_keeper_trims_what_nobody_needs() {
    let place = Temporary::on_disk("kept");
    let directory = made(&place);
    fill(&directory, (1, 700_000));
    let store = alone(&directory);
    let keeper = start(&["keep", text(&directory)]);
    let files = store.files().unwrap();
    files.remove_file("/0").unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while store.fs().has_due().unwrap() {
        assert!(Instant::now() < limit, "nothing is trimmed");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(files);
    store.detach().unwrap();
    assert!(support::ends_well(keeper));
    let store = alone(&directory);
    check(store.fs());
    store.detach().unwrap();
}

#[test]
fn a_volume_is_for_cores_that_can_have_one() {
    let place = Temporary::on_disk("rules");
    let directory = place.path().join("store");
    let disk = conquest::CorePlace::Path(place.path().join("core"));
    let new = NewStore { core: disk, medium: Medium::Disk, ..battery() };
    let error = Store::make(&directory, &new).unwrap_err();
    assert!(matches!(error, Error::VolumeRule { .. }), "{error}");
    let ram = NewStore { medium: Medium::Ram, ..battery() };
    let error = Store::make(&directory, &ram).unwrap_err();
    assert!(matches!(error, Error::VolumeRule { .. }), "{error}");
    // By itself one on a battery has none.
    let auto = NewStore { medium: Medium::Battery, volume: Some(VolumePlace::Auto), ..small() };
    Store::make(&directory, &auto).unwrap();
    let how = Attach { keeper: KeeperProgram::None, ..Attach::default() };
    let store = Store::attach(&directory, &how).unwrap();
    assert!(store.info().volume.is_none());
    store.detach().unwrap();
}
