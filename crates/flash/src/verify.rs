//! Whether a volume is what it should be: its map, and all that the map leads to.

use std::path::PathBuf;

use conquest_format::volume::{Arrangement, BLOCK};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::device::Device;
use crate::index::{Noted, Words};
use crate::members::{last_place, superblock_at, write_superblock};
use crate::transfer::{Found, Piece, digests};
use crate::volume::Volume;
use crate::{Error, Result};

/// Units that are read at once.
const AT_ONCE: u64 = 256;

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Damage {
    /// A copy of payload is not what was written.
    Payload {
        /// First block of the space, in units of 512 bytes.
        block: u64,
        /// Blocks.
        count: u64,
        /// The device that has the copy.
        device: PathBuf,
        /// Byte of the device.
        at: u64,
        /// What was to be read can be, from another copy.
        is_elsewhere: bool,
        /// It was written to another place, from the copy that is right.
        is_repaired: bool,
    },
    /// A superblock can't be used.
    Superblock {
        /// The device.
        device: PathBuf,
        /// Byte of the device.
        at: u64,
        /// The other one of the device can be.
        is_elsewhere: bool,
        /// It was written anew from that.
        is_repaired: bool,
    },
    /// A member of a mirror has failed: it lacks what others have.
    Member {
        /// Which, from 0.
        number: u32,
        /// The device; none if it is not there.
        device: Option<PathBuf>,
        /// It was brought up to date.
        is_repaired: bool,
    },
    /// The index contradicts itself.
    Structure {
        /// How.
        what: String,
    },
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Units that the map leads to.
    pub units: u64,
    /// Copies of units that were read and compared with their checksums.
    pub copies: u64,
    /// Extents of the map.
    pub extents: u64,
}

