//! Which files of a region are large, and what of them the volume has.
//!
//! The chunks of the volume's space that files have are found in the slabs of the region, in the
//! order of their offsets there: so a copy has large files in an order that follows from the region
//! alone, and neither saving nor restoring has to keep a list of them.

use conquest_format::descriptor::Descriptor;
use conquest_format::fs::chunk::{self, BLOCKS_MAX, BLOCKS_MIN, WORDS};
use conquest_format::fs::{CHUNK, root};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::inode::{offset_of, word};
use conquest_format::kind::{KindSpec, KindTable};
use conquest_format::label::{Label, label_block};
use conquest_format::saved::{Chunk, DATA_MAX, KIND_LARGE};
use conquest_format::volume::BLOCK;
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};

use super::plan::Plan;
use crate::store::volume::Volume;
use crate::{Error, Id, Result};

/// Blocks of a page.
const PAGE_BLOCKS: u64 = PAGE / BLOCK;

/// A large file, as its chunk of the volume's space says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LargeFile {
    /// Number of the chunk.
    pub(crate) number: u64,
    /// The first block of the space that belongs to it.
    pub(crate) first: u64,
    /// Bytes of the file of which the volume is asked.
    pub(crate) end: u64,
    /// Bytes of the file.
    size: u64,
    inode: u64,
    generation: u64,
    /// The block with the label, where there are labels.
    label: u64,
}

/// Reads bytes of a region.
pub(crate) type Read<'r> = &'r dyn Fn(u64, &mut [u8]) -> Result<()>;

/// A region in which large files are looked for.
pub(crate) struct Region<'r> {
    /// Its bitmaps are known.
    pub(crate) plan: &'r Plan,
    pub(crate) kinds: &'r KindTable,
    pub(crate) read: Read<'r>,
}

impl Region<'_> {
    fn words<const N: usize>(&self, at: Offset) -> Result<[u64; N]> {
        let mut bytes = vec![0; N * WORD as usize];
        (self.read)(at.bytes(), &mut bytes)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(words)
    }

    /// Blocks of a chunk of the volume's space; 0 if the store has none.
    pub(super) fn chunk_blocks(&self) -> Result<u64> {
        let at = STATE_ROOTS.plus(root::CHUNK_BLOCKS * WORD);
        let [found] = self.words(at)?;
        if found == 0 || found.is_power_of_two() && (BLOCKS_MIN..=BLOCKS_MAX).contains(&found) {
            return Ok(found);
        }
        Err(corrupt("blocks of a chunk", at, "a power of two within its limits", found))
    }

    /// Calls `each` with the large files, in the order in which a copy has them.
    pub(crate) fn each_file(&self, mut each: impl FnMut(LargeFile) -> Result<()>) -> Result<()> {
        let blocks = self.chunk_blocks()?;
        let spec = self.kinds.get(usize::from(CHUNK.number())).copied().unwrap_or_default();
        if blocks == 0 || u64::from(spec.object_size) != chunk::SIZE {
            return Ok(());
        }
        for group in self.plan.groups_in_use() {
            let first = group * GROUP_PAGES;
            let descriptors: [u64; GROUP_PAGES as usize] =
                self.words(self.plan.geometry().descriptor(first))?;
            for (page, word) in (first..).zip(descriptors) {
                // A descriptor of a free page says nothing.
                let is_slab = Descriptor::unpack(word, page) == Some(Descriptor::Slab(CHUNK))
                    && self.plan.is_in_use(page);
                if is_slab {
                    self.each_in_slab(page, spec, blocks, &mut each)?;
                }
            }
        }
        Ok(())
    }

    fn each_in_slab(
        &self,
        page: u64,
        spec: KindSpec,
        blocks: u64,
        each: &mut impl FnMut(LargeFile) -> Result<()>,
    ) -> Result<()> {
        let geometry = self.plan.geometry();
        let [map] = self.words(geometry.slab_map(page))?;
        for object in (0..spec.objects()).filter(|object| map >> object & 1 == 1) {
            let at = geometry.page(page).plus(object * chunk::SIZE);
            let words: [u64; WORDS] = self.words(at)?;
            let found = chunk::Chunk::from_words(words, at)
                .map_err(|offset| corrupt("chunk", at.plus(offset), "a sound one", words[0]))?;
            if found.inode == 0 {
                // What it has is to be trimmed, or nothing.
                continue;
            }
            let is_possible = found.number >= chunk::first(blocks)
                && found.number < u64::MAX / blocks
                && found.end <= blocks / PAGE_BLOCKS;
            if !is_possible {
                return Err(corrupt("chunk", at, "a possible place and end", found.number));
            }
            let chunk::Chunk { number, inode, generation, .. } = found;
            let [size] = match offset_of(inode) {
                Some(at) => self.words(at.plus(word::SIZE))?,
                None => return Err(corrupt("chunk", at, "a possible inode", inode)),
            };
            let (first, label) = (number * blocks, label_block(number, blocks));
            let end = found.end * PAGE;
            each(LargeFile { number, first, end, size, inode, generation, label })?;
        }
        Ok(())
    }
}

impl LargeFile {
    /// Calls `each` with the pieces of it that `volume` has, as [`each_piece`] does.
    pub(crate) fn each_piece(
        &self,
        volume: &Volume,
        each: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        each_piece(volume, self.first, self.end, each)
    }

    /// The chunk of a copy with number `number` that has `len` bytes of it from `at` on.
    pub(crate) const fn chunk(&self, number: u64, at: u64, len: u64) -> Chunk {
        Chunk { kind: KIND_LARGE, number, at, len, file: self.number }
    }

    /// Writes to `volume` that it is a file of `region`.
    pub(crate) fn put_label(&self, volume: &Volume, region: Id) -> conquest_flash::Result<()> {
        let LargeFile { number: chunk, inode, generation, size, .. } = *self;
        let end = self.end / PAGE;
        let label = Label { region: region.0, chunk, inode, generation, size, end };
        volume.write(self.label, &label.to_bytes())
    }

    /// The block of the space that byte `at` is in.
    pub(crate) const fn block(&self, at: u64) -> u64 {
        self.first + at / BLOCK
    }
}

/// Calls `each` with the pieces that `volume` has of a file, whose first block of the space is
/// `first`, before byte `end` of it: offset in the file and bytes, whole pages, in order. None
/// crosses a multiple of [`DATA_MAX`], so they are the same however the volume has arranged what it
/// has.
pub(crate) fn each_piece(
    volume: &Volume,
    first: u64,
    end: u64,
    mut each: impl FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < end {
        let window = (at + 1).next_multiple_of(DATA_MAX).min(end);
        let look = (window - at) / BLOCK;
        let Some((block, count)) = volume.allocated_within(first + at / BLOCK, look)? else {
            break;
        };
        // Units of the volume may be larger than pages, never smaller.
        let start = block.saturating_sub(first).saturating_mul(BLOCK).max(at);
        if start >= window {
            at = start / PAGE * PAGE;
            continue;
        }
        let stop = block.saturating_add(count).saturating_sub(first).saturating_mul(BLOCK);
        let stop = stop.next_multiple_of(PAGE).min(window);
        each(start, stop - start)?;
        at = stop;
    }
    Ok(())
}

fn corrupt(what: &'static str, offset: Offset, expected: &'static str, found: u64) -> Error {
    Error::Core(conquest_pm::Error::Corrupt { what, offset, expected, found })
}
