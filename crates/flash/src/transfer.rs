//! Payload, to and from the devices.

use conquest_format::volume::{BLOCK, digest};
use conquest_format::{Offset, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::index::{LOCK, Of, RING, Slot, Use, Word, Words, packet_of};
use crate::map::Extent;
use crate::volume::Volume;
use crate::{Error, Result};

/// Pieces that a look at the map finds at once.
const PIECES: usize = 64;
/// Looks at what changes all the time, before it counts as damaged.
const TRIES: u32 = 1000;
/// Units that a look finds at once.
const UNITS: u64 = 4096;

/// Units that follow each other, and where they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// First unit of the space.
    pub(crate) unit: u64,
    /// Units.
    pub(crate) len: u64,
    /// Where, if anywhere.
    pub(crate) found: Option<Found>,
}

/// Where units are on the medium.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// First unit of the medium.
    pub(crate) place: u64,
    /// The generation of its segment.
    pub(crate) generation: u64,
    /// Checksums of the units.
    pub(crate) sums: Vec<u32>,
    /// Where they are in the region, if they need not be on the device yet.
    pub(crate) inline: Option<Offset>,
}

impl Piece {
    /// The first `units` of its units, and the rest, if there is one: of what is not in the region.
    pub(crate) fn split_at(&self, units: u64) -> (Piece, Option<Piece>) {
        let (first, rest) = (units.min(self.len), self.len.saturating_sub(units));
        let part = |skip: u64, len: u64| Piece {
            unit: self.unit + skip,
            len,
            found: self.found.as_ref().map(|found| found.part(skip, len)),
        };
        (part(0, first), (rest > 0).then(|| part(first, rest)))
    }
}

