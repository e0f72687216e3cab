//! A core, read as a file.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use conquest_format::geometry::SUPERBLOCKS;
use conquest_format::inode::{Inode, WORDS, number_of};
use conquest_format::residency::{self, LOADED_CHUNKS, LOADED_GROUPS, pages_in, state};
use conquest_format::superblock::{Defect, LOADING, RawSuperblock, SIZE, Superblock};
use conquest_format::{GROUP_PAGES, Geometry, Offset, PAGE, WORD};

use crate::reason::{Reason, Result};

/// A core that is only read.
pub(super) struct Raw {
    file: File,
    /// Bytes of the file.
    pub(super) len: u64,
    pub(super) geometry: Geometry,
    pub(super) superblocks: [core::result::Result<Superblock, Defect>; 2],
    /// Whether there may be pages that are not loaded yet.
    pub(super) is_loading: bool,
}

impl Raw {
    /// The core of the store in `directory`.
    ///
    /// # Errors
    /// What the system says; a rule, if it is no region or both superblocks are damaged.
    pub(super) fn open(directory: &Path) -> Result<Raw> {
        let path = directory.join("core");
        let file = File::open(&path).map_err(|error| {
            let words = crate::reason::words(&error);
            Reason::rule(format!("core: {words} (is this a store?)"))
        })?;
        let metadata = file.metadata()?;
        if metadata.file_type().is_char_device() {
            let text = "core: a device of persistent memory can't be read as a file (copy it by \
                        `conquest save`, and look at that)";
            return Err(Reason::rule(text));
        }
        let superblocks = SUPERBLOCKS.map(|at| {
            let mut bytes = [0; SIZE];
            match file.read_exact_at(&mut bytes, at.bytes()) {
                Ok(()) => RawSuperblock::from_bytes(&bytes).check(),
                // What is not there has no magic.
                Err(_) => Err(Defect::Magic),
            }
        });
        let best = superblocks.iter().flatten().max_by_key(|copy| copy.sequence);
        let Some(best) = best else {
            let text = format!("core: both superblocks are unusable: {superblocks:?}");
            return Err(Reason::Rule(text));
        };
        let geometry = Geometry::new(best.shape);
        let geometry = geometry.ok_or_else(|| broken("shape", SUPERBLOCKS[0], best.shape))?;
        let is_loading = best.features_incompatible & LOADING != 0;
        Ok(Raw { file, len: metadata.len(), geometry, superblocks, is_loading })
    }

    /// The bytes at `at`; those that the file does not have are zeros.
    ///
    /// # Errors
    /// What the system says; a rule, if they are not loaded yet.
    pub(super) fn bytes(&self, at: Offset, out: &mut [u8]) -> Result<()> {
        if self.is_loading {
            self.check_loaded(at.bytes(), out.len() as u64)?;
        }
        self.copy(at, out)
    }

    /// Refuses bytes of pages that are not resident.
    fn check_loaded(&self, at: u64, len: u64) -> Result<()> {
        let head = |word| self.table_word(self.geometry.residency().start + word);
        if head(residency::STATE)? == state::WHOLE {
            return Ok(());
        }
        let (groups, chunks) = (head(LOADED_GROUPS)?, head(LOADED_CHUNKS)?);
        let shape = self.geometry.shape();
        let chunks = chunks.min(shape.chunks.into()) as u32;
        let ranges = self.geometry.loaded(groups.min(shape.max_groups), chunks);
        for page in at / PAGE..at.saturating_add(len).div_ceil(PAGE) {
            let (group, word, bit) =
                (page / GROUP_PAGES, page % GROUP_PAGES / 64, 1 << (page % 64));
            let is_one =
                pages_in(&ranges, group).get(word as usize).is_some_and(|it| it & bit != 0);
            let line = self.geometry.residency_line(group).plus(word * WORD);
            if is_one && self.table_word(line.bytes())? & bit == 0 {
                let text = "core: it is still being loaded from its volume; see `conquest info`, \
                            and try again when all of it is there";
                return Err(Reason::rule(text));
            }
        }
        Ok(())
    }

    fn table_word(&self, at: u64) -> Result<u64> {
        let mut bytes = [0; WORD as usize];
        self.copy(Offset::new(at), &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn copy(&self, at: Offset, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at.bytes() + done as u64)? {
                0 => {
                    rest.fill(0);
                    return Ok(());
                }
                read => done += read,
            }
        }
        Ok(())
    }

    /// The word at `at`.
    pub(super) fn word(&self, at: Offset) -> Result<u64> {
        let mut bytes = [0; WORD as usize];
        self.bytes(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The inode at `at`.
    pub(super) fn inode(&self, at: Offset) -> Result<Inode> {
        let number = number_of(at).ok_or_else(|| broken("offset of an inode", at, at))?;
        let mut words = [0; WORDS];
        for (index, word) in (0..).zip(&mut words) {
            *word = self.word(at.plus(index * WORD))?;
        }
        Inode::from_words(words, number).map_err(|defect| broken("inode", at, defect))
    }
}

/// The error for something that can't be followed.
pub(super) fn broken(what: &str, at: Offset, found: impl core::fmt::Debug) -> Reason {
    let text = format!("{what} at offset {at}: found {found:x?}, which is impossible");
    Reason::rule(format!("{text} (check the store)"))
}
