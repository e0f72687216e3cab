//! Calls with several buffers: where they may begin and end, and what looks at a file leave.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::io::{IoSlice, IoSliceMut};

use conquest_fs::open::BUFFERS_MAX;
use conquest_fs::{Errno, Error};
use conquest_testkit::files::root_user;
use libc::{O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use store::{SECOND, Store};

const END: u64 = 1 << 63;

fn errno<T>(result: Result<T, Error>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

#[test]
fn ranges_end_where_files_can_end() {
    let store = Store::new(4);
    store.file("f", b"0123456789");
    let open = store.open_path(&root_user(), "f", O_RDWR).unwrap();
    let read = |at, len: usize| {
        let (mut first, mut second) = (vec![0; len / 2], vec![0; len - len / 2]);
        let mut parts = [&mut first, &mut second].map(|part| IoSliceMut::new(part));
        errno(store.read_vector(&open, Some(at), &mut parts, 0))
    };
    let write = |at, len: usize| {
        let bytes = vec![1; len];
        errno(store.write_vector(&root_user(), &open, Some(at), &[IoSlice::new(&bytes)], 0))
    };
    for (at, len, expected) in [
        (0, 10, None),
        (END - 11, 10, None),
        (END - 10, 10, Some(Errno::EINVAL)),
        (END - 1, 1, Some(Errno::EINVAL)),
        (END - 1, 0, None),
        (END, 0, Some(Errno::EINVAL)),
        (u64::MAX, 1, Some(Errno::EINVAL)),
    ] {
        assert_eq!(read(at, len), expected, "read {at:#x} {len}");
        assert_eq!(write(at, len), expected, "write {at:#x} {len}");
    }
}

#[test]
fn there_are_only_so_many_buffers() {
    let store = Store::new(4);
    store.file("f", b"0123456789");
    let open = store.open_path(&root_user(), "f", O_RDWR).unwrap();
    for (count, expected) in [(BUFFERS_MAX, None), (BUFFERS_MAX + 1, Some(Errno::EINVAL))] {
        let bytes = [1];
        let parts = vec![IoSlice::new(&bytes); count];
        let written = store.write_vector(&root_user(), &open, Some(0), &parts, 0);
        assert_eq!(errno(written), expected);
        let mut bytes = vec![[0_u8; 1]; count];
        let mut parts: Vec<_> = bytes.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        assert_eq!(errno(store.read_vector(&open, Some(0), &mut parts, 0)), expected);
    }
    let [reader, writer, name] = [O_RDONLY, O_WRONLY, O_PATH]
        .map(|flags| store.open_path(&root_user(), "f", flags).unwrap());
    for open in [&writer, &name] {
        assert_eq!(errno(store.read_vector(open, None, &mut [], 0)), Some(Errno::EBADF));
    }
    for open in [&reader, &name] {
        let written = store.write_vector(&root_user(), open, None, &[], 0);
        assert_eq!(errno(written), Some(Errno::EBADF));
    }
}

/// A look through several buffers is one, but for one that does not wait: noting could.
#[test]
fn looks_are_noted() {
    let store = Store::new(4);
    let file = store.file("f", b"0123456789");
    let open = store.open_path(&root_user(), "f", O_RDONLY).unwrap();
    let atime = || store.stat(file).unwrap().atime;
    let look = |flags: i32, len: usize| {
        let mut bytes = vec![0; len];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        store.read_vector(&open, Some(0), &mut parts, flags as u32).unwrap()
    };
    let old = atime();
    store.pass(SECOND);
    assert_eq!((look(libc::RWF_NOWAIT, 4), atime()), (4, old));
    assert_eq!((look(0, 0), atime()), (0, old));
    assert_eq!((look(0, 4), atime()), (4, store.now()));
    // Once is enough.
    store.pass(SECOND);
    assert_eq!((look(0, 4), atime()), (4, store.now() - SECOND));
    store.examine();
}