impl Found {
    /// `len` units from number `skip` on.
    fn part(&self, skip: u64, len: u64) -> Found {
        let sums = self.sums.iter().skip(skip as usize).take(len as usize).copied().collect();
        Found { place: self.place + skip, sums, ..*self }
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Where up to `len` units from `unit` on are: pieces that cover the range from its start on,
    /// as far as they go.
    pub(crate) fn look(&self, unit: u64, len: u64) -> Result<Vec<Piece>> {
        let end = unit.saturating_add(len.min(UNITS));
        let mut pieces = Vec::new();
        self.core.read(LOCK, |view| {
            pieces.clear();
            let mut at = unit;
            while at < end && pieces.len() < PIECES {
                let found = self.find(view, at)?;
                let found = found.and_then(|extent| extent.within(at, end));
                let hole = found.map_or(end, |extent| extent.unit).max(at);
                if hole > at {
                    pieces.push(Piece { unit: at, len: hole - at, found: None });
                }
                at = hole;
                if let Some(extent) = found {
                    pieces.push(self.located(view, extent));
                    at = extent.end();
                }
            }
            Ok(())
        })?;
        Ok(pieces)
    }

    fn located(&self, view: &impl Words, extent: Extent) -> Piece {
        let Extent { unit, place, len } = extent;
        let segment = self.layout.segment_of(place);
        let (used, generation) = view.usage(segment);
        let base = Offset::new(view.segment(segment, Of::Sums));
        let first = place % self.layout.segment;
        // A torn look may find anything: it is done again.
        let len = len.min(self.layout.segment - first);
        let sum = |index: u64| {
            let word = view.word(base.plus(index / 2 * WORD));
            if index.is_multiple_of(2) { word as u32 } else { (word >> 32) as u32 }
        };
        let sums = (first..first + len).map(sum).collect();
        let inline = if used == Use::Stream { self.inline(view, place, segment) } else { None };
        Piece { unit, len, found: Some(Found { place, generation, sums, inline }) }
    }

    /// Where the unit at `place` of a segment of the stream is in the region, if it is there.
    fn inline(&self, view: &impl Words, place: u64, segment: u64) -> Option<Offset> {
        let written = view.root(Word::Written);
        if view.segment(segment, Of::Last) < written {
            return None;
        }
        self.in_ring(view, place, segment, written)
    }

    /// Where the unit at `place` of a segment of the stream is in the region, if it is in one of
    /// the packets from `first` on that are still there.
    fn in_ring(&self, view: &impl Words, place: u64, segment: u64, first: u64) -> Option<Offset> {
        let (open, _) = packet_of(view.root(Word::End));
        // Packets of one segment stand in it in the order of their numbers.
        let has = |&number: &u64| {
            let first = view.packet(number, Slot::Place);
            view.packet(number, Slot::Number) == number
                && self.layout.segment_of(first) == segment
                && first <= place
        };
        let number = (first..=open).rev().take(RING as usize).find(has)?;
        let within = place.saturating_sub(view.packet(number, Slot::Place));
        if within > self.layout.payload_units() {
            // A torn look.
            return None;
        }
        Some(Offset::new(view.packet(number, Slot::Data)).plus(within * self.layout.unit))
    }

    /// Copies what is at `found` from the packet with which it was written, if that is still in the
    /// region: so what was written last need not be read. Whether it is what was written there.
    pub(crate) fn read_from_ring(&self, found: &Found, into: &mut [u8]) -> bool {
        let segment = self.layout.segment_of(found.place);
        let (open, _) = packet_of(self.core.root(Word::End));
        let oldest = open.saturating_sub(RING - 1);
        if self.core.usage(segment).0 != Use::Stream
            || self.core.segment(segment, Of::Last) < oldest
        {
            return false;
        }
        self.in_ring(&*self.core, found.place, segment, oldest).is_some_and(|at| {
            // It may be given to another packet meanwhile.
            self.core.memory().read(at, into);
            self.is_what_was(found, into)
        })
    }

    /// Reads whole units from `unit` on.
    pub(crate) fn read_units(&self, unit: u64, into: &mut [u8]) -> Result<()> {
        self.read_units_by(unit, into, Self::read_by_cache)
    }

    /// The same from the devices, whatever the cache has.
    pub(crate) fn read_units_anew(&self, unit: u64, into: &mut [u8]) -> Result<()> {
        self.read_units_by(unit, into, Self::read_now)
    }

    fn read_units_by(
        &self,
        unit: u64,
        into: &mut [u8],
        read: impl Fn(&Self, &[Piece], &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_health()?;
        let (mut at, mut rest) = (unit, into);
        while !rest.is_empty() {
            let pieces = self.look(at, rest.len() as u64 / self.layout.unit)?;
            let units: u64 = pieces.iter().map(|piece| piece.len).sum();
            let len = ((units * self.layout.unit) as usize).min(rest.len());
            let (now, behind) = rest.split_at_mut(len);
            read(self, &pieces, now)?;
            at += units;
            rest = behind;
        }
        Ok(())
    }

    /// Reads `pieces`, which follow each other, from where they are.
    pub(crate) fn read_now(&self, pieces: &[Piece], into: &mut [u8]) -> Result<()> {
        match pieces {
            [piece] if !self.has_parts(piece) => self.read_piece(piece, into),
            pieces => self.read_pieces(pieces, into),
        }
    }

    pub(crate) fn read_piece(&self, piece: &Piece, into: &mut [u8]) -> Result<()> {
        match &piece.found {
            None => into.fill(0),
            Some(found) if self.read_found(found, into)? => {}
            Some(_) => self.read_again(piece, into)?,
        }
        Ok(())
    }

    /// Reads what is at `found`; whether it is what was written there.
    fn read_found(&self, found: &Found, into: &mut [u8]) -> Result<bool> {
        match found.inline {
            Some(at) => self.core.memory().read(at, into),
            None => self.read_at(found.place, into)?,
        }
        Ok(self.is_what_was(found, into))
    }

    /// Whether `bytes`, which were read from where they were `found`, are what was written there.
    pub(crate) fn is_what_was(&self, found: &Found, bytes: &[u8]) -> bool {
        self.is_part_of(found, 0, bytes)
    }

    /// The same for those that begin with unit number `skip` of what was `found`.
    pub(crate) fn is_part_of(&self, found: &Found, skip: usize, bytes: &[u8]) -> bool {
        // If the segment was begun anew meanwhile, it may be anything by now.
        let (_, generation) = self.core.usage(self.layout.segment_of(found.place));
        if generation != found.generation {
            return false;
        }
        let sums = found.sums.get(skip..).unwrap_or_default();
        let units = bytes.chunks(self.layout.unit as usize).zip(sums);
        (found.place + skip as u64..).zip(units).all(|(place, (unit, &sum))| {
            self.layout.bind.sum(place, found.generation, digest(unit)) == sum
        })
    }

    /// Reads `piece`, which was not what it should be: it may have changed meanwhile, and if it has
    /// not, another copy may be right.
    fn read_again(&self, piece: &Piece, into: &mut [u8]) -> Result<()> {
        // A member may have failed, and what it has be old.
        self.learn_standing();
        let mut last = piece.clone();
        // Each time something has to have changed, but what is in the region is not looked for
        // elsewhere.
        for _ in 0..TRIES {
            let now = self.look(piece.unit, piece.len)?;
            let [now] = now.as_slice() else {
                return self.read_singly(piece, into);
            };
            if now.len != piece.len {
                return self.read_singly(piece, into);
            }
            match &now.found {
                None => {
                    into.fill(0);
                    return Ok(());
                }
                Some(found) if *now == last && found.inline.is_none() => {
                    return self.read_copies(piece.unit, found, into);
                }
                Some(found) if self.read_found(found, into)? => return Ok(()),
                Some(_) => last = now.clone(),
            }
        }
        let at = last.found.map_or(0, |found| found.place * self.layout.unit);
        let block = piece.unit * (self.layout.unit / BLOCK);
        Err(Error::Damaged { device: self.name(), block, at })
    }

    /// Reads `piece` unit by unit.
    fn read_singly(&self, piece: &Piece, into: &mut [u8]) -> Result<()> {
        for (unit, part) in (piece.unit..).zip(into.chunks_mut(self.layout.unit as usize)) {
            self.read_units(unit, part)?;
        }
        Ok(())
    }

    /// Reads what is at `found` from whatever copy has it.
    fn read_copies(&self, unit: u64, found: &Found, into: &mut [u8]) -> Result<()> {
        let size = self.layout.unit as usize;
        let parts = into.chunks_mut(size).zip(&found.sums).enumerate();
        for (index, (part, &sum)) in parts {
            let place = found.place + index as u64;
            let at = place * self.layout.unit;
            let is_right = (0..self.device.copies()).any(|copy| {
                self.device.read_copy(copy, at, part).is_ok()
                    && self.layout.bind.sum(place, found.generation, digest(part)) == sum
            });
            if !is_right {
                let block = (unit + index as u64) * (self.layout.unit / BLOCK);
                return Err(Error::Damaged { device: self.name(), block, at });
            }
        }
        Ok(())
    }

    /// Reads units of the medium, whatever they are.
    pub(crate) fn read_at(&self, place: u64, into: &mut [u8]) -> Result<()> {
        let at = place * self.layout.unit;
        let read = self.device.read(at, into);
        read.map_err(|source| self.device_error("read", at, into.len() as u64, source))
    }

    /// Writes units of the medium, in a segment that the caller holds.
    pub(crate) fn write_units(&self, place: u64, bytes: &[u8]) -> Result<()> {
        let at = place * self.layout.unit;
        self.learn_standing();
        let written = self.device.write(at, bytes);
        self.tell_failures()?;
        written.map_err(|source| self.device_error("write", at, bytes.len() as u64, source))
    }

    /// The checksums, in words, of units with these digests from `place` on.
    pub(crate) fn sums(&self, place: u64, generation: u64, digests: &[u32]) -> Vec<u64> {
        let bind = self.layout.bind;
        let sum = |(place, &digest): (u64, &u32)| bind.sum(place, generation, digest);
        let all: Vec<u32> = (place..).zip(digests).map(sum).collect();
        let word = |pair: &[u32]| {
            let half = |index: usize| pair.get(index).copied().map_or(0, u64::from);
            half(0) | half(1) << 32
        };
        all.chunks(2).map(word).collect()
    }
}

/// The digests of the units in `bytes`.
pub(crate) fn digests(bytes: &[u8], unit: u64) -> Vec<u32> {
    bytes.chunks(unit as usize).map(digest).collect()
}
