//! Where a crash happened and what the test had said by then.

use core::fmt;

use crate::Mark;

/// What failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The power: words in flight hold any of their values, the volatile part anything.
    Power,
    /// All processes died at once: memory is exactly as it was.
    Death,
}

/// What the volatile part holds after a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Junk {
    /// What it held.
    Held,
    /// Zeros.
    Zeros,
    /// Random words, half of them with a tag of an earlier attach generation.
    Random,
}

impl Junk {
    /// All of them, in the order of [`Junk::index`].
    pub(crate) const ALL: [Junk; 3] = [Junk::Held, Junk::Zeros, Junk::Random];

    /// Its place in [`Junk::ALL`].
    pub(crate) const fn index(self) -> usize {
        match self {
            Junk::Held => 0,
            Junk::Zeros => 1,
            Junk::Random => 2,
        }
    }
}

impl fmt::Display for Junk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Junk::Held => "held",
            Junk::Zeros => "zeros",
            Junk::Random => "random",
        })
    }
}

/// A crash, as the check sees it.
#[derive(Clone, Debug)]
pub struct CrashPoint<'a> {
    /// What failed: the last failure, if recovery crashed too.
    pub failure: Failure,
    /// Events of the recording that had happened at the first crash.
    pub event: usize,
    /// Crashes during recovery that followed.
    pub depth: usize,
    /// Marks passed before the first crash, with their actors, in order.
    pub marks: &'a [(u32, Mark)],
}

impl CrashPoint<'_> {
    /// Whether operation `operation` of `actor` had begun.
    #[must_use]
    pub fn is_begun(&self, actor: u32, operation: u64) -> bool {
        self.marks.contains(&(actor, Mark::Begun(operation)))
    }

    /// Whether operation `operation` of `actor` was acknowledged.
    #[must_use]
    pub fn is_acknowledged(&self, actor: u32, operation: u64) -> bool {
        self.marks.contains(&(actor, Mark::Acknowledged(operation)))
    }

    /// The operation that `actor` began last.
    #[must_use]
    pub fn last_begun(&self, actor: u32) -> Option<u64> {
        self.marks.iter().rev().find_map(|&(who, mark)| match mark {
            Mark::Begun(operation) if who == actor => Some(operation),
            _ => None,
        })
    }

    /// The operation of `actor` that was acknowledged last.
    #[must_use]
    pub fn last_acknowledged(&self, actor: u32) -> Option<u64> {
        self.marks.iter().rev().find_map(|&(who, mark)| match mark {
            Mark::Acknowledged(operation) if who == actor => Some(operation),
            _ => None,
        })
    }
}
