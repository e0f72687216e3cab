//! Stores whose core is in RAM and outlives it on a volume: what is there after a restart of the
//! machine, and what is refused.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conquest::{
    Attach, CorePlace, Error, KeeperProgram, Medium, NewStore, OpenOptions, RestoreOptions,
    SaveOptions, Store, SyncMode, VolumePlace, flag, restore, save,
};
use conquest_peers::child::fork;
use conquest_testkit::Rng;
use support::{
    Temporary, attach, await_file, check, core_of, ends_well, indexes, kill, names, populate, role,
    small, start, text, tree, write_file,
};

const VOLUME: u64 = 96 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

fn logged() -> NewStore {
    NewStore { volume: Some(VolumePlace::Size(VOLUME)), ..small() }
}

fn made(place: &Temporary) -> PathBuf {
    let directory = place.path().join("store");
    Store::make(&directory, &logged()).unwrap();
    directory
}

/// Attaches it without a keeper.
fn alone(directory: &Path) -> Store {
    try_alone(directory).unwrap()
}

fn try_alone(directory: &Path) -> Result<Store, Error> {
    Store::attach(directory, &Attach { keeper: KeeperProgram::None, ..Attach::default() })
}

/// Takes away what is in RAM, as a power failure does. Nobody has the store attached.
fn power_cut(directory: &Path) {
    let _was_there = std::fs::remove_file(core_of(directory));
    for index in indexes(directory) {
        std::fs::remove_file(index).unwrap();
    }
}

/// Who looks at it is told that nothing is made durable, and why.
fn says_why(store: &Store, why: &str) {
    let notes = store.info().notes;
    let is_said = |note: &String| note.contains("made durable any more") && note.contains(why);
    assert!(notes.iter().any(is_said), "{notes:?}");
}

#[test]
fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Makes files, of which the last ones are not durable, and waits for its end.
        ["lose", directory, sign] => {
            let store = alone(Path::new(directory));
            populate(store.fs(), 3, 40);
            write_file(store.fs(), "durable", b"as of fsync");
            store.sync().unwrap();
            write_file(store.fs(), "lost", b"since fsync");
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        // Makes files one after the other, and says of each that it is durable.
        ["serve", directory, number, log] => serve(Path::new(directory), number, Path::new(log)),
        // Makes files that are lost, and says which they were.
        ["ids", directory, sign] => {
            let store = alone(Path::new(directory));
            let ids = made_ids(&store, "lost");
            // As a whole.
            std::fs::write(format!("{sign}.new"), format!("{ids:?}")).unwrap();
            std::fs::rename(format!("{sign}.new"), sign).unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["make", directory] => Store::make(Path::new(directory), &logged()).unwrap(),
        ["fork", directory] => forks(Path::new(directory)),
        other => panic!("{other:?}"),
    }
}

/// Makes files in the root directory: their numbers and generations.
fn made_ids(store: &Store, name: &str) -> Vec<(u64, u64)> {
    let name = |number: u64| format!("{name} {number}");
    (0..20).for_each(|number| write_file(store.fs(), &name(number), b"content"));
    let of = |number| store.files().unwrap().metadata(format!("/{}", name(number))).unwrap();
    (0..20).map(|number| (of(number).id().number, of(number).id().generation)).collect()
}

#[test]
fn a_file_is_never_taken_for_one_that_was_lost() {
    let place = Temporary::on_disk("ids");
    let (directory, sign) = (made(&place), place.path().join("sign"));
    let mut all = Vec::new();
    for round in 0..4 {
        let child = start(&["ids", text(&directory), text(&sign)]);
        await_file(&sign);
        kill(child);
        power_cut(&directory);
        all.push(std::fs::read_to_string(&sign).unwrap());
        std::fs::remove_file(&sign).unwrap();
        let store = alone(&directory);
        all.push(format!("{:?}", made_ids(&store, &format!("{round}"))));
        store.detach().unwrap();
    }
    let ids: Vec<String> = all
        .iter()
        .flat_map(|ids| ids.trim_matches(['[', ']', '(', ')']).split("), ("))
        .map(str::to_owned)
        .collect();
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (160, 160), "{ids:?}");
}

