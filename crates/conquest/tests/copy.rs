//! Saving and restoring: what was saved is what comes back, and nothing is lost on the way.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ops::ControlFlow;

use conquest::{Attach, CorePlace, Error, RestoreOptions, SaveOptions, Store, restore, save};
use support::{Temporary, attach, check, forced, populate, small, tree, write_file};

#[test]
fn what_was_saved_is_restored_where_the_core_was_lost() {
    let place = Temporary::on_disk("saved");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    let store = attach(&directory);
    populate(store.fs(), 1, 60);
    let before = tree(store.fs());
    let core = store.info().core;
    store.detach().unwrap();
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert_eq!(saved.len, std::fs::metadata(&copy).unwrap().len());
    assert_eq!(saved.resumed, 0);
    std::fs::remove_file(&core).unwrap();
    let gone = Store::attach(&directory, &Attach::default()).unwrap_err();
    assert!(matches!(gone, Error::CoreGone { .. }), "{gone}");
    let restored = restore(&copy, &directory, forced()).unwrap();
    assert_eq!((restored.store, restored.bytes), (saved.store, saved.bytes));
    let store = attach(&directory);
    assert_eq!(tree(store.fs()), before);
    check(store.fs());
    populate(store.fs(), 2, 20);
    check(store.fs());
}

#[test]
fn a_copy_is_restored_to_a_directory_that_is_not_there() {
    let place = Temporary::on_disk("elsewhere");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    let store = attach(&directory);
    populate(store.fs(), 3, 30);
    let (before, uuid) = (tree(store.fs()), store.info().uuid);
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let other = place.path().join("other");
    let double = restore(&copy, &other, RestoreOptions::default()).unwrap_err();
    assert!(matches!(double, Error::OriginalLives { .. }), "{double}");
    assert!(!other.exists());
    let as_new = RestoreOptions { new_identity: true, ..RestoreOptions::default() };
    let restored = restore(&copy, &other, as_new).unwrap();
    assert_ne!(restored.store, uuid);
    // Both live, each its own life.
    let (one, two) = (attach(&directory), attach(&other));
    assert_eq!(tree(one.fs()), before);
    assert_eq!(tree(two.fs()), before);
    write_file(one.fs(), "one", b"1");
    assert_eq!(tree(two.fs()), before);
    assert_ne!(one.info().region, two.info().region);
    check(two.fs());
}

#[test]
fn who_attaches_keeps_others_from_saving_and_restoring() {
    let place = Temporary::on_disk("attached");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let store = attach(&directory);
    let refused = save(&directory, &place.path().join("two"), SaveOptions::default()).unwrap_err();
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    let refused = restore(&copy, &directory, forced()).unwrap_err();
    assert!(matches!(refused, Error::Attached { .. }), "{refused}");
    let force = conquest::NewStore { force: true, ..small() };
    let refused = Store::make(&directory, &force).unwrap_err();
    assert!(matches!(refused, Error::Attached { .. }), "{refused}");
    write_file(store.fs(), "still", b"there");
    store.detach().unwrap();
    let newer = restore(&copy, &directory, RestoreOptions::default()).unwrap_err();
    assert!(matches!(newer, Error::CoreNewer { core: 2.., copy: 1, .. }), "{newer}");
    assert!(tree(attach(&directory).fs()).contains_key("still"));
    restore(&copy, &directory, forced()).unwrap();
    assert!(tree(attach(&directory).fs()).is_empty());
}

