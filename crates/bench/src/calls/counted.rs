//! Calls that Conquest's engine answers on a memory that counts what is done to it: the engine's
//! calls are those that the library makes. Never timed.

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use conquest::Credentials;
use conquest_access::{Credentials as Rules, Removal};
use conquest_format::fs::{DATA, PACKED_SIZES, packed};
use conquest_format::kind::Kind;
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::{How, OpenFile, Whence, bury};
use conquest_fs::paths::Path as At;
use conquest_fs::walk::Base;
use conquest_fs::{FileSystem, finish_intent};
use conquest_pm::counting::{Counting, Counts};
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::persist::Request;
use conquest_pm::{Access, CountedRegion, Options};
use rustix::fs::OFlags;

use super::slots::Slots;
use super::{Bundled, CallError, Calls, ENTRIES, Opened, Outcome, alone};

/// The engine, counted.
type Engine = FileSystem<Counting<Mapped>, OsHost>;

/// A store that this process has attached to count.
pub struct Counted {
    engine: Engine,
    who: Credentials,
}

/// Whether objects or pages of this kind hold nothing but bytes of files, or extended attributes.
fn is_content(kind: Kind) -> bool {
    let is_packed = |class| packed(class) == Some(kind);
    kind == DATA || (0..PACKED_SIZES.len()).any(is_packed)
}

fn reason(error: &conquest_fs::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno().number())
}

impl Counted {
    /// Attaches the store whose core is the file `core`, as if its medium needed write-back.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn attach(core: &Path) -> Outcome<Counted> {
        let named = |source: io::Error| CallError {
            call: "attach",
            path: Some(core.display().to_string()),
            source,
        };
        let options = Options {
            intents: Some(Box::new(finish_intent)),
            burials: Some(Box::new(bury)),
            ..Options::default()
        };
        let access = Access { write_back: Request::Always, ..Access::default() };
        let kinds = conquest_format::fs::kinds();
        let region = CountedRegion::open(Source::from(core), &kinds, access, options, is_content)
            .map_err(|error| named(io::Error::other(error.to_string())))?;
        let clock = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
        };
        let engine = FileSystem::open(region, Box::new(clock));
        let engine = engine.map_err(|error| named(reason(&error)))?;
        let who = Credentials::of_thread();
        let who = who.map_err(|error| named(io::Error::other(error.to_string())))?;
        Ok(Counted { engine, who })
    }

    /// What has been done since the last call of this.
    #[must_use]
    pub fn take(&self) -> Counts {
        self.engine.core().memory().take()
    }

    /// The calls of one thread.
    #[must_use]
    pub fn calls(&self) -> CountedFiles<'_> {
        let root = self.engine.root();
        CountedFiles { counted: self, base: Base::new(root, root), open: Slots::default() }
    }

    /// Detaches it.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn detach(self) -> Outcome<()> {
        let detached = self.engine.core().detach();
        detached.map_err(|error| CallError::of("detach", io::Error::other(error.to_string())))
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            fsuid: self.who.fsuid,
            fsgid: self.who.fsgid,
            groups: &self.who.groups,
            capabilities: self.who.capabilities,
            umask: self.who.umask,
            namespace: self.who.namespace.get(),
        }
    }

    /// Lets the engine do `work`, which is one call.
    fn does<T>(
        &self,
        work: impl FnOnce(&Engine, &Rules<'_>) -> conquest_fs::Result<T>,
    ) -> Result<T, io::Error> {
        let done = self.engine.core().memory().call(|| work(&self.engine, &self.rules()));
        done.map_err(|error| reason(&error))
    }
}

/// Calls about the files of a store, counted.
pub struct CountedFiles<'c> {
    counted: &'c Counted,
    base: Base,
    open: Slots<OpenFile>,
}

