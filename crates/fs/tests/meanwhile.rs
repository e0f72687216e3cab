//! Large files while others are at them: writes that go to the volume at once, who may do so, where
//! they end up, what becomes of them if others do something meanwhile; the same of pushing; and
//! what `O_DIRECT` means.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::io::IoSlice;
use std::sync::Arc;

use conquest_format::PAGE;
use conquest_format::fs::chunk;
use conquest_format::geometry::Shape;
use conquest_format::inode::flag;
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::{New, Removal};
use conquest_fs::open::Whence;
use conquest_fs::open::share::Status;
use conquest_fs::placement::Form;
use conquest_fs::{Errno, Error, FileId, NewFileSystem};
use conquest_pm::log::Refusal;
use conquest_testkit::files::{Counts, Moment, Visited, root_user};
use store::{NEW, Store, refused, user};

/// Bytes above which files are large; a write of as many may go to the volume at once.
const THRESHOLD: u64 = 64 * PAGE;
/// Bytes of a write that goes to the volume at once.
const LONG: usize = 70 * PAGE as usize;

fn hybrid() -> (Arc<Store>, Visited) {
    with_log(0)
}

/// One whose core has a log of so many chunks.
fn with_log(log: u32) -> (Arc<Store>, Visited) {
    let shape = Shape { max_groups: 8, lanes: 4, slots: 4, locks: 64, chunks: 16, log };
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: chunk::BLOCKS_MIN };
    let (new, space) = (NewFileSystem { large: Some(large), ..NEW }, Visited::default());
    // Or it would be without a turn.
    space.blind();
    (Arc::new(Store::with_shape(shape, &new, Box::new(space.clone()), None)), space)
}

/// Bytes that were read and written past what is kept in memory since the last look.
fn once(space: &Visited) -> [usize; 2] {
    let Counts { read_once, written_once, .. } = space.take_counts();
    [read_once, written_once]
}

/// A file of `pages` pages, all on the volume.
fn pushed(store: &Store, name: &str, pages: u64) -> FileId {
    let file = store.file(name, &vec![1; (pages * PAGE) as usize]);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.placement(file, THRESHOLD).unwrap().form, Form::Large);
    file
}

#[test]
fn it_is_large_above_the_threshold() {
    let (store, _) = hybrid();
    let (small, large) = (store.file("small", b""), store.file("large", b""));
    store.put(small, 0, &vec![1; THRESHOLD as usize]);
    store.put(large, 0, &vec![1; THRESHOLD as usize + 1]);
    let form = |file| store.placement(file, THRESHOLD).unwrap().form;
    assert_eq!((form(small), form(large)), (Form::Extent, Form::Large));
    assert_eq!(store.get(large), vec![1; THRESHOLD as usize + 1]);
    store.examine();
}

#[test]
fn who_may_not_changes_nothing_on_the_volume() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    store.set_flags(&root_user(), file, flag::IMMUTABLE, None).unwrap();
    for at in [0, 60 * PAGE] {
        space.at(Moment::Write, || panic!("something is written"));
        let written = store.write(&root_user(), file, WriteAt::Offset(at), &[2; LONG]);
        assert_eq!(refused(written), Errno::EPERM);
    }
    assert!(space.is_waiting());
    assert_eq!(store.get(file), vec![1; 100 * PAGE as usize]);
    store.examine();
}

/// Nor who may write, but not take away what the file would lose by that.
#[test]
fn who_may_not_take_set_user_id_away_changes_nothing_on_the_volume() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    store.set_mode(&root_user(), file, 0o4777).unwrap();
    store.set_flags(&root_user(), file, flag::APPEND, None).unwrap();
    space.at(Moment::Write, || panic!("something is written"));
    let written = store.write(&user(7), file, WriteAt::End, &[2; LONG]);
    assert_eq!(refused(written), Errno::EPERM);
    assert!(space.is_waiting());
    assert_eq!(store.get(file), vec![1; 100 * PAGE as usize]);
    store.examine();
}

