//! Opening by a path, and making what is opened.

use conquest_access::{Credentials, Errno};
use conquest_format::inode::FileType;
use conquest_pm::Holding;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::FileId;
use crate::names::New;
use crate::open::{How, OpenFile};
use crate::paths::Path;
use crate::walk::{End, check_path};
use crate::{Error, FileSystem, Result};

/// Times that opening begins anew because what it found was gone when it wanted to open it.
const TRIES: u32 = 1000;

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Opens the file at `path`, as `how` says; makes it if that is meant.
    ///
    /// # Errors
    /// Those of walks, of [`Self::open_file`] and of [`Self::create`]; and
    /// - `EEXIST`: it exists, though it was to be made;
    /// - `EISDIR`: it is a directory, or would be one by its slash, though it was to be made.
    pub fn open_at(&self, who: &Credentials, path: Path<'_>, how: &How) -> Result<OpenFile> {
        check_path(path.bytes)?;
        for _ in 0..TRIES {
            match self.try_open(who, path, how) {
                // Removed, or made, since it was looked for.
                Err(Error::Stale) => {}
                Err(Error::Refused(Errno::EEXIST)) if how.create.is_some() && !how.exclusive => {}
                opened => return opened,
            }
        }
        Err(Errno::EAGAIN.into())
    }

    fn try_open(&self, who: &Credentials, path: Path<'_>, how: &How) -> Result<OpenFile> {
        if how.temporary {
            let (directory, _) = self.walk(who, path.base, path.bytes, !how.no_follow)?;
            return self.open_temporary(who, directory, how);
        }
        let end =
            self.walk_to_end(who, path.base, path.bytes, !how.no_follow, how.create.is_some())?;
        let End { directory, name, slash, found } = &end;
        if how.create.is_some() && *slash {
            return Err(Errno::EISDIR.into());
        }
        match (*found, how.create) {
            (Some(_), Some(_)) if how.exclusive => Err(Errno::EEXIST.into()),
            (Some((_, FileType::Directory)), Some(_)) => Err(Errno::EISDIR.into()),
            (Some((_, file_type)), _)
                if (*slash || how.directory) && file_type != FileType::Directory =>
            {
                Err(Errno::ENOTDIR.into())
            }
            (Some((file, _)), _) => self.open_file(who, file, how),
            (None, Some(permissions)) => {
                let name = name.as_ref().map_or(&b""[..], |name| name.bytes());
                self.make_open(who, *directory, name, permissions, how)
            }
            (None, None) => Err(Errno::ENOENT.into()),
        }
    }

    /// Makes a regular file named `name` in `directory`, and opens it: nothing is asked of its
    /// mode.
    ///
    /// # Errors
    /// Those of [`Self::create`]; `ENFILE`.
    pub fn make_open(
        &self,
        who: &Credentials,
        directory: FileId,
        name: &[u8],
        permissions: u16,
        how: &How,
    ) -> Result<OpenFile> {
        let mut held = None;
        let made = self.create_then(who, directory, name, New::Regular, permissions, |tx, file| {
            let number = self.lock_of(file.number);
            held = Some((number, tx.hold(number, how.kind(), file.number, &how.words())?));
            Ok(())
        });
        self.opened(made, held, how)
    }

    /// Makes a file without a name in `directory`, with the permissions of `how`, and opens it.
    ///
    /// # Errors
    /// Those of [`Self::create`], but for those of a name; `ENFILE`.
    pub fn open_temporary(
        &self,
        who: &Credentials,
        directory: FileId,
        how: &How,
    ) -> Result<OpenFile> {
        let mut held = None;
        let made = self.create_nameless(who, directory, how, |tx, file| {
            let number = self.lock_of(file.number);
            let holding = tx.hold(number, how.kind(), file.number, &how.words())?;
            held = Some((number, holding));
            Ok(holding)
        });
        self.opened(made, held, how)
    }

    /// What was made and is held under a lock, as an open file; what was not made is let go of.
    fn opened(
        &self,
        made: Result<FileId>,
        held: Option<(u32, Holding)>,
        how: &How,
    ) -> Result<OpenFile> {
        match (made, held) {
            (Ok(file), Some((_, holding))) => Ok(OpenFile {
                file,
                file_type: FileType::Regular,
                how: *how,
                old_access: None,
                holding,
                home: holding,
                life: self.core().life(),
            }),
            (Ok(_), None) => Err(Errno::EIO.into()),
            (Err(error), Some((number, holding))) => {
                self.core().let_go(number, holding)?;
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }
}
