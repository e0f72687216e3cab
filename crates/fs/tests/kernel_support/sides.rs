//! The two sides: the kernel, and a store in memory.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_access::{Access, Removal};
use conquest_format::fs;
use conquest_format::geometry::Shape;
use conquest_format::inode::Owner;
use conquest_fs::attributes::{SetTime, Stat};
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::dir::FileType;
use conquest_fs::names::{LISTED_MAX, New};
use conquest_fs::open::{OpenFile, bury};
use conquest_fs::paths::Path;
use conquest_fs::walk::{Base, PATH_MAX};
use conquest_fs::xattr::Setting;
use conquest_fs::{
    Clock, Credentials, Errno, Error, FileId, FileSystem, NewFileSystem, finish_intent,
};
use conquest_peers::sys::{self, Outcome, Privileges};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Options, Region};
use conquest_testkit::judge::judge_attached;

use super::caller::Caller;
use super::handles::Handles;
use super::operation::{Node, Operation, SIZE_MAX, Time, Told};
use super::tree::{Seen, Tree};

/// Somebody who performs operations.
pub trait Side {
    fn perform(&self, caller: &Caller, operation: &Operation) -> Outcome<Told>;
    fn tree(&self) -> Tree;
}

/// What is written.
pub fn content(len: u64) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + len) as u8 | 1).collect()
}

// --- ours ----------------------------------------------------------------------------------------

/// Pages of the slabs that a lane may keep.
const SLABS_KEPT: u64 = 18 * 4;

/// A store of its own in memory.
pub struct Ours {
    files: FileSystem<Mapped, OsHost>,
    handles: Handles<OpenFile>,
    /// In use when it was new.
    pages: u64,
}

fn clock() -> Clock {
    Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

pub fn told(stat: &Stat) -> [u64; 6] {
    let stat = stat.seen_by(&Caller::new(0).credentials());
    let is_directory = stat.mode & libc::S_IFMT == libc::S_IFDIR;
    let device = libc::makedev(stat.device.0, stat.device.1);
    let size = if is_directory { 0 } else { stat.size };
    [stat.mode.into(), stat.links.into(), stat.uid.into(), stat.gid.into(), device, size]
}

impl Ours {
    pub fn new() -> Ours {
        let memory = sys::memory_file(c"store").unwrap();
        let copy = memory.try_clone().unwrap();
        let shape = Shape { max_groups: 16, lanes: 4, slots: 4, locks: 64, chunks: 4, log: 0 };
        // All groups at once: where this process is going there is no `/proc`, by which the
        // region's file is opened again to grow.
        let groups = shape.max_groups;
        let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups };
        Region::create(Source::from(memory), 0o600, &new).unwrap();
        let access = conquest_pm::Access::default();
        let options = Options {
            intents: Some(Box::new(finish_intent)),
            burials: Some(Box::new(bury)),
            ..Options::default()
        };
        let core = Region::open(Source::from(copy), &fs::kinds(), access, options).unwrap();
        let owner = Owner { uid: 0, gid: 0 };
        let new = NewFileSystem {
            key: [1, 2],
            owner,
            permissions: 0o777,
            size_max: SIZE_MAX,
            reserve: 0,
            large: None,
        };
        FileSystem::make(&core, &new, &clock()).unwrap();
        let pages = core.pages_used();
        let files = FileSystem::open(core, clock()).unwrap();
        Ours { files, handles: Handles::new(), pages }
    }

    fn walk_tree(&self, directory: FileId, path: &[u8], tree: &mut Tree) {
        let mut cookie = 0;
        let mut room = [0; 2 * LISTED_MAX];
        loop {
            let mut listed = self.files.list(directory, cookie, &mut room).unwrap().peekable();
            if listed.peek().is_none() {
                return;
            }
            for entry in listed {
                cookie = entry.cookie;
                if matches!(entry.name, b"." | b"..") {
                    continue;
                }
                let path = [path, b"/", entry.name].concat();
                let root = Caller::new(0);
                let found = self.files.lookup(&root.credentials(), directory, entry.name);
                let (file, file_type) = found.unwrap().unwrap();
                let stat = self.files.stat(file).unwrap();
                assert_eq!((file.number, file_type), (entry.number, entry.file_type));
                assert_eq!(stat.mode >> 12, u32::from(file_type.number()));
                let target = self.read_link(file).unwrap_or_default();
                tree.insert(path.clone(), seen(&stat, target));
                if stat.mode & libc::S_IFMT == libc::S_IFDIR {
                    self.walk_tree(file, &path, tree);
                }
            }
        }
    }

    fn read_link(&self, file: FileId) -> Result<Vec<u8>, Error> {
        let mut target = vec![0; PATH_MAX];
        let len = self.files.read_link(file, &mut target)?;
        target.truncate(len);
        Ok(target)
    }

    /// Closes all descriptors.
    pub fn close_all(&self) {
        self.handles.clear(&self.files);
    }

    /// Removes everything; no memory is lost.
    pub fn clear(&self) {
        self.handles.clear(&self.files);
        self.remove_all(self.files.root());
        let (root, who) = (self.files.root(), Caller::new(0));
        self.files.set_owner(&who.credentials(), root, Some(0), Some(0)).unwrap();
        self.files.set_mode(&who.credentials(), root, 0o777).unwrap();
        assert_eq!(self.check(), 1);
        // A slab of each kind may stay with its lane.
        let kept = self.files.core().pages_used() - self.pages;
        assert!(kept <= SLABS_KEPT, "{kept} pages");
    }

    fn remove_all(&self, directory: FileId) {
        let who = &Caller::new(0);
        let mut cookie = 2;
        let mut room = [0; LISTED_MAX];
        while let Some(entry) = self.files.list(directory, cookie, &mut room).unwrap().next() {
            cookie = entry.cookie;
            let found = self.files.lookup(&who.credentials(), directory, entry.name);
            let (file, file_type) = found.unwrap().unwrap();
            let how = match file_type {
                FileType::Directory => Removal::Directory,
                _ => Removal::File,
            };
            if how == Removal::Directory {
                self.remove_all(file);
            }
            self.files.remove(&who.credentials(), directory, entry.name, how).unwrap();
        }
    }

    /// Checks every rule of the store; how many files and directories there are.
    pub fn check(&self) -> u64 {
        judge_attached(self.files.core()).unwrap();
        let census = self.files.check().unwrap();
        assert_eq!(census.findings, []);
        census.files + census.directories
    }
}

