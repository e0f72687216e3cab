//! Requests for ioctl(2): the flags of files, as lsattr(1) and chattr(1) use them. The kernel has
//! checked who may set which.

use conquest_fs::{Errno, Result};
use conquest_fuse::wire::Ioctl;

use crate::caller::Caller;
use crate::server::Server;
use crate::stat;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`: the argument is said to be a `long`, and is an `int`.
const GET_FLAGS: u32 = ioctl(READ, b'f', 1, size_of::<libc::c_long>());
const SET_FLAGS: u32 = ioctl(WRITE, b'f', 2, size_of::<libc::c_long>());
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`: a `struct fsxattr`.
const GET_FSXATTR: u32 = ioctl(READ, b'X', 31, FSXATTR);
const SET_FSXATTR: u32 = ioctl(WRITE, b'X', 32, FSXATTR);
/// `FS_IOC_GETVERSION`: the generation of an inode.
const GET_VERSION: u32 = ioctl(READ, b'v', 1, size_of::<libc::c_long>());

/// Bytes of `struct fsxattr`: flags, extent size, extents, project, copy-on-write size, and 8
/// unused.
const FSXATTR: usize = 28;
const PROJECT_AT: usize = 12;

const WRITE: u32 = 1;
const READ: u32 = 2;

/// The number of a control.
const fn ioctl(direction: u32, group: u8, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (group as u32) << 8 | number
}

/// Flags that have other bits in a `struct fsxattr`: theirs, and those of a file.
const FSX_FLAGS: [(u32, u32); 6] = [
    (0x8, conquest::flag::IMMUTABLE),
    (0x10, conquest::flag::APPEND),
    (0x20, conquest::flag::SYNC),
    (0x40, conquest::flag::NOATIME),
    (0x80, conquest::flag::NODUMP),
    (0x200, conquest::flag::PROJINHERIT),
];

/// What a control tells: up to so many bytes.
pub(crate) type Told = [u8; FSXATTR];

impl Server {
    /// Does what `ioctl` asks for: what is told, and how many bytes of it.
    ///
    /// # Errors
    /// `ENOTTY` for what files don't have.
    pub(crate) fn control(
        &self,
        caller: Caller<'_>,
        node: u64,
        ioctl: &Ioctl<'_>,
    ) -> Result<(Told, usize)> {
        let file = self.file(node)?;
        let stat = || self.fs().stat(file);
        let mut told = [0; FSXATTR];
        let mut tell = |at: usize, word: u32| {
            if let Some(place) = told.get_mut(at..at + 4) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
        };
        let said = |at: usize| -> Result<u32> {
            let word = ioctl.data.get(at..at + 4).and_then(|word| word.try_into().ok());
            Ok(word.map(u32::from_ne_bytes).ok_or(Errno::EINVAL)?)
        };
        let set = |flags, project| self.fs().set_flags(&caller.credentials(), file, flags, project);
        let len = match ioctl.command {
            GET_FLAGS => {
                tell(0, stat()?.flags);
                4
            }
            GET_VERSION => {
                tell(0, stat::short_generation(file.generation));
                4
            }
            SET_FLAGS => {
                set(said(0)?, None)?;
                0
            }
            GET_FSXATTR => {
                let stat = stat()?;
                let has = |(_, of_file): &&(u32, u32)| stat.flags & of_file != 0;
                tell(0, FSX_FLAGS.iter().filter(has).map(|(theirs, _)| theirs).sum());
                tell(PROJECT_AT, stat.project);
                FSXATTR
            }
            SET_FSXATTR => {
                let theirs = said(0)?;
                let known: u32 = FSX_FLAGS.iter().map(|(theirs, _)| theirs).sum();
                if theirs & !known != 0 {
                    return Err(Errno::EOPNOTSUPP.into());
                }
                let has = |(flag, _): &&(u32, u32)| theirs & flag != 0;
                let others = stat()?.flags & conquest::flag::DIRSYNC;
                let flags = FSX_FLAGS.iter().filter(has).map(|(_, of_file)| of_file).sum::<u32>();
                set(flags | others, Some(said(PROJECT_AT)?))?;
                0
            }
            _ => return Err(Errno::ENOTTY.into()),
        };
        Ok((told, len))
    }
}
