//! A device that has to be written in order, written as others are, within limits.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Device, Limits};

/// A device whose erase blocks are written from the first byte on. What is written behind the place
/// at which a block goes on has zeros before it then: who left that out will not write it. What is
/// there already may be written once more, as it is: who began to may have died.
///
/// What is written *before* that place is [`io::ErrorKind::AlreadyExists`] if it differs.
pub(crate) struct InOrder(pub(crate) Arc<dyn Device>);

impl InOrder {
    /// Writes within one erase block.
    fn write_in_block(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let next = self.0.next(at)?;
        if next < at {
            self.0.write(next, &vec![0; (at - next) as usize])?;
        }
        let known = next.saturating_sub(at).min(bytes.len() as u64);
        let (known, new) = bytes.split_at(known as usize);
        if !known.is_empty() {
            let mut found = vec![0; known.len()];
            self.0.read(at, &mut found)?;
            if found != known {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        if new.is_empty() { Ok(()) } else { self.0.write(at + known.len() as u64, new) }
    }

    /// Bytes of an erase block.
    fn erase(&self) -> u64 {
        self.0.limits().erase.unwrap_or(u64::MAX)
    }
}

impl Device for InOrder {
    fn name(&self) -> &Path {
        self.0.name()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let within = (self.erase() - at % self.erase()).min(rest.len() as u64);
            let (part, behind) = rest.split_at(within as usize);
            self.write_in_block(at, part)?;
            at += within;
            rest = behind;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.0.discard(at, len)
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        self.0.next(at)
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        let mut at = at;
        let end = at.saturating_add(len);
        while at < end {
            if self.0.next(at)? > at {
                return Ok(false);
            }
            at += self.erase();
        }
        Ok(true)
    }

    fn copies(&self) -> u32 {
        self.0.copies()
    }

    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_copy(copy, at, into)
    }

    fn files(&self) -> io::Result<Vec<File>> {
        self.0.files()
    }

    fn file_count(&self) -> usize {
        self.0.file_count()
    }

    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.0.route(at, len)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.0.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.0.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.0.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.0.is_anyone_entered()
    }
}
