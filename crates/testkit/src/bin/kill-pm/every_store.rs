//! Death at every store: of an operation, of its recovery; and a stop at every store.

use conquest_testkit::shelf::Op;

use crate::case::{Case, OTHER, VICTIM, push};
use crate::kill::crew::share;
use crate::kill::limit::{LIMIT, Watchdog};
use crate::kill::tally::Tally;
use crate::kill::{death, stop};
use crate::os::child::{Child, End};

/// Dies at every `step`-th store of each operation, attaching and detaching included.
pub(crate) fn death_at_every_store(tally: &Tally, workers: usize, cases: &[Case], step: u64) {
    for case in cases {
        let what = format!("{}: death at store", case.name);
        let stores = case.every(step);
        share(tally, workers, &what, &stores, |store| {
            die_once(case, store)?;
            tally.pass();
            Ok(())
        });
        println!("{}: up to {} stores", case.name, stores.last().unwrap_or(&0));
    }
}

fn die_once(case: &Case, store: u64) -> Result<(), String> {
    let _watchdog = Watchdog::start();
    let (arena, core) = case.prepare()?;
    let end = case.victim(&arena, store, death())?.wait_for(LIMIT)?;
    expect(store <= case.stores, ended_by(end, libc::SIGKILL)?)?;
    // Others meet what it left: the same lists, the same lanes.
    arena.perform(&core, OTHER, push(0, 77, 1))?;
    arena.perform(&core, OTHER, Op::Move { from: 0, to: 1 })?;
    arena.examine(&core, &[VICTIM])?;
    Ok(())
}

fn ended_by(end: End, signal: i32) -> Result<bool, String> {
    match end {
        End::Exit(0) => Ok(false),
        End::Signal(found) if found == signal => Ok(true),
        other => Err(format!("the process ended otherwise: {other:?}")),
    }
}

/// The number of stores is the same every time, so none is left out.
fn expect(there_is_such_a_store: bool, met: bool) -> Result<(), String> {
    match (there_is_such_a_store, met) {
        (true, false) => Err("the process made fewer stores than before".into()),
        (false, true) => Err("the process made more stores than before".into()),
        _ => Ok(()),
    }
}

/// Dies at every `step`-th store of each operation, and whoever recovers it at every `step`-th
/// store of the recovery.
pub(crate) fn death_in_recovery(tally: &Tally, workers: usize, cases: &[Case], step: u64) {
    for case in cases {
        let before = tally.passed();
        let step = step * case.stride;
        let what = format!("{}: death in recovery after death at store", case.name);
        share(tally, workers, &what, &case.every(step), |store| {
            let mut second = 1;
            loop {
                let again = die_twice(case, store, second)
                    .map_err(|error| format!("then death at store {second}: {error}"))?;
                tally.pass();
                if !again {
                    return Ok(());
                }
                second += step;
            }
        });
        let pairs = tally.passed() - before;
        println!("{}: {pairs} deaths in recovery, every {step} stores", case.name);
    }
}

/// Whether the second process died: its recovery has that many stores.
fn die_twice(case: &Case, store: u64, second: u64) -> Result<bool, String> {
    let _watchdog = Watchdog::start();
    let (arena, core) = case.prepare()?;
    let end = case.victim(&arena, store, death())?.wait_for(LIMIT)?;
    expect(store <= case.stores, ended_by(end, libc::SIGKILL)?)?;
    let recoverer = Child::fork(|| {
        let core = arena.attach(second, death())?;
        core.recover().map_err(|error| error.to_string())?;
        core.detach().map_err(|error| error.to_string())
    });
    let again = ended_by(recoverer?.wait_for(LIMIT)?, libc::SIGKILL)?;
    arena.perform(&core, OTHER, push(0, 77, 1))?;
    arena.examine(&core, &[VICTIM])?;
    Ok(again)
}

/// Stops at every `step`-th store of each operation; others go on; after `SIGCONT` all is well.
pub(crate) fn stop_at_every_store(tally: &Tally, workers: usize, cases: &[Case], step: u64) {
    for case in cases.iter().filter(|case| !case.others.is_empty()) {
        let what = format!("{}: stop at store", case.name);
        share(tally, workers, &what, &case.every(step), |store| {
            stop_once(case, store)?;
            tally.pass();
            Ok(())
        });
    }
}

fn stop_once(case: &Case, store: u64) -> Result<(), String> {
    let _watchdog = Watchdog::start();
    let (arena, core) = case.prepare()?;
    let mut victim = case.victim(&arena, store, stop())?;
    let stopped = match victim.wait_for(LIMIT)? {
        End::Stopped => true,
        End::Exit(0) => false,
        other => return Err(format!("the process ended otherwise: {other:?}")),
    };
    expect(store <= case.stores, stopped)?;
    if stopped {
        // If it does not, the watchdog ends it all.
        for &op in &case.others {
            arena.perform(&core, OTHER, op)?;
        }
        victim.signal(libc::SIGCONT);
        ended_by(victim.wait_for(LIMIT)?, 0)?;
    }
    arena.examine(&core, &[])?;
    Ok(())
}
