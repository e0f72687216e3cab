//! Devices in the memory of a process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::openers::Opener;
use super::{Device, Limits, invalid};

/// Bytes under one lock: a transfer of several pieces may be seen in part, as on any device.
const PIECE: u64 = 1 << 20;

/// What was never written, or has been discarded, is empty and reads as zeros.
type Piece = RwLock<Vec<u8>>;

/// A device in memory, which holds nothing at first, for tests and volumes that end with the
/// process.
///
/// Its clones are the same opener of the same device; see [`Self::as_other`].
#[derive(Clone, Debug)]
pub struct MemoryDevice {
    name: PathBuf,
    len: u64,
    limits: Limits,
    pieces: Arc<[Piece]>,
    opener: Arc<Opener>,
}

impl MemoryDevice {
    /// With `len` zeros; it takes memory for those parts only that are written.
    ///
    /// # Errors
    /// `EINVAL` if `limits` make no sense, are not those of blocks that can be written at any time,
    /// or if `len` is not whole blocks.
    pub fn new(name: impl Into<PathBuf>, len: u64, limits: Limits) -> io::Result<MemoryDevice> {
        limits.make_sense()?;
        if limits.erase.is_some() || !len.is_multiple_of(limits.block.into()) {
            return Err(invalid());
        }
        let pieces = (0..len.div_ceil(PIECE)).map(|_| Piece::default()).collect();
        let opener = Arc::new(Opener::new());
        Ok(MemoryDevice { name: name.into(), len, limits, pieces, opener })
    }

    /// The same device as somebody else has it: as [`Device::enter`] understands it, another
    /// process.
    #[must_use]
    pub fn as_other(&self) -> MemoryDevice {
        MemoryDevice { opener: Arc::new(self.opener.other()), ..self.clone() }
    }

    /// Goes through the pieces of `len` bytes from `at` on: the piece, the place in it, the place
    /// in the transfer, bytes.
    fn parts(&self, at: u64, len: u64) -> impl Iterator<Item = (&Piece, usize, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (here, begin) = (at + done, done);
            let count = (len - done).min(PIECE - here % PIECE);
            done += count;
            let piece = self.pieces.get((here / PIECE) as usize)?;
            (count > 0).then_some((piece, (here % PIECE) as usize, begin as usize, count as usize))
        })
    }
}

/// Makes `piece` as long as pieces are.
fn fill(piece: &mut Vec<u8>) -> io::Result<()> {
    if piece.is_empty() {
        piece.try_reserve_exact(PIECE as usize)?;
        piece.resize(PIECE as usize, 0);
    }
    Ok(())
}

impl Device for MemoryDevice {
    fn name(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, into.len() as u64)?;
        for (piece, place, begin, count) in self.parts(at, into.len() as u64) {
            let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
            let into = into.get_mut(begin..begin + count).unwrap_or_default();
            match piece.get(place..place + count) {
                Some(bytes) => into.copy_from_slice(bytes),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, bytes.len() as u64)?;
        for (piece, place, begin, count) in self.parts(at, bytes.len() as u64) {
            let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
            fill(&mut piece)?;
            let into = piece.get_mut(place..place + count).unwrap_or_default();
            into.copy_from_slice(bytes.get(begin..begin + count).unwrap_or_default());
        }
        Ok(())
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes them zeros if discarding does anything. Gives memory back for whole MiB.
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.limits.admit(self.len, at, len)?;
        if !self.limits.discards {
            return Ok(());
        }
        for (piece, place, _, count) in self.parts(at, len) {
            let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
            if count as u64 == PIECE {
                *piece = Vec::new();
            } else if let Some(bytes) = piece.get_mut(place..place + count) {
                bytes.fill(0);
            }
        }
        Ok(())
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.opener.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.opener.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.opener.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        Ok(self.opener.is_anyone_entered())
    }
}
