//! The space that files take: when their content changes its form, what is allocated ahead and
//! given back, what goes with a hole, and what happens when there is no more.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_access::{Capabilities, Capability, Credentials, flag};
use conquest_format::PAGE;
use conquest_format::fs::tree::SLOTS;
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::names::{New, Removal};
use conquest_fs::{Errno, FileId};
use conquest_testkit::files::root_user;
use store::{SECOND, Store, refused, user};

const SPACE: Allocate = Allocate::Space { keeps_size: false };
const AHEAD: Allocate = Allocate::Space { keeps_size: true };
const ZEROS: Allocate = Allocate::Zeros { keeps_size: false };
/// Pages of a large page, which may stand in a tree as one run.
const RUN: u64 = SLOTS;

/// Bytes that tell where they are.
fn bytes(from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| (at % 251) as u8 | 1).collect()
}

fn append(store: &Store, file: FileId, len: u64) {
    let from = store.stat(file).unwrap().size;
    let done = store.write(&root_user(), file, WriteAt::End, &bytes(from, len)).unwrap();
    assert_eq!(done, (from, len));
}

fn allocate(store: &Store, file: FileId, how: Allocate, pages: core::ops::Range<u64>) {
    let (from, len) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
    store.allocate(&root_user(), file, how, from, len).unwrap();
}

/// That `file` has these bytes, and the store no fault.
fn check(store: &Store, file: FileId, expected: &[u8]) {
    let found = store.get(file);
    assert_eq!(found.len(), expected.len());
    let place = (0..found.len()).find(|&at| found[at] != expected[at]);
    assert_eq!(place, None, "a byte differs");
    store.examine();
}

fn empty(store: &Store, name: &str) -> FileId {
    store.make(name, New::Regular, 0o666)
}

#[test]
fn small_files_are_packed_as_tightly_as_can_be() {
    let store = Store::new(4);
    let file = empty(&store, "f");
    for (size, blocks) in
        [(1, 1), (64, 1), (65, 1), (512, 1), (513, 2), (1024, 2), (1025, 3), (1536, 3), (2048, 4)]
    {
        store.truncate(&root_user(), file, 0).unwrap();
        append(&store, file, size);
        assert_eq!(store.stat(file).unwrap().blocks, blocks, "{size} bytes");
        check(&store, file, &bytes(0, size));
    }
    append(&store, file, 1);
    assert_eq!(store.pages(file), 1);
    check(&store, file, &bytes(0, 2049));
    // A symbolic link's target, too.
    for (len, blocks) in [(512, 1), (2048, 4), (2049, 8), (4095, 8)] {
        let link = store.make(&format!("l{len}"), New::Symlink(&vec![b't'; len]), 0o777);
        assert_eq!(store.stat(link).unwrap().blocks, blocks);
        assert_eq!(store.read_link(link).unwrap(), vec![b't'; len]);
    }
    store.examine();
}

#[test]
fn a_file_that_grows_gets_more_and_gives_back_what_it_did_not_need() {
    let store = Store::new(6);
    let file = empty(&store, "f");
    append(&store, file, PAGE);
    assert_eq!(store.pages(file), 1);
    // A quarter of what it has, where that is.
    for pages in [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18] {
        append(&store, file, 1);
        assert_eq!(store.pages(file), pages);
        append(&store, file, pages * PAGE - store.stat(file).unwrap().size);
        assert_eq!(store.pages(file), pages);
    }
    check(&store, file, &bytes(0, 18 * PAGE));
    // One more page than there are bytes for: it goes.
    append(&store, file, 3 * PAGE);
    assert_eq!(store.pages(file), 22);
    store.trim(file).unwrap();
    assert_eq!(store.pages(file), 21);
    // Only whole pages go.
    store.truncate(&root_user(), file, 20 * PAGE + 1).unwrap();
    assert_eq!(store.pages(file), 21);
    store.trim(file).unwrap();
    assert_eq!(store.pages(file), 21);
    // Nothing is allocated ahead of what is written at once, nor past 2 MiB.
    let other = empty(&store, "g");
    append(&store, other, 300 * PAGE);
    assert_eq!(store.pages(other), 300);
    append(&store, other, 1);
    assert_eq!(store.pages(other), 316);
    append(&store, other, 212 * PAGE - 1);
    assert_eq!(store.pages(other), RUN);
    // A tree: a node, and the page; then the larger ones.
    append(&store, other, 1);
    assert_eq!(store.pages(other), RUN + 1 + 3);
    check(&store, other, &bytes(0, RUN * PAGE + 1));
}

