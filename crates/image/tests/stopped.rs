//! One who is stopped while he writes an epoch: another one writes his own meanwhile, and what is
//! durable then stays so when the first one goes on.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, assemble, create};
use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_format::volume::Arrangement;
use conquest_image::Image;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::{Access, Options, Region};
use conquest_testkit::scenario::shape;
use conquest_testkit::shelf::{self, Contents, Op};

type TestImage = Image<Mapped, OsHost>;

const SHAPE: Shape = Shape { max_groups: 6, log: 64, slots: 4, lanes: 4, ..shape() };
/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a request that is one of payload, and of no packet.
const LONG: usize = 100 << 10;

/// Tells that a request waits, and is told that it may go on.
struct Gate {
    waits: Sender<()>,
    goes_on: Receiver<()>,
}

/// A device on which the next long write waits, once there is a gate.
struct Gated {
    device: MemoryDevice,
    gate: Arc<Mutex<Option<Gate>>>,
}

impl Device for Gated {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let gate = match bytes.len() >= LONG {
            true => self.gate.lock().unwrap().take(),
            false => None,
        };
        if let Some(Gate { waits, goes_on }) = gate {
            waits.send(()).unwrap();
            // Who is gone lets it go on.
            let _told = goes_on.recv_timeout(PATIENCE);
        }
        self.device.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }

    fn enter(&self, place: u64) -> io::Result<bool> {
        self.device.enter(place)
    }

    fn leave(&self, place: u64) -> io::Result<()> {
        self.device.leave(place)
    }

    fn is_entered(&self, place: u64) -> io::Result<bool> {
        self.device.is_entered(place)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}

fn new_region() -> NewRegion {
    NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [1; 16], created: 1, groups: 1 }
}

fn memfd() -> OwnedFd {
    rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

fn opened(body: &Body, file: &OwnedFd) -> Arc<Region> {
    let source = Source::Descriptor(file.try_clone().unwrap());
    Region::open(source, &body.kinds(), Access::default(), Options::default()).unwrap()
}

/// The volume on `device`, as after a restart of the machine, with its index in `file`.
fn recovered(device: Arc<dyn Device>, file: &OwnedFd) -> Arc<Volume<Mapped, OsHost>> {
    let body = assemble(vec![device]).unwrap();
    let (shape, kinds, uuid) = (body.shape(4), body.kinds(), body.uuid());
    let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
    Region::create(Source::Descriptor(file.try_clone().unwrap()), 0o600, &new).unwrap();
    Arc::new(Volume::recover(opened(&body, file), &body).unwrap())
}

/// The volume on `device`, of which others have the index in `file`.
fn joined(device: Arc<dyn Device>, file: &OwnedFd) -> Arc<Volume<Mapped, OsHost>> {
    let body = assemble(vec![device]).unwrap();
    Arc::new(Volume::join(opened(&body, file), &body).unwrap())
}

fn device() -> MemoryDevice {
    let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
    MemoryDevice::new("memory", 2 * 65_536 + (64 << 20), limits).unwrap()
}

fn open(file: &OwnedFd) -> Arc<Region> {
    let options = Options { intents: Some(Box::new(shelf::step)), ..Options::default() };
    let source = Source::Descriptor(file.try_clone().unwrap());
    Region::open(source, &shelf::kinds(), Access::default(), options).unwrap()
}

fn contents(core: &Region) -> Contents {
    drop(core.begin().unwrap());
    let (contents, findings) = shelf::examine(core).unwrap();
    assert_eq!(findings, []);
    contents
}

/// What the core has that comes back of what is on `device` now.
fn brought_back(device: &MemoryDevice) -> Contents {
    let (copy, mut bytes) = (self::device(), vec![0; device.len() as usize]);
    device.read(0, &mut bytes).unwrap();
    copy.write(0, &bytes).unwrap();
    let image: TestImage = Image::find(recovered(Arc::new(copy), &memfd())).unwrap();
    let file = memfd();
    let medium = Medium::create(Source::Descriptor(file.try_clone().unwrap()), 0o600).unwrap();
    let (medium, geometry) = (Arc::new(medium), Geometry::new(SHAPE).unwrap());
    let host = OsHost::new(Arc::clone(&medium), &geometry).unwrap();
    let memory = Mapped::map(&medium, geometry.len(), &MapOptions::default()).unwrap();
    image.restore(&memory, &host, Path::new("brought back")).unwrap();
    contents(&open(&file))
}

#[test]
fn who_goes_on_late_takes_nothing_back_of_what_others_made_durable() {
    let device = device();
    let (uuid, arrangement) = (*b"a volume to test", Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(256) };
    create(&[Arc::new(device.clone())], &new).unwrap();
    let (gate, file) = (Arc::new(Mutex::new(None)), memfd());
    let gated = Gated { device: device.as_other(), gate: Arc::clone(&gate) };
    let first = Image::make(recovered(Arc::new(gated), &file), &new_region()).unwrap();
    let second = Image::find(joined(Arc::new(device.as_other()), &file)).unwrap();
    let file = memfd();
    Region::create(Source::Descriptor(file.try_clone().unwrap()), 0o600, &new_region()).unwrap();
    let (core, other) = (open(&file), open(&file));
    let push = |id| {
        let push = Op::Push { list: 0, id, pages: 100 };
        assert!(shelf::perform(&other, 1, push).unwrap());
    };
    first.sync(&core).unwrap();
    push(1);
    push(2);
    let (waits, waiting) = channel();
    let (go_on, goes_on) = channel();
    *gate.lock().unwrap() = Some(Gate { waits, goes_on });
    let expected = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| first.sync(&core));
        waiting.recv_timeout(PATIENCE).unwrap();
        push(3);
        push(4);
        second.sync(&other).unwrap();
        let expected = contents(&other);
        assert_eq!(brought_back(&device), expected, "while the first one is stopped");
        go_on.send(()).unwrap();
        stopped.join().unwrap().unwrap();
        expected
    });
    assert_eq!(brought_back(&device), expected, "after he has gone on");
    push(5);
    first.sync(&core).unwrap();
    assert_eq!(brought_back(&device), contents(&core), "and later");
}
