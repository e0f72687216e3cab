//! What single operations cost, with nobody else around: time, and what is done to memory.

use std::time::{Duration, Instant};

use conquest_format::Offset;
use conquest_pm::counting::Counts;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::persist::Request;
use conquest_pm::{Core, Mode, Object, Ptr, Region, Result};

use crate::Plan;
use crate::arena::{Arena, Large, Middle, PAGES, Small, lock, root, text};
use crate::os::processors;
use crate::report::{Report, Value, named};
use crate::stats::summary;
use crate::trace;

/// A batch is at least so long, so that reading the clock does not count.
const BATCH: Duration = Duration::from_millis(1);
/// Operations that are counted, after as many that are not.
const COUNTED: u64 = 1000;
/// Groups of the region: 64 MiB.
const GROUPS: u64 = 32;
/// Chunks of its log, if it has one: 16 MiB.
const LOG: u32 = 256;
/// Fences that a transaction may make when it has prepared no more than a small object.
const FENCES_MOST: f64 = 3.0;

/// An operation to measure.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Operation {
    /// Allocates an object and sets a root to it; frees it in a second transaction.
    Object(u64),
    /// Allocates a run of so many pages, filled with zeros, and sets a root to it; frees it in a
    /// second transaction.
    Run(u64),
    /// A transaction that changes nothing, with so many locks.
    Empty(u32),
    /// A transaction that stores to four roots under one lock.
    Stores,
    /// Reads four roots without a lock.
    Read,
}

const OPERATIONS: [Operation; 10] = [
    Operation::Object(64),
    Operation::Object(128),
    Operation::Object(192),
    Operation::Run(1),
    Operation::Run(16),
    Operation::Run(512),
    Operation::Empty(0),
    Operation::Empty(1),
    Operation::Stores,
    Operation::Read,
];

impl Operation {
    fn name(self) -> String {
        match self {
            Operation::Object(bytes) => format!("allocate, free {bytes} bytes"),
            Operation::Run(1) => "allocate, free 1 page".to_owned(),
            Operation::Run(pages) => format!("allocate, free {pages} pages"),
            Operation::Empty(0) => "empty commit".to_owned(),
            Operation::Empty(_) => "empty commit, one lock".to_owned(),
            Operation::Stores => "commit of 4 stores".to_owned(),
            Operation::Read => "read of 4 words".to_owned(),
        }
    }

    /// Transactions in one operation.
    fn transactions(self) -> f64 {
        match self {
            Operation::Object(_) | Operation::Run(_) => 2.0,
            Operation::Empty(_) | Operation::Stores => 1.0,
            Operation::Read => 0.0,
        }
    }

    /// Does it so many times.
    fn repeat<M: Memory, H: Host>(self, core: &Core<M, H>, times: u64) -> Result<()> {
        for _ in 0..times {
            match self {
                Operation::Object(64) => object::<Small, M, H>(core)?,
                Operation::Object(128) => object::<Middle, M, H>(core)?,
                Operation::Object(_) => object::<Large, M, H>(core)?,
                Operation::Run(pages) => run_of_pages(core, pages)?,
                Operation::Empty(locks) => empty(core, locks)?,
                Operation::Stores => stores(core)?,
                Operation::Read => {
                    std::hint::black_box(read(core)?);
                }
            }
        }
        Ok(())
    }
}

fn object<T: Object, M: Memory, H: Host>(core: &Core<M, H>) -> Result<()> {
    let mut tx = core.begin()?;
    tx.lock(lock(0, 0), Mode::Exclusive)?;
    let fresh = tx.alloc::<T>()?;
    tx.fill_word(&fresh, 0, 1)?;
    let made: Ptr<T> = tx.seal(fresh);
    tx.set(root(0, 0), made.word())?;
    tx.commit()?;
    let mut tx = core.begin()?;
    tx.lock(lock(0, 0), Mode::Exclusive)?;
    tx.set(root(0, 0), 0)?;
    tx.free(made)?;
    tx.commit()
}