#[test]
fn what_was_asked_for_past_the_end_stays_until_the_size_is_set() {
    let store = Store::new(4);
    let who = &root_user();
    let file = store.file("f", &bytes(0, PAGE));
    allocate(&store, file, AHEAD, 0..8);
    assert_eq!((store.stat(file).unwrap().size, store.pages(file)), (PAGE, 8));
    store.trim(file).unwrap();
    let open = store.open_path(who, "f", libc::O_RDWR).unwrap();
    store.close(&open).unwrap();
    assert_eq!(store.pages(file), 8);
    store.truncate(who, file, PAGE).unwrap();
    assert_eq!(store.pages(file), 1);
    // From now on nothing is kept.
    (0..8).for_each(|_| append(&store, file, PAGE));
    assert_eq!(store.pages(file), 10);
    store.trim(file).unwrap();
    assert_eq!(store.pages(file), 9);
    // What is not past the end is no tail.
    allocate(&store, file, AHEAD, 0..9);
    append(&store, file, PAGE);
    assert_eq!(store.pages(file), 11);
    store.trim(file).unwrap();
    assert_eq!(store.pages(file), 10);
    check(&store, file, &bytes(0, 10 * PAGE));
    // The pages that come into the file are zeros, whatever they held.
    store.truncate(who, file, 10).unwrap();
    store.truncate(who, file, PAGE).unwrap();
    check(&store, file, &[&bytes(0, 10)[..], &vec![0; PAGE as usize - 10]].concat());
}

#[test]
fn space_for_a_range_extends_the_file_or_fills_its_holes() {
    let store = Store::new(8);
    let who = &root_user();
    // Up to 2 MiB from the beginning on, in one piece.
    let whole = empty(&store, "whole");
    allocate(&store, whole, SPACE, 0..RUN);
    assert_eq!((store.pages(whole), store.stat(whole).unwrap().size), (RUN, RUN * PAGE));
    store.remove(who, store.root(), b"whole", Removal::File).unwrap();
    // From the page after the last one on, too.
    let next = store.file("next", &bytes(0, PAGE));
    allocate(&store, next, SPACE, 1..2);
    assert_eq!(store.pages(next), 2);
    // Farther away it is a tree with a hole.
    let far = store.file("far", &bytes(0, PAGE));
    allocate(&store, far, SPACE, 100..101);
    assert_eq!((store.pages(far), store.stat(far).unwrap().size), (3, 101 * PAGE));
    let small = store.file("small", b"x");
    allocate(&store, small, SPACE, 100..101);
    assert_eq!(store.pages(small), 3);
    // Longer than 2 MiB, too: 600 pages, two nodes and one above.
    let long = empty(&store, "long");
    allocate(&store, long, SPACE, 0..RUN + 88);
    assert_eq!(store.pages(long), RUN + 88 + 3);
    store.examine();
    // Only holes are filled.
    allocate(&store, far, SPACE, 99..102);
    assert_eq!((store.pages(far), store.stat(far).unwrap().size), (5, 102 * PAGE));
    let mut expected = bytes(0, PAGE);
    expected.resize(102 * PAGE as usize, 0);
    check(&store, far, &expected);
    // What is covered needs nothing, and says nothing of a tail.
    let covered = store.file("covered", &bytes(0, 8 * PAGE));
    allocate(&store, covered, AHEAD, 0..8);
    append(&store, covered, 1);
    assert_eq!(store.pages(covered), 10);
    store.trim(covered).unwrap();
    assert_eq!(store.pages(covered), 9);
    // The size only grows.
    store.allocate(who, covered, SPACE, 0, 1).unwrap();
    check(&store, covered, &bytes(0, 8 * PAGE + 1));
}

