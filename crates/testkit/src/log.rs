//! What a recording memory writes down.

use std::ops::Range;
use std::sync::Arc;

use crate::Image;

/// One event; words and lines are numbers (offset / 8, offset / 64).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Who did it.
    pub actor: u32,
    /// What.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A word of the persistent part was stored.
    Put {
        /// Which.
        word: u64,
        /// What it held.
        old: u64,
        /// What it holds from now on.
        new: u64,
    },
    /// A word of the volatile part was stored, or exchanged with success.
    Store {
        /// Which.
        word: u64,
        /// What it held.
        old: u64,
        /// What it holds from now on.
        new: u64,
    },
    /// Writing back a line began.
    WriteBack {
        /// Which.
        line: u64,
    },
    /// What this actor wrote back is durable.
    Fence,
    /// A remark of the test.
    Mark(Mark),
}

/// What a test says about the operations it does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// The operation of this number begins: from here on it may have happened.
    Begun(u64),
    /// The operation of this number is acknowledged: from here on it must have happened.
    Acknowledged(u64),
    /// Recovery is over; what follows is only the test's looking. Crashes during recovery come
    /// before this mark.
    Recovered,
}

/// A log with the image that it began on: all that exploring needs.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The image before the first event; all of it is durable.
    pub base: Arc<Image>,
    /// The events, in the one order in which they happened.
    pub events: Vec<Event>,
    /// The volatile part, in bytes.
    pub volatile: Range<u64>,
    /// Whether power failures show.
    pub needs_write_back: bool,
}
