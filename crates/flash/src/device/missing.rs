//! A member that is not there.

use std::io;
use std::path::{Path, PathBuf};

use super::{Device, Limits};

/// Stands for a member of a mirror that is not there: nothing can be done to it.
pub struct Missing {
    name: PathBuf,
    len: u64,
    limits: Limits,
}

impl Missing {
    /// One that would be like `other`, another member of the mirror.
    #[must_use]
    pub fn like(other: &dyn Device) -> Missing {
        Missing { name: "(missing)".into(), len: other.len(), limits: other.limits() }
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ENODEV)
}

impl Device for Missing {
    fn name(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read(&self, _at: u64, _into: &mut [u8]) -> io::Result<()> {
        Err(gone())
    }

    fn write(&self, _at: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(gone())
    }

    fn flush(&self) -> io::Result<()> {
        Err(gone())
    }

    fn discard(&self, _at: u64, _len: u64) -> io::Result<()> {
        Err(gone())
    }

    fn missing(&self) -> u64 {
        1
    }

    /// Nobody else can be known there either.
    fn enter(&self, _writer: u64) -> io::Result<bool> {
        Ok(true)
    }

    fn leave(&self, _writer: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_entered(&self, _writer: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        Ok(false)
    }
}