#[test]
fn zeros_take_the_place_of_bytes() {
    let store = Store::new(4);
    let who = &root_user();
    let file = store.file("f", &bytes(0, 3 * PAGE));
    store.allocate(who, file, ZEROS, 100, PAGE).unwrap();
    let mut expected = bytes(0, 3 * PAGE);
    expected[100..100 + PAGE as usize].fill(0);
    check(&store, file, &expected);
    // Past the end there are only more of them.
    store.allocate(who, file, Allocate::Zeros { keeps_size: true }, 3 * PAGE - 1, 10).unwrap();
    expected[3 * PAGE as usize - 1] = 0;
    check(&store, file, &expected);
    store.allocate(who, file, ZEROS, 4 * PAGE, 5).unwrap();
    expected.resize(4 * PAGE as usize + 5, 0);
    check(&store, file, &expected);
    let packed = store.file("p", &bytes(0, 100));
    store.allocate(who, packed, ZEROS, 90, 200).unwrap();
    let mut expected = bytes(0, 90);
    expected.resize(290, 0);
    check(&store, packed, &expected);
}

#[test]
fn a_hole_in_one_piece_cuts_it_off_or_makes_a_tree() {
    let store = Store::new(4);
    let who = &root_user();
    let content = bytes(0, 8 * PAGE);
    let with_hole = |from: u64, len: u64| {
        let mut expected = content.clone();
        let end = (from + len).min(8 * PAGE) as usize;
        expected[from as usize..end].fill(0);
        expected
    };
    for (name, from, len, pages) in [
        // In the middle and at the beginning: a tree, with a node.
        ("a", 2 * PAGE, 3 * PAGE, 6),
        ("b", 0, PAGE, 8),
        // To the end: what is left is in one piece.
        ("c", 5 * PAGE, 3 * PAGE, 5),
        ("d", 5 * PAGE, 30 * PAGE, 5),
        ("e", 0, 8 * PAGE, 0),
        // Only whole pages go.
        ("f", 2 * PAGE + 1, 3 * PAGE, 7),
        // Zeros in parts of pages are set in place.
        ("g", 10, PAGE - 10, 8),
        ("h", 10, PAGE, 8),
        ("i", 7 * PAGE + 1, PAGE - 1, 8),
    ] {
        let file = store.file(name, &content);
        store.allocate(who, file, Allocate::Hole, from, len).unwrap();
        assert_eq!(store.pages(file), pages, "{name}");
        check(&store, file, &with_hole(from, len));
    }
    // The page in which the file ends goes if all of its bytes do.
    let short = store.file("short", &content[..5000]);
    store.allocate(who, short, Allocate::Hole, PAGE, 5000 - PAGE).unwrap();
    assert_eq!(store.pages(short), 1);
    let other = store.file("other", &content[..5000]);
    store.allocate(who, other, Allocate::Hole, PAGE, 4999 - PAGE).unwrap();
    assert_eq!((store.pages(other), store.get(other)[4999]), (2, content[4999]));
    // A hole is found, and the data after it.
    let file = store.find_name("a");
    assert_eq!(store.seek(file, Seek::Hole, 0).unwrap(), 2 * PAGE);
    assert_eq!(store.seek(file, Seek::Data, 2 * PAGE).unwrap(), 5 * PAGE);
    assert_eq!(store.seek(file, Seek::Data, 1).unwrap(), 1);
    assert_eq!(store.seek(file, Seek::Hole, 6 * PAGE).unwrap(), 8 * PAGE);
    for what in [Seek::Data, Seek::Hole] {
        assert_eq!(refused(store.seek(file, what, 8 * PAGE)), Errno::ENXIO);
    }
    // A packed file's bytes are zeros, and its space stays; all of it goes together.
    let packed = store.file("p", &content[..100]);
    store.allocate(who, packed, Allocate::Hole, 10, 20).unwrap();
    let mut expected = content[..100].to_vec();
    expected[10..30].fill(0);
    check(&store, packed, &expected);
    assert_eq!(store.stat(packed).unwrap().blocks, 1);
    store.allocate(who, packed, Allocate::Hole, 0, 100).unwrap();
    check(&store, packed, &[0; 100]);
    assert_eq!(store.stat(packed).unwrap().blocks, 0);
}

/// A file of three pages in each of three nodes.
fn sparse(store: &Store, name: &str) -> FileId {
    let file = empty(store, name);
    for node in [1, 0, 2] {
        for page in [1, 100, 511] {
            let at = (node * RUN + page) * PAGE;
            store.put(file, at, &bytes(at, PAGE));
        }
    }
    assert_eq!(store.pages(file), 9 + 3 + 1);
    file
}

