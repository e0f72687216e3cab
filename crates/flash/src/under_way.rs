//! Packets that threads of this process are writing.
//!
//! A packet's claim names a process. It can pass to another one meanwhile, by a stand-in, and back
//! to this one, when that one has died: but a thread of this process may still be writing it, and a
//! second one would end the stand-in by which the first one's write can't hurt. So a process knows
//! by itself what its threads are about, and leaves that to them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The packets that threads of this process are writing.
#[derive(Default, Debug)]
pub(crate) struct UnderWay(Mutex<BTreeSet<u64>>);

/// Those of one thread, until this goes.
#[derive(Debug)]
pub(crate) struct Mine<'u> {
    all: &'u UnderWay,
    numbers: Vec<u64>,
}

impl UnderWay {
    /// None of this thread yet.
    pub(crate) const fn none(&self) -> Mine<'_> {
        Mine { all: self, numbers: Vec::new() }
    }

    /// Whether a thread of this process is writing packet `number`.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.lock().contains(&number)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mine<'_> {
    /// This thread is to write those with these `numbers`, which no thread is writing, and no
    /// others any more.
    pub(crate) fn replace(&mut self, numbers: &[u64]) {
        let mut all = self.all.lock();
        for number in &self.numbers {
            all.remove(number);
        }
        all.extend(numbers);
        numbers.clone_into(&mut self.numbers);
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.replace(&[]);
    }
}
