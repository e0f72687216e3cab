//! Random files in two directories, and what root sees of them.

use core::fmt;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;

use conquest_access::{Acl, Capabilities, Capability, Entry, Qualifier, flag};
use conquest_testkit::Rng;

use conquest_peers::machine::Kind;
use conquest_peers::sys;

/// Users, and groups, that appear.
pub const IDS: [u32; 4] = [0, 1001, 1002, 1003];
pub const ACL_NAMES: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
pub const CAPABILITY: &str = "security.capability";
/// A value of `security.capability`: version 2, one capability.
pub const CAPABILITY_VALUE: [u8; 20] = [0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Flags by which tmpfs and ext4 can mark files, as far as the rules know them.
pub const TMPFS_FLAGS: u32 = flag::IMMUTABLE | flag::APPEND | flag::OF_ANY;
pub const EXT4_FLAGS: u32 = flag::OF_DIRECTORY;

/// What is seen of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    pub number: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub flags: u32,
    pub acl: Option<Acl>,
    pub default_acl: Option<Acl>,
    /// Names of its other attributes.
    pub names: BTreeSet<String>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { number, mode, uid, gid, flags, acl, default_acl, names } = self;
        write!(f, "#{number} {mode:o} {uid}:{gid} {flags:#x} {names:?}")?;
        for (name, acl) in [("list", acl), ("default", default_acl)] {
            for entry in acl.iter().flat_map(Acl::entries) {
                write!(f, " {name} {:?} {:o}", entry.qualifier, entry.permissions)?;
            }
        }
        Ok(())
    }
}

impl Seen {
    pub fn file(&self) -> conquest_access::File<'_> {
        let Seen { mode, uid, gid, flags, ref acl, .. } = *self;
        conquest_access::File { mode, uid, gid, flags, acl: acl.as_ref() }
    }

    pub fn is(&self, file_type: u32) -> bool {
        self.mode & libc::S_IFMT == file_type
    }

    /// Whether it can be opened without side effects.
    fn is_plain(&self) -> bool {
        self.is(libc::S_IFREG) || self.is(libc::S_IFDIR)
    }
}

/// Names in the directories: directory and name of each.
pub const PLACES: [(usize, &CStr); 3] = [(0, c"f"), (0, c"n"), (1, c"n")];

/// Everything there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub directories: [Seen; 2],
    /// At each of [`PLACES`].
    pub files: [Option<Seen>; 3],
}

impl Snapshot {
    pub fn source(&self) -> &Seen {
        self.files[0].as_ref().unwrap()
    }
}

/// Two directories on a file system.
pub struct World<'a> {
    root: &'a File,
    kind: Kind,
    pub directories: [File; 2],
}

const NAMES: [&CStr; 2] = [c"d", c"e"];
const LOOK: i32 = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;

fn see(directory: &File, name: &CStr) -> Option<Seen> {
    let stat = sys::stat(directory.as_raw_fd(), name, sys::NO_FOLLOW).ok()?;
    sys::enter(directory);
    let listed = sys::list_xattrs(name).unwrap();
    let listed = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut names: BTreeSet<String> =
        listed.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    let mut list = |attribute: &str| {
        names.remove(attribute).then(|| {
            let value = sys::get_xattr(name, attribute).unwrap();
            Acl::from_xattr(&value).unwrap().unwrap()
        })
    };
    let (acl, default_acl) = (list(ACL_NAMES[0]), list(ACL_NAMES[1]));
    let (number, mode, uid, gid) = (stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid);
    let mut seen = Seen { number, mode, uid, gid, flags: 0, acl, default_acl, names };
    if seen.is_plain() {
        let file = sys::open(directory.as_raw_fd(), name, LOOK, 0).unwrap();
        seen.flags = sys::flags(&file).unwrap() & EXT4_FLAGS;
    }
    Some(seen)
}

