//! What is known of a file: `stat`, and changing modes, owners, times and flags.

use conquest_access::{self as access, Change, Credentials, Errno, File, Times};
use conquest_format::fs::PACKED_SIZES;
use conquest_format::inode::{Content, FileType, Inode, Owner, flag};
use conquest_format::{PAGE, inode};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::blob;
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, load};
use crate::{FileSystem, Result};

/// Bytes in a block of `st_blocks`.
const BLOCK: u64 = 512;

/// What is known of a file. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Which file it is.
    pub file: FileId,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names; of a directory, 2 and its directories; 0 for a file that is only open.
    pub links: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Of a device, its major and minor number.
    pub device: (u32, u32),
    /// Bytes; of a directory, those of its buckets.
    pub size: u64,
    /// Space, in units of 512 bytes.
    pub blocks: u64,
    /// When the content was last read.
    pub atime: i64,
    /// When the content was last modified.
    pub mtime: i64,
    /// When anything was last changed.
    pub ctime: i64,
    /// When the file was made.
    pub btime: i64,
    /// Grows with every change.
    pub change: u64,
    /// Flags, as `FS_IOC_GETFLAGS` tells them.
    pub flags: u32,
    /// Project.
    pub project: u32,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Stays as it is.
    Omit,
    /// The present.
    Now,
    /// This.
    At(i64),
}

/// What the rules of access need to know of a file.
pub(crate) fn rules_of(inode: &Inode) -> File<'static> {
    File {
        mode: inode.mode().st_mode().into(),
        uid: inode.owner.uid,
        gid: inode.owner.gid,
        flags: inode.flags,
        acl: None,
    }
}

fn stat_of(file: FileId, inode: &Inode) -> Stat {
    let packed = match inode.content {
        Content::Packed { class, .. } => PACKED_SIZES.get(class as usize).copied().unwrap_or(0),
        _ => 0,
    };
    let device = match inode.content {
        Content::Device { minor, major } => (major, minor),
        _ => (0, 0),
    };
    let is_directory = inode.file_type == FileType::Directory;
    Stat {
        file,
        mode: inode.mode().st_mode().into(),
        links: inode.links.count,
        uid: inode.owner.uid,
        gid: inode.owner.gid,
        device,
        size: if is_directory { inode.pages * PAGE } else { inode.size },
        blocks: inode.pages * (PAGE / BLOCK) + packed.div_ceil(BLOCK),
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
        change: inode.change,
        flags: inode.flags,
        project: inode.links.project,
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What is known of `file`.
    ///
    /// # Errors
    /// [`crate::Error::Stale`] if it is there no more; those of the region.
    pub fn stat(&self, file: FileId) -> Result<Stat> {
        self.read(file.number, |view| load(view, file).map(|(inode, _)| stat_of(file, &inode)))
    }

    /// Whether `who` may access `file` in all the ways of `wanted`.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` if not; [`crate::Error::Stale`].
    pub fn may(&self, who: &Credentials, file: FileId, wanted: access::Access) -> Result<()> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            Ok(access::permission(who, &rules_of(&inode), wanted)?)
        })
    }

    /// The target of the symbolic link `file`.
    ///
    /// # Errors
    /// `EINVAL` if it is none; [`crate::Error::Stale`]; those of the region.
    pub fn read_link(&self, file: FileId) -> Result<Vec<u8>> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            if inode.file_type != FileType::Symlink {
                return Err(Errno::EINVAL.into());
            }
            let mut target = vec![0; inode.size.min(inode::TARGET_MAX) as usize];
            blob::read(view, inode.content, &mut target)?;
            Ok(target)
        })
    }

    /// Changes the file's inode by what `rule` says of it.
    fn alter(
        &self,
        file: FileId,
        mut rule: impl FnMut(&mut Draft, i64) -> Result<()>,
    ) -> Result<()> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            rule(&mut draft, self.now())?;
            draft.stage(tx)?;
            Ok(Attempt::Done(()))
        })
    }

    /// Sets the permissions of `file` to the low twelve bits of `mode`.
    ///
    /// # Errors
    /// `EPERM` if the caller may not; `EOPNOTSUPP` for symbolic links; [`crate::Error::Stale`].
    pub fn set_mode(&self, who: &Credentials, file: FileId, mode: u32) -> Result<()> {
        self.alter(file, |draft, now| {
            apply(draft, access::chmod(who, &rules_of(&draft.inode), mode)?);
            draft.change(now);
            Ok(())
        })
    }

    /// Gives `file` another user, group or both.
    ///
    /// # Errors
    /// `EPERM` if the caller may not; [`crate::Error::Stale`].
    pub fn set_owner(
        &self,
        who: &Credentials,
        file: FileId,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.alter(file, |draft, now| {
            apply(draft, access::chown(who, &rules_of(&draft.inode), uid, gid)?);
            draft.change(now);
            Ok(())
        })
    }

    /// Sets the times of the last access and modification.
    ///
    /// # Errors
    /// `EPERM`, `EACCES` if the caller may not; [`crate::Error::Stale`].
    pub fn set_times(
        &self,
        who: &Credentials,
        file: FileId,
        atime: SetTime,
        mtime: SetTime,
    ) -> Result<()> {
        let times = match (atime, mtime) {
            (SetTime::Omit, SetTime::Omit) => return Ok(()),
            (SetTime::Now, SetTime::Now) => Times::Now,
            _ => Times::Explicit,
        };
        self.alter(file, |draft, now| {
            access::set_times(who, &rules_of(&draft.inode), times)?;
            for (set, time) in [(atime, &mut draft.inode.atime), (mtime, &mut draft.inode.mtime)] {
                match set {
                    SetTime::Omit => {}
                    SetTime::Now => *time = now,
                    SetTime::At(at) => *time = at,
                }
            }
            draft.change(now);
            Ok(())
        })
    }

    /// Sets the flags of `file` to `flags`, and its project to `project` if given.
    ///
    /// # Errors
    /// `EPERM` if the caller may not; `EOPNOTSUPP` if such a file can't have such a flag;
    /// [`crate::Error::Stale`].
    pub fn set_flags(
        &self,
        who: &Credentials,
        file: FileId,
        flags: u32,
        project: Option<u32>,
    ) -> Result<()> {
        if flags & !flag::KNOWN != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.alter(file, |draft, now| {
            let changed = project.is_some_and(|project| project != draft.inode.links.project);
            access::set_flags(who, &rules_of(&draft.inode), flags, changed)?;
            draft.inode.flags = flags;
            draft.inode.links.project = project.unwrap_or(draft.inode.links.project);
            draft.change(now);
            Ok(())
        })
    }
}

/// Makes `draft` what the rules say that it becomes.
fn apply(draft: &mut Draft, change: Change) {
    draft.inode.permissions = (change.mode & 0o7777) as u16;
    draft.inode.owner = Owner { uid: change.uid, gid: change.gid };
}
