//! Checkpoints: the map on the devices, so that recovery need not read the stream from its start,
//! and what the stream no longer needs can be used again.
//!
//! It is written while others change the map: what they change stands in the stream behind the
//! packet at which the walk began, so that replaying it sets right whatever the walk has seen. But
//! what the walk has seen must be in the stream for good: the root that names the checkpoint is
//! written when the stream is durable to where the walk ended.

use conquest_format::volume::{Checkpoint, Item, ItemWriter, Leaf, Life, Sums};
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::Change;
use crate::clean::could;
use crate::index::{Count, LOCK, Of, Slot, Use, Word, Words, packet_of};
use crate::segments::{CHECKPOINT_LEAVES, FAILURES_MAX};
use crate::volume::Volume;
use crate::writer::Hold;

/// Units that are written at once.
const AT_ONCE: usize = 64;
/// A checkpoint is due when the stream has so many packets, or units, for each unit that the last
/// checkpoint has: packets take recovery time, and units say what checkpoints add to what is
/// written. But not before it has so many in all.
const PACKETS: u64 = 4;
const PACKETS_LEAST: u64 = 256;
const UNITS: u64 = 32;
const UNITS_LEAST: u64 = 4096;

/// A checkpoint being written.
struct Writing<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    id: u64,
    first: u64,
    /// The segment that is being filled, and the one after it.
    segment: u64,
    next: u64,
    units: u64,
    items: ItemWriter,
    bytes: Vec<u8>,
    /// Where `bytes` go.
    place: u64,
    /// Its segments.
    holds: Vec<(u64, Hold<'v, M, H>)>,
    /// Whether the one that is being filled can't be written.
    has_failed: bool,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Writes a checkpoint if enough has come since the last one.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        // Who can leave it to others goes on, unless they have been at it for too long.
        let is_left = || self.keeping.call() && !self.is_checkpoint_due(2);
        if !self.is_checkpoint_due(1) || is_left() || self.is_others_turn()? {
            return Ok(());
        }
        let is_needless = |_| Ok(!self.is_checkpoint_due(1));
        let _turn = match self.space.is_mine() {
            true => None,
            false => match self.take_turn_unless(is_needless)? {
                None => return Ok(()),
                turn => turn,
            },
        };
        // Who needs space makes some.
        could(self.checkpoint()).map(drop)
    }

    /// Whether so many times as much has come since the last checkpoint as makes one due.
    pub(crate) fn is_checkpoint_due(&self, times: u64) -> bool {
        let (open, _) = packet_of(self.root(Word::End));
        let packets = open.saturating_sub(self.root(Word::RootPacket));
        let size = self.root(Word::CheckpointUnits);
        packets > times * (PACKETS * size).max(PACKETS_LEAST)
            || self.root(Word::StreamUnits) > times * (UNITS * size).max(UNITS_LEAST)
    }

    /// Writes a checkpoint: opening the volume after a failure takes less time then, and space that
    /// was kept for that is free.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn checkpoint(&self) -> Result<()> {
        // One at a time: there is room for one.
        let _turn = if self.space.is_mine() { None } else { Some(self.take_turn()?) };
        let mut failed = Vec::new();
        loop {
            let before = failed.len();
            match self.write_checkpoint(&mut failed) {
                Ok(()) => return self.retire(&failed),
                // A place can't be written: others may be.
                Err(_) if failed.len() > before && failed.len() < FAILURES_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a checkpoint; if a segment can't be written, it is added to those that have `failed`.
    fn write_checkpoint<'v>(&'v self, failed: &mut Vec<(u64, Hold<'v, M, H>)>) -> Result<()> {
        // Somebody may have been killed between writing a root and making known that it counts:
        // there is space for two checkpoints, not for three.
        if self.root(Word::LastRooted) != self.root(Word::RootCheckpoint) {
            let root = self.renew_root()?;
            if let (Some(found), Some(life)) = (root.checkpoint, root.lives.first()) {
                self.finish_root(found, life.packet)?;
            }
        }
        let hold = self.spare_hold()?;
        let (life, id, units) = self.change(|change| {
            let packet = change.seal_all()?;
            let units = change.tx.root(Word::StreamUnits);
            let id = change.tx.root(Word::LastCheckpoint) + 1;
            change.tx.set(Word::LastCheckpoint.at(), id)?;
            Ok((change.life(packet), id, units))
        })?;
        let segment = self.checkpoint_segment(id, &hold)?;
        let mut writing = Writing {
            volume: self,
            id,
            first: segment,
            segment,
            next: segment,
            units: 0,
            items: ItemWriter::default(),
            bytes: Vec::new(),
            place: self.layout.first_place(segment),
            holds: vec![(segment, hold)],
            has_failed: false,
        };
        if let Err(error) = writing.put_all() {
            let holds = writing.holds.into_iter();
            failed.extend(holds.filter(|(held, _)| writing.has_failed && *held == writing.segment));
            return Err(error);
        }
        // All that the walk has seen; and the checkpoint itself, of which the stream knows nothing.
        self.flush()?;
        self.flush_now()?;
        self.end_stand_ins_of_the_dead()?;
        let found = Checkpoint { id, segment: writing.first, units: writing.units };
        if !self.write_root(Some(found), &[life])? {
            return Ok(());
        }
        self.finish_root(found, life.packet)?;
        self.change(|change| {
            change.count_units(Count::Checkpoints, writing.units)?;
            let since = change.tx.root(Word::StreamUnits).saturating_sub(units);
            Ok(change.tx.set(Word::StreamUnits.at(), since)?)
        })
    }

    /// A segment for checkpoint `id`.
    fn checkpoint_segment(&self, id: u64, hold: &Hold<'_, M, H>) -> Result<u64> {
        self.change(|change| {
            let (segment, _) = change.begin_segment(Use::Checkpoint, CHECKPOINT_LEAVES)?;
            hold.set(segment)?;
            let last = change.tx.segment_at(segment, Of::Last);
            change.tx.set(last, id)?;
            Ok(segment)
        })
    }

    /// All segments, and the checksums of those that are in use.
    fn put_segments(&self, writing: &mut Writing<'_, M, H>) -> Result<()> {
        let core = self.core.as_ref();
        for segment in 0..self.layout.segments {
            let (used, generation, is_bad, birth, base) = self.core.read(LOCK, |view| {
                let (used, generation) = view.usage(segment);
                let is_bad = view.segment(segment, Of::Bad) > 0;
                let birth = view.segment(segment, Of::Birth);
                Ok((used, generation, is_bad, birth, view.segment(segment, Of::Sums)))
            })?;
            if generation == 0 && !is_bad {
                continue;
            }
            writing.put(&Item::Segment { segment, generation, is_bad, birth })?;
            if matches!(used, Use::Payload | Use::Stream) && base != 0 {
                let count = Sums::words(self.layout.segment);
                let word = |index: u64| core.word(Offset::new(base).plus(index * WORD));
                writing.put(&Item::Sums { segment, words: (0..count).map(word).collect() })?;
            }
        }
        Ok(())
    }

    /// What is mapped.
    fn put_extents(&self, writing: &mut Writing<'_, M, H>) -> Result<()> {
        let mut at = Some(0);
        while let Some(unit) = at {
            let mut extents = Vec::new();
            at = self.core.read(LOCK, |view| {
                extents.clear();
                let next = self.map.leaf(view, unit, &mut extents)?;
                self.left_of(view, &mut extents);
                Ok(next)
            })?;
            if !extents.is_empty() {
                let parts = extents.iter().map(|extent| [extent.unit, extent.place, extent.len]);
                writing.put(&Item::Extents(parts.collect()))?;
            }
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// The stream from packet `packet` on, which is the open one.
    fn life(&self, packet: u64) -> Life {
        Life {
            life: self.tx.root(Word::Life),
            packet,
            place: self.tx.packet(packet, Slot::Place),
            generation: self.tx.packet(packet, Slot::Generation),
        }
    }
}

impl<M: Memory, H: Host> Writing<'_, M, H> {
    /// Takes the segment that comes after the present one.
    fn name_next(&mut self) -> Result<()> {
        let hold = self.volume.spare_hold()?;
        self.next = self.volume.checkpoint_segment(self.id, &hold)?;
        self.holds.push((self.next, hold));
        Ok(())
    }

    /// Writes all items.
    fn put_all(&mut self) -> Result<()> {
        let volume = self.volume;
        self.name_next()?;
        volume.put_segments(self)?;
        volume.put_extents(self)?;
        self.put(&Item::Reserved(volume.root(Word::Reserved)))?;
        self.put(&Item::End)?;
        self.finish()
    }

    fn put(&mut self, item: &Item) -> Result<()> {
        self.items.put(item);
        let room = Leaf::room(self.volume.layout.unit) as usize;
        while self.items.words().len() >= room {
            self.put_leaf(room)?;
        }
        Ok(())
    }

    /// Makes a unit of the first `count` words that wait.
    fn put_leaf(&mut self, count: usize) -> Result<()> {
        let layout = self.volume.layout;
        let start = self.bytes.len();
        self.bytes.resize(start + layout.unit as usize, 0);
        let words = self.items.words().get(..count).unwrap_or_default();
        let leaf = Leaf { id: self.id, index: self.units, next: self.next, words: 0 };
        if let Some(unit) = self.bytes.get_mut(start..) {
            leaf.fill(layout.bind, unit, words);
        }
        self.items.take(count);
        self.units += 1;
        let is_full = self.units.is_multiple_of(layout.segment);
        if is_full || self.bytes.len() >= AT_ONCE * layout.unit as usize {
            self.write()?;
        }
        if is_full {
            self.segment = self.next;
            self.place = layout.first_place(self.segment);
            self.name_next()?;
        }
        Ok(())
    }

    /// Writes the units that were made.
    fn write(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            let written = self.volume.write_units(self.place, &self.bytes);
            self.has_failed = written.is_err();
            written?;
            self.place += self.bytes.len() as u64 / self.volume.layout.unit;
            self.bytes.clear();
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let count = self.items.words().len();
        if count > 0 {
            self.put_leaf(count)?;
        }
        self.write()
    }
}
