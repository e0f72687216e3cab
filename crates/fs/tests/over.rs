//! Whole pages that are written over what the volume has of a file, without a turn, while others do
//! something to the file: before it is looked where they are, before and after they are written.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use conquest_format::PAGE;
use conquest_format::fs::chunk;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::Removal;
use conquest_fs::placement::Form;
use conquest_fs::{Error, FileId, NewFileSystem};
use conquest_testkit::files::{Counts, Moment, Visited, root_user};
use store::{NEW, Store};

/// Bytes above which files are large.
const THRESHOLD: u64 = 64 * PAGE;
/// Pages of a file, and which of them are written over.
const PAGES: u64 = 100;
const FIRST: u64 = 20;

/// When others come by, who do something to the file.
const MOMENTS: [Moment; 4] = [Moment::Look, Moment::HasLooked, Moment::Over, Moment::WasOver];

/// A store with a file of pages that the volume has, none of which the core has.
fn hybrid() -> (Arc<Store>, Visited, FileId) {
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: chunk::BLOCKS_MIN };
    let (new, space) = (NewFileSystem { large: Some(large), ..NEW }, Visited::default());
    let store = Arc::new(Store::with_space(8, &new, Box::new(space.clone())));
    let file = pushed(&store, "file");
    counts(&space);
    (store, space, file)
}

/// How often something was to be written over, and was; and how often was written in a turn.
fn counts(space: &Visited) -> [usize; 3] {
    let Counts { tried, done, written, .. } = space.take_counts();
    [tried, done, written]
}

fn pushed(store: &Store, name: &str) -> FileId {
    let file = store.file(name, &vec![1; (PAGES * PAGE) as usize]);
    store.push(file, Wait::Forever).unwrap();
    file
}

/// What others do.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Gives the file so many bytes.
    Truncate(u64),
    /// Makes a hole of so many bytes from this one on, or zeros with space, or lets it have space.
    Punch(u64, u64),
    Zeros(u64, u64),
    Space(u64, u64),
    /// Writes so many bytes of this value from that one on: where, as it is.
    Put(u64, u64, u8),
    /// The same, as to a file that was opened with `O_DIRECT`.
    Direct(u64, u64, u8),
    /// Pushes what is in the core.
    Push,
    /// Trims what was cut off.
    Trim,
}

impl Op {
    fn run(self, store: &Store, file: FileId) {
        let who = &root_user();
        let allocate = |how, at, len| store.allocate(who, file, how, at, len).unwrap();
        match self {
            Op::Truncate(size) => store.truncate(who, file, size).unwrap(),
            Op::Punch(at, len) => allocate(Allocate::Hole, at, len),
            Op::Zeros(at, len) => allocate(Allocate::Zeros { keeps_size: true }, at, len),
            Op::Space(at, len) => allocate(Allocate::Space { keeps_size: false }, at, len),
            Op::Put(at, len, value) => store.put(file, at, &vec![value; len as usize]),
            Op::Direct(at, len, value) => {
                let bytes = vec![value; len as usize];
                store.write_direct(who, file, WriteAt::Offset(at), &bytes).unwrap();
            }
            Op::Push => store.push(file, Wait::Forever).unwrap(),
            Op::Trim => drop(store.trim_chunks().unwrap()),
        }
    }

    /// What becomes of a file's bytes by it.
    fn model(self, bytes: &mut Vec<u8>) {
        let (at, len, value, grows) = match self {
            Op::Truncate(size) => return bytes.resize(size as usize, 0),
            Op::Push | Op::Trim => return,
            Op::Space(at, len) => {
                let size = bytes.len().max((at + len) as usize);
                return bytes.resize(size, 0);
            }
            Op::Punch(at, len) | Op::Zeros(at, len) => (at, len, 0, false),
            Op::Put(at, len, value) | Op::Direct(at, len, value) => (at, len, value, true),
        };
        let (at, end) = (at as usize, (at + len) as usize);
        if grows && bytes.len() < end {
            bytes.resize(end, 0);
        }
        let (at, end) = (at.min(bytes.len()), end.min(bytes.len()));
        bytes[at..end].fill(value);
    }
}

