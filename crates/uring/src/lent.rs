//! Reading to memory that is only lent for the time of a call.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

use crate::queue::{Engine, Queue};
use crate::{error, is_passing, uninterrupted};

/// A pread(2).
#[derive(Debug)]
pub struct Read<'m> {
    /// Of which file of the queue.
    pub file: usize,
    /// From which byte on.
    pub at: u64,
    /// Where the bytes go: to all of it, unless the file ends before.
    pub into: &'m mut [u8],
}

/// Which read, and what it returned.
type Complete = (usize, io::Result<usize>);

/// Reads of a ring that the kernel has: whoever drops this waits for them.
struct UnderWay<'q> {
    ring: &'q mut IoUring,
    count: usize,
    bytes: usize,
}

impl Queue {
    /// Makes all of `reads`, in their order, as many at once as the queue takes and `bytes` of
    /// them, or one; and tells `each` of every one when it is complete and others were begun in its
    /// place: which, how many bytes, and its memory. It returns when all are. If the kernel can't
    /// be waited for, the process is aborted, as the memory may still be in use.
    ///
    /// # Errors
    /// None is made then: `EBUSY` if other requests are under way, `EBADF` if there is no such
    /// file.
    pub fn read_to(
        &mut self,
        reads: &mut [Read<'_>],
        bytes: usize,
        mut each: impl FnMut(usize, io::Result<usize>, &mut [u8]),
    ) -> io::Result<()> {
        if self.under_way() > 0 {
            return Err(error(libc::EBUSY));
        }
        if reads.iter().any(|read| read.file >= self.files.len()) {
            return Err(error(libc::EBADF));
        }
        let (depth, files) = (self.requests.len(), &self.files);
        match &mut self.engine {
            Engine::Caller(_) => {
                for (number, read) in reads.iter_mut().enumerate() {
                    let outcome = match files.get(read.file) {
                        Some(file) => uninterrupted(|| file.read_at(read.into, read.at)),
                        None => Err(error(libc::EBADF)),
                    };
                    each(number, outcome, read.into);
                }
            }
            Engine::Ring(ring) => {
                let mut under_way = UnderWay { ring, count: 0, bytes: 0 };
                let (mut rest, mut complete) = (0, Vec::new());
                while rest < reads.len() || under_way.count > 0 || !complete.is_empty() {
                    while let Some(read) = reads.get_mut(rest)
                        && let Some(file) = files.get(read.file)
                        && under_way.takes(read.into.len(), depth, bytes)
                    {
                        under_way.begin(Fd(file.as_raw_fd()), read, rest as u64);
                        // Each by itself: of several that lie beside each other the kernel would
                        // make one, which is complete only as a whole.
                        under_way.submit(false);
                        rest += 1;
                    }
                    if complete.is_empty() {
                        under_way.submit(true);
                    }
                    // The kernel is at work on what was begun now.
                    for (number, outcome) in complete.drain(..) {
                        if let Some(read) = reads.get_mut(number) {
                            each(number, outcome, read.into);
                        }
                    }
                    under_way.take_complete(reads, &mut complete);
                }
            }
        }
        Ok(())
    }
}

impl UnderWay<'_> {
    /// Begins `read`, which completes as `number`.
    fn begin(&mut self, file: Fd, read: &mut Read<'_>, number: u64) {
        let len = u32::try_from(read.into.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(file, read.into.as_mut_ptr(), len).offset(read.at).build();
        // SAFETY: the file belongs to the queue and the memory is borrowed mutably by the caller of
        // `read_to`, which does not return, nor unwind, before this value was dropped, and that
        // waits until the kernel has completed what it was handed. Nobody looks at the memory
        // before this number has completed.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(number)) };
        // There are as many entries as requests at once.
        pushed.unwrap_or_else(|_| std::process::abort());
        self.count += 1;
        self.bytes += read.into.len();
    }

    /// Whether one more of `len` bytes can be begun, of at most so many, and so many bytes.
    fn takes(&self, len: usize, depth: usize, bytes: usize) -> bool {
        self.count == 0 || self.count < depth && self.bytes.saturating_add(len) <= bytes
    }

    /// Hands the kernel what was begun, and waits until one is complete if `waits`.
    fn submit(&mut self, waits: bool) {
        loop {
            let least = usize::from(waits && self.count > 0);
            match self.ring.submit_and_wait(least) {
                Ok(_) => return,
                Err(error) if is_passing(&error) => {}
                // The kernel may still use memory that is only borrowed.
                Err(_) => std::process::abort(),
            }
        }
    }

    /// Takes out those of `reads` that are complete.
    fn take_complete(&mut self, reads: &[Read<'_>], complete: &mut Vec<Complete>) {
        for completed in self.ring.completion() {
            let number = completed.user_data() as usize;
            let count = usize::try_from(completed.result());
            complete.push((number, count.map_err(|_| error(-completed.result()))));
            self.count -= 1;
            self.bytes -= reads.get(number).map_or(0, |read| read.into.len());
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        while self.count > 0 {
            self.submit(true);
            self.count -= self.ring.completion().count();
        }
    }
}
