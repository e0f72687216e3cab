//! Stores and many processes: killed ones, and all at once.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use conquest::{Attach, CorePlace, Error, NewStore, RestoreOptions, SaveOptions, Store};
use conquest::{restore, save};
use conquest_testkit::Rng;
use support::{
    Temporary, attach, await_file, check, core_of, ends_well, filled, forced, kill, names, roles,
    small, start, text, tree, write_file,
};

#[test]
fn as_child() {
    roles::as_child();
}

// --- death ---------------------------------------------------------------------------------------

#[test]
fn a_process_that_was_killed_keeps_nobody_out() {
    let place = Temporary::on_disk("killed");
    let (directory, sign) = (place.path().join("store"), place.path().join("sign"));
    Store::make(&directory, &small()).unwrap();
    let holder = start(&["hold", text(&directory), text(&sign)]);
    await_file(&sign);
    let store = attach(&directory);
    let attached = store.info().attached;
    assert_eq!(attached.len(), 2, "{attached:?}");
    assert!(attached.iter().any(|one| one.process == holder.id() && !one.is_self));
    store.detach().unwrap();
    let copy = place.path().join("copy");
    let refused = save(&directory, &copy, SaveOptions::default()).unwrap_err();
    assert!(refused.to_string().contains(&format!("process {}", holder.id())), "{refused}");
    kill(holder);
    // Recovered first, then saved.
    save(&directory, &copy, SaveOptions::default()).unwrap();
    restore(&copy, &directory, RestoreOptions::default()).unwrap();
    let store = attach(&directory);
    assert_eq!(names(store.fs()), ["held"]);
    assert!(!store.info().was_dirty);
    check(store.fs());
}

#[test]
fn who_saves_keeps_others_waiting_who_are_told_and_come_in_when_he_dies() {
    let place = Temporary::on_disk("busy");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let sign = place.path().join("sign");
    filled(&directory);
    let saver = start(&["save slowly", text(&directory), text(&copy), text(&sign)]);
    await_file(&sign);
    let hasty = Attach { patience: Duration::from_millis(50), ..Attach::default() };
    let busy = Store::attach(&directory, &hasty).unwrap_err();
    assert!(matches!(busy, Error::Busy { .. }), "{busy}");
    assert!(busy.to_string().contains(&format!("process {} (saving", saver.id())), "{busy}");
    assert_eq!(busy.raw_os_error(), libc::EBUSY);
    kill(saver);
    check(Store::attach(&directory, &hasty).unwrap().fs());
}

#[test]
fn attaching_touches_as_many_pages_whatever_is_in_the_store_and_however_it_was_left() {
    let faults = |directory: &Path| {
        let minor = || -> u64 {
            let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let after = text.rsplit_once(") ").unwrap().1;
            after.split(' ').nth(7).unwrap().parse().unwrap()
        };
        let before = minor();
        let store = attach(directory);
        let faults = minor() - before;
        check(store.fs());
        faults
    };
    let place = Temporary::on_disk("constant");
    let (few, many) = (place.path().join("few"), place.path().join("many"));
    let new = NewStore { size_max: 256 << 20, ..small() };
    for (directory, files) in [(&few, 3), (&many, 20_000)] {
        Store::make(directory, &new).unwrap();
        let store = attach(directory);
        for number in 0..files {
            write_file(store.fs(), &format!("{number}"), &[1; 3000]);
        }
    }
    for directory in [&few, &many] {
        let sign = directory.join("sign");
        let holder = start(&["hold", text(directory), text(&sign)]);
        await_file(&sign);
        kill(holder);
    }
    // The first time, things of the process itself are touched.
    faults(&few);
    let (few, many) = (faults(&few), faults(&many));
    assert!(many <= few + 16, "{few} page faults with 3 files, {many} with 20,000");
}

#[test]
fn whoever_is_killed_while_saving_goes_on_afterwards() {
    let place = Temporary::on_disk("kill-save");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let before = filled(&directory);
    let mut calls = 0;
    let mut count = |_, _| {
        calls += 1;
        ControlFlow::Continue(())
    };
    let options = SaveOptions { progress: Some(&mut count), ..SaveOptions::default() };
    let whole = save(&directory, &copy, options).unwrap();
    std::fs::remove_file(&copy).unwrap();
    let mut resumed = 0;
    for at in (0..calls).step_by((calls / 12).max(1)) {
        let until = start(&["save until", text(&directory), text(&copy), &at.to_string()]);
        assert!(!ends_well(until));
        assert!(!copy.exists(), "half a copy has its name");
        let saved = save(&directory, &copy, SaveOptions::default()).unwrap();
        assert_eq!((saved.len, saved.bytes), (whole.len, whole.bytes));
        resumed = resumed.max(saved.resumed);
        assert!(!copy.with_extension("partial").exists());
        std::fs::remove_file(core_of(&directory)).unwrap();
        restore(&copy, &directory, forced()).unwrap();
        assert_eq!(tree(attach(&directory).fs()), before);
        std::fs::remove_file(&copy).unwrap();
    }
    assert!(resumed > 0, "nothing was gone on with");
    save(&directory, &copy, SaveOptions::default()).unwrap();
}

