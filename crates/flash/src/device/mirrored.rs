//! Several devices that have the same.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Device, Limits, any, broken, combined, enter_all, files_of, invalid, route_to};

/// Bytes that are read from one member before the next one has its turn.
const TURN: u64 = 1 << 20;

/// Several devices as one: everything is written to all of them, one after the other, and read from
/// one.
///
/// *A member fails* when it has not taken what another one has, or not made it durable: it is not
/// used any more by this value, since nobody can tell which of its bytes are old. So each member
/// that has not failed has all that this value has written with success. What no member takes is
/// an error and makes none fail; members may differ there from then on, and so they may after a
/// power cut where nothing was flushed. Nor does what can't be read make a member fail: the next
/// one is read.
///
/// *Nobody else knows which members have failed*: neither other processes nor who comes after a
/// restart. It is up to the volume to keep that, and to tell it here by [`Self::fail`]; until all
/// know, checksums say which copy is old.
pub struct Mirrored {
    members: Vec<Arc<dyn Device>>,
    /// Whether each has failed.
    failed: Mutex<Vec<bool>>,
    len: u64,
    limits: Limits,
    name: PathBuf,
}

impl Mirrored {
    /// Of `members`, as long as the shortest one.
    ///
    /// # Errors
    /// `EINVAL` without members, or if they have to be written in order in pieces that differ.
    pub fn new(members: Vec<Arc<dyn Device>>) -> io::Result<Mirrored> {
        let (shortest, limits, name) = combined(&members)?;
        let unit = limits.erase.unwrap_or(limits.block.into());
        let len = shortest - shortest % unit;
        let failed = Mutex::new(vec![false; members.len()]);
        Ok(Mirrored { members, failed, len, limits, name })
    }

    /// Members that have failed, by their numbers from 0 on.
    #[must_use]
    pub fn failed_members(&self) -> Vec<usize> {
        let failed = self.lock();
        (0..failed.len()).filter(|member| failed.get(*member) == Some(&true)).collect()
    }

    /// Uses this member no more, as if it had failed.
    ///
    /// # Errors
    /// `EINVAL` if there is none of this number, or no other one that has not failed.
    pub fn fail(&self, member: usize) -> io::Result<()> {
        let mut failed = self.lock();
        let mut others = failed.iter().enumerate().filter(|(other, _)| *other != member);
        if !others.any(|(_, failed)| !failed) {
            return Err(invalid());
        }
        *failed.get_mut(member).ok_or_else(invalid)? = true;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self, member: usize) -> bool {
        self.lock().get(member).copied().unwrap_or(true)
    }

    /// The member that is asked first for what is at `at`.
    fn first_for(&self, at: u64) -> usize {
        (at / TURN % self.members.len() as u64) as usize
    }

    /// Does `work` to all members, which fail if they don't do what others have done.
    fn on_all(&self, work: impl Fn(&dyn Device) -> io::Result<()>) -> io::Result<()> {
        let used = self.members.iter().enumerate().filter(|(number, _)| !self.has_failed(*number));
        let outcomes: Vec<_> = used.map(|(number, member)| (number, work(&**member))).collect();
        let mut failed = self.lock();
        // Others may meanwhile have seen a member fail that has done this: it counts no more.
        let has_done = outcomes.iter().any(|(number, outcome)| {
            outcome.is_ok() && failed.get(*number).is_some_and(|has_failed| !has_failed)
        });
        let mut error = None;
        for (number, outcome) in outcomes {
            let Err(why) = outcome else { continue };
            if has_done && let Some(failed) = failed.get_mut(number) {
                *failed = true;
            }
            error.get_or_insert(why);
        }
        if has_done { Ok(()) } else { Err(error.unwrap_or_else(broken)) }
    }
}

impl Device for Mirrored {
    fn name(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    /// Reads from one that has not failed; which, depends on `at`. If that can't, from the next.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, into.len() as u64)?;
        let first = self.first_for(at);
        let mut error = None;
        let in_turn = self.members.iter().enumerate().cycle().skip(first);
        for (number, member) in in_turn.take(self.members.len()) {
            if self.has_failed(number) {
                continue;
            }
            match member.read(at, into) {
                Ok(()) => return Ok(()),
                Err(why) => error.get_or_insert(why),
            };
        }
        Err(error.unwrap_or_else(broken))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, bytes.len() as u64)?;
        self.on_all(|member| member.write(at, bytes))
    }

    fn flush(&self) -> io::Result<()> {
        self.on_all(|member| member.flush())
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.limits.admit(self.len, at, len)?;
        self.on_all(|member| member.discard(at, len))
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        Ok(!any(&self.members, |member| member.is_blank(at, len).map(|is_blank| !is_blank))?)
    }

    /// As many as there are members, also if some have failed.
    fn copies(&self) -> u32 {
        self.members.len() as u32
    }

    /// Reads what this member has.
    ///
    /// # Errors
    /// `EIO` if it has failed.
    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, into.len() as u64)?;
        let number = copy as usize;
        let member = self.members.get(number).ok_or_else(invalid)?;
        if self.has_failed(number) { Err(broken()) } else { member.read(at, into) }
    }

    fn files(&self) -> io::Result<Vec<File>> {
        files_of(&self.members)
    }

    fn file_count(&self) -> usize {
        self.members.iter().map(|member| member.file_count()).sum()
    }

    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        if at.checked_add(len)? > self.len {
            return None;
        }
        let number = self.first_for(at);
        if self.has_failed(number) {
            return None;
        }
        route_to(&self.members, number, |member| member.route(at, len))
    }

    /// On failed members, too: what was begun there before may still be under way.
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