pub fn random_acl(rng: &mut Rng) -> Acl {
    let digit = |rng: &mut Rng| if rng.chance(1, 2) { 7 } else { rng.below(8) as u16 };
    let mut entries = vec![(Qualifier::Owner, digit(rng))];
    for _ in 0..rng.below(3) {
        let qualifier = Qualifier::User(IDS[rng.below(4) as usize]);
        entries.push((qualifier, digit(rng)));
    }
    entries.push((Qualifier::OwningGroup, digit(rng)));
    for _ in 0..rng.below(3) {
        let qualifier = Qualifier::Group(IDS[rng.below(4) as usize]);
        entries.push((qualifier, digit(rng)));
    }
    if entries.len() > 2 || rng.chance(1, 4) {
        entries.push((Qualifier::Mask, digit(rng)));
    }
    entries.push((Qualifier::Other, digit(rng)));
    let entry = |(qualifier, permissions)| Entry { qualifier, permissions };
    Acl::new(entries.into_iter().map(entry)).unwrap()
}

pub fn random_permissions(rng: &mut Rng) -> u32 {
    let any = rng.below(0o10000) as u32;
    match rng.below(4) {
        0 => any,
        1 => any & 0o7000 | 0o755,
        2 => any & 0o7000 | 0o777,
        _ => any & 0o777,
    }
}

pub fn random_flags(rng: &mut Rng, kind: Kind, file_type: u32) -> u32 {
    let (of_regular, of_directory) = match kind {
        Kind::Tmpfs => (TMPFS_FLAGS, TMPFS_FLAGS),
        Kind::Ext4 => (flag::OF_REGULAR, flag::OF_DIRECTORY),
    };
    let possible = match file_type {
        libc::S_IFREG => of_regular,
        libc::S_IFDIR => of_directory,
        _ => 0,
    };
    // Synchronous files are as slow as they sound.
    let slow = if rng.chance(1, 64) { 0 } else { flag::SYNC | flag::DIRSYNC };
    let fixed = if rng.chance(1, 3) { 0 } else { flag::IMMUTABLE | flag::APPEND };
    rng.word() as u32 & rng.word() as u32 & possible & !slow & !fixed
}

pub fn random_capabilities(rng: &mut Rng) -> Capabilities {
    let mut one = || Capability::ALL[rng.below(9) as usize];
    let few = Capabilities::NONE.with(one()).with(one());
    match rng.below(6) {
        0 => Capabilities::ALL,
        1 => Capabilities(rng.word()),
        2 | 3 => few,
        _ => Capabilities::NONE,
    }
}

pub const TYPES: [u32; 12] = [
    libc::S_IFREG,
    libc::S_IFREG,
    libc::S_IFREG,
    libc::S_IFREG,
    libc::S_IFREG,
    libc::S_IFDIR,
    libc::S_IFDIR,
    libc::S_IFDIR,
    libc::S_IFLNK,
    libc::S_IFIFO,
    libc::S_IFCHR,
    libc::S_IFSOCK,
];

/// The null device.
pub const DEVICE: u64 = libc::makedev(1, 3);

