//! What a file is as memory.

use std::fmt;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use super::descriptor::{Status, status};
use super::sys::{checked, failed, mapped};
use super::{devdax, mounts};
use crate::{Error, Result};

/// What a region's file is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MediumKind {
    /// A file without a name in shared RAM.
    Memfd,
    /// Shared RAM in ordinary pages.
    Tmpfs,
    /// Shared RAM, mounted with an option that allows huge pages.
    HugeTmpfs {
        /// The value of `huge=`: `always`, `within_size` or `advise`.
        option: String,
    },
    /// Shared RAM that has no limit and is never swapped.
    Ramfs,
    /// Persistent memory as a character device.
    DevDax {
        /// Bytes.
        size: u64,
        /// Mappings start and end at multiples of this.
        align: u64,
    },
    /// Persistent memory under a file system.
    FsDax {
        /// The file system.
        fs: &'static str,
    },
    /// A file on a disk.
    Disk {
        /// The file system.
        fs: &'static str,
    },
}

impl MediumKind {
    /// Whether power failures show on it word by word, so that stores need write-back.
    #[must_use]
    pub const fn is_persistent_memory(&self) -> bool {
        matches!(self, Self::DevDax { .. } | Self::FsDax { .. })
    }

    /// Whether it should be used only where there is nothing better.
    #[must_use]
    pub const fn is_last_resort(&self) -> bool {
        matches!(self, Self::Disk { .. })
    }

    /// Whether small pages of it can be gathered into huge ones.
    pub(super) const fn can_gather(&self) -> bool {
        matches!(self, Self::Memfd | Self::Tmpfs | Self::HugeTmpfs { .. })
    }

    /// What its user should know.
    #[must_use]
    pub const fn note(&self) -> Option<&'static str> {
        match self {
            Self::Disk { .. } => Some(
                "a core on a disk file is a last resort: the kernel writes it back in any order, \
                 so a power failure may leave it unusable, and stores stall while it is written",
            ),
            _ => None,
        }
    }

    /// Mappings of it start and end at multiples of this.
    #[must_use]
    pub const fn granularity(&self) -> u64 {
        match self {
            Self::DevDax { align, .. } => *align,
            _ => conquest_format::PAGE,
        }
    }
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memfd => write!(f, "shared RAM (memfd)"),
            Self::Tmpfs => write!(f, "shared RAM (tmpfs)"),
            Self::HugeTmpfs { option } => {
                write!(f, "shared RAM in huge pages (tmpfs, huge={option})")
            }
            Self::Ramfs => write!(f, "shared RAM (ramfs)"),
            Self::DevDax { .. } => write!(f, "persistent memory (device)"),
            Self::FsDax { fs } => write!(f, "persistent memory ({fs}, DAX)"),
            Self::Disk { fs } => write!(f, "a file on a disk ({fs}), a last resort"),
        }
    }
}

const REMEDY: &str = "tmpfs, a memfd, persistent memory or a local disk file";

/// What files of this mode are, if they can't be shared as memory whatever they are on.
fn unsharable_mode(mode: u32) -> Option<&'static str> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFCHR => None,
        libc::S_IFDIR => Some("directory"),
        libc::S_IFIFO => Some("FIFO"),
        libc::S_IFSOCK => Some("socket"),
        libc::S_IFBLK => Some("block device"),
        _ => Some("file of unknown type"),
    }
}

fn unsharable(path: &Path, kind: String) -> Error {
    Error::Unsharable { path: path.to_owned(), kind, remedy: REMEDY }
}

/// Refuses what must not even be opened.
pub(super) fn check_mode(path: &Path, mode: u32) -> Result<()> {
    match unsharable_mode(mode) {
        Some(kind) => Err(unsharable(path, kind.to_owned())),
        None => Ok(()),
    }
}

/// What the open file `file`, called `path` in errors, is.
pub(super) fn classify(path: &Path, file: &File) -> Result<MediumKind> {
    let status = status(file.as_raw_fd()).map_err(failed(path, "ask what it is"))?;
    check_mode(path, status.mode)?;
    if status.mode & libc::S_IFMT == libc::S_IFCHR {
        let (major, minor) = (libc::major(status.number), libc::minor(status.number));
        return match devdax::device(Path::new("/sys"), major, minor) {
            Some(dax) => Ok(MediumKind::DevDax { size: dax.size, align: dax.align }),
            None => Err(unsharable(path, "character device".to_owned())),
        };
    }
    let magic = magic(file.as_raw_fd()).map_err(failed(path, "ask for its file system"))?;
    match file_system(magic) {
        Ok("tmpfs") => Ok(shared_ram(file, &status)),
        Ok("ramfs") => Ok(MediumKind::Ramfs),
        Ok(fs) if has_dax(file) => Ok(MediumKind::FsDax { fs }),
        Ok(fs) => Ok(MediumKind::Disk { fs }),
        Err(Some(fs)) => Err(unsharable(path, format!("file on {fs}"))),
        Err(None) => {
            Err(unsharable(path, format!("file on an unknown file system (type {magic:#x})")))
        }
    }
}

