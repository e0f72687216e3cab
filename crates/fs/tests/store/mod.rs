//! A store in memory, with a clock that the test sets, and short ways to use it.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use conquest_access::{Capabilities, Credentials};
use conquest_format::geometry::Shape;
use conquest_format::inode::{Owner, SIZE_MAX, WORDS, check, offset_of};
use conquest_format::{PAGE, WORD, fs};
use conquest_fs::attributes::Stat;
use conquest_fs::content::WriteAt;
use conquest_fs::dir::FileType;
use conquest_fs::large::Space;
use conquest_fs::names::{Listed, New};
use conquest_fs::open::{How, OpenFile, bury};
use conquest_fs::paths::Path;
use conquest_fs::walk::{Base, PATH_MAX};
use conquest_fs::xattr::whole;
use conquest_fs::{Clock, Errno, Error, FileId, FileSystem, NewFileSystem, finish_intent};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::core::DurableMaker;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options, Region};
use conquest_testkit::files::{RamSpace, root_user};
use conquest_testkit::judge::judge_attached;

pub type Files = FileSystem<Mapped, OsHost>;

/// The time when a store is new.
pub const BEGIN: i64 = 1_000_000_000_000_000_000;
pub const SECOND: i64 = 1_000_000_000;

/// What a store begins with.
pub const NEW: NewFileSystem = NewFileSystem {
    key: [1, 2],
    owner: Owner { uid: 0, gid: 0 },
    permissions: 0o777,
    size_max: SIZE_MAX,
    reserve: 0,
    large: None,
};

/// What a call returns.
type Told<T> = conquest_fs::Result<T>;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub number: u64,
    pub file_type: FileType,
    pub cookie: u64,
    pub name: Vec<u8>,
}

/// A file system of its own.
pub struct Store {
    files: Files,
    time: Arc<AtomicI64>,
}

impl Deref for Store {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Store {
    /// One that has `groups` groups of 2 MiB.
    pub fn new(groups: u64) -> Store {
        Store::with_size_max(groups, SIZE_MAX)
    }

    /// One whose files have at most `size_max` bytes.
    pub fn with_size_max(groups: u64, size_max: u64) -> Store {
        Store::with(groups, &NewFileSystem { size_max, ..NEW })
    }

    /// One that begins as `new` says.
    pub fn with(groups: u64, new: &NewFileSystem) -> Store {
        Store::with_space(groups, new, Box::new(RamSpace::default()))
    }

    /// The same, with `space` for large files, if there are to be any.
    pub fn with_space(groups: u64, new: &NewFileSystem, space: Box<dyn Space>) -> Store {
        let shape = Shape { max_groups: groups, lanes: 4, slots: 4, locks: 64, chunks: 16, log: 0 };
        Store::with_shape(shape, new, space, None)
    }

    /// One whose core has a log, and is made durable so.
    pub fn logged(
        new: &NewFileSystem,
        space: Box<dyn Space>,
        make_durable: Option<DurableMaker<Mapped, OsHost>>,
    ) -> Store {
        let shape = Shape { max_groups: 128, lanes: 4, slots: 4, locks: 64, chunks: 16, log: 64 };
        Store::with_shape(shape, new, space, make_durable)
    }

    /// One of another shape, and made durable so.
    pub fn with_shape(
        shape: Shape,
        new: &NewFileSystem,
        space: Box<dyn Space>,
        make_durable: Option<DurableMaker<Mapped, OsHost>>,
    ) -> Store {
        let time = Arc::new(AtomicI64::new(BEGIN));
        let clock = || -> Clock {
            let time = Arc::clone(&time);
            Box::new(move || time.load(Ordering::Relaxed))
        };
        let memory = sys::memory_file(c"store").unwrap();
        let copy = memory.try_clone().unwrap();
        let region = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
        Region::create(Source::from(memory), 0o600, &region).unwrap();
        let options = Options {
            intents: Some(Box::new(finish_intent)),
            burials: Some(Box::new(bury)),
            make_durable,
            ..Options::default()
        };
        let core =
            Region::open(Source::from(copy), &fs::kinds(), Access::default(), options).unwrap();
        FileSystem::make(&core, new, &clock()).unwrap();
        let files = FileSystem::open(core, clock()).unwrap();
        let files = match new.large {
            Some(_) => files.with_space(space),
            None => files,
        };
        Store { files, time }
    }

    /// Appends `pages` pages to `file`, one by one.
    pub fn append(&self, file: FileId, pages: u64, value: u8) {
        for _ in 0..pages {
            let size = self.stat(file).unwrap().size;
            self.put(file, size, &[value; PAGE as usize]);
        }
    }

    /// The same, with operations that make durable what they have done.
    pub fn synchronous(self) -> Store {
        Store { files: self.files.synchronous(), time: self.time }
    }

    /// The same, with operations that do `work` when they have changed something.
    pub fn after_each(self, work: impl Fn() + Send + Sync + 'static) -> Store {
        let work = Box::new(move |_: &_| {
            work();
            Ok(())
        });
        Store { files: self.files.with_after_each(work), time: self.time }
    }