impl CountedFiles<'_> {
    /// One call about `path`.
    fn at<T>(
        &self,
        call: &'static str,
        path: &CStr,
        work: impl FnOnce(&Engine, &Rules<'_>, At<'_>) -> conquest_fs::Result<T>,
    ) -> Outcome<T> {
        let at = At { base: &self.base, bytes: path.to_bytes() };
        let done = self.counted.does(|engine, who| work(engine, who, at));
        done.map_err(|error| CallError::at(call, path, error))
    }

    /// One call about an open file.
    fn of<T>(
        &mut self,
        call: &'static str,
        file: Opened,
        work: impl FnOnce(&Engine, &Rules<'_>, &OpenFile) -> conquest_fs::Result<T>,
    ) -> Outcome<T> {
        let open = self.open.get(file).map_err(|error| CallError::of(call, error))?;
        let done = self.counted.does(|engine, who| work(engine, who, open));
        done.map_err(|error| CallError::of(call, error))
    }

    fn read_from(
        &mut self,
        call: &'static str,
        file: Opened,
        into: &mut [u8],
        from: Option<u64>,
    ) -> Outcome<usize> {
        let mut parts = [IoSliceMut::new(into)];
        self.of(call, file, |engine, _, open| engine.read_vector(open, from, &mut parts, 0))
    }

    fn write_to(
        &mut self,
        call: &'static str,
        file: Opened,
        bytes: &[u8],
        to: Option<u64>,
    ) -> Outcome<usize> {
        let parts = [IoSlice::new(bytes)];
        self.of(call, file, |engine, who, open| engine.write_vector(who, open, to, &parts, 0))
    }
}

