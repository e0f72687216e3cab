//! Random operations, and how the kernel is asked to do them.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;

use conquest_access::{Open, flag};
use conquest_testkit::Rng;

use super::world::{
    ACL_NAMES, CAPABILITY_VALUE, DEVICE, EXT4_FLAGS, IDS, TMPFS_FLAGS, TYPES, World, random_acl,
    random_permissions,
};
use conquest_peers::machine::Kind;
use conquest_peers::sys::{self, HERE, Outcome};

/// Something done to the file `f` in the working directory, or beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Access(u32),
    Open(Open),
    Chmod(u32),
    Chown(Option<u32>, Option<u32>),
    /// The two times, as nanoseconds: `UTIME_NOW`, `UTIME_OMIT` or a time.
    SetTimes(Option<[i64; 2]>),
    Truncate,
    TruncateOpen,
    Write,
    Allocate {
        punches: bool,
    },
    SetFlags(u32),
    Create {
        mode: u32,
        is_whiteout: bool,
        by_open: bool,
    },
    Remove {
        as_directory: bool,
    },
    /// To name `n` in this directory (0) or the other one (1).
    Rename {
        to: usize,
        exchanges: bool,
    },
    Link {
        to: usize,
    },
    Get(String),
    Set(String, Vec<u8>),
    Unset(String),
    List,
}

const KINDS: u64 = 18;
const NAMES: [&str; 13] = [
    "user.a",
    "user.a",
    "user.",
    "trusted.a",
    "trusted.",
    "security.a",
    "security.",
    "security.capability",
    "security.capability",
    "system.a",
    "foreign.a",
    ACL_NAMES[0],
    ACL_NAMES[1],
];

fn random_id(rng: &mut Rng) -> Option<u32> {
    rng.chance(2, 3).then(|| IDS[rng.below(4) as usize])
}

/// A value for the attribute `name`, sometimes a bad one.
fn random_value(rng: &mut Rng, name: &str) -> Vec<u8> {
    let is_list = ACL_NAMES.contains(&name);
    let mut value = match name {
        _ if is_list => random_acl(rng).to_xattr(),
        "security.capability" => CAPABILITY_VALUE.to_vec(),
        _ => b"value".to_vec(),
    };
    match rng.below(8) {
        0 => value.clear(),
        1 => value.truncate(rng.below(value.len() as u64) as usize),
        2 if is_list || name.ends_with("capability") => {
            let at = rng.below(value.len() as u64) as usize;
            value[at] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    value
}

impl Operation {
    pub fn random(rng: &mut Rng, kind: Kind) -> Operation {
        let to = rng.below(2) as usize;
        let name = NAMES[rng.below(13) as usize].to_owned();
        match rng.below(KINDS) {
            0 => Operation::Access(rng.below(8) as u32),
            1 => Operation::Open(random_open(rng)),
            2 => Operation::Chmod(random_permissions(rng)),
            3 => Operation::Chown(random_id(rng), random_id(rng)),
            4 => Operation::SetTimes(random_times(rng)),
            5 => Operation::Truncate,
            6 => Operation::TruncateOpen,
            7 => Operation::Write,
            8 if kind == Kind::Ext4 => Operation::Allocate { punches: rng.chance(1, 2) },
            8 | 9 => {
                let possible = if kind == Kind::Ext4 { EXT4_FLAGS } else { TMPFS_FLAGS };
                let sync = flag::SYNC | flag::DIRSYNC;
                let possible = if rng.chance(1, 64) { possible } else { possible & !sync };
                Operation::SetFlags(rng.word() as u32 & rng.word() as u32 & possible)
            }
            10 => random_create(rng),
            11 => Operation::Remove { as_directory: rng.chance(1, 3) },
            12 => Operation::Rename { to, exchanges: rng.chance(1, 4) },
            13 => Operation::Link { to },
            14 => Operation::Get(name),
            15 => {
                let value = random_value(rng, &name);
                Operation::Set(name, value)
            }
            16 => Operation::Unset(name),
            _ => Operation::List,
        }
    }

    /// Which of the places it wants a file at. `f` is always there.
    pub fn wants(&self, rng: &mut Rng) -> [bool; 3] {
        match self {
            Operation::Rename { exchanges, .. } => {
                let part = if *exchanges { 7 } else { 4 };
                [true, rng.chance(part, 8), rng.chance(part, 8)]
            }
            Operation::Create { .. } => [true, false, false],
            _ => [true, rng.chance(1, 16), rng.chance(1, 16)],
        }
    }

    /// What kind of operation it is.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Access(_) => "access",
            Operation::Open(_) => "open",
            Operation::Chmod(_) => "chmod",
            Operation::Chown(..) => "chown",
            Operation::SetTimes(_) => "utimensat",
            Operation::Truncate => "truncate",
            Operation::TruncateOpen => "ftruncate",
            Operation::Write => "write",
            Operation::Allocate { .. } => "fallocate",
            Operation::SetFlags(_) => "set flags",
            Operation::Create { .. } => "create",
            Operation::Remove { .. } => "unlink, rmdir",
            Operation::Rename { .. } => "rename",
            Operation::Link { .. } => "link",
            Operation::Get(_) => "getxattr",
            Operation::Set(..) => "setxattr",
            Operation::Unset(_) => "removexattr",
            Operation::List => "listxattr",
        }
    }

    /// Whether it needs the file open, and thus a regular one.
    pub fn needs_open(&self) -> bool {
        use Operation::{Allocate, TruncateOpen, Write};
        matches!(self, TruncateOpen | Write | Allocate { .. })
    }

    /// Asks the kernel. `open` is the file, opened by root.
    pub fn perform(&self, world: &World, open: Option<&File>) -> Outcome<Vec<u8>> {
        let name = c"f";
        let directory = |at: usize| world.directories[at].as_raw_fd();
        let open = || open.unwrap();
        match self {
            Operation::Access(mode) => sys::access(name, *mode),
            Operation::Open(how) => sys::open(HERE, name, open_flags(how), 0).map(drop),
            Operation::Chmod(mode) => sys::chmod(name, *mode, sys::NO_FOLLOW),
            Operation::Chown(uid, gid) => sys::chown(name, *uid, *gid, sys::NO_FOLLOW),
            Operation::SetTimes(times) => {
                let time = |tv_nsec| libc::timespec { tv_sec: 1, tv_nsec };
                sys::set_times(name, times.map(|times| times.map(time)), sys::NO_FOLLOW)
            }
            Operation::Truncate => sys::truncate(name, 0),
            Operation::TruncateOpen => sys::truncate_open(open(), 1),
            Operation::Write => sys::write(open()),
            Operation::Allocate { punches } => {
                let punch = if *punches { libc::FALLOC_FL_PUNCH_HOLE } else { 0 };
                sys::allocate(open(), libc::FALLOC_FL_KEEP_SIZE | punch, 0, 4096)
            }
            Operation::SetFlags(flags) => {
                let before = sys::flags(open()).unwrap();
                sys::set_flags(open(), before & !EXT4_FLAGS | flags)
            }
            Operation::Create { mode, is_whiteout, by_open } => {
                create(*mode, *is_whiteout, *by_open)
            }
            Operation::Remove { as_directory } => sys::remove(HERE, name, *as_directory),
            Operation::Rename { to, exchanges } => sys::rename(
                name,
                directory(*to),
                c"n",
                if *exchanges { libc::RENAME_EXCHANGE } else { 0 },
            ),
            Operation::Link { to } => sys::link(name, directory(*to), c"n", 0),
            Operation::Get(attribute) => return sys::get_xattr(name, attribute),
            Operation::Set(attribute, value) => sys::set_xattr(name, attribute, value, 0),
            Operation::Unset(attribute) => sys::remove_xattr(name, attribute),
            Operation::List => return sys::list_xattrs(name),
        }
        .map(|()| Vec::new())
    }
}

