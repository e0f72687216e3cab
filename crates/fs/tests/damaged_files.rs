//! Inodes and contents that say what can't be: whoever looks at them, or changes them, is told so,
//! and nothing that is free is taken for theirs.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::sync::atomic::Ordering;

use conquest_format::fs::attributes::Header;
use conquest_format::fs::tree::{SLOTS, Slot};
use conquest_format::fs::{DATA, INODE, TREE};
use conquest_format::inode::{WORDS, offset_of, word};
use conquest_format::{Offset, PAGE, WORD, pointer};
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::names::{New, Removal, Renaming};
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, Error, FileId};
use conquest_pm::memory::Memory;
use conquest_testkit::files::root_user;
use store::Store;

fn index(offset: u64) -> usize {
    (offset / WORD) as usize
}

fn word_of(store: &Store, file: FileId, offset: u64) -> u64 {
    let at = offset_of(file.number).unwrap().plus(offset);
    store.core().memory().load(at, Ordering::Relaxed)
}

/// That the error is one of damage, at some place.
fn is_damage<T: core::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert_eq!(error.errno(), Errno::EIO, "{error}");
    assert!(matches!(error, Error::Core(conquest_pm::Error::Corrupt { .. })), "{error}");
}

/// That nobody reads `file` or changes its bytes.
fn nobody_uses(store: &Store, file: FileId) {
    let who = &root_user();
    let mut bytes = [0; 100];
    is_damage(store.read_file(file, 0, &mut bytes));
    is_damage(store.write(who, file, WriteAt::Offset(0), &[1; 5000]));
    is_damage(store.write(who, file, WriteAt::Offset(10), b"x"));
    is_damage(store.allocate(who, file, Allocate::Zeros { keeps_size: true }, 0, 10));
    is_damage(store.check());
}

/// A page that is free.
fn free_page(store: &Store) -> Offset {
    store.core().geometry().page(400)
}

fn copy_page(store: &Store, from: Offset, to: Offset) {
    let memory = store.core().memory();
    for place in (0..PAGE / WORD).map(|index| index * WORD) {
        let word = memory.load(from.plus(place), Ordering::Relaxed);
        memory.put(to.plus(place), word, Ordering::Relaxed);
    }
}

#[test]
fn an_inode_with_a_wrong_word_is_refused() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"some");
    let at = offset_of(file.number).unwrap();
    let memory = store.core().memory();
    // The time of the last look is not checked: any will do.
    let checked = |offset: &u64| *offset != word::ATIME;
    for offset in (0..WORDS as u64).map(|index| index * WORD).filter(checked) {
        let old = word_of(&store, file, offset);
        memory.put(at.plus(offset), old ^ 1 << 40, Ordering::Relaxed);
        if offset == word::GENERATION {
            assert_eq!(store.stat(file).unwrap_err().errno(), Errno::ESTALE);
            assert!(store.set_mode(who, file, 0).is_err());
        } else {
            is_damage(store.stat(file));
            is_damage(store.set_mode(who, file, 0));
            is_damage(store.read_file(file, 0, &mut [0; 4]));
            is_damage(store.remove(who, store.root(), b"f", Removal::File));
        }
        memory.put(at.plus(offset), old, Ordering::Relaxed);
    }
    assert_eq!(store.get(file), b"some");
    // No such inode at all.
    for number in [0, file.number + 1, u64::MAX] {
        let other = FileId { number, ..file };
        assert_eq!(store.stat(other).unwrap_err().errno(), Errno::ESTALE);
        assert_eq!(store.set_mode(who, other, 0).unwrap_err().errno(), Errno::ESTALE);
    }
    store.examine();
}

#[test]
fn an_entry_that_leads_to_no_inode_is_refused() {
    let store = Store::new(2);
    let file = store.file("f", b"some");
    let directory = store.make("d", New::Directory, 0o755);
    // The directory's parent is gone.
    let free = file.number + 40;
    store.alter(directory, |words| words[index(word::PARENT)] = free);
    is_damage(store.lookup(&root_user(), directory, b".."));
    assert_ne!(store.check().unwrap().findings, []);
}

