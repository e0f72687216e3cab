//! A core that is brought back of its volume and used before all of it is there: it is as if all
//! had been there, whatever is done meanwhile, and whenever the power is cut.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, assemble, create};
use conquest_format::geometry::Shape;
use conquest_format::image::{LOG, PART_HEADER, PartHeader, ROOT, ROOT_BYTES, Root};
use conquest_format::volume::Arrangement;
use conquest_format::{Geometry, Offset, PAGE};
use conquest_image::{Error, Image};
use conquest_pm::attach::NewRegion;
use conquest_pm::log::Copied;
use conquest_pm::media::{Fill, LoadFrom, MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options, Region};
use conquest_testkit::Rng;
use conquest_testkit::scenario::shape;
use conquest_testkit::shelf::{self, Contents, Op};

type TestImage = Image<Mapped, OsHost>;

const UNIT: u64 = 4096;
const SHAPE: Shape = Shape { max_groups: 6, log: 64, slots: 4, lanes: 4, ..shape() };

fn new_region() -> NewRegion {
    NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [1; 16], created: 1, groups: 1 }
}

fn device() -> MemoryDevice {
    let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
    let len = 2 * 65_536 + 3000 * 16 * UNIT;
    let device = MemoryDevice::new("memory", len, limits).unwrap();
    let uuid = *b"a volume to test";
    let new = NewVolume { uuid, created: 1, arrangement: Arrangement::Striped, segment: Some(16) };
    create(&[Arc::new(device.clone())], &new).unwrap();
    device
}