impl<'a> World<'a> {
    /// New directories and files at random; root is asking.
    pub fn make(root: &'a File, kind: Kind, rng: &mut Rng, exists: [bool; 3]) -> World<'a> {
        let directories = NAMES.map(|name| {
            sys::make_directory(root.as_raw_fd(), name, 0o700).unwrap();
            sys::open(root.as_raw_fd(), name, LOOK | libc::O_DIRECTORY, 0).unwrap()
        });
        let world = World { root, kind, directories };
        for ((directory, name), _) in PLACES.iter().zip(exists).filter(|(_, exists)| *exists) {
            let file_type = TYPES[rng.below(12) as usize];
            world.make_file(rng, &world.directories[*directory], name, file_type);
        }
        for name in NAMES {
            world.decorate(rng, world.root, name, libc::S_IFDIR, 3);
        }
        world
    }

    fn make_file(&self, rng: &mut Rng, directory: &File, name: &CStr, file_type: u32) {
        let raw = directory.as_raw_fd();
        match file_type {
            libc::S_IFDIR => sys::make_directory(raw, name, 0o700),
            libc::S_IFLNK => sys::make_link(c"nowhere", raw, name),
            _ => sys::make_node(raw, name, file_type | 0o600, DEVICE),
        }
        .unwrap();
        self.decorate(rng, directory, name, file_type, 2);
    }

    /// Gives the file an owner, a mode and so on. One in `open` gets a mode that lets nobody in.
    fn decorate(&self, rng: &mut Rng, directory: &File, name: &CStr, file_type: u32, open: u64) {
        sys::enter(directory);
        let [uid, gid] = [(); 2].map(|()| IDS[rng.below(4) as usize]);
        sys::chown(name, Some(uid), Some(gid), sys::NO_FOLLOW).unwrap();
        if rng.chance(1, 4) {
            sys::set_xattr(name, "trusted.a", b"value", 0).unwrap();
        }
        if rng.chance(1, 4) {
            sys::set_xattr(name, "security.a", b"value", 0).unwrap();
        }
        if file_type == libc::S_IFLNK {
            return;
        }
        let mut permissions = random_permissions(rng);
        if rng.chance(open - 1, open) {
            permissions |= 0o11;
        }
        sys::chmod(name, permissions, sys::NO_FOLLOW).unwrap();
        if rng.chance(1, 3) {
            sys::set_xattr(name, ACL_NAMES[0], &random_acl(rng).to_xattr(), 0).unwrap();
        }
        if file_type == libc::S_IFDIR && rng.chance(1, 3) {
            sys::set_xattr(name, ACL_NAMES[1], &random_acl(rng).to_xattr(), 0).unwrap();
        }
        if rng.chance(1, 4) {
            sys::set_xattr(name, CAPABILITY, &CAPABILITY_VALUE, 0).unwrap();
        }
        if [libc::S_IFREG, libc::S_IFDIR].contains(&file_type) {
            if rng.chance(1, 4) {
                sys::set_xattr(name, "user.a", b"value", 0).unwrap();
            }
            let flags = random_flags(rng, self.kind, file_type);
            set_flags(directory, name, flags);
        }
    }

    /// What root sees.
    pub fn snapshot(&self) -> Snapshot {
        let directories = NAMES.map(|name| see(self.root, name).unwrap());
        let files = PLACES.map(|(directory, name)| see(&self.directories[directory], name));
        Snapshot { directories, files }
    }

    /// The file at `f`, open for reading and writing, whatever its flags say.
    pub fn open_source(&self) -> File {
        let directory = &self.directories[0];
        let flags = set_flags(directory, c"f", 0);
        let open = libc::O_RDWR | libc::O_NOFOLLOW;
        let file = sys::open(directory.as_raw_fd(), c"f", open, 0).unwrap();
        set_flags(directory, c"f", flags);
        file
    }

    /// The regular file or directory at `f`, open for looking at it.
    pub fn look_at_source(&self) -> File {
        sys::open(self.directories[0].as_raw_fd(), c"f", LOOK, 0).unwrap()
    }

    /// Removes everything; root is asking.
    pub fn remove(self) {
        for name in NAMES {
            set_flags(self.root, name, 0);
        }
        for (directory, name) in PLACES {
            let directory = &self.directories[directory];
            let Ok(stat) = sys::stat(directory.as_raw_fd(), name, sys::NO_FOLLOW) else {
                continue;
            };
            let file_type = stat.st_mode & libc::S_IFMT;
            if [libc::S_IFREG, libc::S_IFDIR].contains(&file_type) {
                set_flags(directory, name, 0);
            }
            sys::remove(directory.as_raw_fd(), name, file_type == libc::S_IFDIR).unwrap();
        }
        for name in NAMES {
            sys::remove(self.root.as_raw_fd(), name, true).unwrap();
        }
    }
}

/// Sets the flags that the rules know, as root; returns what they were.
fn set_flags(directory: &File, name: &CStr, flags: u32) -> u32 {
    let file = sys::open(directory.as_raw_fd(), name, LOOK, 0).unwrap();
    let before = sys::flags(&file).unwrap();
    if before & EXT4_FLAGS != flags {
        sys::set_flags(&file, before & !EXT4_FLAGS | flags).unwrap();
    }
    before & EXT4_FLAGS
}
