//! What the tests of directories share: regions, hashes, and operations done to the end.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::{Geometry, LINE, Offset, WORD, fs};
use conquest_fs::dir::{Directory, FileType, Insert, Key, NameHash, Position, Room, Root};
use conquest_fs::{Error, Reader, Result};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::host::Host;
use conquest_pm::media::Source;
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Core, Mode, Options, Region, Tx};
use conquest_testkit::{Actor, DyingMemory, Image, RecordingMemory, Rng, SimHost, World};

/// The lock over the test directory.
pub const LOCK: u32 = 1;

/// Hashes of which only the bits of `mask` differ from 0.
#[derive(Clone, Copy, Debug)]
pub struct Masked {
    pub key: Key,
    pub mask: u64,
}

impl NameHash for Masked {
    fn hash(&self, name: &[u8]) -> u64 {
        self.key.hash(name) & self.mask
    }
}

pub fn masked(mask: u64) -> Masked {
    Masked { key: Key::new([3, 4]), mask }
}

/// What hashes can be like: as they are; most alike in their first bits; few different ones, of
/// which many are the same.
pub const MASKS: [u64; 4] = [u64::MAX, 0x1FFF << 16, 0xF8 << 56, 0x21 << 58];

pub type Dir = Directory<Masked>;

/// The directory of the tests: its root is in the region's roots.
pub fn directory(mask: u64) -> Dir {
    let word = |index| STATE_ROOTS.plus(index * WORD);
    Directory::new(Root { content: word(0), entries: word(1), pages: word(2) }, masked(mask))
}

/// How many operations actor `actor` has done.
pub fn done_at(actor: u32) -> Offset {
    STATE_ROOTS.plus((8 + u64::from(actor)) * WORD)
}

/// The offset of an inode that isn't there: directories don't look at inodes.
pub fn inode(number: u64) -> Offset {
    Offset::new((number + 1) * 128)
}

/// A name of a random length, mostly short.
pub fn random_name(rng: &mut Rng) -> Vec<u8> {
    let most = [8, 20, 40, 255][rng.below(4) as usize];
    let len = 1 + rng.below(most);
    let byte = |rng: &mut Rng| match rng.below(256) as u8 {
        0 | b'/' => b'_',
        byte => byte,
    };
    (0..len).map(|_| byte(rng)).collect()
}

/// A name of 255 bytes: fourteen of them fill a bucket.
pub fn long_name(number: u64) -> Vec<u8> {
    format!("{number:0>255}").into_bytes()
}

/// Does `change` in a transaction that holds the directory's lock, making room as often as it says
/// that there is none.
pub fn run<M: Memory, H: Host, T>(
    core: &Core<M, H>,
    dir: &Dir,
    name: &[u8],
    mut change: impl FnMut(&mut Tx<'_, M, H>) -> Result<Option<T>>,
) -> Result<T> {
    let name = dir.name(name).unwrap();
    loop {
        let mut tx = core.begin()?;
        let staged = lock(&mut tx).and_then(|()| change(&mut tx));
        let done = match staged {
            Ok(Some(value)) => tx.commit().map(|()| Some(value)).map_err(Error::from),
            Ok(None) => {
                drop(tx);
                make_room(core, dir, &name).map(|()| None)
            }
            Err(error) => {
                drop(tx);
                Err(error)
            }
        };
        match done {
            Ok(Some(value)) => return Ok(value),
            Ok(None) | Err(Error::Core(conquest_pm::Error::Again)) => {}
            Err(error) => return Err(error),
        }
    }
}

fn lock<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>) -> Result<()> {
    Ok(tx.lock(LOCK, Mode::Exclusive)?)
}

fn make_room<M: Memory, H: Host>(
    core: &Core<M, H>,
    dir: &Dir,
    name: &conquest_fs::dir::Name<'_>,
) -> Result<()> {
    let mut tx = core.begin()?;
    lock(&mut tx)?;
    match dir.make_room(&mut tx, name)? {
        Room::There => Ok(()),
        Room::Staged => Ok(tx.commit()?),
    }
}

/// Inserts `name`; its position, or none if it exists.
pub fn insert<M: Memory, H: Host>(
    core: &Core<M, H>,
    dir: &Dir,
    name: &[u8],
    inode: Offset,
    file_type: FileType,
) -> Result<Option<Position>> {
    let hashed = dir.name(name).unwrap();
    run(core, dir, name, |tx| {
        Ok(match dir.insert(tx, &hashed, inode, file_type)? {
            Insert::Done(position) => Some(Some(position)),
            Insert::Exists(_) => Some(None),
            Insert::NoRoom => None,
        })
    })
}

