//! Where the content of a file is kept, and why (Conquest 2002, 3.1 and 3.2.1).
//!
//! Without a volume everything is in the core; this says what of it would stay there with one.

use conquest_format::inode::{Content, FileType};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content;
use crate::inode::{FileId, load};
use crate::{Errno, FileSystem, Result};

/// Bytes of a file's beginning that tell whether it is a program.
pub(crate) const MAGIC: usize = 4;

/// How a file's content is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// There is none.
    None,
    /// An object of at most 2 KiB.
    Packed,
    /// One run of pages.
    Extent,
    /// Many runs.
    Tree,
    /// A chunk of the volume's space, and pages that are not there yet.
    Large,
}

/// Why a file's content stays in the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stays {
    /// It is not larger than the store's threshold.
    Small,
    /// It is larger, and a program: these stay whatever their size.
    Program,
    /// It is neither, and there is no volume that it could go to.
    NoVolume,
    /// It is neither, but nothing was written to it since it is so large.
    Unwritten,
    /// It does not: only what was written last may be there.
    OnVolume,
}

/// Where a regular file's content is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// How.
    pub form: Form,
    /// Whether it is a program.
    pub is_program: bool,
    /// Why it is in the core.
    pub stays: Stays,
}

/// Whether a regular file is a program: somebody may execute it, by its mode, or it begins as an
/// executable or a shared library does (ELF), or as a script (`#!`).
#[must_use]
pub fn is_program(mode: u32, beginning: &[u8]) -> bool {
    mode & 0o111 != 0 || beginning.starts_with(b"\x7FELF") || beginning.starts_with(b"#!")
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Where the content of the regular file `file` is kept, in a store whose threshold is
    /// `threshold` bytes.
    ///
    /// # Errors
    /// - `EISDIR`, `EINVAL`: it is a directory, or otherwise no regular file;
    /// - [`crate::Error::Stale`]; those of the region.
    pub fn placement(&self, file: FileId, threshold: u64) -> Result<Placed> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            match inode.file_type {
                FileType::Regular => {}
                FileType::Directory => return Err(Errno::EISDIR.into()),
                _ => return Err(Errno::EINVAL.into()),
            }
            let form = match inode.content {
                Content::Packed { .. } => Form::Packed,
                Content::Extent { .. } => Form::Extent,
                Content::Tree { .. } => Form::Tree,
                Content::Large { .. } => Form::Large,
                _ => Form::None,
            };
            let mut magic = [0; MAGIC];
            // What the volume has of it is not asked for.
            let mut far = |_, _| Ok(());
            content::read_bytes(view, inode.content, inode.size, 0, &mut magic, &mut far)?;
            let is_program = is_program(inode.permissions.into(), &magic);
            let stays = match inode.size {
                size if size <= threshold => Stays::Small,
                _ if form == Form::Large => Stays::OnVolume,
                _ if is_program => Stays::Program,
                _ if self.threshold().is_none() => Stays::NoVolume,
                _ => Stays::Unwritten,
            };
            Ok(Placed { form, is_program, stays })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_recognised() {
        for (mode, beginning, wanted) in [
            (0o644, &b"\x7FELF"[..], true),
            (0o644, b"\x7FELF\x02\x01", true),
            (0o644, b"\x7FEL", false),
            (0o644, b"#!/bin/sh\n", true),
            (0o644, b"#", false),
            (0o644, b" #!", false),
            (0o644, b"", false),
            (0o001, b"", true),
            (0o010, b"text", true),
            (0o100, b"text", true),
            (0o7666, b"text", false),
        ] {
            assert_eq!(is_program(mode, beginning), wanted, "{mode:o} {beginning:?}");
        }
    }
}
