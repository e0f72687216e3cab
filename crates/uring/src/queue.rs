//! Many transfers between files and memory under way at once.
//!
//! Files and buffers belong to the queue while a request uses them: a queue that is dropped waits
//! for all of them, and one that is forgotten keeps them for ever.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use crate::{Buffer, error, is_passing, uninterrupted};

/// Most requests that a queue has under way.
pub const DEPTH_MAX: u32 = 4096;

/// What a request does.
#[derive(Debug)]
pub enum Job {
    /// pread(2), to all of the buffer.
    Read(Buffer),
    /// pwrite(2), of all of the buffer.
    Write(Buffer),
    /// fdatasync(2).
    Flush,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// What its completion is known by.
    pub tag: u64,
    /// Which file of the queue.
    pub file: usize,
    /// From which byte on.
    pub at: u64,
    /// What.
    pub job: Job,
}

/// What has come of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub tag: u64,
    /// How many bytes: transfers may be short, as read(2) and write(2) may.
    pub outcome: io::Result<usize>,
    /// What was done, with its buffer.
    pub job: Job,
}

/// How requests are carried out.
pub(crate) enum Engine {
    /// By the kernel, while the caller goes on.
    Ring(Box<IoUring>),
    /// By the caller when they are submitted, where io_uring is not to be had.
    Caller(VecDeque<Completion>),
}

