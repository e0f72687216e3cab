//! Nodes: the files that the kernel knows of, by the numbers under which it knows them.
//!
//! A node's number is the inode's, so it is the same in every mount of the store and after every
//! restart, which is what keeps handles of `open_by_handle_at` valid. The root directory is the
//! exception: the protocol calls it 1, which is the number of no inode. What is kept here is what
//! the number does not tell: which generation of the inode is meant, and how often the kernel has
//! been told of it, because it forgets by counts.
//!
//! A file that loses its last name while the kernel knows it is *kept*: a holding keeps the inode,
//! so that a working directory that was removed, or a file that is open by `O_PATH`, is what it
//! would be on any other file system. Where another process removes it, nobody here is asked: then
//! it is gone (`ESTALE`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conquest::FileId;
use conquest_fs::open::OpenFile;

/// The node of the root directory.
pub(crate) const ROOT: u64 = 1;

/// Parts of the table, each with a lock of its own: a power of two.
const SHARDS: usize = 64;

/// What is known of a node.
#[derive(Debug)]
struct Known {
    generation: u64,
    /// How often the kernel has been told of it and has not forgotten it.
    lookups: u64,
    /// What keeps the inode although it has lost its last name.
    kept: Option<OpenFile>,
}

/// All nodes that the kernel knows, but for the root.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: FileId,
    shards: Box<[Mutex<HashMap<u64, Known>>]>,
}

impl Nodes {
    pub(crate) fn new(root: FileId) -> Nodes {
        Nodes { root, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Known>> {
        // Numbers of inodes that were made one after the other differ by a small multiple of two.
        let at = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the node that `file` is.
    pub(crate) fn number(&self, file: FileId) -> u64 {
        if file == self.root { ROOT } else { file.number }
    }

    /// The file that `node` is, if the kernel was told of it.
    pub(crate) fn file(&self, node: u64) -> Option<FileId> {
        if node == ROOT {
            return Some(self.root);
        }
        let generation = self.shard(node).get(&node)?.generation;
        Some(FileId { number: node, generation })
    }

    /// Notes that the kernel is told of `file`; what has to be closed then.
    ///
    /// If it knew an earlier file with this number, that one is gone, and the kernel finds out by
    /// the generation; it will forget both by their counts together.
    #[must_use]
    pub(crate) fn tell(&self, file: FileId) -> Option<OpenFile> {
        if file == self.root {
            return None;
        }
        let mut shard = self.shard(file.number);
        let new = Known { generation: file.generation, lookups: 0, kept: None };
        let known = shard.entry(file.number).or_insert(new);
        known.lookups += 1;
        if known.generation == file.generation {
            return None;
        }
        known.generation = file.generation;
        known.kept.take()
    }

    /// Notes that the kernel has forgotten `node` so many times; what has to be closed then.
    #[must_use]
    pub(crate) fn forget(&self, node: u64, times: u64) -> Option<OpenFile> {
        let mut shard = self.shard(node);
        let Entry::Occupied(mut known) = shard.entry(node) else {
            return None;
        };
        let lookups = &mut known.get_mut().lookups;
        *lookups = lookups.saturating_sub(times);
        if *lookups > 0 { None } else { known.remove().kept }
    }

    /// Whether `file` has to be kept if it loses its last name.
    pub(crate) fn is_known(&self, file: FileId) -> bool {
        let known = |known: &Known| known.generation == file.generation && known.kept.is_none();
        self.shard(file.number).get(&file.number).is_some_and(known)
    }

    /// Lets `open` keep its file until the kernel has forgotten it; gives it back if that is so
    /// already, or something else keeps it.
    #[must_use]
    pub(crate) fn keep(&self, open: OpenFile) -> Option<OpenFile> {
        let mut shard = self.shard(open.file.number);
        match shard.get_mut(&open.file.number) {
            Some(known) if known.generation == open.file.generation && known.kept.is_none() => {
                known.kept = Some(open);
                None
            }
            _ => Some(open),
        }
    }

    /// Forgets everything; what has to be closed then.
    #[must_use]
    pub(crate) fn clear(&self) -> Vec<OpenFile> {
        let mut kept = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(shard.drain().filter_map(|(_, known)| known.kept));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_FILE: FileId = FileId { number: 70, generation: 1 };

    fn file(number: u64, generation: u64) -> FileId {
        FileId { number, generation }
    }

    #[test]
    fn the_kernel_forgets_by_counts() {
        let nodes = Nodes::new(ROOT_FILE);
        assert_eq!(nodes.file(ROOT), Some(ROOT_FILE));
        assert_eq!(nodes.number(ROOT_FILE), ROOT);
        assert_eq!(nodes.file(80), None);
        for _ in 0..3 {
            assert!(nodes.tell(file(80, 5)).is_none());
        }
        assert!(nodes.is_known(file(80, 5)));
        assert!(!nodes.is_known(file(80, 4)));
        assert!(nodes.forget(80, 2).is_none());
        assert_eq!(nodes.file(80), Some(file(80, 5)));
        assert!(nodes.forget(80, 1).is_none());
        assert_eq!(nodes.file(80), None);
        assert!(nodes.forget(80, 1).is_none(), "nothing is left to forget");
    }

    #[test]
    fn a_number_that_is_used_again_names_the_new_file() {
        let nodes = Nodes::new(ROOT_FILE);
        assert!(nodes.tell(file(80, 5)).is_none());
        assert!(nodes.tell(file(80, 6)).is_none());
        assert_eq!(nodes.file(80), Some(file(80, 6)));
        assert!(nodes.forget(80, 1).is_none());
        assert_eq!(nodes.file(80), Some(file(80, 6)), "the other count is still to be forgotten");
        assert!(nodes.forget(80, 1).is_none());
        assert_eq!(nodes.file(80), None);
    }
}