fn run_of_pages<M: Memory, H: Host>(core: &Core<M, H>, pages: u64) -> Result<()> {
    let mut tx = core.begin()?;
    tx.lock(lock(0, 0), Mode::Exclusive)?;
    let fresh = tx.alloc_run(PAGES, pages, None)?;
    let made: Offset = tx.finish_run(fresh);
    tx.set(root(0, 0), made.bytes())?;
    tx.commit()?;
    let mut tx = core.begin()?;
    tx.lock(lock(0, 0), Mode::Exclusive)?;
    tx.set(root(0, 0), 0)?;
    tx.free_run(made, pages, PAGES)?;
    tx.commit()
}

fn empty<M: Memory, H: Host>(core: &Core<M, H>, locks: u32) -> Result<()> {
    let mut tx = core.begin()?;
    for number in 0..locks {
        tx.lock(lock(0, number), Mode::Exclusive)?;
    }
    tx.commit()
}

fn stores<M: Memory, H: Host>(core: &Core<M, H>) -> Result<()> {
    let mut tx = core.begin()?;
    tx.lock(lock(0, 0), Mode::Exclusive)?;
    for index in 0..4 {
        tx.set(root(0, index), index)?;
    }
    tx.commit()
}

fn read<M: Memory, H: Host>(core: &Core<M, H>) -> Result<u64> {
    core.read(lock(0, 0), |view| {
        Ok((0..4).fold(0, |sum: u64, index| sum.wrapping_add(view.word(root(0, index)))))
    })
}

/// Nanoseconds per operation, one value a batch.
fn time(
    plan: &Plan,
    operation: Operation,
    write_back: Request,
) -> std::result::Result<Vec<f64>, String> {
    let core = Arena::new(GROUPS, GROUPS)?.attach(write_back)?;
    time_on(plan, operation, &core)
}

/// The same on `core`.
fn time_on(
    plan: &Plan,
    operation: Operation,
    core: &Region,
) -> std::result::Result<Vec<f64>, String> {
    core.memory().populate(0..core.geometry().len()).map_err(text)?;
    let batches = if plan.quick { 30 } else { 300 };
    let mut times = 16;
    // Finds how many make a batch, and warms up.
    loop {
        let since = Instant::now();
        operation.repeat(core, times).map_err(text)?;
        if since.elapsed() >= BATCH * 2 {
            break;
        }
        times *= 2;
    }
    let mut values = Vec::with_capacity(batches);
    for _ in 0..batches {
        let since = Instant::now();
        operation.repeat(core, times).map_err(text)?;
        values.push(since.elapsed().as_nanos() as f64 / times as f64);
    }
    Ok(values)
}

fn count(operation: Operation) -> std::result::Result<Counts, String> {
    let core = Arena::new(GROUPS, GROUPS)?.attach_counted(Request::Always)?;
    operation.repeat(&core, COUNTED).map_err(text)?;
    core.memory().take();
    operation.repeat(&core, COUNTED).map_err(text)?;
    Ok(core.memory().take())
}

/// System calls in [`COUNTED`] operations.
fn count_calls(operation: Operation) -> std::result::Result<Option<u64>, String> {
    trace::system_calls(|| {
        let core = Arena::new(GROUPS, GROUPS)?.attach(Request::Always)?;
        operation.repeat(&core, COUNTED).map_err(text)?;
        Ok(move || operation.repeat(&core, COUNTED).map_err(text))
    })
}

fn kept(values: &[f64]) -> Value {
    let found = summary(values);
    named([
        ("median ns", found.median.into()),
        ("least ns", found.min.into()),
        ("5 % quantile ns", found.low.into()),
        ("95 % quantile ns", found.high.into()),
        ("batches", (found.count as u64).into()),
    ])
}

fn shown(values: &[f64]) -> String {
    let found = summary(values);
    format!("{:>9.0} {:>9.0} {:>9.0}-{:<9.0}", found.median, found.min, found.low, found.high)
}

