//! The region in a core: made, opened, looked at, and held while nobody has it attached.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conquest_format::geometry::{SUPERBLOCKS, Shape};
use conquest_format::inode::Owner;
use conquest_format::superblock::{SIZE, Superblock};
use conquest_format::volume::BLOCK;
use conquest_format::{Geometry, Offset, fs};
use conquest_fs::large::{Marks, NewLarge, set_marks};
use conquest_fs::open::bury;
use conquest_fs::{Clock, FileSystem, NewFileSystem, finish_intent};
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::log::ask_keeper_to_leave;
use conquest_pm::media::{Fill, LoadFrom, MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options, Region, superblock};

use super::attached::{Attached, attached};
use super::loading::{Nothing, may_lack};
use super::make::OnVolume;
use super::new::{CHUNK_DEFAULT, NewStore};
use super::place::Space;
use super::volume::Image;
use crate::{Error, Fs, Id, OwnNamespace, Result, id, machine};

/// Sleep between two tries to hold others off.
const NAP: Duration = Duration::from_millis(2);

/// The clock of files' times.
pub(crate) fn clock() -> Clock {
    Box::new(|| i64::try_from(machine::now()).unwrap_or(i64::MAX))
}

/// Makes a region with an empty file system on the file `path`, which is made, or is a device, with
/// what it has `on_volume`.
pub(crate) fn make(
    path: &Path,
    new: &NewStore,
    region: &NewRegion,
    on_volume: &OnVolume,
) -> Result<()> {
    let image = match on_volume {
        OnVolume::Image(image) => Some(image),
        OnVolume::Mark(..) | OnVolume::Nothing => None,
    };
    let has_volume = !matches!(on_volume, OnVolume::Nothing);
    Region::create(Source::from(path), new.mode & 0o777, region)?;
    let options = Options { make_durable: image.map(Image::maker), ..Options::default() };
    let core = open(path, Access::default(), options)?;
    let key = id::random().map_err(crate::error::failed(path, "ask for random numbers"))?;
    let (low, high) = key.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let caller = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (uid, gid) = new.owner.unwrap_or(caller);
    let (uid, gid) = OwnNamespace::read()?.outside(uid, gid)?;
    let files = NewFileSystem {
        key: [word(low), word(high)],
        owner: Owner { uid, gid },
        permissions: (new.root_mode & 0o7777) as u16,
        size_max: new.file_size_max,
        reserve: new.reserve,
        large: has_volume.then_some(NewLarge {
            threshold: new.placement.threshold,
            chunk_blocks: new.chunk.unwrap_or(CHUNK_DEFAULT) / BLOCK,
        }),
    };
    FileSystem::make(&core, &files, &clock())?;
    match on_volume {
        OnVolume::Nothing => {}
        OnVolume::Image(image) => image.sync(&core)?,
        OnVolume::Mark(_, number) => set_marks(&core, Marks { seen: *number, next: *number })?,
    }
    Ok(core.detach()?)
}

/// Makes the file `path` the region that `image` is of, and that is to be `new`; readable as a new
/// store's core would be. What its log does not change is loaded later.
pub(crate) fn bring_back(
    path: &Path,
    store: &NewStore,
    new: &NewRegion,
    image: &Arc<Image>,
) -> Result<()> {
    let medium = Arc::new(Medium::create(Source::from(path), store.mode & 0o777)?);
    let geometry = geometry_of(new.shape)?;
    let host = OsHost::new(Arc::clone(&medium), &geometry)?;
    let fill: Arc<dyn Fill> = Arc::<Image>::clone(image);
    let from = LoadFrom { medium: Arc::clone(&medium), geometry: geometry.clone(), fill };
    from.make_table()?;
    let options = MapOptions { load_from: Some(from), ..MapOptions::default() };
    let memory = Mapped::map(&medium, geometry.len(), &options)?;
    image.restore_behind(&memory, &host, path)?;
    // What is loaded later is to find room.
    let missing = memory.progress().map_or(0, |progress| progress.total - progress.resident);
    let available = Space::of(super::directory::parent(path))?.free;
    if missing > available {
        return Err(Error::NoRoom { core: path.to_owned(), wanted: missing, available });
    }
    Ok(())
}

fn geometry_of(shape: Shape) -> Result<Geometry> {
    let found = shape.max_groups;
    let (what, expected) = ("superblock", "a valid shape");
    let corrupt = conquest_pm::Error::Corrupt { what, offset: Offset::NONE, expected, found };
    Ok(Geometry::new(shape).ok_or(corrupt)?)
}