#[test]
fn nodes_go_with_all_their_pages() {
    let store = Store::new(4);
    for (name, pages, left) in [
        ("a", RUN..2 * RUN, 9),
        ("b", 0..2 * RUN, 5),
        // The top node could lead to more.
        ("c", 0..3 * RUN, 1),
        ("d", RUN + 1..2 * RUN, 10),
        ("e", RUN..2 * RUN - 1, 11),
        ("f", RUN + 512..2 * RUN + 100, 12),
        ("g", RUN + 2..RUN + 3, 13),
    ] {
        let file = sparse(&store, name);
        let mut expected = store.get(file);
        allocate(&store, file, Allocate::Hole, pages.clone());
        assert_eq!(store.pages(file), left, "{name}");
        expected[(pages.start * PAGE) as usize..(pages.end * PAGE) as usize].fill(0);
        check(&store, file, &expected);
        store.remove(&root_user(), store.root(), name.as_bytes(), Removal::File).unwrap();
    }
    for (size, left) in
        [(2 * RUN * PAGE, 9), (RUN * PAGE, 5), (RUN * PAGE - 1, 5), (PAGE, 2), (0, 0)]
    {
        let file = sparse(&store, "t");
        let expected = store.get(file);
        store.truncate(&root_user(), file, size).unwrap();
        assert_eq!(store.pages(file), left, "{size}");
        check(&store, file, &expected[..size as usize]);
        store.remove(&root_user(), store.root(), b"t", Removal::File).unwrap();
    }
}

/// A file of which the second, third and fourth 2 MiB are runs, and the first one is a node's.
fn of_runs(store: &Store) -> FileId {
    let file = empty(store, "runs");
    store.put(file, 0, &bytes(0, 4 * RUN * PAGE));
    assert_eq!(store.pages(file), 4 * RUN + 2, "the top node's other slots lead to runs");
    file
}

#[test]
fn runs_are_cut_where_a_hole_begins_and_ends() {
    let store = Store::new(24);
    let who = &root_user();
    let all = 4 * RUN;
    for (pages, left) in [
        (RUN..2 * RUN, 3 * RUN + 2),
        // A run with a hole in it becomes pages, which takes a node.
        (RUN + 100..2 * RUN, 3 * RUN + 100 + 3),
        (RUN..RUN + 100, 4 * RUN - 100 + 3),
        (RUN + 100..3 * RUN + 7, 2 * RUN - 7 + 100 + 4),
        (3 * RUN..4 * RUN, 3 * RUN + 2),
        (3 * RUN + 1..4 * RUN, 3 * RUN + 1 + 3),
        (0..4 * RUN, 1),
    ] {
        let file = of_runs(&store);
        allocate(&store, file, Allocate::Hole, pages.clone());
        assert_eq!(store.pages(file), left, "{pages:?}");
        let mut expected = bytes(0, all * PAGE);
        expected[(pages.start * PAGE) as usize..(pages.end * PAGE) as usize].fill(0);
        check(&store, file, &expected);
        store.remove(who, store.root(), b"runs", Removal::File).unwrap();
    }
    // A truncation leaves the beginning of a run; what is behind that is a hole.
    let file = of_runs(&store);
    store.truncate(who, file, (RUN + 100) * PAGE + 1).unwrap();
    assert_eq!(store.pages(file), RUN + 101 + 2);
    let mut expected = bytes(0, (RUN + 100) * PAGE + 1);
    check(&store, file, &expected);
    store.truncate(who, file, 3 * RUN * PAGE).unwrap();
    expected.resize((3 * RUN * PAGE) as usize, 0);
    check(&store, file, &expected);
    assert_eq!(store.seek(file, Seek::Hole, 0).unwrap(), (RUN + 101) * PAGE);
    assert_eq!(refused(store.seek(file, Seek::Data, (RUN + 101) * PAGE)), Errno::ENXIO);
    // Nothing is left of it to clear past where it ends.
    allocate(&store, file, Allocate::Hole, RUN + 101..2 * RUN);
    allocate(&store, file, Allocate::Hole, RUN + 300..2 * RUN);
    check(&store, file, &expected);
    // To write there makes pages of it.
    store.put(file, (RUN + 200) * PAGE, &bytes(0, 10));
    expected[((RUN + 200) * PAGE) as usize..][..10].copy_from_slice(&bytes(0, 10));
    check(&store, file, &expected);
    assert_eq!(store.pages(file), RUN + 101 + 1 + 3);
}