    /// Lets `nanoseconds` pass.
    pub fn pass(&self, nanoseconds: i64) {
        self.time.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub fn now(&self) -> i64 {
        self.time.load(Ordering::Relaxed)
    }

    /// Makes a file by its path, as root.
    pub fn make(&self, path: &str, what: New<'_>, mode: u16) -> FileId {
        let base = &Base::new(self.root(), self.root());
        self.create_at(&root_user(), Path { base, bytes: path.as_bytes() }, what, mode).unwrap()
    }

    /// Makes a regular file with `bytes`, as root.
    pub fn file(&self, path: &str, bytes: &[u8]) -> FileId {
        let file = self.make(path, New::Regular, 0o644);
        self.put(file, 0, bytes);
        file
    }

    /// Writes all of `bytes`, as root.
    pub fn put(&self, file: FileId, at: u64, bytes: &[u8]) {
        let written = self.write(&root_user(), file, WriteAt::Offset(at), bytes).unwrap();
        assert_eq!(written, (at, bytes.len() as u64));
    }

    /// All bytes of `file`.
    pub fn get(&self, file: FileId) -> Vec<u8> {
        let mut bytes = vec![7; self.stat(file).unwrap().size as usize + 1];
        let len = self.read_file(file, 0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// The file of this name in the root directory.
    pub fn find_name(&self, name: &str) -> FileId {
        self.lookup(&root_user(), self.root(), name.as_bytes()).unwrap().unwrap().0
    }

    /// Opens by a path, as `who`.
    pub fn open_path(
        &self,
        who: &Credentials<'_>,
        path: &str,
        flags: i32,
    ) -> Result<OpenFile, Errno> {
        let how = How::from_open(flags as u32, 0o666)?;
        let base = &Base::new(self.root(), self.root());
        let opened = self.open_at(who, Path { base, bytes: path.as_bytes() }, &how);
        opened.map_err(|error| error.errno())
    }

    /// The pages that a regular file has, nodes included; none if it is packed.
    pub fn pages(&self, file: FileId) -> u64 {
        self.stat(file).unwrap().blocks / (PAGE / 512)
    }

    /// What changes with every change.
    pub fn stamps(&self, file: FileId) -> [i64; 3] {
        let Stat { mtime, ctime, change, .. } = self.stat(file).unwrap();
        [mtime, ctime, change as i64]
    }

    /// Changes the words of an inode, whose checksum then is that of the new ones.
    pub fn alter(&self, file: FileId, change: impl FnOnce(&mut [u64; WORDS])) {
        let (at, memory) = (offset_of(file.number).unwrap(), self.core().memory());
        let places = [(); WORDS].map({
            let mut index = 0;
            move |()| {
                index += 1;
                at.plus((index - 1) * WORD)
            }
        });
        let mut words = places.map(|place| memory.load(place, Ordering::Relaxed));
        change(&mut words);
        words[WORDS - 1] = check(&words, file.number);
        for (place, word) in places.into_iter().zip(words) {
            memory.put(place, word, Ordering::Relaxed);
        }
    }

    /// The whole value of an attribute.
    pub fn attribute(&self, who: &Credentials<'_>, file: FileId, name: &[u8]) -> Told<Vec<u8>> {
        whole(|out| self.files.attribute(who, file, name, out))
    }

    /// The names of all attributes.
    pub fn attributes(&self, who: &Credentials<'_>, file: FileId) -> Told<Vec<Vec<u8>>> {
        let names = whole(|out| self.files.attributes(who, file, out))?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// The whole target of a link.
    pub fn read_link(&self, file: FileId) -> Told<Vec<u8>> {
        let mut target = vec![0; PATH_MAX];
        let len = self.files.read_link(file, &mut target)?;
        target.truncate(len);
        Ok(target)
    }

    /// Entries of a directory, `most` at most: cookie, name and type of each.
    pub fn list(&self, directory: FileId, cookie: u64, most: usize) -> Told<Vec<Entry>> {
        let mut room = vec![0; 1 << 20];
        let listed = self.files.list(directory, cookie, &mut room)?.take(most);
        let entry = |entry: Listed<'_>| Entry {
            number: entry.number,
            file_type: entry.file_type,
            cookie: entry.cookie,
            name: entry.name.to_vec(),
        };
        Ok(listed.map(entry).collect())
    }

    /// Checks every rule.
    pub fn examine(&self) {
        judge_attached(self.core()).unwrap();
        assert_eq!(self.files.check().unwrap().findings, []);
    }
}

/// An ordinary user, whose group has the same number.
pub const fn user(id: u32) -> Credentials<'static> {
    Credentials {
        fsuid: id,
        fsgid: id,
        groups: &[],
        capabilities: Capabilities::NONE,
        umask: 0,
        namespace: None,
    }
}

/// A path from the root directory of `base` on.
pub const fn path<'p>(base: &'p Base, path: &'p str) -> Path<'p> {
    Path { base, bytes: path.as_bytes() }
}

/// The error number of what has to fail.
pub fn refused<T: core::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.unwrap_err().errno()
}
