//! Large files that are cut off until they are small move back to the core, and give their chunks
//! back; unless something is in the way. Whoever reads one meanwhile never sees another file's
//! bytes.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::sync::{Arc, Mutex};

use conquest_format::fs::chunk;
use conquest_format::{GROUP_PAGES, PAGE};
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::Removal;
use conquest_fs::placement::{Form, Stays, THRESHOLD};
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, FileId, NewFileSystem};
use conquest_testkit::files::{Moment, Visited, root_user};
use store::{NEW, Store, refused};

/// Bytes above which files are large.
const LIMIT: u64 = 16 * PAGE;
const LEN: usize = 100 * PAGE as usize;

/// What somebody does.
type Work = Box<dyn FnOnce() + Send>;

fn hybrid() -> (Arc<Store>, Visited) {
    let large = NewLarge { threshold: LIMIT, chunk_blocks: chunk::BLOCKS_MIN };
    let (new, space) = (NewFileSystem { large: Some(large), ..NEW }, Visited::default());
    (Arc::new(Store::with_space(8, &new, Box::new(space.clone()))), space)
}

/// Bytes of which each page is another one.
fn bytes(seed: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at / PAGE as usize * 7 + at % 251 + seed) as u8).collect()
}

/// A file that has `bytes`, on the volume.
fn pushed(store: &Store, name: &str, bytes: &[u8]) -> FileId {
    let file = store.file(name, bytes);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(form(store, file), Form::Large);
    file
}

/// A file that has the bytes of `seed`, in the core.
fn unpushed(store: &Store, name: &str, seed: usize) -> FileId {
    let file = store.file(name, b"");
    for (at, page) in (0..).step_by(PAGE as usize).zip(bytes(seed).chunks(PAGE as usize)) {
        store.put(file, at, page);
    }
    assert!(store.pages(file) > 100);
    file
}

fn form(store: &Store, file: FileId) -> Form {
    store.placement(file, LIMIT).unwrap().form
}

fn cut(store: &Store, file: FileId, size: u64) {
    store.truncate(&root_user(), file, size).unwrap();
}

/// All that is due is done: then the volume has so many pages.
fn settle(store: &Store, space: &Visited, pages: usize) {
    store.push_due(|| false).unwrap();
    store.trim_chunks().unwrap();
    assert!(!store.has_due().unwrap());
    assert_eq!(space.space.pages(), pages);
    store.examine();
}

#[test]
fn what_is_cut_off_below_its_threshold_moves_back() {
    let (store, space) = hybrid();
    let mut expected = bytes(1);
    let file = pushed(&store, "file", &expected);
    // One page is newer in the core, and two are nowhere.
    store.put(file, 3 * PAGE, &[9; 50]);
    expected[3 * PAGE as usize..][..50].fill(9);
    let hole = 5 * PAGE..7 * PAGE;
    store.allocate(&root_user(), file, Allocate::Hole, hole.start, 2 * PAGE).unwrap();
    expected[hole.start as usize..hole.end as usize].fill(0);
    let size = 10 * PAGE + 17;
    cut(&store, file, size);
    expected.truncate(size as usize);
    let placed = store.placement(file, LIMIT).unwrap();
    assert_eq!((placed.form, placed.stays), (Form::Tree, Stays::Small));
    assert!(store.get(file) == expected);
    // Nine pages, and a node of the tree; the hole is still one.
    assert_eq!((store.pages(file), store.stat(file).unwrap().blocks), (10, 10 * 8));
    assert_eq!(store.seek(file, Seek::Hole, 0).unwrap(), hole.start);
    assert_eq!(store.seek(file, Seek::Data, hole.start).unwrap(), hole.end);
    settle(&store, &space, 0);
    assert!(store.get(file) == expected);
    // It grows, and is a large one again.
    store.put(file, LIMIT, &bytes(2)[..5]);
    assert_eq!(form(&store, file), Form::Large);
    store.push(file, Wait::Forever).unwrap();
    expected.resize(LIMIT as usize, 0);
    expected.extend_from_slice(&bytes(2)[..5]);
    assert!(store.get(file) == expected);
    store.examine();
}