#[test]
fn who_writes_at_once_or_allocates_space_takes_set_user_id_away() {
    let (store, _) = hybrid();
    let (who, file) = (&user(7), pushed(&store, "file", 100));
    let ways: [&dyn Fn(); 4] = [
        &|| _ = store.write(who, file, WriteAt::Offset(0), &[2; LONG]).unwrap(),
        &|| _ = store.write(who, file, WriteAt::Offset(100 * PAGE), &[2; LONG]).unwrap(),
        &|| store.allocate(who, file, Allocate::Hole, 10 * PAGE, 20 * PAGE).unwrap(),
        &|| {
            let space = Allocate::Space { keeps_size: true };
            store.allocate(who, file, space, 15 * PAGE, 5 * PAGE).unwrap();
        },
    ];
    for (index, way) in ways.iter().enumerate() {
        store.set_mode(&root_user(), file, 0o4777).unwrap();
        store.pass(1000);
        let before = store.stamps(file);
        way();
        assert_eq!(store.stat(file).unwrap().mode & 0o7777, 0o777, "way {index}");
        let after = store.stamps(file);
        assert!(before.iter().zip(after).all(|(before, after)| *before < after), "way {index}");
    }
    store.examine();
}

#[test]
fn only_regular_files_are_written_to_at_once() {
    let (store, _) = hybrid();
    let directory = store.make("directory", New::Directory, 0o644);
    store.make("directory/file", New::Regular, 0o644);
    for (path, what, errno) in [
        ("empty", New::Directory, Errno::EISDIR),
        ("fifo", New::Fifo, Errno::EINVAL),
        ("link", New::Symlink(b"target"), Errno::EINVAL),
        ("device", New::Character(1, 3), Errno::EINVAL),
    ] {
        let other = store.make(path, what, 0o644);
        let written = store.write(&root_user(), other, WriteAt::Offset(0), &[2; LONG]);
        assert_eq!(refused(written), errno, "{path}");
        store.examine();
    }
    let written = store.write(&root_user(), directory, WriteAt::Offset(0), &[2; LONG]);
    assert_eq!(refused(written), Errno::EISDIR);
    store.examine();
}

/// Wherever it is written, by whatever descriptor, and if it ends where the file does from then on,
/// with a part of a page.
#[test]
fn nothing_that_is_written_at_once_stays_in_the_core() {
    let (store, _) = hybrid();
    let (who, file) = (&root_user(), pushed(&store, "file", 100));
    let is_far = |pages| assert_eq!(store.pages(file), pages);
    store.put(file, 30 * PAGE, &[2; LONG]);
    is_far(100);
    let open = |flags| store.open_path(who, "file", libc::O_RDWR | flags).unwrap();
    let (at, appending) = (open(0), open(libc::O_APPEND));
    store.seek_to(&at, 10 * PAGE as i64, Whence::Start).unwrap();
    assert_eq!(store.write_next(who, &at, &[3; LONG]).unwrap(), LONG);
    is_far(100);
    store.seek_to(&appending, 20 * PAGE as i64, Whence::Start).unwrap();
    assert_eq!(store.write_next(who, &appending, &[4; LONG]).unwrap(), LONG);
    is_far(170);
    store.write(who, file, WriteAt::End, &[5; LONG]).unwrap();
    is_far(240);
    store.put(file, 240 * PAGE, &[6; LONG + 5]);
    is_far(311);
    // Once more, the rest of the last page may be what another one writes: it is pushed later.
    store.put(file, 240 * PAGE, &[7; LONG + 5]);
    assert!(store.pages(file) > 311);
    store.push(file, Wait::Forever).unwrap();
    is_far(311);
    let mut expected = vec![1; 100 * PAGE as usize];
    expected[30 * PAGE as usize..].fill(2);
    expected[10 * PAGE as usize..][..LONG].fill(3);
    for value in [4, 5, 7] {
        expected.extend([value; LONG]);
    }
    expected.extend([7; 5]);
    assert!(store.get(file) == expected);
    for open in [at, appending] {
        store.close(&open).unwrap();
    }
    store.examine();
}

