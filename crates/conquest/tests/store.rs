//! Stores: made, attached, grown, replaced; and what is refused.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use conquest::{Attach, CorePlace, Error, Medium, NewStore, Placement, Preset, Store};
use support::{Temporary, attach, check, names, populate, small, write_file};

/// A new store in a directory of its own, and its core.
fn made(place: &Temporary) -> (PathBuf, PathBuf) {
    let directory = place.path().join("store");
    Store::make(&directory, &small()).unwrap();
    let core = std::fs::canonicalize(directory.join("core")).unwrap();
    (directory, core)
}

fn refused(directory: &Path) -> Error {
    Store::attach(directory, &Attach::default()).unwrap_err()
}

/// Changes the text of `store.toml`.
fn edit(directory: &Path, from: &str, to: &str) {
    let path = directory.join("store.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

/// Lets the store look as if the machine had been restarted since.
fn restart(directory: &Path) {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    edit(directory, boot.trim(), "01234567-89ab-4def-8123-456789abcdef");
}

// --- destroying ---------------------------------------------------------------------------------

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

#[test]
fn a_store_that_is_destroyed_leaves_nothing_and_nobody_elses_goes() {
    let place = Temporary::on_disk("destroyed");
    let (directory, core) = made(&place);
    let store = attach(&directory);
    let error = Store::destroy(&directory, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Attached { .. }), "{error}");
    store.detach().unwrap();
    // A copy of the directory leads to the same core, and is not the store.
    let copy = place.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(directory.join("store.toml"), copy.join("store.toml")).unwrap();
    std::os::unix::fs::symlink(&core, copy.join("core")).unwrap();
    let error = Store::destroy(&copy, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Copied { .. }), "{error}");
    std::fs::write(directory.join("other"), "of somebody else").unwrap();
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(!core.exists());
    let left: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
    assert!(matches!(Store::destroy(&directory, PATIENCE), Err(Error::NotAStore { .. })));
    std::fs::remove_file(directory.join("other")).unwrap();
    Store::make(&directory, &small()).unwrap();
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(!directory.exists());
}

#[test]
fn a_store_whose_core_is_lost_can_be_destroyed() {
    let place = Temporary::on_disk("destroyed-lost");
    let (directory, core) = made(&place);
    std::fs::remove_file(core).unwrap();
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(!directory.exists());
}

#[test]
fn what_a_death_left_of_writing_settings_goes_with_whoever_comes_next() {
    let place = Temporary::on_disk("half-settings");
    let (directory, _core) = made(&place);
    let halves = ["store.toml.new", "store.toml.partial.new"].map(|name| directory.join(name));
    let leave = || halves.iter().for_each(|half| std::fs::write(half, "half").unwrap());
    leave();
    attach(&directory).detach().unwrap();
    assert!(!halves.iter().any(|half| half.exists()));
    leave();
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(!directory.exists());
    // Nor are they in the way of a new store.
    std::fs::create_dir(&directory).unwrap();
    leave();
    Store::make(&directory, &small()).unwrap();
    assert!(!halves.iter().any(|half| half.exists()));
    Store::destroy(&directory, PATIENCE).unwrap();
    assert!(!directory.exists());
}

// --- making -------------------------------------------------------------------------------------

#[test]
fn a_new_store_is_attached_and_keeps_what_is_written() {
    let place = Temporary::on_disk("new");
    let (directory, core) = made(&place);
    let store = attach(&directory);
    write_file(store.fs(), "file", b"content");
    assert!(store.info().attached.iter().any(|process| process.is_self));
    store.detach().unwrap();
    let store = attach(&directory);
    assert_eq!(names(store.fs()), ["file"]);
    let info = store.info();
    assert_eq!((info.medium, info.core, info.was_dirty), (Medium::Ram, core, false));
    assert_eq!(info.placement, Placement::default());
    assert!(!info.survives.restart && info.survives.words.contains("conquest save"));
    assert!(info.notes.iter().any(|note| note.contains("no volume")), "{:?}", info.notes);
    assert!(info.swap.is_some());
}

