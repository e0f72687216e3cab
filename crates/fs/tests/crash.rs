//! Every image that a crash may leave of operations on a small directory: each operation happened
//! or didn't, no page is lost, and recovery may crash too.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use conquest_format::{Offset, checksum};
use conquest_fs::dir::{Census, FileType};
use conquest_pm::memory::Memory;
use conquest_testkit::{
    CrashPoint, DyingMemory, Image, Mark, Options, Recording, RecordingMemory, Rng, World, explore,
};
use support::*;

type Model = BTreeMap<Vec<u8>, Offset>;

/// What is done to a directory, before the recording and in it.
struct Scenario {
    mask: u64,
    earlier: Vec<Op>,
    script: Vec<Op>,
}

fn insert_op(name: &[u8], number: u64) -> Op {
    Op::Insert(name.to_vec(), inode(number), FileType::Regular)
}

/// `count` names of 255 bytes whose hash under `mask` is `hash`.
fn long_names(mask: u64, hash: u64, count: usize) -> Vec<Vec<u8>> {
    use conquest_fs::dir::NameHash;
    let is_one = |name: &Vec<u8>| masked(mask).hash(name) == hash;
    (0..).map(long_name).filter(is_one).take(count).collect()
}

impl Scenario {
    fn base(&self) -> (Arc<Image>, Model) {
        let mut model = Model::new();
        let base = image(self.script.len().is_multiple_of(2), |core| {
            for op in &self.earlier {
                perform(core, &directory(self.mask), op, None).unwrap();
                op.apply(&mut model);
            }
            assert_eq!(examine(core, &directory(self.mask)).unwrap().0, model);
        });
        (base, model)
    }

    /// Runs the script; what the directory consists of after each operation is returned too.
    fn record(&self, base: Arc<Image>) -> (Recording, Vec<Census>) {
        let memory = RecordingMemory::new(base, geometry().volatile(), true);
        let world = World::new(memory.clock());
        let actor = memory.actor(0);
        let core = attach(DyingMemory::counting(actor.clone()), &world, 0).unwrap();
        let dir = directory(self.mask);
        let mut sizes = Vec::new();
        for (op, number) in self.script.iter().zip(1..) {
            actor.mark(Mark::Begun(number));
            perform(&core, &dir, op, Some(0)).unwrap();
            actor.mark(Mark::Acknowledged(number));
            let looked = core.read(LOCK, |view| {
                dir.check(view, &mut conquest_pm::check::Reachable::default(), |_, _| {})
            });
            sizes.push(looked.unwrap());
        }
        core.detach().unwrap();
        assert_eq!(memory.violation(), None);
        (memory.recording(), sizes)
    }

    fn judge(
        &self,
        before: &Model,
        memory: &RecordingMemory,
        point: &CrashPoint<'_>,
    ) -> Result<u64, String> {
        let world = World::new(memory.clock());
        let alive = DyingMemory::counting(memory.this_thread());
        let core = attach(alive, &world, 2).map_err(|error| error.to_string())?;
        memory.this_thread().mark(Mark::Recovered);
        let (found, _) = examine(&core, &directory(self.mask))?;
        let done = core.memory().load(done_at(0), std::sync::atomic::Ordering::Relaxed);
        let (acknowledged, begun) = (point.last_acknowledged(0), point.last_begun(0));
        if done < acknowledged.unwrap_or(0) || done > begun.unwrap_or(0) {
            return Err(format!("{acknowledged:?} acknowledged, {begun:?} begun, {done} happened"));
        }
        let mut model = before.clone();
        self.script.iter().take(done as usize).for_each(|op| op.apply(&mut model));
        if found != model {
            return Err(format!("after {done} operations: {found:?}, not {model:?}"));
        }
        Ok(checksum(done, format!("{found:?}").as_bytes()))
    }

