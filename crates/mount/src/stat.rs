//! Attributes of files, as the protocol has them.

use std::time::Duration;

use conquest_fs::attributes::Stat;
use conquest_fuse::wire::{Attributes, AttributesReply, DeviceNumber, Entry, StatxReply, Time};

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
/// Bytes that are best read or written at once.
pub(crate) const BLOCK: u32 = 4096;

/// What can be told by `STATX`: the basic ones and the time of birth.
const STATX_MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
/// Flags of files that `STATX` tells of, which have the same bits there.
const STATX_ATTRIBUTES: u64 =
    (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND | libc::STATX_ATTR_NODUMP) as u64;

/// The time that is so many nanoseconds after 1970.
pub(crate) const fn time(nanoseconds: i64) -> Time {
    Time {
        seconds: nanoseconds.div_euclid(SECOND),
        nanoseconds: nanoseconds.rem_euclid(SECOND) as u32,
    }
}

/// The nanoseconds from 1970 to `time`, or to the nearest time that a store can keep.
pub(crate) const fn nanoseconds(time: Time) -> i64 {
    time.seconds.saturating_mul(SECOND).saturating_add(time.nanoseconds as i64)
}

/// A generation in as many bits as the kernel keeps of one. It tells files apart whose numbers are
/// the same, so it must not be a part of ours: that has a lane above and a count below, and counts
/// of several lanes are alike.
pub(crate) const fn short_generation(generation: u64) -> u32 {
    (generation.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

fn device(stat: &Stat) -> DeviceNumber {
    let (major, minor) = stat.device;
    DeviceNumber { major, minor }
}

/// The attributes of a file, with the ids that the mount knows.
pub(crate) fn attributes(stat: &Stat) -> Attributes {
    Attributes {
        number: stat.file.number,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        mode: stat.mode,
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        device: device(stat),
        block_size: BLOCK,
        flags: Default::default(),
    }
}

/// The same as a reply that may be believed for `lifetime`.
pub(crate) fn attributes_reply(stat: &Stat, lifetime: Duration) -> AttributesReply {
    AttributesReply { attributes: attributes(stat), lifetime }
}

/// The same for `statx`.
pub(crate) fn statx_reply(stat: &Stat, lifetime: Duration) -> StatxReply {
    StatxReply {
        lifetime,
        mask: STATX_MASK,
        block_size: BLOCK,
        attributes: u64::from(stat.flags) & STATX_ATTRIBUTES,
        attributes_mask: STATX_ATTRIBUTES,
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        mode: stat.mode as u16,
        number: stat.file.number,
        size: stat.size,
        blocks: stat.blocks,
        atime: time(stat.atime),
        btime: time(stat.btime),
        ctime: time(stat.ctime),
        mtime: time(stat.mtime),
        device: device(stat),
    }
}

/// What a name stands for: `node`, with these attributes.
pub(crate) fn entry(node: u64, stat: &Stat, lifetime: Duration) -> Entry {
    Entry {
        node,
        generation: short_generation(stat.file.generation).into(),
        name_lifetime: lifetime,
        attributes_lifetime: lifetime,
        attributes: attributes(stat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_generations_of_all_lanes_differ() {
        let counts = |lane: u64| (1..2000_u64).map(move |count| lane << 48 | count);
        let all: Vec<u64> = (0..64).flat_map(counts).collect();
        let mut short: Vec<u32> = all.iter().map(|whole| short_generation(*whole)).collect();
        short.sort_unstable();
        short.dedup();
        // Of so many random numbers, two or so would be alike.
        assert!(all.len() - short.len() < 10, "{} of {}", short.len(), all.len());
        for count in 1..100_000 {
            assert_ne!(short_generation(count), short_generation(1 << 48 | count));
        }
    }

    #[test]
    fn times_before_1970_have_negative_seconds() {
        for (nanos, seconds, rest) in [
            (0, 0, 0),
            (1_500_000_000, 1, 500_000_000),
            (-1, -1, 999_999_999),
            (-SECOND, -1, 0),
            (i64::MIN, i64::MIN.div_euclid(SECOND), i64::MIN.rem_euclid(SECOND) as u32),
        ] {
            assert_eq!(time(nanos), Time { seconds, nanoseconds: rest });
        }
        for nanos in [0, 1, -1, SECOND, -SECOND, 1_700_000_000_123_456_789] {
            assert_eq!(nanoseconds(time(nanos)), nanos);
        }
        assert_eq!(nanoseconds(Time { seconds: i64::MAX, nanoseconds: 0 }), i64::MAX);
    }
}