#[test]
fn a_part_of_one_piece_is_written_over_in_place_anew_or_as_a_tree() {
    let store = Store::new(6);
    for (pages, at, len, left) in [
        // Up to a page is set in place.
        (8, 100, PAGE, 8),
        (8, 100, PAGE + 1, 9),
        (8, 7 * PAGE, PAGE, 8),
        // All of it is made anew, but not a part, even if that is the beginning.
        (8, 0, 8 * PAGE, 8),
        (8, 0, 8 * PAGE - 1, 9),
        (8, 1, 8 * PAGE - 1, 9),
        (8, 0, 2 * PAGE, 9),
        // Unless it is small.
        (4, PAGE, 2 * PAGE, 4),
        (4, 0, PAGE + 1, 4),
        (5, PAGE, 2 * PAGE, 6),
        (1, 0, PAGE, 1),
    ] {
        let file = store.file("f", &bytes(0, pages * PAGE));
        store.put(file, at, &bytes(at + 7, len));
        assert_eq!(store.pages(file), left, "{len} bytes at {at} of {pages} pages");
        let mut expected = bytes(0, pages * PAGE);
        expected[at as usize..(at + len) as usize].copy_from_slice(&bytes(at + 7, len));
        check(&store, file, &expected);
        store.remove(&root_user(), store.root(), b"f", Removal::File).unwrap();
    }
}

#[test]
fn a_tree_grows_as_tall_as_it_has_to() {
    let store = Store::new(8);
    let who = &root_user();
    let file = empty(&store, "f");
    store.put(file, PAGE, &bytes(0, 2 * PAGE));
    store.put(file, 0, &bytes(7, PAGE));
    assert_eq!(store.pages(file), 3 + 1);
    let head = [bytes(7, PAGE), bytes(0, 2 * PAGE)].concat();
    let read = |at: u64, len: u64| {
        let mut found = vec![9; len as usize];
        assert_eq!(store.read_file(file, at, &mut found).unwrap() as u64, len);
        found
    };
    // What it can't lead to is a hole.
    store.truncate(who, file, 600 * PAGE).unwrap();
    assert_eq!(read(0, 3 * PAGE), head);
    assert_eq!(read(3 * PAGE, 597 * PAGE), vec![0; 597 * PAGE as usize]);
    assert_eq!(store.seek(file, Seek::Hole, 0).unwrap(), 3 * PAGE);
    assert_eq!(refused(store.seek(file, Seek::Data, 3 * PAGE)), Errno::ENXIO);
    assert_eq!(store.pages(file), 4);
    // One level: the first page that needs it; then two at once.
    store.put(file, RUN * PAGE, &bytes(1, 10));
    assert_eq!(store.pages(file), 4 + 1 + 2);
    let far = RUN * RUN * RUN + 5;
    store.put(file, far * PAGE, &bytes(3, 10));
    // The old top, and over it two; a page, and over it three.
    assert_eq!(store.pages(file), 7 + 1 + 4 + 1);
    store.examine();
    assert_eq!(read(0, 3 * PAGE), head);
    assert_eq!(read(RUN * PAGE, 10), bytes(1, 10));
    assert_eq!(read(far * PAGE, 10), bytes(3, 10));
    assert_eq!(store.seek(file, Seek::Data, 3 * PAGE).unwrap(), RUN * PAGE);
    assert_eq!(store.seek(file, Seek::Data, (RUN + 1) * PAGE).unwrap(), far * PAGE);
    store.truncate(who, file, RUN * PAGE).unwrap();
    assert_eq!(read(0, 3 * PAGE), head);
    store.examine();
    store.remove(who, store.root(), b"f", Removal::File).unwrap();
    store.examine();
    // Two levels from one, with the page in a slot that is not the first.
    let file = empty(&store, "g");
    store.put(file, PAGE, &bytes(0, PAGE));
    store.put(file, (5 * RUN * RUN + 3 * RUN + 1) * PAGE, &bytes(5, PAGE));
    assert_eq!(store.pages(file), 2 + 1 + 1 + 1 + 2);
    let mut found = vec![0; PAGE as usize];
    store.read_file(file, PAGE, &mut found).unwrap();
    assert_eq!(found, bytes(0, PAGE));
    store.examine();
}

