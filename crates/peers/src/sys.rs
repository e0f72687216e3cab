//! System calls, each as a function that returns the error number.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use conquest_access::{Capabilities, Capability, Credentials};

/// What a call returns, or its error number.
pub type Outcome<T = ()> = Result<T, i32>;

/// The error number of the last call.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// What a call has returned.
pub fn check(result: libc::c_long) -> Outcome<libc::c_long> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Calls the kernel without the C library, which has opinions of its own about some calls.
macro_rules! call {
    ($number:ident, $($argument:expr),*) => {
        // SAFETY: the arguments are numbers, or point to values and strings that outlive the call
        // and have the lengths that the call expects.
        $crate::sys::check(unsafe { libc::syscall(libc::$number, $($argument),*) })
    };
}
pub(crate) use call;

/// The working directory: where names are looked up unless a directory is given.
pub const HERE: i32 = libc::AT_FDCWD;
/// Flag: not to follow a symbolic link.
pub const NO_FOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// Opens a file.
///
/// # Errors
/// The error number.
pub fn open(directory: i32, name: &CStr, flags: i32, mode: u32) -> Outcome<File> {
    let raw = call!(SYS_openat, directory, name.as_ptr(), flags | libc::O_CLOEXEC, mode)?;
    // SAFETY: the descriptor is new, and ours.
    Ok(unsafe { File::from_raw_fd(raw as i32) })
}

/// A new file in memory.
///
/// # Errors
/// The error number.
pub fn memory_file(name: &CStr) -> Outcome<OwnedFd> {
    let raw = call!(SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC)?;
    // SAFETY: the descriptor is new, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(raw as i32) })
}

/// Makes a directory the working directory.
pub fn enter(directory: &File) {
    call!(SYS_fchdir, directory.as_raw_fd()).unwrap();
}

/// What is known of a file.
///
/// # Errors
/// The error number.
pub fn stat(directory: i32, name: &CStr, flags: i32) -> Outcome<libc::stat> {
    // SAFETY: all zeros is a value of it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    call!(SYS_newfstatat, directory, name.as_ptr(), &raw mut stat, flags)?;
    Ok(stat)
}

/// Asks for permission.
///
/// # Errors
/// The error number.
pub fn access(name: &CStr, mode: u32) -> Outcome {
    let flags = libc::AT_EACCESS | NO_FOLLOW;
    call!(SYS_faccessat2, HERE, name.as_ptr(), mode, flags).map(drop)
}

/// Sets a mode; the newer call knows symbolic links.
pub fn chmod(name: &CStr, mode: u32, flags: i32) -> Outcome {
    call!(SYS_fchmodat2, HERE, name.as_ptr(), mode, flags).map(drop)
}

/// Sets an owner.
///
/// # Errors
/// The error number.
pub fn chown(name: &CStr, uid: Option<u32>, gid: Option<u32>, flags: i32) -> Outcome {
    let [uid, gid] = [uid, gid].map(|id| id.unwrap_or(u32::MAX));
    call!(SYS_fchownat, HERE, name.as_ptr(), uid, gid, flags).map(drop)
}

/// Sets times, or both to the present.
///
/// # Errors
/// The error number.
pub fn set_times(name: &CStr, times: Option<[libc::timespec; 2]>, flags: i32) -> Outcome {
    let times = times.as_ref().map_or(core::ptr::null(), |times| times.as_ptr());
    call!(SYS_utimensat, HERE, name.as_ptr(), times, flags).map(drop)
}

/// Sets the size, by name.
///
/// # Errors
/// The error number.
pub fn truncate(name: &CStr, size: u64) -> Outcome {
    call!(SYS_truncate, name.as_ptr(), size).map(drop)
}

/// Sets the size, by descriptor.
///
/// # Errors
/// The error number.
pub fn truncate_open(file: &File, size: u64) -> Outcome {
    call!(SYS_ftruncate, file.as_raw_fd(), size).map(drop)
}