/// Opens the volume, and has children that make files durable as well.
fn forks(directory: &Path) {
    let store = alone(directory);
    write_file(store.fs(), "parent", b"1");
    store.sync().unwrap();
    for number in 0..3 {
        let child = || {
            // One that has done nothing yet, and one that has.
            if number > 0 {
                write_file(store.fs(), &format!("child {number}"), b"2");
            }
            store.sync().unwrap();
            write_file(store.fs(), &format!("child {number} again"), b"3");
            store.sync().unwrap();
        };
        fork(child).wait();
        write_file(store.fs(), &format!("parent {number}"), b"4");
        store.sync().unwrap();
    }
    store.detach().unwrap();
}

#[test]
fn who_makes_a_store_with_a_volume_may_die_at_any_moment() {
    let place = Temporary::on_disk("making");
    let directory = place.path().join("store");
    let mut rng = Rng::new(8);
    for _ in 0..12 {
        let child = start(&["make", text(&directory)]);
        std::thread::sleep(Duration::from_millis(rng.below(120)));
        kill(child);
        Store::make(&directory, &NewStore { force: true, ..logged() }).unwrap();
        let store = alone(&directory);
        write_file(store.fs(), "file", b"bytes");
        store.detach().unwrap();
        power_cut(&directory);
        let store = alone(&directory);
        assert_eq!(names(store.fs()), ["file"]);
        store.detach().unwrap();
        Store::destroy(&directory, PATIENCE).unwrap();
        assert!(!directory.exists());
    }
}

#[test]
fn a_forked_child_opens_the_volume_itself() {
    let place = Temporary::on_disk("forked");
    let directory = made(&place);
    assert!(ends_well(start(&["fork", text(&directory)])));
    power_cut(&directory);
    assert_eq!(names(alone(&directory).fs()).len(), 9);
}

/// Makes and replaces files, and notes each that was made durable, until it is killed.
fn serve(directory: &Path, number: &str, log: &Path) {
    let store = alone(directory);
    let files = store.files().unwrap();
    let mut log = std::fs::File::options().append(true).create(true).open(log).unwrap();
    let mut rng = Rng::new(u64::from(std::process::id()));
    for count in 0_u64.. {
        let name = format!("/{number}-{}-{count}", std::process::id());
        let bytes = vec![count as u8; rng.below(20_000) as usize];
        let temporary = format!("{name}.new");
        let mut file = files.create(&temporary).unwrap();
        file.write_all(&bytes).unwrap();
        files.rename(&temporary, &name).unwrap();
        file.sync_all().unwrap();
        // As a whole, or not at all.
        let line = format!("{name} {} {}\n", bytes.len(), count as u8);
        log.write_all(line.as_bytes()).unwrap();
        if rng.below(4) == 0 && count > 3 {
            let old = format!("/{number}-{}-{}", std::process::id(), count - 3);
            // It is noted before it is gone: it may be there or not from now on.
            log.write_all(format!("{old} gone\n").as_bytes()).unwrap();
            files.remove_file(&old).unwrap();
        }
    }
}

#[test]
fn all_is_there_again_after_everybody_has_detached_and_the_power_was_cut() {
    let place = Temporary::on_disk("again");
    let directory = made(&place);
    let mut expected = Default::default();
    for round in 0..4 {
        let store = alone(&directory);
        let stands = store.info().volume.unwrap();
        assert_eq!((stands.was_brought_back, stands.incarnation), (round > 0, round));
        assert_eq!(tree(store.fs()), expected);
        populate(store.fs(), round, 50);
        check(store.fs());
        expected = tree(store.fs());
        store.detach().unwrap();
        assert_eq!(indexes(&directory), Vec::<PathBuf>::new());
        power_cut(&directory);
    }
    let store = alone(&directory);
    assert_eq!(tree(store.fs()), expected);
    check(store.fs());
    store.detach().unwrap();
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(!directory.exists());
}

