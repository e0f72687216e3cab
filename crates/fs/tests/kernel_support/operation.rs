//! Random operations on paths.

use conquest_access::{Acl, Entry, Qualifier};
use conquest_fs::content::Allocate;
use conquest_fs::names::Renaming;
use conquest_fs::xattr::Setting;
use conquest_testkit::Rng;

use super::handles::{HANDLES, OnOpen};

/// A file to make with `mknod`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    Regular,
    Fifo,
    Socket,
    Character(u32, u32),
    Block(u32, u32),
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    Omit,
    Now,
    At(i64),
}

/// An operation. The last field of some says whether a symbolic link is followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Mkdir(String, u32),
    Mknod(String, Node, u32),
    Symlink(String, String),
    Link(String, String, bool),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, Renaming),
    Stat(String, bool),
    ReadLink(String),
    List(String),
    Chmod(String, u32),
    Chown(String, Option<u32>, Option<u32>, bool),
    SetTimes(String, Time, Time, bool),
    /// Opens a regular file, and reads so many bytes from a place on.
    Read(String, u64, u64),
    /// Opens a regular file, and writes so many bytes to a place, or to the end.
    Write(String, Option<u64>, u64),
    Truncate(String, u64),
    /// Opens a regular file, and does this with so many bytes from a place on.
    Allocate(String, Allocate, u64, u64),
    /// With room for so many bytes.
    GetAttribute(String, String, usize),
    SetAttribute(String, String, Vec<u8>, Setting),
    RemoveAttribute(String, String),
    /// With room for so many bytes.
    ListAttributes(String, usize),
    /// Does something with a descriptor.
    Handle(u64, OnOpen),
}

/// What an operation tells, besides its success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Nothing,
    Target(Vec<u8>),
    Names(Vec<(Vec<u8>, u8)>),
    /// Mode, links, user, group, device, and size if it is no directory.
    Stat([u64; 6]),
    Read(Vec<u8>),
    Written(u64),
    /// Its length, and what there was room for.
    Attribute(usize, Vec<u8>),
    Attributes(usize, Vec<Vec<u8>>),
}

/// The largest file on ext4 with blocks of 4 KiB.
pub const SIZE_MAX: u64 = 0xFFFF_FFFF << 12;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "ee"];

fn name(rng: &mut Rng) -> String {
    match rng.below(60) {
        0 => ".".into(),
        1 => "..".into(),
        2 => "n".repeat(255),
        3 => "n".repeat(256),
        _ => NAMES[rng.below(NAMES.len() as u64) as usize].into(),
    }
}

/// Paths that exist: of all files, of directories, and of regular files.
#[derive(Default)]
pub struct Known {
    pub files: Vec<String>,
    pub directories: Vec<String>,
    pub regular: Vec<String>,
}

fn any<'a>(rng: &mut Rng, known: &'a [String]) -> &'a str {
    known.get(rng.below(known.len() as u64 + 1) as usize).map_or("", |path| path)
}

/// A path: mostly one that exists, or a name in a directory.
fn path(rng: &mut Rng, known: &Known) -> String {
    match rng.below(8) {
        0..=2 => any(rng, &known.files).to_owned(),
        3..=5 => {
            let name = name(rng);
            format!("{}/{name}", any(rng, &known.directories))
        }
        6 => format!("{}/{}", any(rng, &known.files), name(rng)),
        _ => random_path(rng),
    }
}

fn random_path(rng: &mut Rng) -> String {
    let count = 1 + rng.below(6) / 2;
    let names: Vec<String> = (0..count).map(|_| name(rng)).collect();
    let mut path = names.join(if rng.chance(1, 20) { "//" } else { "/" });
    if rng.chance(1, 8) {
        path.insert(0, '/');
    }
    if rng.chance(1, 12) {
        path.push('/');
    }
    match rng.below(200) {
        0 => String::new(),
        1 => "/".into(),
        _ => path,
    }
}

fn target(rng: &mut Rng, known: &Known) -> String {
    match rng.below(30) {
        0 => "t".repeat(1 + rng.below(4095) as usize),
        1 => "t/".repeat(2048),
        2 => "t".repeat(2049),
        _ => path(rng, known),
    }
}

/// A mode that leaves most doors open. Not sticky: the kernel may be set to follow no links there.
fn mode(rng: &mut Rng) -> u32 {
    match rng.below(6) {
        0 if rng.chance(1, 4) => rng.below(0o10000) as u32 & !0o1000,
        1 => 0o755,
        2 => 0o700,
        _ => 0o777,
    }
}