fn memfd() -> OwnedFd {
    rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

fn index(body: &Body) -> Arc<Region> {
    let file = memfd();
    let (shape, kinds, uuid) = (body.shape(4), body.kinds(), body.uuid());
    let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
    Region::create(Source::Descriptor(file.try_clone().unwrap()), 0o600, &new).unwrap();
    let source = Source::Descriptor(file);
    Region::open(source, &body.kinds(), Access::default(), Options::default()).unwrap()
}

/// The volume on `device`, as after a restart of the machine.
fn volume(device: &MemoryDevice) -> Arc<Volume<Mapped, OsHost>> {
    let device: Arc<dyn Device> = Arc::new(device.as_other());
    let body = assemble(vec![device]).unwrap();
    Arc::new(Volume::recover(index(&body), &body).unwrap())
}

fn found(device: &MemoryDevice) -> Arc<TestImage> {
    Arc::new(Image::find(volume(device)).unwrap())
}

fn open(file: &OwnedFd, image: &Arc<TestImage>) -> Arc<Region> {
    let fill: Arc<dyn Fill> = Arc::<TestImage>::clone(image);
    let options = Options {
        intents: Some(Box::new(shelf::step)),
        make_durable: Some(Image::maker(image)),
        fill: Some(fill),
        growth_groups: 1,
        ..Options::default()
    };
    let source = Source::Descriptor(file.try_clone().unwrap());
    Region::open(source, &shelf::kinds(), Access::default(), options).unwrap()
}

/// A new core.
fn new_core(image: &Arc<TestImage>) -> Arc<Region> {
    let file = memfd();
    Region::create(Source::Descriptor(file.try_clone().unwrap()), 0o600, &new_region()).unwrap();
    open(&file, image)
}

/// The file of the core that `image` is of, of which most is still to be loaded.
fn brought_back(image: &Arc<TestImage>) -> OwnedFd {
    try_bring_back(image).unwrap()
}

fn try_bring_back(image: &Arc<TestImage>) -> Result<OwnedFd, Error> {
    let file = memfd();
    let source = Source::Descriptor(file.try_clone().unwrap());
    let medium = Arc::new(Medium::create(source, 0o600).unwrap());
    let geometry = Geometry::new(image.region().unwrap().shape).unwrap();
    let host = OsHost::new(Arc::clone(&medium), &geometry).unwrap();
    let fill: Arc<dyn Fill> = Arc::<TestImage>::clone(image);
    let len = geometry.len();
    let from = LoadFrom { medium: Arc::clone(&medium), geometry, fill };
    from.make_table().unwrap();
    let options = MapOptions { load_from: Some(from), ..MapOptions::default() };
    let memory = Mapped::map(&medium, len, &options).unwrap();
    image.restore_behind(&memory, &host, Path::new("brought back"))?;
    Ok(file)
}

fn behind(image: &Arc<TestImage>) -> Arc<Region> {
    open(&brought_back(image), image)
}

/// The core that `image` is of, as a whole.
fn whole(image: &Arc<TestImage>) -> (Arc<Region>, u64) {
    try_restore(image).unwrap()
}

fn try_restore(image: &Arc<TestImage>) -> Result<(Arc<Region>, u64), Error> {
    let file = memfd();
    let source = Source::Descriptor(file.try_clone().unwrap());
    let medium = Arc::new(Medium::create(source, 0o600).unwrap());
    let geometry = Geometry::new(image.region().unwrap().shape).unwrap();
    let host = OsHost::new(Arc::clone(&medium), &geometry).unwrap();
    let memory = Mapped::map(&medium, geometry.len(), &MapOptions::default()).unwrap();
    let pages = image.restore(&memory, &host, Path::new("whole"))?.pages;
    Ok((open(&file, image), pages))
}

fn contents(core: &Region) -> Contents {
    // What was begun in several records is finished.
    drop(core.begin().unwrap());
    let (contents, findings) = shelf::examine(core).unwrap();
    assert_eq!(findings, []);
    contents
}

fn load_all(core: &Region) {
    let memory = core.memory();
    memory.load_groups(&memory.groups_to_load(), 2, &AtomicBool::new(false)).unwrap();
    assert!(memory.complete_loading());
}

#[test]
fn a_core_that_is_used_while_it_is_loaded_comes_back_again_and_again() {
    let device = device();
    let mut rng = Rng::new(6);
    let mut image = Arc::new(Image::make(volume(&device), &new_region()).unwrap());
    let mut core = new_core(&image);
    let mut number = 0;
    for round in 0..40 {
        for _ in 0..rng.below(12) {
            number += 1;
            let op = Op::random(&mut rng, 0, number, 90);
            shelf::perform(&core, 0, op).unwrap();
            if rng.chance(1, 6) {
                image.sync(&core).unwrap();
            }
        }
        if rng.chance(1, 4) {
            image.checkpoint(&core).unwrap();
        }
        if rng.chance(1, 4) {
            load_all(&core);
        }
        image.sync(&core).unwrap();
        let expected = match rng.chance(1, 2) {
            true => contents(&core),
            // As who looks at what was loaded only now, of another one.
            false => contents(&whole(&image).0),
        };
        // What was not made durable is gone.
        let _lost = shelf::perform(&core, 0, Op::Push { list: 0, id: round << 32 | 7, pages: 1 });
        drop((core, image));
        image = found(&device);
        core = match rng.chance(1, 5) {
            true => whole(&image).0,
            false => behind(&image),
        };
        let total = core.memory().progress();
        assert!(total.is_none_or(|progress| progress.resident < progress.total), "{total:?}");
        if rng.chance(1, 2) {
            assert_eq!(contents(&core), expected, "{round}");
        }
    }
    assert!(core.groups() > 1);
}

#[test]
fn what_is_loaded_is_what_restoring_puts_there() {
    let device = device();
    let image = Arc::new(Image::make(volume(&device), &new_region()).unwrap());
    let core = new_core(&image);
    let mut rng = Rng::new(7);
    for number in 1..200 {
        shelf::perform(&core, 0, Op::random(&mut rng, 0, number, 60)).unwrap();
        if number == 120 {
            image.checkpoint(&core).unwrap();
        }
    }
    image.sync(&core).unwrap();
    drop(core);
    assert!(whole(&image).1 > 100);
    is_as_restored(&image);
}

/// That all pages are loaded of the core that `image` is of as restoring it as a whole puts them
/// there.
fn is_as_restored(image: &Arc<TestImage>) {
    let ((whole, _), core) = (whole(image), behind(image));
    load_all(&core);
    assert_eq!(core.groups(), whole.groups());
    let geometry = core.geometry();
    let lanes = geometry.lane(0).bytes()..geometry.lane(SHAPE.lanes).bytes();
    let mut differ = 0;
    for at in (0..geometry.len_at(core.groups())).step_by(PAGE as usize) {
        // Numbers of records are other ones in the lanes.
        if geometry.is_logged(at) && !lanes.contains(&at) {
            let page = |core: &Region| {
                let mut copied = Copied::new();
                core.copy_page(Offset::new(at), &mut copied);
                copied
            };
            differ += u64::from(page(&core) != page(&whole));
        }
    }
    assert_eq!(differ, 0);
    assert_eq!(contents(&core), contents(&whole));
}

/// An epoch writes so many runs of pages to the image at most; the rest stand in the log alone.
#[test]
fn pages_that_only_the_log_has_are_loaded_too() {
    let device = device();
    let image = Arc::new(Image::make(volume(&device), &new_region()).unwrap());
    let core = new_core(&image);
    let push = |id, list| shelf::perform(&core, 0, Op::Push { list, id, pages: 1 }).unwrap();
    // Every other page is free then, and few others.
    let mut id = 1;
    while push(id, (id % 2) as u32) {
        id += 1;
    }
    for _ in 0..id / 2 {
        shelf::perform(&core, 0, Op::Pop { list: 1 }).unwrap();
    }
    image.sync(&core).unwrap();
    (1..400).for_each(|more| assert!(push(id + more, 0)));
    image.sync(&core).unwrap();
    drop(core);
    is_as_restored(&image);
}

#[test]
fn a_core_that_was_brought_back_again_since_loads_nothing_any_more() {
    let device = device();
    let image = Arc::new(Image::make(volume(&device), &new_region()).unwrap());
    let core = new_core(&image);
    for id in 1..9 {
        assert!(shelf::perform(&core, 0, Op::Push { list: 0, id, pages: 60 }).unwrap());
    }
    image.checkpoint(&core).unwrap();
    let expected = contents(&core);
    drop(core);
    let old = behind(&image);
    let last = old.geometry().page(500);
    let new = behind(&image);
    assert_eq!(old.memory().load(last, Ordering::Relaxed), 0);
    let failed = old.memory().failed().unwrap();
    assert!(failed.contains("can't be read from the volume"), "{failed}");
    let groups = old.memory().groups_to_load();
    let error = old.memory().load_groups(&groups, 1, &AtomicBool::new(false)).unwrap_err();
    assert!(error.to_string().contains("brought back"), "{error}");
    assert!(old.check_health().is_err());
    assert_eq!(contents(&new), expected);
}

#[test]
fn several_work_sync_and_write_checkpoints_while_it_is_loaded() {
    let device = device();
    let mut image = Arc::new(Image::make(volume(&device), &new_region()).unwrap());
    let mut core = new_core(&image);
    for round in 0..8_u64 {
        std::thread::scope(|scope| {
            for actor in 0..2_u32 {
                let (core, image) = (&core, &image);
                scope.spawn(move || {
                    let mut rng = Rng::new(round << 8 | u64::from(actor));
                    for number in 1..80 {
                        let number = round * 100 + number;
                        shelf::perform(core, actor, Op::random(&mut rng, actor, number, 20))
                            .unwrap();
                        if rng.chance(1, 9) {
                            image.sync(core).unwrap();
                        }
                    }
                });
            }
            scope.spawn(|| load_all(&core));
            scope.spawn(|| image.checkpoint(&core).unwrap());
        });
        image.sync(&core).unwrap();
        let expected = contents(&core);
        drop((core, image));
        image = found(&device);
        core = behind(&image);
        if round % 2 == 0 {
            assert_eq!(contents(&core), expected, "{round}");
        }
    }
}

/// A part of an epoch: its number, that of the part, of how many, and its body.
type Part = (u64, u32, u32, Vec<u8>);

/// Adds `parts` to the log on `volume`, each of which says how many epochs behind the last one it
/// is.
fn forge(volume: &Volume<Mapped, OsHost>, parts: &[Part]) {
    let mut bytes = [0; ROOT_BYTES];
    volume.read(ROOT, &mut bytes).unwrap();
    let mut root = Root::from_bytes(&bytes).unwrap();
    let last = root.epoch;
    for (behind, part, parts, body) in parts {
        let (epoch, cut) = (last + behind, root.cut);
        let mut bytes = [vec![0; PART_HEADER], body.clone()].concat();
        let len = body.len() as u64;
        let (part, parts) = (*part, *parts);
        PartHeader { epoch, part, parts, bytes: len, from: cut, cut }.complete(&mut bytes);
        volume.write(LOG + root.log_end, &bytes).unwrap();
        root = Root { epoch, log_end: root.log_end + bytes.len() as u64 / 512, ..root };
    }
    volume.write(ROOT, &root.to_bytes()).unwrap();
    volume.flush().unwrap();
}

/// A copy of `device` to which somebody has added `parts`.
fn forged(device: &MemoryDevice, parts: &[Part]) -> MemoryDevice {
    let (copy, mut bytes) = (self::device(), vec![0; device.len() as usize]);
    device.read(0, &mut bytes).unwrap();
    copy.write(0, &bytes).unwrap();
    forge(&volume(&copy), parts);
    copy
}

/// A device with the image of a core that has something.
fn device_with_image() -> MemoryDevice {
    let device = device();
    let image = Arc::new(Image::make(volume(&device), &new_region()).unwrap());
    let core = new_core(&image);
    let push = Op::Push { list: 0, id: 1, pages: 100 };
    assert!(shelf::perform(&core, 1, push).unwrap());
    image.sync(&core).unwrap();
    device
}

/// What has a right checksum may have been written by anybody.
#[test]
fn a_log_with_pages_where_none_can_be_is_refused() {
    let device = device_with_image();
    let end = Geometry::new(SHAPE).unwrap().len();
    for place in [0, 1, PAGE + 8, end, end + PAGE, 1 << 40, u64::MAX - 4095, u64::MAX] {
        let mut body: Vec<u8> = [1, place].into_iter().flat_map(u64::to_le_bytes).collect();
        body.resize(body.len() + PAGE as usize, 1);
        let copy = forged(&device, &[(1, 0, 1, body)]);
        let told = try_restore(&found(&copy)).map(|(_, pages)| pages);
        assert!(matches!(told, Err(Error::Impossible { count: 1, .. })), "{place:#x}: {told:?}");
        let told = try_bring_back(&found(&copy));
        assert!(matches!(told, Err(Error::Impossible { count: 1, .. })), "{place:#x}: {told:?}");
    }
}

/// Parts that do not follow each other are none of an epoch, whatever their checksums are.
#[test]
fn a_log_with_parts_that_are_not_in_order_is_refused() {
    let device = device_with_image();
    let told = |parts: &[(u64, u32, u32)]| {
        // An epoch without a page.
        let body = |part| if part == 0 { vec![0; 8] } else { Vec::new() };
        let parts = parts.iter().map(|&(epoch, part, parts)| (epoch, part, parts, body(part)));
        let copy = forged(&device, &parts.collect::<Vec<_>>());
        try_restore(&found(&copy)).map(drop)
    };
    told(&[(1, 0, 3), (1, 1, 3), (1, 2, 3), (2, 0, 1)]).unwrap();
    // One that was given up.
    told(&[(1, 0, 3), (1, 1, 3), (1, 0, 2), (1, 1, 2)]).unwrap();
    for wrong in [
        &[(1, 1, 2)][..],
        &[(1, 0, 3), (1, 2, 3)],
        &[(1, 0, 3), (1, 1, 3), (1, 1, 3), (1, 2, 3)],
        &[(1, 0, 2), (2, 1, 2)],
        &[(1, 0, 1), (1, 1, 2)],
    ] {
        let told = told(wrong);
        assert!(matches!(told, Err(Error::Corrupt { .. })), "{wrong:?}: {told:?}");
    }
}