fn random_open(rng: &mut Rng) -> Open {
    let mode = rng.below(3);
    Open {
        read: mode != 1,
        write: mode != 0,
        append: rng.chance(1, 2),
        truncate: rng.chance(1, 3),
        no_access_time: rng.chance(1, 4),
    }
}

fn open_flags(how: &Open) -> i32 {
    let flag = |is_set: bool, flag: i32| if is_set { flag } else { 0 };
    let mode = match (how.read, how.write) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    mode | flag(how.append, libc::O_APPEND)
        | flag(how.truncate, libc::O_TRUNC)
        | flag(how.no_access_time, libc::O_NOATIME)
        | libc::O_NOFOLLOW
        | libc::O_NONBLOCK
}

fn random_times(rng: &mut Rng) -> Option<[i64; 2]> {
    let times = [libc::UTIME_NOW, libc::UTIME_OMIT, 5];
    rng.chance(2, 3).then(|| [(); 2].map(|()| times[rng.below(3) as usize]))
}

fn random_create(rng: &mut Rng) -> Operation {
    let file_type = TYPES[rng.below(12) as usize];
    Operation::Create {
        mode: file_type | random_permissions(rng),
        is_whiteout: file_type == libc::S_IFCHR && rng.chance(1, 2),
        by_open: file_type == libc::S_IFREG && rng.chance(2, 3),
    }
}

fn create(mode: u32, is_whiteout: bool, by_open: bool) -> Outcome {
    let name: &CStr = c"n";
    let device = if is_whiteout { 0 } else { DEVICE };
    match mode & libc::S_IFMT {
        libc::S_IFREG if by_open => {
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
            sys::open(HERE, name, flags, mode & 0o7777).map(drop)
        }
        libc::S_IFDIR => sys::make_directory(HERE, name, mode & 0o7777),
        libc::S_IFLNK => sys::make_link(c"nowhere", HERE, name),
        _ => sys::make_node(HERE, name, mode, device),
    }
}
