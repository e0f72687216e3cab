//! Between any two stores of one process's operation another process allocates, and commits only
//! after the operation: neither may get what the other has.

#![expect(clippy::unwrap_used, reason = "tests fail by panics")]

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use conquest_format::Offset;
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::kind::Kind;
use conquest_pm::check::Reachable;
use conquest_pm::memory::Memory;
use conquest_pm::{Error, Ptr, Result, Tx};
use conquest_testkit::scenario::{SimCore, SimMemory, attach, fresh, shape};
use conquest_testkit::shelf::Node;
use conquest_testkit::{DyingMemory, Fate, RecordingMemory, SimHost, World, become_actor};

/// Objects that fill a slab and begin another one.
const NODES: usize = 40;
/// Objects in a slab.
const SLAB: usize = 32;
/// Pages of the first group that are not for slabs: three slabs of three pages fit.
const FILLER: u64 = 503;

type SimTx<'c> = Tx<'c, SimMemory, SimHost>;

struct Fixture {
    memory: RecordingMemory,
    world: World,
    filler: Offset,
}

fn root(index: u64) -> Offset {
    STATE_ROOTS.plus(index * 8)
}

/// A region whose first group has room for few slabs.
fn fixture() -> Fixture {
    let (memory, world) = fresh(shape(), false).unwrap();
    let mut fixture = Fixture { memory, world, filler: Offset::NONE };
    let core = fixture.process(9);
    fixture.filler = core
        .run(|tx| {
            let run = tx.alloc_run(Kind::new(2).unwrap(), FILLER, None)?;
            let at = tx.finish_run(run);
            tx.set(root(0), at.bytes()).map(|()| at)
        })
        .unwrap();
    core.detach().unwrap();
    fixture
}

impl Fixture {
    fn process(&self, pid: u32) -> SimCore {
        attach(DyingMemory::counting(self.memory.actor(pid)), &self.world, pid).unwrap()
    }

    fn check(&self, core: &SimCore, nodes: &[Ptr<Node>]) {
        self.check_but(core, nodes, 0);
    }

    /// Besides `nodes`, `unknown` others are allocated.
    fn check_but(&self, core: &SimCore, nodes: &[Ptr<Node>], unknown: usize) {
        let mut reachable = Reachable::default();
        reachable.run(self.filler, FILLER);
        for &node in nodes {
            core.resolve(node).unwrap();
            reachable.object(node.offset());
        }
        let mut findings = core.check(&reachable).unwrap();
        let found = findings.len();
        findings.retain(|finding| finding.what != "object allocated but not reachable");
        assert_eq!((findings.as_slice(), found), (&[][..], unknown));
    }
}

/// Allocates `count` nodes, or what there is space for, and commits after `staged`.
fn make_nodes(core: &SimCore, count: usize, staged: impl FnOnce()) -> Result<Vec<Ptr<Node>>> {
    let mut tx = core.begin()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        match tx.alloc::<Node>() {
            Ok(fresh) => nodes.push(tx.seal(fresh)),
            // What others are at work on might be had later.
            Err(Error::NoSpace { .. } | Error::Again) => break,
            Err(error) => return Err(error),
        }
    }
    staged();
    tx.commit()?;
    Ok(nodes)
}

/// Frees nodes, and says so in a root.
fn free_nodes(core: &SimCore, nodes: &[Ptr<Node>]) -> Result<()> {
    core.run(|tx| {
        nodes.iter().try_for_each(|&node| tx.free(node))?;
        tx.set(root(1), 1)
    })
}

/// Another process, a thread of its own with a lane of its own: it fills slabs, allocates more at a
/// word from us, commits that but for the last, and the last at the next word.
fn other(core: SimCore, words: &Receiver<()>, done: &Sender<Vec<Ptr<Node>>>) {
    become_actor(1);
    let mut held = make_nodes(&core, NODES, || ()).unwrap();
    held.extend(make_nodes(&core, NODES, || ()).unwrap());
    done.send(held).unwrap();
    if words.recv().is_err() {
        return;
    }
    let mut nodes = make_nodes(&core, NODES, || ()).unwrap();
    let more = make_nodes(&core, NODES / 8, || {
        done.send(Vec::new()).unwrap();
        words.recv().unwrap();
    });
    nodes.extend(more.unwrap());
    done.send(nodes).unwrap();
}

