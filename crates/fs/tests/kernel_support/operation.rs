//! Random operations on paths.

use conquest_fs::names::Renaming;
use conquest_testkit::Rng;

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
}

/// What an operation tells, besides its success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Nothing,
    Target(Vec<u8>),
    Names(Vec<(Vec<u8>, u8)>),
    /// Mode, links, user, group, device, and size if it is no directory.
    Stat([u64; 6]),
}

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

/// Paths that exist: of all files, and of directories.
#[derive(Default)]
pub struct Known {
    pub files: Vec<String>,
    pub directories: Vec<String>,
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

impl Operation {
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
        match rng.below(32) {
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
        }
    }
}
