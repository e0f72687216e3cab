//! What making small changes durable together costs at least: bytes are copied to memory that all
//! processes share; one of those who wait writes them to a device, flushes it, and wakes the
//! others. There are no files, no order, and nothing to be found again.

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conquest_flash::device::{Access, Device, FileDevice};
use conquest_format::{LINE, Offset};
use conquest_pm::media::{MapOptions, Mapped, Medium, Source};
use conquest_pm::memory::Memory;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{CallError, Calls, Opened, Outcome};

/// Bytes of the shared memory.
pub(crate) const BYTES: u64 = 64 << 20;

/// Words of it, each on a line of its own: bytes that were put there, and that are durable, all
/// from the beginning on; whether somebody leads; how often somebody has; and what those wait on
/// who came while somebody did for the n-th time.
const NEXT: u64 = 0;
const DURABLE: u64 = LINE;
const LEADER: u64 = 2 * LINE;
const GROUP: u64 = 3 * LINE;
const BELLS: u64 = 4 * LINE;
/// Those who are served, those who wait meanwhile, and two that nobody waits on.
const GROUPS: u64 = 4;
/// Where the bytes begin, and how many there is room for, one round after the other.
const ROOM: u64 = 4096;
const ROOM_BYTES: u64 = BYTES - ROOM;

/// Bytes of a write begin and end with a multiple of this.
const UNIT: u64 = 4096;
/// Bytes that are written at once, at most.
const MOST: u64 = 16 << 20;
/// How long somebody sleeps until he looks again, and until he gives up.
const LOOK: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

/// The memory and the device.
pub struct Together {
    memory: Mapped,
    device: FileDevice,
}

/// The calls of one thread. Files are neither told apart nor kept.
pub struct Leader<'t> {
    together: &'t Together,
    /// Where what it has written ends.
    end: u64,
    buffer: Vec<u8>,
}

impl Together {
    /// Opens the file at `memory`, of 64 MiB, zeros in the beginning, and the device at `device`.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(memory: &Path, device: &Path) -> Outcome<Together> {
        let other = |error: conquest_pm::Error| CallError::of("mmap", io::Error::other(error));
        let medium = Medium::open(Source::Path(memory.to_owned())).map_err(other)?;
        let memory = Mapped::map(&medium, BYTES, &MapOptions::default()).map_err(other)?;
        let device = FileDevice::open(device, Access::Write)
            .map_err(|error| CallError::of("open a device", error))?;
        Ok(Together { memory, device })
    }

    /// The calls of one thread.
    #[must_use]
    pub fn calls(&self) -> Leader<'_> {
        Leader { together: self, end: 0, buffer: Vec::new() }
    }

    fn load(&self, at: u64) -> u64 {
        self.memory.load(Offset::new(at), Ordering::Acquire)
    }

    fn store(&self, at: u64, value: u64) {
        self.memory.store(Offset::new(at), value, Ordering::Release);
    }

    fn replace(&self, at: u64, from: u64, to: u64) -> bool {
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        self.memory.compare_exchange(Offset::new(at), from, to, success, failure).is_ok()
    }

    /// Adds `more` to a word: what it was.
    fn add(&self, at: u64, more: u64) -> u64 {
        loop {
            let before = self.load(at);
            if self.replace(at, before, before.wrapping_add(more)) {
                return before;
            }
        }
    }

    fn bell(group: u64) -> u64 {
        BELLS + group % GROUPS * LINE
    }

    fn ring(&self, group: u64, count: u32) {
        self.add(Self::bell(group), 1);
        self.memory.wake(Offset::new(Self::bell(group)), count);
    }

    /// Puts `bytes` behind what is there: where they end. Who leads meanwhile may write what was
    /// there before: it is as much.
    fn put(&self, bytes: &[u8]) -> u64 {
        let len = bytes.len() as u64;
        let at = self.add(NEXT, len);
        self.memory.put_bytes(place(at, len), bytes);
        at + len
    }

    /// Writes what there is, and flushes it: the caller leads.
    fn write(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (from, to) = (self.load(DURABLE), self.load(NEXT));
        let mut at = from / UNIT * UNIT;
        while at < to {
            let len = (to - at).next_multiple_of(UNIT).min(MOST);
            buffer.resize(len as usize, 0);
            self.memory.read(place(at, len), buffer);
            self.device.write(at % (self.device.len() - len) / UNIT * UNIT, buffer)?;
            at += len;
        }
        self.device.flush()?;
        self.store(DURABLE, to);
        Ok(())
    }

    /// Returns when all below `end` is durable.
    fn wait_for(&self, end: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let since = Instant::now();
        let mut group = self.load(GROUP);
        let mut rung = self.load(Self::bell(group));
        while self.load(DURABLE) < end {
            if self.replace(LEADER, 0, 1) {
                group = self.add(GROUP, 1);
                let written = self.write(buffer);
                self.store(LEADER, 0);
                self.ring(group, u32::MAX);
                group = group.wrapping_add(1);
                self.ring(group, 1);
                written?;
                return Ok(());
            }
            if since.elapsed() > LIMIT {
                return Err(Errno::TIMEDOUT.into());
            }
            self.memory.wait(Offset::new(Self::bell(group)), rung as u32, LOOK);
            rung = self.load(Self::bell(group));
        }
        // Who was woken to lead, and need not, lets the next one do it.
        if self.load(GROUP) == group {
            self.ring(group, 1);
        }
        Ok(())
    }
}

