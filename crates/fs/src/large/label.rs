//! Labels: each chunk of the volume says whose it is, where nothing but the core knows that
//! otherwise. So what the volume has is not lost with the core: it is found by the numbers of the
//! files' inodes.
//!
//! A label is written before the record that moves a file's end, so what the volume is asked for is
//! always labelled; and it is settled with what it tells of.

use conquest_format::fs::chunk::Chunk;
use conquest_format::label::{Label, label_block};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::{FileId, load};
use crate::{FileSystem, Result};

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Writes to the volume, if it has labels, that `chunk` is that of `file`, of `size` bytes, of
    /// which the volume is asked before page `end`. The caller has the turn, alone.
    pub(super) fn label(&self, file: FileId, chunk: &Chunk, size: u64, end: u64) -> Result<()> {
        let space = self.space()?;
        if !space.is_labelled() {
            return Ok(());
        }
        let label = Label {
            region: self.core().uuid()?,
            chunk: chunk.number,
            inode: file.number,
            generation: file.generation,
            size,
            end,
        };
        let block = label_block(chunk.number, self.chunk_blocks());
        Ok(space.write(block, &label.to_bytes())?)
    }

    /// Bytes of `file`.
    pub(super) fn size_of(&self, file: FileId) -> Result<u64> {
        self.read(file.number, |view| Ok(load(view, file)?.0.size))
    }
}
