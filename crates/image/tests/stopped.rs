//! One who is stopped while he writes an epoch: another one writes his own meanwhile, and what is
//! durable then stays so when the first one goes on.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, assemble, create};
use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_format::volume::Arrangement;
use conquest_image::Image;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::{Access, Options, Region};
use conquest_testkit::flash::{Request, Watched};
use conquest_testkit::scenario::shape;
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::stop::stop;

type TestImage = Image<Mapped, OsHost>;

const SHAPE: Shape = Shape { max_groups: 6, log: 64, slots: 4, lanes: 4, ..shape() };
/// Bytes of a request that is one of payload, and of no packet.
const LONG: usize = 100 << 10;

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
    let (watched, file) = (Watched::new(Arc::new(device.as_other())), memfd());
    let first = recovered(Arc::clone(&watched) as _, &file);
    let first = Image::make(first, &new_region()).unwrap();
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
    let (stop, waiting) = stop();
    let is_long = |request: Request<'_>| request.written().is_some_and(|it| it.1.len() >= LONG);
    watched.when(is_long, || {
        stop.here();
        Ok(())
    });
    let expected = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| first.sync(&core));
        assert!(waiting.is_there());
        push(3);
        push(4);
        second.sync(&other).unwrap();
        let expected = contents(&other);
        assert_eq!(brought_back(&device), expected, "while the first one is stopped");
        waiting.let_go();
        stopped.join().unwrap().unwrap();
        expected
    });
    assert_eq!(brought_back(&device), expected, "after he has gone on");
    push(5);
    first.sync(&core).unwrap();
    assert_eq!(brought_back(&device), contents(&core), "and later");
}