#[test]
fn a_large_write_takes_the_place_of_single_pages() {
    let store = Store::new(10);
    let file = empty(&store, "f");
    for page in [1, 3, 5, RUN + 1, RUN + 9] {
        store.put(file, page * PAGE, &bytes(page, PAGE));
    }
    assert_eq!(store.pages(file), 5 + 2 + 1);
    store.put(file, 0, &bytes(0, 2 * RUN * PAGE));
    check(&store, file, &bytes(0, 2 * RUN * PAGE));
    assert_eq!(store.pages(file), 2 * RUN + 3);
    store.put(file, 2 * RUN * PAGE, &bytes(1, RUN * PAGE));
    store.put(file, 2 * RUN * PAGE, &bytes(2, RUN * PAGE));
    let mut expected = bytes(0, 2 * RUN * PAGE);
    expected.extend(bytes(2, RUN * PAGE));
    check(&store, file, &expected);
}

#[test]
fn pages_in_a_row_go_with_one_record() {
    let store = Store::new(4);
    let who = &root_user();
    // A transaction's number is in the generation of what it makes.
    let number = |name| store.make(name, New::Regular, 0o600).generation;
    // A tree whose one node leads to pages in a row, and a hole before them.
    let file = empty(&store, "f");
    store.put(file, PAGE, &bytes(0, 400 * PAGE));
    let first = number("a");
    store.remove(who, store.root(), b"f", Removal::File).unwrap();
    assert_eq!(number("b") - first, 2);
    store.examine();
}

#[test]
fn a_file_has_no_more_bytes_than_it_may() {
    let most = 10 * PAGE + 5;
    let store = Store::with_size_max(4, most);
    let who = &root_user();
    let file = store.file("f", &bytes(0, 10));
    assert_eq!(store.size_max(), most);
    // A write ends where the file has to.
    let written = store.write(who, file, WriteAt::Offset(most - 2), b"12345").unwrap();
    assert_eq!((written, store.stat(file).unwrap().size), ((most - 2, 2), most));
    assert_eq!(store.write(who, file, WriteAt::Offset(most), b"").unwrap(), (most, 0));
    for at in [WriteAt::Offset(most), WriteAt::Offset(u64::MAX), WriteAt::End] {
        assert_eq!(refused(store.write(who, file, at, b"1")), Errno::EFBIG);
    }
    store.truncate(who, file, 0).unwrap();
    store.truncate(who, file, most).unwrap();
    assert_eq!(refused(store.truncate(who, file, most + 1)), Errno::EFBIG);
    assert_eq!(refused(store.truncate_open(who, file, most + 1)), Errno::EFBIG);
    store.truncate(who, file, 0).unwrap();
    for how in [SPACE, AHEAD, ZEROS, Allocate::Hole] {
        assert_eq!(refused(store.allocate(who, file, how, most - 1, 2)), Errno::EFBIG);
        assert_eq!(refused(store.allocate(who, file, how, u64::MAX, 1)), Errno::EFBIG);
        assert_eq!(refused(store.allocate(who, file, how, 0, 0)), Errno::EINVAL);
        store.allocate(who, file, how, most - 1, 1).unwrap();
    }
    assert_eq!(store.stat(file).unwrap().size, most);
}

