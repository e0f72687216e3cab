//! What children of the tests do, by the words of their role.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use conquest::{Attach, CorePlace, Error, NewStore, RestoreOptions, SaveOptions, Store};
use conquest::{restore, save};

use super::{attach, check, forced, role, small, write_file};

/// What children do: one of the things that a store is for. Without a role, nothing.
pub fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    let path = |word: &str| PathBuf::from(word);
    match words.as_slice() {
        ["make", directory] => Store::make(&path(directory), &small()).unwrap(),
        ["make at", directory, core] => {
            let new = NewStore { core: CorePlace::Path(path(core)), ..small() };
            Store::make(&path(directory), &new).unwrap();
        }
        ["save", directory, copy] => {
            let options = SaveOptions { force: true, ..SaveOptions::default() };
            save(&path(directory), &path(copy), options).unwrap();
        }
        ["save until", directory, copy, calls] => {
            let mut progress = dies_after(calls.parse().unwrap());
            let options = SaveOptions { progress: Some(&mut progress), force: true };
            save(&path(directory), &path(copy), options).unwrap();
        }
        ["restore", copy, directory] => {
            _ = restore(&path(copy), &path(directory), forced()).unwrap()
        }
        ["restore until", copy, directory, calls] => {
            let mut progress = dies_after(calls.parse().unwrap());
            let options = RestoreOptions { progress: Some(&mut progress), ..forced() };
            restore(&path(copy), &path(directory), options).unwrap();
        }
        ["save slowly", directory, copy, sign] => {
            let mut progress = |_, _| {
                std::fs::write(sign, b"").unwrap();
                std::thread::sleep(Duration::from_secs(60));
                ControlFlow::Continue(())
            };
            let options = SaveOptions { progress: Some(&mut progress), force: true };
            save(&path(directory), &path(copy), options).unwrap();
        }
        ["hold", directory, sign] => {
            let store = attach(&path(directory));
            write_file(store.fs(), "held", b"by a child");
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["write", directory, name] => {
            let store = attach(&path(directory));
            write_file(store.fs(), name, name.as_bytes());
            store.detach().unwrap();
        }
        other => is_refused(other),
    }
}

/// What children do that are refused.
fn is_refused(words: &[&str]) {
    let path = |word: &str| PathBuf::from(word);
    match words {
        ["foreign", directory] => {
            let error = Store::attach(&path(directory), &Attach::default()).unwrap_err();
            assert!(
                matches!(error, Error::CoreForeign { .. } | Error::CoreOfAnother { .. }),
                "{error}"
            );
        }
        ["gone", directory] => {
            let error = Store::attach(&path(directory), &Attach::default()).unwrap_err();
            assert!(matches!(error, Error::CoreGone { .. }), "{error}");
        }
        ["denied", directory] => {
            let error = Store::attach(&path(directory), &Attach::default()).unwrap_err();
            assert_eq!(error.raw_os_error(), libc::EACCES, "{error}");
        }
        ["untrusted", directory] => {
            let error = Store::make(&path(directory), &small()).unwrap_err();
            assert!(matches!(error, Error::NoPlace { .. }), "{error}");
            assert!(!path(directory).exists());
        }
        other => is_without_space(other),
    }
}

/// What children do for which there is little space.
fn is_without_space(words: &[&str]) {
    let path = |word: &str| PathBuf::from(word);
    match words {
        ["full save", directory, small] => {
            let copy = path(small).join("copy");
            let error = save(&path(directory), &copy, SaveOptions::default()).unwrap_err();
            assert_eq!(error.raw_os_error(), libc::ENOSPC, "{error}");
            assert_eq!(std::fs::read_dir(small).unwrap().count(), 0);
        }
        ["full make", small] => {
            let directory = path(small).join("store");
            let new = NewStore { size: 8 << 20, ..super::small() };
            let error = Store::make(&directory, &new).unwrap_err();
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
            assert_eq!(std::fs::read_dir(small).unwrap().count(), 0);
        }
        ["full restore", copy, directory, small] => {
            let core = CorePlace::Path(path(small).join("core"));
            let options = RestoreOptions { core, ..forced() };
            let error = restore(&path(copy), &path(directory), options).unwrap_err();
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
            assert_eq!(std::fs::read_dir(small).unwrap().count(), 0);
        }
        ["full store", small] => {
            let directory = path(small).join("store");
            Store::make(&directory, &super::small()).unwrap();
            let store = attach(&directory);
            let usage = store.usage();
            assert!(usage.free < 8 << 20 && usage.total == 32 << 20, "{usage:?}");
            let stat = store.files().unwrap().statfs();
            assert!(stat.free < 2048 && stat.blocks < 2048, "{stat:?}");
            let error = store.grow(32 << 20).unwrap_err();
            assert!(matches!(error, Error::NoRoom { .. }), "{error}");
            write_file(store.fs(), "file", &[1; 100_000]);
            check(store.fs());
        }
        other => panic!("{other:?}"),
    }
}

/// Progress of a process that kills itself at call number `calls`.
fn dies_after(calls: u64) -> impl FnMut(u64, u64) -> ControlFlow<()> {
    let mut left = calls;
    move |_, _| {
        if left == 0 {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
        left = left.saturating_sub(1);
        ControlFlow::Continue(())
    }
}
