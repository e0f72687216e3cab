//! Segments: given out for a use, and begun anew when nothing of what is in them is needed.

use conquest_format::volume::{Leaf, Record, Sums};
use conquest_format::{Offset, PAGE};
use conquest_pm::Place;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::change::{Change, Step, Stop};
use crate::index::{Count, Of, Stand, Use, Word, Words, new_run, packet_of, use_word};
use crate::kinds;
use crate::layout::Layout;
use crate::stand_in::STANDS_IN;
use crate::volume::Volume;
use crate::writer::Hold;

/// What payload is like, as far as known: how often it was copied by cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Temperature {
    /// Just written.
    Hot,
    /// It has outlived its segment.
    Cold,
    /// It has done so more than once.
    Cold2,
}

impl Temperature {
    /// The word for the segment into which it goes.
    const fn open_word(self) -> Word {
        match self {
            Temperature::Hot => Word::OpenHot,
            Temperature::Cold => Word::OpenCold,
            Temperature::Cold2 => Word::OpenCold2,
        }
    }
}

/// Words of a record that says that a segment was begun.
const BEGIN_WORDS: u64 = 3;
/// Entries of a transaction that beginning a segment takes, and what belongs to it.
const ENTRIES: u64 = 40;

/// Segments to which writing fails before what writes there does.
pub(crate) const FAILURES_MAX: usize = 4;
/// Entries that noting that one is bad takes, and what belongs to it.
const BAD_ENTRIES: u64 = 8;

/// Words of a checkpoint for each segment, besides checksums.
const ITEM_WORDS: u64 = 6;

const OPEN: [Word; 3] = [Word::OpenHot, Word::OpenCold, Word::OpenCold2];

/// Room for payload that was given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) place: u64,
    pub(crate) len: u64,
    pub(crate) generation: u64,
}