#[test]
fn what_is_cut_off_to_nothing_has_no_chunk_and_needs_not_wait_for_it_to_be_trimmed() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    let open = store.open_path(&root_user(), "file", libc::O_RDWR | libc::O_TRUNC).unwrap();
    assert_eq!((form(&store, file), store.pages(file)), (Form::None, 0));
    store.write(&root_user(), file, WriteAt::Offset(0), &bytes(2)).unwrap();
    store.close(&open).unwrap();
    store.push(file, Wait::Forever).unwrap();
    // What it had is still there: nobody has made anything durable, or trimmed.
    assert_eq!(space.space.pages(), 200);
    settle(&store, &space, 100);
    assert!(store.get(file) == bytes(2));
}

#[test]
fn what_is_not_small_stays_where_it_is() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    cut(&store, file, LIMIT + 1);
    assert_eq!(form(&store, file), Form::Large);
    // One with a lower threshold of its own.
    let own = pushed(&store, "own", &bytes(3));
    store.set_attribute(&root_user(), own, THRESHOLD, b"8K", Setting::Any).unwrap();
    cut(&store, own, LIMIT);
    assert_eq!(form(&store, own), Form::Large);
    cut(&store, own, 8192);
    assert_eq!(form(&store, own), Form::Tree);
    // Growing moves nothing, nor does cutting off what is small by a threshold that is very high.
    cut(&store, file, LIMIT + 2);
    store.set_attribute(&root_user(), file, THRESHOLD, b"core", Setting::Any).unwrap();
    assert_eq!(form(&store, file), Form::Large);
    cut(&store, file, LIMIT + 1);
    assert_eq!(form(&store, file), Form::Tree);
    settle(&store, &space, 0);
    let mut expected = bytes(1);
    expected.truncate(LIMIT as usize + 1);
    assert!(store.get(file) == expected);
    assert!(store.get(own) == bytes(3)[..8192]);
}

#[test]
fn nothing_is_copied_of_what_stays() {
    let (store, _) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    let before = store.core().pages_used();
    cut(&store, file, 50 * PAGE);
    assert_eq!(store.core().pages_used(), before);
    assert_eq!(store.pages(file), 50);
    store.examine();
}

/// A file that stays in the core, and takes space there until so many pages are free.
fn fill(store: &Store, free: u64) -> FileId {
    let file = store.file("filler", b"");
    store.set_attribute(&root_user(), file, THRESHOLD, b"core", Setting::Any).unwrap();
    let total = store.core().geometry().shape().max_groups * GROUP_PAGES;
    while total - store.core().pages_used() > free {
        store.write(&root_user(), file, WriteAt::End, &[1; PAGE as usize]).unwrap();
    }
    file
}

#[test]
fn if_the_core_has_little_room_only_what_is_cut_off_to_nothing_moves() {
    let (store, space) = hybrid();
    let (file, other) = (pushed(&store, "file", &bytes(1)), pushed(&store, "other", &bytes(2)));
    // Less than a quarter.
    fill(&store, 8 * GROUP_PAGES / 4 - 20);
    for (file, seed) in [(file, 1), (other, 2)] {
        cut(&store, file, 4 * PAGE);
        assert_eq!(form(&store, file), Form::Large);
        assert!(store.get(file) == bytes(seed)[..4 * PAGE as usize]);
    }
    cut(&store, file, 0);
    assert_eq!(form(&store, file), Form::None);
    store.remove(&root_user(), store.root(), b"filler", Removal::File).unwrap();
    cut(&store, other, 3 * PAGE);
    assert_eq!(form(&store, other), Form::Tree);
    settle(&store, &space, 0);
}

