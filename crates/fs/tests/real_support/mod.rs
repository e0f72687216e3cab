//! A file system on a region of real memory, which real processes share.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_format::fs;
use conquest_format::geometry::Shape;
use conquest_format::inode::Owner;
use conquest_fs::locks::END;
use conquest_fs::open::{How, OpenFile, bury};
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::{Clock, Credentials, FileSystem, NewFileSystem, finish_intent};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::holdings::BurialHandler;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access, Core, Options, Region};

/// A file system in real memory.
pub(crate) type Files = FileSystem<Mapped, OsHost>;

fn clock() -> Clock {
    Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

/// Who may do everything.
pub(crate) fn root() -> Credentials<'static> {
    let capabilities = conquest_access::Capabilities::ALL;
    Credentials { fsuid: 0, fsgid: 0, groups: &[], capabilities, umask: 0 }
}

/// A new one, for at most `slots` processes.
pub(crate) fn store(slots: u32) -> Files {
    store_in(&sys::memory_file(c"store").unwrap(), slots)
}

/// The region in `memory`, attached once more, with `burials`.
pub(crate) fn region(
    memory: &OwnedFd,
    burials: Option<BurialHandler<Mapped, OsHost>>,
) -> Arc<Core<Mapped, OsHost>> {
    let options = Options { intents: Some(Box::new(finish_intent)), burials, ..Options::default() };
    let copy = memory.try_clone().unwrap();
    Region::open(Source::from(copy), &fs::kinds(), Access::default(), options).unwrap()
}

/// A new one in `memory`.
pub(crate) fn store_in(memory: &OwnedFd, slots: u32) -> Files {
    let copy = memory.try_clone().unwrap();
    let shape = Shape { max_groups: 2, lanes: 8, slots, locks: 64, chunks: 64 };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 2 };
    Region::create(Source::from(copy), 0o600, &new).unwrap();
    let core = region(memory, Some(Box::new(bury)));
    let owner = Owner { uid: 0, gid: 0 };
    let new = NewFileSystem { key: [1, 2], owner, permissions: 0o777, size_max: END };
    FileSystem::make(&core, &new, &clock()).unwrap();
    FileSystem::open(core, clock()).unwrap()
}

/// Opens `name` in the root directory with the flags of `open` and `O_CREAT`.
pub(crate) fn open(files: &Files, name: &str, flags: i32) -> OpenFile {
    let how = How::from_open((flags | libc::O_CREAT) as u32, 0o666).unwrap();
    let base = &Base::new(files.root(), files.root());
    files.open_at(&root(), Path { base, bytes: name.as_bytes() }, &how).unwrap()
}
