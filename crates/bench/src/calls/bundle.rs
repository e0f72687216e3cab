//! Bundles: calls about several files that are made at once, where a target can do that (MB 10).

use std::ffi::CStr;
use std::hint::black_box;
use std::io;

use conquest_uring::{CALLS_MAX, Call, Next, Ring, Stat, Submitted};
use rustix::fs::OFlags;

use super::{CallError, Calls, Outcome};

/// What is done with a file of a bundle.
#[derive(Debug)]
pub enum Bundled<'b> {
    /// It is made with these bytes.
    Create(&'b CStr, &'b [u8]),
    /// Its first bytes are read, as many as there is room for.
    Read(&'b CStr, &'b mut [u8]),
    /// stat(2).
    Stat(&'b CStr),
    /// unlink(2).
    Unlink(&'b CStr),
}

/// Calls that the kernel makes for a file, at most.
const CALLS_EACH: usize = 3;
/// Most files of a bundle.
pub const FILES_MAX: u64 = CALLS_MAX as u64 / CALLS_EACH as u64;
/// How files are made: as others make them, with mode 0644.
pub(super) const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);

/// Does with one file what is asked for, by calls that are made one after the other.
///
/// # Errors
/// That of the first one that failed.
pub fn alone(calls: &mut (impl Calls + ?Sized), file: &mut Bundled<'_>) -> Outcome<()> {
    match file {
        Bundled::Create(path, bytes) => {
            let file = calls.open(path, NEW)?;
            calls.write(file, bytes)?;
            calls.close(file)
        }
        Bundled::Read(path, into) => {
            let file = calls.open(path, READ)?;
            calls.read(file, into)?;
            calls.close(file)
        }
        Bundled::Stat(path) => {
            black_box(calls.stat(path)?);
            Ok(())
        }
        Bundled::Unlink(path) => calls.unlink(path),
    }
}

/// Hands bundles to the kernel, by io_uring(7).
#[derive(Default)]
pub(super) struct Bundler {
    ring: Option<Ring>,
    stats: Vec<Stat>,
}

impl Bundler {
    /// Does with all of `files` what is asked for.
    pub(super) fn run(&mut self, files: &mut [Bundled<'_>]) -> Outcome<()> {
        let failed = |error| CallError::of("io_uring", error);
        let ring = match &mut self.ring {
            Some(ring) => ring,
            none => none.insert(Ring::new(CALLS_MAX).map_err(failed)?),
        };
        self.stats.resize_with(files.len().max(self.stats.len()), Stat::default);
        let mut calls = Vec::with_capacity(files.len() * CALLS_EACH);
        for ((slot, file), stat) in (0..).zip(files).zip(&mut self.stats) {
            submit(&mut calls, slot, file, stat);
        }
        ring.run(&mut calls).map_err(failed)?;
        calls.iter().try_for_each(|one| one.outcome().map(drop).map_err(|error| about(one, error)))
    }
}

/// Adds the calls that are made for `file`.
fn submit<'b>(
    calls: &mut Vec<Submitted<'b>>,
    slot: u32,
    file: &'b mut Bundled<'_>,
    into: &'b mut Stat,
) {
    let open = |path, flags: OFlags| {
        let flags = flags.bits().cast_signed() & !OFlags::CLOEXEC.bits().cast_signed();
        Submitted::new(Call::Open { path, flags, mode: 0o644, slot }, Next::IfDone)
    };
    let close = || Submitted::new(Call::Close { slot }, Next::Anytime);
    match file {
        Bundled::Create(path, bytes) => {
            let write = Call::Write { slot, bytes, offset: 0 };
            calls.extend([open(*path, NEW), Submitted::new(write, Next::Anyhow), close()]);
        }
        Bundled::Read(path, into) => {
            let read = Call::Read { slot, into, offset: 0 };
            calls.extend([open(*path, READ), Submitted::new(read, Next::Anyhow), close()]);
        }
        Bundled::Stat(path) => {
            calls.push(Submitted::new(Call::Stat { path, into }, Next::Anytime));
        }
        Bundled::Unlink(path) => calls.push(Submitted::new(Call::Unlink { path }, Next::Anytime)),
    }
}