/// Whether the operation has that many stores.
fn meanwhile(store: u64) -> bool {
    let fixture = fixture();
    let (first, second) = (fixture.process(1), fixture.process(2));
    let (word, words) = channel();
    let (done, nodes) = channel();
    let them = thread::spawn(move || other(second, &words, &done));
    let mut held = nodes.recv().unwrap();
    // Nothing is to be had but what is given back.
    fixture.world.limit_space(fixture.world.space().0);
    let (told, nodes) = (word.clone(), Arc::new(std::sync::Mutex::new(nodes)));
    let replies = Arc::clone(&nodes);
    let call = Box::new(move || {
        told.send(()).unwrap();
        replies.lock().unwrap().recv().unwrap();
    });
    let memory = DyingMemory::new(fixture.memory.actor(1), store, Fate::Call(call));
    let victim = attach(memory, &fixture.world, 3).unwrap();
    // Empties a slab, which goes back to the page manager.
    let rest = held.split_off(NODES);
    free_nodes(&victim, &held).unwrap();
    victim.detach().unwrap();
    let met = victim.memory().stores() >= store;
    let mut nodes_now = rest;
    if met {
        nodes_now.extend(make_nodes(&first, NODES / 4, || ()).unwrap());
        word.send(()).unwrap();
        nodes_now.extend(nodes.lock().unwrap().recv().unwrap());
    }
    drop(word);
    let _ended = if met { them.join() } else { Ok(()) };
    let distinct: BTreeSet<Offset> = nodes_now.iter().map(|node| node.offset()).collect();
    assert_eq!(distinct.len(), nodes_now.len(), "allocated twice, at store {store}");
    fixture.check(&first, &nodes_now);
    met
}

#[test]
fn a_slab_that_is_given_back_is_not_given_to_two() {
    let stores = (1..).take_while(|&store| meanwhile(store)).count();
    assert!(stores > 50, "{stores}");
}

/// Another process, a thread of its own: it allocates and commits at each word from us.
fn busy_other(core: SimCore, words: &Receiver<()>, done: &Sender<Vec<Ptr<Node>>>) {
    become_actor(1);
    while words.recv().is_ok() {
        done.send(make_nodes(&core, NODES, || ()).unwrap()).unwrap();
    }
}

/// What the process does that dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Frees,
    /// In two slabs.
    Allocates,
}

/// Allocates nodes, and says so in a root.
fn allocate_nodes(core: &SimCore) -> Result<()> {
    core.run(|tx| {
        for _ in 0..NODES {
            let fresh = tx.alloc::<Node>()?;
            tx.seal(fresh);
        }
        tx.set(root(1), 1)
    })
}

/// How an operation went that was to die.
#[derive(Clone, Copy)]
struct Outcome {
    died: bool,
    committed: bool,
}

/// Before store number `store` of the operation, or of whoever recovers it, others allocate all
/// they can, and then the process dies, if there are that many stores.
fn dies_meanwhile(victim: Victim, store: u64, in_recovery: Option<u64>) -> Outcome {
    let fixture = fixture();
    let (first, second) = (fixture.process(1), fixture.process(2));
    let (word, words) = channel();
    let (done, nodes) = channel();
    let them = thread::spawn(move || busy_other(second, &words, &done));
    let mut held = Vec::new();
    for _ in 0..2 {
        word.send(()).unwrap();
        held.extend(nodes.recv().unwrap());
    }
    fixture.world.limit_space(fixture.world.space().0);
    let freed: Vec<_> = held.drain(..NODES).collect();
    if victim == Victim::Allocates {
        free_nodes(&first, &freed).unwrap();
        first.run(|tx| tx.set(root(1), 0)).unwrap();
    }
    let nodes = Arc::new(std::sync::Mutex::new((nodes, held)));
    let dying = |pid: u32, store: u64, others: bool| {
        let (world, told, nodes) = (fixture.world.clone(), word.clone(), Arc::clone(&nodes));
        let call = Box::new(move || {
            if others {
                told.send(()).unwrap();
                let mut nodes = nodes.lock().unwrap();
                let new = nodes.0.recv().unwrap();
                nodes.1.extend(new);
            }
            world.kill(pid);
        });
        DyingMemory::new(fixture.memory.actor(pid), store, Fate::Unwind(call))
    };
    let dies = |pid: u32, store: u64, others: bool, run: &dyn Fn(&SimCore) -> Result<()>| {
        let memory = dying(pid, store, others);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let core = attach(memory, &fixture.world, pid)?;
            run(&core)?;
            core.detach()
        }));
        done.map(Result::unwrap).is_err()
    };
    let mut died = dies(3, store, in_recovery.is_none(), &|core| match victim {
        Victim::Frees => free_nodes(core, &freed),
        Victim::Allocates => allocate_nodes(core),
    });
    if let Some(store) = in_recovery {
        died = died && dies(4, store, true, &|core| core.recover());
    }
    first.recover().unwrap();
    drop(word);
    them.join().unwrap();
    let mut now = nodes.lock().unwrap().1.clone();
    let committed = first.memory().load(root(1), Ordering::SeqCst) == 1;
    if victim == Victim::Frees && !committed {
        now.extend(freed);
    }
    let what = format!("allocated twice, death at store {store}, in recovery at {in_recovery:?}");
    assert_eq!(now.iter().map(|n| n.offset()).collect::<BTreeSet<_>>().len(), now.len(), "{what}");
    let unknown = if victim == Victim::Allocates && committed { NODES } else { 0 };
    fixture.check_but(&first, &now, unknown);
    Outcome { died, committed }
}

