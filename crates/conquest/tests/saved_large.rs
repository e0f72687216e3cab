//! Saved copies of stores with large files, and restoring them with a volume.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use conquest::{
    Error, Medium, NewStore, RestoreOptions, SaveOptions, Store, VolumePlace, restore, save,
};
use conquest_testkit::Rng;
use support::large::{
    Model, Op, PAGE, VOLUME, alone, filler, found, made, new, open, power_cut, threshold,
};
use support::{
    Temporary, attach, check, core_of, ends_well, forced, indexes, kill, populate, role, small,
    start, text, tree, write_file,
};
#[test]
fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["hold", directory, sign] => {
            let _store = alone(Path::new(directory));
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["restore", copy, directory] => {
            restore(Path::new(copy), Path::new(directory), forced()).unwrap();
        }
        other => panic!("{other:?}"),
    }
}

/// Large files of several kinds, small ones, and one that was removed: what is in them.
fn large_files(store: &Store) -> Model {
    let files = store.files().unwrap();
    let mut model = Model::new();
    let ops = [
        Op::Write(0, 0, 1_200_000),
        Op::Threshold(0, "12345"),
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
        assert_eq!(threshold(&store.files().unwrap(), "/0"), "12345");
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
    assert!(matches!(error, Error::VolumeTooSmall { .. }), "{error}");
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
