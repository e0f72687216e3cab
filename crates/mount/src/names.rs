//! Requests about names: looking them up, making, linking, renaming and removing files.

use conquest::{FileId, FileType};
use conquest_fs::names::{New, Removal, Renaming};
use conquest_fs::open::{How, OpenFile};
use conquest_fs::{Errno, Error, Result};
use conquest_fuse::wire::{Create, Created, DeviceNumber, Entry};

use crate::caller::Caller;
use crate::server::Server;
use crate::stat;

/// How often a name is looked up again whose file was gone before it was looked at.
const TRIES: usize = 100;

impl Server {
    /// What `name` stands for in the directory `parent`.
    ///
    /// # Errors
    /// `ENOENT`, `ESTALE` and the like.
    pub(crate) fn lookup(&self, caller: Caller<'_>, parent: u64, name: &[u8]) -> Result<Entry> {
        if name == b"." && self.nodes.file(parent).is_none() {
            // A handle of `open_by_handle_at`, of what the kernel does not remember.
            return self.entry(caller, self.fs().by_number(parent)?);
        }
        let directory = self.file(parent)?;
        if name == b"." && self.fs().stat(directory)?.mode & libc::S_IFMT != libc::S_IFDIR {
            return self.entry(caller, directory);
        }
        for _ in 0..TRIES {
            let found = self.fs().lookup(&caller.credentials(), directory, name)?;
            let (file, _) = found.ok_or(Errno::ENOENT)?;
            match self.entry(caller, file) {
                Err(Error::Stale) => {}
                entry => return entry,
            }
        }
        Err(Error::Stale)
    }

    /// `file`, of which the kernel is told.
    pub(crate) fn entry(&self, caller: Caller<'_>, file: FileId) -> Result<Entry> {
        let stat = self.fs().stat(file)?.seen_by(&caller.credentials());
        if let Some(replaced) = self.nodes.tell(file) {
            self.close(&replaced);
        }
        Ok(stat::entry(self.nodes.number(file), &stat, self.options.lifetime))
    }

    /// Takes back that the kernel was told of `node`.
    pub(crate) fn forget(&self, node: u64, times: u64) {
        if let Some(kept) = self.nodes.forget(node, times) {
            self.close(&kept);
        }
    }

    /// Makes a file of type `what` that is called `name`.
    pub(crate) fn make(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: &[u8],
        what: New<'_>,
        mode: u32,
    ) -> Result<Entry> {
        let directory = self.file(parent)?;
        let permissions = (mode & 0o7777) as u16;
        let made = caller.with_space(|caller| {
            self.fs().create(&caller.maker()?, directory, name, what, permissions)
        })?;
        self.entry(caller, made)
    }

    /// Makes a file of the type that `mode` says.
    pub(crate) fn make_node(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Entry> {
        let DeviceNumber { major, minor } = DeviceNumber::from_word(device);
        let what = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => New::Regular,
            libc::S_IFIFO => New::Fifo,
            libc::S_IFSOCK => New::Socket,
            libc::S_IFCHR => New::Character(major, minor),
            libc::S_IFBLK => New::Block(major, minor),
            _ => return Err(Errno::EINVAL.into()),
        };
        self.make(caller, parent, name, what, mode)
    }

    /// Makes a regular file that is called `name`, or finds it, and opens it.
    pub(crate) fn create(
        &self,
        caller: Caller<'_>,
        parent: u64,
        create: &Create<'_>,
    ) -> Result<Created> {
        let directory = self.file(parent)?;
        let caller = caller.masked(create.umask).dropping(create.kill_suidgid);
        let exclusive = create.flags & libc::O_EXCL as u32 != 0;
        let how = self.how(create.flags, FileType::Regular)?;
        let permissions = (create.mode & 0o7777) as u16;
        for _ in 0..TRIES {
            let made = caller.with_space(|caller| {
                self.fs().make_open(&caller.maker()?, directory, create.name, permissions, &how)
            });
            let open = match made {
                Err(Error::Refused(Errno::EEXIST)) if !exclusive => {
                    let found = self.fs().lookup(&caller.credentials(), directory, create.name)?;
                    let Some((file, _)) = found else {
                        continue;
                    };
                    let who = self.as_member(caller, file).credentials();
                    match self.fs().open_file(&who, file, &how) {
                        Err(Error::Stale) => continue,
                        opened => opened?,
                    }
                }
                made => made?,
            };
            return self.created(caller, open);
        }
        Err(Errno::EAGAIN.into())
    }

