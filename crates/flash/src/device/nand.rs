//! Flash memory without anything between: what a volume has to do itself on such a medium.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::openers::Opener;
use super::{Device, Limits, broken, invalid};

/// What a page reads as that has not been programmed.
const ERASED: u8 = 0xFF;

/// What flash memory consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a page, a power of two: what is programmed at once.
    pub page: u32,
    /// Pages of an erase block.
    pub pages: u32,
    /// Erase blocks.
    pub blocks: u32,
}

#[derive(Clone, Default, Debug)]
struct Block {
    /// Of the pages that are programmed, from the first one on.
    bytes: Vec<u8>,
    /// How often it was erased.
    wear: u32,
    is_bad: bool,
    /// Pages that can't be read until it is erased.
    dead: BTreeSet<u64>,
}

#[derive(Debug)]
struct State {
    blocks: Vec<Block>,
    /// How often a block can be erased.
    endurance: u32,
}

/// Simulated NAND flash, erased at first.
///
/// - Each page is programmed once, in order; writing elsewhere is `EINVAL`.
/// - Discarding is erasing: of whole erase blocks, otherwise `EINVAL`.
/// - A bad block can be read, but erasing and programming it are `EIO`.
///
/// Its clones are the same opener of the same device; see [`Self::as_other`].
#[derive(Clone, Debug)]
pub struct Nand {
    name: PathBuf,
    geometry: Geometry,
    state: Arc<Mutex<State>>,
    opener: Arc<Opener>,
}

impl Nand {
    /// All of it erased and good, and of endless endurance.
    ///
    /// # Errors
    /// `EINVAL` if the page is not a power of two, or there are none.
    pub fn new(name: impl Into<PathBuf>, geometry: Geometry) -> io::Result<Nand> {
        if !geometry.page.is_power_of_two() || geometry.pages == 0 {
            return Err(invalid());
        }
        let blocks = vec![Block::default(); geometry.blocks as usize];
        let state = Arc::new(Mutex::new(State { blocks, endurance: u32::MAX }));
        Ok(Nand { name: name.into(), geometry, state, opener: Arc::new(Opener::new()) })
    }

    /// The same device as somebody else has it: as [`Device::enter`] understands it, another
    /// process.
    #[must_use]
    pub fn as_other(&self) -> Nand {
        Nand { opener: Arc::new(self.opener.other()), ..self.clone() }
    }

    /// How often each erase block was erased.
    #[must_use]
    pub fn wear(&self) -> Vec<u32> {
        self.lock().blocks.iter().map(|block| block.wear).collect()
    }

    /// Lets each block be erased so many times in all: the next time it turns bad.
    pub fn set_endurance(&self, erases: u32) {
        self.lock().endurance = erases;
    }

    /// Makes erase block number `block` bad.
    ///
    /// # Errors
    /// `EINVAL` if there is none.
    pub fn spoil(&self, block: u32) -> io::Result<()> {
        self.lock().blocks.get_mut(block as usize).ok_or_else(invalid)?.is_bad = true;
        Ok(())
    }

    /// Turns over bit `bit` of byte `at`.
    ///
    /// # Errors
    /// `EINVAL` if that is not programmed.
    pub fn flip(&self, at: u64, bit: u32) -> io::Result<()> {
        let mut state = self.lock();
        let block = state.blocks.get_mut((at / self.erase()) as usize).ok_or_else(invalid)?;
        let byte = block.bytes.get_mut((at % self.erase()) as usize).ok_or_else(invalid)?;
        *byte ^= 1_u8.checked_shl(bit).ok_or_else(invalid)?;
        Ok(())
    }

    /// Lets reading the page of byte `at` fail with `EIO` until it is erased.
    ///
    /// # Errors
    /// `EINVAL` behind the end.
    pub fn kill(&self, at: u64) -> io::Result<()> {
        let mut state = self.lock();
        let block = state.blocks.get_mut((at / self.erase()) as usize).ok_or_else(invalid)?;
        block.dead.insert(at % self.erase() / u64::from(self.geometry.page));
        Ok(())
    }

    /// Bytes of an erase block.
    fn erase(&self) -> u64 {
        u64::from(self.geometry.page) * u64::from(self.geometry.pages)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page at `at`, of a transfer that was admitted: its block, and where it is in that.
    fn page<'a>(&self, state: &'a mut State, at: u64) -> io::Result<(&'a mut Block, u64)> {
        let block = state.blocks.get_mut((at / self.erase()) as usize).ok_or_else(invalid)?;
        Ok((block, at % self.erase()))
    }
}

impl Device for Nand {
    fn name(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.erase() * u64::from(self.geometry.blocks)
    }

    fn limits(&self) -> Limits {
        Limits { erase: Some(self.erase()), ..Limits::of_blocks(self.geometry.page) }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.limits().admit(self.len(), at, into.len() as u64)?;
        let mut state = self.lock();
        let pages = into.chunks_mut(self.geometry.page as usize);
        for (into, at) in pages.zip((at..).step_by(self.geometry.page as usize)) {
            let (block, place) = self.page(&mut state, at)?;
            if block.dead.contains(&(place / u64::from(self.geometry.page))) {
                return Err(broken());
            }
            match block.bytes.get(place as usize..place as usize + into.len()) {
                Some(bytes) => into.copy_from_slice(bytes),
                None => into.fill(ERASED),
            }
        }
        Ok(())
    }

    /// Programs pages until one fails.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits().admit(self.len(), at, bytes.len() as u64)?;
        let mut state = self.lock();
        let pages = bytes.chunks(self.geometry.page as usize);
        for (bytes, at) in pages.zip((at..).step_by(self.geometry.page as usize)) {
            let (block, place) = self.page(&mut state, at)?;
            if block.bytes.len() as u64 != place {
                return Err(invalid());
            }
            if block.is_bad {
                return Err(broken());
            }
            block.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Erases blocks until one fails, which leaves what was in it.
    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.limits().admit(self.len(), at, len)?;
        if !at.is_multiple_of(self.erase()) || !len.is_multiple_of(self.erase()) {
            return Err(invalid());
        }
        let mut state = self.lock();
        let endurance = state.endurance;
        let blocks = state.blocks.iter_mut().skip((at / self.erase()) as usize);
        for block in blocks.take((len / self.erase()) as usize) {
            block.is_bad |= block.wear >= endurance;
            if block.is_bad {
                return Err(broken());
            }
            *block = Block { wear: block.wear + 1, ..Block::default() };
        }
        Ok(())
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        let mut state = self.lock();
        let (block, place) = self.page(&mut state, at)?;
        Ok(at - place + block.bytes.len() as u64)
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
