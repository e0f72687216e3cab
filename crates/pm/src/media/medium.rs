//! A region's file: found or made, told apart from others, and open.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::descriptor::{Kept, status};
use super::huge::Gathering;
use super::kind::{MediumKind, check_mode, classify};
use super::source::Source;
use super::space;
use super::sys::{checked, failed};
use crate::{Error, Result};

/// Whether the file can shrink under its mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shrink {
    /// A seal forbids it for good.
    Sealed,
    /// Anybody who may write the file can truncate it; the guard catches what follows.
    Possible {
        /// Why there is no seal.
        why: &'static str,
    },
}

/// The file that a region is on.
#[derive(Debug)]
pub struct Medium {
    kept: Kept,
    kind: MediumKind,
    /// Whether `path` names the file, or only stands for it in messages.
    named: bool,
    path: PathBuf,
    shrink: Shrink,
    gathering: Gathering,
}

impl Medium {
    /// Makes the file for a new region, with permission bits `mode`, or takes an existing empty
    /// one. A device always exists: whether it holds a region is for its first bytes to tell
    /// ([`Self::peek`]).
    ///
    /// # Errors
    /// [`Error::Exists`] if the file holds something, [`Error::Unsharable`], and what the system
    /// refuses.
    pub fn create(source: Source, mode: u32) -> Result<Medium> {
        let source = match source {
            Source::Path(path) => {
                let made =
                    File::options().read(true).write(true).create_new(true).mode(mode).open(&path);
                match made {
                    Ok(file) => return Medium::made(file, path),
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                        Source::Path(path)
                    }
                    Err(error) => return Err(failed(&path, "create the region's file")(error)),
                }
            }
            descriptor @ Source::Descriptor(_) => descriptor,
        };
        let medium = Medium::open(source)?;
        let is_device = matches!(medium.kind, MediumKind::DevDax { .. });
        if !is_device && medium.len()? != 0 {
            return Err(Error::Exists { path: medium.path });
        }
        Ok(medium)
    }

    /// Takes a file just made; removes it again if it can't hold a region.
    fn made(file: File, path: PathBuf) -> Result<Medium> {
        let medium = Medium::keep(file, path.clone(), true);
        if medium.is_err() {
            // The error to report is the first one; an empty file left behind harms nobody.
            let _ = std::fs::remove_file(&path);
        }
        medium
    }

    /// Opens the file of a region.
    ///
    /// # Errors
    /// [`Error::Unsharable`], and what the system refuses.
    pub fn open(source: Source) -> Result<Medium> {
        match source {
            Source::Path(path) => {
                let action = "open the region's file";
                let named = std::fs::metadata(&path).map_err(failed(&path, action))?;
                check_mode(&path, named.mode())?;
                let file = File::options()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_NONBLOCK)
                    .open(&path)
                    .map_err(failed(&path, action))?;
                Medium::keep(file, path, true)
            }
            Source::Descriptor(descriptor) => {
                let file = File::from(descriptor);
                Medium::keep(file, PathBuf::from("descriptor"), false)
            }
        }
    }

    fn keep(file: File, path: PathBuf, named: bool) -> Result<Medium> {
        let kind = classify(&path, &file)?;
        let kept = Kept::new(file).map_err(failed(&path, "keep its descriptor"))?;
        let path = match kept.name() {
            Some(name) if !named => name,
            _ => std::path::absolute(&path).unwrap_or(path),
        };
        let shrink = seal(&kept, &kind);
        Ok(Medium { kept, kind, named, path, shrink, gathering: Gathering::default() })
    }

    /// What the file is.
    #[must_use]
    pub fn kind(&self) -> &MediumKind {
        &self.kind
    }

    /// The file's name, or what stands for it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file can shrink under its mappings.
    #[must_use]
    pub fn shrink(&self) -> Shrink {
        self.shrink
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn len(&self) -> Result<u64> {
        if let MediumKind::DevDax { size, .. } = self.kind {
            return Ok(size);
        }
        if let Ok(status) = status(self.kept.raw())
            && status.id == self.kept.id()
        {
            return Ok(status.len);
        }
        let file = self.reopen()?;
        let found = file.metadata();
        Ok(found.map_err(failed(&self.path, "ask for its length"))?.len())
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Copies the bytes at `at` into `out`: what a file's first look is for, before its layout is
    /// known.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file ends before them, and what the system refuses.
    pub fn peek(&self, at: u64, out: &mut [u8]) -> Result<()> {
        use crate::memory::Memory;
        let expected = at.saturating_add(out.len() as u64);
        let found = self.len()?;
        if found < expected {
            return Err(Error::Truncated { path: self.path.clone(), expected, found });
        }
        let len = expected.max(1).next_multiple_of(self.kind.granularity());
        let view = super::Mapped::map(self, len, &super::MapOptions::default())?;
        view.read(conquest_format::Offset::new(at), out);
        match view.failed() {
            None => Ok(()),
            Some(reason) => Err(Error::Failed { reason }),
        }
    }

    /// Backs `ranges` with space, extending the file to `len` bytes; it is never shortened. Only
    /// for ranges that nobody stores into yet.
    ///
    /// # Errors
    /// [`Error::System`], with `ENOSPC` if there is not enough; the file may be longer then.
    pub fn back(&self, ranges: &[Range<u64>], len: u64) -> Result<()> {
        let action = "back it with space";
        if ranges.iter().any(|range| range.end > len) {
            let source = std::io::Error::from_raw_os_error(libc::EINVAL);
            return Err(failed(&self.path, action)(source));
        }
        if let MediumKind::DevDax { size, .. } = self.kind {
            if len <= size {
                return Ok(());
            }
            let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(failed(&self.path, action)(source));
        }
        let file = self.reopen()?;
        let gathering = self.kind.can_gather().then_some(&self.gathering);
        space::back(&file, ranges, len, gathering).map_err(failed(&self.path, action))
    }

    /// Cuts the file off behind `len` bytes, if it is longer: nobody uses what is there.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(super) fn shorten(&self, len: u64) -> Result<()> {
        let action = "cut it off";
        let file = self.reopen()?;
        let found = file.metadata().map_err(failed(&self.path, action))?.len();
        match found > len {
            true => file.set_len(len).map_err(failed(&self.path, action)),
            false => Ok(()),
        }
    }

    /// A new open file description of the same file.
    pub(super) fn reopen(&self) -> Result<File> {
        let path = self.named.then_some(self.path.as_path());
        let file = self.kept.reopen(path);
        file.map_err(failed(&self.path, "open the region's file once more"))
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }
}

fn seal(kept: &Kept, kind: &MediumKind) -> Shrink {
    if *kind != MediumKind::Memfd {
        return Shrink::Possible { why: "only a memfd can be sealed" };
    }
    // SAFETY: no memory is passed.
    let sealed = unsafe { libc::fcntl(kept.raw(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
    // SAFETY: no memory is passed.
    let seals = checked(unsafe { libc::fcntl(kept.raw(), libc::F_GET_SEALS) }).unwrap_or(0);
    if sealed == 0 || seals & libc::F_SEAL_SHRINK != 0 {
        Shrink::Sealed
    } else {
        Shrink::Possible {
            why: "the memfd was made without MFD_ALLOW_SEALING, or is open for reading only",
        }
    }
}
