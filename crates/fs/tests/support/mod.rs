//! What the tests of directories share: regions, hashes, and operations done to the end.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::{Geometry, LINE, Offset, WORD, fs};
use conquest_fs::dir::{Census, Directory, FileType, Insert, Key, NameHash, Position, Room, Root};
use conquest_fs::{Error, Reader, Result};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::check::Reachable;
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

/// An operation on the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// A new name for an inode; nothing happens if it exists.
    Insert(Vec<u8>, Offset, FileType),
    /// Removes a name, if it exists.
    Remove(Vec<u8>),
    /// Makes a name, if it exists, that of another inode.
    Replace(Vec<u8>, Offset, FileType),
    /// Another name for what has the first one; nothing happens unless that exists and the second
    /// one doesn't.
    Rename(Vec<u8>, Vec<u8>),
}

impl Op {
    /// What the operation inserts, or else looks for.
    fn name(&self) -> &[u8] {
        match self {
            Op::Insert(name, ..) | Op::Remove(name) | Op::Replace(name, ..) => name,
            Op::Rename(_, to) => to,
        }
    }

    /// What the directory holds after the operation: the model.
    pub fn apply(&self, model: &mut BTreeMap<Vec<u8>, Offset>) {
        match self {
            Op::Insert(name, inode, _) => _ = model.entry(name.clone()).or_insert(*inode),
            Op::Remove(name) => _ = model.remove(name),
            Op::Replace(name, inode, _) => {
                model.entry(name.clone()).and_modify(|old| *old = *inode);
            }
            Op::Rename(from, to) => {
                if !model.contains_key(to)
                    && let Some(inode) = model.remove(from)
                {
                    model.insert(to.clone(), inode);
                }
            }
        }
    }
}

/// Does `op`, making room as often as there is none: the position of the entry that it was about,
/// if anything has happened. As an operation of `actor`, it is counted in the same transaction.
pub fn perform<M: Memory, H: Host>(
    core: &Core<M, H>,
    dir: &Dir,
    op: &Op,
    actor: Option<u32>,
) -> Result<Option<Position>> {
    loop {
        let mut tx = core.begin()?;
        match lock(&mut tx).and_then(|()| stage(&mut tx, dir, op)) {
            Ok(Staged::Done(position)) => {
                if let Some(actor) = actor {
                    let done = tx.get(done_at(actor));
                    tx.set(done_at(actor), done + 1)?;
                }
                tx.commit()?;
                return Ok(position);
            }
            Ok(Staged::NoRoom) => {
                drop(tx);
                make_room(core, dir, op.name())?;
            }
            Err(Error::Core(conquest_pm::Error::Again)) => {}
            Err(error) => return Err(error),
        }
    }
}

enum Staged {
    Done(Option<Position>),
    NoRoom,
}

fn stage<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, dir: &Dir, op: &Op) -> Result<Staged> {
    let hashed = |name| dir.name(name).unwrap();
    let old = match op {
        Op::Insert(..) => None,
        Op::Remove(name) | Op::Replace(name, ..) | Op::Rename(name, _) => {
            match dir.find(tx, &hashed(name))? {
                None => return Ok(Staged::Done(None)),
                old => old,
            }
        }
    };
    let inserted = match op {
        Op::Insert(name, inode, file_type) => {
            Some(dir.insert(tx, &hashed(name), *inode, *file_type)?)
        }
        Op::Rename(_, to) => {
            let old = old.unwrap();
            Some(dir.insert(tx, &hashed(to), old.inode, old.file_type)?)
        }
        Op::Remove(_) | Op::Replace(..) => None,
    };
    let position = match inserted {
        Some(Insert::NoRoom) => return Ok(Staged::NoRoom),
        Some(Insert::Exists(_)) => return Ok(Staged::Done(None)),
        Some(Insert::Done(position)) => position,
        None => old.unwrap().position,
    };
    if let (Op::Remove(_) | Op::Rename(..), Some(old)) = (op, old) {
        assert!(dir.remove(tx, old.position)?);
    }
    if let Op::Replace(_, inode, file_type) = op {
        assert!(dir.replace(tx, position, *inode, *file_type)?);
    }
    Ok(Staged::Done(Some(position)))
}

fn lock<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>) -> Result<()> {
    Ok(tx.lock(LOCK, Mode::Exclusive)?)
}

fn make_room<M: Memory, H: Host>(core: &Core<M, H>, dir: &Dir, name: &[u8]) -> Result<()> {
    let mut tx = core.begin()?;
    lock(&mut tx)?;
    match dir.make_room(&mut tx, &dir.name(name).unwrap()) {
        Ok(Room::Staged) => Ok(tx.commit()?),
        Ok(Room::There) | Err(Error::Core(conquest_pm::Error::Again)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Inserts `name` for `inode`, a regular file.
pub fn insert<M: Memory, H: Host>(core: &Core<M, H>, dir: &Dir, name: &[u8], inode: Offset) {
    let op = Op::Insert(name.to_vec(), inode, FileType::Regular);
    assert!(perform(core, dir, &op, None).unwrap().is_some());
}

/// Checks every rule, and the managers against what the directory consists of: what it holds.
pub fn examine<M: Memory, H: Host>(
    core: &Core<M, H>,
    dir: &Dir,
) -> std::result::Result<(BTreeMap<Vec<u8>, Offset>, Census), String> {
    let (mut reachable, mut found) = (Reachable::default(), BTreeMap::new());
    let looked = core.read(LOCK, |view| {
        reachable = Reachable::default();
        found.clear();
        dir.check(view, &mut reachable, |entry, name| {
            found.insert(name.to_vec(), entry.inode);
        })
    });
    let census = looked.map_err(|error| error.to_string())?;
    match core.check(&reachable).map_err(|error| error.to_string())?.first() {
        Some(finding) => Err(finding.to_string()),
        None => Ok((found, census)),
    }
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
        let shape = Shape { max_groups: groups, lanes: 4, slots: 4, locks: 64, chunks: 4, log: 0 };
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

pub const SHAPE: Shape = Shape { max_groups: 2, lanes: 3, slots: 3, locks: 4, chunks: 4, log: 0 };

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