#[test]
fn nothing_is_brought_in_of_what_does_not_change() {
    let (store, _) = hybrid();
    let (who, file) = (&root_user(), store.file("file", &[1; 100 * PAGE as usize + 5]));
    store.push(file, Wait::Forever).unwrap();
    // Neither the page in which it ends, if nothing behind it grows,
    store.put(file, 0, &[2; LONG]);
    assert_eq!(store.pages(file), 101);
    store.truncate(who, file, 100 * PAGE + 5).unwrap();
    assert_eq!(store.pages(file), 101);
    // nor one that begins where it ends.
    store.truncate(who, file, 100 * PAGE).unwrap();
    store.push(file, Wait::Forever).unwrap();
    store.trim_chunks().unwrap();
    store.allocate(who, file, Allocate::Space { keeps_size: true }, 0, 300 * PAGE).unwrap();
    store.put(file, 120 * PAGE, &[3; LONG]);
    assert_eq!(store.pages(file), 300);
    let mut expected = vec![2; LONG];
    expected.resize(100 * PAGE as usize, 1);
    expected.resize(120 * PAGE as usize, 0);
    expected.extend([3; LONG]);
    assert!(store.get(file) == expected);
    store.examine();
}

#[test]
fn what_is_cut_off_and_trimmed_while_it_is_read_is_not_read_as_zeros() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    let others = Arc::clone(&store);
    space.at(Moment::Read, move || {
        others.truncate(&root_user(), file, 80 * PAGE).unwrap();
        others.trim_chunks().unwrap();
    });
    let mut found = vec![0; 100 * PAGE as usize];
    let len = store.read_file(file, 0, &mut found).unwrap();
    assert!(!space.is_waiting());
    assert!(found[..len] == vec![1; 80 * PAGE as usize]);
    store.examine();
}

#[test]
fn any_bytes_are_read_and_looked_for_on_the_volume() {
    let (store, _) = hybrid();
    let bytes: Vec<u8> = (0..100 * PAGE).map(|at| (at / 7 % 251) as u8).collect();
    let file = store.file("file", &bytes);
    store.push(file, Wait::Forever).unwrap();
    for at in [0, 1, 512, 700, 4095, 4096, 5000] {
        for len in [1, 511, 512, 513, 1024, 4096, 8192, 9000] {
            let mut found = vec![0; len];
            assert_eq!(store.read_file(file, at, &mut found).unwrap(), len);
            assert!(found == bytes[at as usize..][..len], "{len} bytes from {at} on");
        }
    }
    let hole = 20 * PAGE..40 * PAGE;
    store.allocate(&root_user(), file, Allocate::Hole, hole.start, 20 * PAGE).unwrap();
    for (what, at, found) in [
        (Seek::Data, 0, 0),
        (Seek::Data, 5 * PAGE + 3, 5 * PAGE + 3),
        (Seek::Hole, 5 * PAGE + 3, hole.start),
        (Seek::Data, hole.start, hole.end),
        (Seek::Hole, hole.start + 9, hole.start + 9),
        (Seek::Data, hole.end, hole.end),
        (Seek::Hole, hole.end, 100 * PAGE),
    ] {
        assert_eq!(store.seek(file, what, at).unwrap(), found, "{what:?} from {at} on");
    }
    store.examine();
}

#[test]
fn pages_that_stand_alone_are_pushed_and_those_of_several_nodes() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 1100);
    let mut expected = vec![1; 1100 * PAGE as usize];
    for (from, step) in [(100, 2), (400, 1)] {
        for page in (from..).step_by(step).take(240) {
            store.put(file, page * PAGE + 5, &[step as u8 + 1; 9]);
            expected[(page * PAGE) as usize + 5..][..9].fill(step as u8 + 1);
        }
        assert!(store.pages(file) > 1100 + 240);
        store.push(file, Wait::Forever).unwrap();
        assert_eq!((store.pages(file), space.space.pages()), (1100, 1100));
        assert!(store.get(file) == expected);
        store.examine();
    }
}

#[test]
fn what_ends_where_the_largest_file_does_is_written_at_once() {
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: chunk::BLOCKS_MIN };
    let new = NewFileSystem { large: Some(large), size_max: 170 * PAGE, ..NEW };
    let store = Store::with(8, &new);
    let file = pushed(&store, "file", 100);
    store.put(file, 100 * PAGE, &[2; LONG]);
    assert_eq!(store.pages(file), 170);
    let written = store.write(&root_user(), file, WriteAt::End, &[3; LONG]);
    assert_eq!(refused(written), Errno::EFBIG);
    assert!(store.get(file) == [vec![1; 100 * PAGE as usize], vec![2; LONG]].concat());
    store.examine();
}