/// Where the `len` bytes from `at` on are.
fn place(at: u64, len: u64) -> Offset {
    Offset::new(ROOM + at % (ROOM_BYTES - len) / 8 * 8)
}

impl Leader<'_> {
    fn make_durable(&mut self) -> Outcome<()> {
        let done = self.together.wait_for(self.end, &mut self.buffer);
        done.map_err(|source| CallError::of("fsync", source))
    }
}

impl Calls for Leader<'_> {
    fn open(&mut self, _: &CStr, _: OFlags) -> Outcome<Opened> {
        Ok(Opened(0))
    }

    fn close(&mut self, _: Opened) -> Outcome<()> {
        Ok(())
    }

    fn read(&mut self, _: Opened, into: &mut [u8]) -> Outcome<usize> {
        Ok(into.len())
    }

    fn read_at(&mut self, _: Opened, into: &mut [u8], _: u64) -> Outcome<usize> {
        Ok(into.len())
    }

    fn write(&mut self, _: Opened, bytes: &[u8]) -> Outcome<usize> {
        self.end = self.together.put(bytes);
        Ok(bytes.len())
    }

    fn write_at(&mut self, file: Opened, bytes: &[u8], _: u64) -> Outcome<usize> {
        self.write(file, bytes)
    }

    fn seek(&mut self, _: Opened, _: u64) -> Outcome<()> {
        Ok(())
    }

    fn sync(&mut self, _: Opened) -> Outcome<()> {
        self.make_durable()
    }

    fn sync_all(&mut self) -> Outcome<()> {
        self.make_durable()
    }

    fn stat(&mut self, _: &CStr) -> Outcome<u64> {
        Ok(0)
    }

    fn unlink(&mut self, _: &CStr) -> Outcome<()> {
        Ok(())
    }

    fn mkdir(&mut self, _: &CStr) -> Outcome<()> {
        Ok(())
    }

    fn rmdir(&mut self, _: &CStr) -> Outcome<()> {
        Ok(())
    }

    fn rename(&mut self, _: &CStr, _: &CStr) -> Outcome<()> {
        Ok(())
    }

    fn list(&mut self, _: &CStr) -> Outcome<u64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Threads of four "processes", each of which reaches memory and device by itself.
    #[test]
    fn what_is_synced_is_on_the_device() {
        let directory = std::env::temp_dir();
        let name = |what: &str| directory.join(format!("leader-{}-{what}", std::process::id()));
        let (memory, device) = (name("memory"), name("device"));
        for (path, len) in [(&memory, BYTES), (&device, 4 << 20)] {
            std::fs::File::create(path).unwrap().set_len(len).unwrap();
        }
        let (each, bytes) = (50, 4096);
        std::thread::scope(|scope| {
            for number in 1..=4u8 {
                let (memory, device) = (&memory, &device);
                scope.spawn(move || {
                    let together = Together::open(memory, device).unwrap();
                    let mut calls = together.calls();
                    let content = vec![number; bytes];
                    for _ in 0..each {
                        let file = calls.open(c"x", OFlags::WRONLY).unwrap();
                        calls.write(file, &content).unwrap();
                        calls.sync(file).unwrap();
                        assert!(together.load(DURABLE) >= calls.end);
                    }
                });
            }
        });
        let all = each * bytes * 4;
        let mut found = vec![0; all];
        std::fs::File::open(&device).unwrap().read_exact_at(&mut found, 0).unwrap();
        // What was put when a leader had read already may not be there; most is.
        let written = found.chunks(bytes).filter(|page| page.iter().all(|byte| *byte != 0));
        assert!(written.count() > each * 2);
        for path in [memory, device] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
