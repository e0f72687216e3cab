//! Record locks as they stand in holdings.

use conquest_pm::Held;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::FileSystem;
use crate::locks::{Conflict, Mode, Owner, Record};
use crate::open::OpenFile;

/// Kinds of holdings: a lock of `fcntl`, a process's or a description's, one of `flock`, a wait.
pub(crate) const RECORD: u8 = 3;
pub(crate) const RECORD_OF_OPEN: u8 = 4;
pub(crate) const FLOCK: u8 = 5;
pub(crate) const WAIT: u8 = 6;
/// A turn at what the volume has of a file (`large/turn.rs`).
pub(crate) const TURN: u8 = 8;

const FIRST: u64 = 0;
const LAST: u64 = 1;
const MODE: u64 = 2;
pub(super) const OWNER: u64 = 3;
const PROCESS: u64 = 4;
/// Of a wait: not 0 once it is worth another try.
pub(super) const CALLED: u64 = 5;

/// Whom a lock is of: a kind, the process's slot unless it is a description's, and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Who {
    pub(crate) kind: u8,
    pub(crate) slot: Option<u32>,
    pub(crate) number: u64,
}

impl Who {
    /// Locks of different classes don't know of each other.
    fn class(self) -> u8 {
        if matches!(self.kind, FLOCK | TURN) { self.kind } else { RECORD }
    }
}

/// A lock, or what somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    pub(crate) who: Who,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// None for what is to be given up.
    pub(crate) mode: Option<Mode>,
    pub(crate) process: u32,
}

impl Lock {
    /// Whether the two can't be at once.
    pub(super) fn conflicts(&self, other: &Lock) -> bool {
        self.who.class() == other.who.class()
            && self.who != other.who
            && self.first <= other.last
            && other.first <= self.last
            && (self.mode == Some(Mode::Exclusive) || other.mode == Some(Mode::Exclusive))
    }

    pub(super) fn as_conflict(&self) -> Conflict {
        Conflict {
            first: self.first,
            last: self.last,
            mode: self.mode.unwrap_or(Mode::Shared),
            process: (self.who.kind == RECORD).then_some(self.process),
        }
    }

    /// The words of its holding.
    pub(super) fn words(&self) -> [u64; 5] {
        let is_exclusive = self.mode == Some(Mode::Exclusive);
        let mode = u64::from(self.who.kind) << 1 | u64::from(is_exclusive);
        [self.first, self.last, mode, self.who.number, self.process.into()]
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What somebody wants who has `open`.
    pub(super) fn wish(&self, open: &OpenFile, kind: u8, owner: Owner, record: Record) -> Lock {
        let core = self.core();
        let own = core.host().identity().process;
        let (slot, number, process) = match owner {
            Owner::Process(number) => (Some(core.slot()), number, own),
            Owner::Client { number, process } => (Some(core.slot()), number, process),
            Owner::Open => (None, open.home.number().into(), own),
        };
        Lock {
            who: Who { kind, slot, number },
            first: record.first,
            last: record.last,
            mode: record.mode,
            process,
        }
    }

    /// The lock, or the wish of the wait, that `held` is; none if it is neither.
    pub(super) fn lock_of_holding(&self, held: Held) -> Option<Lock> {
        let core = self.core();
        if !matches!(held.kind, RECORD | RECORD_OF_OPEN | FLOCK | WAIT | TURN) {
            return None;
        }
        let word = |index| core.held(held.holding, index);
        let mode = word(MODE);
        let kind = (mode >> 1) as u8;
        let slot = matches!(kind, RECORD | TURN).then(|| core.slot_of(held.holding));
        Some(Lock {
            who: Who { kind, slot, number: word(OWNER) },
            first: word(FIRST),
            last: word(LAST),
            mode: Some(if mode & 1 == 1 { Mode::Exclusive } else { Mode::Shared }),
            process: word(PROCESS) as u32,
        })
    }
}