/// Inside the end they have their turns together.
#[test]
fn nobody_waits_for_others_who_write_inside_the_end() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || others.put(file, 20 * PAGE, &[3; LONG]));
    store.put(file, 0, &[2; LONG]);
    assert!(!space.is_waiting());
    let found = store.get(file);
    assert!(found[70 * PAGE as usize..90 * PAGE as usize].iter().all(|byte| *byte == 3));
    assert!(found[..20 * PAGE as usize].iter().all(|byte| *byte == 2));
    store.examine();
}

/// It was inside the end, and is behind it when it has its turn.
#[test]
fn what_is_cut_off_before_its_turn_is_not_written_to_the_volume() {
    let (store, space) = hybrid();
    let (who, file) = (&root_user(), store.file("file", &vec![1; 150 * PAGE as usize + 5]));
    store.push(file, Wait::Forever).unwrap();
    store.allocate(who, file, Allocate::Space { keeps_size: true }, 0, 300 * PAGE).unwrap();
    let others = Arc::clone(&store);
    // The page in which it ends is brought in.
    space.at(Moment::Read, move || others.truncate(&root_user(), file, 100 * PAGE).unwrap());
    let before = space.take_counts().written;
    assert!(before > 0);
    store.put(file, 200 * PAGE, &[2; LONG]);
    assert!(!space.is_waiting());
    assert_eq!(space.take_counts().written, 0);
    let mut expected = vec![1; 100 * PAGE as usize];
    expected.resize(200 * PAGE as usize, 0);
    expected.extend([2; LONG]);
    assert!(store.get(file) == expected);
    store.push(file, Wait::Forever).unwrap();
    store.trim_chunks().unwrap();
    assert!(store.get(file) == expected);
    assert_eq!(space.space.pages(), 170);
    store.examine();
}

#[test]
fn the_position_moves_past_it() {
    let (store, _) = hybrid();
    let file = pushed(&store, "file", 100);
    let who = &root_user();
    let open = store.open_path(who, "file", libc::O_RDWR).unwrap();
    for value in [2, 3] {
        assert_eq!(store.write_next(who, &open, &[value; LONG]).unwrap(), LONG);
    }
    assert_eq!(store.position(&open), 2 * LONG as u64);
    store.close(&open).unwrap();
    assert_eq!(store.get(file), [[2; LONG], [3; LONG]].concat());
    store.examine();
}

#[test]
fn who_shares_the_position_and_moves_it_comes_first() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    let who = &root_user();
    let open = Arc::new(store.open_path(who, "file", libc::O_RDWR).unwrap());
    let (others, its) = (Arc::clone(&store), Arc::clone(&open));
    let to = 200 * PAGE;
    space.at(Moment::Write, move || {
        assert_eq!(others.seek_to(&its, to as i64, Whence::Start).unwrap(), to);
    });
    assert_eq!(store.write_next(who, &open, &[2; LONG]).unwrap(), LONG);
    assert!(!space.is_waiting());
    assert_eq!(store.position(&open), to + LONG as u64);
    store.close(&open).unwrap();
    let found = store.get(file);
    assert_eq!(found.len() as u64, to + LONG as u64);
    assert!(found[to as usize..].iter().all(|byte| *byte == 2));
    store.examine();
}

#[test]
fn what_is_appended_comes_behind_what_another_one_has_appended_meanwhile() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || {
        others.write(&root_user(), file, WriteAt::End, &[3; 100]).unwrap();
    });
    let written = store.write(&root_user(), file, WriteAt::End, &[2; LONG]).unwrap();
    assert!(!space.is_waiting());
    assert_eq!(written, (100 * PAGE + 100, LONG as u64));
    let expected = [&[1; 100 * PAGE as usize][..], &[3; 100], &[2; LONG]].concat();
    assert!(store.get(file) == expected);
    store.examine();
}