/// Names, of which each has a byte 0 after it, in order.
fn split_names(listed: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = listed.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names
}

fn seen(stat: &Stat, target: Vec<u8>) -> Seen {
    let times = [stat.atime, stat.mtime, stat.ctime];
    Seen { number: stat.file.number, stat: told(stat), times, target }
}

impl Side for Ours {
    fn perform(&self, caller: &Caller, operation: &Operation) -> Outcome<Told> {
        let who = &caller.credentials();
        let base = &Base::new(self.files.root(), self.files.root());
        let done = match operation {
            Operation::Stat(..)
            | Operation::ReadLink(_)
            | Operation::List(_)
            | Operation::Chmod(..)
            | Operation::Chown(..)
            | Operation::SetTimes(..) => self.on_file(caller, base, operation),
            Operation::Read(..)
            | Operation::Write(..)
            | Operation::Truncate(..)
            | Operation::Allocate(..) => self.on_content(who, base, operation),
            Operation::Handle(handle, what) => {
                self.handles.perform(&self.files, who, base, *handle, what)
            }
            Operation::GetAttribute(..)
            | Operation::SetAttribute(..)
            | Operation::RemoveAttribute(..)
            | Operation::ListAttributes(..) => self.on_attributes(who, base, operation),
            _ => self.on_names(who, base, operation).map(|()| Told::Nothing),
        };
        done.map_err(|error| error.errno().number())
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let root = self.files.stat(self.files.root()).unwrap();
        tree.insert(Vec::new(), seen(&root, Vec::new()));
        self.walk_tree(self.files.root(), b"", &mut tree);
        tree
    }
}

