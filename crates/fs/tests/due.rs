//! What large files have in the core until somebody pushes it, and the list of those that have
//! something to be pushed or trimmed.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use conquest_format::fs::{CHUNK, chunk, root};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::inode::{offset_of, word};
use conquest_format::{PAGE, WORD, pointer};
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::feed::{NoticeKind, Told};
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::{New, Removal};
use conquest_fs::placement::THRESHOLD as OWN;
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, Error, FileId, NewFileSystem};
use conquest_pm::Core;
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::memory::Memory;
use conquest_testkit::Rng;
use conquest_testkit::files::{RamSpace, root_user};
use store::{NEW, Store, refused};

const THRESHOLD: u64 = 4 * PAGE;

const LARGE: NewLarge = NewLarge { threshold: THRESHOLD, chunk_blocks: chunk::BLOCKS_MIN };

const NEW_LARGE: NewFileSystem = NewFileSystem { large: Some(LARGE), ..NEW };

/// A store of so many groups with a volume.
fn hybrid(groups: u64) -> Store {
    Store::with(groups, &NEW_LARGE)
}

fn cut(store: &Store, file: FileId, pages: u64) {
    store.truncate(&root_user(), file, pages * PAGE).unwrap();
}

fn used(store: &Store) -> u64 {
    store.core().pages_used()
}

#[test]
fn what_is_due_is_pushed_once() {
    let store = hybrid(4);
    let files: Vec<FileId> = (0..5).map(|index| store.file(&format!("{index}"), b"")).collect();
    let empty = used(&store);
    for (&file, pages) in files.iter().zip([3, 9, 40, 7, 5]) {
        store.append(file, pages, 7);
    }
    assert!(store.has_due().unwrap() && used(&store) > empty + 60);
    // Of one nothing is left to be pushed, and one is small again, in the core.
    store.push(files[2], Wait::Forever).unwrap();
    store.truncate(&root_user(), files[4], 3 * PAGE).unwrap();
    store.trim_chunks().unwrap();
    assert!(store.has_due().unwrap());
    assert_eq!(store.push_due(|| false).unwrap(), 3);
    assert!(!store.has_due().unwrap());
    assert_eq!(store.push_due(|| false).unwrap(), 0);
    for (&file, pages) in files.iter().zip([3, 9, 40, 7, 3]) {
        assert_eq!(store.get(file), vec![7; (pages * PAGE) as usize]);
    }
    // A page more is due again.
    store.append(files[1], 1, 8);
    assert!(store.has_due().unwrap());
    assert_eq!(store.push_due(|| true).unwrap(), 0);
    assert_eq!(store.push_due(|| false).unwrap(), 1);
    assert_eq!(store.get(files[1]), [vec![7; 9 * PAGE as usize], vec![8; PAGE as usize]].concat());
    store.examine();
}

#[test]
fn what_is_cut_off_is_trimmed_and_the_rest_pushed() {
    let store = hybrid(4);
    let (cut, gone) = (store.file("cut", b""), store.file("gone", b""));
    for file in [cut, gone] {
        store.append(file, 20, 1);
        store.push(file, Wait::Forever).unwrap();
    }
    assert_eq!(store.push_due(|| false).unwrap(), 2);
    // First pages that are to be pushed, and then something to be trimmed, and the other way round.
    store.append(gone, 5, 2);
    store.truncate(&root_user(), gone, 10 * PAGE).unwrap();
    store.truncate(&root_user(), cut, 10 * PAGE).unwrap();
    store.append(cut, 5, 2);
    assert_eq!(store.trim_chunks().unwrap(), 2);
    assert!(store.has_due().unwrap());
    let expected = [vec![1; 10 * PAGE as usize], vec![2; 5 * PAGE as usize]].concat();
    assert_eq!(store.get(cut), expected);
    store.push_due(|| false).unwrap();
    assert!(!store.has_due().unwrap());
    assert_eq!((store.get(cut), store.get(gone)), (expected.clone(), vec![1; 10 * PAGE as usize]));
    // One that is removed is only trimmed.
    store.append(gone, 5, 2);
    store.remove(&root_user(), store.root(), b"gone", Removal::File).unwrap();
    assert_eq!(store.push_due(|| false).unwrap(), 0);
    assert_eq!(store.trim_chunks().unwrap(), 1);
    assert!(!store.has_due().unwrap());
    assert_eq!(store.get(cut), expected);
    store.examine();
}

