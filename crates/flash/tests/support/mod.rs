//! What the tests of the map share: regions, and changes done to the end.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use conquest_flash::kinds::kinds;
use conquest_flash::map::{Extent, Measure, Room, Tree};
use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::{Geometry, Offset, WORD};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::media::Source;
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Core, Mode, Options, Region, Result, Tx};
use conquest_testkit::{Actor, DyingMemory, Image, RecordingMemory, SimHost, World};

/// The lock over the test's tree.
pub const LOCK: u32 = 1;

/// Units of a segment in tests.
pub const SEGMENT: u64 = 1 << 12;

pub const TREE: Tree = Tree { root: STATE_ROOTS, segment: SEGMENT };

/// A word that is nothing of the tree's.
pub fn scratch(index: u64) -> Offset {
    STATE_ROOTS.plus((8 + index) * WORD)
}

/// Which units are mapped where.
pub type Model = BTreeMap<u64, u64>;

pub fn extent(unit: u64, place: u64, len: u64) -> Extent {
    Extent { unit, place, len }
}

/// Begins a transaction that has the tree's lock.
pub fn begin<M: Memory, H: Host>(core: &Core<M, H>) -> Tx<'_, M, H> {
    let mut tx = core.begin().unwrap();
    tx.lock(LOCK, Mode::Exclusive).unwrap();
    tx
}

/// Does `change`, committing parts, until it is done: how many parts that took.
pub fn finish<'c, M: Memory, H: Host>(
    tx: &mut Tx<'c, M, H>,
    mut change: impl FnMut(&mut Tx<'c, M, H>) -> Result<bool>,
) -> u64 {
    for parts in 0..100_000 {
        if change(tx).unwrap() {
            return parts;
        }
        tx.commit_part().unwrap();
    }
    panic!("a change without an end");
}

/// Stages what a caller might, so as to use its room up.
fn note<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, each: u64, part: Extent) -> Result<()> {
    (0..each).try_for_each(|index| tx.set(scratch(index), part.unit))
}

/// Clears `range`: the parts that were removed.
pub fn clear<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    range: Range<u64>,
    room: Room,
) -> Vec<Extent> {
    let mut removed = Vec::new();
    finish(tx, |tx| {
        TREE.clear(tx, range.clone(), room, |tx, part| {
            removed.push(part);
            note(tx, room.each, part)
        })
    });
    removed
}

/// Inserts `extent`.
pub fn insert<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, extent: Extent, kept: u64) -> u64 {
    finish(tx, |tx| TREE.insert(tx, extent, kept))
}

/// Assigns `extent`: the parts that were removed.
pub fn assign<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    extent: Extent,
    room: Room,
) -> Vec<Extent> {
    let mut removed = Vec::new();
    finish(tx, |tx| {
        TREE.assign(tx, extent, room, |tx, part| {
            removed.push(part);
            note(tx, room.each, part)
        })
    });
    removed
}

/// Takes `range` out of the model: what was there.
pub fn clear_model(model: &mut Model, range: Range<u64>) -> Model {
    let units: Vec<u64> = model.range(range).map(|(unit, _)| *unit).collect();
    units.into_iter().filter_map(|unit| model.remove_entry(&unit)).collect()
}

/// Puts `extent` into the model.
pub fn insert_model(model: &mut Model, extent: Extent) {
    model.extend((0..extent.len).map(|index| (extent.unit + index, extent.place + index)));
}

/// `extents`, unit by unit; none of them may overlap.
pub fn units(extents: &[Extent]) -> Model {
    let mut model = Model::new();
    extents.iter().for_each(|extent| insert_model(&mut model, *extent));
    assert_eq!(model.len() as u64, extents.iter().map(|extent| extent.len).sum::<u64>());
    model
}

/// Everything that is mapped, leaf by leaf.
pub fn all<M: Memory, H: Host>(core: &Core<M, H>) -> Vec<Extent> {
    let (mut found, mut leaf, mut from) = (Vec::new(), Vec::new(), Some(0));
    while let Some(unit) = from {
        from = core.read(LOCK, |view| TREE.leaf(view, unit, &mut leaf)).unwrap();
        assert!(from.is_none_or(|from| from > unit));
        found.append(&mut leaf);
    }
    assert!(found.is_sorted());
    found
}

/// Checks every rule, and the managers against what the tree consists of.
pub fn examine<M: Memory, H: Host>(core: &Core<M, H>) -> Measure {
    let mut reachable = Reachable::default();
    let measure = core
        .read(LOCK, |view| {
            reachable = Reachable::default();
            TREE.check(view, &mut reachable)
        })
        .unwrap();
    assert_eq!(core.check(&reachable).unwrap(), []);
    measure
}

// --- real regions --------------------------------------------------------------------------------

/// A region of up to `groups` groups of 2 MiB in memory of its own.
pub fn region(groups: u64) -> Arc<Region> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("conquest-map", flags).unwrap();
    let shape = Shape { max_groups: groups, lanes: 4, slots: 4, locks: 64, chunks: 4, log: 0 };
    let new = NewRegion { shape, kinds: kinds(), uuid: [1; 16], created: 1, groups: 1 };
    Region::create(Source::from(file.try_clone().unwrap()), 0o600, &new).unwrap();
    Region::open(Source::from(file), &kinds(), Access::default(), Options::default()).unwrap()
}

// --- simulated regions ---------------------------------------------------------------------------

pub type SimMemory = DyingMemory<Actor>;
pub type SimCore = Arc<Core<SimMemory, SimHost>>;

pub const SHAPE: Shape = Shape { max_groups: 2, lanes: 3, slots: 3, locks: 4, chunks: 4, log: 0 };

pub fn geometry() -> Geometry {
    Geometry::new(SHAPE).unwrap()
}

/// Attaches as simulated process `pid`.
pub fn attach(memory: SimMemory, world: &World, pid: u32) -> Result<SimCore> {
    let options = Options { growth_groups: 1, ..Options::default() };
    Core::attach(memory, world.process(pid), Path::new("simulated"), &kinds(), options)
}

/// A small region on which `prepare` was done.
pub fn image(prepare: impl FnOnce(&SimCore)) -> Arc<Image> {
    let geometry = geometry();
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let new = NewRegion { shape: SHAPE, kinds: kinds(), uuid: [1; 16], created: 1, groups: 1 };
    make(&memory.actor(0), &world.process(9), Path::new("simulated"), &new).unwrap();
    let core = attach(DyingMemory::counting(memory.actor(0)), &world, 9).unwrap();
    prepare(&core);
    core.detach().unwrap();
    memory.snapshot()
}
