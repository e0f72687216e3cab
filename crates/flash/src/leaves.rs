//! Reading the leaves of a checkpoint: in large requests, and by a thread of their own, so that
//! what was read is taken in while the next request is under way.
//!
//! Between the two there are two parts at most, of one request's size each.

use std::sync::mpsc::sync_channel;
use std::thread::{Builder, scope};

use conquest_format::volume::{Checkpoint, Leaf};

use crate::Result;
use crate::recover::Reading;

/// Bytes that are read at once.
const AT_ONCE: u64 = 1 << 20;

/// Words of items, of leaves that follow each other.
type Part = Vec<u64>;

/// Calls `take` with the words of items of all leaves of `checkpoint`, in order; the segments in
/// which they are.
pub(crate) fn read_leaves(
    reading: Reading<'_>,
    checkpoint: &Checkpoint,
    mut take: impl FnMut(Part) -> Result<()>,
) -> Result<Vec<u64>> {
    scope(|scope| {
        let (give, parts) = sync_channel(1);
        let mut leaves = Leaves::new(reading, checkpoint);
        let reader = Builder::new().spawn_scoped(scope, move || {
            while let Some(part) = leaves.next_part()? {
                // Who takes no more has failed.
                if give.send(part).is_err() {
                    break;
                }
            }
            Ok(leaves.segments)
        });
        let Ok(reader) = reader else {
            // There may be no thread to be had.
            let mut leaves = Leaves::new(reading, checkpoint);
            while let Some(part) = leaves.next_part()? {
                take(part)?;
            }
            return Ok(leaves.segments);
        };
        parts.into_iter().try_for_each(take)?;
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The leaves of a checkpoint, from one of them on.
struct Leaves<'d> {
    reading: Reading<'d>,
    checkpoint: Checkpoint,
    /// The next one.
    index: u64,
    /// The segments until now: the last one is that which has the next leaf.
    segments: Vec<u64>,
    bytes: Vec<u8>,
}

impl<'d> Leaves<'d> {
    fn new(reading: Reading<'d>, checkpoint: &Checkpoint) -> Self {
        let segments = vec![checkpoint.segment];
        Leaves { reading, checkpoint: *checkpoint, index: 0, segments, bytes: Vec::new() }
    }

    /// Reads so many leaves as one request may, to the end of a segment: their words.
    fn next_part(&mut self) -> Result<Option<Part>> {
        let layout = self.reading.layout;
        let within = self.index % layout.segment;
        let rest = (self.checkpoint.units - self.index).min(layout.segment - within);
        let count = rest.min(AT_ONCE / layout.unit);
        let segment = self.segments.last().copied().unwrap_or(u64::MAX);
        if count == 0 {
            return Ok(None);
        }
        let place = layout.first_place(segment).saturating_add(within);
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize((count * layout.unit) as usize, 0);
        let is_read = self.reading.read(place, &mut bytes);
        let mut part = Part::with_capacity((count * Leaf::room(layout.unit)) as usize);
        for (index, unit) in (0..).zip(bytes.chunks(layout.unit as usize)) {
            let place = place.saturating_add(index);
            let leaf = if is_read { self.add_leaf(unit, &mut part) } else { None };
            // Another copy may have it.
            let leaf =
                leaf.or_else(|| self.reading.parsed(place, |unit| self.add_leaf(unit, &mut part)));
            let leaf = leaf.ok_or_else(|| self.reading.unreadable("checkpoint"))?;
            self.index += 1;
            if self.index.is_multiple_of(layout.segment) {
                self.segments.push(leaf.next);
            }
        }
        self.bytes = bytes;
        Ok(Some(part))
    }

    /// The next leaf, if `unit` is that, after its words were put into `part`.
    fn add_leaf(&self, unit: &[u8], part: &mut Part) -> Option<Leaf> {
        let leaf = Leaf::from_unit(self.reading.layout.bind, unit)?;
        let is_it = leaf.id == self.checkpoint.id && leaf.index == self.index;
        is_it.then(|| {
            part.extend(leaf.items(unit));
            leaf
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conquest_format::volume::Bind;

    use super::*;
    use crate::Error;
    use crate::device::{Device, Limits, MemoryDevice, Mirrored};
    use crate::layout::Layout;

    const UNIT: u64 = 4096;
    /// More than a request, and not so many times as much.
    const SEGMENT: u64 = 384;
    /// Where the checkpoint goes, one after the other.
    const SEGMENTS: [u64; 4] = [5, 2, 7, 1];
    const ID: u64 = 77;

    fn layout() -> Layout {
        Layout { unit: UNIT, segment: SEGMENT, segments: 8, bind: Bind::new([3; 16]) }
    }

    fn place_of(index: u64) -> u64 {
        SEGMENTS[(index / SEGMENT) as usize] * SEGMENT + index % SEGMENT
    }

    /// Leaf `index`, which says that it is number `said`, with its number as its words.
    fn write(device: &dyn Device, index: u64, said: u64) {
        let next = SEGMENTS[(index / SEGMENT + 1) as usize];
        let leaf = Leaf { id: ID, index: said, next, words: 0 };
        let mut unit = vec![0; UNIT as usize];
        leaf.fill(layout().bind, &mut unit, &[index; 3]);
        device.write(place_of(index) * UNIT, &unit).unwrap();
    }

    /// A mirrored device with a checkpoint of so many leaves, and what it consists of.
    fn checkpoint(units: u64) -> (Mirrored, [Arc<MemoryDevice>; 2], Checkpoint) {
        let members = [0, 1].map(|_| {
            let limits = Limits::of_blocks(UNIT as u32);
            Arc::new(MemoryDevice::new("memory", 8 * SEGMENT * UNIT, limits).unwrap())
        });
        let all = members.iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect();
        let device = Mirrored::new(all).unwrap();
        (0..units).for_each(|index| write(&device, index, index));
        (device, members, Checkpoint { id: ID, segment: SEGMENTS[0], units })
    }

    fn read(device: &dyn Device, checkpoint: &Checkpoint) -> Result<(Vec<u64>, Vec<u64>, usize)> {
        let (mut words, mut parts) = (Vec::new(), 0);
        let segments = read_leaves(Reading { device, layout: layout() }, checkpoint, |part| {
            words.extend(part);
            parts += 1;
            Ok(())
        })?;
        Ok((words, segments, parts))
    }

    fn expected(units: u64) -> Vec<u64> {
        (0..units).flat_map(|index| [index; 3]).collect()
    }

    #[test]
    fn leaves_are_read_in_order_in_large_requests() {
        for (units, parts) in [(1, 1), (256, 1), (257, 2), (384, 2), (385, 3), (1000, 5)] {
            let (device, _, checkpoint) = checkpoint(units);
            let (words, segments, found) = read(&device, &checkpoint).unwrap();
            assert!(words == expected(units), "{units}");
            assert_eq!(segments, SEGMENTS[..=(units / SEGMENT) as usize]);
            assert_eq!(found, parts, "{units}");
        }
    }

    #[test]
    fn a_leaf_that_one_copy_lacks_is_read_from_another() {
        let (device, members, checkpoint) = checkpoint(1000);
        for (index, member) in [3, 255, 383, 384, 385, 999].into_iter().zip(members.iter().cycle())
        {
            member.write(place_of(index) * UNIT, &[0x5A; UNIT as usize]).unwrap();
        }
        let (words, segments, _) = read(&device, &checkpoint).unwrap();
        assert!(words == expected(1000));
        assert_eq!(segments, SEGMENTS[..3]);
    }

    #[test]
    fn a_leaf_that_no_copy_has_is_missed() {
        for index in [0, 255, 256, 383, 384, 999] {
            for said in [index + 1, u64::MAX] {
                let (device, _, checkpoint) = checkpoint(1000);
                write(&device, index, said);
                let found = read(&device, &checkpoint);
                assert!(matches!(found, Err(Error::Unreadable { what: "checkpoint", .. })));
            }
        }
        let (device, _, checkpoint) = checkpoint(1000);
        let longer = Checkpoint { units: u64::MAX, ..checkpoint };
        assert!(matches!(read(&device, &longer), Err(Error::Unreadable { .. })));
        let elsewhere = Checkpoint { segment: 1 << 60, ..checkpoint };
        assert!(matches!(read(&device, &elsewhere), Err(Error::Unreadable { .. })));
    }

    #[test]
    fn who_takes_no_more_ends_it() {
        let (device, _, checkpoint) = checkpoint(1000);
        let reading = Reading { device: &device, layout: layout() };
        let mut parts = 0;
        let found = read_leaves(reading, &checkpoint, |_| {
            parts += 1;
            Err(Error::Unreadable { device: "it".into(), what: "what was taken" })
        });
        assert!(matches!(found, Err(Error::Unreadable { what: "what was taken", .. })));
        assert_eq!(parts, 1);
    }
}