fn shared_ram(file: &File, status: &Status) -> MediumKind {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if status.links == 0 && name.is_ok_and(|name| name.starts_with("/") && is_memfd(&name)) {
        return MediumKind::Memfd;
    }
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match mounts::huge_option(&text, status.device()) {
        None | Some("never") => MediumKind::Tmpfs,
        Some(option) => MediumKind::HugeTmpfs { option: option.to_owned() },
    }
}

fn is_memfd(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:")
}

/// The file system of a type; an error, named if known, for those whose mappings or locks other
/// machines or daemons are part of, and for those whose pages are not ordinary ones.
fn file_system(magic: u32) -> core::result::Result<&'static str, Option<&'static str>> {
    match magic {
        0x0102_1994 => Ok("tmpfs"),
        0x8584_58f6 => Ok("ramfs"),
        0xef53 => Ok("ext4"),
        0x5846_5342 => Ok("xfs"),
        0x9123_683e => Ok("btrfs"),
        0xf2f5_2010 => Ok("f2fs"),
        0xca45_1a4e => Ok("bcachefs"),
        0x2fc1_2fc1 => Ok("zfs"),
        0x3153_464a => Ok("jfs"),
        0x3434 => Ok("nilfs2"),
        0x794c_7630 => Ok("overlayfs"),
        0x6969 => Err(Some("NFS")),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Err(Some("CIFS")),
        0x6573_5546 => Err(Some("FUSE")),
        0x0102_1997 => Err(Some("9p")),
        0x5346_414f | 0x6b41_4653 => Err(Some("AFS")),
        0x00c3_6400 => Err(Some("Ceph")),
        0x0116_1970 => Err(Some("GFS2")),
        0x7461_636f => Err(Some("OCFS2")),
        0x0bd0_0bd0 => Err(Some("Lustre")),
        0x9584_58f6 => Err(Some("hugetlbfs")),
        0x9fa0 => Err(Some("proc")),
        0x6265_6572 => Err(Some("sysfs")),
        _ => Err(None),
    }
}

fn magic(raw: RawFd) -> std::io::Result<u32> {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the pointer is to a `statfs` of our own.
    checked(unsafe { libc::fstatfs(raw, stat.as_mut_ptr()) })?;
    // SAFETY: fstatfs succeeded, so it filled the structure.
    Ok(unsafe { stat.assume_init() }.f_type as u32)
}

/// Whether stores into a mapping of `file` go straight to persistent memory.
fn has_dax(file: &File) -> bool {
    let page = conquest_format::PAGE as usize;
    let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
    // SAFETY: maps a page at an address that the kernel chooses: no memory of ours is touched.
    let probe = unsafe {
        libc::mmap(core::ptr::null_mut(), page, libc::PROT_READ, flags, file.as_raw_fd(), 0)
    };
    let Ok(probe) = mapped(probe) else {
        return false;
    };
    // SAFETY: the page mapped above, which nobody else knows of.
    unsafe { libc::munmap(probe.cast(), page) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_unknown_file_systems_are_refused() {
        assert_eq!(file_system(0x6969), Err(Some("NFS")));
        assert_eq!(file_system(0x9584_58f6), Err(Some("hugetlbfs")));
        assert_eq!(file_system(0x1234_5678), Err(None));
        assert_eq!(file_system(0xef53), Ok("ext4"));
    }

    #[test]
    fn kinds_say_what_they_are() {
        let disk = MediumKind::Disk { fs: "xfs" };
        assert_eq!(disk.to_string(), "a file on a disk (xfs), a last resort");
        assert!(disk.is_last_resort() && disk.note().is_some());
        assert_eq!(MediumKind::Tmpfs.to_string(), "shared RAM (tmpfs)");
        assert!(MediumKind::Tmpfs.note().is_none());
    }
}
