//! Where the content of a file is kept, and why (Conquest 2002, 3.1 and 3.2.1).
//!
//! Without a volume everything is in the core; this says what of it would stay there with one.

use conquest_format::inode::{Content, FileType, SIZE_MAX};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content;
use crate::inode::{FileId, load};
use crate::{Errno, FileSystem, Result};

/// Bytes of a file's beginning that tell whether it is a program.
pub(crate) const MAGIC: usize = 4;

/// The extended attribute that is the threshold of a file's own. A directory gives it to what is
/// made in it. Its value is a text: a number of bytes, with `K`, `M`, `G`, `T`, `P` or `E` behind
/// it for powers of 1024; or `core`, the threshold that no file passes. It is kept in the inode.
pub const THRESHOLD: &[u8] = b"user.conquest.threshold";

/// The value of [`THRESHOLD`] by which a file stays in the core, whatever its size.
const ALWAYS: &[u8] = b"core";
/// Decimal digits that a threshold has at most.
const DIGITS: usize = 20;

/// How a threshold is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThresholdText {
    digits: [u8; DIGITS],
    /// Where the first digit is; none if it is no number.
    from: Option<usize>,
}

impl ThresholdText {
    /// For `threshold` bytes.
    pub(crate) fn new(threshold: u64) -> ThresholdText {
        let mut digits = [b'0'; DIGITS];
        let (mut left, mut from) = (threshold, DIGITS);
        for (place, digit) in digits.iter_mut().enumerate().rev() {
            if left == 0 && from < DIGITS {
                break;
            }
            *digit += (left % 10) as u8;
            (left, from) = (left / 10, place);
        }
        ThresholdText { digits, from: (threshold < SIZE_MAX).then_some(from) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.from.map_or(ALWAYS, |from| self.digits.get(from..).unwrap_or_default())
    }
}

/// The threshold that `text` says, in bytes.
///
/// # Errors
/// `EINVAL`: it says none.
pub(crate) fn parse_threshold(text: &[u8]) -> core::result::Result<u64, Errno> {
    if text == ALWAYS {
        return Ok(SIZE_MAX);
    }
    let powers = b"KMGTPE".iter().zip((10..).step_by(10));
    let unit = powers.fold(None, |found, (letter, shift)| {
        text.strip_suffix(&[*letter]).map_or(found, |number| Some((number, shift)))
    });
    let (number, shift) = unit.unwrap_or((text, 0));
    if number.is_empty() {
        return Err(Errno::EINVAL);
    }
    let digits = number.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    });
    let bytes = digits.and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes <= SIZE_MAX).ok_or(Errno::EINVAL)
}

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
    /// It is not larger than its threshold, or, if it has none of its own, than the store's.
    Small,
    /// It is larger, and a program: these stay whatever their size.
    Program,
    /// It is neither, and there is no volume that it could go to.
    NoVolume,
    /// It is neither, but nothing was written to it since it is so large.
    Unwritten,
    /// It does not: only what was written last may be there, and what was written while its
    /// threshold was larger.
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
    /// The threshold of its own, in bytes, if it has one.
    pub threshold: Option<u64>,
}

/// Whether a regular file is a program: somebody may execute it, by its mode, or it begins as an
/// executable or a shared library does (ELF), or as a script (`#!`).
#[must_use]
pub fn is_program(mode: u32, beginning: &[u8]) -> bool {
    mode & 0o111 != 0 || beginning.starts_with(b"\x7FELF") || beginning.starts_with(b"#!")
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Where the content of the regular file `file` is kept, in a store whose threshold is
    /// `threshold` bytes. A threshold of the file's own comes first.
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
                _ if form == Form::Large => Stays::OnVolume,
                size if size <= inode.threshold.unwrap_or(threshold) => Stays::Small,
                _ if is_program => Stays::Program,
                _ if self.threshold().is_none() => Stays::NoVolume,
                _ => Stays::Unwritten,
            };
            Ok(Placed { form, is_program, stays, threshold: inode.threshold })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_told_as_they_are_read() {
        for (text, wanted, told) in [
            (&b"0"[..], 0, &b"0"[..]),
            (b"1", 1, b"1"),
            (b"007", 7, b"7"),
            (b"64K", 65536, b"65536"),
            (b"3M", 3 << 20, b"3145728"),
            (b"2G", 2 << 30, b"2147483648"),
            (b"5T", 5 << 40, b"5497558138880"),
            (b"1P", 1 << 50, b"1125899906842624"),
            (b"7E", 7 << 60, b"8070450532247928832"),
            (b"9223372036854775806", SIZE_MAX - 1, b"9223372036854775806"),
            (b"9223372036854775807", SIZE_MAX, b"core"),
            (b"core", SIZE_MAX, b"core"),
        ] {
            assert_eq!(parse_threshold(text), Ok(wanted), "{text:?}");
            assert_eq!(ThresholdText::new(wanted).bytes(), told);
            assert_eq!(parse_threshold(told), Ok(wanted));
        }
        let bad: [&[u8]; 14] = [
            b"",
            b"K",
            b"-1",
            b"+1",
            b" 1",
            b"1 ",
            b"1k",
            b"1KK",
            b"1.5M",
            b"0x10",
            b"Core",
            b"9223372036854775808",
            b"8E",
            b"99999999999999999999999",
        ];
        for text in bad {
            assert_eq!(parse_threshold(text), Err(Errno::EINVAL), "{text:?}");
        }
    }

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