#[test]
fn only_regular_files_have_bytes_to_change() {
    let store = Store::new(2);
    let who = &root_user();
    let directory = store.make("d", New::Directory, 0o777);
    let fifo = store.make("p", New::Fifo, 0o666);
    let link = store.make("l", New::Symlink(b"f"), 0o777);
    let mut buffer = [0; 4];
    for (file, reads, truncates, allocates) in [
        (directory, Errno::EISDIR, Errno::EISDIR, Errno::EISDIR),
        (fifo, Errno::EINVAL, Errno::EINVAL, Errno::ENODEV),
        (link, Errno::EINVAL, Errno::EINVAL, Errno::ENODEV),
    ] {
        assert_eq!(refused(store.read_file(file, 0, &mut buffer)), reads);
        assert_eq!(refused(store.seek(file, Seek::Data, 0)), reads);
        assert_eq!(refused(store.write(who, file, WriteAt::End, b"x")), reads);
        assert_eq!(refused(store.truncate(who, file, 0)), truncates);
        assert_eq!(refused(store.truncate_open(who, file, 0)), Errno::EINVAL);
        assert_eq!(refused(store.allocate(who, file, SPACE, 0, 1)), allocates);
    }
    // What is immutable does not change, not even by nothing; what is append-only loses nothing.
    let file = store.file("f", &bytes(0, 10));
    store.set_flags(who, file, flag::IMMUTABLE, None).unwrap();
    assert_eq!(refused(store.write(who, file, WriteAt::End, b"")), Errno::EPERM);
    assert_eq!(refused(store.write(who, file, WriteAt::End, b"x")), Errno::EPERM);
    assert_eq!(refused(store.allocate(who, file, SPACE, 0, 1)), Errno::EPERM);
    store.set_flags(who, file, flag::APPEND, None).unwrap();
    store.allocate(who, file, SPACE, 0, 20).unwrap();
    for how in [ZEROS, Allocate::Hole] {
        assert_eq!(refused(store.allocate(who, file, how, 0, 1)), Errno::EPERM);
    }
    assert_eq!(refused(store.truncate(who, file, 0)), Errno::EPERM);
    check(&store, file, &[&bytes(0, 10)[..], &[0; 10]].concat());
    // Who may not write by a name may by a descriptor.
    let plain = store.file("g", b"some");
    assert_eq!(refused(store.truncate(&user(7), plain, 0)), Errno::EACCES);
    store.truncate_open(&user(7), plain, 0).unwrap();
}

#[test]
fn what_changes_bytes_changes_the_times() {
    let store = Store::new(2);
    let who = &Credentials { capabilities: Capabilities::NONE.with(Capability::Fsetid), ..user(0) };
    let file = store.file("f", &bytes(0, PAGE));
    let works: [&dyn Fn(); 6] = [
        &|| store.put(file, 5, b"x"),
        &|| store.truncate(who, file, 2 * PAGE).unwrap(),
        &|| store.allocate(who, file, SPACE, 0, 3 * PAGE).unwrap(),
        &|| store.allocate(who, file, ZEROS, 0, 1).unwrap(),
        &|| store.allocate(who, file, Allocate::Hole, 0, PAGE).unwrap(),
        &|| store.put(file, PAGE, &bytes(0, PAGE)),
    ];
    for work in works {
        let before = store.stamps(file);
        store.pass(SECOND);
        work();
        let [mtime, ctime, change] = store.stamps(file);
        // Work of several records moves on by a nanosecond with each.
        assert_eq!([mtime, ctime].map(|time| time / SECOND), [store.now() / SECOND; 2]);
        assert!(change > before[2]);
    }
    // Closing changes nothing that is seen.
    let before = store.stamps(file);
    append(&store, file, PAGE);
    let after = store.stamps(file);
    assert!(after[2] > before[2]);
    store.pass(SECOND);
    store.trim(file).unwrap();
    assert_eq!(store.stamps(file), after);
}

/// Fills the store with files of a page each, `number` of them or as many as it takes.
fn fill(store: &Store) -> u64 {
    let mut number = 0;
    loop {
        let name = format!("fill{number}");
        let Ok(file) =
            store.create(&root_user(), store.root(), name.as_bytes(), New::Regular, 0o600)
        else {
            return number;
        };
        match store.write(&root_user(), file, WriteAt::Offset(0), &bytes(0, PAGE)) {
            Ok((_, len)) => assert_eq!(len, PAGE),
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOSPC);
                return number;
            }
        }
        number += 1;
    }
}