#[test]
fn whoever_is_killed_while_restoring_leaves_the_old_core_or_the_new_one() {
    let place = Temporary::on_disk("kill-restore");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let saved = filled(&directory);
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let store = attach(&directory);
    write_file(store.fs(), "later", b"than the copy");
    let later = tree(store.fs());
    store.detach().unwrap();
    // How far it comes: all is checked, then all is built, elsewhere.
    let mut calls = 0;
    let mut count = |_, _| {
        calls += 1;
        ControlFlow::Continue(())
    };
    let elsewhere = place.path().join("elsewhere");
    let options = RestoreOptions { progress: Some(&mut count), new_identity: true, ..forced() };
    restore(&copy, &elsewhere, options).unwrap();
    let mut half = 0;
    for at in (0..calls).step_by((calls / 12).max(1)) {
        let at = at.to_string();
        let until = start(&["restore until", text(&copy), text(&directory), &at]);
        assert!(!ends_well(until));
        half += u32::from(core_of(&directory).with_extension("partial").exists());
        assert_eq!(tree(attach(&directory).fs()), later, "after {at} calls");
        no_partials(&directory);
    }
    assert!(half > 0, "nobody was killed while the core was built");
    restore(&copy, &directory, forced()).unwrap();
    assert_eq!(tree(attach(&directory).fs()), saved);
    no_partials(&directory);
}

#[test]
fn whoever_is_killed_at_any_time_leaves_a_store_that_can_be_used() {
    let place = Temporary::on_disk("kill-any");
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let saved = filled(&directory);
    save(&directory, &copy, SaveOptions::default()).unwrap();
    let mut rng = Rng::new(11);
    for role in ["save", "restore"] {
        let words: [&str; 3] = match role {
            "save" => [role, text(&directory), text(&copy)],
            _ => [role, text(&copy), text(&directory)],
        };
        let since = Instant::now();
        assert!(ends_well(start(&words)));
        let longest = since.elapsed().as_micros() as u64;
        for _ in 0..25 {
            let child = start(&words);
            std::thread::sleep(Duration::from_micros(rng.below(longest)));
            kill(child);
            let store = attach(&directory);
            assert_eq!(tree(store.fs()), saved);
            check(store.fs());
        }
    }
    // The copy is whole whenever it has its name.
    restore(&copy, &directory, forced()).unwrap();
    assert_eq!(tree(attach(&directory).fs()), saved);
    save(&directory, &copy, SaveOptions { force: true, ..SaveOptions::default() }).unwrap();
    no_partials(&directory);
}

#[test]
fn whoever_is_killed_while_making_a_store_leaves_nothing_in_the_way() {
    let (place, memory) = (Temporary::on_disk("kill-make"), Temporary::in_memory("kill-make"));
    let directory = place.path().join("store");
    let core = memory.path().join("core");
    let role = ["make at", text(&directory), text(&core)];
    let clear = || {
        let _ = std::fs::remove_file(&core);
        let _ = std::fs::remove_dir_all(&directory);
    };
    let time = |_| {
        clear();
        let since = Instant::now();
        assert!(ends_well(start(&role)));
        since.elapsed().as_micros() as u64
    };
    let shortest = (0..5).map(time).min().unwrap();
    let mut rng = Rng::new(12);
    let mut unfinished = 0;
    for _ in 0..40 {
        clear();
        let child = start(&role);
        std::thread::sleep(Duration::from_micros(shortest / 3 + rng.below(shortest)));
        kill(child);
        // Somewhere else: what was left where the first one was going to be is cleared away.
        let elsewhere = memory.path().join("elsewhere");
        let new = NewStore { core: CorePlace::Path(elsewhere.clone()), ..small() };
        match Store::make(&directory, &new) {
            Ok(()) => {
                unfinished += 1;
                let left = std::fs::read_dir(memory.path()).unwrap().count();
                assert_eq!(left, 1, "something is left of the first core");
            }
            Err(error) => assert!(matches!(error, Error::Exists { .. }), "{error}"),
        }
        check(attach(&directory).fs());
        no_partials(&directory);
        let _ = std::fs::remove_file(elsewhere);
    }
    assert!(unfinished > 0, "every store was finished before its maker was killed");
}

