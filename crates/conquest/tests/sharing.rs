//! Files that several processes have open, lock and write; children that are forked.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use conquest::{Files, LockMode, LockOwner, OpenOptions, Status, Store, Wait};
use conquest_peers::child::{fork, interrupt, thread};
use support::{Temporary, attach, await_file, ends_well, kill, small, start, text};

/// Bytes of a record that processes append: more than are written in place, and no whole pages.
const RECORD: usize = 30_001;
/// Records of each process.
const RECORDS: usize = 150;
/// The process's own locks.
const MINE: LockOwner = LockOwner::Process(0);

fn store(place: &Temporary) -> Store {
    let directory = place.path().join("store");
    Store::make(&directory, &small()).unwrap();
    attach(&directory)
}

fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true).clone()
}

#[test]
fn as_child() {
    let Some(role) = support::role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["append", directory, letter, ready, go] => {
            let store = attach(Path::new(directory));
            let files = store.files().unwrap();
            let mut options = OpenOptions::new();
            let mut log = files.open_with("log", options.append(true).create(true)).unwrap();
            std::fs::write(ready, b"").unwrap();
            // All at once.
            await_file(Path::new(go));
            let record = [letter.as_bytes()[0]; RECORD];
            for _ in 0..RECORDS {
                assert_eq!(Write::write(&mut log, &record).unwrap(), RECORD);
            }
            log.close().unwrap();
            store.detach().unwrap();
        }
        ["lock", directory, sign] => {
            let store = attach(Path::new(directory));
            let file = store.files().unwrap().open_with("locked", &both()).unwrap();
            file.lock_range(MINE, 10..20, LockMode::Exclusive, Wait::No).unwrap();
            file.lock_range(LockOwner::Open, 30..40, LockMode::Shared, Wait::No).unwrap();
            file.lock().unwrap();
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["shares", directory] => shares(Path::new(directory)),
        ["forks", directory] => forks(Path::new(directory)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn appended_writes_of_processes_are_whole() {
    let place = Temporary::in_memory("append");
    let store = store(&place);
    let directory = place.path().join("store");
    let letters = ["a", "b", "c"];
    let go = place.path().join("go");
    let children = letters.map(|letter| {
        let ready = place.path().join(letter);
        let child = start(&["append", text(&directory), letter, text(&ready), text(&go)]);
        await_file(&ready);
        child
    });
    std::fs::write(&go, b"").unwrap();
    assert!(children.into_iter().all(ends_well));
    let files = store.files().unwrap();
    let log = files.read("log").unwrap();
    assert_eq!(log.len(), letters.len() * RECORDS * RECORD);
    for record in log.chunks(RECORD) {
        assert!(record.iter().all(|byte| *byte == record[0]), "a write in another one");
    }
    store.detach().unwrap();
}

#[test]
fn locks_of_a_process_are_seen_waited_for_and_gone_with_it() {
    let place = Temporary::in_memory("locks");
    let store = store(&place);
    let sign = place.path().join("sign");
    let child = start(&["lock", text(&place.path().join("store")), text(&sign)]);
    await_file(&sign);
    let file = store.files().unwrap().open_with("locked", &both()).unwrap();
    let found = file.test_range(MINE, .., LockMode::Shared).unwrap().unwrap();
    assert_eq!((found.first, found.last, found.process), (10, 19, Some(child.id())));
    assert_eq!(file.test_range(MINE, 20.., LockMode::Shared).unwrap(), None);
    let found = file.test_range(LockOwner::Open, 20.., LockMode::Exclusive).unwrap().unwrap();
    assert_eq!((found.first, found.last, found.process), (30, 39, None));
    let refused = file.try_lock().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let begin = Instant::now();
    let limit = Duration::from_millis(150);
    let refused = file.lock_range(MINE, 5..=10, LockMode::Shared, Wait::AtMost(limit)).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EAGAIN);
    assert!(begin.elapsed() >= limit && begin.elapsed() < Duration::from_secs(20));
    let refused = file.lock_as(LockMode::Shared, Wait::AtMost(limit)).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EWOULDBLOCK);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            file.lock_range(MINE, 10..20, LockMode::Exclusive, Wait::Forever).unwrap();
            file.lock().unwrap();
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        kill(child);
        waiting.join().unwrap();
    });
    file.close().unwrap();
    store.detach().unwrap();
}

