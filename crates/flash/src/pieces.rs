//! Reading several pieces at once, and large ones in parts: side by side, each looked at while the
//! devices are at work on the next.

use conquest_format::PAGE;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::transfer::{Found, Piece};
use crate::volume::Volume;

/// Bytes that are one request at most: verifying so many takes less time than reading them, and
/// the last ones are all that nothing is read beside.
const AT_ONCE: usize = 256 << 10;

/// A part of a piece that is on the devices.
struct Part<'p, 'm> {
    /// Which piece.
    piece: usize,
    found: &'p Found,
    /// Units of the piece before it.
    skip: usize,
    into: &'m mut [u8],
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Reads pieces that follow each other: side by side, as far as they are on the devices.
    pub(crate) fn read_pieces(&self, pieces: &[Piece], into: &mut [u8]) -> Result<()> {
        if into.as_ptr().addr().is_multiple_of(PAGE as usize) {
            return self.read_to_pages(pieces, into);
        }
        let mut pages = self.lend(into.len())?;
        self.read_to_pages(pieces, &mut pages)?;
        into.copy_from_slice(&pages);
        Ok(())
    }

    /// The same to memory that begins with a page.
    fn read_to_pages(&self, pieces: &[Piece], into: &mut [u8]) -> Result<()> {
        let mut is_left: Vec<bool> =
            pieces.iter().map(|piece| !self.is_on_devices(piece)).collect();
        let mut parts = self.parts_of(pieces, into);
        if parts.len() > 1 {
            for piece in self.read_parts(&mut parts) {
                if let Some(is_left) = is_left.get_mut(piece) {
                    *is_left = true;
                }
            }
        } else {
            is_left.fill(true);
        }
        let mut rest = into;
        for (piece, is_left) in pieces.iter().zip(is_left) {
            let len = ((piece.len * self.layout.unit) as usize).min(rest.len());
            let (part, behind) = rest.split_at_mut(len);
            if is_left {
                self.read_piece(piece, part)?;
            }
            rest = behind;
        }
        Ok(())
    }

    /// Whether reading `piece` can be more than one request.
    pub(crate) fn has_parts(&self, piece: &Piece) -> bool {
        let is_deep = self.device.file_count() > 0;
        is_deep && self.is_on_devices(piece) && (piece.len * self.layout.unit) as usize > AT_ONCE
    }

    fn is_on_devices(&self, piece: &Piece) -> bool {
        piece.found.as_ref().is_some_and(|found| found.inline.is_none())
    }

    /// What is on the devices of `pieces`, in parts, with their places in `into`.
    fn parts_of<'p, 'm>(&self, pieces: &'p [Piece], into: &'m mut [u8]) -> Vec<Part<'p, 'm>> {
        let size = self.layout.unit as usize;
        let mut parts = Vec::new();
        let mut rest = into;
        for (number, piece) in pieces.iter().enumerate() {
            let len = (piece.len as usize * size).min(rest.len());
            let (whole, behind) = std::mem::take(&mut rest).split_at_mut(len);
            rest = behind;
            let Some(found) = piece.found.as_ref().filter(|found| found.inline.is_none()) else {
                continue;
            };
            let at_once = AT_ONCE.max(size);
            for (index, into) in whole.chunks_mut(at_once).enumerate() {
                let skip = index * (at_once / size);
                parts.push(Part { piece: number, found, skip, into });
            }
        }
        parts
    }

    /// Reads `parts` side by side: pieces of which one is not what it should be, or could not be
    /// read so.
    fn read_parts(&self, parts: &mut [Part<'_, '_>]) -> Vec<usize> {
        let known: Vec<_> = parts.iter().map(|part| (part.piece, part.found, part.skip)).collect();
        let wanted = parts.iter_mut();
        let wanted = wanted.map(|part| (part.found.place + part.skip as u64, &mut *part.into));
        let mut wrong = Vec::new();
        let are_read = self.beside().read_to(wanted, |index, is_whole, bytes| {
            if let Some(&(piece, found, skip)) = known.get(index)
                && !(is_whole && self.is_part_of(found, skip, bytes))
            {
                wrong.push(piece);
            }
        });
        if are_read {
            return wrong;
        }
        // One after the other: whatever fails now is read once more by itself, too.
        let is_wrong = |part: &mut Part<'_, '_>| {
            let is_read = self.read_at(part.found.place + part.skip as u64, part.into).is_ok();
            !(is_read && self.is_part_of(part.found, part.skip, part.into))
        };
        parts.iter_mut().filter_map(|part| is_wrong(part).then_some(part.piece)).collect()
    }
}
