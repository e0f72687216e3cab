//! Several devices that have the same.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conquest_format::volume::MIRRORS_MAX;

use super::{
    Device, Limits, Standing, any, broken, combined, enter_all, files_of, invalid, route_to,
};

/// Bytes that are read from one member before the next one has its turn.
const TURN: u64 = 1 << 20;

/// What is known of the members, a bit each.
#[derive(Clone, Copy, Default)]
struct State {
    standing: Standing,
    /// Those that were seen to fail, which others may not know.
    seen: u64,
}

impl State {
    /// Whether this member has all that counts.
    const fn is_good(&self, member: usize) -> bool {
        self.standing.failed & bit(member) == 0
    }

    /// Whether this member is to be written.
    const fn is_written(&self, member: usize) -> bool {
        self.is_good(member) || self.standing.restored & bit(member) != 0
    }

    /// Whether it may be that one of `members` has all that counts, besides `member`.
    const fn has_others(&self, member: usize, members: usize) -> bool {
        let all = if members < 64 { bit(members) - 1 } else { u64::MAX };
        all & !self.standing.failed & !bit(member) != 0
    }

    const fn fail(&mut self, member: usize) {
        self.standing.failed |= bit(member);
        self.standing.restored &= !bit(member);
    }
}

/// The bit of a member.
const fn bit(member: usize) -> u64 {
    1 << member
}

/// Several devices as one: everything is written to all of them, one after the other, and read from
/// one.
///
/// *A member fails* when it has not taken what another one has, or not made it durable: it is not
/// used any more by this value, since nobody can tell which of its bytes are old. So each member
/// that has not failed has all that this value has written with success. What no member takes is
/// an error and makes none fail; members may differ there from then on. Nor does what can't be read
/// make a member fail: the next one is read.
///
/// *Others know which members have failed* because whoever uses this tells them what
/// [`Device::failures`] says, before what was written counts, and tells this what they know by
/// [`Device::adopt`].
pub struct Mirrored {
    members: Vec<Arc<dyn Device>>,
    state: Mutex<State>,
    len: u64,
    limits: Limits,
    name: PathBuf,
}

impl Mirrored {
    /// Of `members`, as long as the shortest one. Those that are [`Missing`](super::Missing) have
    /// failed.
    ///
    /// # Errors
    /// `EINVAL` without members, with more than [`MIRRORS_MAX`], or if they have to be written in
    /// order in pieces that differ.
    pub fn new(members: Vec<Arc<dyn Device>>) -> io::Result<Mirrored> {
        if members.len() > MIRRORS_MAX as usize {
            return Err(invalid());
        }
        let (shortest, limits, name) = combined(&members)?;
        let unit = limits.erase.unwrap_or(limits.block.into());
        let len = shortest - shortest % unit;
        let mut state = State::default();
        for (number, member) in members.iter().enumerate() {
            if member.missing() != 0 {
                state.fail(number);
            }
        }
        Ok(Mirrored { members, state: Mutex::new(state), len, limits, name })
    }

    /// Members that have failed, by their numbers from 0 on.
    #[must_use]
    pub fn failed_members(&self) -> Vec<usize> {
        let state = *self.lock();
        (0..self.members.len()).filter(|&member| !state.is_good(member)).collect()
    }

    /// Uses this member no more, as if it had failed.
    ///
    /// # Errors
    /// `EINVAL` if there is none of this number, or no other one that has not failed.
    pub fn fail(&self, member: usize) -> io::Result<()> {
        let mut state = self.lock();
        let count = self.members.len();
        if member >= count || !state.has_others(member, count) {
            return Err(invalid());
        }
        state.fail(member);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_failed(&self, member: usize) -> bool {
        !self.lock().is_good(member)
    }

    /// The member that is asked first for what is at `at`.
    fn first_for(&self, at: u64) -> usize {
        (at / TURN % self.members.len() as u64) as usize
    }

    /// Does `work` to all members that are written, which fail if they don't do what others have
    /// done.
    fn on_all(&self, work: impl Fn(&dyn Device) -> io::Result<()>) -> io::Result<()> {
        let before = *self.lock();
        let used = self.members.iter().enumerate().filter(|(number, _)| before.is_written(*number));
        let outcomes: Vec<_> = used.map(|(number, member)| (number, work(&**member))).collect();
        let mut state = self.lock();
        // Others may meanwhile have seen a member fail that has done this: it counts no more.
        let has_done = outcomes.iter().any(|(number, outcome)| {
            outcome.is_ok() && before.is_good(*number) && state.is_good(*number)
        });
        let mut error = None;
        for (number, outcome) in outcomes {
            let Err(why) = outcome else { continue };
            if has_done || !before.is_good(number) {
                state.fail(number);
                state.seen |= bit(number);
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

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, bytes.len() as u64)?;
        self.on_all(|member| member.write_durable(at, bytes))
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
    /// `EIO` if it has failed, and is not being brought up to date.
    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, into.len() as u64)?;
        let number = copy as usize;
        let member = self.members.get(number).ok_or_else(invalid)?;
        let is_used = self.lock().is_written(number);
        if is_used { member.read(at, into) } else { Err(broken()) }
    }

    fn write_copy(&self, copy: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.limits.admit(self.len, at, bytes.len() as u64)?;
        let number = copy as usize;
        let member = self.members.get(number).ok_or_else(invalid)?;
        if !self.lock().is_written(number) {
            return Err(broken());
        }
        let written = member.write(at, bytes);
        if written.is_err() {
            let mut state = self.lock();
            if !state.is_good(number) || state.has_others(number, self.members.len()) {
                state.fail(number);
                state.seen |= bit(number);
            }
        }
        written
    }

    fn failures(&self) -> u64 {
        self.lock().seen
    }

    /// Forgets what was seen to fail if all know it. Those that are missing stay so.
    fn adopt(&self, standing: Standing) {
        let missing = self.missing();
        let mut state = self.lock();
        state.seen &= !standing.failed | standing.restored;
        let failed = standing.failed | state.seen | missing;
        let restored = standing.restored & !state.seen & !missing;
        state.standing = Standing { failed, restored };
    }

    fn standing(&self) -> Standing {
        self.lock().standing
    }

    fn missing(&self) -> u64 {
        let is_missing = |(number, member): (usize, &Arc<dyn Device>)| match member.missing() {
            0 => 0,
            _ => bit(number),
        };
        self.members.iter().enumerate().map(is_missing).sum()
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