#[test]
fn an_interrupted_save_goes_on_unless_the_store_has_changed() {
    let place = Temporary::on_disk("resume");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    let store = attach(&directory);
    for number in 0..8 {
        write_file(store.fs(), &format!("{number}"), &vec![number; 1 << 20]);
    }
    let before = tree(store.fs());
    store.detach().unwrap();
    let cancel = |at: u64| {
        let mut progress = |done, total| {
            if done * 10 > total * at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = SaveOptions { progress: Some(&mut progress), ..SaveOptions::default() };
        let cancelled = save(&directory, &copy, options).unwrap_err();
        assert!(matches!(cancelled, Error::Cancelled), "{cancelled}");
        assert!(!copy.exists());
    };
    cancel(6);
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert!(saved.resumed * 2 > saved.bytes && saved.resumed < saved.bytes, "{saved:?}");
    std::fs::remove_file(&copy).unwrap();
    // Changed meanwhile: nothing of what was saved is used.
    cancel(6);
    let store = attach(&directory);
    write_file(store.fs(), "0", b"changed");
    let after = tree(store.fs());
    assert_ne!(before, after);
    store.detach().unwrap();
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert_eq!(saved.resumed, 0);
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    assert_eq!(tree(attach(&directory).fs()), after);
    // A file of that name is kept.
    let exists = save(&directory, &copy, SaveOptions::default()).unwrap_err();
    assert!(matches!(exists, Error::CopyExists { .. }), "{exists}");
    save(&directory, &copy, SaveOptions { force: true, ..SaveOptions::default() }).unwrap();
}

#[test]
fn a_core_that_is_replaced_is_empty_for_whoever_still_has_it() {
    let place = Temporary::on_disk("emptied");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let open = || std::fs::File::open(directory.join("core")).unwrap();
    Store::make(&directory, &small()).unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let old = open();
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    assert_eq!(old.metadata().unwrap().len(), 0);
    let old = open();
    assert_ne!(old.metadata().unwrap().len(), 0);
    Store::make(&directory, &conquest::NewStore { force: true, ..small() }).unwrap();
    assert_eq!(old.metadata().unwrap().len(), 0);
    check(attach(&directory).fs());
}

#[test]
fn after_a_restart_a_copy_is_restored_without_force() {
    let place = Temporary::on_disk("after-restart");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    write_file(attach(&directory).fs(), "file", b"content");
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let core = std::fs::canonicalize(directory.join("core")).unwrap();
    std::fs::remove_file(&core).unwrap();
    // In the same boot it may be somewhere else.
    let gone = restore(&copy, &directory, RestoreOptions::default()).unwrap_err();
    assert!(matches!(gone, Error::CoreGone { .. }), "{gone}");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let path = directory.join("store.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(boot.trim(), &"0".repeat(32))).unwrap();
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    assert_eq!(tree(attach(&directory).fs()).len(), 1);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(boot.trim()), "{text}");
}

#[test]
fn which_core_is_about_to_be_live_is_known_before_it_gets_its_name() {
    let (disk, memory) = (Temporary::on_disk("order"), Temporary::in_memory("order"));
    let (directory, copy) = (disk.path().join("store"), disk.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    write_file(attach(&directory).fs(), "later", b"than the copy");
    // A directory that comes meanwhile can't be replaced by a file.
    let place = memory.path().join("core");
    let mut progress = |done, total| {
        if done == total {
            std::fs::create_dir_all(&place).unwrap();
        }
        ControlFlow::Continue(())
    };
    let core = CorePlace::Path(place.clone());
    let options = RestoreOptions { core, progress: Some(&mut progress), ..forced() };
    let refused = restore(&copy, &directory, options).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EISDIR, "{refused}");
    let text = std::fs::read_to_string(directory.join("store.toml")).unwrap();
    assert!(text.contains("\n[next]\n"), "{text}");
    assert!(!memory.path().join("core.partial").exists());
    assert!(tree(attach(&directory).fs()).contains_key("later"));
    let text = std::fs::read_to_string(directory.join("store.toml")).unwrap();
    assert!(!text.contains("\n[next]\n"), "{text}");
}

#[test]
fn what_is_left_of_a_longer_copy_is_not_in_a_shorter_one() {
    let place = Temporary::on_disk("shorter");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    let store = attach(&directory);
    for number in 0..8 {
        write_file(store.fs(), &format!("{number}"), &vec![number; 1 << 20]);
    }
    store.detach().unwrap();
    let mut progress = |done, total| {
        if done * 10 > total * 9 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = SaveOptions { progress: Some(&mut progress), ..SaveOptions::default() };
    assert!(matches!(save(&directory, &copy, options), Err(Error::Cancelled)));
    Store::make(&directory, &conquest::NewStore { force: true, ..small() }).unwrap();
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert!(saved.len < 1 << 20);
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), saved.len);
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    check(attach(&directory).fs());
}