    /// Explores the crashes of the script: what the directory consisted of on the way, and how many
    /// contents crashes left.
    fn explore(&self, name: &str, states: usize) -> (Vec<Census>, usize) {
        let (base, before) = self.base();
        let (recording, sizes) = self.record(base);
        let options =
            Options { states, inner_states: states / 4, inner_each: 8, ..Options::default() };
        let found =
            explore(&recording, &options, |memory, point| self.judge(&before, memory, point));
        println!("{name}: {found}");
        assert_eq!(found.failed, 0, "{found}");
        (sizes, found.outcomes.len())
    }
}

#[test]
fn from_no_entry_to_no_entry() {
    let (short, long) = (b"short".to_vec(), long_name(7));
    let script = vec![
        insert_op(&short, 1),
        insert_op(&long, 2),
        Op::Replace(short.clone(), inode(3), FileType::Directory),
        Op::Rename(short, b"other".to_vec()),
        Op::Remove(long),
        Op::Remove(b"other".to_vec()),
    ];
    let (sizes, outcomes) =
        Scenario { mask: u64::MAX, earlier: vec![], script }.explore("few", 6000);
    assert_eq!(outcomes, 7);
    assert_eq!(sizes.last(), Some(&Census::default()));
}

#[test]
fn a_split_at_the_root_and_a_merge() {
    let mask = 1 << 63;
    let (low, high) = (long_names(mask, 0, 13), long_names(mask, mask, 3));
    let all = low.iter().chain(high.iter().take(1)).zip(1..);
    let earlier = all.map(|(name, number)| insert_op(name, number)).collect();
    let script = vec![
        insert_op(&high[1], 50),
        Op::Rename(low[0].clone(), high[2].clone()),
        Op::Remove(high[0].clone()),
        Op::Remove(high[1].clone()),
        Op::Remove(high[2].clone()),
    ];
    let (sizes, outcomes) = Scenario { mask, earlier, script }.explore("split and merge", 8000);
    assert_eq!(outcomes, 6);
    assert_eq!((sizes[0].buckets, sizes[0].nodes), (2, 1));
    assert_eq!((sizes[4].buckets, sizes[4].nodes), (1, 0));
}

#[test]
fn splits_down_to_a_second_node() {
    let mask = 1 << 63 | 1 << 54;
    let (low, high) = (long_names(mask, 0, 13), long_names(mask, 1 << 54, 2));
    let far = long_names(mask, 1 << 63, 1);
    let all = low.iter().chain(high.iter().take(1)).zip(1..);
    let earlier = all.map(|(name, number)| insert_op(name, number)).collect();
    let mut script = vec![insert_op(&high[1], 50), insert_op(&far[0], 51)];
    script.extend(low.iter().chain(&high).chain(&far).cloned().map(Op::Remove));
    let (sizes, outcomes) = Scenario { mask, earlier, script }.explore("second node", 12_000);
    assert_eq!(outcomes, 19);
    assert_eq!((sizes[0].buckets, sizes[0].nodes), (2, 2));
    assert_eq!((sizes[1].buckets, sizes[1].nodes), (3, 2));
    assert_eq!(sizes.last(), Some(&Census::default()));
}

#[test]
fn random_operations() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mask = [u64::MAX, 0xC1 << 56][seed as usize % 2];
        let pool: Vec<Vec<u8>> = (0..24).map(|n| long_name(seed * 100 + n)).collect();
        let op = |rng: &mut Rng, number: u64| {
            let one = |rng: &mut Rng| pool[rng.below(24) as usize].clone();
            match rng.below(8) {
                0..=3 => Op::Insert(one(rng), inode(number), FileType::Regular),
                4 | 5 => Op::Remove(one(rng)),
                6 => Op::Replace(one(rng), inode(number), FileType::Symlink),
                _ => Op::Rename(one(rng), one(rng)),
            }
        };
        let earlier = (0..40).map(|number| op(&mut rng, number)).collect();
        let script = (100..108).map(|number| op(&mut rng, number)).collect();
        let scenario = Scenario { mask, earlier, script };
        let (_, outcomes) = scenario.explore(&format!("seed {seed}"), 2000);
        assert!(outcomes > 1);
    }
}