impl Ours {
    /// An operation that changes names.
    fn on_names(&self, who: &Credentials, base: &Base, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::Mkdir(path, mode) => self
                .files
                .create_at(who, Path { base, bytes: path.as_bytes() }, New::Directory, *mode as u16)
                .map(drop),
            Operation::Mknod(path, node, mode) => {
                let what = match *node {
                    Node::Regular => New::Regular,
                    Node::Fifo => New::Fifo,
                    Node::Socket => New::Socket,
                    Node::Character(major, minor) => New::Character(major, minor),
                    Node::Block(major, minor) => New::Block(major, minor),
                };
                self.files
                    .create_at(who, Path { base, bytes: path.as_bytes() }, what, *mode as u16)
                    .map(drop)
            }
            Operation::Symlink(target, path) => self
                .files
                .create_at(
                    who,
                    Path { base, bytes: path.as_bytes() },
                    New::Symlink(target.as_bytes()),
                    0o777,
                )
                .map(drop),
            Operation::Link(old, new, follow) => self.files.link_at(
                who,
                Path { base, bytes: old.as_bytes() },
                *follow,
                Path { base, bytes: new.as_bytes() },
            ),
            Operation::Unlink(path) => {
                self.files.remove_at(who, Path { base, bytes: path.as_bytes() }, Removal::File)
            }
            Operation::Rmdir(path) => {
                self.files.remove_at(who, Path { base, bytes: path.as_bytes() }, Removal::Directory)
            }
            Operation::Rename(old, new, how) => self.files.rename_at(
                who,
                Path { base, bytes: old.as_bytes() },
                Path { base, bytes: new.as_bytes() },
                *how,
            ),
            other => panic!("{other:?} changes no names"),
        }
    }

    /// An operation on the file that a path leads to.
    fn on_file(&self, caller: &Caller, base: &Base, operation: &Operation) -> Result<Told, Error> {
        let who = &caller.credentials();
        match operation {
            Operation::Stat(path, follow) => self
                .files
                .stat_at(who, Path { base, bytes: path.as_bytes() }, *follow)
                .map(|stat| Told::Stat(told(&stat))),
            Operation::ReadLink(path) => self
                .files
                .find(who, Path { base, bytes: path.as_bytes() }, false)
                .and_then(|file| self.read_link(file))
                .map(Told::Target),
            Operation::List(path) => self.list(caller, Path { base, bytes: path.as_bytes() }),
            Operation::Chmod(path, mode) => self
                .files
                .find(who, Path { base, bytes: path.as_bytes() }, true)
                .and_then(|file| self.files.set_mode(who, file, *mode))
                .map(|()| Told::Nothing),
            Operation::Chown(path, uid, gid, follow) => self
                .files
                .find(who, Path { base, bytes: path.as_bytes() }, *follow)
                .and_then(|file| self.files.set_owner(who, file, *uid, *gid))
                .map(|()| Told::Nothing),
            Operation::SetTimes(path, atime, mtime, follow) => {
                let set = |time: &Time| match *time {
                    Time::Omit => SetTime::Omit,
                    Time::Now => SetTime::Now,
                    Time::At(at) => SetTime::At(at),
                };
                // The kernel does not even look for the file.
                if (*atime, *mtime) == (Time::Omit, Time::Omit) {
                    return Ok(Told::Nothing);
                }
                self.files
                    .find(who, Path { base, bytes: path.as_bytes() }, *follow)
                    .and_then(|file| self.files.set_times(who, file, set(atime), set(mtime)))
                    .map(|()| Told::Nothing)
            }
            other => panic!("{other:?} is about names"),
        }
    }

    /// An operation on the content of the file that a path leads to.
    fn on_content(
        &self,
        who: &Credentials,
        base: &Base,
        operation: &Operation,
    ) -> Result<Told, Error> {
        let files = &self.files;
        let find = |path: &String| files.find(who, Path { base, bytes: path.as_bytes() }, true);
        let open = |path: &String, access| {
            let file = find(path)?;
            files.may(who, file, access)?;
            Ok::<FileId, Error>(file)
        };
        match operation {
            Operation::Read(path, from, len) => {
                let mut bytes = vec![0; *len as usize];
                let len = files.read_file(open(path, Access::READ)?, *from, &mut bytes)?;
                bytes.truncate(len);
                Ok(Told::Read(bytes))
            }
            Operation::Write(path, at, len) => {
                let at = at.map_or(WriteAt::End, WriteAt::Offset);
                let file = open(path, Access::WRITE)?;
                let (_, written) = files.write(who, file, at, &content(*len))?;
                Ok(Told::Written(written))
            }
            Operation::Truncate(_, size) if *size > i64::MAX as u64 => Err(Errno::EINVAL.into()),
            Operation::Truncate(path, size) => {
                files.truncate(who, find(path)?, *size).map(|()| Told::Nothing)
            }
            Operation::Allocate(path, how, from, len) => {
                let file = open(path, Access::WRITE)?;
                files.allocate(who, file, *how, *from, *len).map(|()| Told::Nothing)
            }
            other => panic!("{other:?} is not about content"),
        }
    }

    /// An operation on the attributes of what a path leads to.
    fn on_attributes(
        &self,
        who: &Credentials,
        base: &Base,
        operation: &Operation,
    ) -> Result<Told, Error> {
        let files = &self.files;
        let check = |name: &String| match name.len() {
            1..=255 => Ok(()),
            _ => Err(Errno::ERANGE),
        };
        let find = |path: &String| files.find(who, Path { base, bytes: path.as_bytes() }, false);
        match operation {
            Operation::GetAttribute(path, name, room) => {
                check(name)?;
                let mut value = vec![0; *room];
                let len = files.attribute(who, find(path)?, name.as_bytes(), &mut value)?;
                value.truncate(len);
                Ok(Told::Attribute(len, value))
            }
            Operation::SetAttribute(path, name, value, how) => {
                check(name)?;
                let file = find(path)?;
                let set = files.set_attribute(who, file, name.as_bytes(), value, *how);
                set.map(|()| Told::Nothing)
            }
            Operation::RemoveAttribute(path, name) => {
                check(name)?;
                let removed = files.remove_attribute(who, find(path)?, name.as_bytes());
                removed.map(|()| Told::Nothing)
            }
            Operation::ListAttributes(path, room) => {
                let mut names = vec![0; *room];
                let len = files.attributes(who, find(path)?, &mut names)?;
                names.truncate(len);
                Ok(Told::Attributes(len, split_names(&names)))
            }
            other => panic!("{other:?} is not about attributes"),
        }
    }

    /// Opens a directory and lists it, a few entries at a time.
    fn list(&self, caller: &Caller, path: Path<'_>) -> Result<Told, Error> {
        let who = &caller.credentials();
        let (file, file_type) = self.files.walk(who, path.base, path.bytes, true)?;
        if file_type != FileType::Directory {
            return Err(conquest_fs::Errno::ENOTDIR.into());
        }
        self.files.may(who, file, Access::READ)?;
        let (mut names, mut cookie) = (Vec::new(), 0);
        let mut room = [0; LISTED_MAX + 100];
        loop {
            let before = names.len();
            for entry in self.files.list(file, cookie, &mut room)? {
                names.push((entry.name.to_vec(), entry.file_type.number()));
                cookie = entry.cookie;
            }
            if names.len() == before {
                break;
            }
        }
        names.sort();
        Ok(Told::Names(names))
    }
}