#[test]
fn what_was_synced_is_there_after_a_power_cut_and_what_came_then_is_not() {
    let place = Temporary::on_disk("synced");
    let (directory, sign) = (made(&place), place.path().join("sign"));
    let child = start(&["lose", text(&directory), text(&sign)]);
    await_file(&sign);
    // The death of a process alone loses nothing.
    let store = alone(&directory);
    let expected = tree(store.fs());
    assert!(expected.contains_key("lost"));
    kill(child);
    drop(store);
    power_cut(&directory);
    let store = alone(&directory);
    // That was the last one to go, and it made everything durable.
    assert_eq!(tree(store.fs()), expected);
    store.detach().unwrap();
    std::fs::remove_file(&sign).unwrap();
    Store::make(&directory, &NewStore { force: true, ..logged() }).unwrap();
    let child = start(&["lose", text(&directory), text(&sign)]);
    await_file(&sign);
    kill(child);
    power_cut(&directory);
    let store = alone(&directory);
    let names = names(store.fs());
    assert!(names.contains(&"durable".to_owned()) && !names.contains(&"lost".to_owned()));
    check(store.fs());
}

/// The files that `log` says are there for sure, and those that may be there.
fn noted(log: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut there, mut maybe) = (BTreeSet::new(), BTreeSet::new());
    for line in std::fs::read_to_string(log).unwrap().lines() {
        match line.strip_suffix(" gone") {
            Some(name) => {
                let found: Vec<String> = there
                    .iter()
                    .filter(|it: &&String| it.starts_with(&format!("{name} ")))
                    .cloned()
                    .collect();
                there.retain(|it| !found.contains(it));
                maybe.extend(found);
            }
            None => _ = there.insert(line.to_owned()),
        }
    }
    (there, maybe)
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_all_are_killed_and_the_power_is_cut() {
    let place = Temporary::on_disk("acknowledged");
    let directory = made(&place);
    let mut rng = Rng::new(9);
    let logs: Vec<PathBuf> =
        (0..3).map(|number| place.path().join(format!("log{number}"))).collect();
    for round in 0..10 {
        let start_one = |(number, log): (usize, &PathBuf)| {
            start(&["serve", text(&directory), &number.to_string(), text(log)])
        };
        let children: Vec<_> = logs.iter().enumerate().map(start_one).collect();
        logs.iter().for_each(|log| await_file(log));
        std::thread::sleep(Duration::from_millis(50 + rng.below(200)));
        for child in children {
            kill(child);
            std::thread::sleep(Duration::from_millis(rng.below(20)));
        }
        if round % 3 < 2 {
            power_cut(&directory);
        }
        let store = alone(&directory);
        check(store.fs());
        let files = store.files().unwrap();
        for log in &logs {
            let (there, _) = noted(log);
            for line in there {
                let words: Vec<&str> = line.split(' ').collect();
                let bytes = files.read(words[0]).unwrap_or_else(|error| panic!("{line}: {error}"));
                let (len, byte): (usize, u8) =
                    (words[1].parse().unwrap(), words[2].parse().unwrap());
                assert_eq!(bytes, vec![byte; len], "{line}");
            }
        }
        store.detach().unwrap();
    }
    let acknowledged: usize = logs.iter().map(|log| noted(log).0.len()).sum();
    assert!(acknowledged > 30, "{acknowledged}");
}

