//! A slab that is given back where memory is weak: not if somebody has just filled it.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_format::kind::{KINDS, KindSpec, KindTable};
use conquest_pm::attach::{NewRegion, make};
use conquest_pm::{Core, Options, Ptr};
use conquest_testkit::scenario::{SimCore, SimMemory};
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::shelf::Node;
use conquest_testkit::{Actor, DyingMemory, Image, RecordingMemory, SimHost, World};

const SHAPE: Shape = Shape { max_groups: 3, lanes: 4, slots: 4, locks: 4, chunks: 4, log: 0 };
/// Objects in a slab: few, so that it is filled by few stores, and an older value is one of few.
const SLAB: usize = 2;
/// Choices of older values.
const SEEDS: u64 = 4;

fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    kinds[1] = KindSpec::object(2048).unwrap();
    kinds
}

fn attach(memory: SimMemory, world: &World, pid: u32) -> SimCore {
    let options: Options<SimMemory, SimHost> = Options::default();
    let path = Path::new("simulated core");
    Core::attach(memory, world.process(pid), path, &kinds(), options).unwrap()
}

fn fill(core: &SimCore, count: usize) -> Vec<Ptr<Node>> {
    core.run(|tx| (0..count).map(|_| tx.alloc::<Node>().map(|fresh| tx.seal(fresh))).collect())
        .unwrap()
}

/// Two processes and one that looks, and a slab with one object that no lane has leased.
fn setup() -> (RecordingMemory, (Vec<SimCore>, Ptr<Node>)) {
    let geometry = Geometry::new(SHAPE).unwrap();
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let new = NewRegion { shape: SHAPE, kinds: kinds(), uuid: [1; 16], created: 1, groups: 3 };
    make(&memory.actor(0), &world.process(9), Path::new("simulated core"), &new).unwrap();
    let process = |id: u32| attach(DyingMemory::counting(memory.actor(id)), &world, id);
    let cores: Vec<SimCore> = [0, 1, 7].map(process).into();
    let nodes = fill(&cores[0], SLAB + 1);
    cores[0].run(|tx| tx.free(nodes[1])).unwrap();
    (memory, (cores, nodes[0]))
}

/// Every run in which one of the two is interrupted once, until the other one is done.
#[test]
fn a_slab_that_is_filled_is_not_given_back() {
    for stale_seed in 0..SEEDS {
        let options = ScheduleOptions {
            search: Search::Exhaustive { preemptions: 1, runs: 5000 },
            weak_memory: true,
            stale_seed,
            ..ScheduleOptions::default()
        };
        let made = Mutex::new(Vec::new());
        let body = |(cores, node): &(Vec<SimCore>, Ptr<Node>), id: u32, _: &Actor| {
            let core = &cores[id as usize];
            if id == 0 {
                return core.run(|tx| tx.free(*node)).map_err(|error| error.to_string());
            }
            let nodes = fill(core, SLAB + 1);
            *made.lock().unwrap() = nodes;
            Ok(())
        };
        let verdict = |(cores, _): &(Vec<SimCore>, Ptr<Node>), _: &RecordingMemory| {
            let nodes = made.lock().unwrap();
            let is_there = |&node: &Ptr<Node>| cores[2].resolve(node).map(drop);
            nodes.iter().try_for_each(is_there).map_err(|error| error.to_string()).map(|()| 0)
        };
        let found = run(&options, setup, body, verdict);
        assert!(found.failed == 0 && found.complete, "{found}");
    }
}
