//! How long attaching takes, from opening the file to the end of the first transaction: it must
//! not depend on the region's size, nor on how it was left.

use std::time::Instant;

use conquest_format::Offset;
use conquest_pm::persist::Request;
use conquest_pm::{Mode, Region};

use crate::Plan;
use crate::arena::{Arena, PAGES, lock, root, text};
use crate::os::child::{Child, End, signal_self};
use crate::report::{Report, named};
use crate::stats::{Summary, summary};

/// Groups of the small and of the large region: 16 MiB and 16 GiB.
const SMALL: u64 = 8;
const LARGE: u64 = 8192;
/// How many times as long as the shortest the longest may take.
const TARGET: f64 = 2.0;

/// What the first transaction does.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// Stores to a root.
    Store,
    /// Allocates runs of one page and of sixteen, so that a group has to be found for each.
    Allocation,
}

/// Whether everybody had detached before.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    Clean,
    ByCrash,
}

fn transact(core: &Region, first: First) -> conquest_pm::Result<Option<[Offset; 2]>> {
    core.run(|tx| {
        tx.lock(lock(0, 0), Mode::Exclusive)?;
        let mut runs = None;
        if first == First::Allocation {
            let (one, many) = (tx.alloc_run(PAGES, 1, None)?, tx.alloc_run(PAGES, 16, None)?);
            runs = Some([tx.finish_run(one), tx.finish_run(many)]);
        }
        tx.set(root(0, 0), 1)?;
        Ok(runs)
    })
}

/// Attaches in a child that is killed in the middle of a transaction.
fn crash(arena: &Arena) -> Result<(), String> {
    let mut child = Child::fork(|| {
        let core = arena.attach(Request::ByMedium)?;
        transact(&core, First::Store).map_err(text)?;
        let mut tx = core.begin().map_err(text)?;
        tx.lock(lock(0, 0), Mode::Exclusive).map_err(text)?;
        tx.set(root(0, 1), 1).map_err(text)?;
        signal_self(libc::SIGKILL);
        Err("survived".into())
    })?;
    if child.wait()? == End::Signal(libc::SIGKILL) { Ok(()) } else { Err("no crash".into()) }
}

fn measure(arena: &Arena, left: Left, first: First, times: u64) -> Result<Summary, String> {
    let mut values = Vec::new();
    for turn in 0..=times {
        if left == Left::ByCrash {
            crash(arena)?;
        }
        let since = Instant::now();
        let core = arena.attach(Request::ByMedium)?;
        let runs = transact(&core, first).map_err(text)?;
        let elapsed = since.elapsed().as_nanos() as f64 / 1000.0;
        if let Some([one, many]) = runs {
            let free = core.run(|tx| {
                tx.free_run(one, 1, PAGES)?;
                tx.free_run(many, 16, PAGES)
            });
            free.map_err(text)?;
        }
        // The first time pages of the file itself are made.
        if turn > 0 {
            values.push(elapsed);
        }
    }
    Ok(summary(&values))
}

/// Runs the experiment.
pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let times = if plan.quick { 20 } else { 200 };
    report.say("microseconds from opening to the end of the first transaction: median (least)");
    let mut verdicts = Vec::new();
    for first in [First::Store, First::Allocation] {
        let mut medians = Vec::new();
        for (size, groups, grown) in [
            ("16 MiB", SMALL, false),
            ("16 MiB, grown", SMALL, true),
            ("16 GiB", LARGE, false),
            ("16 GiB, grown", LARGE, true),
        ] {
            let arena = Arena::new(groups, 1)?;
            if grown {
                arena.grow_sparsely()?;
            }
            for (left, how) in [(Left::Clean, "clean"), (Left::ByCrash, "after a crash")] {
                let found = measure(&arena, left, first, times)?;
                let what = if first == First::Store { "a store" } else { "an allocation" };
                let name = format!("{size}, {how}, first {what}");
                report.say(&format!("{name:<48} {:>8.1} ({:.1})", found.median, found.min));
                let entry = named([
                    ("median us", found.median.into()),
                    ("least us", found.min.into()),
                    ("95 % quantile us", found.high.into()),
                    ("times", (found.count as u64).into()),
                ]);
                report.keep(&name, entry);
                medians.push((left, found.median));
            }
        }
        for left in [Left::Clean, Left::ByCrash] {
            let of = medians.iter().filter(|(how, _)| *how == left).map(|(_, median)| *median);
            let (least, most) = of.fold((f64::INFINITY, 0.0_f64), |(least, most), median| {
                (least.min(median), most.max(median))
            });
            verdicts.push((first, left, most / least));
        }
    }
    for (first, left, ratio) in verdicts {
        let what = if first == First::Store { "a store" } else { "an allocation" };
        let how = if left == Left::Clean { "clean" } else { "after a crash" };
        let target = format!("{how}, first {what}: all sizes within a factor of two");
        report.judge(&target, ratio <= TARGET, &format!("a factor of {ratio:.2}"));
    }
    Ok(())
}
