//! Open files: `open`, what stays of a file as long as somebody has it open, and `close`.
//!
//! That a file is open stands in a holding of the process that opened it (`conquest_pm::holdings`):
//! a file is kept although it has no name while some process has it open. Opening takes no lock,
//! makes no system call and stores nothing that others read, but for a flag where nobody has had
//! anything open.
//!
//! The words of a holding are the *description*: the position, the flags that can be changed. If
//! several processes share it, all of them use the words of one holding, its *home* ([`share`]).
//!
//! | words of the holding | |
//! | --- | --- |
//! | 1 | position, in bytes, or a directory's cookie; bit 63 if somebody writes there (`position.rs`) |
//! | 2 | not 0 if the description may have locks |
//! | 3 | number of its home, plus one; 0 if it is the home |
//! | 4 | flags, as `F_GETFL` tells them |

mod copy;
mod flags;
mod io;
mod keep;
mod path;
mod position;
pub mod share;
mod sync;
mod unopened;
mod vector;

pub use copy::End;
pub use flags::How;
pub use keep::bury;
pub(crate) use keep::{keeper, orphan_of, present};
pub use position::Whence;
pub use unopened::UNOPENED_MAX;
pub use vector::BUFFERS_MAX;

use conquest_access::{self as access, Credentials, Errno};
use conquest_format::inode::FileType;
use conquest_pm::Holding;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::{FileId, access_list, load, rules_of};
use crate::{FileSystem, Result};

/// Kinds of holdings: a file that is open, one that is open for writing, and a description that is
/// used by others than the one who opened the file.
pub(crate) const OPEN: u8 = 1;
pub(crate) const OPEN_TO_WRITE: u8 = 2;
pub(crate) const DESCRIPTION: u8 = 7;

/// Most bytes that a call moves that has several buffers, or none: as in Linux, 2 GiB without a
/// page.
pub const CALL_MAX: u64 = 0x7FFF_F000;
/// Nanoseconds after which a look is noted although nothing has changed.
const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// An open file of this process. It stays open until [`FileSystem::close`], or the process's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// The file.
    pub file: FileId,
    /// Its type.
    pub file_type: FileType,
    /// How it was opened.
    pub how: How,
    /// When it had been looked at last, if that was more than a day before it was opened.
    pub(crate) old_access: Option<i64>,
    pub(crate) holding: Holding,
    /// Where the description is.
    pub(crate) home: Holding,
    /// In which process of a line of descent it was opened.
    pub(crate) life: Option<u32>,
}

impl How {
    /// The kind of the holding of a file that is opened so.
    pub(crate) const fn kind(&self) -> u8 {
        if self.open.write { OPEN_TO_WRITE } else { OPEN }
    }

    /// The words of the holding of a file that is opened so.
    pub(crate) fn words(&self) -> [u64; 5] {
        [0, 0, 0, 0, self.status().into()]
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Opens `file`, which exists, as the flags of `how` that are not about its name say.
    ///
    /// # Errors
    /// - `EACCES`, `EPERM`: the caller may not;
    /// - `ELOOP`: it is a symbolic link; `EISDIR`: a directory, to write; `ENOTDIR`: none, though
    ///   one was asked for; `ENXIO`: a device, fifo or socket, which only the kernel can open;
    /// - `ENFILE`: too many files are open; [`crate::Error::Stale`]; those of the region.
    pub fn open_file(&self, who: &Credentials, file: FileId, how: &How) -> Result<OpenFile> {
        let number = self.lock_of(file.number);
        let holding = self.core().hold(number, how.kind(), file.number, &how.words())?;
        let opened = self.open_held(who, file, how);
        match opened {
            Ok((file_type, accessed)) => {
                let is_old = self.now().saturating_sub(accessed) >= DAY;
                let old_access = is_old.then_some(accessed);
                let life = self.core().life();
                let home = holding;
                Ok(OpenFile { file, file_type, how: *how, old_access, holding, home, life })
            }
            Err(error) => {
                self.core().let_go(number, holding)?;
                Err(error)
            }
        }
    }

    /// Whether `file`, which can't go, may be opened so: then it is truncated if that is meant. Its
    /// type, and when it was last looked at.
    fn open_held(&self, who: &Credentials, file: FileId, how: &How) -> Result<(FileType, i64)> {
        let checked = self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let acl = access_list(view, &inode)?;
            if how.directory && inode.file_type != FileType::Directory {
                return Err(Errno::ENOTDIR.into());
            }
            if !how.path_only {
                access::open(who, &rules_of(&inode, acl.as_ref()), how.open)?;
            }
            Ok((inode.file_type, inode.atime))
        })?;
        let is_special = !matches!(checked.0, FileType::Regular | FileType::Directory);
        if is_special && !how.path_only {
            return Err(Errno::ENXIO.into());
        }
        if checked.0 == FileType::Regular && how.open.truncate && !how.path_only {
            // Checked once more, as one step with the truncation.
            self.resize(file, 0, |rules| access::open(who, rules, how.open))?;
        }
        Ok(checked)
    }

    /// Whether this process opened `open`: a child does not have what its parent has.
    pub fn is_own(&self, open: &OpenFile) -> bool {
        open.life.is_some() && self.core().life() == open.life
    }

    /// Closes `open`. What it alone kept of the file goes, and so do the locks of its description,
    /// if nobody shares it. It must not be used any more, nor shared at the same time.
    ///
    /// # Errors
    /// `EBADF` if another process opened it ([`Self::is_own`]); those of the region, with which the
    /// file is closed all the same.
    pub fn close(&self, open: &OpenFile) -> Result<()> {
        if !self.is_own(open) {
            return Err(Errno::EBADF.into());
        }
        if open.how.open.write && open.file_type == FileType::Regular {
            // What was allocated ahead is no matter of the one who closes.
            let _trimmed = self.trim(open.file);
            // What stays in the core is none the worse.
            let _pushed = self.push_closed(open.file);
        }
        let is_shared = self.core().look_at(open.holding).is_some_and(|held| held.lasts);
        if !is_shared {
            self.release_locks(open)?;
        }
        Ok(self.core().let_go(self.lock_of(open.file.number), open.holding)?)
    }
}
