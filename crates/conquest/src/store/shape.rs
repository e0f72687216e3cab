//! The shape of a new region: numbers that can't be changed later, from its size and the machine.

use conquest_format::GROUP;
use conquest_format::geometry::{GROUPS_MAX, Geometry, Shape};
use conquest_format::log::{CHUNK, CHUNKS_PER_LANE};
use conquest_format::volatile::{holding, lane, lock, slot};

use super::new::NewStore;
use crate::{Error, Result};

/// Lanes for each processor. An operation holds one for a microsecond, but a process may be
/// stopped while it does: there must be others.
const LANES_PER_PROCESSOR: u32 = 4;
const LANES_LEAST: u32 = 32;
/// Slots for each processor. Every process of a parallel build attaches, and most of them wait.
/// Attaching asks for each slot in use whether it is free, so more would not be better.
const SLOTS_PER_PROCESSOR: u32 = 32;
const SLOTS_LEAST: u32 = 256;
/// Bytes of the core for each lock, at least: a small store must not consist of locks. At 16 bytes
/// each they are at most one 256th of it.
const BYTES_PER_LOCK: u64 = 4096;

/// Bytes of the core for each chunk of holdings, which has room for 56 open files or record locks.
/// Of those in a file only what was used takes space; a device has no holes.
const BYTES_PER_CHUNK: u64 = 64 << 10;
const BYTES_PER_CHUNK_OF_DEVICE: u64 = 4 << 20;
const CHUNKS_LEAST: u64 = 256;
/// Chunks of the log for each lane, at least.
const LOG_PER_LANE: u64 = 3;
/// Chunks of the log that are enough for any core: 64 MiB. So many that it is not full all the
/// time, if they are no more than a sixteenth of the core: 32 MiB.
const LOG_MOST: u64 = 1024;
const LOG_USUAL: u64 = 512;
/// Room for 3.6 million.
const CHUNKS_MOST: u64 = 1 << 16;

/// The groups in `bytes`, rounded up.
pub(crate) fn groups_in(bytes: u64) -> u64 {
    bytes.div_ceil(GROUP).max(1)
}

/// The shape of a region that can grow to `size_max` bytes of files and metadata.
pub(crate) fn shape(new: &NewStore, size_max: u64, processors: u32) -> Result<Shape> {
    let max_groups = groups_in(size_max);
    within("bytes to which the core may grow", size_max, 1, GROUPS_MAX * GROUP)?;
    let asked = |asked: u32, otherwise: u32| if asked == 0 { otherwise } else { asked };
    let lanes = processors.saturating_mul(LANES_PER_PROCESSOR).clamp(LANES_LEAST, lane::MAX);
    let lanes = asked(new.lanes, lanes);
    let slots = processors.saturating_mul(SLOTS_PER_PROCESSOR).clamp(SLOTS_LEAST, slot::MAX);
    let slots = asked(new.slots, slots);
    let locks = asked(new.locks, locks_for(lanes, max_groups * GROUP));
    within("lanes", lanes.into(), 1, lane::MAX.into())?;
    within("slots", slots.into(), 1, slot::MAX.into())?;
    within("locks", locks.into(), 2, lock::MAX.into())?;
    if !locks.is_power_of_two() {
        // Told with the powers of two on both sides.
        let above = locks.next_power_of_two().min(lock::MAX);
        let (value, least) = (locks.into(), (above / 2).into());
        let what = "locks, which must be one of both ends,";
        return Err(Error::Range { what, value, least, most: above.into() });
    }
    let chunks = chunks_for(size_max, BYTES_PER_CHUNK);
    Ok(Shape { max_groups, lanes, slots, locks, chunks, log: 0 })
}

/// The same with a log: a 64th of the core, or what is usual, and room enough for each lane to have
/// some of its own.
pub(crate) fn with_log(shape: Shape) -> Shape {
    let least = u64::from(shape.lanes) * LOG_PER_LANE;
    let core = shape.max_groups * GROUP / CHUNK;
    let chunks = (core / 64).max(LOG_USUAL.min(core / 16));
    Shape { log: chunks.clamp(least, LOG_MOST.max(least)) as u32, ..shape }
}

/// `shape` with a log, or without one, and with the heap and all tables before the chunks of
/// holdings where they are: what is in a region can't be moved, as its objects name each other by
/// offsets. The room for a log is taken from chunks of holdings, or given to them. None if there is
/// not enough.
pub(crate) fn reshaped(shape: Shape, is_logged: bool) -> Option<Shape> {
    if (shape.log != 0) == is_logged {
        return Some(shape);
    }
    let heap = |shape| Geometry::new(shape).map_or(u64::MAX, |whole| whole.page(0).bytes());
    let target = heap(shape);
    // With as many chunks of holdings as there is room for.
    let filled = |log: u32| {
        let chunks =
            last(1, holding::CHUNKS_MAX, |chunks| heap(Shape { chunks, log, ..shape }) <= target);
        Shape { chunks, log, ..shape }
    };
    let least = shape.chunks.min(CHUNKS_LEAST as u32);
    let fits = |log: u32| {
        let filled = filled(log);
        filled.chunks >= least && heap(filled) == target
    };
    if !is_logged {
        return fits(0).then(|| filled(0));
    }
    let most = with_log(shape).log;
    let log = last(CHUNKS_PER_LANE * shape.lanes, most, fits);
    fits(log).then(|| filled(log))
}

