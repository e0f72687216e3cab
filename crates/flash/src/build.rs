//! The index of a volume, made from what its devices say.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use conquest_format::volume::{LIVES_MAX, Life, Root, Sums, put_words};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Tx};

use crate::Result;
use crate::both::both;
use crate::buffers::Buffers;
use crate::cache::Cache;
use crate::change::{Change, Step, Stop};
use crate::clean::could;
use crate::device::Device;
use crate::index::{self, Count, Noted, Of, Use, Word, Words, position, use_word};
use crate::keep::Keeping;
use crate::kinds;
use crate::layout::Layout;
use crate::looked::Looked;
use crate::map::{Extent, Tree};
use crate::mirror::now;
use crate::naming::Naming;
use crate::newest::newest_root;
use crate::order::Order;
use crate::ranges::Ranges;
use crate::recover::{Checksums, Recovered, Segment, recover};
use crate::segments::Temperature;
use crate::turn::Turn;
use crate::volume::Volume;
use crate::writer::Writing;

impl<M: Memory, H: Host> Volume<M, H> {
    /// The volume on `device` whose index is in `core`; it is there.
    pub(crate) fn over(core: Arc<Core<M, H>>, device: Arc<dyn Device>, layout: Layout) -> Self {
        Volume {
            flushes: <_>::default(),
            life: core.life(),
            core,
            device,
            layout,
            map: Tree { root: Word::Map.at(), segment: layout.segment },
            writing: Writing::default(),
            queues: Mutex::default(),
            order: Order::default(),
            buffers: Buffers::default(),
            cache: Cache::default(),
            looked: Looked::default(),
            packets: [const { OnceLock::new() }; index::RING as usize],
            standing: Mutex::default(),
            keeping: Keeping::default(),
            naming: Naming::default(),
            known_free: <_>::default(),
            standstill: <_>::default(),
            under_way: <_>::default(),
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
        let (core, device, layout) = (self.core.as_ref(), self.device.as_ref(), self.layout);
        let root = newest_root(device, layout)?;
        self.note_standing(&root)?;
        let groups = self.provide_for(&root)?;
        let mut filling = Filling { volume: self, bytes: Vec::new() };
        let (recovered, ()) = both(
            || recover(device, layout, root, &mut filling),
            || core.make_ready(groups.clone()),
        );
        let recovered = recovered?;
        // What was found may be in a cache: it is to be there still when space is used again that
        // is free for what was found.
        self.flush_now()?;
        self.fill_segments(&recovered.segments)?;
        self.fill_map(&recovered)?;
        self.begin_life(recovered)
    }

    /// Sees to it that the index has space for what the checkpoint of `root` says: the groups of
    /// the region that are new.
    fn provide_for(&self, root: &Root) -> Result<Range<u64>> {
        let Layout { unit, segment, segments, .. } = self.layout;
        let said = root.checkpoint.map_or(0, |checkpoint| checkpoint.units.saturating_mul(unit));
        // All of a checkpoint goes into the index, and takes more there than on the devices; but it
        // need not be believed yet how much that is.
        let most = 2 * segments * Sums::words(segment) * WORD;
        Ok(self.core.run(|tx| tx.provide(said.min(most) / PAGE))?)
    }

    /// Uses members of a mirror as `root` says: none that lacks anything is read from now on.
    fn note_standing(&self, root: &Root) -> Result<()> {
        let since = if root.failed == 0 || root.since > 0 { root.since } else { now() };
        self.core.run(|tx| {
            tx.set(tx.noted_at(Noted::Failed), root.failed)?;
            tx.set(tx.noted_at(Noted::Missing), self.device.missing())?;
            tx.set(tx.noted_at(Noted::Since), since)?;
            tx.set(tx.noted_at(Noted::Known), root.known)
        })?;
        self.learn_standing();
        Ok(())
    }

    fn fill_segments(&self, segments: &[Segment]) -> Result<()> {
        for (number, segment) in (0..).zip(segments) {
            let words = [
                (Of::Use, use_word(segment.used, segment.generation)),
                (Of::Birth, segment.birth),
                (Of::Last, segment.last),
                (Of::Bad, segment.is_bad.into()),
                // What was given out of it, nobody knows.
                (Of::Next, self.layout.segment),
            ];
            for (of, value) in words {
                self.fill_word(number, of, value)?;
            }
        }
        let bad = segments.iter().filter(|segment| segment.is_bad).count() as u64;
        Ok(self.core.run(|tx| tx.set(tx.count_at(Count::Bad), bad))?)
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
        let (core, tree, map) = (self.core.as_ref(), self.map, &recovered.map);
        let (named, loaded) = both(|| self.fill_all_names(map), || tree.load(core, map.iter()));
        loaded?;
        self.fill_roots(&[(Word::Live, named?), (Word::Reserved, recovered.reserved)])
    }

    /// Gives each segment names for what of `map` is in it, and counts that: the units in all.
    fn fill_all_names(&self, map: &Ranges) -> Result<u64> {
        let (mut all, mut start) = (0, 0);
        let (sorted, ends) = self.by_segment(map);
        for (segment, end) in (0..).zip(ends) {
            let packed = sorted.get(start..end).unwrap_or_default();
            start = end;
            if packed.is_empty() {
                continue;
            }
            let mut extents: Vec<_> = packed.iter().copied().filter_map(Extent::unpack).collect();
            extents.sort_unstable_by_key(|extent| extent.place);
            let live = extents.iter().map(|extent| extent.len).sum();
            self.fill_word(segment, Of::Live, live)?;
            self.stage(|change| Ok(change.fill_names(segment, &extents)?))?;
            all += live;
        }
        Ok(all)
    }

    /// The extents of `map`, packed, those of each segment beside each other; and where those of
    /// each segment end.
    fn by_segment(&self, map: &Ranges) -> (Vec<[u64; 2]>, Vec<usize>) {
        let segment_of = |extent: &Extent| self.layout.segment_of(extent.place) as usize;
        // Of each segment how many there are, then where its next one goes.
        let mut next = vec![0; self.layout.segments as usize];
        for extent in map.iter() {
            if let Some(count) = next.get_mut(segment_of(&extent)) {
                *count += 1;
            }
        }
        let mut all = 0;
        for first in &mut next {
            all += std::mem::replace(first, all);
        }
        let mut sorted = vec![[0; 2]; all];
        for extent in map.iter() {
            if let Some(next) = next.get_mut(segment_of(&extent))
                && let Some(place) = sorted.get_mut(*next)
            {
                *place = extent.pack();
                *next += 1;
            }
        }
        (sorted, next)
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
        let Recovered { root, packet, stream, has_begun, .. } = recovered;
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
            // Else the next opening would read what comes of this life, too, before a checkpoint.
            (Word::StreamUnits, stream),
            (Word::Written, packet),
            (Word::Durable, packet),
            (Word::Named, packet),
            (Word::End, end),
            (Word::Whole, end),
            (Word::Applied, end),
            (Word::NextStream, u64::MAX),
        ])?;
        self.make_ready()?;
        self.count_free()?;
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
                return Ok(());
            }
        }
        lives.push(Life { life, packet, place, generation });
        self.write_root(checkpoint, &lives).map(drop)
    }

    /// Makes the space that those before have not come to make: each life takes some. For that the
    /// process has to be a writer: what it has under way may land after its end.
    pub(crate) fn make_space_if_short(&self) -> Result<()> {
        if self.count_free()? >= self.left_by(Temperature::Hot) {
            return Ok(());
        }
        could(self.make_space(0)).map(drop)
    }
}