fn id(rng: &mut Rng) -> Option<u32> {
    let ids = [0, 1001, 1002, 1003];
    rng.chance(2, 3).then(|| ids[rng.below(4) as usize])
}

fn time(rng: &mut Rng) -> Time {
    match rng.below(4) {
        0 => Time::Omit,
        1 => Time::Now,
        _ => Time::At(rng.below(4_000_000_000_000_000_000) as i64),
    }
}

/// A place in a file, or a number of bytes.
fn place(rng: &mut Rng) -> u64 {
    match rng.below(12) {
        0 => 0,
        1 => rng.below(64) << 12,
        2..=3 => rng.below(200_000),
        4..=6 => rng.below(9000),
        _ => rng.below(300),
    }
}

/// A size that may be too large, or make no sense at all.
fn size(rng: &mut Rng) -> u64 {
    match rng.below(30) {
        0 => SIZE_MAX,
        1 => SIZE_MAX + 1,
        2 => 1 << 63,
        _ => place(rng),
    }
}

fn access_list(rng: &mut Rng) -> Acl {
    let mut entries = vec![Qualifier::Owner];
    if rng.chance(1, 2) {
        entries.push(Qualifier::User(1001 + rng.below(3) as u32));
    }
    entries.push(Qualifier::OwningGroup);
    if rng.chance(1, 2) {
        entries.push(Qualifier::Group(1001 + rng.below(3) as u32));
    }
    if entries.len() > 2 || rng.chance(1, 4) {
        entries.push(Qualifier::Mask);
    }
    entries.push(Qualifier::Other);
    let mut entry = |qualifier| {
        let permissions = if rng.chance(2, 3) { 7 } else { rng.below(8) as u16 };
        Entry { qualifier, permissions }
    };
    Acl::new(entries.into_iter().map(&mut entry)).unwrap()
}

/// A value of `security.capability`, or nearly one.
fn capability(rng: &mut Rng) -> Vec<u8> {
    let is_rooted = rng.chance(1, 2);
    let version = if is_rooted { 0x0300_0000_u32 } else { 0x0200_0000 } | rng.below(2) as u32;
    let roots = [0, 1001, 1002, 1003, 7000, u32::MAX];
    let root = is_rooted.then(|| roots[rng.below(6) as usize]);
    let words = [Some(version), Some(0x401), Some(0), Some(0), Some(0), root];
    let mut value: Vec<u8> = words.into_iter().flatten().flat_map(u32::to_le_bytes).collect();
    if rng.chance(1, 12) {
        value.pop();
    }
    value
}

/// The name of an attribute, and a value that it might have.
fn attribute(rng: &mut Rng) -> (String, Vec<u8>) {
    let list = |default: &str| format!("system.posix_acl_{default}");
    let value = vec![rng.below(3) as u8; rng.below(120) as usize];
    match rng.below(17) {
        0 => ("user.".into(), value),
        1 => ("nobody.knows".into(), value),
        2 => (format!("user.{}", "n".repeat(250 + rng.below(2) as usize)), value),
        3 => (String::new(), value),
        4 => ("security.s".into(), value),
        15 => ("security.capability".into(), capability(rng)),
        5 | 6 => ("trusted.t".into(), value),
        7 => (list("access"), value),
        8..=10 => (list("access"), access_list(rng).to_xattr()),
        11 | 12 => (list("default"), access_list(rng).to_xattr()),
        number => (format!("user.{number}"), value),
    }
}

impl Operation {
    /// An operation on extended attributes.
    fn on_attributes(rng: &mut Rng, known: &Known) -> Operation {
        let (name, value) = attribute(rng);
        let how = [Setting::Any, Setting::Any, Setting::Create, Setting::Replace];
        let file = path(rng, known);
        let room = [0, rng.below(150) as usize, 1024, 1024][rng.below(4) as usize];
        match rng.below(8) {
            0 => Operation::GetAttribute(file, name, room),
            1 => Operation::RemoveAttribute(file, name),
            2 => Operation::ListAttributes(file, room),
            _ => Operation::SetAttribute(file, name, value, how[rng.below(4) as usize]),
        }
    }

