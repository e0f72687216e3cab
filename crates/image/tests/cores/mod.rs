//! What tests of images share: small volumes, and cores in memory that come back from them.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Body, NewVolume, Volume, assemble, create};
use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_format::volume::Arrangement;
use conquest_image::{Error, Image};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access, Options, Region};
use conquest_testkit::scenario::{SimCore, attach, shape};
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::{DyingMemory, Image as Words, RecordingMemory, World, become_actor};

pub type TestImage = Image<Mapped, OsHost>;

pub const UNIT: u64 = 4096;
pub const SHAPE: Shape = Shape { log: 24, slots: 4, lanes: 4, ..shape() };

pub fn new_region(uuid: u8) -> NewRegion {
    NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [uuid; 16], created: 1, groups: 1 }
}

/// A new volume of `segments` segments of 16 units on `device`.
pub fn new_volume(device: Arc<dyn Device>) {
    let uuid = *b"a volume to test";
    let new = NewVolume { uuid, created: 1, arrangement: Arrangement::Striped, segment: Some(16) };
    create(&[device], &new).unwrap();
}

pub fn len(segments: u64) -> u64 {
    2 * 65_536 + segments * 16 * UNIT
}

pub fn memory_device(segments: u64) -> MemoryDevice {
    let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
    let device = MemoryDevice::new("memory", len(segments), limits).unwrap();
    new_volume(Arc::new(device.clone()));
    device
}

pub fn index(body: &Body) -> Arc<Region> {
    let file = rustix::fs::memfd_create("index", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let again = file.try_clone().unwrap();
    let (shape, kinds, uuid) = (body.shape(4), body.kinds(), body.uuid());
    let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
    Region::create(Source::Descriptor(file), 0o600, &new).unwrap();
    let source = Source::Descriptor(again);
    Region::open(source, &body.kinds(), Access::default(), Options::default()).unwrap()
}

/// The volume on `device`, as after a restart of the machine.
pub fn volume(device: Arc<dyn Device>) -> Arc<Volume<Mapped, OsHost>> {
    let body = assemble(vec![device]).unwrap();
    Arc::new(Volume::recover(index(&body), &body).unwrap())
}

/// A core in memory, as process 0 has it.
pub struct Core {
    pub memory: RecordingMemory,
    pub world: World,
    pub core: SimCore,
}

pub fn memory() -> (RecordingMemory, World) {
    become_actor(0);
    let geometry = Geometry::new(SHAPE).unwrap();
    let words = Arc::new(Words::new(geometry.len()));
    let memory = RecordingMemory::new(words, geometry.volatile(), false);
    let world = World::new(memory.clock());
    (memory, world)
}

impl Core {
    pub fn attached(memory: RecordingMemory, world: World) -> Core {
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
        Core { memory, world, core }
    }

    /// A new one.
    pub fn new(uuid: u8) -> Core {
        let (memory, world) = memory();
        let new = new_region(uuid);
        make(&memory.actor(0), &world.process(9), Path::new("new"), &new).unwrap();
        Core::attached(memory, world)
    }

    /// The one that `image` is of.
    pub fn restored(image: &TestImage) -> Result<Core, Error> {
        let (memory, world) = memory();
        image.restore(&memory.actor(0), &world.process(9), Path::new("restored"))?;
        Ok(Core::attached(memory, world))
    }

    /// As another process has it.
    pub fn other(&self, id: u32) -> SimCore {
        attach(DyingMemory::counting(self.memory.actor(id)), &self.world, id).unwrap()
    }

    pub fn contents(&self) -> Contents {
        // What was begun in several records is finished.
        drop(self.core.begin().unwrap());
        let (contents, findings) = shelf::examine(&self.core).unwrap();
        assert_eq!(findings, []);
        contents
    }
}

pub fn push(core: &SimCore, list: u32, id: u64, pages: u64) {
    assert!(shelf::perform(core, 0, Op::Push { list, id, pages }).unwrap());
}

/// Does what `act` does as a thread of process `id`.
pub fn as_process<T: Send>(id: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let body = || {
            become_actor(id);
            act()
        };
        scope.spawn(body).join().unwrap()
    })
}

/// What comes back of what is on `device` now, and how many records of the log that takes.
pub fn brought_back(device: &dyn Device) -> (Contents, u64) {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let copy = MemoryDevice::new("copy", device.len(), device.limits()).unwrap();
    copy.write(0, &bytes).unwrap();
    brought_back_of(Arc::new(copy))
}

/// The same of a device that is used for nothing else.
pub fn brought_back_of(device: Arc<dyn Device>) -> (Contents, u64) {
    let image = Image::find(volume(device)).unwrap();
    as_process(0, || {
        let (memory, world) = memory();
        let path = Path::new("brought back");
        let restored = image.restore(&memory.actor(0), &world.process(9), path).unwrap();
        (Core::attached(memory, world).contents(), restored.records)
    })
}