#[test]
fn what_a_death_leaves_does_not_touch_what_others_have_got_meanwhile() {
    for (victim, step) in [(Victim::Frees, 29), (Victim::Allocates, 41)] {
        let outcome = |store: u64| dies_meanwhile(victim, store, None);
        let stores = (1..).step_by(3).map(|store| (store, outcome(store)));
        let met: Vec<_> = stores.take_while(|(_, outcome)| outcome.died).collect();
        let count = 3 * met.len() as u64 - 2;
        assert!(count > 150, "{count}");
        // Nothing of the record has been applied when it dies at the first of the stores after the
        // commit.
        let (first, _) = met.into_iter().find(|(_, outcome)| outcome.committed).unwrap();
        let first = (first - 2..).find(|&store| outcome(store).committed).unwrap();
        for store in std::iter::once(first).chain((count / 2..=count).step_by(step)) {
            let dies = |next: u64| dies_meanwhile(victim, store, Some(next)).died;
            let recovery = (1..).take_while(|&next| dies(next)).count();
            assert!(recovery > 3, "{recovery}");
        }
    }
}

/// Lanes of the region.
const LANES: u64 = shape().lanes as u64;

fn lane_of(tx: &SimTx<'_>) -> u64 {
    tx.number() >> 48
}

/// A process, a thread of its own, that allocates at a word from us, on lane `lane` if that is free
/// then, and commits at the next word.
fn on_lane(core: SimCore, lane: u64, words: &Receiver<()>, done: &Sender<Vec<Ptr<Node>>>) {
    become_actor(1);
    // The one before is taken: who looks for a free lane begins where it was last.
    let before = (lane + LANES - 1) % LANES;
    let mut held = core.begin().unwrap();
    if lane_of(&held) != before {
        held = core.begin().unwrap();
    }
    assert_eq!(lane_of(&held), before);
    done.send(Vec::new()).unwrap();
    words.recv().unwrap();
    let nodes = make_nodes(&core, 3, || {
        done.send(Vec::new()).unwrap();
        words.recv().unwrap();
    });
    done.send(nodes.unwrap()).unwrap();
}

/// Whether whoever recovers a dead process's lane has that many stores. Before that one, somebody
/// else allocates, on that lane if it is free again, and commits after the recoverer has allocated
/// too. The dead had once given back the slab that it had leased again.
fn recovered_meanwhile(store: u64) -> bool {
    let fixture = fixture();
    let victim = fixture.process(3);
    let other = fixture.process(1);
    let given = make_nodes(&victim, SLAB + 1, || ()).unwrap();
    free_nodes(&victim, &given[..SLAB]).unwrap();
    // Pages are taken in turn: the third slab from here on is the one that was given back.
    let mut nodes = make_nodes(&victim, 2 * SLAB, || ()).unwrap();
    assert_eq!(nodes.last().map(|node| node.offset()), Some(given[0].offset()));
    nodes.push(given[SLAB]);
    let open = ManuallyDrop::new(victim.begin().unwrap());
    let lane = lane_of(&open);
    fixture.world.kill(3);
    let (word, words) = channel();
    let (done, replies) = channel();
    let them = thread::spawn(move || on_lane(other, lane, &words, &done));
    replies.recv().unwrap();
    let replies = Arc::new(std::sync::Mutex::new(replies));
    let (told, heard) = (word.clone(), Arc::clone(&replies));
    let call = Box::new(move || {
        // Nobody listens when it parts in the end.
        if told.send(()).is_ok() {
            heard.lock().unwrap().recv().unwrap();
        }
    });
    let memory = DyingMemory::new(fixture.memory.actor(0), store, Fate::Call(call));
    let recoverer = attach(memory, &fixture.world, 4).unwrap();
    recoverer.recover().unwrap();
    let met = recoverer.memory().stores() >= store;
    if !met {
        word.send(()).unwrap();
        replies.lock().unwrap().recv().unwrap();
    }
    let maker = fixture.process(5);
    nodes.extend(make_nodes(&maker, 3, || ()).unwrap());
    word.send(()).unwrap();
    nodes.extend(replies.lock().unwrap().recv().unwrap());
    them.join().unwrap();
    let distinct: BTreeSet<Offset> = nodes.iter().map(|node| node.offset()).collect();
    assert_eq!(distinct.len(), nodes.len(), "allocated twice, at store {store}");
    fixture.check(&maker, &nodes);
    met
}

#[test]
fn a_lane_is_left_when_nothing_of_the_dead_is_left_to_end() {
    let stores = (1..).take_while(|&store| recovered_meanwhile(store)).count();
    assert!(stores > 5, "{stores}");
}