    /// An operation on a descriptor.
    fn on_handle(rng: &mut Rng, known: &Known) -> Operation {
        let regular = any(rng, &known.regular).to_owned();
        let directory = any(rng, &known.directories).to_owned();
        let paths = [path(rng, known), regular, format!("{directory}/.")];
        let (size, mode) = (place(rng), mode(rng));
        Operation::Handle(rng.below(HANDLES), OnOpen::random(rng, paths, size, mode))
    }

    /// An operation on the content of a file.
    fn on_content(rng: &mut Rng, known: &Known) -> Operation {
        let keeps_size = rng.chance(1, 2);
        let file = any(rng, &known.regular).to_owned();
        match rng.below(12) {
            0..=2 => Operation::Read(file, place(rng), place(rng)),
            3..=4 => Operation::Write(file, None, place(rng)),
            5..=7 => Operation::Write(file, Some(place(rng)), place(rng)),
            8 => Operation::Truncate(path(rng, known), size(rng)),
            9 => Operation::Truncate(file, size(rng)),
            10 => Operation::Allocate(file, Allocate::Space { keeps_size }, place(rng), place(rng)),
            _ if rng.chance(1, 2) => {
                Operation::Allocate(file, Allocate::Zeros { keeps_size }, place(rng), place(rng))
            }
            _ => Operation::Allocate(file, Allocate::Hole, place(rng), place(rng)),
        }
    }

    /// Of which some paths are `known` to exist.
    pub fn random(rng: &mut Rng, known: &Known) -> Operation {
        let how = [
            Renaming::Replace,
            Renaming::Replace,
            Renaming::Replace,
            Renaming::NoReplace,
            Renaming::Exchange,
            Renaming::Whiteout,
            Renaming::WhiteoutNoReplace,
        ];
        match rng.below(55) {
            45.. => Operation::on_handle(rng, known),
            40..=44 => Operation::on_attributes(rng, known),
            32..=39 => Operation::on_content(rng, known),
            0..=3 => Operation::Mkdir(path(rng, known), mode(rng)),
            4..=6 => {
                let major = rng.below(3) as u32;
                let node = match rng.below(8) {
                    0 => Node::Fifo,
                    1 => Node::Socket,
                    2 => Node::Character(major, rng.below(1 << 20) as u32),
                    3 => Node::Block(major, 3),
                    4 => Node::Character(0, 0),
                    _ => Node::Regular,
                };
                Operation::Mknod(path(rng, known), node, mode(rng))
            }
            7..=8 => Operation::Symlink(target(rng, known), path(rng, known)),
            9..=10 => Operation::Link(path(rng, known), path(rng, known), rng.chance(1, 3)),
            11..=14 => Operation::Unlink(path(rng, known)),
            15..=16 => Operation::Rmdir(path(rng, known)),
            17..=22 => {
                Operation::Rename(path(rng, known), path(rng, known), how[rng.below(7) as usize])
            }
            23 => Operation::Stat(path(rng, known), rng.chance(1, 2)),
            24 => Operation::ReadLink(path(rng, known)),
            25 => Operation::List(path(rng, known)),
            26..=27 => Operation::Chmod(path(rng, known), mode(rng)),
            28..=29 => Operation::Chown(path(rng, known), id(rng), id(rng), rng.chance(1, 2)),
            _ => Operation::SetTimes(path(rng, known), time(rng), time(rng), rng.chance(1, 2)),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Operation::Mkdir(..) => "mkdir",
            Operation::Mknod(..) => "mknod",
            Operation::Symlink(..) => "symlink",
            Operation::Link(..) => "link",
            Operation::Unlink(..) => "unlink",
            Operation::Rmdir(..) => "rmdir",
            Operation::Rename(..) => "rename",
            Operation::Stat(..) => "stat",
            Operation::ReadLink(..) => "readlink",
            Operation::List(..) => "list",
            Operation::Chmod(..) => "chmod",
            Operation::Chown(..) => "chown",
            Operation::SetTimes(..) => "utimens",
            Operation::Read(..) => "read",
            Operation::GetAttribute(..) => "getxattr",
            Operation::SetAttribute(..) => "setxattr",
            Operation::RemoveAttribute(..) => "removexattr",
            Operation::ListAttributes(..) => "listxattr",
            Operation::Handle(_, what) => what.name(),
            Operation::Write(..) => "write",
            Operation::Truncate(..) => "truncate",
            Operation::Allocate(_, Allocate::Hole, ..) => "punch",
            Operation::Allocate(_, Allocate::Space { .. }, ..) => "allocate",
            Operation::Allocate(_, Allocate::Zeros { .. }, ..) => "zero",
        }
    }
}
