//! The calls that experiments make, whatever answers them.
//!
//! An experiment is the same loop over the same calls for every target, so what differs between two
//! targets is what the calls cost. Each value of [`Calls`] belongs to one thread.

mod bundle;
mod counted;
mod directory;
mod floor;
mod leader;
mod memory;
mod ranges;
mod slots;
mod store;

use std::ffi::{CStr, CString};
use std::io;
use std::path::{Path, PathBuf};

use conquest_pm::counting::Counts;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

pub use bundle::{Bundled, FILES_MAX, alone};
pub use counted::{Counted, CountedFiles};
pub use directory::Directory;
pub use floor::{Floor, Null, SystemCall};
pub(crate) use leader::BYTES as LEADER_BYTES;
pub use leader::{Leader, Together};
pub use memory::Memory;
pub use ranges::{RangeFiles, Ranges};
pub use store::StoreFiles;

/// Bytes for entries of a directory: what glibc's `opendir` takes.
const ENTRIES: usize = 32 << 10;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call}{}: {source}", path.as_ref().map(|path| format!(" {path}")).unwrap_or_default())]
pub struct CallError {
    /// Which one.
    pub call: &'static str,
    /// What it was about, if it named something.
    pub path: Option<String>,
    /// Why.
    pub source: io::Error,
}

impl CallError {
    /// `call`, about `path`, failed because of `source`.
    fn at(call: &'static str, path: &CStr, source: impl Into<io::Error>) -> CallError {
        let path = Some(path.to_string_lossy().into_owned());
        CallError { call, path, source: source.into() }
    }

    /// `call`, about an open file, failed because of `source`.
    pub(crate) fn of(call: &'static str, source: impl Into<io::Error>) -> CallError {
        CallError { call, path: None, source: source.into() }
    }
}

/// What a call returns.
pub type Outcome<T> = core::result::Result<T, CallError>;

/// An open file: a number that [`Calls::open`] gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened(usize);

/// The calls. Paths are relative to where the target's files are. Errors are the system's, each
/// with the call and its object.
#[allow(clippy::missing_errors_doc)]
pub trait Calls {
    /// Opens a file; `flags` are those of open(2), new files have mode 0644.
    fn open(&mut self, path: &CStr, flags: OFlags) -> Outcome<Opened>;
    /// Closes it.
    fn close(&mut self, file: Opened) -> Outcome<()>;
    /// Reads at the file's position, which moves: how many bytes.
    fn read(&mut self, file: Opened, into: &mut [u8]) -> Outcome<usize>;
    /// Reads at `offset`.
    fn read_at(&mut self, file: Opened, into: &mut [u8], offset: u64) -> Outcome<usize>;
    /// Writes at the file's position, which moves: how many bytes.
    fn write(&mut self, file: Opened, bytes: &[u8]) -> Outcome<usize>;
    /// Writes at `offset`.
    fn write_at(&mut self, file: Opened, bytes: &[u8], offset: u64) -> Outcome<usize>;
    /// Moves the position to `to`.
    fn seek(&mut self, file: Opened, to: u64) -> Outcome<()>;
    /// fsync(2).
    fn sync(&mut self, file: Opened) -> Outcome<()>;
    /// syncfs(2) of the file system with the target's files.
    fn sync_all(&mut self) -> Outcome<()>;
    /// stat(2): the size.
    fn stat(&mut self, path: &CStr) -> Outcome<u64>;
    /// unlink(2).
    fn unlink(&mut self, path: &CStr) -> Outcome<()>;
    /// mkdir(2), with mode 0755.
    fn mkdir(&mut self, path: &CStr) -> Outcome<()>;
    /// rmdir(2).
    fn rmdir(&mut self, path: &CStr) -> Outcome<()>;
    /// rename(2).
    fn rename(&mut self, from: &CStr, to: &CStr) -> Outcome<()>;
    /// Opens a directory, reads all of its entries, and closes it: how many there are, without `.`
    /// and `..`.
    fn list(&mut self, path: &CStr) -> Outcome<u64>;
    /// Does with all of `files` what is asked for, as one call if that is possible.
    fn bundle(&mut self, files: &mut [Bundled<'_>]) -> Outcome<()> {
        files.iter_mut().map(|file| alone(self, file)).fold(Ok(()), Result::and)
    }
}

/// What answers a process's calls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Answering {
    /// The kernel, for the files in a directory.
    Directory {
        /// Which.
        path: PathBuf,
    },
    /// The library, for the files of a store.
    Store {
        /// Its directory.
        path: PathBuf,
    },
    /// Nobody: it is a file or a block device, and the experiment works on it as such.
    Device {
        /// Where.
        path: PathBuf,
    },
    /// Memory of the process: the bytes of files are copied, names cost nothing.
    Memory,
    /// A bare device, or a volume on it: each file is a range.
    Ranges {
        /// Where the device is.
        path: PathBuf,
        /// Bytes of each file.
        each: u64,
        /// Bytes of the volume, if there is one.
        volume: Option<u64>,
    },
    /// Memory that processes share, which one of them writes to a device for all.
    Leader {
        /// A file in memory.
        memory: PathBuf,
        /// Where the device is.
        device: PathBuf,
    },
    /// Nobody: each call returns at once.
    Null,
    /// The kernel, with one system call that does nothing for each call.
    SystemCall,
}