/// Writes; how many bytes.
///
/// # Errors
/// The error number.
pub fn write_at(file: &File, offset: u64, bytes: &[u8]) -> Outcome<u64> {
    let len = bytes.len();
    call!(SYS_pwrite64, file.as_raw_fd(), bytes.as_ptr(), len, offset).map(|len| len as u64)
}

/// Reads; how many bytes.
///
/// # Errors
/// The error number.
pub fn read_at(file: &File, offset: u64, bytes: &mut [u8]) -> Outcome<u64> {
    let len = bytes.len();
    call!(SYS_pread64, file.as_raw_fd(), bytes.as_mut_ptr(), len, offset).map(|len| len as u64)
}

/// Reads from the position on; how many bytes.
///
/// # Errors
/// The error number.
pub fn read(file: &File, bytes: &mut [u8]) -> Outcome<u64> {
    let len = bytes.len();
    call!(SYS_read, file.as_raw_fd(), bytes.as_mut_ptr(), len).map(|len| len as u64)
}

/// Writes from the position on; how many bytes.
///
/// # Errors
/// The error number.
pub fn write_all(file: &File, bytes: &[u8]) -> Outcome<u64> {
    let len = bytes.len();
    call!(SYS_write, file.as_raw_fd(), bytes.as_ptr(), len).map(|len| len as u64)
}

/// Sets the position: the new one.
///
/// # Errors
/// The error number.
pub fn seek(file: &File, offset: i64, whence: i32) -> Outcome<u64> {
    call!(SYS_lseek, file.as_raw_fd(), offset, whence).map(|at| at as u64)
}

