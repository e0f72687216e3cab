//! Who is which writer of a device that only this process has.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{WRITERS, invalid};

/// All of a device.
#[derive(Debug, Default)]
struct All {
    openers: u64,
    /// The opener that is each writer.
    writers: BTreeMap<u64, u64>,
}

/// One of those who have opened a device: no writer any more when it is dropped.
#[derive(Debug)]
pub(super) struct Opener {
    all: Arc<Mutex<All>>,
    number: u64,
}

fn lock(all: &Mutex<All>) -> MutexGuard<'_, All> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opener {
    /// The first one of a device.
    pub(super) fn new() -> Opener {
        Opener { all: Arc::default(), number: 0 }
    }

    /// One more of the same device.
    pub(super) fn other(&self) -> Opener {
        let mut all = lock(&self.all);
        all.openers += 1;
        Opener { all: Arc::clone(&self.all), number: all.openers }
    }

    pub(super) fn enter(&self, writer: u64) -> io::Result<bool> {
        if writer >= WRITERS {
            return Err(invalid());
        }
        Ok(*lock(&self.all).writers.entry(writer).or_insert(self.number) == self.number)
    }

    pub(super) fn leave(&self, writer: u64) -> io::Result<()> {
        let mut all = lock(&self.all);
        if all.writers.get(&writer) == Some(&self.number) {
            all.writers.remove(&writer);
        }
        Ok(())
    }

    pub(super) fn is_entered(&self, writer: u64) -> io::Result<bool> {
        if writer >= WRITERS {
            return Err(invalid());
        }
        Ok(lock(&self.all).writers.get(&writer).is_some_and(|opener| *opener != self.number))
    }

    pub(super) fn is_anyone_entered(&self) -> bool {
        lock(&self.all).writers.values().any(|opener| *opener != self.number)
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        lock(&self.all).writers.retain(|_, opener| *opener != self.number);
    }
}