impl Calls for CountedFiles<'_> {
    fn open(&mut self, path: &CStr, flags: OFlags) -> Outcome<Opened> {
        let how = How::from_open(flags.bits(), 0o644).map_err(|error| {
            CallError::at("open", path, io::Error::from_raw_os_error(error.number()))
        })?;
        let opened = self.at("open", path, |engine, who, at| engine.open_at(who, at, &how))?;
        Ok(self.open.keep(opened))
    }

    fn close(&mut self, file: Opened) -> Outcome<()> {
        let open = self.open.take(file).map_err(|error| CallError::of("close", error))?;
        let closed = self.counted.does(|engine, _| engine.close(&open));
        closed.map_err(|error| CallError::of("close", error))
    }

    fn read(&mut self, file: Opened, into: &mut [u8]) -> Outcome<usize> {
        self.read_from("read", file, into, None)
    }

    fn read_at(&mut self, file: Opened, into: &mut [u8], offset: u64) -> Outcome<usize> {
        self.read_from("pread", file, into, Some(offset))
    }

    fn write(&mut self, file: Opened, bytes: &[u8]) -> Outcome<usize> {
        self.write_to("write", file, bytes, None)
    }

    fn write_at(&mut self, file: Opened, bytes: &[u8], offset: u64) -> Outcome<usize> {
        self.write_to("pwrite", file, bytes, Some(offset))
    }

    fn seek(&mut self, file: Opened, to: u64) -> Outcome<()> {
        self.of("lseek", file, |engine, _, open| {
            engine.seek_to(open, to.cast_signed(), Whence::Start).map(drop)
        })
    }

    fn sync(&mut self, file: Opened) -> Outcome<()> {
        self.of("fsync", file, |engine, _, open| engine.sync(open))
    }

    fn sync_all(&mut self) -> Outcome<()> {
        let done = self.counted.does(|engine, _| engine.sync_all());
        done.map_err(|error| CallError::of("syncfs", error))
    }

    fn stat(&mut self, path: &CStr) -> Outcome<u64> {
        self.at("stat", path, |engine, who, at| Ok(engine.stat_at(who, at, true)?.size))
    }

    fn unlink(&mut self, path: &CStr) -> Outcome<()> {
        self.at("unlink", path, |engine, who, at| engine.remove_at(who, at, Removal::File))
    }

    fn mkdir(&mut self, path: &CStr) -> Outcome<()> {
        self.at("mkdir", path, |engine, who, at| {
            engine.create_at(who, at, New::Directory, 0o755).map(drop)
        })
    }

    fn rmdir(&mut self, path: &CStr) -> Outcome<()> {
        self.at("rmdir", path, |engine, who, at| engine.remove_at(who, at, Removal::Directory))
    }

    fn rename(&mut self, from: &CStr, to: &CStr) -> Outcome<()> {
        let to = At { base: &self.base, bytes: to.to_bytes() };
        self.at("rename", from, |engine, who, from| {
            engine.rename_at(who, from, to, Renaming::Replace)
        })
    }

    fn list(&mut self, path: &CStr) -> Outcome<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let how = How::from_open(flags.bits(), 0).map_err(|error| {
            CallError::at("list", path, io::Error::from_raw_os_error(error.number()))
        })?;
        self.at("list", path, |engine, who, at| {
            let open = engine.open_at(who, at, &how)?;
            let mut room = [0; ENTRIES];
            let (mut cookie, mut count) = (0, 0);
            loop {
                let before = cookie;
                for listed in engine.list(open.file, cookie, &mut room)? {
                    cookie = listed.cookie;
                    count += u64::from(!matches!(listed.name, b"." | b".."));
                }
                if cookie == before {
                    break;
                }
            }
            engine.close(&open)?;
            Ok(count)
        })
    }

    fn bundle(&mut self, files: &mut [Bundled<'_>]) -> Outcome<()> {
        let each = files.iter_mut().map(|file| match file {
            // A bundle does it without opening. What else it saves are walks, which store nothing.
            Bundled::Read(path, into) => self
                .at("read", path, |engine, who, at| engine.read_unopened(who, at, 0, into))
                .map(drop),
            file => alone(self, file),
        });
        each.fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::path;
    use crate::experiment::Need;
    use crate::target::store;

    /// Counts what `work` does on a new store.
    fn counted(work: impl FnOnce(&mut CountedFiles<'_>, &dyn Fn() -> Counts)) {
        let name = format!("conquest-counted-{:?}", std::thread::current().id());
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        store::make(&directory, Need { bytes: 1 << 20, files: 100, ..Need::default() }, None)
            .unwrap();
        let counted = Counted::attach(&store::core(&directory)).unwrap();
        work(&mut counted.calls(), &|| counted.take());
        counted.detach().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);

    #[test]
    fn changes_are_durable_and_looks_store_nothing() {
        counted(|calls, take| {
            let name = path("one");
            take();
            let file = calls.open(&name, NEW).unwrap();
            let made = take();
            // One record: see the design, "A change".
            assert!((2..=4).contains(&made.fences), "{made:?}");
            assert!(made.journal_bytes > 0 && made.shared_lines > 0, "{made:?}");
            assert!(made.shared_lines < 100, "{made:?}");
            calls.close(file).unwrap();
            take();
            for _ in 0..10 {
                calls.stat(&name).unwrap();
            }
            let looked = take();
            assert!(looked.loads > 100, "{looked:?}");
            assert_eq!((looked.fences, looked.journal_bytes), (0, 0), "{looked:?}");
            assert_eq!(looked.shared_lines, 0, "{looked:?}");
        });
    }

    /// However many there are, and neither when they are new nor when they are changed in place.
    #[test]
    fn bytes_of_files_are_no_shared_lines() {
        counted(|calls, take| {
            let file = calls.open(&path("one"), NEW).unwrap();
            let lines = |calls: &mut CountedFiles<'_>, bytes: &[u8], at: u64| {
                take();
                assert_eq!(calls.write_at(file, bytes, at).unwrap(), bytes.len());
                take().shared_lines
            };
            let bytes = vec![7; 64 << 10];
            let new = lines(calls, &bytes, 0);
            assert!((1..100).contains(&new), "{new}");
            let changed = lines(calls, &vec![8; 2048], 4096);
            assert!((1..30).contains(&changed), "{changed}");
            calls.close(file).unwrap();
        });
    }

    #[test]
    fn files_are_what_they_are_for_the_library() {
        counted(|calls, _| {
            let (one, two, inside) = (path("one"), path("d/two"), path("d"));
            calls.mkdir(&inside).unwrap();
            let file = calls.open(&one, NEW).unwrap();
            assert_eq!(calls.write(file, b"abc").unwrap(), 3);
            calls.sync(file).unwrap();
            calls.close(file).unwrap();
            assert!(calls.open(&one, NEW).is_err());
            calls.rename(&one, &two).unwrap();
            assert_eq!(calls.list(&inside).unwrap(), 1);
            assert_eq!(calls.stat(&two).unwrap(), 3);
            let file = calls.open(&two, OFlags::RDONLY).unwrap();
            let mut out = [0; 8];
            calls.seek(file, 1).unwrap();
            assert_eq!(calls.read(file, &mut out).unwrap(), 2);
            assert_eq!(calls.read_at(file, &mut out, 0).unwrap(), 3);
            assert_eq!(&out[..3], b"abc");
            calls.close(file).unwrap();
            assert!(calls.rmdir(&inside).is_err());
            calls.unlink(&two).unwrap();
            calls.rmdir(&inside).unwrap();
            let gone = calls.stat(&two).unwrap_err().to_string();
            assert!(gone.contains("stat d/two") && gone.contains("No such file"), "{gone}");
        });
    }
}