/// Who writes inside the end takes no turn alone, so it may be cut off meanwhile.
#[test]
fn what_is_cut_off_meanwhile_is_written_all_the_same() {
    for size in [0, 10 * PAGE + 5, 90 * PAGE] {
        let (store, space) = hybrid();
        let file = pushed(&store, "file", 100);
        let others = Arc::clone(&store);
        space.at(Moment::Write, move || others.truncate(&root_user(), file, size).unwrap());
        store.put(file, 20 * PAGE, &[2; LONG]);
        assert!(!space.is_waiting());
        // The size was cut off before, or behind.
        let mut expected = vec![0; 20 * PAGE as usize + LONG];
        let kept = expected.len().min(size as usize).min(20 * PAGE as usize);
        expected[..kept].fill(1);
        expected[20 * PAGE as usize..].fill(2);
        assert!(store.get(file) == expected, "{size}");
        store.examine();
    }
}

#[test]
fn a_page_of_which_another_one_has_written_a_part_is_the_newer_one_as_a_whole() {
    for page in [0, 30, 69] {
        let (store, space) = hybrid();
        let file = pushed(&store, "file", 100);
        let others = Arc::clone(&store);
        space.at(Moment::Write, move || others.put(file, page * PAGE + 7, &[3; 9]));
        store.put(file, 0, &[2; LONG]);
        assert!(!space.is_waiting());
        let mut expected = vec![2; LONG];
        expected.resize(100 * PAGE as usize, 1);
        assert!(store.get(file) == expected, "page {page}");
        store.push(file, Wait::Forever).unwrap();
        assert!(store.get(file) == expected, "page {page}, pushed");
        store.examine();
    }
}

#[test]
fn space_behind_the_end_stays_when_it_is_closed() {
    let (store, _) = hybrid();
    let file = pushed(&store, "file", 100);
    let who = &root_user();
    let open = store.open_path(who, "file", libc::O_RDWR).unwrap();
    let space = Allocate::Space { keeps_size: true };
    store.allocate(who, file, space, 100 * PAGE, 50 * PAGE).unwrap();
    assert_eq!(store.pages(file), 150);
    store.close(&open).unwrap();
    store.push(file, Wait::Forever).unwrap();
    assert_eq!((store.pages(file), store.stat(file).unwrap().size), (150, 100 * PAGE));
    store.examine();
}

#[test]
fn of_what_is_pushed_only_what_is_changed_meanwhile_stays_in_the_core() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    for page in 0..40 {
        store.put(file, page * PAGE, &[2; PAGE as usize]);
    }
    // Nodes of the tree are pages of it.
    let before = store.pages(file);
    assert!((140..143).contains(&before), "{before}");
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || others.put(file, 17 * PAGE + 5, &[3; 9]));
    store.push(file, Wait::No).unwrap();
    assert!(!space.is_waiting());
    let mut expected = vec![2; 40 * PAGE as usize];
    expected.resize(100 * PAGE as usize, 1);
    expected[17 * PAGE as usize + 5..][..9].fill(3);
    assert!(store.get(file) == expected);
    assert_eq!(store.pages(file), before - 39);
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(store.pages(file), 100);
    assert!(store.get(file) == expected);
    store.examine();
}

/// Pages that stand alone leave the core by several records, of which each might be the last one.
#[test]
fn what_was_pushed_stays_in_the_core_once_changes_are_refused() {
    let (store, space) = with_log(64);
    let file = pushed(&store, "file", 500);
    (0..240).for_each(|page| store.put(file, 2 * page * PAGE + 5, &[2; 9]));
    let before = store.pages(file);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || others.core().refuse(Some(Refusal::Missing)));
    let pushed = store.push(file, Wait::No);
    assert!(matches!(pushed, Err(Error::NoChanges(Refusal::Missing))), "{pushed:?}");
    assert_eq!(store.pages(file), before);
    store.core().refuse(None);
    store.push(file, Wait::No).unwrap();
    assert_eq!(store.pages(file), 500);
    store.examine();
}

