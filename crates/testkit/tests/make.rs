//! Making a region: on a medium full of somebody's data, and with the power failing meanwhile.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::path::Path;
use std::sync::Arc;

use conquest_format::Geometry;
use conquest_pm::Error;
use conquest_pm::attach::{NewRegion, make};
use conquest_testkit::explore;
use conquest_testkit::scenario::{attach, shape};
use conquest_testkit::shelf::{self, Contents, Op};
use conquest_testkit::{
    CrashPoint, DyingMemory, Image, Mark, Options, RecordingMemory, Rng, World,
};

/// A medium whose every word is junk, as a device that held something else.
fn junk(seed: u64) -> Arc<Image> {
    let geometry = Geometry::new(shape()).unwrap();
    let image = Image::new(geometry.len());
    let mut rng = Rng::new(seed);
    for word in 0..image.words() {
        image.set(word, rng.word());
    }
    Arc::new(image)
}

fn make_on(memory: &RecordingMemory, world: &World) {
    let new =
        NewRegion { shape: shape(), kinds: shelf::kinds(), uuid: [4; 16], created: 4, groups: 1 };
    let path = Path::new("simulated");
    make(&memory.actor(0), &world.process(1), path, &new).unwrap();
}

#[test]
fn a_region_can_be_made_where_anything_was_before() {
    let geometry = Geometry::new(shape()).unwrap();
    for seed in 0..3 {
        let memory = RecordingMemory::new(junk(seed), geometry.volatile(), true);
        let world = World::new(memory.clock());
        make_on(&memory, &world);
        let core = attach(DyingMemory::counting(memory.actor(0)), &world, 1).unwrap();
        let (contents, findings) = shelf::examine(&core).unwrap();
        assert_eq!(contents, Contents::new());
        assert_eq!(findings, []);
        // Grows over junk, too.
        for id in 1..=3 {
            shelf::perform(&core, 0, Op::Push { list: 0, id, pages: 400 }).unwrap();
        }
        let (contents, findings) = shelf::examine(&core).unwrap();
        assert_eq!(contents.nodes(), 3);
        assert_eq!(findings, []);
    }
}

#[test]
fn a_region_half_made_is_none() {
    let geometry = Geometry::new(shape()).unwrap();
    let memory = RecordingMemory::new(junk(9), geometry.volatile(), true);
    let world = World::new(memory.clock());
    make_on(&memory, &world);
    memory.actor(0).mark(Mark::Acknowledged(1));
    let options = Options { states: 3000, depth: 0, ..Options::default() };
    let judge =
        |memory: &RecordingMemory, point: &CrashPoint<'_>| {
            let world = World::new(memory.clock());
            match attach(DyingMemory::counting(memory.this_thread()), &world, 2) {
                Ok(core) => {
                    memory.this_thread().mark(Mark::Recovered);
                    let (contents, findings) =
                        shelf::examine(&core).map_err(|error| error.to_string())?;
                    if contents != Contents::new() || !findings.is_empty() {
                        return Err(format!("not empty: {contents:?} {findings:?}"));
                    }
                    Ok(1)
                }
                Err(
                    Error::NotARegion { .. } | Error::Superblocks { .. } | Error::Version { .. },
                ) if !point.is_acknowledged(0, 1) => Ok(2),
                Err(error) => Err(error.to_string()),
            }
        };
    let found = explore(&memory.recording(), &options, judge);
    println!("{found}");
    assert_eq!(found.failed, 0, "{found}");
    assert_eq!(found.outcomes.len(), 2, "both outcomes are there");
}
