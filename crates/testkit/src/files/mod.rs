//! Operations on a small tree of files, which meet as often as operations can, and what a tree is:
//! all that tells whether each of them has happened as a whole.

mod operation;
mod space;
mod tree;
mod visited;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use conquest_format::geometry::Shape;
use conquest_format::inode::{Owner, SIZE_MAX};
use conquest_format::{GROUP_PAGES, PAGE, fs};
use conquest_fs::content::Allocate;
use conquest_fs::open::bury;
use conquest_fs::{Clock, Error, FileSystem, NewFileSystem, finish_intent};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Options};

pub use operation::{FILLERS, ON_FULL, OPERATIONS, Op, content, root_user};
pub use space::RamSpace;
pub use tree::{LISTING, describe};
pub use visited::{Counts, Moment, Visited};

use crate::scenario::SimMemory;
use crate::{DyingMemory, Image, RecordingMemory, SimHost, World};
use Op::{Make, MakeLong, Range};
use operation::{EARLIER, LONG_NAMES};

/// A file system in simulation.
pub type SimFiles = FileSystem<SimMemory, SimHost>;

/// Makes the tree on which [`OPERATIONS`] work, in an empty file system.
///
/// # Errors
/// What went wrong, as text.
pub fn prepare<M: Memory, H: Host>(files: &FileSystem<M, H>) -> Result<(), String> {
    let long = (0..LONG_NAMES - 1).map(|number| MakeLong("k", number));
    for op in EARLIER.into_iter().chain(long) {
        if !op.perform(files).map_err(|error| error.to_string())? {
            return Err(format!("{op:?} did nothing"));
        }
    }
    Ok(())
}

/// Gives [`FILLERS`] all pages that there are, past their ends.
///
/// # Errors
/// What went wrong, as text.
pub fn fill<M: Memory, H: Host>(files: &FileSystem<M, H>) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let total = files.core().geometry().shape().max_groups * GROUP_PAGES;
    let space = Allocate::Space { keeps_size: true };
    for filler in FILLERS {
        Make(filler).perform(files).map_err(text)?;
        for len in [GROUP_PAGES * PAGE, PAGE] {
            for number in 0.. {
                // Large pieces first; what the small ones are for follows them.
                let at = if len == PAGE { total * PAGE } else { 0 } + number * len;
                match Range(filler, space, at, len).perform(files) {
                    Ok(_) => {}
                    Err(Error::Core(conquest_pm::Error::NoSpace { .. })) => break,
                    Err(error) => return Err(text(error)),
                }
            }
        }
    }
    match total - files.core().pages_used() {
        0 => Ok(()),
        left => Err(format!("{left} pages are left")),
    }
}

/// A new file system with an empty root directory that anybody may search.
#[must_use]
pub const fn new_file_system() -> NewFileSystem {
    NewFileSystem {
        key: [1, 2],
        owner: Owner { uid: 0, gid: 0 },
        permissions: 0o755,
        size_max: SIZE_MAX,
        reserve: 0,
        large: None,
    }
}

// --- simulated -----------------------------------------------------------------------------------

/// The layout of the small region.
#[must_use]
pub const fn shape() -> Shape {
    Shape { max_groups: 2, lanes: 3, slots: 5, locks: 8, chunks: 6, log: 0 }
}

/// A clock that goes on by a second with each look.
#[must_use]
pub fn clock() -> Clock {
    let now = AtomicI64::new(1 << 60);
    Box::new(move || now.fetch_add(1_000_000_000, Ordering::Relaxed))
}

/// Attaches the file system in `memory` as simulated process `pid`.
///
/// # Errors
/// Those of attaching.
pub fn attach(memory: SimMemory, world: &World, pid: u32) -> Result<SimFiles, Error> {
    let core = attach_region(memory, world, pid)?;
    FileSystem::open(core, clock())
}

/// How a region with a file system is attached here.
#[must_use]
pub fn files_options<M: Memory, H: Host>() -> Options<M, H> {
    let intents = Some(Box::new(finish_intent) as _);
    let burials = Some(Box::new(bury) as _);
    Options { intents, burials, growth_groups: 1, ..Options::default() }
}

fn attach_region(
    memory: SimMemory,
    world: &World,
    pid: u32,
) -> Result<Arc<Core<SimMemory, SimHost>>, Error> {
    let options = files_options();
    let path = Path::new("simulated core");
    Ok(Core::attach(memory, world.process(pid), path, &fs::kinds(), options)?)
}

/// A region with the tree on which [`OPERATIONS`] work; its last process has detached, or died.
///
/// # Errors
/// What went wrong, as text.
pub fn base(detach: bool) -> Result<Arc<Image>, String> {
    base_with(detach, shape(), prepare)
}

/// The shape of a region with a log: large enough for what is done here.
#[must_use]
pub const fn logged_shape() -> Shape {
    Shape { log: 64, ..shape() }
}

/// [`base`] in a region with a log.
///
/// # Errors
/// What went wrong, as text.
pub fn logged_base() -> Result<Arc<Image>, String> {
    base_with(true, logged_shape(), prepare)
}

/// [`base`] of which no page is free: for [`ON_FULL`].
///
/// # Errors
/// What went wrong, as text.
pub fn full_base(detach: bool) -> Result<Arc<Image>, String> {
    base_with(detach, shape(), |files| prepare(files).and_then(|()| fill(files)))
}

fn base_with(
    detach: bool,
    shape: Shape,
    prepare: impl FnOnce(&SimFiles) -> Result<(), String>,
) -> Result<Arc<Image>, String> {
    let text = |error: Error| error.to_string();
    let geometry = conquest_format::Geometry::new(shape).ok_or("impossible shape")?;
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    let path = Path::new("simulated core");
    make(&memory.actor(0), &world.process(9), path, &new).map_err(|error| error.to_string())?;
    let alive = DyingMemory::counting(memory.actor(0));
    let core = attach_region(alive, &world, 9).map_err(text)?;
    FileSystem::make(&core, &new_file_system(), &clock()).map_err(text)?;
    let files = FileSystem::open(core, clock()).map_err(text)?;
    prepare(&files)?;
    if detach {
        files.core().detach().map_err(|error| error.to_string())?;
    }
    Ok(memory.snapshot())
}
