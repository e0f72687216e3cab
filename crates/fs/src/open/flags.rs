//! How to open a file: the flags of `open` and `openat2`.

use conquest_access::{Errno, Open};

const ACCESS: u32 = libc::O_ACCMODE as u32;
const CREAT: u32 = libc::O_CREAT as u32;
const EXCL: u32 = libc::O_EXCL as u32;
const TRUNC: u32 = libc::O_TRUNC as u32;
const APPEND: u32 = libc::O_APPEND as u32;
const DIRECTORY: u32 = libc::O_DIRECTORY as u32;
const NOFOLLOW: u32 = libc::O_NOFOLLOW as u32;
const NOATIME: u32 = libc::O_NOATIME as u32;
const PATH: u32 = libc::O_PATH as u32;
const DIRECT: u32 = libc::O_DIRECT as u32;
const CLOEXEC: u32 = libc::O_CLOEXEC as u32;
/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const TMPFILE: u32 = libc::O_TMPFILE as u32 & !DIRECTORY;
/// The bit of `O_SYNC` that is not `O_DSYNC`.
const SYNC: u32 = libc::O_SYNC as u32 & !(libc::O_DSYNC as u32);
/// Flags that change nothing of what is opened.
const OTHERS: u32 =
    (libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_DSYNC | libc::O_ASYNC | libc::O_LARGEFILE) as u32
        | LARGEFILE
        | CLOEXEC;
/// `O_LARGEFILE` as the kernel knows it; the C library says 0.
const LARGEFILE: u32 = 0o100_000;
const KNOWN: u32 = ACCESS
    | CREAT
    | EXCL
    | TRUNC
    | APPEND
    | DIRECTORY
    | NOFOLLOW
    | NOATIME
    | PATH
    | TMPFILE
    | SYNC
    | DIRECT
    | OTHERS;
/// Flags that mean something with `O_PATH`.
const WITH_PATH: u32 = PATH | DIRECTORY | NOFOLLOW | CLOEXEC;
/// Bits of a mode that a new file can have.
const PERMISSIONS: u32 = 0o7777;

/// Flags of an open file that can be changed, by `F_SETFL`.
pub(super) const CHANGEABLE: u32 = APPEND | NOATIME | DIRECT;

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// What the rules of access need to know.
    pub open: Open,
    /// Makes the file if there is none, with these permissions (twelve bits).
    pub create: Option<u16>,
    /// Fails if there is one.
    pub exclusive: bool,
    /// Does not follow a symbolic link that is the file.
    pub no_follow: bool,
    /// Only a directory will do.
    pub directory: bool,
    /// The file is only named by what is opened: `O_PATH`.
    pub path_only: bool,
    /// Makes a file without a name in the directory, with `create`'s permissions: `O_TMPFILE`.
    /// With `exclusive` it never gets one.
    pub temporary: bool,
    /// Writes are durable when they return: `O_DSYNC` or `O_SYNC`.
    pub sync: bool,
    /// Whole pages of a large file go to the volume and come from it, not through the core and the
    /// cache: `O_DIRECT`. Whatever is not whole pages is read and written as ever.
    pub direct: bool,
}

impl How {
    /// What the flags of `open` and `openat` mean, which ignore what they don't know.
    ///
    /// # Errors
    /// `EINVAL` if they contradict each other.
    pub fn from_open(flags: u32, mode: u32) -> Result<How, Errno> {
        let flags = flags & if flags & PATH != 0 { WITH_PATH } else { KNOWN };
        // A mode without anything to make is ignored as well.
        let mode = if flags & (CREAT | TMPFILE) != 0 { mode & PERMISSIONS } else { 0 };
        How::from_openat2(flags, mode)
    }