#[test]
fn a_core_on_the_disk_is_put_into_memory_of_the_users_own() {
    let place = Temporary::on_disk("private");
    let (_, core) = made(&place);
    let private = core.parent().unwrap();
    let found = std::fs::symlink_metadata(private).unwrap();
    assert_eq!(found.mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(&core).unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(place.path().join("store")).unwrap().mode() & 0o777, 0o700);
    assert!(private.file_name().unwrap().to_str().unwrap().starts_with("conquest-"));
}

#[test]
fn a_store_in_memory_has_its_core_beside_it() {
    let place = Temporary::in_memory("beside");
    let (directory, core) = made(&place);
    assert!(std::fs::symlink_metadata(directory.join("core")).unwrap().is_file());
    assert_eq!(core, directory.join("core"));
    write_file(attach(&directory).fs(), "file", b"content");
    let mut left: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["core", "store.lock", "store.toml"]);
}

#[test]
fn a_core_on_a_disk_file_is_a_last_resort_and_says_so() {
    let place = Temporary::on_disk("disk");
    let (directory, core) = (place.path().join("store"), place.path().join("a core"));
    let new = NewStore { core: CorePlace::Path(core.clone()), ..small() };
    Store::make(&directory, &new).unwrap();
    let store = attach(&directory);
    let info = store.info();
    assert_eq!((info.medium, info.core), (Medium::Disk, core.clone()));
    assert!(info.survives.words.contains("last resort"));
    assert!(info.notes.iter().any(|note| note.contains("last resort")));
    store.detach().unwrap();
    let again = NewStore { core: CorePlace::Path(core), ..small() };
    let taken = Store::make(&place.path().join("other"), &again).unwrap_err();
    assert!(matches!(taken, Error::CoreExists { .. }), "{taken}");
    assert!(!place.path().join("other").exists());
}

#[test]
fn a_medium_that_the_file_is_not_is_refused() {
    let (disk, memory) = (Temporary::on_disk("medium"), Temporary::in_memory("medium"));
    for (place, medium) in [
        (&memory, Medium::Dax),
        (&memory, Medium::Disk),
        (&disk, Medium::Ram),
        (&disk, Medium::Battery),
        (&disk, Medium::Dax),
    ] {
        let core = CorePlace::Path(place.path().join("core"));
        let directory = place.path().join("store");
        let refused = Store::make(&directory, &NewStore { core, medium, ..small() }).unwrap_err();
        assert!(matches!(refused, Error::Medium { .. }), "{refused}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
    let directory = memory.path().join("store");
    Store::make(&directory, &NewStore { medium: Medium::Battery, ..small() }).unwrap();
    let info = attach(&directory).info();
    assert!(info.survives.words.contains("battery") && !info.survives.restart);
}

#[test]
fn what_is_asked_for_is_recorded() {
    let place = Temporary::in_memory("asked");
    let directory = place.path().join("store");
    let new = NewStore {
        placement: Placement { threshold: 77, preset: Preset::Dfs },
        file_size_max: 1 << 30,
        size: 6 << 20,
        mode: 0o660,
        owner: Some((12_345, 23_456)),
        root_mode: 0o1777,
        ..small()
    };
    Store::make(&directory, &new).unwrap();
    let store = attach(&directory);
    let info = store.info();
    assert_eq!(info.placement, new.placement);
    assert_eq!(info.usage.file_size_max, 1 << 30);
    assert_eq!((info.usage.total, info.usage.reserved), (32 << 20, 6 << 20));
    assert_eq!((info.shape.lanes, info.shape.slots, info.shape.locks), (4, 16, 64));
    for (name, mode) in
        [(".", 0o770), ("core", 0o660), ("store.toml", 0o660), ("store.lock", 0o660)]
    {
        let found = std::fs::metadata(directory.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (12_345, 23_456), "{name}");
        assert_eq!(found.mode() & 0o7777, mode, "{name}");
    }
    let root = store.fs().stat(store.fs().root()).unwrap();
    assert_eq!((root.uid, root.gid, root.mode & 0o7777), (12_345, 23_456, 0o1777));
}

#[test]
fn a_store_is_replaced_only_by_force_and_other_things_never() {
    let place = Temporary::on_disk("replaced");
    let (directory, core) = made(&place);
    write_file(attach(&directory).fs(), "file", b"content");
    let exists = Store::make(&directory, &small()).unwrap_err();
    assert!(matches!(exists, Error::Exists { .. }), "{exists}");
    assert_eq!(names(attach(&directory).fs()), ["file"]);
    let force = NewStore { force: true, ..small() };
    Store::make(&directory, &force).unwrap();
    assert!(names(attach(&directory).fs()).is_empty());
    assert!(!core.exists(), "the old core is left behind");
    let full = place.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), b"").unwrap();
    let occupied = Store::make(&full, &force).unwrap_err();
    assert!(occupied.to_string().contains("\"mine\""), "{occupied}");
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
}