#[test]
fn closing_any_file_of_a_process_ends_its_own_locks_on_it_only() {
    let place = Temporary::in_memory("close");
    let store = store(&place);
    let files = store.files().unwrap();
    let [one, other] = [(); 2].map(|()| files.open_with("f", &both()).unwrap());
    let elsewhere = files.open_with("g", &both()).unwrap();
    for file in [&one, &elsewhere] {
        file.lock_range(MINE, 0..5, LockMode::Exclusive, Wait::No).unwrap();
    }
    one.lock_range(LockOwner::Open, 7..9, LockMode::Exclusive, Wait::No).unwrap();
    let seen = |file: &conquest::File| {
        // Another process, as far as locks go.
        let found = file.test_range(LockOwner::Process(1), .., LockMode::Shared).unwrap();
        found.map(|found| found.first)
    };
    assert_eq!((seen(&other), seen(&elsewhere)), (Some(0), Some(0)));
    // One that only names the file does not count.
    let named = OpenOptions::new().read(true).custom_flags(libc::O_PATH).clone();
    files.open_with("f", &named).unwrap().close().unwrap();
    assert_eq!(seen(&other), Some(0));
    other.close().unwrap();
    assert_eq!((seen(&one), seen(&elsewhere)), (Some(7), Some(0)));
    drop(one);
    let again = files.open("f").unwrap();
    assert_eq!(seen(&again), None);
    drop((again, elsewhere));
    store.detach().unwrap();
}

#[test]
fn only_waits_for_locks_are_interrupted() {
    let place = Temporary::in_memory("signals");
    let store = store(&place);
    let files = store.files().unwrap();
    let holder = files.open_with("f", &both()).unwrap();
    holder.lock().unwrap();
    holder.lock_range(LockOwner::Open, .., LockMode::Shared, Wait::No).unwrap();
    let waiting = files.open_with("f", &both()).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = scope.spawn(|| {
            let tell = tell;
            tell.send(thread()).unwrap();
            // Writing is not interrupted, whatever comes.
            for number in 0..2000 {
                waiting.write_at(&[1; 3000], number).unwrap();
            }
            // Not for ever, should nothing come of the signals.
            let wait = Wait::AtMost(Duration::from_secs(20));
            let interrupted = waiting.lock_as(LockMode::Exclusive, wait).unwrap_err();
            let of_range = waiting.lock_range(MINE, 3.., LockMode::Exclusive, wait);
            is_done.store(true, Ordering::Relaxed);
            (interrupted, of_range)
        });
        interrupt(told.recv().unwrap(), || is_done.load(Ordering::Relaxed));
        let (interrupted, of_range) = waiter.join().unwrap();
        assert_eq!(interrupted.raw_os_error(), libc::EINTR);
        assert_eq!(of_range.unwrap_err().raw_os_error(), libc::EINTR);
    });
    drop((holder, waiting));
    store.detach().unwrap();
}

#[test]
fn a_forked_child_has_no_part_in_open_files() {
    let place = Temporary::in_memory("forks");
    let directory = place.path().join("store");
    Store::make(&directory, &small()).unwrap();
    // In a process without other threads.
    assert!(ends_well(start(&["forks", text(&directory)])));
}

fn is_refused<T: std::fmt::Debug>(outcome: conquest::Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.raw_os_error(), libc::EBADF);
    assert!(error.to_string().contains("open it again"), "{error}");
}

