//! The index of a volume, made from what its devices say.

use std::sync::{Arc, Mutex, OnceLock};

use conquest_format::volume::{LIVES_MAX, Life};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Tx};

use crate::Result;
use crate::buffers::Buffers;
use crate::change::{Change, Step, Stop};
use crate::clean::could;
use crate::device::Device;
use crate::index::{self, Of, Use, Word, Words, position, use_word};
use crate::keep::Keeping;
use crate::kinds;
use crate::layout::Layout;
use crate::map::{Extent, Tree};
use crate::order::Order;
use crate::recover::{Recovered, Segment, recover};
use crate::segments::Temperature;
use crate::turn::Turn;
use crate::volume::Volume;
use crate::writer::Writing;

impl<M: Memory, H: Host> Volume<M, H> {
    /// The volume on `device` whose index is in `core`; it is there.
    pub(crate) fn over(core: Arc<Core<M, H>>, device: Arc<dyn Device>, layout: Layout) -> Self {
        Volume {
            flushed: Mutex::default(),
            life: core.life(),
            core,
            device,
            layout,
            map: Tree { root: Word::Map.at(), segment: layout.segment },
            writing: Writing::default(),
            queues: Mutex::default(),
            order: Order::default(),
            buffers: Buffers::default(),
            packets: [const { OnceLock::new() }; index::RING as usize],
            keeping: Keeping::default(),
            packets_written: <_>::default(),
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
        // What was found may be in a cache: it is to be there still when space is used again that
        // is free for what was found.
        self.flush_now()?;
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
        // The page that it is in will do.
        let (page, word) = (index * WORD / PAGE, index % (PAGE / WORD));
        let run = self.core.resolve_run(base.plus(page * PAGE), 1, kinds::SEGMENTS)?;
        Ok(self.core.store_aside(run, word, value)?)
    }

    /// Stores words of the volume as a whole.
    fn fill_roots(&self, words: &[(Word, u64)]) -> Result<()> {
        let set = |&(word, value): &(Word, u64), tx: &mut Tx<'_, M, H>| tx.set(word.at(), value);
        Ok(self.core.run(|tx| words.iter().try_for_each(|word| set(word, tx)))?)
    }

    fn fill_map(&self, recovered: &Recovered) -> Result<()> {
        let mut extents: Vec<Extent> = recovered.map.values().copied().collect();
        self.map.load(&self.core, extents.iter().copied())?;
        extents.sort_unstable_by_key(|extent| extent.place);
        let segment_of = |extent: &Extent| self.layout.segment_of(extent.place);
        for of_one in extents.chunk_by(|one, other| segment_of(one) == segment_of(other)) {
            let live = of_one.iter().map(|extent| extent.len).sum();
            let segment = of_one.first().map_or(0, segment_of);
            self.fill_word(segment, Of::Live, live)?;
            self.stage(|change| Ok(change.fill_names(segment, of_one)?))?;
        }
        let all = extents.iter().map(|extent| extent.len).sum();
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

    /// A number for the life that begins with the root of this `sequence`. If that root is lost,
    /// the next life begins with the same sequence, at the same place: what is there of the lost
    /// one must not be taken for a part of it.
    fn draw_life(&self, sequence: u64) -> Result<u64> {
        let mut drawn = [0; 3];
        rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| self.device_error("draw a number for", 0, 3, errno.into()))?;
        let [low, middle, high] = drawn.map(u64::from);
        Ok(sequence | (low | middle << 8 | high << 16) << LIFE_SHIFT)
    }

    /// Begins a new life of the volume: from now on its stream goes on in segments that are free.
    fn begin_life(&mut self, recovered: Recovered) -> Result<()> {
        let Recovered { root, packet, has_begun, .. } = recovered;
        let life = self.draw_life(root.sequence + 1)?;
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
            (Word::LastCheckpoint, (root.sequence + 1) << CHECKPOINT_SHIFT),
            (Word::LastRooted, checkpoint.map_or(0, |checkpoint| checkpoint.id)),
            (Word::CheckpointUnits, checkpoint.map_or(0, |checkpoint| checkpoint.units)),
            (Word::Written, packet),
            (Word::Durable, packet),
            (Word::Named, packet),
            (Word::End, end),
            (Word::Whole, end),
            (Word::Applied, end),
            (Word::NextStream, u64::MAX),
        ])?;
        self.make_ready()?;
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
        let is_short = self.count_free()? < self.left_by(Temperature::Hot);
        if is_short || lives.len() == LIVES_MAX {
            // It has the same effect, and frees what earlier lives have left. However often that is
            // cut off, nothing is used up by it.
            let is_written = match self.checkpoint() {
                outcome if lives.len() < LIVES_MAX => could(outcome)?,
                outcome => outcome.map(|()| true)?,
            };
            if is_written {
                return self.make_space_if_short();
            }
        }
        lives.push(Life { life, packet, place, generation });
        self.write_root(checkpoint, lives)?;
        self.make_space_if_short()
    }

    /// Makes the space that those before have not come to make: each life takes some.
    fn make_space_if_short(&self) -> Result<()> {
        if self.count_free()? >= self.left_by(Temperature::Hot) {
            return Ok(());
        }
        could(self.make_space(0)).map(drop)
    }
}

/// The bits of a life's number above these are drawn.
pub(crate) const LIFE_SHIFT: u32 = 40;
/// Checkpoints of a life have ids of their own.
const CHECKPOINT_SHIFT: u32 = 24;