#[test]
fn impossible_numbers_leave_nothing_behind() {
    let place = Temporary::in_memory("numbers");
    let directory = place.path().join("store");
    for new in [
        NewStore { size_max: u64::MAX, ..small() },
        NewStore { size: 64 << 20, ..small() },
        NewStore { lanes: 100_000, ..small() },
        NewStore { slots: 5000, ..small() },
        NewStore { locks: 3, ..small() },
        NewStore { file_size_max: 0, ..small() },
    ] {
        let refused = Store::make(&directory, &new).unwrap_err();
        assert!(matches!(refused, Error::Range { .. }), "{refused}");
        assert_eq!(refused.raw_os_error(), libc::EINVAL);
        assert!(!directory.exists());
    }
}

// --- what is not a store ------------------------------------------------------------------------

#[test]
fn what_is_no_store_is_named_and_left_alone() {
    let place = Temporary::on_disk("none");
    let missing = refused(&place.path().join("missing"));
    assert!(matches!(missing, Error::NotAStore { .. }), "{missing}");
    assert_eq!(missing.raw_os_error(), libc::ENOENT);
    assert!(matches!(refused(place.path()), Error::NotAStore { .. }));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    std::fs::write(place.path().join("file"), b"").unwrap();
    assert!(matches!(refused(&place.path().join("file")), Error::NotAStore { .. }));
}

#[test]
fn damaged_settings_are_named_with_their_line() {
    let place = Temporary::on_disk("settings");
    let (directory, _) = made(&place);
    let path = directory.join("store.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(matches!(refused(&directory), Error::Settings { .. }));
    std::fs::write(&path, text.replace("medium = \"ram\"", "medium = \"rum\"")).unwrap();
    let message = refused(&directory).to_string();
    let line = text.lines().position(|line| line.starts_with("medium")).unwrap() + 1;
    assert!(message.contains(&format!("line {line}:")) && message.contains("rum"), "{message}");
    std::fs::write(&path, text.replace("format = 1", "format = 9")).unwrap();
    assert!(matches!(refused(&directory), Error::NewerFormat { found: 9, known: 1, .. }));
    std::fs::write(&path, b"\xff\xfe").unwrap();
    assert!(matches!(refused(&directory), Error::Settings { line: 1, .. }));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(refused(&directory), Error::Settings { .. }));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(refused(&directory), Error::Settings { .. }));
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, &text).unwrap();
    check(attach(&directory).fs());
}

#[test]
fn unknown_keys_survive_a_change_of_the_settings() {
    let place = Temporary::on_disk("unknown");
    let (directory, _) = made(&place);
    edit(&directory, "[placement]", "[from_later]\nkey = [1, 2] # why\n\n[placement]");
    let moved = place.path().join("moved");
    std::fs::rename(&directory, &moved).unwrap();
    drop(attach(&moved));
    let text = std::fs::read_to_string(moved.join("store.toml")).unwrap();
    assert!(text.contains("key = [1, 2] # why"), "{text}");
    assert!(text.contains(moved.to_str().unwrap()), "the new home is not recorded: {text}");
}

// --- which core is live -------------------------------------------------------------------------

