//! Death at every store: of an operation, of its recovery; and a stop at every store.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use conquest_access::Removal;
use conquest_format::geometry::Shape;
use conquest_fs::FileId;
use conquest_fs::content::WriteAt;
use conquest_fs::names::{New, Renaming};
use conquest_testkit::Fate;
use conquest_testkit::files::{
    FILLERS, ON_FULL, OPERATIONS, Op, content, describe, fill, prepare, root_user,
};
use conquest_testkit::judge::judge_attached;

use crate::arena::{Files, SHAPE, attach, attach_safely, template};
use crate::kill::crew::share;
use crate::kill::limit::{LIMIT, Watchdog};
use crate::kill::region::{Copy, Template};
use crate::kill::tally::Tally;
use crate::kill::{death, stop};
use crate::os::child::{Child, End};
use crate::os::memory::Shared;

/// An operation to die in.
pub(crate) struct Case {
    op: Op,
    template: Rc<Template>,
    /// Whether the store is full.
    is_full: bool,
    /// The tree before and after it.
    trees: [String; 2],
    /// Stores from the first of attaching to the last of detaching.
    stores: u64,
}

/// What is seen first of the file that others make while the victim is stopped.
const MADE_MEANWHILE: &str = "/o/1 100644 1 0 0 ";

/// What others do with what it leaves.
const LATER: [Op; 8] = [
    // If it is full.
    Op::Unlink(FILLERS[0]),
    Op::Unlink(FILLERS[1]),
    Op::Make("z"),
    Op::Rename("a", "zz", Renaming::Replace),
    Op::MakeDirectory("d/z"),
    Op::Unlink("e/f"),
    Op::Rename("d", "e/zd", Renaming::Replace),
    Op::RemoveDirectory("m"),
];

/// One case for each operation, and for each on a full store.
pub(crate) fn cases() -> Result<Vec<Case>, String> {
    let usual = Rc::new(template(SHAPE, prepare)?);
    let small = Shape { max_groups: 1, ..SHAPE };
    let full = Rc::new(template(small, |files| prepare(files).and_then(|()| fill(files)))?);
    let case = |&op: &Op, is_full: bool| {
        let template = Rc::clone(if is_full { &full } else { &usual });
        let mut case = Case { op, template, is_full, trees: Default::default(), stores: 0 };
        case.look().map_err(|error| format!("{op:?}, alive: {error}"))?;
        Ok(case)
    };
    let usual = OPERATIONS.iter().map(|op| case(op, false));
    usual.chain(ON_FULL.iter().map(|op| case(op, true))).collect()
}

impl Case {
    /// Finds out what the operation does if nothing happens to it.
    fn look(&mut self) -> Result<(), String> {
        let _watchdog = Watchdog::start();
        let region = self.template.copy()?;
        let stores = Shared::new()?;
        let files = attach_safely(&region)?;
        let before = describe(&files)?;
        let mut child = Child::fork(|| {
            stores[0].store(self.run(&region, 0, Fate::Live)?, Ordering::SeqCst);
            Ok(())
        })?;
        if child.wait_for(LIMIT)? != End::Exit(0) {
            return Err("the process ended otherwise".into());
        }
        self.stores = stores[0].load(Ordering::SeqCst);
        self.trees = [before, describe(&files)?];
        Ok(())
    }

    /// Every `step`-th store from the first, and one more: before that one, nothing happens.
    fn every(&self, step: u64) -> Vec<u64> {
        (1..=self.stores + step).step_by(step as usize).collect()
    }

    /// The victim's life; its stores.
    fn run(&self, region: &Copy, store: u64, fate: Fate) -> Result<u64, String> {
        let files = attach(region, store, fate)?;
        self.op.perform(&files).map_err(|error| error.to_string())?;
        files.core().detach().map_err(|error| error.to_string())?;
        Ok(files.core().memory().stores())
    }

    fn victim(&self, region: &Copy, store: u64, fate: Fate) -> Result<Child, String> {
        Child::fork(|| self.run(region, store, fate).map(drop))
    }

    /// Checks what is there after the victim's end: the tree before, unless it has finished, or the
    /// tree after; and that others can go on.
    fn judge(&self, files: &Files, finished: bool) -> Result<(), String> {
        judge_attached(files.core()).map_err(|what| format!("before recovery: {what}"))?;
        let text = |error: conquest_pm::Error| format!("recovery: {error}");
        files.core().recover().map_err(text)?;
        let lines = describe(files)?;
        let others = |line: &&str| !line.starts_with(MADE_MEANWHILE);
        let tree: String = lines.split_inclusive('\n').filter(others).collect();
        let [before, after] = &self.trees;
        if tree != *after && (finished || tree != *before) {
            return Err(format!("is neither before nor after:\n{tree}"));
        }
        for op in LATER {
            op.perform(files).map_err(|error| format!("{op:?}: {error}"))?;
        }
        describe(files)?;
        judge_attached(files.core()).map(drop)
    }
}

