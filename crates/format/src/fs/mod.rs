//! The file system's objects: their kinds, and the layouts of directories and of files' trees.
//!
//! ```text
//! inode -- root -+- bucket                        a small directory: one page
//!                +- node --+- bucket -- dentries  a radix over the bits of name hashes
//!                          +- node -- ...
//! ```

pub mod attributes;
pub mod bucket;
pub mod chunk;
pub mod dentry;
pub mod node;
pub mod notice;
pub mod tree;

use crate::PAGE;
use crate::kind::{KINDS, Kind, KindSpec, KindTable};

/// Version of the layouts in this module.
pub const VERSION: u64 = 1;

/// Numbers of the root words that the file system has; the others are 0.
pub mod root {
    /// [`VERSION`](super::VERSION): stored last of all when a file system is made.
    pub const VERSION: u64 = 0;
    /// Pointer word to the root directory's inode.
    pub const DIRECTORY: u64 = 1;
    /// First of the two words of the key by which names are hashed.
    pub const KEY: u64 = 2;
    /// Most bytes in a regular file.
    pub const FILE_MAX: u64 = 4;
    /// Percentage of the pages that are reserved.
    pub const RESERVE: u64 = 5;
    /// Bytes above which a file's data is on the volume; 0 if the store has none.
    pub const THRESHOLD: u64 = 6;
    /// Blocks of a chunk of the volume's space, a power of two; 0 if the store has none.
    pub const CHUNK_BLOCKS: u64 = 7;
    /// Number of the chunk that comes next.
    pub const NEXT_CHUNK: u64 = 8;
    /// The first [chunk](super::chunk) of those that have something to be trimmed or pushed.
    pub const DUE: u64 = 9;
    /// The first chunk of those that nobody needs.
    pub const UNUSED: u64 = 10;
    /// The [mark](crate::mark) that the volume was last seen to have; 0 if it has none.
    pub const MARK: u64 = 11;
    /// The mark that the volume is given.
    pub const NEXT_MARK: u64 = 12;
}

/// Highest percentage of pages that can be reserved.
pub const RESERVE_MAX: u64 = 50;

/// Codes of intents: work that takes several records. Arguments: number and generation of an inode.
pub mod cut {
    /// Frees what the tree of a file has past its size.
    pub const CUT: u64 = 1;
    /// Frees all that a file without names consists of, and then its inode.
    pub const REAP: u64 = 2;
}

const fn kind(number: u8) -> Kind {
    match Kind::new(number) {
        Some(kind) => kind,
        None => kind(0),
    }
}

/// An inode: an object of [`inode::SIZE`](crate::inode::SIZE) bytes.
pub const INODE: Kind = kind(1);
/// A directory node: an object of [`node::SIZE`] bytes.
pub const NODE: Kind = kind(2);
/// A bucket of a directory: a run of one page.
pub const BUCKET: Kind = kind(3);
/// A file's contents: runs.
pub const DATA: Kind = kind(4);
/// A page of a file's tree: a run of one page.
pub const TREE: Kind = kind(5);
/// A chunk of the volume's space: an object of [`chunk::SIZE`] bytes.
pub const CHUNK: Kind = kind(6);
/// The first kind of packed contents; the others follow, in the order of [`PACKED_SIZES`].
pub const PACKED: Kind = kind(8);

/// Bytes of the objects of packed contents, by class.
pub const PACKED_SIZES: [u64; 16] =
    [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048];

/// The kind of packed contents of class `class`, if there is such a class.
#[must_use]
pub fn packed(class: usize) -> Option<Kind> {
    PACKED_SIZES.get(class)?;
    Kind::new(PACKED.number() + class as u8)
}

/// The kinds of a region that holds a file system.
#[must_use]
pub fn kinds() -> KindTable {
    let packed = (0..).zip(PACKED_SIZES).map(|(class, size)| (PACKED.number() + class, size));
    let objects = [
        (INODE.number(), crate::inode::SIZE),
        (NODE.number(), node::SIZE),
        (CHUNK.number(), chunk::SIZE),
    ];
    let mut kinds = [KindSpec::UNUSED; KINDS];
    let mut enter = |number: u8, spec| {
        if let Some(entry) = kinds.get_mut(usize::from(number)) {
            *entry = spec;
        }
    };
    for (number, size) in objects.into_iter().chain(packed) {
        enter(number, KindSpec::object(size).unwrap_or_default());
    }
    for runs in [BUCKET, DATA, TREE] {
        enter(runs.number(), KindSpec::RUN);
    }
    kinds
}

const _: () = assert!(node::SIZE <= PAGE && bucket::GRANULES * bucket::GRANULE == PAGE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_size() {
        let kinds = kinds();
        let size = |kind: Kind| u64::from(kinds[usize::from(kind.number())].object_size);
        assert_eq!((size(INODE), size(NODE)), (crate::inode::SIZE, node::SIZE));
        assert_eq!(size(CHUNK), chunk::SIZE);
        for runs in [BUCKET, DATA, TREE] {
            assert_eq!(kinds[usize::from(runs.number())], KindSpec::RUN);
        }
        for (class, bytes) in PACKED_SIZES.into_iter().enumerate() {
            assert_eq!(size(packed(class).unwrap()), bytes);
        }
        assert_eq!(packed(16), None);
        assert_eq!(kinds.iter().filter(|spec| **spec != KindSpec::UNUSED).count(), 22);
    }
}
