//! Directories: names to inodes (Conquest 2002, 3.3.2).
//!
//! A directory is a radix of hash buckets: extensible hashing without a table that doubles. Its
//! entries stand in pages ("buckets"), each of which holds one range of name hashes; once there is
//! more than one bucket, nodes of 128 slots lead to them, seven bits of the hash at a time. A full
//! bucket is replaced by two; no growth costs more than these and one node. Hashes are keyed, so
//! nobody can choose names that fall together.
//!
//! Invariants:
//! - an entry is one dentry, in the one bucket that its hash leads to. Every change is staged in
//!   one transaction, so nobody finds an entry twice, or not at all, on its way elsewhere;
//! - an entry's [`Position`] is made of its hash and stays the same from its insertion to its
//!   removal. Listings go by position, whatever happens to buckets meanwhile;
//! - every bucket has an entry, every node a slot that is not empty, and no bucket fills a whole
//!   node: a directory without entries has no page;
//! - a bucket, its header and every dentry that is used say themselves where they belong, so a
//!   stray page, pointer or name is refused.
//!
//! Whoever changes a directory holds the lock that guards it exclusively; whoever reads it through
//! a transaction holds it, and whoever reads through a [`conquest_pm::View`] does so in
//! [`conquest_pm::Core::read`] of that lock. To insert an entry:
//!
//! 1. begin a transaction, take the lock and see that the directory is still there;
//! 2. [`Directory::insert`]. If that says [`Insert::NoRoom`], nothing was staged:
//!    [`Directory::make_room`] in this transaction, or, if it has staged other changes, in a new
//!    one; commit, and start again. Somebody else may take the room meanwhile, then it is made
//!    again.
//! 3. stage what else belongs to the change, and commit.
//!
//! A transaction inserts at most one entry into a directory. If it also removes entries there, it
//! does so afterwards: a removal could give back the bucket in which room was made. What it reads
//! of the directory after the insertion may be a bucket that is not allocated before the commit,
//! and so refused.

mod bucket;
mod check;
mod find;
mod insert;
mod list;
mod name;
mod page;
mod path;
mod remove;
mod split;

pub use check::Census;
pub use conquest_format::fs::dentry::{FileType, Position};
pub use insert::Insert;
pub use name::{Key, Name, NameHash};
pub use split::Room;

use conquest_format::Offset;
use conquest_format::fs::NODE;
use conquest_format::kind::Kind;
use conquest_pm::Object;

/// Where the words of a directory's inode are that a directory is kept in. All 0: no entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// The word that leads to the entries: a slot, like those of nodes.
    pub content: Offset,
    /// The word that counts the entries.
    pub entries: Offset,
    /// The word that counts the pages, which are buckets.
    pub pages: Offset,
}

/// A directory: where its root is, and how its names are hashed.
#[derive(Clone, Copy, Debug)]
pub struct Directory<N> {
    root: Root,
    names: N,
}

/// An entry, without its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Offset of the inode that it names.
    pub inode: Offset,
    /// The type of that inode.
    pub file_type: FileType,
    /// Where it stands in its directory.
    pub position: Position,
}

/// A directory node.
#[derive(Debug)]
pub(crate) struct Node;

impl Object for Node {
    const KIND: Kind = NODE;
}

impl<N: NameHash> Directory<N> {
    /// The directory of `root`, whose names are hashed by `names`.
    pub const fn new(root: Root, names: N) -> Self {
        Directory { root, names }
    }

    /// `bytes` as a name, with its hash; none if no entry can have it: it is empty, longer than
    /// 255 bytes, or holds a NUL or a slash.
    pub fn name<'n>(&self, bytes: &'n [u8]) -> Option<Name<'n>> {
        Name::new(bytes, &self.names)
    }
}
