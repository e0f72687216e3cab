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

/// Reads of a ring that the kernel has: whoever drops this waits for them.
struct UnderWay<'q> {
    ring: &'q mut IoUring,
    count: usize,
}

impl Queue {
    /// Makes all of `reads`, as many at once as the queue takes, and tells `each` of every one as
    /// soon as it is complete: which, how many bytes, and its memory. It returns when all are. If
    /// the kernel can't be waited for, the process is aborted, as the memory may still be in use.
    ///
    /// # Errors
    /// None is made then: `EBUSY` if other requests are under way, `EBADF` if there is no such
    /// file.
    pub fn read_to(
        &mut self,
        reads: &mut [Read<'_>],
        mut each: impl FnMut(usize, io::Result<usize>, &mut [u8]),
    ) -> io::Result<()> {
        if self.under_way() > 0 {
            return Err(error(libc::EBUSY));
        }
        if reads.iter().any(|read| read.file >= self.files.len()) {
            return Err(error(libc::EBADF));
        }
        let (depth, files) = (self.requests.len(), &self.files);
        let ring = match &mut self.engine {
            Engine::Ring(ring) => ring,
            Engine::Caller(_) => {
                for (index, read) in reads.iter_mut().enumerate() {
                    let outcome = match files.get(read.file) {
                        Some(file) => uninterrupted(|| file.read_at(read.into, read.at)),
                        None => Err(error(libc::EBADF)),
                    };
                    each(index, outcome, read.into);
                }
                return Ok(());
            }
        };
        let mut under_way = UnderWay { ring, count: 0 };
        let mut begun = 0;
        while begun < reads.len() || under_way.count > 0 {
            while under_way.count < depth
                && let Some((read, file)) = reads
                    .get_mut(begun)
                    .and_then(|read| files.get(read.file).map(|file| (read, file)))
            {
                under_way.begin(Fd(file.as_raw_fd()), read, begun as u64);
                begun += 1;
            }
            for (number, outcome) in under_way.wait() {
                if let Some(read) = reads.get_mut(number as usize) {
                    each(number as usize, outcome, read.into);
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
    }

    /// Waits for one at least, if there is one: those that are complete.
    fn wait(&mut self) -> Vec<(u64, io::Result<usize>)> {
        let mut found = Vec::new();
        while found.is_empty() && self.count > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                // The kernel may still use memory that is only borrowed.
                Err(_) => std::process::abort(),
            }
            for completed in self.ring.completion() {
                let count = usize::try_from(completed.result());
                found.push((completed.user_data(), count.map_err(|_| error(-completed.result()))));
            }
            self.count = self.count.saturating_sub(found.len());
        }
        found
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        while self.count > 0 {
            self.wait();
        }
    }
}
