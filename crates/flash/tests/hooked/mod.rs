//! A device that counts what is done to it, and in whose next request something happens.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, create};
use conquest_format::volume::Arrangement;
use conquest_pm::Region;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;

use crate::volumes::{TestVolume, UNIT, opened};

/// What happens in a request: it fails if this does.
type Hook = Mutex<Option<Box<dyn FnOnce() -> io::Result<()> + Send>>>;

/// What was done to a device, by all who count together.
#[derive(Default, Debug)]
pub struct Counts {
    pub writes: AtomicU64,
    /// Writes that were to be durable by themselves.
    pub durable: AtomicU64,
    pub flushes: AtomicU64,
    /// Questions whether somebody is a writer.
    pub questions: AtomicU64,
}

impl Counts {
    /// Writes, durable ones, flushes, since this was called last.
    pub fn take(&self) -> (u64, u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::SeqCst);
        (take(&self.writes), take(&self.durable), take(&self.flushes))
    }

    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }
}

/// The device, by one of its openers.
pub struct Hooked {
    pub device: Arc<dyn Device>,
    pub counts: Arc<Counts>,
    /// Longer than others.
    pub flush_takes: Duration,
    /// Where nothing can be read before it was written, and bytes.
    pub unreadable: Mutex<Option<(u64, usize)>>,
    /// Where the last write of whatever kind is to go, and its bytes.
    pub last: Mutex<(u64, usize)>,
    fua: bool,
    write: Hook,
    flush: Hook,
    /// What happens whenever somebody asks where an erase block goes on.
    pub in_each_next: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// What happens whenever somebody asks whether another is a writer.
    pub in_each_question: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

fn run(hook: &Hook) -> io::Result<()> {
    let due = hook.lock().unwrap().take();
    due.map_or(Ok(()), |due| due())
}

impl Hooked {
    /// `device` as somebody else has it, with FUA or without.
    pub fn new(device: &MemoryDevice, fua: bool) -> Arc<Hooked> {
        Arc::new(Hooked::counting(device, fua, &Arc::default()))
    }

    pub fn counting(device: &MemoryDevice, fua: bool, counts: &Arc<Counts>) -> Hooked {
        Hooked { counts: Arc::clone(counts), ..Hooked::over(Arc::new(device.as_other()), fua) }
    }

    pub fn over(device: Arc<dyn Device>, fua: bool) -> Hooked {
        let (write, flush, flush_takes) = (Hook::default(), Hook::default(), Duration::ZERO);
        let (unreadable, last) = (Mutex::default(), Mutex::default());
        let (in_each_next, in_each_question) = (OnceLock::new(), OnceLock::new());
        Hooked {
            device,
            counts: Arc::default(),
            flush_takes,
            unreadable,
            last,
            fua,
            write,
            flush,
            in_each_next,
            in_each_question,
        }
    }

    /// Lets `what` happen in the next write of whatever kind, before it takes effect.
    pub fn in_next_write(&self, what: impl FnOnce() -> io::Result<()> + Send + 'static) {
        *self.write.lock().unwrap() = Some(Box::new(what));
    }

    /// Lets `what` happen in the next flush, before it takes effect.
    pub fn in_next_flush(&self, what: impl FnOnce() -> io::Result<()> + Send + 'static) {
        *self.flush.lock().unwrap() = Some(Box::new(what));
    }
}

impl Device for Hooked {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        Limits { fua: self.fua, ..self.device.limits() }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match *self.unreadable.lock().unwrap() {
            Some((from, len)) if at < from + len as u64 && from < at + into.len() as u64 => {
                Err(io::ErrorKind::Other.into())
            }
            _ => self.device.read(at, into),
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.counts.writes.fetch_add(1, Ordering::SeqCst);
        *self.last.lock().unwrap() = (at, bytes.len());
        run(&self.write)?;
        self.unreadable.lock().unwrap().take_if(|place| *place == (at, bytes.len()));
        self.device.write(at, bytes)
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.counts.durable.fetch_add(1, Ordering::SeqCst);
        *self.last.lock().unwrap() = (at, bytes.len());
        run(&self.write)?;
        self.device.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.counts.flushes.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.flush_takes);
        run(&self.flush)?;
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        if let Some(what) = self.in_each_next.get() {
            what();
        }
        self.device.next(at)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.counts.questions.fetch_add(1, Ordering::SeqCst);
        if let Some(what) = self.in_each_question.get() {
            what();
        }
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}

/// Devices of `segments` segments of 16 units, with a new volume on them.
pub fn new_volume(count: usize, arrangement: Arrangement, segments: u64) -> Vec<MemoryDevice> {
    let len = 2 * 65_536 + segments * 16 * UNIT;
    let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
    let device = |number| MemoryDevice::new(format!("device {number}"), len, limits).unwrap();
    let devices: Vec<_> = (0..count).map(device).collect();
    let uuid = *b"a volume to test";
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(16) };
    let all: Vec<Arc<dyn Device>> =
        devices.iter().map(|device| Arc::new(device.as_other()) as _).collect();
    create(&all, &new).unwrap();
    devices
}

/// A file for the region of `body`, which is made in it, for so many processes.
pub fn region_for(body: &Body, processes: u32) -> std::os::fd::OwnedFd {
    let file = rustix::fs::memfd_create("index", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let again = file.try_clone().unwrap();
    let (shape, kinds, uuid) = (body.shape(processes), body.kinds(), body.uuid());
    let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
    Region::create(Source::Descriptor(file), 0o600, &new).unwrap();
    again
}

/// Opens the volume on `bodies` as one process each.
pub fn open(bodies: &[Body]) -> Vec<Arc<TestVolume>> {
    let file = region_for(&bodies[0], bodies.len() as u32 + 1);
    let volume = |(number, body): (usize, &Body)| match number {
        0 => Arc::new(Volume::recover(opened(body, &file), body).unwrap()),
        _ => Arc::new(Volume::join(opened(body, &file), body).unwrap()),
    };
    bodies.iter().enumerate().map(volume).collect()
}
