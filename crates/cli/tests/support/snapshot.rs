//! Everything that can be known of a tree on the host, found independently of the program: by
//! `std` and `rustix`, directory by directory, so that no path is too long.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags, SeekFrom};

/// What is known of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Type and mode.
    pub mode: u32,
    pub owner: (u32, u32),
    /// 0 for directories, whose sizes are the file system's business.
    pub size: i64,
    pub mtime: (i64, i64),
    /// None for directories: who looks at them changes it.
    pub atime: Option<(i64, i64)>,
    pub device: u64,
    /// The first path of the same file.
    pub first: Vec<u8>,
    pub target: Vec<u8>,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    pub flags: u32,
    /// A regular file's bytes that are in no hole of a page: where, and what.
    pub bytes: Vec<(u64, Vec<u8>)>,
}

pub type Tree = BTreeMap<Vec<u8>, File>;

/// Everything at and below `root`; paths are relative to it.
pub fn take(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut first = HashMap::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME;
    let root = fs::open(root, flags, Mode::empty()).unwrap();
    let file = look(&root, ".", b"", &mut first);
    tree.insert(Vec::new(), file);
    walk(&root, &[], &mut tree, &mut first);
    tree
}

fn walk(
    directory: &OwnedFd,
    path: &[u8],
    tree: &mut Tree,
    first: &mut HashMap<(u64, u64), Vec<u8>>,
) {
    let mut names: Vec<CString> =
        Dir::read_from(directory).unwrap().map(|it| it.unwrap().file_name().to_owned()).collect();
    names.sort();
    for name in names {
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        let below = [path, b"/", name.as_bytes()].concat();
        let file = look(directory, &name, &below, first);
        let is_directory = file.mode & libc::S_IFMT == libc::S_IFDIR;
        tree.insert(below.clone(), file);
        if is_directory {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
            let child = fs::openat(directory, &name, flags, Mode::empty()).unwrap();
            walk(&child, &below, tree, first);
        }
    }
}

fn look(
    directory: &OwnedFd,
    name: impl rustix::path::Arg + Copy,
    path: &[u8],
    first: &mut HashMap<(u64, u64), Vec<u8>>,
) -> File {
    let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let kind = stat.st_mode & libc::S_IFMT;
    let place = fs::openat(
        directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    let own = format!("/proc/self/fd/{}", place.as_raw_fd());
    let is_directory = kind == libc::S_IFDIR;
    let first = match is_directory {
        true => path.to_vec(),
        false => first.entry((stat.st_dev, stat.st_ino)).or_insert(path.to_vec()).clone(),
    };
    let (mut bytes, mut flags) = (Vec::new(), 0);
    if kind == libc::S_IFREG || is_directory {
        let how = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
        let open = fs::open(&own, how, Mode::empty()).unwrap();
        flags = fs::ioctl_getflags(&open).map_or(0, |flags| flags.bits()) & 0x2001_00F8;
        if !is_directory {
            bytes = data(&open);
        }
    }
    File {
        mode: stat.st_mode,
        owner: (stat.st_uid, stat.st_gid),
        size: if is_directory { 0 } else { stat.st_size },
        mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
        atime: (kind == libc::S_IFREG).then_some((stat.st_atime, stat.st_atime_nsec as i64)),
        device: stat.st_rdev,
        first,
        target: match kind == libc::S_IFLNK {
            true => fs::readlinkat(directory, name, Vec::new()).unwrap().into_bytes(),
            false => Vec::new(),
        },
        attributes: attributes(&own),
        flags,
        bytes,
    }
}

/// Bytes that are not zeros, in pieces of a page: holes, and pages of zeros, are left out.
fn data(file: &OwnedFd) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = fs::seek(file.as_fd(), SeekFrom::Data(at)) {
        let end = fs::seek(file.as_fd(), SeekFrom::Hole(start)).unwrap();
        at = start / 4096 * 4096;
        while at < end {
            let mut page = vec![0; 4096];
            let len = rustix::io::pread(file, page.as_mut_slice(), at).unwrap();
            page.truncate(len);
            if page.iter().any(|byte| *byte != 0) {
                found.push((at, page));
            }
            at += 4096;
        }
    }
    found
}

fn attributes(path: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0_u8; 1 << 16];
    let len = fs::listxattr(path, names.as_mut_slice()).unwrap_or(0);
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 1 << 16];
        let len = fs::getxattr(path, name, value.as_mut_slice()).unwrap();
        found.insert(name.to_vec(), value[..len].to_vec());
    }
    found
}

/// Both are equal in everything; says where they are not.
#[track_caller]
pub fn assert_equal(one: &Tree, other: &Tree) {
    let show = |path: &[u8]| String::from_utf8_lossy(&path[..path.len().min(80)]).into_owned();
    for (path, file) in one {
        match other.get(path) {
            None => panic!("{:?} is missing", show(path)),
            Some(copy) if copy != file => {
                let brief = |file: &File| File { bytes: Vec::new(), ..file.clone() };
                let same_bytes = copy.bytes == file.bytes;
                panic!(
                    "{:?} differs (bytes equal: {same_bytes}):\n{:?}\n{:?}",
                    show(path),
                    brief(file),
                    brief(copy)
                );
            }
            Some(_) => {}
        }
    }
    let more: Vec<String> =
        other.keys().filter(|path| !one.contains_key(*path)).map(|path| show(path)).collect();
    assert!(more.is_empty(), "not in the original: {more:?}");
}