/// Otherwise it might be there again after a power cut, without its bytes.
#[test]
fn what_was_cut_off_is_trimmed_when_that_is_durable_also_by_who_moves_the_end_on() {
    for pages in [1, 64] {
        let space = RamSpace::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (notes, there) = (Arc::clone(&seen), space.clone());
        let make = move |core: &Core<Mapped, OsHost>| {
            notes.lock().unwrap().push(there.pages());
            core.set_durable(core.next_sequence())
        };
        let store = Store::logged(&NEW_LARGE, Box::new(space.clone()), Some(Box::new(make)));
        let file = store.file("file", b"");
        store.append(file, 20, 1);
        store.push(file, Wait::Forever).unwrap();
        cut(&store, file, 10);
        seen.lock().unwrap().clear();
        store.put(file, 10 * PAGE, &vec![2; (pages * PAGE) as usize]);
        store.push(file, Wait::Forever).unwrap();
        assert_eq!(*seen.lock().unwrap(), [20], "{pages}");
        assert_eq!(space.pages() as u64, 10 + pages);
        let expected = [vec![1; 10 * PAGE as usize], vec![2; (pages * PAGE) as usize]].concat();
        assert!(store.get(file) == expected);
        store.examine();
    }
}

#[test]
fn what_is_removed_later_is_left_for_the_next_one_who_trims() {
    let store = hybrid(4);
    for name in ["one", "two"] {
        let file = store.file(name, b"");
        store.append(file, 20, 1);
        store.push(file, Wait::Forever).unwrap();
    }
    assert_eq!(store.push_due(|| false).unwrap(), 2);
    let remove = |name: &[u8]| {
        store.remove(&root_user(), store.root(), name, Removal::File).unwrap();
    };
    assert_eq!(store.trim_unneeded(store.unneeded().unwrap()).unwrap(), 0);
    remove(b"one");
    let (seen, twice) = (store.unneeded().unwrap(), store.unneeded().unwrap());
    assert!(!seen.may_be_more());
    remove(b"two");
    assert_eq!(store.trim_unneeded(seen).unwrap(), 1);
    // That has been done already.
    assert_eq!(store.trim_unneeded(twice).unwrap(), 0);
    assert!(store.has_due().unwrap());
    assert_eq!(store.trim_unneeded(store.unneeded().unwrap()).unwrap(), 1);
    assert!(!store.has_due().unwrap());
    store.examine();
}