#[test]
fn modes_say_who_waits() {
    let place = Temporary::on_disk("modes");
    let directory = place.path().join("store");
    for (mode, waits) in [("interval=5s", false), ("fsync", false), ("always", true)] {
        let sync: SyncMode = mode.parse().unwrap();
        Store::make(&directory, &NewStore { sync: Some(sync), force: true, ..logged() }).unwrap();
        let store = alone(&directory);
        assert_eq!(store.sync_mode(), Some(sync));
        let files = store.files().unwrap();
        let is_durable = || {
            let stands = store.info().volume.unwrap();
            assert_eq!(stands.lag_bytes == 0, stands.durable == stands.committed, "{stands:?}");
            stands.durable == stands.committed
        };
        assert!(is_durable());
        let mut file = files.create("/file").unwrap();
        assert_eq!(is_durable(), waits, "{mode}");
        file.sync_data().unwrap();
        assert!(is_durable());
        file.write_all(b"bytes").unwrap();
        assert_eq!(is_durable(), waits, "{mode}");
        drop(file);
        // Of one file, the one who opens it decides.
        let synchronous = libc::O_DSYNC;
        let mut file = OpenOptions::new();
        file.write(true).custom_flags(synchronous);
        let mut file = files.open_with("/file", &file).unwrap();
        file.write_all(b"other").unwrap();
        assert!(is_durable(), "{mode}");
        files.write("/source", b"bytes").unwrap();
        let source = files.open("/source").unwrap();
        assert_eq!(source.copy_range(Some(0), &file, Some(0), 5).unwrap(), 5);
        assert!(is_durable(), "{mode}");
        // Or the file itself (chattr +S).
        files.node(source.id()).set_flags(flag::SYNC, None).unwrap();
        assert_eq!(is_durable(), waits, "{mode}");
        files
            .open_with("/source", OpenOptions::new().append(true))
            .unwrap()
            .write_all(b"x")
            .unwrap();
        assert!(is_durable(), "{mode}");
        files.create_dir("/directory").unwrap();
        assert_eq!(is_durable(), waits, "{mode}");
        files.open_dir("/directory").unwrap().sync_all().unwrap();
        assert!(is_durable());
    }
}

#[test]
fn more_is_written_than_the_log_holds_without_anybody_asking() {
    let place = Temporary::on_disk("more");
    let directory = made(&place);
    let store = alone(&directory);
    let files = store.files().unwrap();
    // The log has 12 chunks of 64 KiB.
    for count in 0..400 {
        let bytes = vec![count as u8; 30_000];
        files.write(format!("/{}", count % 50), &bytes).unwrap();
    }
    for count in 0..20_000 {
        files.write(format!("/small {}", count % 100), count.to_string()).unwrap();
    }
    let expected = tree(store.fs());
    drop((files, store));
    power_cut(&directory);
    assert_eq!(tree(alone(&directory).fs()), expected);
}

#[test]
fn a_core_that_was_brought_back_elsewhere_is_told_so() {
    let place = Temporary::on_disk("elsewhere");
    let directory = made(&place);
    let old = alone(&directory);
    write_file(old.fs(), "first", b"1");
    old.sync().unwrap();
    write_file(old.fs(), "second", b"2");
    // As if another container had a memory of its own: the volume's index is shared, though.
    std::fs::remove_file(core_of(&directory)).unwrap();
    let new = alone(&directory);
    assert_eq!(names(new.fs()), ["first"]);
    let error = old.sync().unwrap_err().to_string();
    assert!(error.contains("brought back") && error.contains("incarnation 1"), "{error}");
    says_why(&old, "brought back");
    write_file(new.fs(), "third", b"3");
    new.sync().unwrap();
    drop(old);
    new.detach().unwrap();
    power_cut(&directory);
    assert_eq!(names(alone(&directory).fs()), ["first", "third"]);
}