/// What a file may have in which `write` has come anywhere among `others`.
fn outcomes(write: Op, others: &[Op]) -> Vec<Vec<u8>> {
    let outcome = |before: usize| {
        let mut bytes = vec![1; (PAGES * PAGE) as usize];
        let (first, then) = others.split_at(before);
        first.iter().chain([&write]).chain(then).for_each(|op| op.model(&mut bytes));
        bytes
    };
    (0..=others.len()).map(outcome).collect()
}

/// Has pages written over, while others do what `others` are at each moment, and compares.
fn try_all(others: &[Op]) {
    let (at, page) = (FIRST * PAGE, PAGE);
    for write in [Op::Direct(at, 4 * page, 2), Op::Direct(at, page, 2), Op::Put(at, 70 * page, 2)] {
        for moment in MOMENTS {
            let told = format!("{write:?}, {others:?} at {moment:?}");
            let (store, space, file) = hybrid();
            let (its, ops) = (Arc::clone(&store), others.to_vec());
            space.at(moment, move || ops.iter().for_each(|op| op.run(&its, file)));
            write.run(&store, file);
            assert!(!space.is_waiting(), "{told}");
            let found = store.get(file);
            let differs = |wanted: &Vec<u8>| found.iter().zip(wanted).position(|(a, b)| a != b);
            let outcomes = outcomes(write, others);
            let is_one = outcomes.contains(&found);
            let at: Vec<_> =
                outcomes.iter().map(|wanted| (wanted.len(), differs(wanted))).collect();
            assert!(is_one, "{told}: {} bytes, differs from {at:?}", found.len());
            // Nor is it anything else when all has come to the volume, or was trimmed.
            for op in [Op::Push, Op::Trim] {
                op.run(&store, file);
                assert!(store.get(file) == found, "{told}, behind {op:?}");
            }
            store.examine();
        }
    }
}

/// Bytes up to page `pages` and `more`.
const fn upto(pages: u64, more: u64) -> u64 {
    pages * PAGE + more
}

#[test]
fn nobody_is_in_its_way() {
    let (store, space, file) = hybrid();
    let before = (store.stamps(file), store.pages(file));
    store.pass(1000);
    Op::Direct(FIRST * PAGE, PAGE, 2).run(&store, file);
    assert_eq!(counts(&space), [1, 1, 0]);
    Op::Put(0, upto(PAGES, 0), 3).run(&store, file);
    assert_eq!(counts(&space), [1, 1, 0]);
    assert_eq!(store.pages(file), before.1);
    assert!(before.0.iter().zip(store.stamps(file)).all(|(before, now)| *before < now));
    assert!(store.get(file) == vec![3; upto(PAGES, 0) as usize]);
    // What begins with whole pages: these only.
    Op::Direct(0, upto(2, 100), 4).run(&store, file);
    assert_eq!(counts(&space), [1, 1, 0]);
    // What has no space, is behind the size, is not all of a page, or is in the core, is not
    // there to be written over.
    Op::Punch(upto(50, 0), PAGE).run(&store, file);
    for (at, len) in [(48, 4 * PAGE), (98, 3 * PAGE), (101, 100), (2, PAGE)] {
        Op::Direct(upto(at, 0), len, 5).run(&store, file);
        assert_eq!(counts(&space)[..2], [0, 0], "page {at}");
    }
    let mut expected = vec![3; upto(101, 100) as usize];
    expected[..upto(2, 0) as usize].fill(4);
    for (at, len) in [(48, 4 * PAGE), (98, 3 * PAGE), (101, 100), (2, PAGE)] {
        expected[upto(at, 0) as usize..][..len as usize].fill(5);
    }
    assert!(store.get(file) == expected);
    // Neither is what is behind the end, even if it is there still.
    Op::Truncate(upto(10, 0)).run(&store, file);
    Op::Truncate(upto(90, 0)).run(&store, file);
    Op::Direct(upto(20, 0), PAGE, 6).run(&store, file);
    assert_eq!(counts(&space)[..2], [0, 0]);
    expected.truncate(upto(90, 0) as usize);
    expected[upto(10, 0) as usize..].fill(0);
    expected[upto(20, 0) as usize..upto(21, 0) as usize].fill(6);
    assert!(store.get(file) == expected);
    store.examine();
}