#[test]
fn a_core_that_was_in_memory_before_a_restart_is_lost() {
    let place = Temporary::on_disk("lost");
    let (directory, core) = made(&place);
    restart(&directory);
    // Somebody has put a copy back: numbers of files may even be the same.
    let foreign = refused(&directory);
    assert!(matches!(foreign, Error::CoreForeign { .. }), "{foreign}");
    std::fs::remove_file(&core).unwrap();
    let lost = refused(&directory);
    assert!(matches!(lost, Error::CoreLost { .. }), "{lost}");
    let message = lost.to_string();
    assert!(message.contains("conquest restore") && message.contains("mkfs --force"), "{message}");
    assert!(message.contains("01234567-89ab-4def-8123-456789abcdef"), "{message}");
    assert!(!core.exists(), "a core was made");
    Store::make(&directory, &NewStore { force: true, ..small() }).unwrap();
    check(attach(&directory).fs());
}

#[test]
fn a_core_that_was_removed_is_not_made_anew() {
    let place = Temporary::on_disk("gone");
    let (directory, core) = made(&place);
    std::fs::remove_file(&core).unwrap();
    assert!(matches!(refused(&directory), Error::CoreGone { .. }));
    std::fs::remove_file(directory.join("core")).unwrap();
    let gone = refused(&directory);
    assert!(gone.to_string().contains(core.to_str().unwrap()), "{gone}");
    assert!(!core.exists());
}

#[test]
fn a_copy_of_the_core_is_foreign_until_it_is_adopted() {
    let place = Temporary::on_disk("foreign");
    let (directory, core) = made(&place);
    write_file(attach(&directory).fs(), "file", b"content");
    let copy = core.with_extension("copy");
    std::fs::copy(&core, &copy).unwrap();
    std::fs::rename(&copy, &core).unwrap();
    let foreign = refused(&directory);
    assert!(matches!(foreign, Error::CoreForeign { .. }), "{foreign}");
    let adopt = Attach { adopt: true, ..Attach::default() };
    assert_eq!(names(Store::attach(&directory, &adopt).unwrap().fs()), ["file"]);
    // From now on it is the live one.
    assert_eq!(names(attach(&directory).fs()), ["file"]);
}

#[test]
fn another_stores_core_is_refused_even_to_adopt() {
    let place = Temporary::on_disk("another");
    let (directory, core) = made(&place);
    let other = place.path().join("other");
    Store::make(&other, &small()).unwrap();
    std::fs::remove_file(directory.join("core")).unwrap();
    let theirs = std::fs::canonicalize(other.join("core")).unwrap();
    std::os::unix::fs::symlink(&theirs, directory.join("core")).unwrap();
    for adopt in [false, true] {
        let refused =
            Store::attach(&directory, &Attach { adopt, ..Attach::default() }).unwrap_err();
        assert!(matches!(refused, Error::CoreOfAnother { .. }), "{refused}");
    }
    // Nor is it removed for somebody who replaces this store.
    Store::make(&directory, &NewStore { force: true, ..small() }).unwrap();
    check(attach(&other).fs());
    std::fs::remove_file(core).unwrap();
}

#[test]
fn damaged_cores_are_named() {
    let place = Temporary::in_memory("damaged");
    let (directory, core) = made(&place);
    populate(attach(&directory).fs(), 1, 10);
    let whole = std::fs::read(&core).unwrap();
    let shorten = |len: u64| {
        std::fs::File::options().write(true).open(&core).unwrap().set_len(len).unwrap();
    };
    for len in [0, 100, 4096, whole.len() as u64 - 4096] {
        std::fs::write(&core, &whole).unwrap();
        shorten(len);
        let truncated = refused(&directory);
        let expected = matches!(&truncated, Error::Core(conquest_pm::Error::Truncated { .. }));
        assert!(expected, "{len}: {truncated}");
    }
    std::fs::write(&core, vec![7; whole.len()]).unwrap();
    let none = refused(&directory);
    assert!(matches!(none, Error::Core(conquest_pm::Error::NotARegion { .. })), "{none}");
    std::fs::write(&core, &whole).unwrap();
    check(attach(&directory).fs());
}

#[test]
fn a_copied_directory_is_refused_while_the_original_is_there() {
    let place = Temporary::on_disk("copied");
    let (directory, _) = made(&place);
    let copy = place.path().join("copy");
    let made = std::process::Command::new("cp").arg("-a").arg(&directory).arg(&copy).status();
    assert!(made.unwrap().success());
    let copied = refused(&copy);
    assert!(matches!(copied, Error::Copied { .. }), "{copied}");
    assert!(copied.to_string().contains(directory.to_str().unwrap()), "{copied}");
    write_file(attach(&directory).fs(), "file", b"content");
    // A directory that was moved by copying is the store.
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(names(attach(&copy).fs()), ["file"]);
}

