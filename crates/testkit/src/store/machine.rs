//! A machine with a store: a volume, the core that is brought back of it, and processes that have
//! both. All of it but the device is gone with the power; and but the core, if that has no log.

use std::path::Path;
use std::sync::{Arc, Mutex};

use conquest_access::Errno;
use conquest_flash::device::Device;
use conquest_flash::{Error as FlashError, NewVolume, Volume, assemble, create};
use conquest_format::fs::chunk::BLOCKS_MIN;
use conquest_format::geometry::Shape;
use conquest_format::volume::Arrangement;
use conquest_format::{Geometry, fs};
use conquest_fs::large::{Answer, NewLarge, Room, Seen, Space};
use conquest_fs::names::New;
use conquest_fs::{Error, FileSystem, NewFileSystem, VolumeError};
use conquest_image::Image;
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::{Core, Options};

use super::tree::{SHARED, THRESHOLD};
use crate::files::{clock, files_options, new_file_system, root_user};
use crate::flash::scenario::{SEGMENT, SEGMENT_BYTES, TestVolume};
use crate::flash::{HeapCopy, HeapMemory, Mark, Medium, Recorder};
use crate::{Clock, DyingMemory, SimHost, World, become_actor, lock};

/// The core, as a process has it.
pub type StoreMemory = DyingMemory<HeapMemory>;
/// The file system, as a process has it.
pub type StoreFiles = FileSystem<StoreMemory, SimHost>;
/// The core's image.
pub type StoreImage = Image<HeapMemory, SimHost>;

/// Units of the volume that large files leave to the image and its log.
const LEFT: u64 = 400;
/// The process that brings the core back, and makes it.
const FIRST: u32 = 9;

fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}

/// The layout of the core, with a log of so many chunks.
#[must_use]
pub const fn shape(log: u32) -> Shape {
    Shape { log, ..crate::files::shape() }
}

/// What others do while a process, whose number is given, is at the volume.
pub type Meanwhile = Box<dyn Fn(usize) + Send + Sync>;

/// What is done while somebody asks for the volume's space.
#[derive(Clone, Default)]
pub struct Hook(Arc<Mutex<Option<Arc<Meanwhile>>>>);

impl Hook {
    /// Lets this be done from now on; nothing, if it is none.
    pub fn set(&self, meanwhile: Option<Meanwhile>) {
        *lock(&self.0) = meanwhile.map(Arc::new);
    }

    fn call(&self, process: usize) {
        let meanwhile = lock(&self.0).clone();
        if let Some(meanwhile) = meanwhile {
            meanwhile(process);
        }
    }
}

impl core::fmt::Debug for Hook {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Hook")
    }
}

/// The volume's space, as the large files of a process have it.
struct VolumeSpace {
    volume: Arc<TestVolume>,
    recorder: Recorder,
    process: usize,
    hook: Hook,
    /// Whether there is no epoch to come that makes all of it durable.
    settles: bool,
}

/// What a volume says, as large files are told.
pub(super) fn answer<T>(answer: conquest_flash::Result<T>) -> Answer<T> {
    answer.map_err(|error| VolumeError {
        errno: match error {
            FlashError::NoSpace { .. } => Errno::ENOSPC,
            _ => Errno::EIO,
        },
        reason: error.to_string(),
    })
}

impl VolumeSpace {
    fn free(&self) -> u64 {
        let usage = self.volume.usage();
        usage.capacity.saturating_sub(usage.lost + usage.used + usage.reserved)
    }
}

impl Space for VolumeSpace {
    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        answer(self.volume.read(block, into))
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        self.hook.call(self.process);
        let wanted = bytes.len() as u64 / 4096 + LEFT;
        while self.free() < wanted && answer(self.volume.trim_some())? {}
        if self.free() < wanted {
            let reason = "what is left is the image's".to_owned();
            return Err(VolumeError { errno: Errno::ENOSPC, reason });
        }
        let written = answer(self.volume.write(block, bytes));
        self.hook.call(self.process);
        written
    }

    fn look(&self, block: u64, count: u64) -> Answer<Option<Seen>> {
        self.hook.call(self.process);
        let seen = answer(self.volume.look_where(block, count))?.map(Seen::new);
        self.hook.call(self.process);
        Ok(seen)
    }

    fn write_over(&self, block: u64, bytes: &[u8], seen: &Seen, _is_kept: bool) -> Answer<bool> {
        let done = match seen.get() {
            Some(seen) => answer(self.volume.write_over(block, bytes, seen)),
            None => Ok(false),
        };
        self.hook.call(self.process);
        done
    }

    fn trim(&self, block: u64, count: u64) -> Answer<()> {
        self.hook.call(self.process);
        let trimmed = answer(self.volume.trim(block, count));
        self.recorder.mark(Mark::Trimmed);
        self.hook.call(self.process);
        trimmed
    }

    fn settle(&self) -> Answer<()> {
        if !self.settles {
            return Ok(());
        }
        self.hook.call(self.process);
        answer(self.volume.flush())
    }

    fn is_labelled(&self) -> bool {
        self.settles
    }

    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>> {
        answer(self.volume.allocated_within(block, count))
    }

    fn room(&self) -> Answer<Room> {
        let usage = self.volume.usage();
        Ok(Room { blocks: usage.capacity * 8, free: self.free() * 8 })
    }
}