    /// Makes a file without a name, as if in `parent`, and opens it.
    pub(crate) fn create_temporary(
        &self,
        caller: Caller<'_>,
        parent: u64,
        mode: u32,
        flags: u32,
    ) -> Result<Created> {
        let directory = self.file(parent)?;
        let how = How {
            create: Some((mode & 0o7777) as u16),
            exclusive: flags & libc::O_EXCL as u32 != 0,
            temporary: true,
            ..self.how(flags & !(libc::O_TMPFILE as u32), FileType::Regular)?
        };
        let open = caller
            .with_space(|caller| self.fs().open_temporary(&caller.maker()?, directory, &how))?;
        self.created(caller, open)
    }

    /// What was made and is open, of which the kernel is told.
    fn created(&self, caller: Caller<'_>, open: OpenFile) -> Result<Created> {
        match self.entry(caller, open.file) {
            Ok(entry) => Ok(Created { entry, opened: self.opened(open) }),
            Err(error) => {
                self.close(&open);
                Err(error)
            }
        }
    }

    /// Gives `node` the name `name` besides.
    pub(crate) fn link(
        &self,
        caller: Caller<'_>,
        node: u64,
        parent: u64,
        name: &[u8],
    ) -> Result<Entry> {
        let (file, directory) = (self.file(node)?, self.file(parent)?);
        caller.with_space(|caller| self.fs().link(&caller.credentials(), file, directory, name))?;
        self.entry(caller, file)
    }

    /// Removes `name`.
    pub(crate) fn remove(
        &self,
        caller: Caller<'_>,
        parent: u64,
        name: &[u8],
        how: Removal,
    ) -> Result<()> {
        let directory = self.file(parent)?;
        self.keeping(caller, directory, name, || {
            self.fs().remove(&caller.credentials(), directory, name, how)
        })
    }

    /// Renames `old` to `new`, as the flags of renameat2(2) say.
    pub(crate) fn rename(
        &self,
        caller: Caller<'_>,
        (parent, old): (u64, &[u8]),
        (new_parent, new): (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let how = renaming(flags)?;
        let (from, to) = (self.file(parent)?, self.file(new_parent)?);
        let makes = matches!(how, Renaming::Whiteout | Renaming::WhiteoutNoReplace);
        let rename = || {
            caller.with_space(|caller| {
                let who = if makes { caller.maker()? } else { caller.credentials() };
                self.fs().rename(&who, from, old, to, new, how)
            })
        };
        match how {
            Renaming::Replace | Renaming::Whiteout => self.keeping(caller, to, new, rename),
            _ => rename(),
        }
    }

    /// Does `work`, which may take the last name away from what is called `name` in `directory`: if
    /// the kernel knows it, it is kept until the kernel has forgotten it.
    fn keeping(
        &self,
        caller: Caller<'_>,
        directory: FileId,
        name: &[u8],
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let found = self.fs().lookup(&caller.credentials(), directory, name).ok().flatten();
        let known = found.filter(|(file, _)| self.nodes.is_known(*file));
        let how = How { path_only: true, ..How::default() };
        // If it can't be kept, it is removed all the same.
        let held =
            known.and_then(|(file, _)| self.fs().open_file(&caller.credentials(), file, &how).ok());
        let done = work();
        if let Some(held) = held {
            let is_nameless = self.fs().stat(held.file).is_ok_and(|stat| stat.links == 0);
            let left = if is_nameless { self.nodes.keep(held) } else { Some(held) };
            left.iter().for_each(|open| self.close(open));
        }
        done
    }
}

/// What the flags of renameat2(2) mean.
fn renaming(flags: u32) -> Result<Renaming> {
    Ok(match flags {
        0 => Renaming::Replace,
        libc::RENAME_NOREPLACE => Renaming::NoReplace,
        libc::RENAME_EXCHANGE => Renaming::Exchange,
        libc::RENAME_WHITEOUT => Renaming::Whiteout,
        flags if flags == libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE => {
            Renaming::WhiteoutNoReplace
        }
        _ => return Err(Errno::EINVAL.into()),
    })
}