/// Attaches the region on `path`.
pub(crate) fn open(
    path: &Path,
    access: Access,
    options: Options<Mapped, OsHost>,
) -> Result<Arc<Region>> {
    let options = Options {
        intents: Some(Box::new(finish_intent)),
        burials: Some(Box::new(bury)),
        ..options
    };
    Ok(Region::open(Source::from(path), &fs::kinds(), access, options)?)
}

/// The file system of an attached region.
pub(crate) fn files(core: Arc<Region>) -> Result<Fs> {
    Ok(FileSystem::open(core, clock())?)
}

/// The superblock of an attached region.
pub(crate) fn superblock(core: &Region) -> Result<Superblock> {
    let copies = SUPERBLOCKS.map(|at| {
        let mut bytes = [0; SIZE];
        core.memory().read(at, &mut bytes);
        bytes
    });
    Ok(superblock::choose(core.memory().path(), &copies)?)
}

/// The superblock of the region on `medium`, which nobody needs to have attached.
pub(crate) fn peek(medium: &Medium) -> Result<Superblock> {
    let mut copies = [[0; SIZE]; 2];
    for (at, copy) in SUPERBLOCKS.into_iter().zip(&mut copies) {
        medium.peek(at.bytes(), copy)?;
    }
    Ok(superblock::choose(medium.path(), &copies)?)
}

/// The identity of the region on `path`.
pub(crate) fn identity(path: &Path) -> Result<Id> {
    Ok(Id(peek_path(path)?.uuid))
}

/// A region that nobody can attach as long as this value lives, and nobody has attached.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) superblock: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) memory: Mapped,
    _claim: <OsHost as Host>::Claim,
}

/// What came of an attempt to hold a region.
pub(crate) enum Hold {
    /// It is held.
    Held(Box<Held>),
    /// These have it attached. Empty if they can't be named.
    Attached(Vec<Attached>),
    /// Somebody attaches or detaches all the time.
    Busy(Duration),
}

/// Holds others off the region on `path`, waiting up to `patience` for those who attach or detach.
/// It may have to be recovered, as its superblock says. All of it is resident if there is what it
/// can be loaded from, `fill`; otherwise what is not can't be read.
pub(crate) fn hold(path: &Path, patience: Duration, fill: Option<Arc<dyn Fill>>) -> Result<Hold> {
    let medium = Arc::new(Medium::open(Source::from(path))?);
    let superblock = peek(&medium)?;
    let geometry = geometry_of(superblock.shape)?;
    let host = OsHost::new(Arc::clone(&medium), &geometry)?;
    let map = MapOptions { read_only: Some(geometry.volatile()), ..MapOptions::default() };
    let memory = Mapped::map(&medium, geometry.len(), &map)?;
    let since = Instant::now();
    loop {
        let is_over = since.elapsed() > patience;
        let Some(claim) = host.claim_attach()? else {
            if is_over {
                return Ok(Hold::Busy(since.elapsed()));
            }
            std::thread::sleep(NAP);
            continue;
        };
        // What was seen before the claim may have changed; its shape stays.
        let mut superblock = peek(&medium)?;
        if !host.is_anyone_attached()? {
            let memory = match (may_lack(&superblock), fill) {
                (false, _) => memory,
                (true, Some(fill)) => {
                    conquest_pm::load_held(&medium, &geometry, fill)?;
                    superblock = peek(&medium)?;
                    memory
                }
                (true, None) => {
                    let (medium, fill) = (Arc::clone(&medium), Arc::new(Nothing));
                    let from = LoadFrom { medium, geometry: geometry.clone(), fill };
                    let map = MapOptions { load_from: Some(from), ..map };
                    Mapped::map(host.medium(), geometry.len(), &map)?
                }
            };
            return Ok(Hold::Held(Box::new(Held { superblock, geometry, memory, _claim: claim })));
        }
        let who = attached(&memory, &host, &geometry, superblock.tag())?;
        if is_over || !who.iter().all(|process| process.is_keeper) {
            return Ok(Hold::Attached(who));
        }
        // Which takes the claim for a moment.
        drop(claim);
        ask_keeper_to_leave(&memory, &geometry);
        std::thread::sleep(NAP);
    }
}

/// The superblock of the region on `path`.
pub(crate) fn peek_path(path: &Path) -> Result<Superblock> {
    peek(&Medium::open(Source::from(path))?)
}
