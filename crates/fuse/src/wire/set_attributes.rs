//! What SETATTR sets.

use super::abi::{SetattrIn, SetattrValid};
use super::malformed::Fault;
use super::time::Time;

/// What a time is set to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetTime {
    /// The present time, for which the right to write is enough.
    Now,
    /// This one.
    At(Time),
}

/// What SETATTR sets; none stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SetAttributes {
    /// Through which open file, if any.
    pub handle: Option<u64>,
    /// The size.
    pub size: Option<u64>,
    /// `st_mode`.
    pub mode: Option<u32>,
    /// The owning user.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// The time of the last read.
    pub atime: Option<SetTime>,
    /// The time of the last write.
    pub mtime: Option<SetTime>,
    /// The time of the last change, if the kernel keeps it.
    pub ctime: Option<Time>,
    /// Whose locks are to be respected when the size changes.
    pub lock_owner: Option<u64>,
    /// Whether set-id bits are to go, because the size changes.
    pub kill_suidgid: bool,
}

impl SetAttributes {
    pub(crate) fn from_wire(wire: &SetattrIn) -> Result<SetAttributes, Fault> {
        let valid = SetattrValid::from_bits(wire.valid);
        let has = |flag| valid.contains(flag);
        let time = |flag, now, what, seconds, nanoseconds| match (has(flag), has(now)) {
            (_, true) => Ok(Some(SetTime::Now)),
            (true, false) => Time::checked(what, seconds, nanoseconds).map(SetTime::At).map(Some),
            (false, false) => Ok(None),
        };
        let (atime, mtime) = (SetattrValid::ATIME, SetattrValid::MTIME);
        let (atime_now, mtime_now) = (SetattrValid::ATIME_NOW, SetattrValid::MTIME_NOW);
        let ctime = Time::checked("nanoseconds of ctime", wire.ctime, wire.ctime_nanoseconds);
        Ok(SetAttributes {
            handle: has(SetattrValid::HANDLE).then_some(wire.handle),
            size: has(SetattrValid::SIZE).then_some(wire.size),
            mode: has(SetattrValid::MODE).then_some(wire.mode),
            uid: has(SetattrValid::UID).then_some(wire.uid),
            gid: has(SetattrValid::GID).then_some(wire.gid),
            atime: time(
                atime,
                atime_now,
                "nanoseconds of atime",
                wire.atime,
                wire.atime_nanoseconds,
            )?,
            mtime: time(
                mtime,
                mtime_now,
                "nanoseconds of mtime",
                wire.mtime,
                wire.mtime_nanoseconds,
            )?,
            ctime: has(SetattrValid::CTIME).then_some(ctime).transpose()?,
            lock_owner: has(SetattrValid::LOCK_OWNER).then_some(wire.lock_owner),
            kill_suidgid: has(SetattrValid::KILL_SUIDGID),
        })
    }
}
