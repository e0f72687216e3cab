//! Calls made by a ring: what they do, in which order, and what is refused.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use conquest_uring::{CALLS_MAX, Call, Next, Ring, Stat, Submitted};

/// A directory that is gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path =
            std::env::temp_dir().join(format!("conquest-uring-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn path(&self, name: &str) -> CString {
        CString::new(self.0.join(name).as_os_str().as_bytes()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NEW: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;

/// A file is made with these bytes.
fn made<'c>(path: &'c CStr, bytes: &'c [u8], slot: u32) -> [Submitted<'c>; 3] {
    [
        Submitted::new(Call::Open { path, flags: NEW, mode: 0o600, slot }, Next::IfDone),
        Submitted::new(Call::Write { slot, bytes, offset: 0 }, Next::Anyhow),
        Submitted::new(Call::Close { slot }, Next::Anytime),
    ]
}

/// A file's bytes are read.
fn read<'c>(path: &'c CStr, into: &'c mut [u8], slot: u32) -> [Submitted<'c>; 3] {
    let flags = libc::O_RDONLY;
    [
        Submitted::new(Call::Open { path, flags, mode: 0, slot }, Next::IfDone),
        Submitted::new(Call::Read { slot, into, offset: 1 }, Next::Anyhow),
        Submitted::new(Call::Close { slot }, Next::Anytime),
    ]
}

/// What came of them: bytes, or the error number.
fn outcomes(calls: &[Submitted<'_>]) -> Vec<Result<usize, i32>> {
    calls.iter().map(|one| one.outcome().map_err(|error| error.raw_os_error().unwrap())).collect()
}

#[test]
fn many_files_are_made_read_looked_at_and_removed() {
    let place = Place::new("many");
    let mut ring = Ring::new(3 * 100).unwrap();
    let paths: Vec<CString> = (0..100).map(|at| place.path(&format!("f{at}"))).collect();
    let bytes: Vec<Vec<u8>> = (0..100).map(|at| vec![at; 1000]).collect();
    let numbered = || paths.iter().zip(0_u32..);
    let mut calls: Vec<_> =
        numbered().zip(&bytes).flat_map(|((path, slot), bytes)| made(path, bytes, slot)).collect();
    assert_eq!(outcomes(&calls), vec![Err(libc::EINPROGRESS); 300]);
    ring.run(&mut calls).unwrap();
    assert_eq!(outcomes(&calls), [Ok(0), Ok(1000), Ok(0)].repeat(100));
    let mut found = vec![[0; 999]; 100];
    let mut calls: Vec<_> = numbered()
        .zip(&mut found)
        .flat_map(|((path, slot), into)| read(path, into, slot))
        .collect();
    ring.run(&mut calls).unwrap();
    assert_eq!(outcomes(&calls), [Ok(0), Ok(999), Ok(0)].repeat(100));
    assert!(found.iter().zip(0..).all(|(found, at)| found == &[at; 999]));
    let mut stats: Vec<Stat> = paths.iter().map(|_| Stat::default()).collect();
    let mut calls: Vec<_> = paths
        .iter()
        .zip(&mut stats)
        .map(|(path, into)| Submitted::new(Call::Stat { path, into }, Next::Anytime))
        .collect();
    ring.run(&mut calls).unwrap();
    assert!(stats.iter().all(|stat| stat.size() == 1000 && stat.mode() & 0o777 == 0o600));
    let unlink = |path| Submitted::new(Call::Unlink { path }, Next::Anytime);
    let mut calls: Vec<_> = paths.iter().map(|path| unlink(path)).collect();
    ring.run(&mut calls).unwrap();
    assert_eq!(outcomes(&calls), vec![Ok(0); 100]);
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
}

/// Descriptors of this process that are of files in the directory. Others are opened and closed
/// by the tests beside this one.
fn descriptors(of: &Place) -> usize {
    // What descriptors lead to has no symbolic links in it.
    let place = std::fs::canonicalize(&of.0).unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = descriptors.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
    files.filter(|file| file.starts_with(&place)).count()
}

#[test]
fn what_comes_behind_a_failure_is_not_made() {
    let place = Place::new("failure");
    std::fs::write(place.0.join("there"), b"12345").unwrap();
    let (there, missing) = (place.path("there"), place.path("no/such"));
    let mut ring = Ring::new(16).unwrap();
    let (mut short, mut none) = ([0; 10], [0; 10]);
    let mut calls: Vec<_> = made(&there, b"new", 0)
        .into_iter()
        .chain(read(&missing, &mut none, 1))
        .chain(read(&there, &mut short, 2))
        .collect();
    ring.run(&mut calls).unwrap();
    let canceled = Err(libc::ECANCELED);
    let exists = [Err(libc::EEXIST), canceled, canceled];
    let is_missing = [Err(libc::ENOENT), canceled, canceled];
    // Fewer bytes than asked for: it is closed all the same.
    let is_short = [Ok(0), Ok(4), Ok(0)];
    assert_eq!(outcomes(&calls), [exists, is_missing, is_short].concat());
    assert_eq!(&short[..5], b"2345\0");
    // It was closed.
    let mut calls = [Submitted::new(Call::Close { slot: 2 }, Next::IfDone)];
    ring.run(&mut calls).unwrap();
    assert_eq!(outcomes(&calls), [Err(libc::EBADF)]);
    // Slots are no descriptors.
    let open = Call::Open { path: &there, flags: libc::O_RDONLY, mode: 0, slot: 2 };
    let mut calls = [Submitted::new(open, Next::IfDone)];
    ring.run(&mut calls).unwrap();
    assert_eq!(outcomes(&calls), [Ok(0)]);
    assert_eq!(descriptors(&place), 0);
    let _open = std::fs::File::open(place.0.join("there")).unwrap();
    assert_eq!(descriptors(&place), 1);
}

#[test]
fn what_is_open_in_a_slot_gives_way() {
    let place = Place::new("slot");
    std::fs::write(place.0.join("a"), b"aaaa").unwrap();
    std::fs::write(place.0.join("b"), b"bbbb").unwrap();
    let (one, other) = (place.path("a"), place.path("b"));
    let mut ring = Ring::new(4).unwrap();
    let open = |path| {
        let open = Call::Open { path, flags: libc::O_RDONLY, mode: 0, slot: 0 };
        Submitted::new(open, Next::IfDone)
    };
    let mut into = [0; 4];
    let read = Submitted::new(Call::Read { slot: 0, into: &mut into, offset: 0 }, Next::Anytime);
    let mut calls = [open(&one), open(&other), read];
    ring.run(&mut calls).unwrap();
    assert_eq!(outcomes(&calls), [Ok(0), Ok(0), Ok(4)]);
    assert_eq!(&into, b"bbbb");
}

#[test]
fn what_a_ring_can_not_do_is_refused_before_anything_is_done() {
    let errno = |refused: std::io::Result<()>| refused.unwrap_err().raw_os_error();
    assert_eq!(Ring::new(0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert_eq!(Ring::new(CALLS_MAX + 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert!(Ring::is_possible() && Ring::new(CALLS_MAX).is_ok());
    let place = Place::new("refused");
    let path = place.path("f");
    let mut ring = Ring::new(2).unwrap();
    assert_eq!(errno(ring.run(&mut made(&path, b"x", 0))), Some(libc::E2BIG));
    let beyond = Call::Open { path: &path, flags: NEW, mode: 0o600, slot: 2 };
    let beyond = &mut [Submitted::new(beyond, Next::Anytime)];
    assert_eq!(errno(ring.run(beyond)), Some(libc::EBADF));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let open = Call::Open { path: &path, flags: NEW, mode: 0o600, slot: 0 };
            errno(ring.run(&mut [Submitted::new(open, Next::Anytime)]))
        });
        assert_eq!(other.join().unwrap(), Some(libc::EPERM));
    });
    assert!(!Path::new(&place.0).join("f").exists());
    // Nothing is a bundle too.
    ring.run(&mut []).unwrap();
}