/// Whole pages of a large file that was opened so go past the core and what is kept in memory; all
/// else is as ever.
#[test]
fn whole_pages_of_large_files_that_are_opened_so_go_to_the_volume_at_once() {
    let (store, space) = hybrid();
    pushed(&store, "file", 100);
    let who = &root_user();
    let open = store.open_path(who, "file", libc::O_RDWR | libc::O_DIRECT).unwrap();
    let set = |direct| {
        store.set_status(who, &open, Status { direct, ..store.status(&open) }).unwrap();
    };
    let page = PAGE as usize;
    let mut expected = vec![1; 100 * page];
    // Where, how much, and how much of that goes past.
    let mut write = |at: u64, value: u8, [len, past]: [usize; 2]| {
        assert_eq!(store.write_at(who, &open, at, &vec![value; len]).unwrap(), len);
        assert_eq!(once(&space), [0, past]);
        expected[at as usize..at as usize + len].fill(value);
    };
    // Also below the threshold, as the file is large.
    write(3 * PAGE, 2, [page, page]);
    write(90 * PAGE, 3, [5 * page, 5 * page]);
    // What does not begin with a page; then that is in the core, until it is written over.
    write(3 * PAGE + 512, 4, [page, 0]);
    write(3 * PAGE, 5, [page, page]);
    write(7 * PAGE, 6, [page + 100, page]);
    set(false);
    write(9 * PAGE, 7, [page, 0]);
    let mut out = vec![0; page];
    let mut read = |at: u64, past: usize| {
        assert_eq!(store.read_at(&open, at * PAGE, &mut out).unwrap(), page);
        let at = at as usize * page;
        assert!(out == expected[at..at + page]);
        assert_eq!(once(&space), [past, 0]);
    };
    read(3, 0);
    set(true);
    read(3, page);
    read(94, page);
    // What the core has is taken from there.
    read(4, 0);
    read(8, 0);
    read(9, 0);
    // Of one buffer it is the same write.
    let one = [IoSlice::new(&[8; 2 * PAGE as usize])];
    assert_eq!(store.write_vector(who, &open, Some(PAGE), &one, 0).unwrap(), 2 * page);
    assert_eq!(once(&space), [0, 2 * page]);
    store.close(&open).unwrap();
    store.examine();
}

#[test]
fn small_files_are_as_ever_whoever_opens_them_so() {
    let (store, space) = hybrid();
    let who = &root_user();
    let file = store.file("file", &[1; 3 * PAGE as usize]);
    let open = store.open_path(who, "file", libc::O_RDWR | libc::O_DIRECT).unwrap();
    assert_eq!(store.write_at(who, &open, PAGE, &[2; PAGE as usize]).unwrap() as u64, PAGE);
    assert_eq!(store.placement(file, THRESHOLD).unwrap().form, Form::Extent);
    assert_eq!(store.read_at(&open, PAGE, &mut [0; PAGE as usize]).unwrap() as u64, PAGE);
    assert_eq!(once(&space), [0, 0]);
    store.close(&open).unwrap();
    store.examine();
}

/// Who pushes need not have the file open, so it may be removed meanwhile. He may be stopped for
/// long, and must not write to a chunk that another file has then.
#[test]
fn what_is_pushed_of_a_file_that_is_removed_meanwhile_is_in_no_other_file() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    store.put(file, 17 * PAGE, &vec![2; 8 * PAGE as usize]);
    space.at(Moment::Write, another_in_its_place(&store));
    assert!(matches!(store.push(file, Wait::Forever), Err(Error::Stale)));
    assert!(!space.is_waiting());
    is_whole(&store);
}

/// The same of who trims what was cut off.
#[test]
fn what_is_trimmed_of_a_file_that_is_removed_meanwhile_is_in_no_other_file() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    store.truncate(&root_user(), file, 70 * PAGE).unwrap();
    space.at(Moment::Trim, another_in_its_place(&store));
    store.trim_chunks().unwrap();
    assert!(!space.is_waiting());
    is_whole(&store);
}

/// What removes `file` from `store`, and makes another one that gets its chunk, if that is to be
/// had.
fn another_in_its_place(store: &Arc<Store>) -> impl FnOnce() + Send + 'static {
    let store = Arc::clone(store);
    move || {
        store.remove(&root_user(), store.root(), b"file", Removal::File).unwrap();
        store.trim_chunks().unwrap();
        pushed(&store, "other", 100);
    }
}

/// The other file has what was written to it; and the chunk that the first one had is not lost.
fn is_whole(store: &Store) {
    let other = store.find_name("other");
    assert!(store.get(other) == vec![1; 100 * PAGE as usize]);
    assert_eq!(store.trim_chunks().unwrap(), 1);
    assert!(store.get(other) == vec![1; 100 * PAGE as usize]);
    store.examine();
}

