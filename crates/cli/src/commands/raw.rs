//! A core, read as a file.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use conquest_format::geometry::SUPERBLOCKS;
use conquest_format::inode::{Inode, WORDS, number_of};
use conquest_format::superblock::{Defect, RawSuperblock, SIZE, Superblock};
use conquest_format::{Geometry, Offset, WORD};

use crate::reason::{Reason, Result};

/// A core that is only read.
pub(super) struct Raw {
    file: File,
    /// Bytes of the file.
    pub(super) len: u64,
    pub(super) geometry: Geometry,
    pub(super) superblocks: [core::result::Result<Superblock, Defect>; 2],
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
        Ok(Raw { file, len: metadata.len(), geometry, superblocks })
    }

    /// The bytes at `at`; those that the file does not have are zeros.
    pub(super) fn bytes(&self, at: Offset, out: &mut [u8]) -> Result<()> {
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