/// A queue. It belongs to the process that made it: a forked child must not use or drop its copy,
/// or it waits for requests, and takes completions, that are its parent's.
pub struct Queue {
    pub(crate) engine: Engine,
    /// Requests under way, by the numbers that the kernel knows them by.
    pub(crate) requests: Vec<Option<Request>>,
    /// Numbers that are free.
    free: Vec<usize>,
    pub(crate) files: Vec<File>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (under_way, files) = (self.under_way(), self.files.len());
        let is_ring = matches!(self.engine, Engine::Ring(_));
        f.debug_struct("Queue")
            .field("under_way", &under_way)
            .field("files", &files)
            .field("is_ring", &is_ring)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// One for `files`, with up to `depth` requests under way.
    ///
    /// # Errors
    /// `EINVAL` if `depth` is 0 or more than [`DEPTH_MAX`]; `ENOMEM`, `EMFILE`.
    pub fn new(depth: u32, files: Vec<File>) -> io::Result<Queue> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(error(libc::EINVAL));
        }
        let engine = match IoUring::builder().setup_coop_taskrun().build(depth) {
            Ok(ring) => Engine::Ring(Box::new(ring)),
            Err(error) => match error.raw_os_error() {
                // No io_uring, none of that kind, or not for this process.
                Some(libc::ENOSYS | libc::EPERM | libc::EINVAL) => Engine::Caller(VecDeque::new()),
                _ => return Err(error),
            },
        };
        Ok(Queue::with(engine, depth, files))
    }

    /// The same without io_uring.
    ///
    /// # Errors
    /// `EINVAL` as there.
    pub fn by_caller(depth: u32, files: Vec<File>) -> io::Result<Queue> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(error(libc::EINVAL));
        }
        Ok(Queue::with(Engine::Caller(VecDeque::new()), depth, files))
    }

    fn with(engine: Engine, depth: u32, files: Vec<File>) -> Queue {
        let requests = (0..depth).map(|_| None).collect();
        Queue { engine, requests, free: (0..depth as usize).collect(), files }
    }

    /// Whether requests are under way while the caller goes on; otherwise each is complete when it
    /// is submitted.
    #[must_use]
    pub fn is_deep(&self) -> bool {
        matches!(self.engine, Engine::Ring(_))
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Requests that were submitted and not given back.
    #[must_use]
    pub fn under_way(&self) -> usize {
        match &self.engine {
            Engine::Ring(_) => self.requests.len() - self.free.len(),
            Engine::Caller(done) => done.len(),
        }
    }

    /// Whether one more can be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.under_way() < self.requests.len()
    }

    /// Begins `request`. The kernel may come to it only at the next [`Queue::wait`].
    ///
    /// # Errors
    /// The request is given back: `EAGAIN` if there is no room, `EBADF` if there is no such file.
    pub fn submit(&mut self, request: Request) -> Result<(), (io::Error, Request)> {
        if !self.has_room() {
            return Err((error(libc::EAGAIN), request));
        }
        let Some(file) = self.files.get(request.file) else {
            return Err((error(libc::EBADF), request));
        };
        match &mut self.engine {
            Engine::Caller(done) => done.push_back(carried_out(file, request)),
            Engine::Ring(ring) => {
                let Some(number) = self.free.pop() else {
                    return Err((error(libc::EAGAIN), request));
                };
                let fd = Fd(file.as_raw_fd());
                // The buffer's memory stays where it is when the request is put away.
                let place = self.requests.get_mut(number).map(|place| place.insert(request));
                let Some(entry) = place.map(|request| entry(fd, request)) else {
                    std::process::abort()
                };
                // SAFETY: the file stays open and the buffer stays in `requests`, which nothing but
                // the completion of this number takes it out of; both outlive the ring's requests,
                // because dropping the queue waits for them.
                let pushed = unsafe { ring.submission().push(&entry.user_data(number as u64)) };
                // There are as many entries as numbers.
                pushed.unwrap_or_else(|_| std::process::abort());
            }
        }
        Ok(())
    }

    /// Waits until at least `least` requests are complete, or all if there are fewer, and gives
    /// those that are: fewer if waiting fails, which the next call tells.
    ///
    /// # Errors
    /// Those of io_uring_enter(2) that waiting does not end.
    pub fn wait(&mut self, least: usize) -> io::Result<Vec<Completion>> {
        let least = least.min(self.under_way());
        let mut found = Vec::new();
        loop {
            match &mut self.engine {
                Engine::Caller(done) => found.extend(done.drain(..)),
                Engine::Ring(ring) => {
                    let wanted = least.saturating_sub(found.len());
                    match ring.submit_and_wait(wanted) {
                        Err(error) if is_passing(&error) => {}
                        Err(error) if found.is_empty() => return Err(error),
                        Err(_) => return Ok(found),
                        Ok(_) => {}
                    }
                    for completed in ring.completion() {
                        let number = completed.user_data() as usize;
                        let place = self.requests.get_mut(number);
                        if let Some(Request { tag, job, .. }) = place.and_then(Option::take) {
                            self.free.push(number);
                            let count = usize::try_from(completed.result());
                            let outcome = count.map_err(|_| error(-completed.result()));
                            found.push(Completion { tag, outcome, job });
                        }
                    }
                }
            }
            if found.len() >= least {
                return Ok(found);
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        while self.under_way() > 0 {
            if self.wait(1).is_err() {
                // The kernel may still use them: they are lost, which harms nobody.
                std::mem::take(&mut self.requests).leak();
                std::mem::take(&mut self.files).leak();
                return;
            }
        }
    }
}

/// What the kernel is told of `request`.
fn entry(file: Fd, request: &mut Request) -> Entry {
    let len = |buffer: &Buffer| u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    let at = request.at;
    match &mut request.job {
        Job::Read(buffer) => {
            let len = len(buffer);
            opcode::Read::new(file, buffer.address(), len).offset(at).build()
        }
        Job::Write(buffer) => {
            let len = len(buffer);
            opcode::Write::new(file, buffer.address().cast_const(), len).offset(at).build()
        }
        Job::Flush => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
    }
}

/// Does `request` at once.
fn carried_out(file: &File, request: Request) -> Completion {
    let Request { tag, at, mut job, .. } = request;
    let outcome = uninterrupted(|| match &mut job {
        Job::Read(buffer) => file.read_at(buffer, at),
        Job::Write(buffer) => file.write_at(buffer, at),
        Job::Flush => file.sync_data().map(|()| 0),
    });
    Completion { tag, outcome, job }
}