/// What is changed while it is pushed stays on the list.
#[test]
fn what_is_changed_while_it_is_pushed_stays_due() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    store.put(file, 17 * PAGE, &[2; PAGE as usize]);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || others.put(file, 17 * PAGE + 5, &[3; 9]));
    assert_eq!(store.push_due(|| false).unwrap(), 0);
    assert!(store.has_due().unwrap() && store.pages(file) > 100);
    assert_eq!(store.push_due(|| false).unwrap(), 1);
    assert!(!store.has_due().unwrap());
    assert_eq!(store.pages(file), 100);
    store.examine();
}

#[test]
fn what_others_have_pushed_meanwhile_counts_as_well() {
    let (store, space) = hybrid();
    let files = ["one", "two", "three"].map(|name| pushed(&store, name, 100));
    for file in files {
        store.put(file, 17 * PAGE, &[2; PAGE as usize]);
    }
    let others = Arc::clone(&store);
    // They leave the one that is being pushed.
    space.at(Moment::Write, move || assert_eq!(others.push_due(|| false).unwrap(), 2));
    assert_eq!(store.push_due(|| false).unwrap(), 3);
    assert!(!store.has_due().unwrap());
    assert!(files.iter().all(|file| store.pages(*file) == 100));
    store.examine();
}

#[test]
fn what_is_cut_off_again_while_it_is_trimmed_stays_due() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    let cut = move |store: &Store, pages| store.truncate(&root_user(), file, pages * PAGE).unwrap();
    cut(&store, 90);
    let others = Arc::clone(&store);
    space.at(Moment::Trim, move || cut(&others, 80));
    assert_eq!(store.trim_chunks().unwrap(), 0);
    assert!(!space.is_waiting() && store.has_due().unwrap());
    assert_eq!(store.trim_chunks().unwrap(), 1);
    assert_eq!(space.space.pages(), 80);
    assert_eq!(store.pages(file), 80);
    store.examine();
}

/// What somebody gets ahead who appends meanwhile is not pushed.
#[test]
fn what_is_ahead_of_who_appends_meanwhile_does_not_go_to_the_volume() {
    let (store, space) = hybrid();
    let file = pushed(&store, "file", 100);
    let others = Arc::clone(&store);
    space.at(Moment::Write, move || {
        for page in 800..820 {
            others.put(file, page * PAGE, &[3; PAGE as usize]);
        }
    });
    // Not whole pages: they are pushed when they are there, in two parts.
    store.put(file, PAGE / 2, &vec![2; 800 * PAGE as usize - PAGE as usize / 2]);
    assert!(!space.is_waiting());
    assert!(space.space.pages() <= 820, "{} pages", space.space.pages());
    store.push(file, Wait::Forever).unwrap();
    assert_eq!(space.space.pages(), 820);
    let mut expected = vec![2; 800 * PAGE as usize];
    expected[..PAGE as usize / 2].fill(1);
    expected.resize(820 * PAGE as usize, 3);
    assert!(store.get(file) == expected);
    store.examine();
}

/// What each of two has written is there, also in the page in which one of them ends, behind that.
#[test]
fn two_write_at_once_to_the_page_in_which_one_of_them_ends() {
    let page = PAGE as usize;
    let is_asked = true;
    for (len, space_asked, begin, first, second) in [
        (100 * page, is_asked, 100 * page, LONG + 100, LONG + 5 * page),
        (100 * page + 50, !is_asked, 30 * page, LONG + 100, LONG + 200),
    ] {
        let (store, space) = hybrid();
        let file = store.file("file", &vec![1; len]);
        store.push(file, Wait::Forever).unwrap();
        if space_asked {
            let how = Allocate::Space { keeps_size: true };
            store.allocate(&root_user(), file, how, 0, 300 * PAGE).unwrap();
        }
        let others = Arc::clone(&store);
        let other = move || others.put(file, begin as u64, &vec![3; second]);
        space.at(Moment::Write, other);
        store.put(file, begin as u64, &vec![2; first]);
        assert!(!space.is_waiting());
        let mut later = vec![1; len];
        later.resize(begin + second, 3);
        later[begin..].fill(3);
        let mut earlier = later.clone();
        earlier[begin..begin + first].fill(2);
        let found = store.get(file);
        assert!(found == later || found == earlier, "{:?}", found.get(begin + first - 2..));
    }
}