fn forks(directory: &Path) {
    let store = attach(directory);
    let files = store.files().unwrap();
    files.create_dir("d").unwrap();
    files.write("f", b"parent's").unwrap();
    let mut file = files.open_with("f", &both()).unwrap();
    let dir = files.open_dir("d").unwrap();
    files.remove_file("f").unwrap();
    file.lock().unwrap();
    // What has not been used yet, and what has.
    for uses_store in [false, true] {
        fork(|| {
            if uses_store {
                files.write("child", b"child's").unwrap();
            }
            is_refused(file.read_at(&mut [0; 4], 0));
            is_refused(file.write(b"x"));
            is_refused(file.metadata());
            is_refused(file.unlock());
            is_refused(dir.list(0, &mut [0; 1000]).map(drop));
            is_refused(files.link_file(&file, "again"));
            child_of(&files);
            is_refused(file.set_len(0));
        })
        .wait();
        let mut text = String::new();
        file.seek(std::io::SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "parent's");
        let other = files.node(file.id()).open(&both()).unwrap();
        assert_eq!(other.try_lock().unwrap_err().raw_os_error(), libc::EWOULDBLOCK);
    }
    // By closing, too, and by the child's own end.
    let files = fork_with(file, dir, files);
    assert_eq!(support::names(store.fs()), ["child", "d"]);
    drop(files);
    support::check(store.fs());
    store.detach().unwrap();
}

/// What a child may do: open files of its own.
fn child_of(files: &Files) {
    let own = files.open_with("child", &both()).unwrap();
    own.write_at(b"own", 0).unwrap();
    own.lock().unwrap();
    own.close().unwrap();
    assert_eq!(&files.read("child").unwrap()[..3], b"own");
}

/// A child that closes its copies of all; the parent's file is open until the parent closes it.
fn fork_with(file: conquest::File, dir: conquest::Dir, files: Files) -> Files {
    let mut parts = Some((file, dir));
    fork(|| {
        let (file, dir) = parts.take().unwrap();
        is_refused(file.close());
        drop(dir);
        child_of(&files);
    })
    .wait();
    let (mut file, dir) = parts.unwrap();
    let mut text = Vec::new();
    file.seek(std::io::SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"parent's");
    assert_eq!(dir.entries().count(), 0);
    file.close().unwrap();
    files
}

#[test]
fn a_parcel_carries_open_files_to_a_child() {
    let place = Temporary::in_memory("shares");
    let directory = place.path().join("store");
    Store::make(&directory, &small()).unwrap();
    // In a process without other threads.
    assert!(ends_well(start(&["shares", text(&directory)])));
}

fn shares(directory: &Path) {
    let store = attach(directory);
    let files = store.files().unwrap();
    let file = files.open_with("f", &both()).unwrap();
    file.write(b"parent's, ").unwrap();
    let twice = file.try_clone().unwrap();
    assert_eq!(twice.position().unwrap(), 10);
    file.lock().unwrap();
    twice.close().unwrap();
    files.remove_file("f").unwrap();
    let parcel = files.parcel().unwrap();
    let known = parcel.add(&file).unwrap();
    let number = parcel.number();
    let mut carrier = Some(parcel.into_descriptor());
    let child = fork(|| {
        let carrier = carrier.take().unwrap();
        let again = carrier.try_clone().unwrap();
        let mut received = files.receive(number, carrier).unwrap();
        let refused = files.receive(number, again).unwrap_err();
        assert_eq!(refused.raw_os_error(), libc::EBADF);
        let (found, mine) = received.pop().unwrap();
        assert_eq!((found, received.len()), (known, 0));
        assert_eq!(mine.position().unwrap(), 10);
        mine.write(b"child's").unwrap();
        mine.set_status(Status { append: true, no_access_time: false, direct: false }).unwrap();
        // The lock is his, too.
        mine.try_lock().unwrap();
        mine.close().unwrap();
    });
    drop(carrier);
    child.wait();
    assert_eq!(file.position().unwrap(), 17);
    assert!(file.status().unwrap().append);
    let mut all = [0; 17];
    file.read_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"parent's, child's");
    let other = files.node(file.id()).open(&both()).unwrap();
    assert_eq!(other.try_lock().unwrap_err().raw_os_error(), libc::EWOULDBLOCK);
    file.close().unwrap();
    other.try_lock().unwrap();
    other.close().unwrap();
    support::check(store.fs());
    store.detach().unwrap();
}
