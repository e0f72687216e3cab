//! What a volume is made of.
//!
//! [`FileDevice`] is what volumes are kept on, [`Striped`] and [`Mirrored`] make one device of
//! several. [`MemoryDevice`] ends with the process. [`Nand`] and [`Faulty`] are for tests.

mod faulty;
mod file;
mod in_order;
mod inset;
mod memory;
mod mirrored;
mod missing;
mod nand;
mod openers;
mod striped;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use faulty::{Faults, Faulty, Work};
pub use file::{Access, Exclusive, FileDevice};
pub(crate) use in_order::InOrder;
pub use inset::Inset;
pub use memory::MemoryDevice;
pub use mirrored::Mirrored;
pub use missing::Missing;
pub use nand::{Geometry, Nand};
pub use striped::Striped;

/// Writers of a device have numbers below this.
pub const WRITERS: u64 = 1 << 62;

/// What transfers to and from a device have to keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of which each transfer's place and length are multiples: the logical block.
    pub block: u32,
    /// Bytes that the medium writes at once: a power cut leaves others alone. Whole blocks.
    pub physical: u32,
    /// Bytes that have to be written one after the other, from the first, after they were discarded
    /// as a whole; none if every block can be written at any time. Whole physical blocks.
    pub erase: Option<u64>,
    /// Whether written data can be lost before a flush.
    pub is_cached: bool,
    /// Whether discarding does anything.
    pub discards: bool,
    /// Whether it has FUA: [`Device::write_durable`] is one request, and no flush.
    pub fua: bool,
}

impl Limits {
    /// Those of a device which writes blocks of `block` bytes at any time, and at once for good.
    #[must_use]
    pub const fn of_blocks(block: u32) -> Limits {
        let physical = block;
        Limits { block, physical, erase: None, is_cached: false, discards: true, fua: false }
    }

    /// Fails with `EINVAL` unless blocks are powers of two, and everything is whole blocks.
    fn make_sense(&self) -> io::Result<()> {
        let are_powers = self.block.is_power_of_two() && self.physical.is_power_of_two();
        let physical = u64::from(self.physical);
        let is_whole = self.erase.is_none_or(|erase| erase > 0 && erase.is_multiple_of(physical));
        (are_powers && self.physical >= self.block && is_whole).then_some(()).ok_or_else(invalid)
    }

    /// Fails with `EINVAL` for what is not whole blocks of the first `end` bytes.
    fn admit(&self, end: u64, at: u64, len: u64) -> io::Result<()> {
        let is_whole = (at | len).is_multiple_of(self.block.into());
        let is_inside = at.checked_add(len).is_some_and(|last| last <= end);
        (is_whole && is_inside).then_some(()).ok_or_else(invalid)
    }

    /// Those that whoever keeps to them keeps to these and `other`. `EINVAL` if both have to be
    /// written in order, but not in pieces of one size.
    fn with(self, other: Limits) -> io::Result<Limits> {
        let erase = match (self.erase, other.erase) {
            (Some(one), Some(another)) if one != another => return Err(invalid()),
            (one, another) => one.or(another),
        };
        let both = Limits {
            block: self.block.max(other.block),
            physical: self.physical.max(other.physical),
            erase,
            is_cached: self.is_cached || other.is_cached,
            discards: self.discards || other.discards,
            fua: self.fua && other.fua,
        };
        both.make_sense().map(|()| both)
    }
}

/// How the copies of a device stand, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Those that lack what others have: they are not read.
    pub failed: u64,
    /// Those of them that are being brought up to date: they are written.
    pub restored: u64,
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// What several devices are as one: the length of the shortest, the limits of all, their names.
fn combined(members: &[Arc<dyn Device>]) -> io::Result<(u64, Limits, PathBuf)> {
    let (first, others) = members.split_first().ok_or_else(invalid)?;
    let mut len = first.len();
    let mut limits = first.limits();
    let mut name = first.name().as_os_str().to_owned();
    for other in others {
        len = len.min(other.len());
        limits = limits.with(other.limits())?;
        name.push("+");
        name.push(other.name());
    }
    Ok((len, limits, name.into()))
}

