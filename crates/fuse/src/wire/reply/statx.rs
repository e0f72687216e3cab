//! Attributes as `statx` has them.

use core::time::Duration;

use zerocopy::FromZeros;

use crate::wire::abi::{StatxOut, StatxTime};
use crate::wire::device_number::DeviceNumber;
use crate::wire::time::{Time, lifetime};

/// Attributes as `statx` has them. The kernel takes the basic ones and the time of birth.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatxReply {
    /// How long the kernel need not ask again.
    pub lifetime: Duration,
    /// Bits `STATX_*` of what is told.
    pub mask: u32,
    /// Bytes that are best read or written at once.
    pub block_size: u32,
    /// Bits `STATX_ATTR_*` that hold.
    pub attributes: u64,
    /// Which of those could hold.
    pub attributes_mask: u64,
    /// How many names it has.
    pub nlink: u32,
    /// The owning user.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// `st_mode`, the type included.
    pub mode: u16,
    /// `st_ino`.
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// The time of the last read.
    pub atime: Time,
    /// The time of birth.
    pub btime: Time,
    /// The time of the last change.
    pub ctime: Time,
    /// The time of the last write.
    pub mtime: Time,
    /// The device that a special file stands for.
    pub device: DeviceNumber,
}

const fn time(time: Time) -> StatxTime {
    StatxTime { seconds: time.seconds, nanoseconds: time.nanoseconds, _reserved: 0 }
}

body!(StatxReply as StatxOut: |it| {
    let (attr_seconds, attr_nanoseconds) = lifetime(it.lifetime);
    StatxOut {
        attr_seconds,
        attr_nanoseconds,
        mask: it.mask,
        block_size: it.block_size,
        attributes: it.attributes,
        nlink: it.nlink,
        uid: it.uid,
        gid: it.gid,
        mode: it.mode,
        number: it.number,
        size: it.size,
        blocks: it.blocks,
        attributes_mask: it.attributes_mask,
        atime: time(it.atime),
        btime: time(it.btime),
        ctime: time(it.ctime),
        mtime: time(it.mtime),
        rdev_major: it.device.major,
        rdev_minor: it.device.minor,
        ..StatxOut::new_zeroed()
    }
});