#[test]
fn a_full_store_can_be_emptied() {
    let store = Store::new(1);
    let who = &root_user();
    let file = store.file("f", &bytes(0, 4 * PAGE));
    let small = store.file("s", b"some");
    let tree = empty(&store, "t");
    store.put(tree, PAGE, &bytes(0, 2 * PAGE));
    let pages = store.core().pages_used();
    let files = fill(&store);
    assert!(files > 400, "{files}");
    // What is there has its space, also for other bytes.
    allocate(&store, file, SPACE, 0..4);
    store.put(file, PAGE, &bytes(9, 100));
    store.put(small, 0, b"same");
    for (at, len) in [(PAGE, 1024), (2 * PAGE - 512, 1024), (3 * PAGE - 10, 10)] {
        store.put(tree, at, &bytes(3, len));
    }
    assert_eq!(refused(store.allocate(who, file, SPACE, 0, 5 * PAGE)), Errno::ENOSPC);
    assert_eq!(refused(store.write(who, file, WriteAt::End, &bytes(0, PAGE))), Errno::ENOSPC);
    // Nor is there space for the hole that the tree begins with.
    assert_eq!(refused(store.allocate(who, tree, SPACE, 0, PAGE)), Errno::ENOSPC);
    assert_eq!(refused(store.write(who, tree, WriteAt::Offset(0), b"x")), Errno::ENOSPC);
    store.examine();
    store.truncate(who, file, 2 * PAGE).unwrap();
    store.put(file, 2 * PAGE, &bytes(0, PAGE));
    for number in 0..=files {
        let name = format!("fill{number}");
        let removed = store.remove(who, store.root(), name.as_bytes(), Removal::File);
        assert!(removed.is_ok() || number == files);
    }
    store.examine();
    assert!(store.core().pages_used() <= pages + 40);
}

#[test]
fn pages_that_stand_alone_are_space_too() {
    let store = Store::new(1);
    let who = &root_user();
    let files = fill(&store);
    for number in (0..files).step_by(2) {
        let name = format!("fill{number}");
        store.remove(who, store.root(), name.as_bytes(), Removal::File).unwrap();
    }
    // There is no run of two pages.
    let written = empty(&store, "written");
    store.put(written, 0, &bytes(0, 20 * PAGE));
    check(&store, written, &bytes(0, 20 * PAGE));
    append(&store, written, 3 * PAGE);
    check(&store, written, &bytes(0, 23 * PAGE));
    let allocated = empty(&store, "allocated");
    allocate(&store, allocated, SPACE, 0..20);
    check(&store, allocated, &vec![0; 20 * PAGE as usize]);
    assert_eq!(store.pages(allocated), 21);
    // A packed file, on its way.
    let packed = store.file("packed", b"some");
    store.put(packed, 4, &bytes(4, 3 * PAGE));
    assert_eq!(store.get(packed)[4..], bytes(4, 3 * PAGE));
    // One that had one piece.
    let last = empty(&store, "last");
    store.put(last, 0, &bytes(0, PAGE));
    append(&store, last, PAGE);
    check(&store, last, &bytes(0, 2 * PAGE));
    // As much as there is is written, and told.
    let much = empty(&store, "much");
    let (_, len) = store.write(who, much, WriteAt::Offset(0), &bytes(0, 400 * PAGE)).unwrap();
    assert!(len > 100 * PAGE && len < 400 * PAGE, "{len}");
    assert_eq!(store.stat(much).unwrap().size, len);
    check(&store, much, &bytes(0, len));
    assert_eq!(refused(store.write(who, much, WriteAt::End, &bytes(0, PAGE))), Errno::ENOSPC);
}

#[test]
fn bytes_between_the_end_and_a_write_are_zeros() {
    let store = Store::new(8);
    let who = &root_user();
    // All that a file had in the place was written over.
    for (size, at, len) in [
        (10, 40, 5),
        (100, 1500, 10),
        (100, 3000, 10),
        (PAGE + 10, PAGE + 3900, 500),
        (PAGE + 10, 2 * PAGE - 100, 10 * PAGE),
        (PAGE + 10, 5 * PAGE, 10),
        (3 * PAGE, 3 * PAGE + 5, 10),
    ] {
        let file = store.file("f", &vec![9; 6 * PAGE as usize]);
        store.truncate(who, file, 0).unwrap();
        store.put(file, 0, &bytes(0, size));
        store.put(file, at, &bytes(at, len));
        let mut expected = bytes(0, size);
        expected.resize(at as usize, 0);
        expected.extend(bytes(at, len));
        check(&store, file, &expected);
        store.remove(who, store.root(), b"f", Removal::File).unwrap();
    }
}