/// Reads to several buffers, from a place or the position on; how many bytes.
///
/// # Errors
/// The error number.
pub fn read_vector(
    file: &File,
    at: Option<u64>,
    out: &mut [IoSliceMut<'_>],
    flags: u32,
) -> Outcome<u64> {
    // The kernel takes the offset as two halves, of which 64-bit machines have the first one only.
    let (at, len) = (at.unwrap_or(u64::MAX), out.len());
    let read = call!(SYS_preadv2, file.as_raw_fd(), out.as_mut_ptr(), len, at, 0_u64, flags);
    read.map(|len| len as u64)
}

/// Writes several buffers, from a place or the position on; how many bytes.
///
/// # Errors
/// The error number.
pub fn write_vector(
    file: &File,
    at: Option<u64>,
    parts: &[IoSlice<'_>],
    flags: u32,
) -> Outcome<u64> {
    let (at, len) = (at.unwrap_or(u64::MAX), parts.len());
    let written = call!(SYS_pwritev2, file.as_raw_fd(), parts.as_ptr(), len, at, 0_u64, flags);
    written.map(|len| len as u64)
}

/// Makes durable what was written: by `fsync`, `fdatasync` or `syncfs`.
///
/// # Errors
/// The error number.
pub fn sync(file: &File, which: u32) -> Outcome {
    match which {
        0 => call!(SYS_fsync, file.as_raw_fd()),
        1 => call!(SYS_fdatasync, file.as_raw_fd()),
        _ => call!(SYS_syncfs, file.as_raw_fd()),
    }
    .map(drop)
}

/// Writes a range back.
///
/// # Errors
/// The error number.
pub fn sync_range(file: &File, offset: i64, len: i64, flags: u32) -> Outcome {
    call!(SYS_sync_file_range, file.as_raw_fd(), offset, len, flags).map(drop)
}

/// Copies bytes from one open file to another, each at a place or its position; how many.
///
/// # Errors
/// The error number.
pub fn copy_range(
    from: &File,
    to: &File,
    places: [Option<u64>; 2],
    len: u64,
    flags: u32,
) -> Outcome<u64> {
    let mut places = places;
    let [source, target] = places.each_mut().map(|place| match place {
        Some(place) => &raw mut *place,
        None => core::ptr::null_mut(),
    });
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    call!(SYS_copy_file_range, from, source, to, target, len, flags).map(|len| len as u64)
}

/// Gives an open file a name.
///
/// # Errors
/// The error number.
pub fn link_open(file: &File, to: i32, new: &CStr) -> Outcome {
    let flags = libc::AT_EMPTY_PATH;
    call!(SYS_linkat, file.as_raw_fd(), c"".as_ptr(), to, new.as_ptr(), flags).map(drop)
}

/// Writes a byte.
///
/// # Errors
/// The error number.
pub fn write(file: &File) -> Outcome {
    call!(SYS_write, file.as_raw_fd(), c"x".as_ptr(), 1_usize).map(drop)
}

/// Does with a range what `mode` says.
///
/// # Errors
/// The error number.
pub fn allocate(file: &File, mode: i32, from: u64, len: u64) -> Outcome {
    call!(SYS_fallocate, file.as_raw_fd(), mode, from, len).map(drop)
}

/// A record lock: a kind, as `F_RDLCK`, and a range, as `fcntl` is told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// From the start of the file.
    pub offset: i64,
    /// 0 is to the end.
    pub len: i64,
}

/// Sets a record lock, or, if `command` is for that, asks for one that is in the way: which, and
/// whose it is.
///
/// # Errors
/// The error number.
pub fn record(file: &File, command: i32, record: Record) -> Outcome<Option<(Record, i32)>> {
    let mut lock = libc::flock {
        l_type: record.kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: record.offset,
        l_len: record.len,
        l_pid: 0,
    };
    call!(SYS_fcntl, file.as_raw_fd(), command, &raw mut lock)?;
    let kind = i32::from(lock.l_type);
    let found = Record { kind, offset: lock.l_start, len: lock.l_len };
    Ok((kind != libc::F_UNLCK).then_some((found, lock.l_pid)))
}

/// Locks a file by its description, or unlocks it.
///
/// # Errors
/// The error number.
pub fn flock(file: &File, operation: i32) -> Outcome {
    call!(SYS_flock, file.as_raw_fd(), operation).map(drop)
}

/// Sets the flags of an open file: those that can be changed.
///
/// # Errors
/// The error number.
pub fn set_status(file: &File, flags: i32) -> Outcome {
    call!(SYS_fcntl, file.as_raw_fd(), libc::F_SETFL, flags).map(drop)
}

/// From now on the calling thread has descriptors of its own.
pub fn unshare_files() {
    call!(SYS_unshare, libc::CLONE_FILES).unwrap();
}

/// Makes a file of any type but directory and link.
///
/// # Errors
/// The error number.
pub fn make_node(directory: i32, name: &CStr, mode: u32, device: u64) -> Outcome {
    call!(SYS_mknodat, directory, name.as_ptr(), mode, device).map(drop)
}

/// Makes a directory.
///
/// # Errors
/// The error number.
pub fn make_directory(directory: i32, name: &CStr, mode: u32) -> Outcome {
    call!(SYS_mkdirat, directory, name.as_ptr(), mode).map(drop)
}

/// Makes a symbolic link.
///
/// # Errors
/// The error number.
pub fn make_link(target: &CStr, directory: i32, name: &CStr) -> Outcome {
    call!(SYS_symlinkat, target.as_ptr(), directory, name.as_ptr()).map(drop)
}

/// Removes a name.
///
/// # Errors
/// The error number.
pub fn remove(directory: i32, name: &CStr, is_directory: bool) -> Outcome {
    let flags = if is_directory { libc::AT_REMOVEDIR } else { 0 };
    call!(SYS_unlinkat, directory, name.as_ptr(), flags).map(drop)
}

/// Renames, or exchanges names.
///
/// # Errors
/// The error number.
pub fn rename(name: &CStr, to: i32, new: &CStr, flags: u32) -> Outcome {
    call!(SYS_renameat2, HERE, name.as_ptr(), to, new.as_ptr(), flags).map(drop)
}

/// Gives a file another name.
///
/// # Errors
/// The error number.
pub fn link(name: &CStr, to: i32, new: &CStr, flags: i32) -> Outcome {
    call!(SYS_linkat, HERE, name.as_ptr(), to, new.as_ptr(), flags).map(drop)
}

/// The target of a symbolic link.
///
/// # Errors
/// The error number.
pub fn read_link(directory: i32, name: &CStr) -> Outcome<Vec<u8>> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    let (at, room) = (target.as_mut_ptr(), target.len());
    let len = call!(SYS_readlinkat, directory, name.as_ptr(), at, room)?;
    target.truncate(len as usize);
    Ok(target)
}