#[test]
fn it_is_cut_off_meanwhile() {
    for size in [0, upto(10, 0), upto(10, 5), upto(20, 9), upto(22, 0), upto(22, 100), upto(95, 7)]
    {
        try_all(&[Op::Truncate(size)]);
    }
}

#[test]
fn it_is_cut_off_and_grows_again_meanwhile() {
    for size in [0, upto(10, 0), upto(20, 9), upto(22, 0), upto(22, 100)] {
        let (cut, grow) = (Op::Truncate(size), Op::Truncate(upto(PAGES, 0)));
        try_all(&[cut, grow]);
        try_all(&[cut, Op::Trim, grow]);
        try_all(&[cut, grow, Op::Push]);
        try_all(&[cut, Op::Put(upto(99, 0), PAGE, 3), Op::Push]);
        try_all(&[cut, Op::Direct(0, upto(PAGES, 0), 3)]);
    }
}

#[test]
fn holes_and_zeros_are_made_of_it_meanwhile() {
    for (at, len) in [(0, 0), (10, 15), (21, 2), (20, 4), (20, 1), (22, 30)] {
        let (at, len) = (upto(at, 0), if len == 0 { upto(PAGES, 0) } else { upto(len, 0) });
        try_all(&[Op::Punch(at, len)]);
        try_all(&[Op::Punch(at + 7, len - 9)]);
        try_all(&[Op::Punch(at, len), Op::Put(upto(20, 0), PAGE, 3), Op::Push]);
        try_all(&[Op::Punch(at, len), Op::Space(at, len)]);
        try_all(&[Op::Zeros(at, len)]);
    }
}

#[test]
fn pages_of_it_are_written_in_the_core_meanwhile() {
    for (at, len) in [(upto(20, 0), PAGE), (upto(20, 5), 9), (upto(19, 4000), 200)] {
        let put = Op::Put(at, len, 3);
        try_all(&[put]);
        try_all(&[put, Op::Push]);
        try_all(&[put, Op::Push, Op::Put(upto(20, 100), 50, 4)]);
        try_all(&[put, Op::Put(upto(20, 100), 50, 4), Op::Push]);
        try_all(&[Op::Put(upto(18, 0), upto(8, 0), 4), put, Op::Push, Op::Push]);
    }
}

#[test]
fn others_write_over_it_meanwhile() {
    for (at, len) in [(20, 4), (18, 4), (22, 4), (20, 1), (10, 80)] {
        let over = Op::Direct(upto(at, 0), upto(len, 0), 3);
        try_all(&[over]);
        try_all(&[over, Op::Direct(upto(21, 0), upto(1, 0), 4)]);
        try_all(&[over, Op::Put(upto(20, 7), 5, 4), Op::Push]);
        try_all(&[over, Op::Truncate(upto(21, 0))]);
    }
}

#[test]
fn its_end_moves_on_meanwhile() {
    for at in [90, 100, 120] {
        try_all(&[Op::Put(upto(at, 0), upto(70, 0), 3)]);
        try_all(&[Op::Put(upto(at, 0), upto(2, 100), 3), Op::Push]);
        try_all(&[Op::Space(upto(at, 0), upto(50, 0))]);
        try_all(&[Op::Truncate(upto(at, 0)), Op::Put(upto(200, 0), 5, 3), Op::Push]);
    }
}