/// Nothing under a temporary name is left of the store and its core.
fn no_partials(directory: &Path) {
    let core = core_of(directory);
    assert!(!PathBuf::from(format!("{}.partial", core.display())).exists());
    for name in ["store.toml", "core"] {
        assert!(!directory.join(format!("{name}.partial")).exists(), "{name}");
    }
}

// --- at once -------------------------------------------------------------------------------------

#[test]
fn of_many_who_make_a_store_one_does() {
    let place = Temporary::on_disk("makers");
    let directory = place.path().join("store");
    let makers: Vec<Child> = (0..8).map(|_| start(&["make", text(&directory)])).collect();
    let made = makers.into_iter().map(ends_well).filter(|well| *well).count();
    assert_eq!(made, 1);
    check(attach(&directory).fs());
}

#[test]
fn many_attach_write_and_detach_while_others_try_to_save() {
    let place = Temporary::on_disk("many");
    let directory = place.path().join("store");
    Store::make(&directory, &small()).unwrap();
    let wanted: Vec<String> = (0..12).map(|number| format!("file {number}")).collect();
    let writers: Vec<Child> =
        wanted.iter().map(|name| start(&["write", text(&directory), name])).collect();
    let savers: Vec<Child> = (0..4)
        .map(|number| {
            let copy = place.path().join(format!("copy {number}"));
            start(&["save", text(&directory), text(&copy)])
        })
        .collect();
    assert!(writers.into_iter().all(ends_well));
    for saver in savers {
        // It may have found somebody attached.
        let _ = ends_well(saver);
    }
    let store = attach(&directory);
    let mut found = names(store.fs());
    found.sort();
    let mut wanted = wanted;
    wanted.sort();
    assert_eq!(found, wanted);
    check(store.fs());
    store.detach().unwrap();
    for number in 0..4 {
        let copy = place.path().join(format!("copy {number}"));
        if copy.exists() {
            let other = place.path().join(format!("other {number}"));
            let options = RestoreOptions { new_identity: true, ..RestoreOptions::default() };
            restore(&copy, &other, options).unwrap();
            check(attach(&other).fs());
        }
    }
}

// --- cores on disks ------------------------------------------------------------------------------

/// Lets the region on `core` look as if it had been attached in another boot of the machine.
fn of_another_boot(core: &Path) {
    use conquest_format::superblock::{RawSuperblock, SIZE};
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(core).unwrap();
    for at in [0, 4096] {
        let mut bytes = [0; SIZE];
        file.read_exact_at(&mut bytes, at).unwrap();
        let mut superblock = RawSuperblock::from_bytes(&bytes).check().unwrap();
        superblock.boot_id = [7; 16];
        file.write_all_at(&superblock.to_raw().to_bytes(), at).unwrap();
    }
}

#[test]
fn a_disk_file_that_was_attached_when_the_machine_stopped_is_not_trusted() {
    let place = Temporary::on_disk("torn");
    let (directory, core) = (place.path().join("store"), place.path().join("core"));
    let sign = place.path().join("sign");
    let new = NewStore { core: CorePlace::Path(core.clone()), ..small() };
    Store::make(&directory, &new).unwrap();
    attach(&directory).detach().unwrap();
    of_another_boot(&core);
    // In order: it was detached before.
    attach(&directory).detach().unwrap();
    let holder = start(&["hold", text(&directory), text(&sign)]);
    await_file(&sign);
    kill(holder);
    // The death of a process is no reason for mistrust.
    let store = attach(&directory);
    assert!(store.info().was_dirty);
    store.detach().unwrap();
    std::fs::remove_file(&sign).unwrap();
    let holder = start(&["hold", text(&directory), text(&sign)]);
    await_file(&sign);
    kill(holder);
    of_another_boot(&core);
    let torn = Store::attach(&directory, &Attach::default()).unwrap_err();
    assert!(matches!(torn, Error::CoreTorn { .. }), "{torn}");
    let copy = place.path().join("copy");
    let torn = save(&directory, &copy, SaveOptions::default()).unwrap_err();
    assert!(matches!(torn, Error::CoreTorn { .. }), "{torn}");
    assert!(!copy.exists());
    let adopt = Attach { adopt: true, ..Attach::default() };
    check(Store::attach(&directory, &adopt).unwrap().fs());
    save(&directory, &copy, SaveOptions::default()).unwrap();
}
