//! Devices on which something goes wrong, for tests.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Device, Limits, broken};

/// What a device is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To flush.
    Flush,
    /// To discard.
    Discard,
}

/// A request that is to fail.
#[derive(Clone, Copy, Debug)]
struct Due {
    work: Work,
    /// How many of its kind were made before it.
    number: u64,
    errno: i32,
}

#[derive(Default, Debug)]
struct Plan {
    /// Requests made, of each kind of work.
    made: [u64; 4],
    due: Vec<Due>,
    is_gone: bool,
    is_read_only: bool,
    delay: Duration,
}

/// How a request fails.
struct Failure {
    errno: i32,
    /// Whether a write has written the first half.
    is_torn: bool,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        io::Error::from_raw_os_error(failure.errno)
    }
}

/// What goes wrong on a device: nothing at first.
#[derive(Default, Debug)]
pub struct Faults(Mutex<Plan>);

impl Faults {
    /// Lets one request of this kind fail with error number `errno`: the next one if `nth` is 0,
    /// the one behind it if it is 1. A write that fails so has written the first half of its
    /// blocks, rounded down.
    pub fn fail(&self, work: Work, nth: u64, errno: i32) {
        let mut plan = self.lock();
        let number = plan.made.get(work as usize).copied().unwrap_or(0) + nth;
        plan.due.push(Due { work, number, errno });
    }

    /// Lets every request from now on fail with `EIO`.
    pub fn vanish(&self) {
        self.lock().is_gone = true;
    }

    /// Lets writing and discarding fail with `EROFS`, or no longer.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.lock().is_read_only = is_read_only;
    }

    /// Lets every request take so much longer.
    pub fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// How many requests of this kind were made, failed ones too.
    #[must_use]
    pub fn made(&self, work: Work) -> u64 {
        self.lock().made.get(work as usize).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request, waits, and tells whether it fails.
    fn meet(&self, work: Work) -> Result<(), Failure> {
        let mut plan = self.lock();
        let made = plan.made.get_mut(work as usize).map_or(0, |made| {
            *made += 1;
            *made - 1
        });
        let is_due = |due: &Due| due.work == work && due.number == made;
        let due = plan.due.iter().position(is_due).map(|at| plan.due.swap_remove(at));
        let changes = matches!(work, Work::Write | Work::Discard);
        let failure = match due {
            _ if plan.is_gone => Some(Failure { errno: libc::EIO, is_torn: false }),
            _ if plan.is_read_only && changes => {
                Some(Failure { errno: libc::EROFS, is_torn: false })
            }
            due => due.map(|due| Failure { errno: due.errno, is_torn: true }),
        };
        let delay = plan.delay;
        // Others are not kept waiting.
        drop(plan);
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// A device with faults. Who is a writer is not among them.
#[derive(Debug)]
pub struct Faulty<D> {
    device: D,
    faults: Arc<Faults>,
    len: u64,
}

impl<D: Device> Faulty<D> {
    /// `device` with these faults, which others may have, too.
    pub fn new(device: D, faults: Arc<Faults>) -> Faulty<D> {
        let len = device.len();
        Faulty { device, faults, len }
    }

    /// The same, but it says that it has `len` bytes. What is behind its end fails with `EIO`.
    #[must_use]
    pub fn claiming(self, len: u64) -> Faulty<D> {
        Faulty { len, ..self }
    }

    /// Its faults.
    #[must_use]
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Whether a transfer is admitted, and the device has what it needs.
    fn admit(&self, at: u64, len: u64) -> io::Result<()> {
        self.limits().admit(self.len, at, len)?;
        if at + len > self.device.len() { Err(broken()) } else { Ok(()) }
    }

    /// Begins a write: if it is to fail, it leaves what it leaves.
    fn meet_write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.admit(at, bytes.len() as u64)?;
        let Err(failure) = self.faults.meet(Work::Write) else {
            return Ok(());
        };
        if failure.is_torn {
            let block = self.limits().block as usize;
            let half = bytes.len() / 2 / block * block;
            self.device.write(at, bytes.get(..half).unwrap_or_default())?;
        }
        Err(failure.into())
    }
}

impl<D: Device> Device for Faulty<D> {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.admit(at, into.len() as u64)?;
        self.faults.meet(Work::Read)?;
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.meet_write(at, bytes)?;
        self.device.write(at, bytes)
    }

    /// With FUA one write, otherwise a write and a flush.
    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.limits().fua {
            self.meet_write(at, bytes)?;
            return self.device.write_durable(at, bytes);
        }
        self.write(at, bytes)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        self.faults.meet(Work::Flush)?;
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.admit(at, len)?;
        self.faults.meet(Work::Discard)?;
        self.device.discard(at, len)
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        self.device.next(at)
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        self.device.is_blank(at, len)
    }

    fn copies(&self) -> u32 {
        self.device.copies()
    }

    fn read_copy(&self, copy: u32, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.admit(at, into.len() as u64)?;
        self.faults.meet(Work::Read)?;
        self.device.read_copy(copy, at, into)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}