/// The next entries of an open directory, as `getdents64` gives them: how many bytes.
///
/// # Errors
/// The error number.
pub fn list(directory: &File, entries: &mut [u8]) -> Outcome<usize> {
    let (at, room) = (entries.as_mut_ptr(), entries.len());
    call!(SYS_getdents64, directory.as_raw_fd(), at, room).map(|len| len as usize)
}

/// Makes the working directory, where something is mounted, the root of this process's mount
/// namespace. (Who has only changed his own root can't make user namespaces.)
///
/// # Errors
/// The error number.
pub fn change_root() -> Outcome {
    call!(SYS_pivot_root, c".".as_ptr(), c".".as_ptr())?;
    call!(SYS_umount2, c".".as_ptr(), libc::MNT_DETACH)?;
    call!(SYS_chdir, c"/".as_ptr()).map(drop)
}

/// Sets the mask of new files' permissions.
pub fn umask(mask: u32) {
    call!(SYS_umask, mask).unwrap();
}

/// Copies the value of an attribute; how many bytes it has. No memory asks for that only.
///
/// # Errors
/// The error number.
pub fn get_xattr_to(name: &CStr, attribute: &str, value: &mut [u8]) -> Outcome<usize> {
    let attribute = CString::new(attribute).unwrap();
    let (at, room) = (value.as_mut_ptr(), value.len());
    let length = call!(SYS_lgetxattr, name.as_ptr(), attribute.as_ptr(), at, room)?;
    Ok(length as usize)
}

/// The value of an attribute, of up to 1024 bytes.
///
/// # Errors
/// The error number.
pub fn get_xattr(name: &CStr, attribute: &str) -> Outcome<Vec<u8>> {
    let mut value = vec![0; 1024];
    let len = get_xattr_to(name, attribute, &mut value)?;
    value.truncate(len);
    Ok(value)
}

/// Sets an attribute.
///
/// # Errors
/// The error number.
pub fn set_xattr(name: &CStr, attribute: &str, value: &[u8], flags: i32) -> Outcome {
    let attribute = CString::new(attribute).unwrap();
    let (at, length) = (value.as_ptr(), value.len());
    call!(SYS_lsetxattr, name.as_ptr(), attribute.as_ptr(), at, length, flags).map(drop)
}

/// Removes an attribute.
///
/// # Errors
/// The error number.
pub fn remove_xattr(name: &CStr, attribute: &str) -> Outcome {
    let attribute = CString::new(attribute).unwrap();
    call!(SYS_lremovexattr, name.as_ptr(), attribute.as_ptr()).map(drop)
}

/// Copies the names of all attributes; how many bytes these are. No memory asks for that only.
///
/// # Errors
/// The error number.
pub fn list_xattrs_to(name: &CStr, names: &mut [u8]) -> Outcome<usize> {
    let length = call!(SYS_llistxattr, name.as_ptr(), names.as_mut_ptr(), names.len())?;
    Ok(length as usize)
}