/// Who moves a directory looks at the way up from where it is moved to.
#[test]
fn a_way_up_that_leads_nowhere_ends() {
    let store = Store::new(2);
    let who = &root_user();
    let free = store.file("f", b"some").number + 40;
    let [moved, one, two, three] =
        ["m", "1", "1/2", "1/2/3"].map(|path| store.make(path, New::Directory, 0o755));
    let move_to = |to| store.rename(who, store.root(), b"m", to, b"m", Renaming::Replace);
    // A circle: of all three, of two, of one.
    for last in [three, two, one] {
        store.alter(one, |words| words[index(word::PARENT)] = last.number);
        is_damage(move_to(three));
    }
    // To nothing that there is, and to what can't be.
    for bad in [free, free + 1, u64::MAX] {
        store.alter(one, |words| words[index(word::PARENT)] = bad);
        let refused = move_to(three).unwrap_err();
        assert_eq!(refused.errno(), Errno::ENOENT, "{bad:#x}");
    }
    store.alter(one, |words| words[index(word::PARENT)] = store.root().number);
    move_to(three).unwrap();
    assert_eq!(store.lookup(who, three, b"m").unwrap().unwrap().0, moved);
    store.examine();
}

#[test]
fn packed_bytes_in_a_free_object_are_nobodys() {
    let store = Store::new(2);
    let file = store.file("f", &[1; 100]);
    let other = store.file("g", &[2; 100]);
    let content = word_of(&store, other, word::CONTENT);
    store.remove(&root_user(), store.root(), b"g", Removal::File).unwrap();
    store.alter(file, |words| words[index(word::CONTENT)] = content);
    nobody_uses(&store, file);
}

#[test]
fn an_extent_in_free_pages_is_nobodys() {
    let store = Store::new(2);
    let file = store.file("f", &[1; 5000]);
    let free = pointer::pack(free_page(&store), DATA);
    store.alter(file, |words| words[index(word::CONTENT)] = free);
    nobody_uses(&store, file);
}

/// A file of two pages with a hole before each, and its node.
fn tree(store: &Store) -> (FileId, Offset) {
    let file = store.make("f", New::Regular, 0o600);
    store.put(file, PAGE, &[1; PAGE as usize]);
    store.put(file, 3 * PAGE, &[1; PAGE as usize]);
    let node = pointer::unpack(word_of(store, file, word::CONTENT), TREE).unwrap();
    (file, node)
}

#[test]
fn a_node_in_a_free_page_is_nobodys() {
    let store = Store::new(2);
    let (file, node) = tree(&store);
    // As good as the original.
    let free = free_page(&store);
    copy_page(&store, node, free);
    store.alter(file, |words| words[index(word::CONTENT)] = pointer::pack(free, TREE));
    nobody_uses(&store, file);
}

#[test]
fn a_page_that_is_free_is_nobodys() {
    let store = Store::new(2);
    let who = &root_user();
    let (file, node) = tree(&store);
    let slot = Slot::Page(free_page(&store)).pack();
    store.core().memory().put(node.plus(WORD), slot, Ordering::Relaxed);
    is_damage(store.read_file(file, PAGE, &mut [0; 10]));
    is_damage(store.write(who, file, WriteAt::Offset(PAGE), b"x"));
    is_damage(store.check());
    // The rest is there, and goes.
    let mut bytes = [0; 10];
    store.read_file(file, 3 * PAGE, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 10]);
    let pages = store.core().pages_used();
    store.truncate(who, file, PAGE).unwrap();
    assert!(store.core().pages_used() < pages);
    // A slot that makes no sense, too.
    let store = Store::new(2);
    let (file, node) = tree(&store);
    store.core().memory().put(node.plus(WORD), 77, Ordering::Relaxed);
    is_damage(store.read_file(file, PAGE, &mut [0; 10]));
    is_damage(store.check());
    store.truncate(who, file, 0).unwrap();
    assert_eq!(store.stat(file).unwrap().blocks, 0);
}

#[test]
fn a_run_that_is_free_is_nobodys() {
    let store = Store::new(4);
    let who = &root_user();
    let (file, _) = tree(&store);
    store.put(file, SLOTS * PAGE, &[1; 10]);
    let top = pointer::unpack(word_of(&store, file, word::CONTENT), TREE).unwrap();
    let slot = Slot::Run(free_page(&store), 3).pack();
    store.core().memory().put(top.plus(WORD), slot, Ordering::Relaxed);
    is_damage(store.read_file(file, SLOTS * PAGE, &mut [0; 10]));
    is_damage(store.check());
    // It is left alone, and the rest goes.
    store.truncate(who, file, 2 * PAGE).unwrap();
    assert_eq!(store.get(file)[PAGE as usize..], [1; PAGE as usize]);
}

