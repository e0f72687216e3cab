//! Large files: their data is on a volume (Conquest 2002, 3.2; DFS 2010, 3.3.1).
//!
//! A file that grows above the threshold gets a *chunk* of the volume's space (`chunk.rs`), until
//! it is removed, or cut off below that (`back.rs`): byte `x` of the file is byte `x` of the chunk.
//! Pages of the file may be in the core, in a tree as other files have one; these take the place of
//! what the volume has. So a small write changes pages in the core, as ever: it is one record, and
//! nobody waits for a device. They are pushed (`push.rs`): written to the volume, and then, by a
//! record, taken out of the tree. The keeper does so before long, with all that are on a list
//! (`due.rs`); so what is removed before that is never written. Whoever writes does so himself if
//! there are too many; and if there is no keeper, when the file is closed. A write of many whole
//! pages goes to the volume at once (`direct.rs`). Programs stay in the core, whatever their size
//! (Conquest 2002, 3.2.1).
//!
//! The chunk has an *end*. The volume is not asked for what is behind it, so there may be anything:
//! what was written and not recorded, what was cut off and is not trimmed. Who moves the end on has
//! written all between, or trimmed it.
//!
//! What the volume loses, it loses at once, while the core's records may not be durable: nothing
//! behind the end is trimmed, or written, before that record is durable which has moved the end
//! there; and nothing of a chunk that no file has (`due.rs`). So who moves the end on, over
//! what was cut off, waits for that.
//!
//! What is written before the end and behind the size may be there without its record, when the
//! power was cut or a process has died. So whoever lets a file grow by a hole clears what the
//! volume has there (`tail.rs`).
//!
//! Where records are durable as they are committed (persistent memory, RAM on a battery), what was
//! written or trimmed is *settled*, made durable on the volume, before the record that depends on
//! it. Only what is overwritten in place, and no record tells of, waits until somebody syncs.
//!
//! No lock of the region is held while the volume is asked. Who changes what it has of a file takes
//! a *turn* (`turn.rs`): those who write inside the end at once, all others each alone. Only who
//! writes over what the volume has, and nobody changes, takes none (`over.rs`).

mod allocate;
mod back;
pub(crate) mod chunk;
mod direct;
mod due;
mod label;
mod mark;
mod over;
mod push;
mod read;
mod seen;
mod tail;
mod turn;

use conquest_format::PAGE;
use conquest_format::volume::BLOCK;

use crate::error::VolumeError;

pub use due::Unneeded;
pub use mark::{Marks, marks, set_marks};
pub use seen::Seen;

pub(crate) use direct::DIRECT_MIN;
pub(crate) use read::{FAR_STEP, Far, far_edges};

/// Blocks of a page.
pub(crate) const PAGE_BLOCKS: u64 = PAGE / BLOCK;

/// What the volume says.
pub type Answer<T> = core::result::Result<T, VolumeError>;

/// The sparse space of a volume, in blocks of 512 bytes. What was never written, or was trimmed,
/// reads as zeros.
pub trait Space: Send + Sync {
    /// Reads from block `block` on.
    ///
    /// # Errors
    /// Those of the volume.
    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()>;

    /// Writes whole blocks from block `block` on. Each page of them is seen as a whole or not at
    /// all, whoever dies; and it is durable not later than any record that is committed after this
    /// has returned, and [`Self::settle`] after it.
    ///
    /// # Errors
    /// Those of the volume.
    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()>;

    /// [`Self::read`], for who reads it once, and past what is kept in memory.
    ///
    /// # Errors
    /// Those of the volume.
    fn read_once(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.read(block, into)
    }

    /// [`Self::write`] of what is not to be kept in memory.
    ///
    /// # Errors
    /// Those of the volume.
    fn write_once(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        self.write(block, bytes)
    }

    /// Where the `count` blocks from block `block` on are, for [`Self::write_over`]; none if some
    /// are not in use, or that can't be told.
    ///
    /// # Errors
    /// Those of the volume.
    fn look(&self, _block: u64, _count: u64) -> Answer<Option<Seen>> {
        Ok(None)
    }

    /// [`Self::write`], or [`Self::write_once`] unless it `is_kept`, to the blocks that were
    /// `seen`: if none of them was written since, or trimmed. All of them or none: whether it was
    /// done. If not, for this or any other reason, it may be tried again.
    ///
    /// # Errors
    /// Those of the volume.
    fn write_over(&self, _block: u64, _bytes: &[u8], _seen: &Seen, _is_kept: bool) -> Answer<bool> {
        Ok(false)
    }

    /// Takes `count` blocks from block `block` on out of use.
    ///
    /// # Errors
    /// Those of the volume.
    fn trim(&self, block: u64, count: u64) -> Answer<()>;

    /// Makes durable what was written and trimmed before this is called, by whomever, if the
    /// region's records are durable when they are committed: so that none says of the volume what
    /// a power failure takes back. Where records become durable later, the volume keeps the order,
    /// and there is nothing to do.
    ///
    /// # Errors
    /// Those of the volume.
    fn settle(&self) -> Answer<()> {
        Ok(())
    }

    /// Whether chunks are to say on the volume whose they are, because nothing else there does.
    fn is_labelled(&self) -> bool {
        false
    }

    /// The first range at or behind `block` that is in use: its first block, and how many. What is
    /// more than `count` blocks behind `block` need not be told.
    ///
    /// # Errors
    /// Those of the volume.
    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>>;

    /// How much there is for large files.
    ///
    /// # Errors
    /// Those of the volume.
    fn room(&self) -> Answer<Room>;
}

/// How much a volume has for large files, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// In use, or to be had.
    pub blocks: u64,
    /// To be had.
    pub free: u64,
}

/// Where the data of the large files of a new file system goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewLarge {
    /// Files with more bytes are large.
    pub threshold: u64,
    /// Blocks of a chunk: a power of two from
    /// [`BLOCKS_MIN`](conquest_format::fs::chunk::BLOCKS_MIN) to
    /// [`BLOCKS_MAX`](conquest_format::fs::chunk::BLOCKS_MAX).
    pub chunk_blocks: u64,
}