/// Something that gives each thread of a process its calls.
pub enum Source {
    /// See [`Answering::Directory`]; the process stands in the directory.
    Directory,
    /// See [`Answering::Store`].
    Store(Box<store::Attached>),
    /// The same, counted.
    Counted(Box<Counted>),
    /// See [`Answering::Memory`].
    Memory(memory::Shared),
    /// See [`Answering::Ranges`].
    Ranges(Box<Ranges>),
    /// See [`Answering::Leader`].
    Leader(Box<Together>),
    /// See [`Answering::Null`].
    Null,
    /// See [`Answering::SystemCall`].
    SystemCall,
    /// Not reached: calls do nothing until somebody does.
    Later(Answering),
}

impl Source {
    /// Where the device is, for experiments that work on one.
    ///
    /// # Errors
    /// If the target is something else.
    pub fn device(&self) -> Outcome<&Path> {
        match self {
            Source::Later(Answering::Device { path }) => Ok(path),
            _ => Err(CallError {
                call: "open a device",
                path: None,
                source: io::ErrorKind::Unsupported.into(),
            }),
        }
    }

    /// Goes to where the files are, or attaches the store.
    ///
    /// # Errors
    /// If that fails.
    pub fn reach(answering: &Answering) -> Outcome<Source> {
        Ok(match answering {
            Answering::Directory { path } => {
                std::env::set_current_dir(path).map_err(|source| CallError {
                    call: "chdir",
                    path: Some(path.display().to_string()),
                    source,
                })?;
                Source::Directory
            }
            Answering::Store { path } => Source::Store(Box::new(store::Attached::attach(path)?)),
            Answering::Device { .. } => Source::Later(answering.clone()),
            Answering::Memory => Source::Memory(memory::Shared::default()),
            Answering::Ranges { path, each, volume } => {
                Source::Ranges(Box::new(Ranges::open(path, *each, *volume)?))
            }
            Answering::Leader { memory, device } => {
                Source::Leader(Box::new(Together::open(memory, device)?))
            }
            Answering::Null => Source::Null,
            Answering::SystemCall => Source::SystemCall,
        })
    }

    /// As [`Source::reach`], for a store that was made for it, with calls that are counted.
    ///
    /// # Errors
    /// If that fails.
    pub fn count(answering: &Answering) -> Outcome<Source> {
        match answering {
            Answering::Store { path } => {
                Ok(Source::Counted(Box::new(Counted::attach(&crate::target::store::core(path))?)))
            }
            _ => Source::reach(answering),
        }
    }

    /// What was done since the last call of this, if it is counted.
    #[must_use]
    pub fn take_counts(&self) -> Option<Counts> {
        match self {
            Source::Counted(counted) => Some(counted.take()),
            _ => None,
        }
    }

    /// The calls of one thread.
    #[must_use]
    pub fn calls(&self) -> Box<dyn Calls + Send + '_> {
        match self {
            Source::Directory => Box::new(Directory::default()),
            Source::Store(attached) => Box::new(attached.calls()),
            Source::Counted(counted) => Box::new(counted.calls()),
            Source::Memory(shared) => Box::new(Memory::of(shared)),
            Source::Ranges(ranges) => Box::new(ranges.calls()),
            Source::Leader(together) => Box::new(together.calls()),
            Source::Null | Source::Later(_) => Box::new(Floor::<false>),
            Source::SystemCall => Box::new(Floor::<true>),
        }
    }

    /// Lets go of what was attached.
    ///
    /// # Errors
    /// If that fails.
    pub fn leave(self) -> Outcome<()> {
        match self {
            Source::Store(attached) => attached.detach(),
            Source::Counted(counted) => counted.detach(),
            Source::Ranges(ranges) => ranges.leave(),
            _ => Ok(()),
        }
    }
}

/// `name` as paths are given to [`Calls`]; what has a NUL in it is cut off there.
#[must_use]
pub fn path(name: &str) -> CString {
    let end = name.find('\0').unwrap_or(name.len());
    CString::new(name.get(..end).unwrap_or_default()).unwrap_or_default()
}