#[test]
fn attributes_elsewhere_are_nobodys() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"");
    store.set_attribute(who, file, b"user.a", b"value", Setting::Any).unwrap();
    let good = word_of(&store, file, word::ATTRIBUTES);
    let inode = pointer::pack(offset_of(file.number).unwrap(), INODE);
    for bad in [inode, good + 1, good & !0xFFF, pointer::pack(free_page(&store), DATA), 1] {
        store.alter(file, |words| words[index(word::ATTRIBUTES)] = bad);
        let found = store.attribute(who, file, b"user.a");
        assert_eq!(found.unwrap_err().errno(), Errno::EIO, "{bad:#x}");
        let set = store.set_attribute(who, file, b"user.b", b"", Setting::Any);
        assert_eq!(set.unwrap_err().errno(), Errno::EIO, "{bad:#x}");
        assert!(store.remove(who, store.root(), b"f", Removal::File).is_err());
        assert!(store.check().is_err());
    }
    store.alter(file, |words| words[index(word::ATTRIBUTES)] = good);
    // Their own bytes, and their length.
    let at = Offset::new(good & ((1 << 48) - 1) & !63);
    let memory = store.core().memory();
    for (offset, bit) in [(0, 1 << 3), (0, 1 << 40), (8, 1), (16, 1), (24, 1)] {
        let old = memory.load(at.plus(offset), Ordering::Relaxed);
        memory.put(at.plus(offset), old ^ bit, Ordering::Relaxed);
        let found = store.attribute(who, file, b"user.a");
        assert_eq!(found.unwrap_err().errno(), Errno::EIO, "{offset}");
        memory.put(at.plus(offset), old, Ordering::Relaxed);
    }
    assert_eq!(store.attribute(who, file, b"user.a").unwrap(), b"value");
    store.examine();
}

/// Attributes whose checksum is right but whose names are not in order can't be of ours.
#[test]
fn a_name_that_is_there_twice_is_damage() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", b"");
    for name in [b"user.a", b"user.b"] {
        store.set_attribute(who, file, name, b"1234567890", Setting::Any).unwrap();
    }
    let at = Offset::new(word_of(&store, file, word::ATTRIBUTES) & ((1 << 48) - 1) & !63);
    let memory = store.core().memory();
    let len = memory.load(at, Ordering::Relaxed);
    let places = (0..len.div_ceil(WORD)).map(|index| at.plus(index * WORD));
    let words = places.clone().map(|place| memory.load(place, Ordering::Relaxed));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let second = bytes.windows(6).position(|name| name == b"user.b").unwrap();
    bytes[second + 5] = b'a';
    let header = Header::of(&bytes[..len as usize]).pack();
    for (place, word) in bytes.chunks_exact_mut(WORD as usize).zip(header) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    for (place, word) in places.zip(bytes.chunks_exact(WORD as usize)) {
        memory.put(place, u64::from_le_bytes(word.try_into().unwrap()), Ordering::Relaxed);
    }
    is_damage(store.attributes(who, file));
    is_damage(store.attribute(who, file, b"user.b"));
    is_damage(store.set_attribute(who, file, b"user.c", b"", Setting::Any));
}

/// Nobody else has to do with what is damaged: closing it ends, and others go on.
#[test]
fn a_damaged_file_without_a_name_stops_nobody() {
    let store = Store::new(2);
    let who = &root_user();
    let file = store.file("f", &[1; 5000]);
    let open = store.open_path(who, "f", libc::O_RDWR).unwrap();
    store.remove(who, store.root(), b"f", Removal::File).unwrap();
    assert_eq!(store.core().orphans().count(), 1);
    let at = offset_of(file.number).unwrap().plus(word::SIZE);
    let memory = store.core().memory();
    memory.put(at, memory.load(at, Ordering::Relaxed) ^ 1 << 40, Ordering::Relaxed);
    store.close(&open).unwrap();
    assert_eq!(store.core().orphans().count(), 0);
    let other = store.file("g", b"some");
    assert_eq!(store.get(other), b"some");
}
