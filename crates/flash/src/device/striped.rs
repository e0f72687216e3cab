//! Several devices in turn.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Device, Limits, any, combined, enter_all, files_of, invalid, route_to};

/// Several devices as one that has their space together: a chunk of the first one, one of the
/// second one, and so on, and again from the first. What one of them loses is lost.
///
/// A transfer of several chunks is one of each, one after the other.
pub struct Striped {
    members: Vec<Arc<dyn Device>>,
    chunk: u64,
    len: u64,
    limits: Limits,
    name: PathBuf,
}

impl Striped {
    /// Of `members` in this order, in chunks of so many bytes. Of each, it takes as many chunks as
    /// the shortest one has.
    ///
    /// # Errors
    /// `EINVAL` without members, if one has no whole chunk, if the chunk is not a power of two or
    /// not whole blocks, or if members have to be written in order in pieces that differ or that
    /// chunks don't consist of.
    pub fn new(members: Vec<Arc<dyn Device>>, chunk: u64) -> io::Result<Striped> {
        let (shortest, limits, name) = combined(&members)?;
        let unit = limits.erase.unwrap_or(limits.physical.into());
        if !chunk.is_power_of_two() || !chunk.is_multiple_of(unit) || shortest < chunk {
            return Err(invalid());
        }
        let whole = shortest - shortest % chunk;
        let len = whole.checked_mul(members.len() as u64).ok_or_else(invalid)?;
        Ok(Striped { members, chunk, len, limits, name })
    }

    /// The member that has byte `at`, where it has it, and how many bytes follow there.
    fn place(&self, at: u64) -> io::Result<(&dyn Device, u64, u64)> {
        let (chunk, within) = (at / self.chunk, at % self.chunk);
        let count = self.members.len() as u64;
        let member = self.members.get((chunk % count) as usize).ok_or_else(invalid)?;
        Ok((&**member, chunk / count * self.chunk + within, self.chunk - within))
    }

    /// The number of the only member that has the `len` bytes from `at` on, and where.
    fn only(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let (chunk, within) = (at / self.chunk, at % self.chunk);
        let count = self.members.len() as u64;
        if at.checked_add(len)? > self.len || within + len > self.chunk {
            return None;
        }
        Some(((chunk % count) as usize, chunk / count * self.chunk + within))
    }

    /// Reads, from any copy or a chosen one.
    fn read_from(&self, copy: Option<u32>, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, into.len() as u64)?;
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let (member, place, count) = self.place(at)?;
            let (part, behind) = rest.split_at_mut(rest.len().min(count as usize));
            match copy {
                None => member.read(place, part)?,
                Some(copy) => member.read_copy(copy, place, part)?,
            }
            at += part.len() as u64;
            rest = behind;
        }
        Ok(())
    }
}

impl Device for Striped {
    fn name(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_from(None, at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, bytes.len() as u64)?;
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (member, place, count) = self.place(at)?;
            let (part, behind) = rest.split_at(rest.len().min(count as usize));
            member.write(place, part)?;
            at += part.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// One request if one member has all of it; otherwise all are flushed.
    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, bytes.len() as u64)?;
        let only = self.only(at, bytes.len() as u64);
        if let Some((member, place)) = only.and_then(|(n, at)| Some((self.members.get(n)?, at))) {
            return member.write_durable(place, bytes);
        }
        self.write(at, bytes)?;
        self.flush()
    }

    /// Flushes one after the other, all of them, also behind one that fails.
    fn flush(&self) -> io::Result<()> {
        let mut outcome = Ok(());
        for member in &self.members {
            outcome = outcome.and(member.flush());
        }
        outcome
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.limits.admit(self.len, at, len)?;
        let (mut at, mut rest) = (at, len);
        while rest > 0 {
            let (member, place, count) = self.place(at)?;
            let part = rest.min(count);
            member.discard(place, part)?;
            at += part;
            rest -= part;
        }
        Ok(())
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        let end = at.saturating_add(len);
        let mut at = at;
        while at < end {
            let (member, place, count) = self.place(at)?;
            let part = count.min(end - at);
            if !member.is_blank(place, part)? {
                return Ok(false);
            }
            at += part;
        }
        Ok(true)
    }

    /// As many as the member has that has the fewest.
    fn copies(&self) -> u32 {
        self.members.iter().map(|member| member.copies()).min().unwrap_or(0)
    }

    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        if copy >= self.copies() {
            return Err(invalid());
        }
        self.read_from(Some(copy), at, into)
    }

    fn files(&self) -> io::Result<Vec<File>> {
        files_of(&self.members)
    }

    fn file_count(&self) -> usize {
        self.members.iter().map(|member| member.file_count()).sum()
    }

    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let (number, at) = self.only(at, len)?;
        route_to(&self.members, number, |member| member.route(at, len))
    }

    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let (number, at) = self.only(at, len)?;
        route_to(&self.members, number, |member| member.route_write(at, len))
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        enter_all(&self.members, writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.members.iter().try_for_each(|member| member.leave(writer))
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        any(&self.members, |member| member.is_entered(writer))
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        any(&self.members, |member| member.is_anyone_entered())
    }
}