#[test]
fn volumes_that_are_not_the_stores_are_refused_and_lose_nothing() {
    let place = Temporary::on_disk("others");
    let directory = made(&place);
    let volume = directory.join("volume");
    let older = place.path().join("older");
    std::fs::copy(&volume, &older).unwrap();
    let store = alone(&directory);
    write_file(store.fs(), "file", b"bytes");
    store.detach().unwrap();
    let newer = place.path().join("newer");
    std::fs::rename(&volume, &newer).unwrap();

    // None at all. What is in RAM can be read.
    let store = alone(&directory);
    assert_eq!(names(store.fs()), ["file"]);
    write_file(store.fs(), "not durable", b"");
    let error = store.sync().unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EIO);
    assert!(error.to_string().contains("volume"), "{error}");
    says_why(&store, "volume");
    assert!(store.detach().is_err());
    std::fs::rename(core_of(&directory), core_of(&directory).with_extension("away")).unwrap();
    let error = try_alone(&directory).unwrap_err().to_string();
    assert!(error.contains("volume"), "{error}");

    // Another store's.
    let other = place.path().join("other");
    Store::make(&other, &logged()).unwrap();
    std::fs::copy(other.join("volume"), &volume).unwrap();
    let error = try_alone(&directory).unwrap_err();
    assert!(matches!(error, Error::VolumeOfAnother { .. }), "{error}");

    // An older one of it: with the core that knows better, and without.
    std::fs::copy(&older, &volume).unwrap();
    std::fs::rename(core_of(&directory).with_extension("away"), core_of(&directory)).unwrap();
    let store = alone(&directory);
    let error = store.sync().unwrap_err().to_string();
    assert!(error.contains("older copy"), "{error}");
    says_why(&store, "older copy");
    store.detach().unwrap();

    // The right one.
    std::fs::rename(&newer, &volume).unwrap();
    let store = alone(&directory);
    assert_eq!(names(store.fs()), ["file", "not durable"]);
    store.detach().unwrap();
    power_cut(&directory);
    assert_eq!(names(alone(&directory).fs()), ["file", "not durable"]);
}