/// The chunk is another file's then.
#[test]
fn it_is_removed_meanwhile() {
    for moment in MOMENTS {
        for trims in [false, true] {
            let (store, space, file) = hybrid();
            let its = Arc::clone(&store);
            space.at(moment, move || {
                its.remove(&root_user(), its.root(), b"file", Removal::File).unwrap();
                if trims {
                    its.trim_chunks().unwrap();
                }
                pushed(&its, "other");
            });
            let at = WriteAt::Offset(FIRST * PAGE);
            let written = store.write_direct(&root_user(), file, at, &[2; 4 * PAGE as usize]);
            assert!(matches!(written, Err(Error::Stale)), "{moment:?}, {trims}");
            assert!(!space.is_waiting());
            let other = store.find_name("other");
            for _ in 0..2 {
                let found = store.get(other);
                assert!(found == vec![1; upto(PAGES, 0) as usize], "{moment:?}, {trims}");
                store.trim_chunks().unwrap();
            }
            store.examine();
        }
    }
}

/// It moves back to the core, and its chunk is another file's then; or its own once more.
#[test]
fn it_moves_back_meanwhile() {
    for moment in MOMENTS {
        for (trims, grows) in [(false, false), (true, false), (true, true)] {
            let (store, space, file) = hybrid();
            let its = Arc::clone(&store);
            space.at(moment, move || {
                Op::Truncate(upto(30, 5)).run(&its, file);
                assert_ne!(its.placement(file, THRESHOLD).unwrap().form, Form::Large);
                if trims {
                    its.trim_chunks().unwrap();
                }
                match grows {
                    true => Op::Put(upto(20, 0), upto(80, 0), 7).run(&its, file),
                    false => drop(pushed(&its, "other")),
                }
            });
            let told = format!("{moment:?}, {trims}, {grows}");
            Op::Direct(FIRST * PAGE, 4 * PAGE, 2).run(&store, file);
            assert!(!space.is_waiting(), "{told}");
            let mut expected = vec![1; upto(30, 5) as usize];
            if grows {
                expected.resize(upto(100, 0) as usize, 7);
                expected[upto(20, 0) as usize..].fill(7);
            }
            expected[upto(FIRST, 0) as usize..][..upto(4, 0) as usize].fill(2);
            assert!(store.get(file) == expected, "{told}");
            Op::Push.run(&store, file);
            store.trim_chunks().unwrap();
            assert!(store.get(file) == expected, "{told}");
            if !grows {
                let other = store.find_name("other");
                assert!(store.get(other) == vec![1; upto(PAGES, 0) as usize], "{told}");
            }
            store.examine();
        }
    }
}

/// Who brings a page into the core, to change a part of it, and is overtaken after he has read it.
#[test]
fn what_was_read_before_it_was_changed_is_read_again() {
    let all = upto(PAGES, 0);
    let others = [
        Op::Direct(upto(20, 0), PAGE, 2),
        Op::Put(0, all, 2),
        Op::Punch(upto(20, 0), PAGE),
        Op::Zeros(upto(15, 0), upto(10, 0)),
        Op::Put(upto(20, 10), 10, 2),
    ];
    for other in others {
        let (store, space, file) = hybrid();
        let its = Arc::clone(&store);
        space.at(Moment::HasRead, move || other.run(&its, file));
        let put = Op::Put(upto(20, 100), 50, 3);
        put.run(&store, file);
        assert!(!space.is_waiting());
        let mut expected = vec![1; all as usize];
        [other, put].into_iter().for_each(|op| op.model(&mut expected));
        assert!(store.get(file) == expected, "{other:?}");
        store.examine();
    }
}