#[test]
fn what_the_core_has_no_room_for_is_cut_off_and_stays() {
    let (large, space) =
        (NewLarge { threshold: LIMIT, chunk_blocks: chunk::BLOCKS_MIN }, Visited::default());
    let new = NewFileSystem { large: Some(large), ..NEW };
    let store = Store::with_space(4, &new, Box::new(space.clone()));
    let file = store.file("file", &vec![2; 1000 * PAGE as usize]);
    store.push(file, Wait::Forever).unwrap();
    // More than a quarter.
    fill(&store, 4 * GROUP_PAGES / 4 + 50);
    store.set_attribute(&root_user(), file, THRESHOLD, b"core", Setting::Any).unwrap();
    cut(&store, file, 900 * PAGE);
    assert_eq!((form(&store, file), store.stat(file).unwrap().size), (Form::Large, 900 * PAGE));
    assert!(store.get(file) == vec![2; 900 * PAGE as usize]);
    store.trim_chunks().unwrap();
    assert_eq!(space.space.pages(), 900);
    store.examine();
}

/// Space was asked for behind the end when it had been cut off, and before it moves.
#[test]
fn what_has_space_behind_its_end_by_then_stays() {
    let large = NewLarge { threshold: LIMIT, chunk_blocks: chunk::BLOCKS_MIN };
    let (new, space) = (NewFileSystem { large: Some(large), ..NEW }, Visited::default());
    let work: Arc<Mutex<Option<Work>>> = Arc::default();
    let its = Arc::clone(&work);
    let store = Store::with_space(8, &new, Box::new(space.clone())).after_each(move || {
        let work = its.lock().unwrap().take();
        work.into_iter().for_each(|work| work());
    });
    let store = Arc::new(store);
    let file = pushed(&store, "file", &bytes(1));
    let others = Arc::clone(&store);
    *work.lock().unwrap() = Some(Box::new(move || {
        assert_eq!(others.stat(file).unwrap().size, 4 * PAGE);
        let keep = Allocate::Space { keeps_size: true };
        others.allocate(&root_user(), file, keep, 0, 50 * PAGE).unwrap();
    }));
    cut(&store, file, 4 * PAGE);
    assert!(work.lock().unwrap().is_none());
    assert_eq!((form(&store, file), store.pages(file)), (Form::Large, 50));
    assert!(store.get(file) == bytes(1)[..4 * PAGE as usize]);
    cut(&store, file, 3 * PAGE);
    assert_eq!(form(&store, file), Form::Tree);
    settle(&store, &space, 0);
}

#[test]
fn more_than_four_mebibytes_do_not_move() {
    let (store, space) = hybrid();
    let file = store.file("file", b"");
    for part in 0..20 {
        store.put(file, part << 18, &[part as u8 + 1; 1 << 18]);
    }
    store.push(file, Wait::Forever).unwrap();
    store.set_attribute(&root_user(), file, THRESHOLD, b"core", Setting::Any).unwrap();
    cut(&store, file, (4 << 20) + 1);
    assert_eq!(form(&store, file), Form::Large);
    cut(&store, file, 4 << 20);
    assert_eq!(form(&store, file), Form::Tree);
    settle(&store, &space, 0);
    for part in 0..16 {
        let at = (part as usize) << 18;
        assert!(store.get(file)[at..][..1 << 18] == vec![part as u8 + 1; 1 << 18]);
    }
}

#[test]
fn while_somebody_is_at_the_chunk_it_stays() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    store.put(file, 2 * PAGE, &[5; PAGE as usize]);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || cut(&others, file, 4 * PAGE));
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(form(&store, file), Form::Large);
    let mut expected = bytes(1);
    expected.truncate(4 * PAGE as usize);
    expected[2 * PAGE as usize..3 * PAGE as usize].fill(5);
    assert!(store.get(file) == expected);
    cut(&store, file, 4 * PAGE);
    assert_eq!(form(&store, file), Form::Tree);
    assert!(store.get(file) == expected);
    settle(&store, &space, 0);
}

/// What is changed, or grows, while it moves is as it should be.
#[test]
fn what_is_written_meanwhile_is_there() {
    for grows in [false, true] {
        let (store, space) = hybrid();
        let file = pushed(&store, "file", &bytes(1));
        let others = Arc::clone(&store);
        let at = if grows { 20 * PAGE } else { PAGE };
        space.at(Moment::Read, move || others.put(file, at, &[5; PAGE as usize]));
        cut(&store, file, 4 * PAGE);
        let mut expected = bytes(1);
        expected.truncate(4 * PAGE as usize);
        expected.resize(expected.len().max((at + PAGE) as usize), 0);
        expected[at as usize..][..PAGE as usize].fill(5);
        assert!(store.get(file) == expected, "{grows}");
        let kept = if grows { Form::Large } else { Form::Tree };
        assert_eq!(form(&store, file), kept);
        store.push(file, Wait::Forever).unwrap();
        assert!(store.get(file) == expected, "{grows}");
        store.examine();
    }
}