#[test]
fn a_core_that_has_come_as_far_on_another_way_is_not_mistaken() {
    let place = Temporary::on_disk("another-way");
    let (directory, old) = (place.path().join("store"), place.path().join("old"));
    let copy = place.path().join("copy");
    let large = |number: u8| vec![number; 1 << 20];
    Store::make(&directory, &small()).unwrap();
    save(&directory, &old, SaveOptions::default()).unwrap();
    let write = |number: u8| {
        let store = attach(&directory);
        (0..6).for_each(|name| write_file(store.fs(), &format!("{name}"), &large(number)));
        let generation = store.info().attach_generation;
        store.detach().unwrap();
        generation
    };
    let generation = write(1);
    let mut progress = |done, total| {
        if done * 2 > total { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = SaveOptions { progress: Some(&mut progress), ..SaveOptions::default() };
    assert!(matches!(save(&directory, &copy, options), Err(Error::Cancelled)));
    // Back to where it was, and as far again with other contents.
    restore(&old, &directory, forced()).unwrap();
    assert_eq!(write(2), generation);
    let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
    assert_eq!(saved.resumed, 0);
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    let (_, _, _, content) = tree(attach(&directory).fs()).remove("5").unwrap();
    assert_eq!(content, large(2));
    // Nor is a copy of one taken for a copy of the other.
    restore(&old, &directory, forced()).unwrap();
    assert_eq!(write(3), generation);
    let newer = restore(&copy, &directory, RestoreOptions::default()).unwrap_err();
    assert!(matches!(newer, Error::CoreNewer { .. }), "{newer}");
}

#[test]
fn a_core_is_restored_to_another_place_and_the_old_one_removed() {
    let (disk, memory) = (Temporary::on_disk("moved"), Temporary::in_memory("moved"));
    let (directory, copy) = (disk.path().join("store"), disk.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    let store = attach(&directory);
    populate(store.fs(), 4, 20);
    let (before, old) = (tree(store.fs()), store.info().core);
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let place = memory.path().join("core");
    let there = || CorePlace::Path(place.clone());
    let options = RestoreOptions { core: there(), ..RestoreOptions::default() };
    let restored = restore(&copy, &directory, options).unwrap();
    assert_eq!(restored.core, place);
    assert!(!old.exists());
    let store = attach(&directory);
    assert_eq!((tree(store.fs()), store.info().core), (before.clone(), place.clone()));
    store.detach().unwrap();
    // What is there already and is not the store's is not overwritten, even by force.
    let other = memory.path().join("other");
    std::fs::write(&other, b"something").unwrap();
    let options = RestoreOptions { core: CorePlace::Path(other), ..forced() };
    let taken = restore(&copy, &directory, options).unwrap_err();
    assert!(matches!(taken, Error::CoreExists { .. }), "{taken}");
    // The same place again, and by default it stays where it is.
    let options = RestoreOptions { core: there(), ..forced() };
    assert_eq!(restore(&copy, &directory, options).unwrap().core, place);
    assert_eq!(restore(&copy, &directory, forced()).unwrap().core, place);
    assert_eq!(tree(attach(&directory).fs()), before);
}

#[test]
fn a_copy_of_another_store_replaces_one_only_by_force() {
    let place = Temporary::on_disk("other-store");
    let (one, two) = (place.path().join("one"), place.path().join("two"));
    let copy = place.path().join("copy");
    Store::make(&one, &small()).unwrap();
    write_file(attach(&one).fs(), "of one", b"1");
    save(&one, &copy, SaveOptions::default()).unwrap();
    Store::make(&two, &small()).unwrap();
    write_file(attach(&two).fs(), "of two", b"2");
    let refused = restore(&copy, &two, RestoreOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::CopyOfAnother { .. }), "{refused}");
    assert!(tree(attach(&two).fs()).contains_key("of two"));
    std::fs::remove_file(std::fs::canonicalize(one.join("core")).unwrap()).unwrap();
    std::fs::remove_dir_all(&one).unwrap();
    restore(&copy, &two, forced()).unwrap();
    assert!(tree(attach(&two).fs()).contains_key("of one"));
    // A store whose settings can't be read is brought back by force, too.
    std::fs::write(two.join("store.toml"), "torn").unwrap();
    assert!(restore(&copy, &two, RestoreOptions::default()).is_err());
    restore(&copy, &two, forced()).unwrap();
    check(attach(&two).fs());
}

#[test]
fn a_core_that_somebody_has_attached_is_not_replaced_even_if_it_is_not_the_live_one() {
    let place = Temporary::on_disk("foreign-attached");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &small()).unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let store = attach(&directory);
    // As if another core were the live one.
    let path = directory.join("store.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let foreign: String = text
        .lines()
        .map(|line| if line.starts_with("device") { "device = \"9:9\"" } else { line })
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&path, foreign).unwrap();
    let refused = restore(&copy, &directory, RestoreOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::CoreForeign { .. }), "{refused}");
    let refused = restore(&copy, &directory, forced()).unwrap_err();
    assert!(matches!(refused, Error::Attached { .. }), "{refused}");
    write_file(store.fs(), "still", b"there");
    store.detach().unwrap();
    restore(&copy, &directory, forced()).unwrap();
    assert!(tree(attach(&directory).fs()).is_empty());
}