/// The largest number from `least` to `most` that `fits`, if all smaller ones do; `least` if none.
fn last(least: u32, most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut least, mut most) = (least, most);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if fits(middle) { least = middle } else { most = middle - 1 }
    }
    least
}

/// Locks that inodes share. If every lane changes an inode, `lanes^2 / 2` pairs might collide; with
/// 16 locks for each pair of lanes, one pair does in 32 such moments.
fn locks_for(lanes: u32, bytes: u64) -> u32 {
    let wanted = u64::from(lanes) * u64::from(lanes) * 16;
    let most = (bytes / BYTES_PER_LOCK).clamp(64, lock::MAX.into());
    let number = wanted.next_power_of_two().min(most);
    // The power of two that is not above it.
    (1 << number.ilog2()).min(lock::MAX)
}

/// Chunks of holdings, one for so many bytes of the core.
fn chunks_for(size_max: u64, bytes: u64) -> u32 {
    (size_max / bytes).clamp(CHUNKS_LEAST, CHUNKS_MOST) as u32
}

/// The largest shape that fits into `bytes` with all its tables.
pub(crate) fn shape_within(new: &NewStore, bytes: u64, processors: u32) -> Result<Shape> {
    let fits = |groups: u64| {
        let shape = shape(new, groups * GROUP, processors).ok()?;
        let chunks = chunks_for(groups * GROUP, BYTES_PER_CHUNK_OF_DEVICE);
        let shape = Shape { chunks, ..shape };
        Geometry::new(shape).filter(|geometry| geometry.len() <= bytes).map(|_| shape)
    };
    let (mut least, mut most) = (0, (bytes / GROUP).min(GROUPS_MAX));
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if fits(middle).is_some() { least = middle } else { most = middle - 1 }
    }
    let what = "bytes of the device";
    fits(least).ok_or(Error::Range { what, value: bytes, least: 4 * GROUP, most: u64::MAX })
}

pub(crate) fn within(what: &'static str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::Range { what, value, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_size_and_processors() {
        let new = NewStore::default();
        let small = shape(&new, 4 << 20, 2).unwrap();
        assert_eq!((small.max_groups, small.lanes, small.slots), (2, 32, 256));
        assert_eq!(small.locks, 1024);
        let large = shape(&new, 64 << 30, 64).unwrap();
        assert_eq!((large.max_groups, large.lanes, large.slots), (32_768, 256, 1023));
        assert_eq!(large.locks, 1 << 20);
        let asked = NewStore { lanes: 3, slots: 4, locks: 64, ..new };
        let asked = shape(&asked, 1, 2).unwrap();
        assert_eq!((asked.max_groups, asked.lanes, asked.slots, asked.locks), (1, 3, 4, 64));
    }

    #[test]
    fn a_log_is_taken_away_and_added_without_moving_anything() {
        for bytes in [96 << 20, 1 << 30, 64 << 30] {
            let plain = shape(&NewStore::default(), bytes, 2).unwrap();
            for was in [plain, with_log(plain)] {
                let other = reshaped(was, was.log == 0).unwrap();
                assert_ne!(was.log == 0, other.log == 0);
                assert!(other.log == 0 || other.log >= CHUNKS_PER_LANE * other.lanes);
                let (one, two) = (Geometry::new(was).unwrap(), Geometry::new(other).unwrap());
                assert_eq!(one.page(0), two.page(0));
                assert_eq!(one.orphan(0), two.orphan(0));
                assert_eq!(one.descriptor(7), two.descriptor(7));
                assert_eq!((one.lane(1), one.bitmap(0)), (two.lane(1), two.bitmap(0)));
                assert_eq!(reshaped(was, was.log != 0), Some(was));
            }
        }
        // There is no room for a log in a small one.
        let tiny = shape(&NewStore::default(), 2 << 20, 2).unwrap();
        assert_eq!(reshaped(tiny, true), None);
    }

    #[test]
    fn impossible_numbers_are_named() {
        for (new, what) in [
            (NewStore { lanes: 5000, ..NewStore::default() }, "lanes"),
            (NewStore { slots: 2000, ..NewStore::default() }, "slots"),
            (NewStore { locks: 3, ..NewStore::default() }, "locks"),
        ] {
            let error = shape(&new, 1 << 30, 2).unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
        }
        assert!(shape(&NewStore::default(), u64::MAX, 2).is_err());
    }

    #[test]
    fn a_device_is_used_as_far_as_it_goes() {
        let new = NewStore::default();
        for bytes in [64 << 20, 1 << 30, (1 << 40) - 4096] {
            let shape = shape_within(&new, bytes, 2).unwrap();
            let next = Shape { max_groups: shape.max_groups + 1, ..shape };
            assert!(Geometry::new(shape).unwrap().len() <= bytes);
            assert!(Geometry::new(next).unwrap().len() > bytes);
        }
        assert!(shape_within(&new, 4096, 2).is_err());
    }
}
