//! Payload that is too large for packets: written to room of its own, by several requests side by
//! side.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::segments::{Room, Temperature};
use crate::volume::Volume;
use crate::writer::Hold;
use crate::writes::{Begun, Writes};

/// Bytes of a request, at most.
pub(crate) const REQUEST: usize = 1 << 20;
/// Requests of one caller that are under way: memory for each is taken until it is complete.
const UNDER_WAY: usize = 8;

/// What one request can write of a part.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'b> {
    /// Of which part.
    pub(crate) part: usize,
    pub(crate) bytes: &'b [u8],
}

/// What was written of a part.
pub(crate) struct Placed<'v, M: Memory, H: Host> {
    pub(crate) part: usize,
    pub(crate) room: Room,
    /// Of the room's segment.
    pub(crate) hold: Hold<'v, M, H>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Writes `pieces` to room of their own: to which, in their order.
    pub(crate) fn write_pieces(&self, pieces: &[Piece<'_>]) -> Result<Vec<Placed<'_, M, H>>> {
        let mut writes = self.writes();
        // What is one request need not be copied. One of several segments is several requests.
        let segment = (self.layout.segment * self.layout.unit) as usize;
        let is_one = matches!(pieces, [piece] if piece.bytes.len() <= segment);
        if !is_one && writes.can_be() {
            return self.write_side_by_side(&mut writes, pieces);
        }
        let mut placed = Vec::new();
        for piece in pieces {
            self.write_piece(piece, &mut placed)?;
        }
        Ok(placed)
    }

    fn write_side_by_side<'v>(
        &'v self,
        writes: &mut Writes<'v, M, H>,
        pieces: &[Piece<'_>],
    ) -> Result<Vec<Placed<'v, M, H>>> {
        let mut begun = Vec::new();
        for &Piece { part, bytes } in pieces {
            let mut rest = bytes;
            while !rest.is_empty() {
                while writes.under_way() >= UNDER_WAY && writes.wait(1) {}
                let units = rest.len() as u64 / self.layout.unit;
                let (room, hold) = self.room(Temperature::Hot, units)?;
                let (now, later) = rest.split_at((room.len * self.layout.unit) as usize);
                writes.begin(room, hold, |buffer| buffer.copy_from_slice(now));
                writes.go_on();
                begun.push(Piece { part, bytes: now });
                rest = later;
            }
        }
        // Held, so that nobody begins them anew meanwhile.
        let (mut placed, mut failed) = (Vec::new(), Vec::new());
        for (piece, Begun { room, hold, is_written }) in begun.iter().zip(writes.finish()) {
            if is_written {
                placed.push(Placed { part: piece.part, room, hold });
                continue;
            }
            let segment = self.layout.segment_of(room.place);
            self.change(|change| change.close(segment))?;
            failed.push((segment, hold));
            self.write_piece(piece, &mut placed)?;
        }
        // Others could be written: so it is not the device that has gone.
        self.retire(&failed)?;
        Ok(placed)
    }

    /// Writes `piece`, one room after the other.
    fn write_piece<'v>(
        &'v self,
        piece: &Piece<'_>,
        placed: &mut Vec<Placed<'v, M, H>>,
    ) -> Result<()> {
        let mut rest = piece.bytes;
        while !rest.is_empty() {
            let (room, hold) = self.write_to_room(Temperature::Hot, rest)?;
            rest = rest.get((room.len * self.layout.unit) as usize..).unwrap_or_default();
            placed.push(Placed { part: piece.part, room, hold });
        }
        Ok(())
    }
}
