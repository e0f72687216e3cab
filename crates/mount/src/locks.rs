//! Requests about record locks. Whose a lock is, the kernel says by a number of its own; those of
//! `flock` are the open file's.

use conquest_fs::locks::{END, Mode, Owner, Record, Waiting};
use conquest_fs::open::OpenFile;
use conquest_fs::{Errno, Result};
use conquest_fuse::wire::{FileLock, Lock, LockKind, LockType};

use crate::server::Server;

/// A lock that somebody wants, on an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) open: OpenFile,
    pub(crate) what: What,
}

/// What lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Of a part of the file.
    Record(Owner, Record),
    /// Of `flock`.
    Whole(Option<Mode>),
}

impl Wish {
    /// Gets the lock; if something is in the way, everybody knows from now on that it is waited
    /// for.
    pub(crate) fn begin(&self, fs: &conquest::Fs) -> Result<Option<Waiting>> {
        match self.what {
            What::Record(owner, record) => fs.begin_record(&self.open, owner, record),
            What::Whole(mode) => fs.begin_flock(&self.open, mode),
        }
    }

    /// Whether it gives something up, or may: then others may be helped by it.
    fn gives_up(&self) -> bool {
        match self.what {
            What::Record(_, record) => record.mode != Some(Mode::Exclusive),
            What::Whole(_) => true,
        }
    }
}

fn mode(lock_type: LockType) -> Option<Mode> {
    match lock_type {
        LockType::Read => Some(Mode::Shared),
        LockType::Write => Some(Mode::Exclusive),
        LockType::Unlock => None,
    }
}

fn owner(lock: &Lock) -> Owner {
    Owner::Client { number: lock.owner, process: lock.lock.pid }
}

fn record(lock: &FileLock) -> Record {
    Record { first: lock.start, last: lock.end.min(END), mode: mode(lock.lock_type) }
}

impl Server {
    /// What is asked for.
    pub(crate) fn wish(&self, lock: &Lock) -> Result<Wish> {
        let open = self.open_file(lock.handle)?;
        let what = match lock.kind {
            LockKind::Posix => What::Record(owner(lock), record(&lock.lock)),
            LockKind::Flock => What::Whole(mode(lock.lock.lock_type)),
        };
        if let What::Record(_, Record { mode: Some(_), .. }) = what {
            self.records.note(open.file.number, lock.owner, lock.handle);
        }
        Ok(Wish { open, what })
    }

    /// Sets or gives up a lock at once.
    pub(crate) fn set_lock(&self, lock: &Lock) -> Result<()> {
        let wish = self.wish(lock)?;
        let no = conquest_fs::locks::Wait::No;
        let set = match wish.what {
            What::Record(owner, record) => self.fs().set_record(&wish.open, owner, record, no),
            What::Whole(mode) => self.fs().flock(&wish.open, mode, no),
        };
        if wish.gives_up() {
            self.queue.look();
        }
        set
    }

    /// The lock that is in the way of one.
    pub(crate) fn test_lock(&self, lock: &Lock) -> Result<FileLock> {
        let open = self.open_file(lock.handle)?;
        if lock.kind == LockKind::Flock {
            // There is no such call.
            return Err(Errno::EINVAL.into());
        }
        let found = self.fs().test_record(&open, owner(lock), record(&lock.lock))?;
        Ok(match found {
            None => FileLock { lock_type: LockType::Unlock, ..lock.lock },
            Some(conflict) => FileLock {
                start: conflict.first,
                end: conflict.last,
                lock_type: match conflict.mode {
                    Mode::Shared => LockType::Read,
                    Mode::Exclusive => LockType::Write,
                },
                pid: conflict.process.unwrap_or(0),
            },
        })
    }

    /// Gives up the locks of `owner` on the file of `open`.
    pub(crate) fn release_records(&self, open: &OpenFile, owner: u64) -> Result<()> {
        let owner = Owner::Client { number: owner, process: 0 };
        self.fs().release_records(open, owner)?;
        self.queue.look();
        Ok(())
    }
}