#[test]
fn a_file_that_is_cut_off_keeps_no_tree_without_a_page() {
    let store = hybrid(4);
    let file = store.file("file", b"");
    // A tree of one node, and one of several.
    for (pages, page) in [(40, 30), (1000, 30), (1000, 900)] {
        cut(&store, file, 0);
        store.append(file, pages, 1);
        store.push(file, Wait::Forever).unwrap();
        let empty = used(&store);
        store.put(file, page * PAGE, &[2; 9]);
        assert!(used(&store) > empty + 1);
        cut(&store, file, 20);
        assert_eq!(used(&store), empty);
        assert!(store.get(file) == vec![1; 20 * PAGE as usize]);
        // A page below the end keeps it.
        store.put(file, 3 * PAGE, &[2; 9]);
        let kept = used(&store);
        assert!(kept > empty + 1);
        store.put(file, 15 * PAGE, &[2; 9]);
        cut(&store, file, 10);
        assert_eq!(used(&store), kept);
        assert_eq!(store.get(file)[3 * PAGE as usize..][..10], [2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    }
    store.examine();
}

#[test]
fn what_gets_no_shorter_has_nothing_to_be_trimmed() {
    let store = hybrid(4);
    let file = store.file("file", b"");
    store.append(file, 20, 1);
    store.push_due(|| false).unwrap();
    assert!(!store.has_due().unwrap());
    for size in [20 * PAGE, 20 * PAGE - 5, 30 * PAGE] {
        store.truncate(&root_user(), file, size).unwrap();
        // The page in which it ends was brought in, to be changed.
        store.push_due(|| false).unwrap();
        assert!(!store.has_due().unwrap(), "{size}");
    }
    store.examine();
}

#[test]
fn of_what_is_to_be_trimmed_so_much_is_looked_at_together() {
    let store = hybrid(4);
    let (count, at_once) = (300, 256);
    let name = |number| format!("{number}");
    for number in 0..count {
        let file = store.file(&name(number), b"");
        store.append(file, 5, 1);
        store.truncate(&root_user(), file, 0).unwrap();
    }
    let seen = store.unneeded().unwrap();
    assert!(seen.may_be_more());
    assert_eq!(store.trim_unneeded(seen).unwrap(), at_once);
    let seen = store.unneeded().unwrap();
    assert!(!seen.may_be_more());
    assert_eq!(store.trim_unneeded(seen).unwrap(), count - at_once);
    assert!(!store.has_due().unwrap());
    store.examine();
}

/// Where the data of a file is, and that it goes elsewhere, is told nobody.
#[test]
fn only_what_is_written_is_told_of() {
    let store = hybrid(4);
    let mut follower = store.follow();
    let mut told = || {
        let mut kinds = Vec::new();
        while let Some(Told::Notice(notice)) = follower.next(&mut [0; 255]).unwrap() {
            kinds.push(notice.kind);
        }
        kinds
    };
    let file = store.file("file", b"some");
    told();
    // It becomes large, in several steps, and goes to the volume at once.
    store.put(file, 0, &vec![1; 100 * PAGE as usize]);
    assert_eq!(told(), [NoticeKind::Content]);
    // The page is brought in before, and pushed then.
    store.put(file, 10 * PAGE + 5, &[2; 9]);
    assert_eq!(told(), [NoticeKind::Content]);
    store.push(file, Wait::Forever).unwrap();
    store.push_due(|| false).unwrap();
    assert_eq!(told(), []);
    // Nor that what it has ahead is given back.
    store.append(file, 3, 3);
    assert!(store.pages(file) > 104);
    assert_eq!(told(), [NoticeKind::Content; 3]);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(told(), []);
    // It moves back.
    store.truncate(&root_user(), file, 3 * PAGE).unwrap();
    assert_eq!(told(), [NoticeKind::Size]);
    store.trim_chunks().unwrap();
    assert_eq!(told(), []);
    store.examine();
}

#[test]
fn space_that_is_asked_for_up_to_the_end_is_not_kept_behind_it() {
    let store = hybrid(4);
    let file = store.file("file", b"");
    store.append(file, 20, 1);
    store.push(file, Wait::Forever).unwrap();
    let keeps = Allocate::Space { keeps_size: true };
    store.allocate(&root_user(), file, keeps, 0, 20 * PAGE).unwrap();
    let before = used(&store);
    store.append(file, 10, 2);
    // It has pages ahead, as ever.
    assert!(used(&store) > before + 12, "{} pages", used(&store) - before);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.pages(file), 30);
    store.examine();
}

/// What was found to be trimmed may be trimmed already, be another file's, or be cut off or in use
/// again, when it is come by: then it is as it should be.
#[test]
fn what_is_not_as_it_was_found_is_not_trimmed() {
    let (space, new) = (RamSpace::default(), NewFileSystem { large: Some(LARGE), ..NEW });
    type Work<'w> = &'w dyn Fn(&Store, FileId);
    let others: [(&str, Work<'_>, u64); 5] = [
        ("trimmed", &|_, _| {}, 10),
        ("in use again", &|store, file| store.append(file, 10, 2), 20),
        ("cut off again", &|store, file| cut(store, file, 7), 10),
        (
            "cut off there again",
            &|store, file| {
                store.append(file, 10, 2);
                store.push(file, Wait::Forever).unwrap();
                cut(store, file, 10);
            },
            20,
        ),
        ("cut off before it is trimmed", &|store, file| cut(store, file, 7), 20),
    ];
    for (what, work, pages) in others {
        let store = Store::with_space(4, &new, Box::new(space.clone()));
        let file = store.file("file", b"");
        store.append(file, 20, 1);
        store.push_due(|| false).unwrap();
        cut(&store, file, 10);
        let seen = store.unneeded().unwrap();
        if !what.contains("before") {
            assert_eq!(store.trim_chunks().unwrap(), 1, "{what}");
        }
        work(&store, file);
        store.push(file, Wait::Forever).unwrap();
        let bytes = store.get(file);
        assert_eq!(store.trim_unneeded(seen).unwrap(), 0, "{what}");
        assert!(store.get(file) == bytes, "{what}");
        assert_eq!(space.pages() as u64, pages, "{what}");
        store.push_due(|| false).unwrap();
        store.trim_chunks().unwrap();
        assert_eq!(space.pages() as u64, store.pages(file), "{what}");
        store.examine();
        store.remove(&root_user(), store.root(), b"file", Removal::File).unwrap();
        store.trim_chunks().unwrap();
        assert_eq!(space.pages(), 0, "{what}");
    }
}

#[test]
fn what_was_found_unneeded_and_is_another_files_is_not_trimmed() {
    for is_cut in [false, true] {
        let store = hybrid(4);
        store.append(store.file("one", b""), 20, 1);
        store.push_due(|| false).unwrap();
        store.remove(&root_user(), store.root(), b"one", Removal::File).unwrap();
        let seen = store.unneeded().unwrap();
        assert_eq!(store.trim_chunks().unwrap(), 1);
        let other = store.file("other", b"");
        store.append(other, 20, 2);
        store.push_due(|| false).unwrap();
        if is_cut {
            cut(&store, other, 10);
        }
        let bytes = store.get(other);
        assert_eq!(store.trim_unneeded(seen).unwrap(), 0);
        assert!(store.get(other) == bytes, "{is_cut}");
        assert_eq!(store.trim_chunks().unwrap(), u64::from(is_cut));
        store.examine();
    }
}

#[test]
fn what_is_removed_makes_space_for_what_is_pushed_or_written_at_once() {
    let (space, new) = (RamSpace::default(), NewFileSystem { large: Some(LARGE), ..NEW });
    let store = Store::with_space(8, &new, Box::new(space.clone()));
    space.limit(100);
    for (at_once, other) in [(false, "one"), (true, "two")] {
        let file = store.file(other, b"");
        match at_once {
            false => store.append(file, 80, 1),
            true => store.put(file, 0, &[1; 80 * PAGE as usize]),
        }
        store.push(file, Wait::Forever).unwrap();
        assert_eq!((space.pages(), store.pages(file)), (80, 80));
        store.remove(&root_user(), store.root(), other.as_bytes(), Removal::File).unwrap();
        assert_eq!(space.pages(), 80);
    }
    // If nothing can be had there is none.
    let file = store.file("file", b"");
    store.append(file, 110, 1);
    let pushed = store.push(file, Wait::Forever);
    assert_eq!(refused(pushed), Errno::ENOSPC);
    assert!(store.get(file) == vec![1; 110 * PAGE as usize]);
    store.examine();
}

#[test]
fn what_is_damaged_is_told_by_who_pushes_what_is_due() {
    let store = hybrid(4);
    let file = store.file("file", b"");
    store.append(file, 20, 1);
    let at = offset_of(file.number).unwrap().plus(word::SIZE);
    let (memory, before) =
        (store.core().memory(), store.core().memory().load(at, Ordering::Relaxed));
    memory.put(at, before ^ 1 << 40, Ordering::Relaxed);
    let error = store.push_due(|| false).unwrap_err();
    assert!(matches!(error, Error::Core(conquest_pm::Error::Corrupt { .. })), "{error}");
    memory.put(at, before, Ordering::Relaxed);
    assert_eq!(store.push_due(|| false).unwrap(), 1);
    store.examine();
}

/// There is no keeper to do it.
#[test]
fn who_writes_pushes_when_there_is_much_and_when_he_closes_the_file() {
    let store = hybrid(8);
    let (who, file) = (&root_user(), store.file("file", b""));
    store.append(file, 600, 1);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.pages(file), 600);
    let mut count = 0;
    while count == 0 || store.pages(file) > 600 {
        store.put(file, count * PAGE + 5, &[2; 9]);
        count += 1;
    }
    // The node of the tree is a page, too.
    assert_eq!(count, 255);
    let open = store.open_path(who, "file", libc::O_RDWR).unwrap();
    store.write_at(who, &open, 7, &[3; 9]).unwrap();
    assert!(store.pages(file) > 600);
    store.close(&open).unwrap();
    assert_eq!(store.pages(file), 600);
    store.examine();
}

#[test]
fn a_program_may_have_any_number_of_pages_in_the_core() {
    let store = hybrid(8);
    let file = store.make("program", New::Regular, 0o755);
    store.append(file, 1100, 1);
    assert!(store.pages(file) >= 1100);
    assert_eq!(store.push_due(|| false).unwrap(), 0);
    assert!(store.get(file) == vec![1; 1100 * PAGE as usize]);
    store.examine();
}

/// A threshold of its own that was set later.
#[test]
fn what_a_large_file_has_below_its_threshold_is_not_due() {
    for (threshold, is_due) in [("39K", true), ("40K", false), ("41K", false)] {
        let store = hybrid(4);
        let (listed, other) = (store.file("listed", b""), store.file("other", b""));
        for file in [listed, other] {
            store.append(file, 10, 1);
        }
        store.push_due(|| false).unwrap();
        store.put(listed, 5, &[2; 9]);
        for file in [listed, other] {
            let value = threshold.as_bytes();
            store.set_attribute(&root_user(), file, OWN, value, Setting::Any).unwrap();
        }
        // What is on the list goes from it.
        assert_eq!(store.push_due(|| false).unwrap(), 1, "{threshold}");
        assert!(!store.has_due().unwrap(), "{threshold}");
        assert_eq!(store.pages(listed) > 10, !is_due, "{threshold}");
        store.put(other, 5, &[2; 9]);
        assert_eq!(store.has_due().unwrap(), is_due, "{threshold}");
        store.examine();
    }
}

#[test]
fn if_no_chunk_is_left_there_is_no_space() {
    let store = hybrid(4);
    let (file, last) = (store.file("file", &[1; 9]), store.file("last", &[1; 9]));
    let (next, memory) = (STATE_ROOTS.plus(root::NEXT_CHUNK * WORD), store.core().memory());
    let most = u64::MAX / chunk::BLOCKS_MIN;
    memory.put(next, most - 1, Ordering::Relaxed);
    store.put(last, 0, &[2; 5 * PAGE as usize]);
    assert_eq!(memory.load(next, Ordering::Relaxed), most);
    let written = store.write(&root_user(), file, WriteAt::Offset(0), &[2; 5 * PAGE as usize]);
    assert_eq!(refused(written), Errno::ENOSPC);
    assert!(store.get(file) == [1; 9] && store.get(last) == [2; 5 * PAGE as usize]);
    store.examine();
}

#[test]
fn a_list_that_leads_to_no_chunk_is_refused() {
    let store = hybrid(4);
    let file = store.file("file", b"");
    store.append(file, 20, 1);
    let (head, memory) = (STATE_ROOTS.plus(root::DUE * WORD), store.core().memory());
    let before = memory.load(head, Ordering::Relaxed);
    let inode = offset_of(file.number).unwrap();
    memory.put(head, pointer::pack(inode, CHUNK), Ordering::Relaxed);
    for told in [store.push_due(|| false), store.trim_chunks()] {
        let error = told.unwrap_err();
        assert!(matches!(error, Error::Core(conquest_pm::Error::Corrupt { .. })), "{error}");
    }
    memory.put(head, before, Ordering::Relaxed);
    assert_eq!(store.push_due(|| false).unwrap(), 1);
    store.examine();
}

#[test]
fn all_that_is_due_is_trimmed_however_many_there_are() {
    let store = hybrid(4);
    let count = 600;
    let name = |number| format!("{number}");
    for number in 0..count {
        store.append(store.file(&name(number), b""), 5, 1);
    }
    // Some were pushed to make room.
    assert!(store.push_due(|| false).unwrap() <= count);
    for number in 0..count {
        let name = name(number);
        store.remove(&root_user(), store.root(), name.as_bytes(), Removal::File).unwrap();
    }
    assert_eq!(store.trim_chunks().unwrap(), count);
    assert!(!store.has_due().unwrap());
    store.examine();
}

/// Whatever is pushed, trimmed and removed in whatever order, the list has what is due.
#[test]
fn the_list_has_what_is_due() {
    for seed in 0..20 {
        let store = hybrid(4);
        let mut rng = Rng::new(seed);
        let mut files: Vec<(String, FileId, Vec<u8>)> = Vec::new();
        for step in 0..150_u32 {
            let any = rng.below(files.len().max(1) as u64) as usize;
            match rng.below(8) {
                0 | 1 if files.len() < 8 => {
                    let name = format!("{step}");
                    let file = store.file(&name, b"");
                    files.push((name, file, Vec::new()));
                }
                2 if !files.is_empty() => {
                    let (name, ..) = files.remove(any);
                    store
                        .remove(&root_user(), store.root(), name.as_bytes(), Removal::File)
                        .unwrap();
                }
                3 => drop(store.trim_chunks().unwrap()),
                4 => drop(store.push_due(|| false).unwrap()),
                action if !files.is_empty() => {
                    let (_, file, bytes) = &mut files[any];
                    match action {
                        5 => {
                            let len = rng.below(bytes.len() as u64 + 1);
                            store.truncate(&root_user(), *file, len).unwrap();
                            bytes.truncate(len as usize);
                        }
                        _ => {
                            let more = vec![step as u8; 1 + rng.below(9 * PAGE) as usize];
                            store.put(*file, bytes.len() as u64, &more);
                            bytes.extend(more);
                        }
                    }
                }
                _ => {}
            }
            if step % 30 == 29 {
                store.examine();
            }
        }
        store.push_due(|| false).unwrap();
        store.trim_chunks().unwrap();
        assert!(!store.has_due().unwrap(), "seed {seed}");
        for (name, file, bytes) in &files {
            assert!(store.get(*file) == *bytes, "{name}, seed {seed}");
        }
        store.examine();
    }
}

#[test]
fn a_core_that_is_full_of_what_is_due_is_not_full() {
    let store = hybrid(4);
    // Also when that has happened before.
    for round in 0..2 {
        // Files that are not closed, with as much as is not pushed yet.
        let mut files = Vec::new();
        while used(&store) < 3 * 512 {
            let file = store.file(&format!("{round}-large-{}", files.len()), b"");
            store.append(file, 200, files.len() as u8);
            files.push(file);
        }
        let small = |index| format!("{round}-small-{index}");
        for index in 0..600 {
            let file = store.make(&small(index), New::Regular, 0o644);
            store.put(file, 0, &[3; 2 * PAGE as usize]);
        }
        for (value, &file) in (0_u8..).zip(&files) {
            assert!(store.get(file) == vec![value; 200 * PAGE as usize], "{value}");
        }
        for index in 0..600 {
            let name = small(index);
            store.remove(&root_user(), store.root(), name.as_bytes(), Removal::File).unwrap();
        }
    }
    store.examine();
}

#[test]
fn a_core_that_is_full_of_what_can_not_be_pushed_is_full() {
    let store = hybrid(1);
    let (who, file) = (&root_user(), store.file("file", b""));
    store.set_attribute(who, file, OWN, b"core", Setting::Any).unwrap();
    let mut size = 0;
    let full = loop {
        match store.write(who, file, WriteAt::End, &[1; 100 * PAGE as usize]) {
            Ok((_, len)) => size += len,
            Err(error) => break error,
        }
    };
    assert_eq!(full.errno(), Errno::ENOSPC);
    assert!(size > 200 * PAGE && store.get(file) == vec![1; size as usize]);
    store.examine();
}

/// Bytes of what had these pages before are never seen.
#[test]
fn who_appends_small_pieces_has_pages_ahead_until_they_are_pushed() {
    let store = hybrid(1);
    let (empty, old) = (used(&store), store.file("old", b""));
    store.append(old, 300, 9);
    store.remove(&root_user(), store.root(), b"old", Removal::File).unwrap();
    assert!(used(&store) < empty + 10);
    let file = store.file("new", b"");
    store.append(file, 6, 1);
    let (mut pages, mut changes) = (store.pages(file), 0);
    for _ in 0..34 {
        store.append(file, 1, 1);
        changes += u32::from(store.pages(file) != pages);
        pages = store.pages(file);
    }
    assert!((1..=3).contains(&changes) && pages > 40, "{changes} changes, {pages} pages");
    // Over some of what is ahead; what is written behind that is put where it belongs.
    let size = store.stat(file).unwrap().size;
    store.truncate(&root_user(), file, size + PAGE + 7).unwrap();
    store.put(file, size + 3 * PAGE + 1, &[2; 9]);
    let mut wanted = vec![1; size as usize];
    wanted.resize((size + 3 * PAGE + 1) as usize, 0);
    wanted.extend([2; 9]);
    assert!(store.get(file) == wanted);
    store.push(file, Wait::Forever).unwrap();
    assert!(used(&store) < empty + 4 && store.pages(file) <= 44, "{}", store.pages(file));
    assert!(store.get(file) == wanted);
    // What is asked for stays, and nothing comes to it.
    let keeps = Allocate::Space { keeps_size: true };
    let size = store.stat(file).unwrap().size;
    store.allocate(&root_user(), file, keeps, size, 3 * PAGE).unwrap();
    store.append(file, 8, 3);
    assert!(used(&store) < empty + 13, "{} pages", used(&store));
    wanted.resize((size + 8 * PAGE) as usize, 3);
    assert!(store.get(file) == wanted);
    store.examine();
}
