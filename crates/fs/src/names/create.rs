//! Making files: with a name, each of its type.

use conquest_access::{Acl, AclKind, Credentials, Errno, create, new_file};
use conquest_format::Offset;
use conquest_format::fs::dentry::NAME_MAX;
use conquest_format::inode::{Content, FileType, Links, Owner, TARGET_MAX, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Holding, Tx};

use crate::content;
use crate::dir::{Insert, Name};
use crate::extended::{Attributes, access_list, name_of};
use crate::feed::{NoticeKind, tell_name};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, NewInode};
use crate::names::{LINKS_MAX, LocalName, again, hashed, open_directory};
use crate::open::{How, orphan_of};
use crate::{FileSystem, Result};

/// What to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum New<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to this.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device: major and minor number. With both 0 it is a whiteout.
    Character(u32, u32),
    /// A block device: major and minor number.
    Block(u32, u32),
}

impl New<'_> {
    /// The type of what is made.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        match self {
            New::Regular => FileType::Regular,
            New::Directory => FileType::Directory,
            New::Symlink(_) => FileType::Symlink,
            New::Fifo => FileType::Fifo,
            New::Socket => FileType::Socket,
            New::Character(..) => FileType::Character,
            New::Block(..) => FileType::Block,
        }
    }

    const fn is_whiteout(&self) -> bool {
        matches!(self, New::Character(0, 0))
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Makes a file of type `what` named `name` in the directory `parent`, with those of the
    /// `permissions` (twelve bits) that the caller's mask leaves.
    ///
    /// # Errors
    /// - `ENOENT`: the directory is gone, or the name or a link's target is empty;
    /// - `ENOTDIR`: it is no directory;
    /// - `EEXIST`: the name is taken, or is `.` or `..`;
    /// - `EACCES`, `EPERM`: the caller may not;
    /// - `ENAMETOOLONG`: the name, or a link's target (4,095 bytes);
    /// - `EMLINK`: the directory has as many directories as it can;
    /// - `EINVAL`: no file can have the name, or no link the target: it has a byte that is 0;
    /// - `ENOSPC`.
    pub fn create(
        &self,
        who: &Credentials,
        parent: FileId,
        name: &[u8],
        what: New<'_>,
        permissions: u16,
    ) -> Result<FileId> {
        self.create_then(who, parent, name, what, permissions, |_, _| Ok(()))
    }

    /// [`Self::create`], with what `then` stages besides: it is called last.
    pub(crate) fn create_then(
        &self,
        who: &Credentials,
        parent: FileId,
        name: &[u8],
        what: New<'_>,
        permissions: u16,
        mut then: impl FnMut(&mut Tx<'_, M, H>, FileId) -> Result<()>,
    ) -> Result<FileId> {
        let mut target = [0; TARGET_MAX as usize];
        let what = match what {
            New::Symlink([]) => return Err(Errno::ENOENT.into()),
            // No program could read it whole.
            New::Symlink(bytes) if bytes.contains(&0) => return Err(Errno::EINVAL.into()),
            New::Symlink(bytes) => {
                let local = target.get_mut(..bytes.len()).ok_or(Errno::ENAMETOOLONG)?;
                local.copy_from_slice(bytes);
                New::Symlink(local)
            }
            what => what,
        };
        let local = LocalName::new(name);
        let mut is_full = false;
        self.run(|tx| {
            self.keep_reserve(tx, who);
            self.lock(tx, false, [Some(parent)])?;
            let mut directory = open_directory(tx, who, parent)?;
            let name = new_name(name, local.as_ref())?;
            let name = hashed(self.key(), name)?;
            if directory.directory(self.key()).find(tx, &name)?.is_some() {
                return Err(Errno::EEXIST.into());
            }
            if is_full {
                is_full = self.make_room(tx, &directory, &name)?;
                if is_full {
                    return Ok(Attempt::Prepared);
                }
            }
            let (file, fits) = self.stage_new(tx, who, &mut directory, &name, what, permissions)?;
            is_full = !fits;
            if is_full {
                return again();
            }
            directory.stage(tx)?;
            then(tx, file)?;
            Ok(Attempt::Done(file))
        })
    }

    /// Makes a regular file without a name, as if in the directory `parent`, which is kept by the
    /// holding that `keep` makes. It can get a name unless `how` is exclusive.
    ///
    /// # Errors
    /// Those of [`Self::create`], but for those of a name.
    pub(crate) fn create_nameless(
        &self,
        who: &Credentials,
        parent: FileId,
        how: &How,
        mut keep: impl FnMut(&mut Tx<'_, M, H>, FileId) -> Result<Holding>,
    ) -> Result<FileId> {
        self.run(|tx| {
            self.keep_reserve(tx, who);
            self.lock(tx, false, [Some(parent)])?;
            let directory = open_directory(tx, who, parent)?;
            let permissions = how.create.unwrap_or(0);
            let own = if how.exclusive { 0 } else { flag::LINKABLE };
            let what = Making { what: New::Regular, permissions, links: 0, own };
            let (_, file) = self.stage_inode(tx, who, &directory, &what)?;
            let holding = keep(tx, file)?;
            tx.set_orphan(holding, orphan_of(file.number)?)?;
            Ok(Attempt::Done(file))
        })
    }

    /// Stages the new file and its name; whether there is room for the name. If not, nothing of the
    /// transaction may be committed.
    fn stage_new(
        &self,
        tx: &mut Tx<'_, M, H>,
        who: &Credentials,
        directory: &mut Draft,
        name: &Name<'_>,
        what: New<'_>,
        permissions: u16,
    ) -> Result<(FileId, bool)> {
        let is_directory = what == New::Directory;
        let links = &mut directory.inode.links.count;
        if *links == 0 {
            return Err(Errno::ENOENT.into());
        }
        if is_directory {
            *links = links.checked_add(1).ok_or(Errno::EMLINK)?;
        }
        const _: () = assert!(LINKS_MAX == u32::MAX);
        let links = if is_directory { 2 } else { 1 };
        let making = Making { what, permissions, links, own: 0 };
        let (at, file) = self.stage_inode(tx, who, directory, &making)?;
        let now = self.now();
        let entries = directory.directory(self.key());
        let inserted = entries.insert(tx, name, at, what.file_type())?;
        directory.touch(now);
        match inserted {
            Insert::Done(_) => {
                directory.is_told = true;
                let told = (file, is_directory);
                tell_name(tx, NoticeKind::Created, told, directory.file, name.bytes())?;
                Ok((file, true))
            }
            Insert::Exists(_) => Err(Errno::EEXIST.into()),
            Insert::NoRoom => Ok((file, false)),
        }
    }

    /// Stages the inode of a new file in `directory`: where it is.
    fn stage_inode(
        &self,
        tx: &mut Tx<'_, M, H>,
        who: &Credentials,
        directory: &Draft,
        making: &Making<'_>,
    ) -> Result<(Offset, FileId)> {
        let Making { what, permissions, links, own } = *making;
        let rules = directory.rules();
        let st_mode = u32::from(what.file_type().number()) << 12 | u32::from(permissions);
        create(who, &rules, st_mode, what.is_whiteout())?;
        let default = access_list(tx, &directory.inode, AclKind::Default)?;
        let new = new_file(who, &rules, default.as_ref(), st_mode);
        let attributes = stage_lists(tx, &new)?;
        let (content, size, pages) = stage_content(tx, what)?;
        let project = match directory.inode.flags & flag::PROJINHERIT {
            0 => 0,
            _ => directory.inode.links.project,
        };
        let can_have_threshold = what.file_type().threshold_word().is_some();
        let inode = NewInode {
            file_type: what.file_type(),
            permissions: (new.mode & 0o7777) as u16,
            flags: new.flags | own,
            owner: Owner { uid: new.uid, gid: new.gid },
            links: Links { count: links, project },
            content,
            size,
            pages,
            attributes,
            parent: (what == New::Directory).then_some(directory.file.number),
            threshold: directory.inode.threshold.filter(|_| can_have_threshold),
        };
        let (made, file) = inode.stage(tx, self.now())?;
        Ok((made.offset(), file))
    }
}

/// A file to make.
struct Making<'a> {
    what: New<'a>,
    /// Permissions that are asked for, twelve bits.
    permissions: u16,
    /// Names that it begins with.
    links: u32,
    /// Flags that nobody is told of.
    own: u32,
}

/// `name`, copied to `local`, if a new file can have it.
pub(super) fn new_name<'n>(name: &[u8], local: Option<&'n LocalName>) -> Result<&'n [u8]> {
    match name {
        [] => Err(Errno::ENOENT.into()),
        b"." | b".." => Err(Errno::EEXIST.into()),
        _ if name.len() as u64 > NAME_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ => Ok(local.map(LocalName::bytes).unwrap_or_default()),
    }
}

/// Stages the access lists of a new file: the word that leads to them.
pub(super) fn stage_lists<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    new: &conquest_access::New,
) -> Result<u64> {
    let mut attributes = Attributes::default();
    for (kind, list) in [(AclKind::Access, &new.acl), (AclKind::Default, &new.default_acl)] {
        attributes.set(name_of(kind), list.as_ref().map(Acl::to_xattr));
    }
    Ok(attributes.stage(tx)?.ok_or(Errno::ENOSPC)?)
}

/// Stages the content of a new file: what the inode says of it, its size and its pages.
fn stage_content<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    what: New<'_>,
) -> Result<(Content, u64, u64)> {
    Ok(match what {
        New::Regular | New::Fifo | New::Socket => (Content::None, 0, 0),
        New::Directory => (Content::Directory { root: 0 }, 0, 0),
        New::Symlink(target) => {
            let (content, pages) = content::stage(tx, target)?;
            (content, target.len() as u64, pages)
        }
        New::Character(major, minor) | New::Block(major, minor) => {
            (Content::Device { minor, major }, 0, 0)
        }
    })
}
