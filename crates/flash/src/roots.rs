//! Roots: written when a checkpoint is complete, when a life begins, and when members of a mirror
//! have failed, or are good again.
//!
//! What the newest one says that was begun stands in the index, so that whoever has to can write it
//! again, with another sequence, without asking who was about to write it.

use std::io::ErrorKind;

use conquest_format::volume::{Checkpoint, Life, Root};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::change::{Change, Step};
use crate::index::{Noted, Word, Words};
use crate::members::erase_segment;
use crate::stand_in::stand_ins;
use crate::volume::Volume;
use crate::{Error, Result};

/// Entries of a transaction that beginning a root takes, and a life of it.
const ENTRIES: u64 = 12;
const OF_LIFE: u64 = 6;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Writes the root that names `checkpoint` and from where on packets count, and waits until it
    /// is durable; whether no root has been begun that names a newer one.
    pub(crate) fn write_root(
        &self,
        checkpoint: Option<Checkpoint>,
        lives: &[Life],
    ) -> Result<bool> {
        let id = checkpoint.map_or(0, |checkpoint| checkpoint.id);
        loop {
            let begun = self.change(|change| {
                // Of two who write checkpoints, the newest root is to name the newer one: what the
                // other one needs may be used again.
                if change.tx.root(Word::LastRooted) > id {
                    return Ok(None);
                }
                change.note_rooted(checkpoint, lives)?;
                change.begin_root().map(Some)
            })?;
            let Some(root) = begun else {
                return Ok(false);
            };
            if self.put_root(&root)? {
                return Ok(true);
            }
        }
    }

    /// Writes the newest root that was begun once more, with what is known by now, and waits until
    /// it is durable.
    pub(crate) fn renew_root(&self) -> Result<Root> {
        loop {
            let root = self.change(|change| change.begin_root())?;
            if self.put_root(&root)? {
                return Ok(root);
            }
        }
    }

    /// What is only needed for roots before one that is durable, and names `checkpoint` and packets
    /// from `packet` on, is needed no more.
    pub(crate) fn finish_root(&self, checkpoint: Checkpoint, packet: u64) -> Result<()> {
        let Checkpoint { id, units, .. } = checkpoint;
        self.change(|change| {
            if change.tx.root(Word::RootCheckpoint) < id {
                change.tx.set(Word::RootCheckpoint.at(), id)?;
                change.tx.set(Word::RootPacket.at(), packet)?;
                change.tx.set(Word::CheckpointUnits.at(), units)?;
            }
            Ok(())
        })
    }

    /// Writes `root`, which was begun, and waits until it is durable, and nothing that it does not
    /// say of members; false if one has been written to its place before, in vain.
    fn put_root(&self, root: &Root) -> Result<bool> {
        self.learn_standing();
        if !self.write_root_unit(root)? {
            return Ok(false);
        }
        self.flush_members()?;
        self.change(|change| {
            // One that was begun later may say something else, and come later.
            if change.tx.root(Word::LastSequence) == root.sequence {
                change.tx.set(change.tx.noted_at(Noted::InRoot), root.failed)?;
                change.note_stand_ins(&root.stand_ins)?;
            }
            let known = change.tx.noted(Noted::Known).max(root.sequence);
            Ok(change.tx.set(change.tx.noted_at(Noted::Known), known)?)
        })?;
        self.note_failures()?;
        Ok(true)
    }

    /// Writes `root` to its places, at least to one of them; false if one has been written to
    /// before, in vain, and can't be once more.
    fn write_root_unit(&self, root: &Root) -> Result<bool> {
        let mut unit = vec![0; self.layout.unit as usize];
        root.fill(self.layout.bind, &mut unit);
        let outcomes = self.layout.root_places(root.sequence).map(|place| {
            let segment = self.layout.segment_of(place);
            let _hold = self.hold(segment)?;
            if place == self.layout.first_place(segment) {
                erase_segment(self.device.as_ref(), &self.layout, segment)?;
            }
            self.write_units(place, &unit)
        });
        let is_taken = |outcome: &Result<()>| match outcome {
            Err(Error::Device { source, .. }) => source.kind() == ErrorKind::AlreadyExists,
            _ => false,
        };
        if outcomes.iter().any(is_taken) {
            return Ok(false);
        }
        let [one, other] = outcomes;
        one.or(other).map(|()| true)
    }
}

impl<M: Memory, H: Host> Change<'_, M, H> {
    /// Notes what the newest root names.
    fn note_rooted(&mut self, checkpoint: Option<Checkpoint>, lives: &[Life]) -> Step<()> {
        let none = Checkpoint { id: 0, segment: 0, units: 0 };
        let Checkpoint { id, segment, units } = checkpoint.unwrap_or(none);
        // Several there are only while nobody else has the index.
        for (number, life) in (0..).zip(lives) {
            self.make_room(OF_LIFE)?;
            let words = [life.life, life.packet, life.place, life.generation];
            for (at, word) in self.tx.life_at(number).into_iter().zip(words) {
                self.tx.set(at, word)?;
            }
        }
        self.make_room(ENTRIES)?;
        self.tx.set(Word::LastRooted.at(), id)?;
        let words =
            [(Noted::Segment, segment), (Noted::Units, units), (Noted::Lives, lives.len() as u64)];
        for (what, word) in words {
            self.tx.set(self.tx.noted_at(what), word)?;
        }
        Ok(())
    }

    /// A root of the next sequence, with what is to be in it now.
    fn begin_root(&mut self) -> Step<Root> {
        let words = &self.tx;
        let sequence = words.root(Word::LastSequence) + 1;
        let (id, segment) = (words.root(Word::LastRooted), words.noted(Noted::Segment));
        let units = words.noted(Noted::Units);
        let life = |number| {
            let [life, packet, place, generation] = words.life_at(number).map(|at| words.word(at));
            Life { life, packet, place, generation }
        };
        let root = Root {
            sequence,
            checkpoint: (units > 0).then_some(Checkpoint { id, segment, units }),
            durable: words.root(Word::Durable),
            failed: words.noted(Noted::Failed),
            since: words.noted(Noted::Since),
            known: words.noted(Noted::Known),
            lives: (0..words.noted(Noted::Lives)).map(life).collect(),
            stand_ins: stand_ins(words),
        };
        self.tx.set(Word::LastSequence.at(), sequence)?;
        Ok(root)
    }
}