// --- the kernel's --------------------------------------------------------------------------------

/// The kernel: its file system is the root directory of this process.
pub struct Kernel {
    pub privileges: Privileges,
    handles: Handles<File>,
}

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

pub fn told_by_kernel(stat: &libc::stat) -> [u64; 6] {
    let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let size = if is_directory { 0 } else { stat.st_size as u64 };
    let (mode, uid, gid) = (stat.st_mode.into(), stat.st_uid.into(), stat.st_gid.into());
    [mode, stat.st_nlink, uid, gid, stat.st_rdev, size]
}

/// The names in a directory, with their types.
fn names(directory: &File) -> Outcome<Vec<(Vec<u8>, u8)>> {
    let mut names = Vec::new();
    loop {
        let mut buffer = [0_u8; 4096];
        let got = sys::list(directory, &mut buffer)?;
        if got == 0 {
            names.sort();
            return Ok(names);
        }
        let mut at = 0;
        while at < got {
            let len = usize::from(u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]));
            let file_type = buffer[at + 18];
            let name = CStr::from_bytes_until_nul(&buffer[at + 19..at + len]).unwrap();
            names.push((name.to_bytes().to_vec(), file_type));
            at += len;
        }
    }
}

impl Kernel {
    /// Makes `root` the root directory of this process, for ever.
    pub fn enter(root: &File, privileges: Privileges) -> Kernel {
        sys::enter(root);
        sys::change_root().unwrap();
        sys::umask(0o002);
        let kernel = Kernel { privileges, handles: Handles::new() };
        kernel.clear();
        kernel
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.handles.close_all();
        for entry in std::fs::read_dir("/").unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => std::fs::remove_dir_all(entry.path()).unwrap(),
                false => std::fs::remove_file(entry.path()).unwrap(),
            }
        }
        std::fs::set_permissions("/", std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown("/", Some(0), Some(0)).unwrap();
    }

    fn walk_tree(directory: &File, path: &[u8], tree: &mut Tree) {
        for (name, _) in names(directory).unwrap() {
            if matches!(&*name, b"." | b"..") {
                continue;
            }
            let path = [path, b"/", &name].concat();
            let name = CString::new(name).unwrap();
            let stat = sys::stat(directory.as_raw_fd(), &name, sys::NO_FOLLOW).unwrap();
            let target = sys::read_link(directory.as_raw_fd(), &name).unwrap_or_default();
            tree.insert(path.clone(), seen_by_kernel(&stat, target));
            if stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                let inner = sys::open(directory.as_raw_fd(), &name, flags, 0).unwrap();
                Kernel::walk_tree(&inner, &path, tree);
            }
        }
    }

    fn call(operation: &Operation) -> Outcome<Told> {
        use conquest_fs::names::Renaming;
        let here = sys::HERE;
        let done = match operation {
            Operation::Mkdir(path, mode) => sys::make_directory(here, &c(path), *mode),
            Operation::Mknod(path, node, mode) => {
                let (file_type, device) = match *node {
                    Node::Regular => (libc::S_IFREG, 0),
                    Node::Fifo => (libc::S_IFIFO, 0),
                    Node::Socket => (libc::S_IFSOCK, 0),
                    Node::Character(major, minor) => (libc::S_IFCHR, libc::makedev(major, minor)),
                    Node::Block(major, minor) => (libc::S_IFBLK, libc::makedev(major, minor)),
                };
                sys::make_node(here, &c(path), file_type | *mode, device)
            }
            Operation::Symlink(target, path) => sys::make_link(&c(target), here, &c(path)),
            Operation::Link(old, new, follow) => {
                let flags = if *follow { libc::AT_SYMLINK_FOLLOW } else { 0 };
                sys::link(&c(old), here, &c(new), flags)
            }
            Operation::Unlink(path) => sys::remove(here, &c(path), false),
            Operation::Rmdir(path) => sys::remove(here, &c(path), true),
            Operation::Rename(old, new, how) => {
                let flags = match how {
                    Renaming::Replace => 0,
                    Renaming::NoReplace => libc::RENAME_NOREPLACE,
                    Renaming::Exchange => libc::RENAME_EXCHANGE,
                    Renaming::Whiteout => libc::RENAME_WHITEOUT,
                    Renaming::WhiteoutNoReplace => libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE,
                };
                sys::rename(&c(old), here, &c(new), flags)
            }
            Operation::Stat(path, follow) => {
                let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
                let stat = sys::stat(here, &c(path), flags)?;
                return Ok(Told::Stat(told_by_kernel(&stat)));
            }
            Operation::ReadLink(path) => {
                return sys::read_link(here, &c(path)).map(Told::Target);
            }
            Operation::List(path) => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                let directory = sys::open(here, &c(path), flags, 0)?;
                return names(&directory).map(Told::Names);
            }
            Operation::Chmod(path, mode) => sys::chmod(&c(path), *mode, 0),
            Operation::Chown(path, uid, gid, follow) => {
                let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
                sys::chown(&c(path), *uid, *gid, flags)
            }
            Operation::SetTimes(path, atime, mtime, follow) => {
                let set = |time: &Time| match *time {
                    Time::Omit => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
                    Time::Now => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
                    Time::At(at) => {
                        libc::timespec { tv_sec: at / 1_000_000_000, tv_nsec: at % 1_000_000_000 }
                    }
                };
                let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
                sys::set_times(&c(path), Some([set(atime), set(mtime)]), flags)
            }
            _ => return Kernel::call_on_file(operation),
        };
        done.map(|()| Told::Nothing)
    }

    /// An operation on the content or the attributes of a file.
    fn call_on_file(operation: &Operation) -> Outcome<Told> {
        let done = match operation {
            Operation::Read(path, from, len) => {
                let mut bytes = vec![0; *len as usize];
                let file = sys::open(sys::HERE, &c(path), libc::O_RDONLY, 0)?;
                let len = sys::read_at(&file, *from, &mut bytes)?;
                bytes.truncate(len as usize);
                return Ok(Told::Read(bytes));
            }
            Operation::Write(path, at, len) => {
                let flags =
                    if at.is_some() { libc::O_WRONLY } else { libc::O_WRONLY | libc::O_APPEND };
                let file = sys::open(sys::HERE, &c(path), flags, 0)?;
                return sys::write_at(&file, at.unwrap_or(0), &content(*len)).map(Told::Written);
            }
            Operation::Truncate(path, size) => sys::truncate(&c(path), *size),
            Operation::Allocate(path, how, from, len) => {
                let file = sys::open(sys::HERE, &c(path), libc::O_WRONLY, 0)?;
                let keep = |keeps_size| if keeps_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
                let mode = match *how {
                    Allocate::Space { keeps_size } => keep(keeps_size),
                    Allocate::Zeros { keeps_size } => libc::FALLOC_FL_ZERO_RANGE | keep(keeps_size),
                    Allocate::Hole => libc::FALLOC_FL_PUNCH_HOLE | keep(true),
                };
                sys::allocate(&file, mode, *from, *len)
            }
            Operation::GetAttribute(path, name, room) => {
                let mut value = vec![0; *room];
                let len = sys::get_xattr_to(&c(path), name, &mut value)?;
                value.truncate(len);
                return Ok(Told::Attribute(len, value));
            }
            Operation::SetAttribute(path, name, value, how) => {
                let flags = match how {
                    Setting::Any => 0,
                    Setting::Create => libc::XATTR_CREATE,
                    Setting::Replace => libc::XATTR_REPLACE,
                };
                sys::set_xattr(&c(path), name, value, flags)
            }
            Operation::RemoveAttribute(path, name) => sys::remove_xattr(&c(path), name),
            Operation::ListAttributes(path, room) => {
                let mut names = vec![0; *room];
                let len = sys::list_xattrs_to(&c(path), &mut names)?;
                names.truncate(len);
                return Ok(Told::Attributes(len, split_names(&names)));
            }
            other => panic!("{other:?} is about names"),
        };
        done.map(|()| Told::Nothing)
    }
}

