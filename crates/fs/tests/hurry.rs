//! Large files where there is a keeper: what is left to it, and when those who write push it
//! themselves.

#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

mod store;

use std::sync::atomic::Ordering;

use conquest_format::fs::chunk;
use conquest_format::log::head;
use conquest_format::{PAGE, volatile};
use conquest_fs::NewFileSystem;
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::New;
use conquest_fs::placement::THRESHOLD as OWN;
use conquest_fs::xattr::Setting;
use conquest_pm::memory::Memory;
use conquest_testkit::files::{RamSpace, root_user};
use store::{NEW, Store};

fn set_head(store: &Store, word: u64, value: u64) {
    let core = store.core();
    core.memory().store(core.geometry().log_head(word), value, Ordering::Relaxed);
}

/// A store with a volume, of which this process is the keeper.
fn kept() -> Store {
    let large = NewLarge { threshold: 4 * PAGE, chunk_blocks: chunk::BLOCKS_MIN };
    let new = NewFileSystem { large: Some(large), ..NEW };
    let store = Store::logged(&new, Box::new(RamSpace::default()), None);
    // By its first thread.
    let keeper = volatile::owner(store.core().slot(), std::process::id());
    set_head(&store, head::KEEPER, keeper.into());
    assert!(store.core().has_keeper());
    store
}

/// How many pages of a large file are written until they are pushed, when things are as `prepare`
/// makes them.
fn written_until_pushed(prepare: impl Fn(&Store)) -> u64 {
    let store = kept();
    let file = store.file("file", b"");
    store.append(file, 4200, 1);
    store.push(file, Wait::Forever).unwrap();
    let pushed = store.pages(file);
    store.core().set_durable(store.core().next_sequence()).unwrap();
    prepare(&store);
    let mut count = 0;
    while count == 0 || store.pages(file) > pushed {
        store.put(file, count * PAGE, &[2; 9]);
        count += 1;
    }
    store.examine();
    count
}

#[test]
fn who_writes_leaves_pushing_to_the_keeper_unless_there_is_very_much() {
    // With the nodes of the tree.
    assert_eq!(written_until_pushed(|_| ()), 4096 - 9);
    // More than half of the log is in use, of what lanes do not have anyway.
    assert_eq!(written_until_pushed(|store| set_head(store, head::USED, 35)), 255);
    // Pages of large files are an eighth of the core.
    assert_eq!(written_until_pushed(|store| set_head(store, head::PASSING, 8192)), 255);
    assert_eq!(written_until_pushed(|store| set_head(store, head::PASSING, 4000)), 4096 - 9);
    // Less than a quarter of the core is free.
    let fill = |store: &Store| {
        let program = store.make("program", New::Regular, 0o755);
        for group in 0..3 * 128 / 4 {
            store.put(program, group * 512 * PAGE, &[3; 512 * PAGE as usize]);
        }
    };
    assert_eq!(written_until_pushed(fill), 255);
}

#[test]
fn what_is_due_by_now_is_told_to_the_keeper_when_the_file_is_closed() {
    let (store, who) = (kept(), &root_user());
    let file = store.file("file", b"");
    store.append(file, 20, 1);
    store.push_due(|| false).unwrap();
    let set = |value: &[u8]| store.set_attribute(who, file, OWN, value, Setting::Any).unwrap();
    set(b"core");
    store.put(file, 5, &[2; 9]);
    set(b"16K");
    assert!(!store.has_due().unwrap());
    let open = store.open_path(who, "file", libc::O_RDWR).unwrap();
    store.close(&open).unwrap();
    assert!(store.has_due().unwrap() && store.pages(file) > 20);
    assert_eq!(store.push_due(|| false).unwrap(), 1);
    assert_eq!(store.pages(file), 20);
    store.examine();
}
