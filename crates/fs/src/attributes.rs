//! What is known of a file: `stat`, and changing modes, owners, times and flags.

use conquest_access::{self as access, AclKind, Change, Credentials, Errno, Times};
use conquest_format::PAGE;
use conquest_format::fs::PACKED_SIZES;
use conquest_format::inode::{Content, FileType, Inode, Owner, flag};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content;
use crate::extended::{Attributes, name_of};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, access_list, load, rules_of};
use crate::large::{PAGE_BLOCKS, chunk};
use crate::open::present;
use crate::{Error, FileSystem, Result};

/// The attribute with the capabilities that a program gets.
const CAPABILITIES: &[u8] = b"security.capability";

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
    /// Owning user, in the initial user namespace.
    pub uid: u32,
    /// Owning group, in the initial user namespace.
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

impl Stat {
    /// The same with the numbers by which `who` knows user and group: [`access::OVERFLOW_ID`] for
    /// those whom his namespace does not know.
    #[must_use]
    pub fn seen_by(self, who: &Credentials) -> Stat {
        Stat {
            uid: who.user_number(self.uid).unwrap_or(access::OVERFLOW_ID),
            gid: who.group_number(self.gid).unwrap_or(access::OVERFLOW_ID),
            ..self
        }
    }
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
        flags: inode.flags & flag::OF_USERS,
        project: inode.links.project,
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// What is known of `file`.
    ///
    /// # Errors
    /// [`crate::Error::Stale`] if it is there no more; those of the region.
    pub fn stat(&self, file: FileId) -> Result<Stat> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let mut stat = stat_of(file, &inode);
            if let Content::Large { chunk: at, .. } = inode.content {
                stat.blocks += chunk::load(view, at)?.allocated * PAGE_BLOCKS;
            }
            Ok(stat)
        })
    }

    /// The file with a name that has inode `number` now: for those who keep numbers of files for
    /// longer than they know them, and the generation beside.
    ///
    /// # Errors
    /// [`crate::Error::Stale`] if there is none; those of the region.
    pub fn by_number(&self, number: u64) -> Result<FileId> {
        self.read(number, |view| {
            let file = present(view, number).map_err(|_| Error::Stale)?;
            let (inode, _) = load(view, file)?;
            if inode.links.count == 0 { Err(Error::Stale) } else { Ok(file) }
        })
    }

    /// Whether `who` may access `file` in all the ways of `wanted`.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` if not; [`crate::Error::Stale`].
    pub fn may(&self, who: &Credentials, file: FileId, wanted: access::Access) -> Result<()> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let acl = access_list(view, &inode)?;
            Ok(access::permission(who, &rules_of(&inode, acl.as_ref()), wanted)?)
        })
    }

    /// Copies the target of the symbolic link `file` to `out`, as far as there is room: how many
    /// bytes. [`crate::walk::PATH_MAX`] are always enough.
    ///
    /// # Errors
    /// `EINVAL` if it is none, or there is no room at all; [`crate::Error::Stale`]; those of the
    /// region.
    pub fn read_link(&self, file: FileId, out: &mut [u8]) -> Result<usize> {
        self.read_to(file.number, out, |view, out| {
            let (inode, _) = load(view, file)?;
            if inode.file_type != FileType::Symlink || out.is_empty() {
                return Err(Errno::EINVAL.into());
            }
            let len = inode.size.min(out.len() as u64) as usize;
            let target = out.get_mut(..len).unwrap_or_default();
            content::read_bytes(
                view,
                inode.content,
                inode.size,
                0,
                target,
                &mut content::nothing_far,
            )?;
            Ok(len)
        })
    }

    /// Changes the file's inode by what `rule` says of it.
    pub(crate) fn alter(
        &self,
        file: FileId,
        mut rule: impl FnMut(&mut Tx<'_, M, H>, &mut Draft, i64) -> Result<()>,
    ) -> Result<()> {
        self.run(|tx| {
            self.lock(tx, false, [Some(file)])?;
            let mut draft = Draft::open(tx, file)?;
            rule(tx, &mut draft, self.now())?;
            draft.stage(tx)?;
            Ok(Attempt::Done(()))
        })
    }

    /// Sets the permissions of `file` to the low twelve bits of `mode`.
    ///
    /// # Errors
    /// `EPERM` if the caller may not; `EOPNOTSUPP` for symbolic links; [`crate::Error::Stale`].
    pub fn set_mode(&self, who: &Credentials, file: FileId, mode: u32) -> Result<()> {
        self.alter(file, |tx, draft, now| {
            let change = access::chmod(who, &draft.rules(), mode)?;
            apply(tx, draft, change)?;
            draft.change(now);
            Ok(())
        })
    }

    /// Gives `file` another user, group or both, by the numbers by which the caller knows them.
    ///
    /// # Errors
    /// `EINVAL` if the caller's namespace does not know them; `EPERM` if the caller may not;
    /// [`crate::Error::Stale`].
    pub fn set_owner(
        &self,
        who: &Credentials,
        file: FileId,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let uid = uid.map(|uid| who.user_meant(uid)).transpose()?;
        let gid = gid.map(|gid| who.group_meant(gid)).transpose()?;
        self.alter(file, |tx, draft, now| {
            let change = access::chown(who, &draft.rules(), uid, gid)?;
            apply(tx, draft, change)?;
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
        self.alter(file, |_, draft, now| {
            access::set_times(who, &draft.rules(), times)?;
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
        self.alter(file, |_, draft, now| {
            let changed = project.is_some_and(|project| project != draft.inode.links.project);
            access::set_flags(who, &draft.rules(), flags, changed)?;
            draft.inode.flags = flags | draft.inode.flags & !flag::OF_USERS;
            draft.inode.links.project = project.unwrap_or(draft.inode.links.project);
            draft.change(now);
            Ok(())
        })
    }
}

/// Stages that `draft` is what the rules say that it becomes; itself it is still to be staged.
///
/// # Errors
/// Those of the region.
pub(crate) fn apply<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    change: Change,
) -> Result<()> {
    draft.inode.permissions = (change.mode & 0o7777) as u16;
    draft.inode.owner = Owner { uid: change.uid, gid: change.gid };
    if change.acl.is_none() && !change.drops_capabilities {
        return Ok(());
    }
    let old = Attributes::load(tx, &draft.inode)?;
    let mut new = old.clone();
    if let Some(acl) = change.acl {
        new.set(name_of(AclKind::Access), Some(acl.to_xattr()));
    }
    if change.drops_capabilities {
        new.set(CAPABILITIES, None);
    }
    if new == old { Ok(()) } else { draft.set_attributes(tx, &new) }
}
