//! Why a region can't be checked at all.

use conquest_format::Offset;
use conquest_format::superblock::Defect;

/// Nothing can be checked: what this is, or how it is laid out, is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Neither superblock copy begins as a region does.
    #[error(
        "no region: at offset 0 expected the bytes \"CONQCORE\", found {found:02x?}; \
         give the file of a store's core"
    )]
    NotARegion {
        /// The first eight bytes.
        found: [u8; 8],
    },
    /// It was written with the other byte order.
    #[error("superblock at {offset}: written with the other byte order; use the machine it is of")]
    Endianness {
        /// Offset of the superblock copy.
        offset: Offset,
    },
    /// Another version of the format.
    #[error(
        "superblock at {offset}: expected version {expected} of the format, found {found}; \
         use the program of that version"
    )]
    Version {
        /// Offset of the superblock copy.
        offset: Offset,
        /// The version that can be checked.
        expected: u32,
        /// The version found.
        found: u32,
    },
    /// It has features that have to be known.
    #[error(
        "superblock at {offset}: unknown features {found:#x} that a program must know; \
         use a newer program"
    )]
    Features {
        /// Offset of the superblock copy.
        offset: Offset,
        /// The unknown bits.
        found: u64,
    },
    /// Both superblock copies are damaged, so that the layout is not known.
    #[error(
        "superblocks at 0x0 and 0x1000: expected one that passes its checks, \
         found {first:?} and {second:?}; restore the store from a backup"
    )]
    Superblocks {
        /// What is wrong with the first.
        first: Defect,
        /// What is wrong with the second.
        second: Defect,
    },
    /// The file is shorter than what the region's groups need.
    #[error(
        "the region ends at {found:#x}: expected {expected:#x} bytes for {groups} groups; \
         the file was cut off, or the number of groups at {offset} is damaged: \
         restore it from a backup"
    )]
    Truncated {
        /// Where the number of groups stands, or that of the first superblock.
        offset: Offset,
        /// Groups that it says it has.
        groups: u64,
        /// Bytes that they need.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The file system is of another version.
    #[error(
        "file system's version at {offset}: expected {expected}, or 0 for none, found {found}; \
         use the program of that version, or restore the word if it is damaged"
    )]
    FileSystemVersion {
        /// Where it stands.
        offset: Offset,
        /// The version that can be checked.
        expected: u64,
        /// The version found.
        found: u64,
    },
}