fn seen_by_kernel(stat: &libc::stat, target: Vec<u8>) -> Seen {
    let time = |seconds: i64, nanoseconds: i64| seconds * 1_000_000_000 + nanoseconds;
    let times = [
        time(stat.st_atime, stat.st_atime_nsec),
        time(stat.st_mtime, stat.st_mtime_nsec),
        time(stat.st_ctime, stat.st_ctime_nsec),
    ];
    Seen { number: stat.st_ino, stat: told_by_kernel(stat), times, target }
}

impl Side for Kernel {
    fn perform(&self, caller: &Caller, operation: &Operation) -> Outcome<Told> {
        let is_root = caller.user < 2;
        if !is_root {
            self.privileges.become_user(&caller.own());
        }
        let done = match operation {
            Operation::Handle(handle, what) => self.handles.call(*handle, what),
            operation => Kernel::call(operation),
        };
        if !is_root {
            self.privileges.become_root();
            sys::umask(0o002);
        }
        done
    }

    fn tree(&self) -> Tree {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let root = sys::open(sys::HERE, c"/", flags, 0).unwrap();
        let mut tree = Tree::new();
        let stat = sys::stat(sys::HERE, c"/", 0).unwrap();
        tree.insert(Vec::new(), seen_by_kernel(&stat, Vec::new()));
        Kernel::walk_tree(&root, b"", &mut tree);
        tree
    }
}