/// The names of all attributes, up to 4096 bytes.
///
/// # Errors
/// The error number.
pub fn list_xattrs(name: &CStr) -> Outcome<Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = list_xattrs_to(name, &mut names)?;
    names.truncate(len);
    Ok(names)
}

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`.
const GET_FLAGS: libc::c_ulong = 0x8008_6601;
const SET_FLAGS: libc::c_ulong = 0x4008_6602;

/// The flags of a file.
///
/// # Errors
/// The error number.
pub fn flags(file: &File) -> Outcome<u32> {
    let mut flags = 0_u32;
    call!(SYS_ioctl, file.as_raw_fd(), GET_FLAGS, &raw mut flags)?;
    Ok(flags)
}

/// Sets the flags of a file.
///
/// # Errors
/// The error number.
pub fn set_flags(file: &File, flags: u32) -> Outcome {
    call!(SYS_ioctl, file.as_raw_fd(), SET_FLAGS, &raw const flags).map(drop)
}

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
const GET_EXTENDED_FLAGS: libc::c_ulong = 0x801C_581F;
const SET_EXTENDED_FLAGS: libc::c_ulong = 0x401C_5820;
/// `FS_IOC_GETVERSION`.
const GET_VERSION: libc::c_ulong = 0x8008_7601;

/// `struct fsxattr`: flags, extent size, extents, project, and what is of no interest.
pub type ExtendedFlags = [u32; 7];

/// The flags of a file as XFS has them, and its project.
///
/// # Errors
/// The error number.
pub fn extended_flags(file: &File) -> Outcome<ExtendedFlags> {
    let mut flags = [0; 7];
    call!(SYS_ioctl, file.as_raw_fd(), GET_EXTENDED_FLAGS, flags.as_mut_ptr())?;
    Ok(flags)
}

/// Sets them.
///
/// # Errors
/// The error number.
pub fn set_extended_flags(file: &File, flags: &ExtendedFlags) -> Outcome {
    call!(SYS_ioctl, file.as_raw_fd(), SET_EXTENDED_FLAGS, flags.as_ptr()).map(drop)
}

/// The generation of a file.
///
/// # Errors
/// The error number.
pub fn version(file: &File) -> Outcome<u32> {
    let mut version = 0_u64;
    call!(SYS_ioctl, file.as_raw_fd(), GET_VERSION, &raw mut version)?;
    Ok(version as u32)
}

/// The capabilities that the kernel lets this process have, bit by bit.
pub struct Privileges {
    permitted: u64,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

impl Privileges {
    /// Takes care that a change of user leaves capabilities alone.
    pub fn take() -> Privileges {
        let mut header = [CAPABILITY_VERSION_3, 0];
        let mut data = [0_u32; 6];
        call!(SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()).unwrap();
        if let Err(error) = call!(SYS_prctl, libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP) {
            panic!("this test has to run as root, with CAP_SETPCAP: error {error}");
        }
        let permitted = u64::from(data[1]) | u64::from(data[4]) << 32;
        for capability in Capability::ALL {
            let is_there = Capabilities(permitted).has(capability);
            assert!(is_there, "this test has to run as root, with {capability:?}");
        }
        Privileges { permitted }
    }

    fn set_effective(&self, effective: u64) {
        let header = [CAPABILITY_VERSION_3, 0];
        let (permitted, effective) = (self.permitted, effective & self.permitted);
        let data = [
            effective as u32,
            permitted as u32,
            0,
            (effective >> 32) as u32,
            (permitted >> 32) as u32,
            0,
        ];
        call!(SYS_capset, header.as_ptr(), data.as_ptr()).unwrap();
    }

    /// From now on the process is `who`.
    pub fn become_user(&self, who: &Credentials) {
        call!(SYS_setgroups, who.groups.len(), who.groups.as_ptr()).unwrap();
        call!(SYS_setresgid, who.fsgid, who.fsgid, who.fsgid).unwrap();
        call!(SYS_setresuid, who.fsuid, who.fsuid, who.fsuid).unwrap();
        call!(SYS_umask, who.umask).unwrap();
        self.set_effective(who.capabilities.0);
    }

    /// From now on the process is root again, in no other group.
    pub fn become_root(&self) {
        self.set_effective(u64::MAX);
        call!(SYS_setgroups, 0_usize, core::ptr::null::<u32>()).unwrap();
        call!(SYS_setresuid, 0, 0, 0).unwrap();
        call!(SYS_setresgid, 0, 0, 0).unwrap();
        call!(SYS_umask, 0).unwrap();
    }
}
