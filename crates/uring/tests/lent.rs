//! Reading to memory that is lent: all of it, a part at a time, and when who looks at it panics.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use conquest_uring::{Buffer, Job, Queue, Read, Request};

const PAGE: usize = 4096;
const PAGES: usize = 300;

/// A file of pages, each filled with what follows from its number; gone at the end.
struct Place(PathBuf);

fn byte_of(page: usize) -> u8 {
    (page * 7 % 251) as u8
}

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("conquest-uring-{name}-{}", std::process::id());
        let place = Place(Path::new("/var/tmp").join(name));
        let bytes: Vec<u8> = (0..PAGES).flat_map(|page| [byte_of(page); PAGE]).collect();
        std::fs::write(&place.0, bytes).unwrap();
        place
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&self.0).unwrap()
    }

    /// Queues of both kinds.
    fn queues(&self, depth: u32) -> [Queue; 2] {
        let deep = Queue::new(depth, vec![self.open()]).unwrap();
        assert!(deep.is_deep(), "io_uring is not to be had here: see kernel.io_uring_disabled");
        [deep, Queue::by_caller(depth, vec![self.open()]).unwrap()]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads of all pages of `memory`, in pieces of `pages`, from the file's end on.
fn reads(memory: &mut [u8], pages: usize) -> Vec<Read<'_>> {
    let pieces = memory.chunks_mut(pages * PAGE).enumerate();
    let at = |piece: usize| (piece * pages * PAGE) as u64;
    let mut reads: Vec<_> =
        pieces.map(|(piece, into)| Read { file: 0, at: at(piece), into }).collect();
    reads.reverse();
    reads
}

#[test]
fn all_is_read_and_told_once() {
    let place = Place::new("lent");
    for (depth, pages, bytes) in
        [(1, 1, 0), (4, 7, 3 * PAGE), (64, 1, 1 << 30), (64, 64, 1 << 20), (8, 300, 0)]
    {
        for mut queue in place.queues(depth) {
            let mut memory = Buffer::new(PAGES * PAGE).unwrap();
            let mut reads = reads(&mut memory, pages);
            let mut told = vec![0; reads.len()];
            queue
                .read_to(&mut reads, bytes, |number, outcome, found| {
                    told[number] += 1;
                    assert_eq!(outcome.unwrap(), found.len());
                    let first = PAGES.div_ceil(pages) - 1 - number;
                    for (page, found) in (first * pages..).zip(found.chunks(PAGE)) {
                        assert!(found.iter().all(|byte| *byte == byte_of(page)), "{page}");
                    }
                })
                .unwrap();
            assert!(told.iter().all(|count| *count == 1), "{told:?}");
            assert_eq!(queue.under_way(), 0);
            // It goes on with other requests.
            let job = Job::Read(Buffer::new(PAGE).unwrap());
            queue.submit(Request { tag: 1, file: 0, at: PAGE as u64, job }).unwrap();
            let done = queue.wait(1).unwrap().pop().unwrap();
            assert_eq!(done.outcome.unwrap(), PAGE);
        }
    }
}

#[test]
fn what_can_not_be_is_refused_and_what_fails_is_told() {
    let place = Place::new("refused");
    for mut queue in place.queues(4) {
        let mut memory = Buffer::new(2 * PAGE).unwrap();
        let mut all = reads(&mut memory, 1);
        all[1].file = 1;
        let refused = queue.read_to(&mut all, 0, |_, _, _| panic!("none is made"));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        // Behind the end, and not in blocks.
        (all[1].file, all[1].at) = (0, (PAGES * PAGE) as u64);
        let mut told = Vec::new();
        all[0].at = 7;
        queue
            .read_to(&mut all, 1 << 20, |number, outcome, _| {
                told.push((number, outcome.map_err(|error| error.raw_os_error())));
            })
            .unwrap();
        told.sort_unstable_by_key(|(number, _)| *number);
        assert_eq!(told, [(0, Err(Some(libc::EINVAL))), (1, Ok(0))]);
        if queue.is_deep() {
            let job = Job::Read(Buffer::new(PAGE).unwrap());
            queue.submit(Request { tag: 1, file: 0, at: 0, job }).unwrap();
            let refused = queue.read_to(&mut [], 0, |_, _, _| {});
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBUSY));
        }
    }
}

#[test]
fn who_panics_waits_for_what_is_under_way() {
    let place = Place::new("panic");
    for mut queue in place.queues(64) {
        let mut memory = Buffer::new(PAGES * PAGE).unwrap();
        let mut reads = reads(&mut memory, 5);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            queue.read_to(&mut reads, 1 << 30, |_, _, _| panic!("on purpose"))
        }));
        assert!(outcome.is_err());
        assert_eq!(queue.under_way(), 0);
        // Nothing is left that the next one could take for its own.
        let mut told = 0;
        queue
            .read_to(&mut reads, 1 << 30, |_, outcome, found| {
                told += 1;
                assert_eq!(outcome.unwrap(), found.len());
            })
            .unwrap();
        assert_eq!(told, PAGES / 5);
    }
}
