//! Queues: what is transferred, with io_uring and without, and what the death of a process leaves.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use conquest_uring::{Buffer, Completion, DEPTH_MAX, Job, Queue, Request};

const LIMIT: Duration = Duration::from_secs(60);

/// A file on the disk, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(Path::new("/var/tmp").join(format!("conquest-uring-{name}-{}", std::process::id())))
    }

    /// Opened past the kernel's cache.
    fn open(&self) -> File {
        open(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Both kinds of queues.
fn queues(depth: u32, place: &Place) -> [Queue; 2] {
    let deep = Queue::new(depth, vec![place.open()]).unwrap();
    assert!(deep.is_deep(), "io_uring is not to be had here: see kernel.io_uring_disabled");
    [deep, Queue::by_caller(depth, vec![place.open()]).unwrap()]
}

fn filled(len: usize, byte: u8) -> Buffer {
    let mut buffer = Buffer::new(len).unwrap();
    buffer.fill(byte);
    buffer
}

fn submit(queue: &mut Queue, tag: u64, at: u64, job: Job) {
    queue.submit(Request { tag, file: 0, at, job }).unwrap();
}

#[test]
fn transfers_are_made_whatever_the_order() {
    const BLOCKS: u64 = 500;
    const LEN: usize = 8192;
    let place = Place::new("order");
    for mut queue in queues(32, &place) {
        let mut done: Vec<Completion> = Vec::new();
        // In an order that jumps about: 7 and 500 have no divisor in common.
        for block in (0..BLOCKS).map(|at| at * 7 % BLOCKS) {
            if !queue.has_room() {
                done.extend(queue.wait(1).unwrap());
            }
            let write = Job::Write(filled(LEN, block as u8));
            submit(&mut queue, block, block * LEN as u64, write);
        }
        done.extend(queue.wait(usize::MAX).unwrap());
        assert_eq!(queue.under_way(), 0);
        let mut tags: Vec<u64> = done.iter().map(|one| one.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..BLOCKS).collect::<Vec<_>>());
        assert!(done.iter().all(|one| matches!(one.outcome, Ok(LEN))));
        submit(&mut queue, 0, 0, Job::Flush);
        assert!(matches!(queue.wait(1).unwrap()[..], [Completion { outcome: Ok(0), .. }]));
        for block in 0..BLOCKS {
            if !queue.has_room() {
                queue.wait(1).unwrap().iter().for_each(is_right);
            }
            submit(&mut queue, block, block * LEN as u64, Job::Read(filled(LEN, 255)));
        }
        queue.wait(usize::MAX).unwrap().iter().for_each(is_right);
    }
}

fn is_right(read: &Completion) {
    let Completion { tag, outcome: Ok(len), job: Job::Read(buffer) } = read else {
        panic!("{read:?}")
    };
    assert!(*len == buffer.len() && buffer.iter().all(|byte| *byte == *tag as u8), "block {tag}");
}

#[test]
fn what_can_not_be_done_is_told() {
    let place = Place::new("refused");
    place.open().write_all_at(&filled(4096, 1), 0).unwrap();
    for depth in [0, DEPTH_MAX + 1] {
        let refused = Queue::new(depth, Vec::new()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        assert!(Queue::by_caller(depth, Vec::new()).is_err());
    }
    assert_eq!(Buffer::new(0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(Buffer::new(usize::MAX).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    for mut queue in queues(2, &place) {
        let nowhere = Request { tag: 1, file: 1, at: 0, job: Job::Flush };
        let (refused, back) = queue.submit(nowhere).unwrap_err();
        assert_eq!((refused.raw_os_error(), back.tag), (Some(libc::EBADF), 1));
        // Behind the end there is nothing; what is not aligned can't be past the cache.
        submit(&mut queue, 2, 4096, Job::Read(filled(4096, 7)));
        submit(&mut queue, 3, 1, Job::Read(filled(4096, 7)));
        let more = Request { tag: 4, file: 0, at: 0, job: Job::Flush };
        let (refused, _) = queue.submit(more).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        let mut done = queue.wait(2).unwrap();
        done.sort_by_key(|one| one.tag);
        let outcomes = done.iter().map(|one| one.outcome.as_ref().map_err(|e| e.raw_os_error()));
        assert_eq!(outcomes.collect::<Vec<_>>(), [Ok(&0), Err(Some(libc::EINVAL))]);
        assert!(queue.wait(1).unwrap().is_empty());
    }
}

/// What is under way when a queue is dropped is done, and its memory is its own until then.
#[test]
fn who_drops_a_queue_waits() {
    let place = Place::new("dropped");
    for (mut queue, byte) in queues(64, &place).into_iter().zip([3, 4]) {
        for at in 0..64 {
            submit(&mut queue, at, at * 65_536, Job::Write(filled(65_536, byte)));
        }
        drop(queue);
        let mut found = vec![0; 64 * 65_536];
        File::open(&place.0).unwrap().read_exact(&mut found).unwrap();
        assert!(found.iter().all(|found| *found == byte));
    }
}

// --- the death of a process ----------------------------------------------------------------------

const ROLE: &str = "CONQUEST_URING_ROLE";
const WRITES: u64 = 256;
const EACH: usize = 1 << 20;

/// Takes the lock of `file`'s description: whether it was to be had.
fn lock(file: &File) -> bool {
    file.try_lock().is_ok()
}

/// The child: takes the lock, begins many writes, says so, and waits to be killed.
#[test]
fn as_child() {
    let Ok(path) = std::env::var(ROLE) else { return };
    let file = open(Path::new(&path));
    assert!(lock(&file));
    let mut queue = Queue::new(WRITES as u32, vec![file]).unwrap();
    for at in 0..WRITES {
        submit(&mut queue, at, at * EACH as u64, Job::Write(filled(EACH, 1)));
    }
    // Hands them in, and waits for none.
    queue.wait(0).unwrap();
    println!("under way");
    std::thread::sleep(LIMIT);
}

/// Blocks that the child has written.
fn written(file: &mut File) -> usize {
    let mut found = Buffer::new(EACH).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    (0..WRITES)
        .filter(|_| {
            file.read_exact(&mut found).unwrap();
            found.iter().all(|byte| *byte == 1)
        })
        .count()
}

/// Requests may go on after their process is gone, and mostly do. The lock of the description
/// by which they were made is to be had only when none is left: so it is the proof that nothing can
/// land any more.
#[test]
fn the_lock_of_a_dead_process_is_free_when_its_last_request_is_done() {
    let place = Place::new("dead");
    let mut file = place.open();
    let zeros = Buffer::new(EACH).unwrap();
    for _ in 0..5 {
        file.seek(SeekFrom::Start(0)).unwrap();
        (0..WRITES).for_each(|_| file.write_all(&zeros).unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "as_child", "--nocapture", "--test-threads=1"])
            .env(ROLE, &place.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.contains("under way")));
        let other = place.open();
        let begin = Instant::now();
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = begin.elapsed();
        while !lock(&other) {
            assert!(begin.elapsed() < LIMIT, "gone after {gone:?}, and its lock is not");
            std::thread::sleep(Duration::from_micros(100));
        }
        let landed = written(&mut file);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(written(&mut file), landed, "something has landed later");
    }
}