#[test]
fn what_the_volume_can_not_read_is_cut_off_and_stays() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    // The trimming of what is cut off comes later.
    space.space.fail_after(Some(0));
    store.truncate(&root_user(), file, 4 * PAGE).unwrap();
    space.space.fail_after(None);
    assert_eq!((form(&store, file), store.stat(file).unwrap().size), (Form::Large, 4 * PAGE));
    assert!(store.get(file) == bytes(1)[..4 * PAGE as usize]);
    settle(&store, &space, 4);
}

/// Space that was asked for is kept, so the chunk is.
#[test]
fn what_has_space_behind_its_end_stays() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    let others = Arc::clone(&store);
    space.at(Moment::Read, move || {
        let keep = Allocate::Space { keeps_size: true };
        let who = root_user();
        // It waits for its turn, so it is done by somebody else.
        std::thread::spawn(move || others.allocate(&who, file, keep, 0, 50 * PAGE).unwrap());
    });
    cut(&store, file, 4 * PAGE);
    // Whoever came first: it has its space.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while store.stat(file).unwrap().blocks < 50 * 8 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(store.stat(file).unwrap().blocks >= 50 * 8);
    assert!(store.get(file) == bytes(1)[..4 * PAGE as usize]);
    store.examine();
}

/// A reader has looked where the file was, and reads when another file is there; and when he looks
/// again, it has the same place once more.
#[test]
fn a_reader_never_sees_what_another_file_has_in_the_same_chunk() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    let (one, two) = (Arc::clone(&store), Arc::clone(&store));
    space.at(Moment::Read, move || {
        cut(&one, file, 0);
        one.trim_chunks().unwrap();
        pushed(&one, "other", &bytes(5));
    });
    space.at(Moment::HasRead, move || {
        two.remove(&root_user(), two.root(), b"other", Removal::File).unwrap();
        two.trim_chunks().unwrap();
        two.put(file, 0, &bytes(2));
        two.push(file, Wait::Forever).unwrap();
    });
    let mut found = vec![0; LEN];
    assert_eq!(store.read_file(file, 0, &mut found).unwrap(), LEN);
    assert!(found == bytes(2));
    assert_eq!(space.space.pages(), 100);
    store.examine();
}

/// The list of what is due was read, and then one of its chunks is another file's.
#[test]
fn what_another_file_has_to_be_pushed_stays_due() {
    let (store, space) = hybrid();
    let file = unpushed(&store, "file", 1);
    unpushed(&store, "first on the list", 2);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || {
        cut(&others, file, 0);
        others.trim_chunks().unwrap();
        unpushed(&others, "other", 3);
    });
    store.push_due(|| false).unwrap();
    let other = store.find_name("other");
    assert!(store.has_due().unwrap() && store.pages(other) > 100);
    settle(&store, &space, 200);
    assert_eq!(store.pages(other), 100);
    assert!(store.get(other) == bytes(3));
}

/// Space is wanted for a file that moves back to the core meanwhile.
#[test]
fn allocating_for_a_file_that_moves_meanwhile_is_done_in_the_core() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", &bytes(1));
    let others = Arc::clone(&store);
    // Bringing in the page at the edge is the first read.
    space.at(Moment::Read, move || cut(&others, file, 3 * PAGE));
    store.allocate(&root_user(), file, Allocate::Hole, PAGE / 2, 90 * PAGE).unwrap();
    let mut expected = bytes(1);
    expected.truncate(3 * PAGE as usize);
    expected[PAGE as usize / 2..].fill(0);
    assert!(store.get(file) == expected);
    assert_eq!(form(&store, file), Form::Tree);
    settle(&store, &space, 0);
    assert_eq!(refused(store.seek(file, Seek::Data, PAGE)), Errno::ENXIO);
}
