//! A store in memory, with the real medium.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_format::fs;
use conquest_format::geometry::Shape;
use conquest_format::inode::Owner;
use conquest_fs::open::{How, OpenFile, bury};
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::{Clock, Credentials, FileSystem, NewFileSystem, finish_intent};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::holdings::BurialHandler;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access, Core, Options, Region};

pub type Files = FileSystem<Mapped, OsHost>;

pub fn clock() -> Clock {
    Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

pub fn root() -> Credentials<'static> {
    let capabilities = conquest_access::Capabilities::ALL;
    Credentials { fsuid: 0, fsgid: 0, groups: &[], capabilities, umask: 0, namespace: None }
}

/// A store of so many groups, with files of up to so many bytes.
pub fn store(groups: u64, size_max: u64) -> Files {
    let memory = sys::memory_file(c"store").unwrap();
    let copy = memory.try_clone().unwrap();
    store_at([Source::from(memory), Source::from(copy)], groups, size_max)
}

/// A store in memory, made at the first source, and attached from the second, which is the same.
pub fn store_at([new_file, file]: [Source; 2], groups: u64, size_max: u64) -> Files {
    let shape = Shape { max_groups: groups, lanes: 8, slots: 16, locks: 64, chunks: 64, log: 0 };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups };
    Region::create(new_file, 0o600, &new).unwrap();
    let core = region(file, Box::new(bury));
    let owner = Owner { uid: 0, gid: 0 };
    let new =
        NewFileSystem { key: [1, 2], owner, permissions: 0o777, size_max, reserve: 0, large: None };
    FileSystem::make(&core, &new, &clock()).unwrap();
    FileSystem::open(core, clock()).unwrap()
}

/// The region in `file`, attached by somebody who buries the dead in that way.
pub fn region(file: Source, burials: BurialHandler<Mapped, OsHost>) -> Arc<Core<Mapped, OsHost>> {
    let options = Options {
        intents: Some(Box::new(finish_intent)),
        burials: Some(burials),
        ..Options::default()
    };
    Region::open(file, &fs::kinds(), Access::default(), options).unwrap()
}

/// Opens the file at `name`, with flags of `open`.
pub fn open(files: &Files, name: &str, flags: i32) -> OpenFile {
    let how = How::from_open(flags as u32, 0o666).unwrap();
    let base = &Base::new(files.root(), files.root());
    files.open_at(&root(), Path { base, bytes: name.as_bytes() }, &how).unwrap()
}
