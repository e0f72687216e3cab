//! How much there is: what statfs(2) and statvfs(3) tell.

use conquest_format::fs::dentry::NAME_MAX;
use conquest_format::volume::BLOCK;
use conquest_format::{GROUP_PAGES, PAGE};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::FileSystem;
use crate::large::{PAGE_BLOCKS, Room};

/// Bytes that an empty file is counted for: its inode, and its name with what its directory needs
/// for that while its buckets are half empty; names of up to 40 bytes.
const FILE_SPACE: u64 = 256;

/// The numbers of statfs(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statfs {
    /// Bytes in a block; the fragment size of statvfs(3) too.
    pub block: u64,
    /// Blocks that are used or can be had.
    pub blocks: u64,
    /// Blocks that can be had.
    pub free: u64,
    /// Blocks that callers without `CAP_SYS_RESOURCE` can have.
    pub available: u64,
    /// Empty files that [`Self::blocks`] would hold. Inodes have no space of their own, and are not
    /// counted: less [`Self::files_free`] it is not how many files there are.
    pub files: u64,
    /// Empty files that [`Self::free`] would hold.
    pub files_free: u64,
    /// Most bytes in a name.
    pub name_max: u64,
    /// The file system's id.
    pub id: u64,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Bytes that the volume has for large files, if there is one that can be asked.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        let room = self.space().ok().and_then(|space| space.room().ok());
        room.map_or(0, |room| room.blocks * BLOCK)
    }

    /// How much there is, from the lanes' counts: it takes no lock and makes no system call. What
    /// others do meanwhile may be seen in part. Only the layer above knows the file system's `id`,
    /// and for how many `pages` there is space below: those that are used, and what the region can
    /// still grow to. What the volume has for large files is added, if it can be asked; it is room
    /// for their data alone, so of files there can be no more.
    #[must_use]
    pub fn statfs(&self, id: u64, pages: u64) -> Statfs {
        let most = self.core().geometry().shape().max_groups * GROUP_PAGES;
        // The lanes are not read at once, so a page may seem to be freed before it was used.
        let used = self.core().pages_used().cast_signed().max(0).cast_unsigned().min(most);
        let blocks = pages.clamp(used, most);
        let free = blocks - used;
        let files = |blocks: u64| blocks * (PAGE / FILE_SPACE);
        let room = self.space().ok().and_then(|space| space.room().ok()).unwrap_or_default();
        let far = Room { blocks: room.blocks / PAGE_BLOCKS, free: room.free / PAGE_BLOCKS };
        Statfs {
            block: PAGE,
            blocks: blocks + far.blocks,
            free: free + far.free,
            available: free.min((most - used).saturating_sub(self.reserve())) + far.free,
            files: files(blocks),
            files_free: files(free),
            name_max: NAME_MAX,
            id,
        }
    }
}