#[test]
fn what_could_never_be_durable_is_not_changed_and_can_be_read() {
    let place = Temporary::on_disk("unchanged");
    let directory = made(&place);
    let volume = directory.join("volume");
    let (older, right) = (place.path().join("older"), place.path().join("right"));
    std::fs::copy(&volume, &older).unwrap();
    let store = alone(&directory);
    write_file(store.fs(), "file", b"bytes");
    store.files().unwrap().create_dir("/directory").unwrap();
    store.detach().unwrap();
    std::fs::rename(&volume, &right).unwrap();
    for (instead, why) in [(None, "not there"), (Some(&older), "older copy")] {
        if let Some(instead) = instead {
            std::fs::copy(instead, &volume).unwrap();
        }
        // Two of one process look at it as two processes do.
        let (store, other) = (alone(&directory), alone(&directory));
        let files = other.files().unwrap();
        let open = files.open("/file").unwrap();
        says_why(&store, "nothing can be changed");
        store.sync().unwrap_err();
        let refused = |error: Error| {
            assert_eq!(error.raw_os_error(), libc::EROFS, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        refused(files.write("/file", "others").unwrap_err());
        refused(files.remove_file("/file").unwrap_err());
        refused(files.rename("/file", "/new").unwrap_err());
        // Other reasons come first, as on a file system that is mounted for reading only.
        let is = |error: Error, errno| assert_eq!(error.raw_os_error(), errno, "{error}");
        is(files.create_dir("/directory").unwrap_err(), libc::EEXIST);
        is(files.remove_file("/none").unwrap_err(), libc::ENOENT);
        assert_eq!(files.read("/file").unwrap(), b"bytes");
        assert_eq!(names(store.fs()), ["directory", "file"]);
        drop((open, store, other));
        let _volume = std::fs::remove_file(&volume);
        indexes(&directory).iter().for_each(|index| std::fs::remove_file(index).unwrap());
    }
    std::fs::rename(&right, &volume).unwrap();
    let store = alone(&directory);
    let write = || store.files().unwrap().write("/file", "others");
    write().unwrap_err();
    // Who finds out that it fits again tells all.
    store.sync().unwrap();
    write().unwrap();
    store.detach().unwrap();
    power_cut(&directory);
    assert_eq!(alone(&directory).files().unwrap().read("/file").unwrap(), b"others");
}

#[test]
fn a_volume_is_for_cores_in_ram_and_as_large_as_they() {
    let place = Temporary::on_disk("rules");
    let directory = place.path().join("store");
    let disk = CorePlace::Path(place.path().join("core"));
    for (new, says) in [
        (NewStore { medium: Medium::Logged, ..small() }, "needs a volume"),
        (NewStore { medium: Medium::Ram, ..logged() }, "for cores in RAM"),
        (NewStore { core: disk, ..logged() }, "for cores in RAM"),
        (NewStore { volume: Some(VolumePlace::Size(40 << 20)), ..small() }, "bytes"),
        (NewStore { volume: Some(VolumePlace::Size(4096)), ..small() }, "larger"),
    ] {
        let error = Store::make(&directory, &new).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(!directory.exists(), "{error}");
    }
    let device = place.path().join("device");
    std::fs::write(&device, vec![7; VOLUME as usize]).unwrap();
    let paths = vec![device.clone()];
    let new = NewStore { volume: Some(VolumePlace::Devices { paths, mirror: false }), ..small() };
    let error = Store::make(&directory, &new).unwrap_err();
    assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
    Store::make(&directory, &NewStore { force: true, ..new }).unwrap();
    let store = alone(&directory);
    assert_eq!(store.info().volume.unwrap().devices, [std::fs::canonicalize(&device).unwrap()]);
    write_file(store.fs(), "file", b"bytes");
    store.detach().unwrap();
    power_cut(&directory);
    assert_eq!(names(alone(&directory).fs()), ["file"]);
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(device.exists());
}

#[test]
fn a_store_is_not_removed_for_one_that_can_not_be_made() {
    let place = Temporary::on_disk("kept");
    let directory = made(&place);
    let store = alone(&directory);
    write_file(store.fs(), "file", b"bytes");
    store.detach().unwrap();
    let at = |name| place.path().join(name);
    std::fs::write(at("device"), vec![0; 1 << 20]).unwrap();
    let devices = |name| VolumePlace::Devices { paths: vec![at(name)], mirror: false };
    for (volume, says) in [
        (VolumePlace::Size(1 << 60), "for the volume"),
        (VolumePlace::Size(8 << 20), "bytes"),
        (devices("device"), "bytes"),
        (devices("none"), "none"),
    ] {
        let new = NewStore { volume: Some(volume), force: true, ..small() };
        let error = Store::make(&directory, &new).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        let store = alone(&directory);
        assert_eq!(names(store.fs()), ["file"]);
        store.detach().unwrap();
    }
    // What the store that is replaced has counts as free.
    Store::make(&directory, &NewStore { force: true, ..logged() }).unwrap();
    assert_eq!(names(alone(&directory).fs()), Vec::<String>::new());
}

/// How many chunks the log of a store has.
fn log_chunks(store: &Store) -> u32 {
    store.fs().core().geometry().shape().log
}

#[test]
fn a_copy_without_large_files_is_restored_with_a_volume_and_without_one() {
    let place = Temporary::on_disk("saved");
    let (directory, copy) = (made(&place), place.path().join("copy"));
    let store = alone(&directory);
    populate(store.fs(), 5, 60);
    let expected = tree(store.fs());
    store.detach().unwrap();
    // Its core comes back for that.
    power_cut(&directory);
    save(&directory, &copy, SaveOptions::default()).unwrap();

    // Over the store itself, which then has a new volume.
    let restored = restore(&copy, &directory, RestoreOptions::default()).unwrap();
    assert_eq!(restored.volume, [directory.join("volume2")]);
    assert!(!directory.join("volume").exists());
    power_cut(&directory);
    let store = alone(&directory);
    assert_eq!(tree(store.fs()), expected);
    assert_ne!(log_chunks(&store), 0);
    store.detach().unwrap();

    // As one without a volume, over it: with no log, for which nothing waits.
    let without = || RestoreOptions { medium: Medium::Ram, ..RestoreOptions::default() };
    let newer = restore(&copy, &directory, without()).unwrap_err();
    assert!(matches!(newer, Error::CoreNewer { .. }), "{newer}");
    restore(&copy, &directory, RestoreOptions { force: true, ..without() }).unwrap();
    assert!(!directory.join("volume").exists() && !directory.join("volume2").exists());
    let store = attach(&directory);
    assert_eq!((store.info().medium, store.info().volume), (Medium::Ram, None));
    assert_eq!((tree(store.fs()), log_chunks(&store)), (expected.clone(), 0));
    let files = store.files().unwrap();
    for count in 0..30_000 {
        files.write(format!("/small {}", count % 100), count.to_string()).unwrap();
    }
    check(store.fs());
    let expected = tree(store.fs());
    drop(files);
    store.detach().unwrap();

    // And that one with a volume again, which has a log then, and large files.
    let options = SaveOptions { force: true, ..SaveOptions::default() };
    save(&directory, &copy, options).unwrap();
    let volume = Some(VolumePlace::Size(VOLUME));
    let sync = Some(SyncMode::Fsync);
    let options = RestoreOptions { volume, sync, ..RestoreOptions::default() };
    restore(&copy, &directory, options).unwrap();
    let store = alone(&directory);
    assert_eq!((tree(store.fs()), store.info().medium), (expected.clone(), Medium::Logged));
    assert_eq!(store.sync_mode(), Some(SyncMode::Fsync));
    let large = vec![7; 3 << 20];
    store.files().unwrap().write("/large", &large).unwrap();
    let id = store.files().unwrap().metadata("/large").unwrap().id();
    let form = format!("{:?}", store.fs().placement(id, 1 << 20).unwrap().form);
    assert_eq!(form, "Large");
    store.detach().unwrap();
    power_cut(&directory);
    let store = alone(&directory);
    assert!(store.files().unwrap().read("/large").unwrap() == large);
    check(store.fs());
    let found = tree(store.fs());
    assert!(expected.iter().all(|(name, seen)| name.is_empty() || found.get(name) == Some(seen)));
}

#[test]
fn a_file_of_a_restored_store_is_never_taken_for_one_of_the_copy() {
    let place = Temporary::on_disk("restored-ids");
    let (directory, copy) = (made(&place), place.path().join("copy"));
    // A core that came back has large numbers.
    power_cut(&directory);
    let store = alone(&directory);
    let mut ids = made_ids(&store, "before");
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    let store = alone(&directory);
    assert_eq!(names(store.fs()).len(), 20);
    ids.extend(made_ids(&store, "after"));
    let latest = |ids: &[(u64, u64)]| ids.iter().map(|id| id.1 << 16 >> 16).max();
    assert!(latest(&ids[..20]) < latest(&ids[20..]), "{ids:?}");
    let distinct: BTreeSet<u64> = ids.iter().map(|id| id.1).collect();
    assert_eq!(distinct.len(), 40, "{ids:?}");
}

#[test]
fn what_is_on_the_volume_only_is_not_lost_by_restoring() {
    let place = Temporary::on_disk("not-lost");
    let (directory, copy) = (made(&place), place.path().join("copy"));
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let store = alone(&directory);
    write_file(store.fs(), "later", b"than the copy");
    store.detach().unwrap();
    power_cut(&directory);
    let newer = restore(&copy, &directory, RestoreOptions::default()).unwrap_err();
    assert!(matches!(newer, Error::CoreNewer { .. }), "{newer}");
    power_cut(&directory);
    assert_eq!(names(alone(&directory).fs()), ["later"]);
}

#[test]
fn who_brings_a_core_back_may_die_at_any_moment() {
    let place = Temporary::on_disk("bringing");
    let directory = made(&place);
    let store = alone(&directory);
    populate(store.fs(), 5, 60);
    let expected = tree(store.fs());
    store.detach().unwrap();
    let sign = place.path().join("sign");
    let mut rng = Rng::new(4);
    for _ in 0..12 {
        power_cut(&directory);
        let child = start(&["lose", text(&directory), text(&sign)]);
        std::thread::sleep(Duration::from_millis(rng.below(60)));
        kill(child);
        let store = alone(&directory);
        let found = tree(store.fs());
        assert!(expected.iter().all(|(name, file)| found.get(name) == Some(file)));
        check(store.fs());
        store.detach().unwrap();
    }
}
