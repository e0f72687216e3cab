//! Bringing members of a mirror that have failed up to date, while the volume is in use.
//!
//! From some moment on all that is written goes to them, too. When whatever was being written then
//! is complete, the rest is copied: what recovery needs, and what the map leads to. Only when all
//! of that is flushed do they count as good again, and a root says so. Whoever is cut off before
//! that leaves them failed.

use conquest_format::volume::{BLOCK, digest};
use conquest_pm::Mode;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::index::{LOCK, Noted, Of, Slot, Use, Word, Words, packet_of};
use crate::transfer::{Found, Piece};
use crate::volume::Volume;
use crate::{Error, Result};

/// Units that are read at once.
const AT_ONCE: u64 = 256;

/// A part of a segment that recovery needs.
struct Needed {
    segment: u64,
    generation: u64,
    used: Use,
    /// Behind its last unit.
    end: u64,
}

/// Members that are being brought up to date, until this is dropped.
struct Restoring<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    members: u64,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Brings members that have failed, and are there, up to date: which, a bit each. They are as
    /// good as the others when this returns. Others may use the volume meanwhile. `progress` is
    /// told how many units were looked at, of how many, and stops it by false: nothing has changed
    /// then.
    ///
    /// # Errors
    /// [`Error::InUse`] while others use the volume without these members, or bring them up to date
    /// themselves; [`Error::Restore`] if one fails again, or is written in order; those of the
    /// devices.
    pub fn restore(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64> {
        let Some(restoring) = self.begin_restoring()? else {
            return Ok(0);
        };
        // What was begun before everybody knew may be on the others only.
        self.await_present_holds()?;
        let members = restoring.members;
        for needed in self.needed_by_recovery()? {
            self.copy_needed(&needed, members)?;
        }
        if !self.copy_payload(members, progress)? {
            return Ok(0);
        }
        // They get a root, too, before one says that they have all: without it they are strangers.
        self.flush_now()?;
        self.renew_root()?;
        restoring.finish()?;
        self.learn_standing();
        self.flush_now()?;
        Ok(members)
    }

    /// Lets all write to members that have failed, and are there; none if there are none.
    fn begin_restoring(&self) -> Result<Option<Restoring<'_, M, H>>> {
        let members = self.core.noted(Noted::Failed) & !self.device.missing();
        if members == 0 {
            return Ok(None);
        }
        if self.is_ordered() {
            let what = "it is written in order: make the volume anew, and copy what is in it";
            return Err(Error::Restore { device: self.name(), what });
        }
        let anyone = self.device.is_anyone_entered();
        let is_alone =
            !anyone.map_err(|source| self.device_error("ask who writes to", 0, 0, source))?;
        let restorer = self.core.noted(Noted::Restorer);
        if restorer != 0 && restorer != self.writing.number && self.is_writing(restorer)? {
            let what = "they bring members up to date already";
            return Err(Error::InUse { device: self.name(), what });
        }
        let has_begun = self.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            let missing = tx.noted(Noted::Missing);
            if missing & members != 0 && !is_alone || tx.noted(Noted::Restorer) != restorer {
                return Ok(false);
            }
            tx.set(tx.noted_at(Noted::Missing), missing & !members)?;
            tx.set(tx.noted_at(Noted::Restored), members)?;
            tx.set(tx.noted_at(Noted::Restorer), self.writing.number)?;
            Ok(true)
        })?;
        if !has_begun {
            let what = "they have it open without a member that is to be brought up to date; let \
                        them close it";
            return Err(Error::InUse { device: self.name(), what });
        }
        self.learn_standing();
        Ok(Some(Restoring { volume: self, members }))
    }

    /// What recovery reads of what is on the devices by now: everything else is written to all.
    fn needed_by_recovery(&self) -> Result<Vec<Needed>> {
        let layout = self.layout;
        let (target, needed) = self.change(|change| {
            let target = change.seal_all()?;
            let words = &change.tx;
            let (open, _) = packet_of(words.root(Word::End));
            let place = words.packet(open, Slot::Place);
            let of = |segment: u64| {
                let (used, generation) = words.usage(segment);
                let last = words.segment(segment, Of::Last);
                let is_needed = match used {
                    Use::Stream => last >= words.root(Word::RootPacket),
                    Use::Checkpoint => [Word::RootCheckpoint, Word::LastRooted]
                        .map(|root| words.root(root))
                        .contains(&last),
                    Use::Payload | Use::Anchor => false,
                };
                // What is behind the open packet is being written, or will be.
                let end = match layout.segment_of(place) == segment {
                    true => place,
                    false => layout.first_place(segment + 1),
                };
                is_needed.then_some(Needed { segment, generation, used, end })
            };
            Ok((target, (0..layout.segments).filter_map(of).collect()))
        })?;
        // Nobody writes to them any more.
        self.flush_to(target)?;
        Ok(needed)
    }

    /// Copies what is `needed` to `members`, as far as it is not the same there.
    fn copy_needed(&self, needed: &Needed, members: u64) -> Result<()> {
        let _hold = self.hold(needed.segment)?;
        if self.core.usage(needed.segment) != (needed.used, needed.generation) {
            return Ok(());
        }
        let unit = self.layout.unit;
        let mut place = self.layout.first_place(needed.segment);
        while place < needed.end {
            let count = AT_ONCE.min(needed.end - place);
            let mut bytes = vec![0; (count * unit) as usize];
            self.read_at(place, &mut bytes)?;
            for copy in copies_of(members) {
                let mut theirs = vec![0; bytes.len()];
                let is_read = self.device.read_copy(copy, place * unit, &mut theirs).is_ok();
                if !is_read || theirs != bytes {
                    self.write_copy(copy, place, &bytes)?;
                }
            }
            place += count;
        }
        Ok(())
    }

    /// Writes to one copy only.
    fn write_copy(&self, copy: u32, place: u64, bytes: &[u8]) -> Result<()> {
        let at = place * self.layout.unit;
        let written = self.device.write_copy(copy, at, bytes);
        self.tell_failures()?;
        written.map_err(|source| self.device_error("write", at, bytes.len() as u64, source))
    }

    /// Copies what the map leads to; false if that was stopped.
    fn copy_payload(
        &self,
        members: u64,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool> {
        let total = self.root(Word::Live);
        let (mut at, mut done) = (0, 0);
        while let Some((block, count)) = self.allocated(at)? {
            let per = self.layout.unit / BLOCK;
            let (mut unit, end) = (block / per, (block + count).div_ceil(per));
            while unit < end {
                for piece in self.look(unit, AT_ONCE.min(end - unit))? {
                    self.copy_piece(&piece, members)?;
                    unit = piece.unit + piece.len;
                    done += piece.len;
                }
                if !progress(done.min(total), total) {
                    return Ok(false);
                }
            }
            // Behind the last unit there are no numbers.
            at = end.saturating_mul(per);
        }
        Ok(true)
    }

    /// Copies what of `piece` is not right on `members`.
    fn copy_piece(&self, piece: &Piece, members: u64) -> Result<()> {
        let Some(found) = &piece.found else {
            return Ok(());
        };
        let _hold = self.hold(self.layout.segment_of(found.place))?;
        // Who has changed it meanwhile has written it to all; so is what is not on the devices yet.
        if found.inline.is_some() || self.look(piece.unit, piece.len)?.first() != Some(piece) {
            return Ok(());
        }
        for copy in copies_of(members) {
            for index in self.wrong_units(found, copy) {
                if let Some(bytes) = self.right_unit(found, index) {
                    self.write_copy(copy, found.place + index, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Unit `index` of `found`, as a member has it that has it right.
    fn right_unit(&self, found: &Found, index: u64) -> Option<Vec<u8>> {
        let place = found.place + index;
        let sum = found.sums.get(index as usize)?;
        let mut bytes = vec![0; self.layout.unit as usize];
        (0..self.device.copies()).find_map(|copy| {
            self.device.read_copy(copy, place * self.layout.unit, &mut bytes).ok()?;
            let is = self.layout.bind.sum(place, found.generation, digest(&bytes));
            (is == *sum).then(|| bytes.clone())
        })
    }
}

/// The numbers of the copies whose bits are set.
fn copies_of(members: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |copy| members & 1 << copy != 0)
}

impl<M: Memory, H: Host> Restoring<'_, M, H> {
    /// They have all that the others have, flushed: from now on they are good.
    fn finish(&self) -> Result<()> {
        let members = self.members;
        let is_done = self.volume.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            // Somebody may have come who does not have them, or has seen one fail.
            let is_whole = tx.noted(Noted::Restored) & members == members;
            if is_whole && tx.noted(Noted::Missing) & members == 0 {
                tx.set(tx.noted_at(Noted::Failed), tx.noted(Noted::Failed) & !members)?;
                tx.set(tx.noted_at(Noted::Restored), 0)?;
                return Ok(true);
            }
            Ok(false)
        })?;
        if is_done {
            return Ok(());
        }
        let what = "one failed again, or somebody came who does not have it";
        Err(Error::Restore { device: self.volume.name(), what })
    }
}

impl<M: Memory, H: Host> Drop for Restoring<'_, M, H> {
    fn drop(&mut self) {
        let me = self.volume.writing.number;
        // If it can't be said, the region has failed for all.
        let _ = self.volume.core.run(|tx| {
            tx.lock(LOCK, Mode::Exclusive)?;
            if tx.noted(Noted::Restorer) == me {
                tx.set(tx.noted_at(Noted::Restored), 0)?;
                tx.set(tx.noted_at(Noted::Restorer), 0)?;
            }
            Ok(())
        });
        self.volume.learn_standing();
    }
}