    /// The flags that stay with an open file, as `F_GETFL` tells them.
    pub(crate) fn status(&self) -> u32 {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let access = match (self.open.read, self.open.write) {
            (true, true) => libc::O_RDWR as u32,
            (false, true) => libc::O_WRONLY as u32,
            (_, false) => libc::O_RDONLY as u32,
        };
        access
            | flag(self.open.append, APPEND)
            | flag(self.open.no_access_time, NOATIME)
            | flag(self.path_only, PATH)
            | flag(self.sync, libc::O_DSYNC as u32)
            | flag(self.direct, DIRECT)
    }

    /// How a file was opened whose flags are `status` now.
    pub(super) fn of_status(status: u32) -> How {
        let access = status & ACCESS;
        let path_only = status & PATH != 0;
        How {
            open: Open {
                read: !path_only && access != libc::O_WRONLY as u32,
                write: access != libc::O_RDONLY as u32,
                append: status & APPEND != 0,
                truncate: false,
                no_access_time: status & NOATIME != 0,
            },
            create: None,
            exclusive: false,
            no_follow: false,
            directory: false,
            path_only,
            temporary: false,
            sync: status & libc::O_DSYNC as u32 != 0,
            direct: status & DIRECT != 0,
        }
    }

    /// What the flags of `openat2` mean, which takes only what it knows.
    ///
    /// # Errors
    /// `EINVAL` for what it does not know, or what contradicts itself.
    pub fn from_openat2(flags: u32, mode: u32) -> Result<How, Errno> {
        let makes = flags & (CREAT | TMPFILE) != 0;
        let is_temporary = flags & TMPFILE != 0;
        let writes = matches!(flags & ACCESS, 1..=3);
        let contradicts = flags & !KNOWN != 0
            || mode & !if makes { PERMISSIONS } else { 0 } != 0
            || flags & (CREAT | DIRECTORY) == CREAT | DIRECTORY
            || is_temporary && (flags & DIRECTORY == 0 || !writes)
            || flags & PATH != 0 && flags & !WITH_PATH != 0;
        if contradicts {
            return Err(Errno::EINVAL);
        }
        let access = flags & ACCESS;
        let path_only = flags & PATH != 0;
        Ok(How {
            open: Open {
                read: !path_only && access != 1,
                write: access != 0,
                append: flags & APPEND != 0,
                truncate: flags & TRUNC != 0,
                no_access_time: flags & NOATIME != 0,
            },
            create: makes.then_some(mode as u16),
            exclusive: flags & EXCL != 0,
            no_follow: flags & NOFOLLOW != 0 || flags & (CREAT | EXCL) == CREAT | EXCL,
            directory: flags & DIRECTORY != 0,
            path_only,
            temporary: is_temporary,
            sync: flags & libc::O_DSYNC as u32 != 0,
            direct: flags & DIRECT != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_open_ignores_openat2_refuses() {
        let junk = 1 << 30;
        assert!(How::from_open(junk, 0).is_ok());
        assert_eq!(How::from_openat2(junk, 0), Err(Errno::EINVAL));
        assert!(How::from_open(0, 0o644).is_ok());
        assert_eq!(How::from_openat2(0, 0o644), Err(Errno::EINVAL));
        assert_eq!(How::from_openat2(CREAT, 0o10644), Err(Errno::EINVAL));
        assert!(How::from_open(PATH | TRUNC, 0).is_ok_and(|how| !how.open.truncate));
        assert_eq!(How::from_openat2(PATH | TRUNC, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn a_temporary_file_is_asked_for_in_a_directory_and_for_writing() {
        let whole = libc::O_TMPFILE as u32;
        assert_eq!(How::from_open(whole, 0), Err(Errno::EINVAL));
        assert_eq!(How::from_open(TMPFILE | 2, 0), Err(Errno::EINVAL));
        assert!(How::from_open(whole | 2, 0).is_ok_and(|how| how.temporary && how.open.read));
        assert_eq!(How::from_open(CREAT | DIRECTORY, 0), Err(Errno::EINVAL));
    }
}