/// Dies at every `step`-th store of each operation, attaching and detaching included.
pub(crate) fn death_at_every_store(tally: &Tally, workers: usize, cases: &[Case], step: u64) {
    for case in cases {
        let what = format!("{:?}: death at store", case.op);
        share(tally, workers, &what, &case.every(step), |store| {
            die_once(case, store)?;
            tally.pass();
            Ok(())
        });
    }
    let stores: u64 = cases.iter().map(|case| case.stores).sum();
    println!("{} operations, {stores} stores", cases.len());
}

fn die_once(case: &Case, store: u64) -> Result<(), String> {
    let _watchdog = Watchdog::start();
    let region = case.template.copy()?;
    let files = attach_safely(&region)?;
    let end = case.victim(&region, store, death())?.wait_for(LIMIT)?;
    let died = ended_by(end, libc::SIGKILL)?;
    expect(store <= case.stores, died)?;
    case.judge(&files, !died)
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
    let before = tally.passed();
    for case in cases {
        let what = format!("{:?}: death in recovery after death at store", case.op);
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
    }
    println!("{} deaths in recovery, every {step} stores", tally.passed() - before);
}

/// Whether the second process died: its recovery has that many stores.
fn die_twice(case: &Case, store: u64, second: u64) -> Result<bool, String> {
    let _watchdog = Watchdog::start();
    let region = case.template.copy()?;
    let files = attach_safely(&region)?;
    let end = case.victim(&region, store, death())?.wait_for(LIMIT)?;
    let died = ended_by(end, libc::SIGKILL)?;
    expect(store <= case.stores, died)?;
    let recoverer = Child::fork(|| {
        let files = attach(&region, second, death())?;
        files.core().recover().map_err(|error| error.to_string())?;
        files.core().detach().map_err(|error| error.to_string())
    });
    let again = ended_by(recoverer?.wait_for(LIMIT)?, libc::SIGKILL)?;
    case.judge(&files, !died)?;
    Ok(again)
}

/// Stops at every `step`-th store of each operation; others go on; after `SIGCONT` all is well.
pub(crate) fn stop_at_every_store(tally: &Tally, workers: usize, cases: &[Case], step: u64) {
    for case in cases {
        let what = format!("{:?}: stop at store", case.op);
        share(tally, workers, &what, &case.every(step), |store| {
            stop_once(case, store)?;
            tally.pass();
            Ok(())
        });
    }
}

fn stop_once(case: &Case, store: u64) -> Result<(), String> {
    let _watchdog = Watchdog::start();
    let text = |error: conquest_fs::Error| error.to_string();
    let region = case.template.copy()?;
    let files = attach_safely(&region)?;
    // Found before: the root directory may be in the victim's hands.
    let who = &root_user();
    let find = |directory, name: &[u8]| -> Result<FileId, String> {
        let found = files.lookup(who, directory, name).map_err(text)?;
        found.map(|(file, _)| file).ok_or_else(|| "there is no other directory".into())
    };
    let elsewhere = find(files.root(), b"o")?;
    let file = find(elsewhere, b"f")?;
    let mut victim = case.victim(&region, store, stop())?;
    let stopped = match victim.wait_for(LIMIT)? {
        End::Stopped => true,
        End::Exit(0) => false,
        other => return Err(format!("the process ended otherwise: {other:?}")),
    };
    expect(store <= case.stores, stopped)?;
    if stopped {
        // If it does not, the watchdog ends it all.
        files.link(who, file, elsewhere, b"2").map_err(text)?;
        let how = Renaming::NoReplace;
        files.rename(who, elsewhere, b"2", elsewhere, b"3", how).map_err(text)?;
        files.remove(who, elsewhere, b"3", Removal::File).map_err(text)?;
        // What it has already.
        files.write(who, file, WriteAt::Offset(0), &content(0, 3000)).map_err(text)?;
        // Its number may be that of a file that the victim has removed, whose lock it still has: so
        // it can be made, but not changed before the victim goes on.
        if !case.is_full {
            files.create(who, elsewhere, b"1", New::Regular, 0o644).map_err(text)?;
        }
        victim.signal(libc::SIGCONT);
        ended_by(victim.wait_for(LIMIT)?, 0)?;
    }
    case.judge(&files, true)
}