/// How a volume is verified.
pub struct Verifying<'a> {
    /// Whether what has a copy that is right is written anew from that, elsewhere.
    pub repair: bool,
    /// Told of what is found.
    pub found: &'a mut dyn FnMut(Damage),
    /// Told how many units were looked at, of how many. Stops by false.
    pub progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Checks the index, reads all copies of all that is in use, and compares them with their
    /// checksums. Others may use the volume meanwhile; what they write is not necessarily seen.
    ///
    /// # Errors
    /// Those of the region, and of what is repaired. What can't be read is no error.
    pub fn verify(&self, mut how: Verifying<'_>) -> Result<Verified> {
        let mut verified = Verified::default();
        let total = self.check_structure(&mut verified, &mut how)?;
        self.check_superblocks(&mut how);
        self.check_members(&mut how)?;
        let mut at = 0;
        // What is only in the region is there as well.
        self.flush()?;
        while let Some((block, count)) = self.allocated(at)? {
            let per = self.layout.unit / BLOCK;
            let (mut unit, end) = (block / per, (block + count).div_ceil(per));
            while unit < end {
                let pieces = self.look(unit, AT_ONCE.min(end - unit))?;
                for piece in &pieces {
                    self.verify_piece(piece, &mut verified, &mut how)?;
                    unit = piece.unit + piece.len;
                }
                if !(how.progress)(verified.units, total) {
                    return Ok(verified);
                }
            }
            // Behind the last unit there are no numbers.
            at = end.saturating_mul(per);
        }
        Ok(verified)
    }

    /// Checks the map and what is counted of it: the units that it leads to.
    fn check_structure(&self, verified: &mut Verified, how: &mut Verifying<'_>) -> Result<u64> {
        let mut tell = |what| (how.found)(Damage::Structure { what });
        match self.check_index() {
            Ok((found, extents)) => {
                found.iter().for_each(|finding| tell(finding.to_string()));
                verified.extents = extents.len() as u64;
                Ok(extents.iter().map(|extent| extent.len).sum())
            }
            Err(Error::Region(error @ conquest_pm::Error::Corrupt { .. })) => {
                tell(error.to_string());
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads both superblocks of all members.
    fn check_superblocks(&self, how: &mut Verifying<'_>) {
        let Some(opened) = &self.opened else {
            return;
        };
        for (_, device) in &opened.devices {
            let device = device.as_ref();
            let places = [0, last_place(device)];
            let found =
                places.map(|at| superblock_at(device, at).and_then(core::result::Result::ok));
            // One that is of something else does not say what is to be here.
            let right = found.iter().flatten().find(|found| found.uuid == opened.superblock.uuid);
            for (at, found) in places.into_iter().zip(&found) {
                if found.is_some() && found.as_ref() == right {
                    continue;
                }
                let is_repaired = how.repair
                    && right.is_some_and(|right| {
                        write_superblock(device, at, right).is_ok() && device.flush().is_ok()
                    });
                let (is_elsewhere, device) = (right.is_some(), device.name().to_owned());
                (how.found)(Damage::Superblock { device, at, is_elsewhere, is_repaired });
            }
        }
    }

    /// Tells which members have failed, and brings those up to date that are there.
    fn check_members(&self, how: &mut Verifying<'_>) -> Result<()> {
        let failed = self.core.noted(Noted::Failed);
        let mut restored = 0;
        if how.repair && failed != 0 {
            restored = self.restore(how.progress)?;
        }
        for number in (0..self.device.copies()).filter(|number| failed & 1 << number != 0) {
            let devices = self.opened.iter().flat_map(|opened| &opened.devices);
            let mut device = devices.filter(|(found, _)| *found == number);
            let device = device.next().map(|(_, device)| device.name().to_owned());
            let is_repaired = restored & 1 << number != 0;
            (how.found)(Damage::Member { number, device, is_repaired });
        }
        Ok(())
    }

    fn verify_piece(
        &self,
        piece: &Piece,
        verified: &mut Verified,
        how: &mut Verifying<'_>,
    ) -> Result<()> {
        let Some(found) = &piece.found else {
            return Ok(());
        };
        verified.units += piece.len;
        // What is not on the devices yet was written a moment ago.
        if found.inline.is_some() {
            return Ok(());
        }
        // Nobody relies on those that have failed.
        let failed = self.device.standing().failed;
        let used = (0..self.device.copies()).filter(|copy| failed & 1 << copy == 0);
        let wrong: Vec<_> = used
            .map(|copy| {
                verified.copies += piece.len;
                (copy, self.wrong_units(found, copy))
            })
            .collect();
        if wrong.iter().all(|(_, wrong)| wrong.is_empty()) {
            return Ok(());
        }
        // Who has changed it meanwhile has written it anew.
        if self.look(piece.unit, piece.len)?.first() != Some(piece) {
            return Ok(());
        }
        self.report(piece, found, &wrong, how)
    }

    /// The units of `found`, by number, that copy `copy` does not have as they were written.
    pub(crate) fn wrong_units(&self, found: &Found, copy: u32) -> Vec<u64> {
        let unit = self.layout.unit;
        let mut bytes = vec![0; found.sums.len() * unit as usize];
        let place = found.place;
        let is_read = self.device.read_copy(copy, place * unit, &mut bytes).is_ok();
        let mut wrong = Vec::new();
        for (index, part) in (0..).zip(bytes.chunks_mut(unit as usize)) {
            // One that can't be read must not make those beside it look so.
            let at = (place + index) * unit;
            let is_read = is_read || self.device.read_copy(copy, at, part).is_ok();
            let digest = digests(part, unit).first().copied().unwrap_or(0);
            let sum = self.layout.bind.sum(place + index, found.generation, digest);
            if !is_read || found.sums.get(index as usize) != Some(&sum) {
                wrong.push(index);
            }
        }
        wrong
    }

    /// Tells of the units that are `wrong`, for each copy, and repairs what can be.
    fn report(
        &self,
        piece: &Piece,
        found: &Found,
        wrong: &[(u32, Vec<u64>)],
        how: &mut Verifying<'_>,
    ) -> Result<()> {
        let is_elsewhere = |index: &u64| wrong.iter().any(|(_, units)| !units.contains(index));
        let mut all: Vec<u64> = wrong.iter().flat_map(|(_, units)| units).copied().collect();
        all.sort_unstable();
        all.dedup();
        if how.repair {
            for index in all.iter().filter(|index| is_elsewhere(index)) {
                let (unit, place) = (piece.unit + index, found.place + index);
                self.copy_unit(unit, place)?;
            }
        }
        let per = self.layout.unit / BLOCK;
        for (copy, units) in wrong {
            let mut units = units.iter().copied().peekable();
            while let Some(first) = units.next() {
                let elsewhere = is_elsewhere(&first);
                let mut last = first;
                while let Some(next) =
                    units.next_if(|next| *next == last + 1 && is_elsewhere(next) == elsewhere)
                {
                    last = next;
                }
                let (device, at) = self.locate(found.place + first, *copy);
                (how.found)(Damage::Payload {
                    block: (piece.unit + first) * per,
                    count: (last + 1 - first) * per,
                    device,
                    at,
                    is_elsewhere: elsewhere,
                    is_repaired: elsewhere && how.repair,
                });
            }
        }
        Ok(())
    }

    /// The device that has copy `copy` of the unit at `place`, and the byte.
    fn locate(&self, place: u64, copy: u32) -> (PathBuf, u64) {
        let at = place * self.layout.unit;
        let Some(opened) = &self.opened else {
            return (self.name(), at);
        };
        let bytes = self.layout.segment * self.layout.unit;
        let (segment, within) = (at / bytes, at % bytes);
        let count = u64::from(opened.superblock.members.max(1));
        let (member, row) = match opened.superblock.arrangement {
            Arrangement::Striped => (segment % count, segment / count),
            Arrangement::Mirrored => (copy.into(), segment),
        };
        let is_it = |&&(number, _): &&(u32, _)| u64::from(number) == member;
        let path = opened.devices.iter().find(is_it).map(|(_, device)| device.name().to_owned());
        (path.unwrap_or_else(|| self.name()), opened.superblock.start + row * bytes + within)
    }
}
