//! Death at every store: of an operation, of its recovery; and a stop at every store.

use conquest_testkit::shelf::Op;

use crate::arena::{Arena, View, death, stop};
use crate::process::{Child, End, watchdog};
use crate::tally::Tally;

/// Actor of the process that dies.
const VICTIM: u32 = 1;
/// Actor of the process that goes on.
const OTHER: u32 = 2;

/// An operation to die in, on a shelf that these others have prepared.
pub(crate) struct Case {
    name: &'static str,
    before: Vec<Op>,
    op: Op,
    /// Groups with space; one makes the operation grow the region.
    groups: u64,
    /// What others do meanwhile, without the locks that the operation holds.
    others: Vec<Op>,
    /// Of its pairs of a store and one of the recovery, each so manieth of both is tried: 1, except
    /// for operations of very many stores.
    stride: u64,
}

fn push(list: u32, id: u64, pages: u64) -> Op {
    Op::Push { list, id, pages }
}

/// One case for each operation.
pub(crate) fn cases() -> Vec<Case> {
    let three = || vec![push(0, 1, 0), push(0, 2, 2), push(0, 3, 1), push(1, 4, 3)];
    let others = || vec![push(2, 50, 1), Op::Touch { list: 2 }, Op::Pop { list: 2 }];
    let case = |name, before, op| Case { name, before, op, groups: 4, others: others(), stride: 1 };
    vec![
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
            name: "push that grows",
            before: vec![push(0, 1, 400)],
            op: push(0, 9, 400),
            groups: 1,
            others: Vec::new(),
            stride: 3,
        },
    ]
}

impl Case {
    /// An arena with the prepared shelf, and a process attached to it.
    fn prepare(&self) -> Result<(Arena, View), String> {
        let arena = Arena::new(self.groups)?;
        let core = arena.attach_safely()?;
        for &op in &self.before {
            arena.perform(&core, OTHER, op)?;
        }
        Ok((arena, core))
    }

    /// Runs the operation in a process of its own that meets `fate` before store `store`.
    fn victim(
        &self,
        arena: &Arena,
        store: u64,
        fate: conquest_testkit::Fate,
    ) -> Result<Child, String> {
        Child::fork(|| {
            let core = arena.attach(store, fate)?;
            arena.perform(&core, VICTIM, self.op)?;
            core.detach().map_err(|error| error.to_string())
        })
    }

    fn explain(&self, what: &str, store: u64, error: &str) -> String {
        format!("{}: {what} at store {store}: {error}", self.name)
    }
}

/// Dies at every `step`-th store of each operation, attaching and detaching included.
pub(crate) fn death_at_every_store(tally: &mut Tally, step: u64) {
    for case in cases() {
        let mut store = 1;
        while let Some(alive) = tally
            .count(|| die_once(&case, store).map_err(|error| case.explain("death", store, &error)))
        {
            if !alive {
                break;
            }
            store += step;
        }
        tally.note(format!("{}: up to {store} stores", case.name));
    }
}

/// Whether the process died: there are that many stores.
fn die_once(case: &Case, store: u64) -> Result<bool, String> {
    watchdog();
    let (arena, core) = case.prepare()?;
    let end = case.victim(&arena, store, death())?.wait()?;
    let died = ended_by(end, libc::SIGKILL)?;
    // Others meet what it left: the same lists, the same lanes.
    arena.perform(&core, OTHER, push(0, 77, 1))?;
    arena.perform(&core, OTHER, Op::Move { from: 0, to: 1 })?;
    arena.examine(&core, &[VICTIM])?;
    Ok(died)
}

fn ended_by(end: End, signal: i32) -> Result<bool, String> {
    match end {
        End::Exit(0) => Ok(false),
        End::Signal(found) if found == signal => Ok(true),
        other => Err(format!("the process ended otherwise: {other:?}")),
    }
}

/// Dies at every `step`-th store of each operation, and whoever recovers it at every `step`-th
/// store of the recovery.
pub(crate) fn death_in_recovery(tally: &mut Tally, step: u64) {
    for case in cases() {
        let step = step * case.stride;
        let mut pairs = 0;
        let mut store = 1;
        loop {
            let mut died = true;
            let mut second = 1;
            while let Some(again) = tally.count(|| {
                die_twice(&case, store, second, &mut died).map_err(|error| {
                    case.explain(&format!("death, then death at store {second},"), store, &error)
                })
            }) {
                pairs += 1;
                if !again {
                    break;
                }
                second += step;
            }
            if !died {
                break;
            }
            store += step;
        }
        tally.note(format!("{}: {pairs} deaths in recovery, every {step} stores", case.name));
    }
}

fn die_twice(case: &Case, store: u64, second: u64, died: &mut bool) -> Result<bool, String> {
    watchdog();
    let (arena, core) = case.prepare()?;
    let end = case.victim(&arena, store, death())?.wait()?;
    *died = ended_by(end, libc::SIGKILL)?;
    let recoverer = Child::fork(|| {
        let core = arena.attach(second, death())?;
        core.recover().map_err(|error| error.to_string())?;
        core.detach().map_err(|error| error.to_string())
    });
    let again = ended_by(recoverer?.wait()?, libc::SIGKILL)?;
    arena.perform(&core, OTHER, push(0, 77, 1))?;
    arena.examine(&core, &[VICTIM])?;
    Ok(again)
}

/// Stops at every `step`-th store of each operation; others go on; after `SIGCONT` all is well.
pub(crate) fn stop_at_every_store(tally: &mut Tally, step: u64) {
    for case in cases().into_iter().filter(|case| !case.others.is_empty()) {
        let mut store = 1;
        while let Some(stopped) = tally
            .count(|| stop_once(&case, store).map_err(|error| case.explain("stop", store, &error)))
        {
            if !stopped {
                break;
            }
            store += step;
        }
    }
}

fn stop_once(case: &Case, store: u64) -> Result<bool, String> {
    watchdog();
    let (arena, core) = case.prepare()?;
    let mut victim = case.victim(&arena, store, stop())?;
    let stopped = match victim.wait()? {
        End::Stopped => true,
        End::Exit(0) => false,
        other => return Err(format!("the process ended otherwise: {other:?}")),
    };
    if stopped {
        // If it does not, the watchdog ends it all.
        for &op in &case.others {
            arena.perform(&core, OTHER, op)?;
        }
        victim.signal(libc::SIGCONT);
        ended_by(victim.wait()?, 0)?;
    }
    arena.examine(&core, &[])?;
    Ok(stopped)
}