/// Times `operation` on all media, and tells it.
fn tell_times(
    plan: &Plan,
    operation: Operation,
    report: &mut Report,
) -> std::result::Result<(), String> {
    let without = time(plan, operation, Request::ByMedium)?;
    let with = time(plan, operation, Request::Always)?;
    let name = operation.name();
    let logged = Arena::with_log(GROUPS, GROUPS, LOG)?.attach_logged()?;
    let logged = time_on(plan, operation, &logged)?;
    report.say(&format!("{name:<26} {} | {} | {}", shown(&without), shown(&with), shown(&logged)));
    report.keep(&format!("{name}, with a log"), kept(&logged));
    report.keep(&format!("{name}, without write-back"), kept(&without));
    report.keep(&format!("{name}, with write-back"), kept(&with));
    Ok(())
}

/// Runs the experiment.
pub(crate) fn run(plan: &Plan, report: &mut Report) -> std::result::Result<(), String> {
    if let Some(cpu) = plan.processors.last_chunk::<1>() {
        processors::pin(cpu)?;
    }
    report.say(
        "nanoseconds an operation: median, least, and where nine tenths of the batches are; runs \
         are filled with zeros",
    );
    report.say(&format!(
        "{:<26} {:>9} {:>9} {:^19} | {:>9} {:>9} {:^19} | {:>9} {:>9}",
        "", "no write-", "back", "", "write-", "back", "", "with a", "log"
    ));
    let mut counts = Vec::new();
    for operation in OPERATIONS {
        tell_times(plan, operation, report)?;
        counts.push((operation, count(operation)?, count_calls(operation)?));
    }
    report.say("\nan operation, on a medium that needs write-back:");
    report.say(&format!(
        "{:<26} {:>7} {:>7} {:>9} {:>11} {:>9} {:>9} {:>7} {:>7}",
        "", "fences", "lines", "journal B", "persist. B", "volatile", "exchanges", "loads", "calls"
    ));
    let (mut fences, mut calls_seen) = (0.0_f64, Some(0));
    for (operation, counts, calls) in counts {
        let each = |count: u64| count as f64 / COUNTED as f64;
        let name = operation.name();
        let shown_calls = calls.map_or("?".to_owned(), |calls| format!("{:.3}", each(calls)));
        report.say(&format!(
            "{name:<26} {:>7.2} {:>7.1} {:>9.0} {:>11.0} {:>9.1} {:>9.1} {:>7.0} {shown_calls:>7}",
            each(counts.fences),
            each(counts.written_back),
            each(counts.journal_bytes),
            each(counts.persistent_bytes),
            each(counts.volatile_words),
            each(counts.exchanges),
            each(counts.loads),
        ));
        let entry = named([
            ("fences", each(counts.fences).into()),
            ("lines written back", each(counts.written_back).into()),
            ("journal bytes", each(counts.journal_bytes).into()),
            ("persistent bytes", each(counts.persistent_bytes).into()),
            ("volatile words stored or exchanged", each(counts.volatile_words).into()),
            ("of these exchanged", each(counts.exchanges).into()),
            ("words loaded", each(counts.loads).into()),
            ("system calls", calls.map_or(f64::NAN, each).into()),
        ]);
        report.keep(&format!("{name}, counts"), entry);
        if matches!(operation, Operation::Object(_) | Operation::Stores) {
            fences = fences.max(each(counts.fences) / operation.transactions());
        }
        calls_seen = calls_seen.zip(calls).map(|(sum, calls)| sum + calls);
    }
    // New slabs, and slabs given back, cost a little more now and then.
    let because = format!("{fences:.2} at most");
    report.judge("3 fences a transaction of small objects", fences <= FENCES_MOST + 0.1, &because);
    match calls_seen {
        Some(calls) => {
            let because = format!("{calls} in {} operations", COUNTED * OPERATIONS.len() as u64);
            report.judge("no system call in any operation", calls == 0, &because);
        }
        None => report.say("system calls were not counted: nobody may trace here"),
    }
    Ok(())
}