/// A process that has the store attached and its volume open.
pub struct Process {
    /// The files.
    pub files: StoreFiles,
    /// The volume, as this process has it.
    pub volume: Arc<TestVolume>,
    /// The core's image there, if the core has a log.
    pub image: Option<Arc<StoreImage>>,
}

impl Process {
    /// Makes all durable that was committed before.
    ///
    /// # Errors
    /// Those of the store.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.image {
            Some(image) => image.sync(self.files.core()).map_err(not_durable),
            None => self.files.sync_all(),
        }
    }

    /// The same, and writes a checkpoint of the core, if that has a log.
    ///
    /// # Errors
    /// Those of the store.
    pub fn checkpoint(&self) -> Result<(), Error> {
        match &self.image {
            Some(image) => image.checkpoint(self.files.core()).map_err(not_durable),
            None => self.files.sync_all(),
        }
    }
}

/// What an image says, as the files of its store do.
pub(super) fn not_durable(error: conquest_image::Error) -> Error {
    let (path, reason) = ("image".into(), error.to_string());
    Error::Core(conquest_pm::Error::NotDurable { path, reason })
}

/// What a machine is started with.
#[derive(Clone)]
pub struct Start {
    /// What its device has.
    pub medium: Medium,
    /// Its core, if that has no log: as on a battery, it stays when the power goes.
    pub core: Option<HeapCopy>,
}

/// A machine that runs.
pub struct Machine {
    /// Its processes.
    pub processes: Vec<Process>,
    /// Its device.
    pub recorder: Recorder,
    /// What others do while one is at the volume.
    pub hook: Hook,
    core: HeapMemory,
}

/// The volume on `recorder`, as after a restart of the machine, as each of `count` processes has
/// it.
pub(super) fn volumes(recorder: &Recorder, count: usize) -> Result<Vec<Arc<TestVolume>>, String> {
    let body = || assemble(vec![Arc::new(recorder.as_other()) as Arc<dyn Device>]).map_err(text);
    let first = body()?;
    let (shape, kinds, uuid) = (first.shape(4), first.kinds(), first.uuid());
    let geometry = Geometry::new(shape).ok_or("impossible shape")?;
    let clock = Clock::default();
    let memory = HeapMemory::new(geometry.len(), clock.clone());
    let world = World::new(clock);
    let path = Path::new("index");
    let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
    make(&memory, &world.process(FIRST), path, &new).map_err(text)?;
    let attach = |pid: u32| {
        let host = world.process(pid);
        Core::attach(memory.clone(), host, path, &kinds, Options::default()).map_err(text)
    };
    let recovered = Volume::recover(attach(1)?, &first);
    let mut all = vec![Arc::new(recovered.map_err(|error| format!("recovery: {error}"))?)];
    for pid in 1..count as u32 {
        let joined = Volume::join(attach(pid + 1)?, &body()?);
        all.push(Arc::new(joined.map_err(|error| format!("joining: {error}"))?));
    }
    Ok(all)
}

/// The memory of a core that is to have this shape.
fn memory(shape: Shape) -> Result<(HeapMemory, World), String> {
    let geometry = Geometry::new(shape).ok_or("impossible shape")?;
    let clock = Clock::default();
    Ok((HeapMemory::new(geometry.len(), clock.clone()), World::new(clock)))
}

/// The core, which is as `copy` says, or is brought back of its `image`.
fn present_core(
    copy: Option<&HeapCopy>,
    image: Option<&StoreImage>,
) -> Result<(HeapMemory, World), String> {
    if let Some(copy) = copy {
        let clock = Clock::default();
        return Ok((HeapMemory::of(copy, clock.clone()), World::new(clock)));
    }
    let image = image.ok_or("no process")?;
    let (memory, world) = memory(image.region().map_err(text)?.shape)?;
    image
        .restore(&memory, &world.process(FIRST), Path::new("core"))
        .map_err(|error| format!("bringing the core back: {error}"))?;
    Ok((memory, world))
}

