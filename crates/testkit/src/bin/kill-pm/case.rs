//! Operations to die in.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use conquest_testkit::Fate;
use conquest_testkit::shelf::Op;

use crate::arena::{Arena, View, template};
use crate::kill::limit::{LIMIT, Watchdog};
use crate::kill::region::Template;
use crate::os::child::{Child, End};
use crate::os::memory::Shared;

/// Actor of the process that dies.
pub(crate) const VICTIM: u32 = 1;
/// Actor of the process that goes on.
pub(crate) const OTHER: u32 = 2;

/// An operation to die in, on a shelf that these others have prepared.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    before: Vec<Op>,
    op: Op,
    /// One with a single group makes the operation grow the region.
    template: Rc<Template>,
    /// What others do meanwhile, without the locks that the operation holds.
    pub(crate) others: Vec<Op>,
    /// Of its pairs of a store and one of the recovery, each so manieth of both is tried: 1, except
    /// for operations of very many stores.
    pub(crate) stride: u64,
    /// Stores from the first of attaching to the last of detaching.
    pub(crate) stores: u64,
}

pub(crate) fn push(list: u32, id: u64, pages: u64) -> Op {
    Op::Push { list, id, pages }
}

/// One case for each operation.
pub(crate) fn cases() -> Result<Vec<Case>, String> {
    let (wide, narrow) = (Rc::new(template(4)?), Rc::new(template(1)?));
    let three = || vec![push(0, 1, 0), push(0, 2, 2), push(0, 3, 1), push(1, 4, 3)];
    let others = || vec![push(2, 50, 1), Op::Touch { list: 2 }, Op::Pop { list: 2 }];
    let case = |name, before, op| {
        let template = Rc::clone(&wide);
        Case { name, before, op, template, others: others(), stride: 1, stores: 0 }
    };
    let mut cases = vec![
        case("push", Vec::new(), push(0, 9, 0)),
        case("push again", three(), push(0, 9, 0)),
        case("push with pages", three(), push(0, 9, 70)),
        Case {
            stride: 7,
            ..case("push many", three(), Op::PushMany { list: 0, id: 9, count: 3, pages: 300 })
        },
        case("pop", three(), Op::Pop { list: 0 }),
        case("pop the last", vec![push(0, 1, 1)], Op::Pop { list: 0 }),
        case("move", three(), Op::Move { from: 0, to: 1 }),
        case("touch", three(), Op::Touch { list: 0 }),
        case("clear", three(), Op::Clear { list: 0 }),
        Case {
            template: narrow,
            others: Vec::new(),
            stride: 3,
            ..case("push that grows", vec![push(0, 1, 400)], push(0, 9, 400))
        },
    ];
    for case in &mut cases {
        case.stores = case.count().map_err(|error| format!("{}: alive: {error}", case.name))?;
    }
    Ok(cases)
}

impl Case {
    /// Stores of a victim that nothing happens to.
    fn count(&self) -> Result<u64, String> {
        let _watchdog = Watchdog::start();
        let stores = Shared::new()?;
        let (arena, _core) = self.prepare()?;
        let mut child = Child::fork(|| {
            stores[0].store(self.run(&arena, 0, Fate::Live)?, Ordering::SeqCst);
            Ok(())
        })?;
        match child.wait_for(LIMIT)? {
            End::Exit(0) => Ok(stores[0].load(Ordering::SeqCst)),
            other => Err(format!("the process ended otherwise: {other:?}")),
        }
    }

    /// Every `step`-th store from the first, and one more: before that one, nothing happens.
    pub(crate) fn every(&self, step: u64) -> Vec<u64> {
        (1..=self.stores + step).step_by(step as usize).collect()
    }

    /// An arena with the prepared shelf, and a process attached to it.
    pub(crate) fn prepare(&self) -> Result<(Arena, View), String> {
        let arena = Arena::new(&self.template)?;
        let core = arena.attach_safely()?;
        for &op in &self.before {
            arena.perform(&core, OTHER, op)?;
        }
        Ok((arena, core))
    }

    /// Runs the operation in a process of its own that meets `fate` before store `store`.
    pub(crate) fn victim(&self, arena: &Arena, store: u64, fate: Fate) -> Result<Child, String> {
        Child::fork(|| self.run(arena, store, fate).map(drop))
    }

    /// The victim's life; its stores.
    fn run(&self, arena: &Arena, store: u64, fate: Fate) -> Result<u64, String> {
        let core = arena.attach(store, fate)?;
        arena.perform(&core, VICTIM, self.op)?;
        core.detach().map_err(|error| error.to_string())?;
        Ok(core.memory().stores())
    }
}