/// Stores checksums in an index that is being made.
struct Filling<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    bytes: Vec<u8>,
}

impl<M: Memory, H: Host> Checksums for Filling<'_, M, H> {
    fn put_all(&mut self, segment: u64, words: &[u64]) -> Result<()> {
        self.bytes.resize(words.len() * WORD as usize, 0);
        put_words(&mut self.bytes, words.iter().copied());
        self.copy(segment, 0)
    }

    fn put(&mut self, place: u64, sums: Sums<'_>) -> Result<()> {
        let layout = self.volume.layout;
        self.bytes.clear();
        self.bytes.extend(sums.iter().flat_map(u32::to_le_bytes));
        self.copy(layout.segment_of(place), place % layout.segment * 4)
    }
}

impl<M: Memory, H: Host> Filling<'_, M, H> {
    /// Stores what is in `bytes` from byte `start` of the checksums of `segment` on.
    fn copy(&self, segment: u64, start: u64) -> Result<()> {
        let volume = self.volume;
        if volume.core.segment(segment, Of::Sums) == 0 {
            volume.stage(|change| change.ensure_sums(segment))?;
        }
        let base = Offset::new(volume.core.segment(segment, Of::Sums));
        Ok(volume.core.copy_aside(volume.sums_object(base)?, start, &self.bytes)?)
    }
}

/// The bits of a life's number above these are drawn.
pub(crate) const LIFE_SHIFT: u32 = 40;
/// Checkpoints of a life have ids of their own.
const CHECKPOINT_SHIFT: u32 = 24;
