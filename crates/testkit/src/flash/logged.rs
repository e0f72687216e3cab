//! A device of several processes that notes what is done to it in a log that they share.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use conquest_flash::device::{Device, FileDevice, Limits};

use super::shared_log::{Kind, Log, Note};
use crate::rng::mix;

/// Microseconds, at most, between a write that is noted and the write itself.
const PAUSE: u64 = 300;

/// Requests of this process, to all devices.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// A file or device, by one of its openers. It has no files to be used by queues, so all that is
/// done to it is done by its methods. A write is noted before it is begun, and when it has returned
/// again: what a process does not come to note is under way, until somebody has found that the
/// process is no writer any more.
///
/// Every other process has it as a device with FUA, which it need not have: what is written durably
/// is flushed, but only that is noted.
#[derive(Debug)]
pub struct Logged {
    device: Arc<FileDevice>,
    number: u64,
    log: Log,
    /// As which writer it was entered.
    writer: AtomicU64,
}

impl Logged {
    /// `device`, which is device `number` of `log`.
    pub(super) const fn new(device: Arc<FileDevice>, number: u64, log: Log) -> Logged {
        Logged { device, number, log, writer: AtomicU64::new(u64::MAX) }
    }

    /// A note of this process about a new request.
    fn new_note(&self, kind: Kind) -> Note {
        let count = u64::from(REQUESTS.fetch_add(1, Ordering::Relaxed));
        let request = u64::from(std::process::id()) << 32 | count;
        let writer = self.writer.load(Ordering::SeqCst);
        Note { kind, device: self.number, request, writer, at: 0, len: 0, place: 0 }
    }

    /// Does `work` between `begin` and the note of kind `end`, which it leaves if it succeeds.
    fn between(
        &self,
        begin: Note,
        end: Kind,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.log.note(&begin)?;
        work()?;
        self.log.note(&Note { kind: end, ..begin }).map(drop)
    }

    /// Lets `write` do so, a little later.
    fn write_until(
        &self,
        at: u64,
        bytes: &[u8],
        end: Kind,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let place = self.log.keep(bytes)?;
        let begin = Note { at, len: bytes.len() as u64, place, ..self.new_note(Kind::Write) };
        self.between(begin, end, || {
            // So that others do something meanwhile, or somebody is killed here.
            std::thread::sleep(Duration::from_micros(mix(begin.request) % PAUSE));
            write()
        })
    }
}

impl Device for Logged {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    /// Nothing is discarded: what that leaves would be open.
    fn limits(&self) -> Limits {
        let fua = std::process::id().is_multiple_of(2);
        Limits { is_cached: true, discards: false, fua, ..self.device.limits() }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_until(at, bytes, Kind::Written, || self.device.write(at, bytes))
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.limits().fua {
            let write = || self.device.write_durable(at, bytes);
            return self.write_until(at, bytes, Kind::Durable, write);
        }
        self.write(at, bytes)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        self.between(self.new_note(Kind::Flush), Kind::Flushed, || self.device.flush())
    }

    fn discard(&self, _at: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        let is_ours = self.device.enter(writer)?;
        if is_ours {
            self.writer.store(writer, Ordering::SeqCst);
        }
        Ok(is_ours)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        let is_entered = self.device.is_entered(writer)?;
        if !is_entered {
            self.log.note(&Note { writer, ..self.new_note(Kind::Gone) })?;
        }
        Ok(is_entered)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        let is_anyone = self.device.is_anyone_entered()?;
        if !is_anyone {
            self.log.note(&self.new_note(Kind::AllGone))?;
        }
        Ok(is_anyone)
    }
}
