//! One who is stopped while he writes an epoch: another one writes his own meanwhile, and what is
//! durable then stays so when the first one goes on.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Barrier};

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, assemble, create};
use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_format::image::{LOG, PartHeader};
use conquest_format::volume::Arrangement;
use conquest_image::{Error, Image};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::{Access, Options, Region};
use conquest_testkit::flash::{Request, Watched};
use conquest_testkit::scenario::shape;
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::stop::{Stopped, stop};

type TestImage = Image<Mapped, OsHost>;

const SHAPE: Shape = Shape { max_groups: 40, log: 64, slots: 4, lanes: 4, ..shape() };
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
    MemoryDevice::new("memory", 2 * 65_536 + (160 << 20), limits).unwrap()
}

fn new_volume(device: &MemoryDevice) {
    let (uuid, arrangement) = (*b"a volume to test", Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(256) };
    create(&[Arc::new(device.clone())], &new).unwrap();
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

/// Two processes that have a core and its image's volume.
struct Two {
    device: MemoryDevice,
    watched: [Arc<Watched>; 2],
    images: [TestImage; 2],
    cores: [Arc<Region>; 2],
}

impl Two {
    fn new() -> Two {
        let device = device();
        new_volume(&device);
        let watched = [(); 2].map(|()| Watched::new(Arc::new(device.as_other())));
        let file = memfd();
        let first = recovered(Arc::clone(&watched[0]) as _, &file);
        let first = Image::make(first, &new_region()).unwrap();
        let second = Image::find(joined(Arc::clone(&watched[1]) as _, &file)).unwrap();
        let file = memfd();
        Region::create(Source::Descriptor(file.try_clone().unwrap()), 0o600, &new_region())
            .unwrap();
        let cores = [open(&file), open(&file)];
        first.sync(&cores[0]).unwrap();
        Two { device, watched, images: [first, second], cores }
    }

    /// So many pages more, by the second one.
    fn push(&self, id: u64, pages: u64) {
        assert!(shelf::perform(&self.cores[1], 1, Op::Push { list: 0, id, pages }).unwrap());
    }

    fn sync(&self, who: usize) -> Result<(), Error> {
        self.images[who].sync(&self.cores[who])
    }

    /// Stops the one `who`, when he is about to write payload.
    fn stop_at_payload(&self, who: usize) -> Stopped {
        let (stop, waiting) = stop();
        let is_long = |request: Request<'_>| request.written().is_some_and(|it| it.1.len() >= LONG);
        self.watched[who].when(is_long, || {
            stop.here();
            Ok(())
        });
        waiting
    }

    fn contents(&self) -> Contents {
        contents(&self.cores[1])
    }

    fn brought_back(&self) -> Contents {
        brought_back(&self.device)
    }
}

#[test]
fn who_goes_on_late_takes_nothing_back_of_what_others_made_durable() {
    let two = Two::new();
    two.push(1, 100);
    two.push(2, 100);
    let waiting = two.stop_at_payload(0);
    let expected = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| two.sync(0));
        assert!(waiting.is_there());
        two.push(3, 100);
        two.push(4, 100);
        two.sync(1).unwrap();
        let expected = two.contents();
        assert_eq!(two.brought_back(), expected, "while the first one is stopped");
        waiting.let_go();
        stopped.join().unwrap().unwrap();
        expected
    });
    assert_eq!(two.brought_back(), expected, "after he has gone on");
    two.push(5, 100);
    two.sync(0).unwrap();
    assert_eq!(two.brought_back(), two.contents(), "and later");
}

/// One who has sealed less comes first, and then the other one's epoch does not count.
#[test]
fn who_is_overtaken_by_one_who_has_less_writes_again() {
    let two = Two::new();
    two.push(1, 100);
    let (less, more) = (two.stop_at_payload(1), two.stop_at_payload(0));
    std::thread::scope(|scope| {
        let with_less = scope.spawn(|| two.sync(1));
        assert!(less.is_there());
        (2..14).for_each(|id| two.push(id, 100));
        let with_more = scope.spawn(|| two.sync(0));
        assert!(more.is_there());
        less.let_go();
        with_less.join().unwrap().unwrap();
        more.let_go();
        with_more.join().unwrap().unwrap();
    });
    assert_eq!(two.brought_back(), two.contents());
}