#[test]
fn a_copied_directory_with_its_core_in_it_is_refused_too() {
    let place = Temporary::in_memory("copied");
    let (directory, _) = made(&place);
    let copy = place.path().join("copy");
    let made = std::process::Command::new("cp").arg("-a").arg(&directory).arg(&copy).status();
    assert!(made.unwrap().success());
    assert!(matches!(refused(&copy), Error::Copied { .. }));
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(matches!(refused(&copy), Error::CoreForeign { .. }));
    drop(Store::attach(&copy, &Attach { adopt: true, ..Attach::default() }).unwrap());
    drop(attach(&copy));
}

#[test]
fn a_core_that_was_about_to_become_the_live_one_is_it_once_it_is_in_place() {
    let place = Temporary::on_disk("next");
    let (directory, _) = made(&place);
    let path = directory.join("store.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (_, live) = text.split_once("[live]\n").unwrap();
    let inode = live.lines().find(|line| line.starts_with("inode")).unwrap();
    // As a death leaves it after the new core got its name ...
    let old = text.replace(inode, "inode = 3");
    std::fs::write(&path, format!("{old}\n[next]\n{live}")).unwrap();
    check(attach(&directory).fs());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    // ... and before.
    let next = live.replace(inode, "inode = 3");
    std::fs::write(&path, format!("{text}\n[next]\n{next}")).unwrap();
    check(attach(&directory).fs());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_core_on_a_disk_is_the_same_after_a_restart() {
    let place = Temporary::on_disk("restart");
    let (directory, core) = (place.path().join("store"), place.path().join("core"));
    Store::make(&directory, &NewStore { core: CorePlace::Path(core), ..small() }).unwrap();
    let store = attach(&directory);
    write_file(store.fs(), "file", b"content");
    store.detach().unwrap();
    let device = std::fs::metadata(directory.join("core")).unwrap().dev();
    let number = format!("\"{}:{}\"", libc::major(device), libc::minor(device));
    edit(&directory, &number, "\"99:1\"");
    assert!(matches!(refused(&directory), Error::CoreForeign { .. }));
    restart(&directory);
    assert_eq!(names(attach(&directory).fs()), ["file"]);
    let text = std::fs::read_to_string(directory.join("store.toml")).unwrap();
    assert!(text.contains(&number) && !text.contains("01234567-89ab"), "{text}");
}

// --- space --------------------------------------------------------------------------------------

#[test]
fn a_store_grows_by_itself_and_ahead() {
    let place = Temporary::in_memory("grow");
    let (directory, core) = made(&place);
    let store = attach(&directory);
    let before = store.usage();
    assert_eq!(before.reserved, 2 << 20);
    store.grow(9 << 20).unwrap();
    let after = store.usage();
    assert_eq!(after.reserved, 10 << 20);
    assert!(std::fs::metadata(&core).unwrap().blocks() * 512 >= 10 << 20);
    store.grow(4 << 20).unwrap();
    assert_eq!(store.usage().reserved, 10 << 20);
    let past = store.grow(33 << 20).unwrap_err();
    assert!(matches!(past, Error::Range { .. }), "{past}");
    for number in 0..24 {
        write_file(store.fs(), &format!("{number}"), &vec![1; 1 << 20]);
    }
    let full = store.usage();
    assert!(full.used > 24 << 20 && full.used + full.free <= full.total, "{full:?}");
    store.grow(32 << 20).unwrap();
    check(store.fs());
}

#[test]
fn the_settings_may_be_read_by_whoever_may_and_others_are_told() {
    let place = Temporary::in_memory("mode");
    let (directory, _) = made(&place);
    let path = directory.join("store.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let moved = place.path().join("moved");
    std::fs::rename(&directory, &moved).unwrap();
    drop(attach(&moved));
    // Written anew for the new home, with the permissions that it had.
    assert_eq!(std::fs::metadata(moved.join("store.toml")).unwrap().mode() & 0o777, 0o644);
}
