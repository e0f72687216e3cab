//! The index of a volume, made from what its devices say.

use std::sync::Arc;

use conquest_format::Offset;
use conquest_format::volume::{LIVES_MAX, Life};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Tx};

use crate::Result;
use crate::change::{Change, Step, Stop};
use crate::device::Device;
use crate::index::{self, Of, Use, Word, Words, position, use_word};
use crate::kinds;
use crate::layout::Layout;
use crate::map::{Extent, Tree};
use crate::recover::{Recovered, Segment, recover};
use crate::turn::Turn;
use crate::volume::Volume;
use crate::writer::Writing;

impl<M: Memory, H: Host> Volume<M, H> {
    /// The volume on `device` whose index is in `core`; it is there.
    pub(crate) fn over(core: Arc<Core<M, H>>, device: Arc<dyn Device>, layout: Layout) -> Self {
        Volume {
            life: core.life(),
            core,
            device,
            layout,
            map: Tree { root: Word::Map.at(), segment: layout.segment },
            writing: Writing::default(),
            space: Turn::default(),
            opened: None,
        }
    }

    /// Makes this process a writer of the volume.
    pub(crate) fn become_writer(&mut self) -> Result<()> {
        loop {
            let number = self.change(|change| {
                let number = change.tx.root(Word::WriterNumber) + 1;
                change.tx.set(Word::WriterNumber.at(), number)?;
                Ok(number)
            })?;
            self.writing = Writing::new(number);
            let entered = self.device.enter(number);
            // Somebody of another life may have the number still.
            if entered.map_err(|source| self.device_error("become a writer of", 0, 0, source))? {
                return Ok(());
            }
        }
    }

    /// Fills the index, which is new and nobody else's, from the device, and begins a new life.
    pub(crate) fn build(&mut self) -> Result<()> {
        index::make(&self.core, &self.layout)?;
        let recovered = recover(self.device.as_ref(), self.layout)?;
        self.fill_segments(&recovered.segments)?;
        self.fill_map(&recovered)?;
        self.begin_life(recovered)
    }

    fn fill_segments(&self, segments: &[Segment]) -> Result<()> {
        for (number, segment) in (0..).zip(segments) {
            let words = [
                (Of::Use, use_word(segment.used, segment.generation)),
                (Of::Birth, segment.birth),
                (Of::Last, segment.last),
                // What was given out of it, nobody knows.
                (Of::Next, self.layout.segment),
            ];
            for (of, value) in words {
                self.fill_word(number, of, value)?;
            }
            if segment.sums.is_empty() {
                continue;
            }
            self.stage(|change| change.ensure_sums(number))?;
            let base = Offset::new(self.core.segment(number, Of::Sums));
            let bytes: Vec<u8> = segment.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            self.core.copy_aside(self.sums_object(base)?, 0, &bytes)?;
        }
        Ok(())
    }

    /// Stores a word of a segment, at which nobody looks yet.
    fn fill_word(&self, segment: u64, of: Of, value: u64) -> Result<()> {
        let (table, index) = index::table_word(segment, of);
        let base = Offset::new(self.core.word(table));
        let run = self.core.resolve_run(base, index::table_pages(), kinds::SEGMENTS)?;
        Ok(self.core.store_aside(run, index, value)?)
    }

    /// Stores words of the volume as a whole.
    fn fill_roots(&self, words: &[(Word, u64)]) -> Result<()> {
        let set = |&(word, value): &(Word, u64), tx: &mut Tx<'_, M, H>| tx.set(word.at(), value);
        Ok(self.core.run(|tx| words.iter().try_for_each(|word| set(word, tx)))?)
    }

    fn fill_map(&self, recovered: &Recovered) -> Result<()> {
        let mut live = vec![0; recovered.segments.len()];
        let mut all = 0;
        let mut extents = recovered.map.values();
        let mut next = extents.next();
        while next.is_some() {
            self.stage(|change| {
                while let Some(&extent) = next {
                    if change.tx.room() < ENTRIES {
                        break;
                    }
                    change.lead_new(extent)?;
                    if let Some(live) = live.get_mut(self.layout.segment_of(extent.place) as usize)
                    {
                        *live += extent.len;
                    }
                    all += extent.len;
                    next = extents.next();
                }
                Ok(())
            })?;
        }
        for (number, live) in (0..).zip(live) {
            self.fill_word(number, Of::Live, live)?;
        }
        self.fill_roots(&[(Word::Live, all), (Word::Reserved, recovered.reserved)])
    }

    /// Runs a transaction on an index that is not a volume's yet.
    fn stage<T>(&self, mut make: impl FnMut(&mut Change<'_, M, H>) -> Step<T>) -> Result<T> {
        loop {
            let tx = self.core.begin()?;
            let mut change = Change::on(self, tx);
            match make(&mut change) {
                Ok(value) => {
                    change.tx.commit()?;
                    return Ok(value);
                }
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Again | Stop::Ring) => {}
                Err(Stop::Segments) => return Err(self.no_space()),
            }
        }
    }

    /// Begins a new life of the volume: from now on its stream goes on in segments that are free.
    fn begin_life(&mut self, recovered: Recovered) -> Result<()> {
        let Recovered { root, packet, has_begun, .. } = recovered;
        let life = root.sequence + 1;
        let mut lives = root.lives;
        if !has_begun {
            lives.pop();
        }
        let checkpoint = root.checkpoint;
        let first = lives.first().map_or(packet, |life| life.packet);
        let end = position(packet, 0);
        self.fill_roots(&[
            (Word::Life, life),
            (Word::LastSequence, root.sequence),
            (Word::RootPacket, first),
            (Word::RootCheckpoint, checkpoint.map_or(0, |checkpoint| checkpoint.id)),
            (Word::LastCheckpoint, life << CHECKPOINT_SHIFT),
            (Word::CheckpointUnits, checkpoint.map_or(0, |checkpoint| checkpoint.units)),
            (Word::Written, packet),
            (Word::Durable, packet),
            (Word::Named, packet),
            (Word::End, end),
            (Word::Whole, end),
            (Word::Applied, end),
            (Word::NextStream, u64::MAX),
        ])?;
        let (place, generation) = self.stage(|change| {
            let (segment, generation) = change.begin_segment(Use::Stream, 0)?;
            // It is nobody's second choice.
            change.tx.set(change.tx.segment_at(segment, Of::Last), u64::MAX)?;
            let (next, _) = change.begin_segment(Use::Stream, 0)?;
            change.tx.set(Word::NextStream.at(), next)?;
            let place = change.volume.layout.first_place(segment);
            change.open_packet(packet, place, segment)?;
            Ok((place, generation))
        })?;
        let is_full = lives.len() == LIVES_MAX;
        if !is_full {
            lives.push(Life { life, packet, place, generation });
        }
        self.write_root(checkpoint, lives)?;
        if is_full { self.checkpoint() } else { Ok(()) }
    }
}

/// Checkpoints of a life have ids of their own.
const CHECKPOINT_SHIFT: u32 = 24;
/// Entries that an extent takes in a new map.
const ENTRIES: u64 = 180;

impl<'v, M: Memory, H: Host> Change<'v, M, H> {
    /// Leads the map to `extent`, of which it knows nothing.
    fn lead_new(&mut self, extent: Extent) -> Step<()> {
        let map = self.volume.map;
        while !map.insert(&mut self.tx, extent, 40)? {
            self.part()?;
        }
        self.add_name(extent)?;
        Ok(())
    }
}
