//! The region in a core: made, opened, looked at, and held while nobody has it attached.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conquest_format::geometry::SUPERBLOCKS;
use conquest_format::inode::Owner;
use conquest_format::superblock::{SIZE, Superblock};
use conquest_format::{Geometry, Offset, fs};
use conquest_fs::open::bury;
use conquest_fs::{Clock, FileSystem, NewFileSystem, finish_intent};
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Options, Region, superblock};

use super::attached::{Attached, attached};
use super::new::NewStore;
use crate::{Fs, Id, OwnNamespace, Result, id, machine};

/// Sleep between two tries to hold others off.
const NAP: Duration = Duration::from_millis(2);

/// The clock of files' times.
pub(crate) fn clock() -> Clock {
    Box::new(|| i64::try_from(machine::now()).unwrap_or(i64::MAX))
}

/// Makes a region with an empty file system on the file `path`, which is made, or is a device.
pub(crate) fn make(path: &Path, new: &NewStore, region: &NewRegion) -> Result<()> {
    Region::create(Source::from(path), new.mode & 0o777, region)?;
    let core = open(path, Access::default(), Options::default())?;
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
    };
    FileSystem::make(&core, &files, &clock())?;
    Ok(core.detach()?)
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
/// It may have to be recovered, as its superblock says.
pub(crate) fn hold(path: &Path, patience: Duration) -> Result<Hold> {
    let medium = Arc::new(Medium::open(Source::from(path))?);
    let superblock = peek(&medium)?;
    let geometry = Geometry::new(superblock.shape).ok_or(conquest_pm::Error::Corrupt {
        what: "superblock",
        offset: Offset::NONE,
        expected: "a valid shape",
        found: superblock.shape.max_groups,
    })?;
    let host = OsHost::new(Arc::clone(&medium), &geometry)?;
    let since = Instant::now();
    let claim = loop {
        match host.claim_attach()? {
            Some(claim) => break claim,
            None if since.elapsed() > patience => return Ok(Hold::Busy(since.elapsed())),
            None => std::thread::sleep(NAP),
        }
    };
    // What was seen before the claim may have changed; its shape stays.
    let superblock = peek(&medium)?;
    let map = MapOptions { read_only: Some(geometry.volatile()), ..MapOptions::default() };
    let memory = Mapped::map(&medium, geometry.len(), &map)?;
    if host.is_anyone_attached()? {
        return Ok(Hold::Attached(attached(&memory, &host, &geometry, superblock.tag())?));
    }
    Ok(Hold::Held(Box::new(Held { superblock, geometry, memory, _claim: claim })))
}

/// The superblock of the region on `path`.
pub(crate) fn peek_path(path: &Path) -> Result<Superblock> {
    peek(&Medium::open(Source::from(path))?)
}