/// Free segments that are left to others by those who take one, beside those for a checkpoint: what
/// users write waits for cleaning, cleaning for checkpoints, and these leave some to the stream.
pub(crate) const HOT_LEAVES: u64 = 6;
const COLD_LEAVES: u64 = 1;
pub(crate) const CHECKPOINT_LEAVES: u64 = 1;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Free segments that payload of `temperature` leaves.
    pub(crate) fn left_by(&self, temperature: Temperature) -> u64 {
        match temperature {
            Temperature::Hot => self.checkpoint_needs() + HOT_LEAVES + self.layout.cleaned_room(),
            Temperature::Cold | Temperature::Cold2 if self.space.is_let_go() => COLD_LEAVES,
            Temperature::Cold | Temperature::Cold2 => self.checkpoint_needs() + COLD_LEAVES,
        }
    }

    /// Segments that a checkpoint takes: by the last one, and the checksums of all segments.
    pub(crate) fn checkpoint_needs(&self) -> u64 {
        let Layout { segments, segment, unit, .. } = self.layout;
        let words = segments * (Sums::words(segment) + ITEM_WORDS);
        let units = words.div_ceil(Leaf::room(unit)).max(self.root(Word::CheckpointUnits) * 5 / 4);
        // Those that are full, the one that is being filled, and the next one.
        units / segment + 2
    }

    /// The checksums of a segment, which stand at `base`.
    pub(crate) fn sums_object(&self, base: Offset) -> Result<Place> {
        let bytes = self.layout.sums_bytes();
        Ok(match bytes < PAGE {
            true => self.core.resolve_kind(base, kinds::SUMS)?,
            false => self.core.resolve_run(base, bytes / PAGE, kinds::SUMS)?,
        })
    }

    /// Whether `segment` can be begun anew: the only place that decides about it.
    ///
    /// - No unit in it is in use, and a flushed record has made the last of them dead; and a
    ///   flushed packet says so, or recovery would look for what the records of flushed packets
    ///   name.
    /// - No root that recovery might use needs it, or says that something stands in for what was
    ///   there: recovery would put that there.
    /// - Nobody has room in it, alive, stopped, or dead with requests under way: it is not `held`.
    /// - It is erased, where segments have to be, and is not bad.
    pub(crate) fn is_reusable(&self, words: &impl Words, segment: u64, held: &[u64]) -> bool {
        let is_ready = !self.is_ordered() || words.segment(segment, Of::Ready) > 0;
        is_ready && self.is_dead(words, segment, held)
    }

    /// Whether nobody needs anything of `segment` any more, as [`Self::is_reusable`] says, and it
    /// is not bad.
    pub(crate) fn is_dead(&self, words: &impl Words, segment: u64, held: &[u64]) -> bool {
        let (used, _) = words.usage(segment);
        let is_needed = match used {
            Use::Anchor => true,
            Use::Payload => OPEN.iter().any(|&open| words.root(open) == segment + 1),
            Use::Stream => {
                let last = words.segment(segment, Of::Last);
                let is_next = words.root(Word::NextStream) == segment;
                is_next
                    || last >= words.root(Word::RootPacket)
                    || self.is_for_stand_in(words, segment, Stand::Place)
            }
            // The newest root may be on its way, or there while nobody knows.
            Use::Checkpoint => {
                let last = words.segment(segment, Of::Last);
                let roots = [Word::RootCheckpoint, Word::LastRooted];
                roots.iter().any(|&root| words.root(root) == last)
                    || last == STANDS_IN && self.is_for_stand_in(words, segment, Stand::At)
            }
        };
        let is_bad = words.segment(segment, Of::Bad) > 0;
        if is_needed || is_bad || words.segment(segment, Of::Live) > 0 {
            return false;
        }
        let touched = words.segment(segment, Of::Touched);
        let is_named = touched == 0 || touched < words.root(Word::Named);
        is_named && held.binary_search(&segment).is_err()
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Tells for good that these segments can't be written: others could be, so it is not the
    /// device that has gone.
    pub(crate) fn retire(&self, failed: &[(u64, Hold<'_, M, H>)]) -> Result<()> {
        failed.iter().try_for_each(|&(segment, _)| self.change(|change| change.retire(segment)))
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// A free segment, begun for `used`, if that leaves `left` others; and its generation.
    pub(crate) fn begin_segment(&mut self, used: Use, left: u64) -> Step<(u64, u64)> {
        self.begin_one(used, left, false)
    }

    /// The same; for what is expected to stay, if it `is_for_long`.
    fn begin_one(&mut self, used: Use, left: u64, is_for_long: bool) -> Step<(u64, u64)> {
        let (free, best) = self.volume.free_for(&self.tx, left, is_for_long)?;
        let Some(segment) = best.filter(|_| free > left) else {
            return Err(Stop::Segments);
        };
        self.volume.call_if_short(free - 1, self.volume.left_by(Temperature::Hot));
        let (_, generation) = self.tx.usage(segment);
        let (packet, _) = packet_of(self.tx.root(Word::End));
        self.drop_names(segment)?;
        self.note_begun(segment, used, generation + 1, packet)?;
        Ok((segment, generation + 1))
    }

    /// Notes that `segment` was begun, when packet `packet` was open.
    pub(crate) fn note_begun(
        &mut self,
        segment: u64,
        used: Use,
        generation: u64,
        packet: u64,
    ) -> Step<()> {
        self.ensure_sums(segment)?;
        self.make_room(ENTRIES)?;
        let words = [
            (Of::Use, use_word(used, generation)),
            (Of::Birth, packet),
            (Of::Touched, 0),
            (Of::Next, 0),
            (Of::Last, 0),
            (Of::Age, 0),
            (Of::Unreadable, 0),
            (Of::Ready, 0),
        ];
        for (of, value) in words {
            self.tx.set(self.tx.segment_at(segment, of), value)?;
        }
        Ok(())
    }

    /// Sees to it that `segment` has a place for checksums.
    pub(crate) fn ensure_sums(&mut self, segment: u64) -> Step<()> {
        let at = self.tx.segment_at(segment, Of::Sums);
        if self.tx.word(at) != 0 {
            return Ok(());
        }
        let bytes = self.volume.layout.sums_bytes();
        if bytes < PAGE {
            let fresh = self.tx.alloc_untyped(kinds::SUMS)?;
            let offset = self.tx.seal_untyped(fresh);
            self.tx.set(at, offset.bytes())?;
        } else {
            new_run(&mut self.tx, kinds::SUMS, bytes / PAGE, at)?;
        }
        // Only what is committed can be stored into aside.
        Ok(self.part()?)
    }

    /// Gives out room for up to `wanted` units of payload, in a segment that `hold` holds from then
    /// on.
    pub(crate) fn take_room(
        &mut self,
        temperature: Temperature,
        wanted: u64,
        hold: &Hold<'_, M, H>,
    ) -> Step<Room> {
        let layout = self.volume.layout;
        let word = temperature.open_word();
        let open = self.tx.root(word).checked_sub(1);
        let open = open.filter(|&open| self.tx.segment(open, Of::Next) < layout.segment);
        let segment = match open {
            Some(open) => open,
            None => self.open_segment(temperature)?,
        };
        let (_, generation) = self.tx.usage(segment);
        let next = self.tx.segment(segment, Of::Next);
        let len = wanted.min(layout.segment - next);
        // Before anybody else can find it without one.
        hold.set(segment)?;
        let at = self.tx.segment_at(segment, Of::Next);
        self.tx.set(at, next + len)?;
        let counted = match temperature {
            Temperature::Hot => Count::Placed,
            Temperature::Cold | Temperature::Cold2 => Count::Copied,
        };
        self.count_units(counted, len)?;
        Ok(Room { place: layout.first_place(segment) + next, len, generation })
    }

    /// Gives no more room in `segment`.
    pub(crate) fn close(&mut self, segment: u64) -> Step<()> {
        for open in OPEN {
            if self.tx.root(open) == segment + 1 {
                self.tx.set(open.at(), 0)?;
            }
        }
        Ok(())
    }

    /// Tells for good that `segment` can't be written: it is not begun again.
    fn retire(&mut self, segment: u64) -> Step<()> {
        if self.tx.segment(segment, Of::Bad) > 0 {
            return Ok(());
        }
        self.append(&Record::Bad { segment }, true)
    }

    /// Notes that `segment` is bad.
    pub(crate) fn note_bad(&mut self, segment: u64) -> Step<()> {
        self.make_room(BAD_ENTRIES)?;
        self.close(segment)?;
        let at = self.tx.segment_at(segment, Of::Bad);
        if self.tx.word(at) == 0 {
            self.tx.set(at, 1)?;
            self.count_units(Count::Bad, 1)?;
        }
        Ok(())
    }

    /// Counts `units` more of something.
    pub(crate) fn count_units(&mut self, of: Count, units: u64) -> Step<()> {
        let at = self.tx.count_at(of);
        Ok(self.tx.set(at, self.tx.word(at) + units)?)
    }

    /// Begins the segment into which payload of `temperature` goes.
    fn open_segment(&mut self, temperature: Temperature) -> Step<u64> {
        let left = self.volume.left_by(temperature);
        // What follows is one part: nothing is put into a segment whose record is missing, and the
        // stream does not go to the segment itself.
        self.ensure_words(BEGIN_WORDS)?;
        let is_for_long = temperature == Temperature::Cold2 && self.volume.is_levelling();
        let (segment, generation) = self.begin_one(Use::Payload, left, is_for_long)?;
        self.append(&Record::Begin { segment, generation }, true)?;
        let age = self.tx.segment_at(segment, Of::Age);
        self.tx.set(age, temperature as u64)?;
        self.tx.set(temperature.open_word().at(), segment + 1)?;
        Ok(segment)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::operations::tests::volume;

    /// Also if it just fills its segments.
    #[test]
    fn a_checkpoint_takes_no_more_segments_than_are_kept_for_it() {
        let volume = volume();
        let core = volume.core.as_ref();
        let mut sizes = [false; 2];
        for number in 0..3000 {
            let unit = 2 * number;
            volume.write(unit * 8, &[1; 4096]).unwrap();
            if number % 60 > 0 {
                continue;
            }
            volume.checkpoint().unwrap();
            // The next one is as large as is expected, if that is a quarter more than the last one.
            let units = core.root(Word::CheckpointUnits);
            let last = (units * 4).div_ceil(5);
            let set = |change: &mut Change<'_, _, _>| {
                Ok(change.tx.set(Word::CheckpointUnits.at(), last)?)
            };
            volume.change(set).unwrap();
            let kept = volume.checkpoint_needs();
            volume.checkpoint().unwrap();
            let id = core.root(Word::LastCheckpoint);
            let is_its = |segment: &u64| {
                core.usage(*segment).0 == Use::Checkpoint && core.segment(*segment, Of::Last) == id
            };
            let taken = (0..volume.layout.segments).filter(is_its).count() as u64;
            assert!(taken > 0 && taken <= kept, "{taken} for {units} units, {kept} were kept");
            sizes[usize::from(units.is_multiple_of(volume.layout.segment))] = true;
        }
        assert_eq!(sizes, [true; 2]);
    }
}