/// Removes `name`; whether it was there.
pub fn remove<M: Memory, H: Host>(core: &Core<M, H>, dir: &Dir, name: &[u8]) -> Result<bool> {
    let hashed = dir.name(name).unwrap();
    run(core, dir, name, |tx| match dir.find(tx, &hashed)? {
        Some(entry) => Ok(Some(dir.remove(tx, entry.position)?)),
        None => Ok(Some(false)),
    })
}

/// Makes `name` the name of another inode; whether it was there.
pub fn replace<M: Memory, H: Host>(
    core: &Core<M, H>,
    dir: &Dir,
    name: &[u8],
    inode: Offset,
    file_type: FileType,
) -> Result<bool> {
    let hashed = dir.name(name).unwrap();
    run(core, dir, name, |tx| match dir.find(tx, &hashed)? {
        Some(entry) => Ok(Some(dir.replace(tx, entry.position, inode, file_type)?)),
        None => Ok(Some(false)),
    })
}

/// Gives the entry `from` the name `to`, in one transaction; false if there is no `from`, or if
/// there is a `to`.
pub fn rename<M: Memory, H: Host>(
    core: &Core<M, H>,
    dir: &Dir,
    from: &[u8],
    to: &[u8],
) -> Result<bool> {
    let (old, new) = (dir.name(from).unwrap(), dir.name(to).unwrap());
    run(core, dir, to, |tx| {
        let Some(entry) = dir.find(tx, &old)? else {
            return Ok(Some(false));
        };
        match dir.insert(tx, &new, entry.inode, entry.file_type)? {
            Insert::Done(_) => dir.remove(tx, entry.position).map(Some).map_err(Error::from),
            Insert::Exists(_) => Ok(Some(false)),
            Insert::NoRoom => Ok(None),
        }
    })
}

/// Up to `most` entries after `after`: names, inodes and positions.
pub fn list(
    reader: &impl Reader,
    dir: &Dir,
    after: Option<Position>,
    most: usize,
) -> conquest_pm::Result<Vec<(Vec<u8>, Offset, Position)>> {
    let mut listed = Vec::new();
    dir.list(reader, after, |entry, name| {
        listed.push((name.to_vec(), entry.inode, entry.position));
        if listed.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(listed)
}

// --- real regions --------------------------------------------------------------------------------

/// A file on shared memory that is gone at the end.
pub struct Temporary(PathBuf);

impl Temporary {
    /// A region of up to `groups` groups.
    pub fn region(groups: u64) -> Temporary {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conquest-dir-{}-{number}", std::process::id());
        let file = Temporary(Path::new("/dev/shm").join(name));
        let shape = Shape { max_groups: groups, lanes: 4, slots: 4, locks: 64 };
        let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
        Region::create(Source::from(file.0.as_path()), 0o600, &new).unwrap();
        file
    }

    pub fn open(&self) -> Arc<Region> {
        let source = Source::from(self.0.as_path());
        Region::open(source, &fs::kinds(), Access::default(), Options::default()).unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

// --- simulated regions ---------------------------------------------------------------------------

pub type SimMemory = DyingMemory<Actor>;
pub type SimCore = Arc<Core<SimMemory, SimHost>>;

pub const SHAPE: Shape = Shape { max_groups: 2, lanes: 3, slots: 3, locks: 4 };

pub fn geometry() -> Geometry {
    Geometry::new(SHAPE).unwrap()
}

/// Attaches as simulated process `pid`.
pub fn attach(memory: SimMemory, world: &World, pid: u32) -> conquest_pm::Result<SimCore> {
    let options = Options { growth_groups: 1, ..Options::default() };
    Core::attach(memory, world.process(pid), Path::new("simulated"), &fs::kinds(), options)
}

/// A small region on which `prepare` was done; its last process died, or has detached.
pub fn image(detach: bool, prepare: impl FnOnce(&SimCore)) -> Arc<Image> {
    let geometry = geometry();
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let new = NewRegion { shape: SHAPE, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    make(&memory.actor(0), &world.process(9), Path::new("simulated"), &new).unwrap();
    // What stands in free pages is nobody's business.
    for page in 0..64 {
        let junk = [0xA5; LINE as usize];
        (0..64).for_each(|line| {
            memory.actor(0).put_bytes(geometry.page(page).plus(line * LINE), &junk)
        });
    }
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 9).unwrap();
    prepare(&core);
    if detach {
        core.detach().unwrap();
    }
    memory.snapshot()
}