/// Who has read a page, and is overtaken, but not by the record: he brings it into the core as it
/// was, over what is there now, and it may be pushed before that record.
#[test]
fn what_was_read_before_it_was_written_over_does_not_come_back() {
    let others: [&[Op]; 4] = [
        &[],
        &[Op::Push],
        &[Op::Push, Op::Put(upto(20, 0), 60, 4), Op::Push],
        &[Op::Push, Op::Direct(upto(20, 0), PAGE, 4)],
    ];
    for others in others {
        let (store, space, file) = hybrid();
        let (tell, is_written) = channel();
        let (go, goes_on) = channel::<()>();
        let (its, copy) = (Arc::clone(&store), space.clone());
        let over = Op::Direct(upto(20, 0), PAGE, 2);
        let (give, begun) = channel();
        space.at(Moment::HasRead, move || {
            copy.at(Moment::WasOver, move || {
                tell.send(()).unwrap();
                goes_on.recv().unwrap();
            });
            give.send(thread::spawn(move || over.run(&its, file))).unwrap();
            is_written.recv().unwrap();
        });
        let put = Op::Put(upto(20, 100), 50, 3);
        put.run(&store, file);
        others.iter().for_each(|op| op.run(&store, file));
        go.send(()).unwrap();
        begun.recv().unwrap().join().unwrap();
        assert!(!space.is_waiting());
        let all = [&[put], others].concat();
        let found = store.get(file);
        assert!(outcomes(over, &all).contains(&found), "{others:?}");
        Op::Push.run(&store, file);
        assert!(store.get(file) == found, "{others:?}, pushed");
        store.examine();
    }
}

#[test]
fn others_go_on_while_it_is_written_over() {
    let over = Op::Direct(upto(20, 0), upto(4, 0), 2);
    let all = upto(PAGES, 0) as usize;
    let begin = |moment| {
        let (store, space, file) = hybrid();
        let its = Arc::clone(&store);
        space.at(moment, move || over.run(&its, file));
        (store, space, file)
    };
    // Pushing takes what it has pushed out of the core.
    let (store, space, file) = begin(Moment::Write);
    Op::Put(upto(50, 0), upto(3, 0), 3).run(&store, file);
    Op::Push.run(&store, file);
    assert_eq!(counts(&space), [1, 1, 1]);
    assert_eq!(store.pages(file), PAGES);
    store.examine();
    // What is trimmed needs not be trimmed again.
    let (store, space, file) = begin(Moment::Trim);
    Op::Truncate(upto(90, 0)).run(&store, file);
    assert_eq!(store.trim_chunks().unwrap(), 1);
    assert_eq!((counts(&space), store.trim_chunks().unwrap()), ([1, 1, 0], 0));
    assert_eq!(store.pages(file), 90);
    store.examine();
    // What is written behind the end counts.
    let (store, space, file) = begin(Moment::Write);
    Op::Put(upto(PAGES, 0), upto(70, 0), 3).run(&store, file);
    assert_eq!(counts(&space), [1, 1, 1]);
    assert_eq!(store.pages(file), PAGES + 70);
    let found = store.get(file);
    assert!(found[upto(20, 0) as usize..upto(24, 0) as usize].iter().all(|byte| *byte == 2));
    assert!(found[all..].iter().all(|byte| *byte == 3));
    store.examine();
}

/// Whoever moves pages of the volume all the time keeps nobody from writing.
#[test]
fn it_is_not_tried_for_ever() {
    let (store, space, file) = hybrid();
    space.move_times(usize::MAX);
    let write = Op::Direct(upto(20, 0), upto(4, 0), 2);
    write.run(&store, file);
    assert_eq!(counts(&space), [3, 0, 1]);
    let mut expected = vec![1; upto(PAGES, 0) as usize];
    write.model(&mut expected);
    assert!(store.get(file) == expected);
    // Once does no harm.
    space.move_times(1);
    let over = Op::Direct(upto(21, 0), upto(1, 0), 3);
    over.run(&store, file);
    assert_eq!(counts(&space), [2, 1, 0]);
    over.model(&mut expected);
    assert!(store.get(file) == expected);
    store.examine();
}
