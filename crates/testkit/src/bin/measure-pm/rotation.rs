//! How wear spreads: which pages serve when one page is allocated and freed again and again
//! (SIMFS 4.1: what was freed last is used last).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};
use conquest_pm::memory::Memory;
use conquest_pm::persist::Request;
use conquest_pm::{Region, Result};
use conquest_testkit::Rng;

use crate::Plan;
use crate::arena::{Arena, PAGES, text};
use crate::report::{Report, named};

/// Groups of the region: 8 MiB.
const GROUPS: u64 = 4;
/// Times that the pages of a group are used in the long run.
const TIMES: u64 = 100;

/// Allocates a run of so many pages and frees it again; where it was.
fn use_run(core: &Region, pages: u64) -> Result<Offset> {
    let at = core.run(|tx| {
        let run = tx.alloc_run(PAGES, pages, None)?;
        Ok(tx.finish_run(run))
    })?;
    core.run(|tx| tx.free_run(at, pages, PAGES))?;
    Ok(at)
}

/// What repeated use of one run does.
struct Wear {
    /// Different runs used before one was used again.
    before_reuse: u64,
    /// Uses of each run that was used, by its first page.
    uses: HashMap<u64, u64>,
}

impl Wear {
    fn of(core: &Region, pages: u64, times: u64) -> Result<Wear> {
        let mut wear = Wear { before_reuse: 0, uses: HashMap::new() };
        for turn in 0..times {
            let at = use_run(core, pages)?;
            let uses = wear.uses.entry(at.bytes() / PAGE).or_default();
            *uses += 1;
            if *uses == 2 && wear.before_reuse == 0 {
                wear.before_reuse = turn;
            }
        }
        if wear.before_reuse == 0 {
            wear.before_reuse = times;
        }
        Ok(wear)
    }

    fn most(&self) -> u64 {
        self.uses.values().copied().max().unwrap_or(0)
    }

    fn tell(&self, name: &str, free: u64, report: &mut Report) {
        let total: u64 = self.uses.values().sum();
        let mean = total as f64 / free as f64;
        report.say(&format!(
            "{name}: {total} uses; {} of {free} used before the first was used again, {} in all; \
             most used {} times, mean {mean:.1}, ratio {:.2}",
            self.before_reuse,
            self.uses.len(),
            self.most(),
            self.most() as f64 / mean
        ));
        let entry = named([
            ("uses", total.into()),
            ("free", free.into()),
            ("used before the first was used again", self.before_reuse.into()),
            ("used in all", (self.uses.len() as u64).into()),
            ("most uses of one", self.most().into()),
            ("mean uses", mean.into()),
        ]);
        report.keep(name, entry);
    }
}

/// A region where a third of the pages is free, in holes of one page up.
fn holed(seed: u64) -> std::result::Result<Arc<Region>, String> {
    let core = Arena::new(GROUPS, GROUPS)?.attach(Request::ByMedium)?;
    let mut pages = Vec::new();
    for _ in 0..GROUPS * GROUP_PAGES {
        let at = core.run(|tx| {
            let run = tx.alloc_run(PAGES, 1, None)?;
            Ok(tx.finish_run(run))
        });
        pages.push(at.map_err(text)?);
    }
    let mut rng = Rng::stream(seed, 3);
    for at in pages {
        if rng.chance(1, 3) {
            core.run(|tx| tx.free_run(at, 1, PAGES)).map_err(text)?;
        }
    }
    Ok(core)
}

/// Free pages of the group that the page at `at` is in.
fn free_beside(core: &Region, at: Offset) -> u64 {
    let group = core.geometry().page_of(at).unwrap_or(0) / GROUP_PAGES;
    let word = |word: u64| core.geometry().bitmap(group).plus(word * WORD);
    let load = |index| core.memory().load(word(index), Ordering::Acquire);
    (0..GROUP_PAGES / 64).map(|index| u64::from(load(index).count_zeros())).sum()
}

/// Runs the experiment.
pub(crate) fn run(plan: &Plan, report: &mut Report) -> std::result::Result<(), String> {
    let empty = Arena::new(GROUPS, GROUPS)?.attach(Request::ByMedium)?;
    let wear = Wear::of(&empty, 1, GROUP_PAGES * TIMES).map_err(text)?;
    wear.tell("pages of an empty group", GROUP_PAGES, report);
    let because = format!("{} pages were used before one was used again", wear.before_reuse);
    let target = "no page of the leased group is used again before every one was used";
    report.judge(target, wear.before_reuse >= GROUP_PAGES, &because);

    let long = Arena::new(GROUPS, GROUPS)?.attach(Request::ByMedium)?;
    let runs = GROUP_PAGES / 16;
    let wear = Wear::of(&long, 16, runs * TIMES).map_err(text)?;
    wear.tell("runs of 16 pages in an empty group", runs, report);

    let core = holed(plan.seed)?;
    let free = free_beside(&core, use_run(&core, 1).map_err(text)?);
    let wear = Wear::of(&core, 1, free * TIMES).map_err(text)?;
    wear.tell("pages of a group full of holes", free, report);
    let because =
        format!("{} of {free} free pages were used before one was again", wear.before_reuse);
    let target = "nor where the group is full of holes";
    report.judge(target, wear.before_reuse >= free, &because);
    Ok(())
}