fn attach(
    memory: &HeapMemory,
    world: &World,
    pid: u32,
    image: Option<&Arc<StoreImage>>,
) -> Result<Arc<Core<StoreMemory, SimHost>>, String> {
    let options = Options { make_durable: image.map(Image::maker), ..files_options() };
    let memory = DyingMemory::counting(memory.clone());
    let (host, path) = (world.process(pid), Path::new("core"));
    Core::attach(memory, host, path, &fs::kinds(), options).map_err(text)
}

impl Machine {
    /// Starts the machine with the store on `recorder`: opens the volume, brings the core back,
    /// unless it is that `core`, and attaches it as `count` processes.
    ///
    /// # Errors
    /// What went wrong, as text.
    pub fn start(
        recorder: &Recorder,
        core: Option<&HeapCopy>,
        count: usize,
    ) -> Result<Machine, String> {
        become_actor(0);
        let hook = Hook::default();
        let mut all = Vec::new();
        for volume in volumes(recorder, count)? {
            let image = || Image::find(Arc::clone(&volume)).map_err(text);
            let image = if core.is_some() { None } else { Some(Arc::new(image()?)) };
            all.push((volume, image));
        }
        let first = all.first().and_then(|(_, image)| image.as_deref());
        let (memory, world) = present_core(core, first)?;
        let mut processes = Vec::new();
        for (process, (volume, image)) in all.into_iter().enumerate() {
            become_actor(process as u32);
            let attached = attach(&memory, &world, process as u32, image.as_ref())?;
            let space = VolumeSpace {
                volume: Arc::clone(&volume),
                recorder: recorder.clone(),
                process,
                hook: hook.clone(),
                settles: core.is_some(),
            };
            let files = FileSystem::open(attached, clock()).map_err(text)?;
            processes.push(Process { files: files.with_space(Box::new(space)), volume, image });
        }
        become_actor(0);
        Ok(Machine { processes, recorder: recorder.clone(), hook, core: memory })
    }

    /// The core, whose processes need not know that it is there.
    #[must_use]
    pub const fn core(&self) -> &HeapMemory {
        &self.core
    }

    /// What is there if nothing is lost.
    #[must_use]
    pub fn stop(self) -> Start {
        let is_logged = self.processes.iter().any(|process| process.image.is_some());
        let core = (!is_logged).then(|| self.core.copy(&HeapCopy::default()));
        Start { medium: self.recorder.medium(), core }
    }

    /// The first process.
    ///
    /// # Errors
    /// That there is none.
    pub fn first(&self) -> Result<&Process, String> {
        self.processes.first().ok_or_else(|| "no process".to_owned())
    }
}

/// A device of so many segments with a new store, whose core has a log of `log` chunks, or none.
///
/// # Errors
/// What went wrong, as text.
pub fn fresh(segments: u64, log: u32) -> Result<Start, String> {
    become_actor(0);
    let medium = Medium::new((segments + 2) * SEGMENT_BYTES);
    let recorder = Recorder::new(medium, false).map_err(text)?;
    let new = NewVolume {
        uuid: *b"a volume to test",
        created: 1,
        arrangement: Arrangement::Striped,
        segment: Some(SEGMENT),
    };
    create(&[Arc::new(recorder.as_other())], &new).map_err(text)?;
    let volume = volumes(&recorder, 1)?.pop().ok_or("no volume")?;
    let shape = shape(log);
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    let image = match log {
        0 => None,
        _ => Some(Arc::new(Image::make(volume, &new).map_err(text)?)),
    };
    let (memory, world) = memory(shape)?;
    make(&memory, &world.process(FIRST), Path::new("core"), &new).map_err(text)?;
    let core = attach(&memory, &world, 0, image.as_ref())?;
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: BLOCKS_MIN };
    let new = NewFileSystem { large: Some(large), ..new_file_system() };
    FileSystem::make(&core, &new, &clock()).map_err(text)?;
    let files = FileSystem::open(core, clock()).map_err(text)?;
    files
        .create(&root_user(), files.root(), SHARED.as_bytes(), New::Directory, 0o755)
        .map_err(text)?;
    if let Some(image) = &image {
        image.sync(files.core()).map_err(text)?;
    }
    let core = image.is_none().then(|| memory.copy(&HeapCopy::default()));
    Ok(Start { medium: recorder.medium(), core })
}