/// Makes the process known as `writer` on all of `members`; whether it is.
///
/// If two do it at once, it may be that neither is, and that each stays known on some of them.
fn enter_all(members: &[Arc<dyn Device>], writer: u64) -> io::Result<bool> {
    // Who has some of them is still writing, or his writes are: nothing is taken from him.
    if any(members, |member| member.is_entered(writer))? {
        return Ok(false);
    }
    for member in members {
        if !member.enter(writer)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The files of `members`, one behind the other.
fn files_of(members: &[Arc<dyn Device>]) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for member in members {
        files.extend(member.files()?);
    }
    Ok(files)
}

/// The `route` to bytes of member `number`, among the files of `members`.
fn route_to(
    members: &[Arc<dyn Device>],
    number: usize,
    route: impl FnOnce(&dyn Device) -> Option<(usize, u64)>,
) -> Option<(usize, u64)> {
    let (file, at) = route(&**members.get(number)?)?;
    let before: usize = members.iter().take(number).map(|member| member.file_count()).sum();
    Some((before + file, at))
}

/// Whether `question` is answered with yes by any of `members`.
fn any(
    members: &[Arc<dyn Device>],
    question: impl Fn(&dyn Device) -> io::Result<bool>,
) -> io::Result<bool> {
    for member in members {
        if question(&**member)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Something that keeps bytes. Each transfer is complete, or has failed, when its call returns; a
/// process that dies in one may leave it to be done later.
///
/// A failed write, or one that the power cut, leaves each physical block as it was, new, or
/// damaged. What was written is there after a power cut if a flush that was begun after the write
/// had returned has succeeded, or if it was [written
/// durably](Device::write_durable).
pub trait Device: Send + Sync {
    /// What to call it in messages.
    fn name(&self) -> &Path;

    /// Bytes.
    fn len(&self) -> u64;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What transfers have to keep to.
    fn limits(&self) -> Limits;

    /// Reads all of `into` from byte `at` on, wherever `into` is in memory.
    ///
    /// # Errors
    /// `EINVAL` for what [`Self::limits`] or the end rule out, `EIO` and others of the system.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` from byte `at` on, wherever `bytes` are in memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// [`Self::write`] of what is durable when this returns; nothing else need be.
    ///
    /// # Errors
    /// As [`Self::write`] and [`Self::flush`]. If what others have written may be lost by it,
    /// [`Self::flush`] fails from then on.
    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(at, bytes)?;
        self.flush()
    }

    /// Makes everything durable whose write had returned before this call.
    ///
    /// # Errors
    /// `EIO` and others of the system. What is durable then nobody knows.
    fn flush(&self) -> io::Result<()>;

    /// Tells that `len` bytes from `at` on are not needed: what they read as later is open.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn discard(&self, at: u64, len: u64) -> io::Result<()>;

    /// Of one that has to be written in order: the byte at which the erase block goes on that has
    /// byte `at`.
    ///
    /// # Errors
    /// `EINVAL` for others; those of the system.
    fn next(&self, at: u64) -> io::Result<u64> {
        let _ = at;
        Err(invalid())
    }

    /// Of one that has to be written in order: whether nothing was written to `len` bytes from `at`
    /// on, whole erase blocks, since they were erased.
    ///
    /// # Errors
    /// As [`Self::next`].
    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        let _ = (at, len);
        Err(invalid())
    }

    /// Whether all `len` bytes from `at` on were written at some time: who makes the first write
    /// to space that a file system has only reserved waits longer for the next flush. Devices of
    /// several say yes.
    ///
    /// # Errors
    /// Those of the system.
    fn is_written(&self, at: u64, len: u64) -> io::Result<bool> {
        let _ = (at, len);
        Ok(true)
    }

    /// How many copies there are of everything.
    fn copies(&self) -> u32 {
        1
    }

    /// [`Self::read`] from copy number `copy`, below [`Self::copies`].
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        if copy == 0 { self.read(at, into) } else { Err(invalid()) }
    }

    /// [`Self::write`] to copy number `copy` alone: it gets what others have. One that does not
    /// take it has failed.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn write_copy(&self, copy: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        if copy == 0 { self.write(at, bytes) } else { Err(invalid()) }
    }

    /// The copies that were seen to miss what others have, and of which [`Self::adopt`] has not
    /// been told: to be asked after whatever is written or flushed, before that counts.
    fn failures(&self) -> u64 {
        0
    }

    /// Uses its copies as all do from now on.
    fn adopt(&self, standing: Standing) {
        let _ = standing;
    }

    /// How its copies are used, as far as it knows.
    fn standing(&self) -> Standing {
        Standing::default()
    }

    /// Copies that are not there, a bit each.
    fn missing(&self) -> u64 {
        0
    }

    /// The files of which it consists, for who uses them as [`Self::route`] and
    /// [`Self::route_write`] say: descriptors of the same open files. None if it can be read by
    /// [`Self::read`] only.
    ///
    /// # Errors
    /// Those of the system.
    fn files(&self) -> io::Result<Vec<File>> {
        Ok(Vec::new())
    }

    /// How many [`Self::files`] there are.
    fn file_count(&self) -> usize {
        0
    }

    /// Which of [`Self::files`] has the `len` bytes from `at` on, to be read to memory that begins
    /// with a page, and from which byte on; none if [`Self::read`] has to be asked for them.
    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let _ = (at, len);
        None
    }

    /// The same for bytes that are to be written, from memory that begins with a page; none if
    /// [`Self::write`] has to be asked to.
    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        let _ = (at, len);
        None
    }

    /// Makes the process known as writer `writer`, below [`WRITERS`], until this value is dropped,
    /// or the process has ended, and everything that it began to write by this value has been
    /// written; whether nobody else is. Again is the same as once.
    ///
    /// A device of several may have been entered in part when this fails or says no, and stays so
    /// until it is dropped; entering it again goes on from there.
    ///
    /// # Errors
    /// Those of the system, `EINVAL` for numbers that are too large.
    fn enter(&self, writer: u64) -> io::Result<bool>;

    /// The process is writer `writer` no more, if it is: all that it had under way is complete.
    /// Files that were given out by [`Self::files`] may be open for longer.
    ///
    /// # Errors
    /// As [`Self::enter`].
    fn leave(&self, writer: u64) -> io::Result<()>;

    /// Whether somebody else is writer `writer`, below [`WRITERS`].
    ///
    /// # Errors
    /// As [`Self::enter`].
    fn is_entered(&self, writer: u64) -> io::Result<bool>;

    /// Whether somebody else is a writer, of whatever number.
    ///
    /// # Errors
    /// Those of the system.
    fn is_anyone_entered(&self) -> io::Result<bool>;
}