/// More pages than an epoch writes to the image, and more of the rest than one part takes.
fn push_much(two: &Two) {
    (1..=64).for_each(|id| two.push(id, 200));
}

/// The headers of the parts in the log of `image`.
fn parts(image: &TestImage) -> Vec<PartHeader> {
    let root = image.root().unwrap();
    let (mut at, mut parts) = (root.log_start, Vec::new());
    while at < root.log_end {
        let mut bytes = [0; 512];
        image.volume().read(LOG + at, &mut bytes).unwrap();
        let (header, _) = PartHeader::from_bytes(bytes.first_chunk().unwrap()).unwrap();
        at += header.blocks();
        parts.push(header);
    }
    parts
}

#[test]
fn an_epoch_of_several_parts_comes_back() {
    let two = Two::new();
    let (image, before) = (&two.images[0], parts(&two.images[0]).len());
    let epoch = image.root().unwrap().epoch;
    push_much(&two);
    two.sync(0).unwrap();
    let root = image.root().unwrap();
    assert_eq!(root.epoch, epoch + 1);
    let parts = parts(image).split_off(before);
    assert!(parts.len() > 1, "{parts:?}");
    for (part, header) in (0..).zip(&parts) {
        let expected = (root.epoch, part, parts.len() as u32, root.cut);
        assert_eq!((header.epoch, header.part, header.parts, header.cut), expected);
    }
    assert_eq!(two.brought_back(), two.contents());
    two.push(100, 20);
    two.sync(1).unwrap();
    assert_eq!(two.brought_back(), two.contents(), "and what comes then");
}

/// Each part of an epoch counts only if nobody else has come since the one before it.
#[test]
fn who_is_overtaken_between_two_parts_writes_again() {
    let two = Two::new();
    push_much(&two);
    let (stop, waiting) = stop();
    let mut written = 0;
    let is_in_second = move |request: Request<'_>| {
        written += request.written().map_or(0, |it| it.1.len());
        written > (16 << 20) + LONG
    };
    two.watched[0].when(is_in_second, || {
        stop.here();
        Ok(())
    });
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| two.sync(0));
        assert!(waiting.is_there());
        two.push(100, 100);
        two.sync(1).unwrap();
        let expected = two.contents();
        assert_eq!(two.brought_back(), expected, "while the first one is stopped");
        waiting.let_go();
        stopped.join().unwrap().unwrap();
    });
    assert_eq!(two.brought_back(), two.contents(), "after he has gone on");
    two.push(101, 100);
    two.sync(0).unwrap();
    assert_eq!(two.brought_back(), two.contents(), "and later");
}

/// Of two who make an image at the same time one is told that there is one.
#[test]
fn one_of_two_makes_an_image() {
    for _ in 0..60 {
        let device = device();
        new_volume(&device);
        let file = memfd();
        let first = recovered(Arc::new(device.as_other()), &file);
        let second = joined(Arc::new(device.as_other()), &file);
        let barrier = Barrier::new(2);
        let made = std::thread::scope(|scope| {
            let make = |volume, uuid| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let new = NewRegion { uuid: [uuid; 16], ..new_region() };
                    barrier.wait();
                    Image::make(volume, &new)
                })
            };
            [make(first, 1), make(second, 2)].map(|made| made.join().unwrap())
        });
        let (uuid, image) = match made {
            [Ok(image), Err(Error::Exists { .. })] => (1, image),
            [Err(Error::Exists { .. }), Ok(image)] => (2, image),
            other => panic!("{other:?}"),
        };
        assert_eq!(image.region().unwrap().uuid, [uuid; 16]);
    }
}