/// Why `call` failed.
fn about(submitted: &Submitted<'_>, error: io::Error) -> CallError {
    match submitted.call() {
        Call::Open { path, .. } => CallError::at("open", path, error),
        Call::Stat { path, .. } => CallError::at("stat", path, error),
        Call::Unlink { path } => CallError::at("unlink", path, error),
        Call::Read { .. } => CallError::of("read", error),
        Call::Write { .. } => CallError::of("write", error),
        Call::Close { .. } => CallError::of("close", error),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;
    use crate::calls::{Answering, Directory, Source, path};
    use crate::experiment::Need;
    use crate::target::store;

    /// More than one bundle has elsewhere; the last one is one that is there already.
    const FILES: usize = 300;

    /// Files that are made by a bundle are there for calls, and the other way round.
    fn bundles_and_calls_do_the_same(calls: &mut dyn Calls, place: &Path) {
        let paths: Vec<CString> = (0..FILES)
            .map(|at| CString::new(place.join(format!("f{at}")).as_os_str().as_bytes()).unwrap())
            .collect();
        let (made, alone_made) = paths.split_at(FILES / 2);
        let create = |path| Bundled::Create(path, b"content");
        let mut files: Vec<_> = made.iter().map(|path| create(path)).collect();
        calls.bundle(&mut files).unwrap();
        alone_made.iter().for_each(|path| alone(calls, &mut create(path)).unwrap());
        let mut buffers = vec![[0; 7]; FILES];
        let read = paths.iter().zip(&mut buffers);
        let mut files: Vec<_> = read.map(|(path, into)| Bundled::Read(path, into)).collect();
        calls.bundle(&mut files).unwrap();
        assert!(buffers.iter().all(|found| found == b"content"));
        let mut one = [0; 7];
        alone(calls, &mut Bundled::Read(&paths[0], &mut one)).unwrap();
        assert_eq!(&one, b"content");
        let mut files: Vec<_> = paths.iter().map(|path| Bundled::Stat(path)).collect();
        calls.bundle(&mut files).unwrap();
        alone(calls, &mut Bundled::Stat(&paths[0])).unwrap();
        // Which one failed is told, and the others are done.
        let mut files = [create(&paths[7]), Bundled::Unlink(&paths[8])];
        let error = calls.bundle(&mut files).unwrap_err();
        assert!(error.path.unwrap().ends_with("f7") && error.source.raw_os_error() == Some(17));
        let gone = alone(calls, &mut Bundled::Stat(&paths[8])).unwrap_err();
        assert_eq!(gone.source.raw_os_error(), Some(2));
        let left = paths.iter().filter(|path| !path.to_bytes().ends_with(b"/f8"));
        let left = left.filter(|path| path.to_bytes() != b"f8");
        let mut files: Vec<_> = left.map(|path| Bundled::Unlink(path)).collect();
        calls.bundle(&mut files).unwrap();
        assert!(alone(calls, &mut Bundled::Stat(&paths[0])).is_err());
    }

    #[test]
    fn a_bundle_does_what_its_calls_do() {
        let name = format!("conquest-bundles-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        bundles_and_calls_do_the_same(&mut Directory::default(), &directory);
        let place = directory.join("store");
        std::fs::create_dir(&place).unwrap();
        store::make(&place, Need { bytes: 1 << 20, files: 1000, ..Need::default() }, None).unwrap();
        let answering = Answering::Store { path: place };
        let attached = Source::reach(&answering).unwrap();
        bundles_and_calls_do_the_same(&mut *attached.calls(), Path::new(""));
        attached.leave().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// Two floors: nothing at all, and one call for all of them.
    #[test]
    fn floors_do_nothing_with_bundles() {
        let name = path("none");
        for answering in [Answering::Null, Answering::SystemCall] {
            let source = Source::reach(&answering).unwrap();
            source.calls().bundle(&mut [Bundled::Stat(&name), Bundled::Unlink(&name)]).unwrap();
        }
    }
}
