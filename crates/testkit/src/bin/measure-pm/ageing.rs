//! What long use does to the heap: fragmentation and throughput of a region that stays 90 % full
//! while many times its size is rewritten (Conquest 2002, 3.4).

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conquest_format::{GROUP, GROUP_PAGES, PAGE};
use conquest_pm::memory::Memory;
use conquest_pm::persist::Request;
use conquest_pm::{Error, Region};

use crate::Plan;
use crate::arena::{Arena, PAGES, text};
use crate::chart::{Chart, Line};
use crate::files::{Population, Sizes, Work};
use crate::os::{processors, system};
use crate::report::{Report, Value, named};

/// Parts of the run that are looked at, each one a hundredth of it.
const SAMPLES: u64 = 100;
/// Every fifth sample is a checkpoint, where a run of 1 MiB is asked for.
const CHECKPOINT: u64 = 5;
/// Pages in the run that is asked for.
const MIB: u64 = (1 << 20) / PAGE;
/// Pages in a run that counts as long: 64 KiB.
const LONG: u64 = (64 << 10) / PAGE;

/// The state of the region and the work of the part of the run that led there.
struct Sample {
    /// Bytes rewritten so far, in sizes of the region.
    rewritten: f64,
    free: u64,
    /// Free pages in long runs.
    long: u64,
    longest: u64,
    /// Whether a run of 1 MiB is granted; none if not asked for.
    granted: Option<bool>,
    work: Work,
    wall: Duration,
    processor: Duration,
}

/// Processor time of this process.
fn processor_time() -> Result<Duration, String> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local structure.
    if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) } != 0 {
        return Err(system("read the clock"));
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Lengths of all free runs, which end at the ends of groups.
fn free_runs(core: &Region) -> Vec<u64> {
    let mut runs = Vec::new();
    for group in 0..core.groups() {
        let mut len = 0;
        for word in 0..GROUP_PAGES / 64 {
            let bits =
                core.memory().load(core.geometry().bitmap(group).plus(word * 8), Ordering::Acquire);
            for bit in 0..64 {
                if bits >> bit & 1 == 0 {
                    len += 1;
                } else if len > 0 {
                    runs.push(std::mem::take(&mut len));
                }
            }
        }
        if len > 0 {
            runs.push(len);
        }
    }
    runs
}

/// Whether a run of 1 MiB is granted now; it is not kept.
fn is_granted(core: &Region) -> Result<bool, String> {
    let mut tx = core.begin().map_err(text)?;
    match tx.alloc_run(PAGES, MIB, None) {
        Ok(_dropped) => Ok(true),
        Err(Error::NoSpace { .. }) => Ok(false),
        Err(error) => Err(text(error)),
    }
}

fn sample(
    core: &Region,
    number: u64,
    rewritten: f64,
    done: Work,
    spent: [Duration; 2],
) -> Result<Sample, String> {
    let runs = free_runs(core);
    let granted = if number.is_multiple_of(CHECKPOINT) { Some(is_granted(core)?) } else { None };
    Ok(Sample {
        rewritten,
        free: runs.iter().sum(),
        long: runs.iter().filter(|&&run| run >= LONG).sum(),
        longest: runs.iter().copied().max().unwrap_or(0),
        granted,
        work: done,
        wall: spent[0],
        processor: spent[1],
    })
}

/// Ages a region of `groups` groups; the first sample is of the state before.
fn age(
    groups: u64,
    times: u64,
    sizes: Sizes,
    seed: u64,
    report: &Report,
) -> Result<Vec<Sample>, String> {
    let arena = Arena::new(groups, groups)?;
    let core = arena.attach(Request::ByMedium)?;
    let heap = core.geometry().page(0).bytes();
    // Page tables and pages are made before anything is timed.
    core.memory().populate(0..heap + groups * GROUP).map_err(text)?;
    let total = groups * GROUP_PAGES;
    let full = total * 9 / 10;
    let mut files = Population::new(&core, sizes, seed);
    // The slabs of the inodes count as used too, and how many these are shows when they are there.
    let most = |files: &Population<'_>| full - (core.pages_used() - files.pages);
    loop {
        let before = files.pages;
        files.fill(most(&files)).map_err(text)?;
        if files.pages == before {
            break;
        }
    }
    let mut samples = vec![sample(&core, 0, 0.0, Work::default(), [Duration::ZERO; 2])?];
    for number in 1..=SAMPLES {
        let (wall, processor) = (Instant::now(), processor_time()?);
        let most = most(&files);
        files.work = Work::default();
        // Exactly so many pages in all, whatever the last file's size.
        let goal = total * times * number / SAMPLES - total * times * (number - 1) / SAMPLES;
        while files.work.written < goal {
            files.replace(most).map_err(text)?;
        }
        let spent = [wall.elapsed(), processor_time()?.saturating_sub(processor)];
        let rewritten = (number * times) as f64 / SAMPLES as f64;
        samples.push(sample(&core, number, rewritten, files.work, spent)?);
    }
    report.say(&format!("huge pages: {}", core.memory().huge_pages()));
    Ok(samples)
}

/// Operations per second of processor time of the samples.
fn rate(samples: &[Sample]) -> f64 {
    let operations: u64 = samples.iter().map(|sample| sample.work.operations).sum();
    let time: Duration = samples.iter().map(|sample| sample.processor).sum();
    operations as f64 / time.as_secs_f64()
}

/// Nanoseconds per operation that are not spent in filling pages.
fn manager(samples: &[Sample]) -> f64 {
    let operations: u64 = samples.iter().map(|sample| sample.work.operations).sum();
    let time: Duration =
        samples.iter().map(|sample| sample.wall.saturating_sub(sample.work.zeroing)).sum();
    time.as_nanos() as f64 / operations as f64
}

fn quarter(samples: &[Sample], number: usize) -> &[Sample] {
    let each = SAMPLES as usize / 4;
    samples.get(1 + number * each..1 + (number + 1) * each).unwrap_or(&[])
}

fn share(sample: &Sample) -> f64 {
    100.0 * sample.long as f64 / sample.free.max(1) as f64
}

fn judge(plan: &Plan, sizes: Sizes, samples: &[Sample], report: &mut Report) {
    let name = sizes.name();
    let shares: Vec<f64> = samples.iter().map(share).collect();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let last = shares.last().copied().unwrap_or(0.0);
    let text = format!("at the least {least:.1} %, at the end {last:.1} %");
    let target = format!("{name}: half of the free space is in runs of 64 KiB or more");
    report.judge(&target, least >= 50.0, &text);

    let asked: Vec<bool> = samples.iter().filter_map(|sample| sample.granted).collect();
    let granted = asked.iter().filter(|granted| **granted).count();
    let longest = samples.iter().map(|sample| sample.longest).min().unwrap_or(0);
    let text = format!(
        "at {granted} of {} checkpoints; the longest free run had never less than {longest} pages",
        asked.len()
    );
    report.judge(&format!("{name}: 1 MiB in one run is granted"), granted == asked.len(), &text);

    let rates: Vec<f64> = (0..4).map(|number| rate(quarter(samples, number))).collect();
    let ratio = rates[3] / rates[1];
    let text = format!(
        "operations a second by quarter: {:.0}, {:.0}, {:.0}, {:.0}; last to second {ratio:.3}",
        rates[0], rates[1], rates[2], rates[3]
    );
    let target = format!("{name}: the last quarter is at most 5 % slower than the second");
    if plan.quick {
        report.say(&format!("{target}: not judged in a slice: {text}"));
    } else {
        report.judge(&target, ratio >= 0.95, &text);
    }
}

fn tell(sizes: Sizes, samples: &[Sample], report: &mut Report) {
    let sum = |of: fn(&Work) -> u64| samples.iter().map(|sample| of(&sample.work)).sum::<u64>();
    let (made, split, refused) =
        (sum(|work| work.made), sum(|work| work.split), sum(|work| work.refused));
    let by_quarter: Vec<f64> = (0..4).map(|number| manager(quarter(samples, number))).collect();
    report.say(&format!(
        "{}: {} operations; {made} files made, {split} of them in more than one run, {refused} \
         refused; without the filling of pages an operation takes by quarter {:.0}, {:.0}, {:.0}, \
         {:.0} ns",
        sizes.name(),
        sum(|work| work.operations),
        by_quarter[0],
        by_quarter[1],
        by_quarter[2],
        by_quarter[3]
    ));
    let rows: Vec<Value> = samples
        .iter()
        .map(|sample| {
            named([
                ("rewritten, in sizes of the region", sample.rewritten.into()),
                ("free pages", sample.free.into()),
                ("free pages in runs of 64 KiB or more", sample.long.into()),
                ("longest free run, pages", sample.longest.into()),
                ("1 MiB granted", sample.granted.map_or("not asked for".into(), Value::Truth)),
                ("operations", sample.work.operations.into()),
                ("files made", sample.work.made.into()),
                ("files in more than one run", sample.work.split.into()),
                ("files refused", sample.work.refused.into()),
                ("wall time, ns", (sample.wall.as_nanos() as f64).into()),
                ("processor time, ns", (sample.processor.as_nanos() as f64).into()),
                ("filling of pages, ns", (sample.work.zeroing.as_nanos() as f64).into()),
            ])
        })
        .collect();
    report.keep(sizes.name(), rows);
}

fn draw(groups: u64, times: u64, runs: &[(Sizes, Vec<Sample>)]) -> String {
    let x = |sample: &Sample| sample.rewritten;
    let colours = ["#1f5fa8", "#c2570c"];
    let mut shares = Vec::new();
    let mut rates = Vec::new();
    for ((sizes, samples), colour) in runs.iter().zip(colours) {
        let name = sizes.name().to_owned();
        let points = samples.iter().map(|sample| (x(sample), share(sample))).collect();
        shares.push(Line { name: name.clone(), colour, points });
        let rate_of = |pair: &Sample| rate(std::slice::from_ref(pair)) / 1000.0;
        let points = samples.iter().skip(1).map(|sample| (x(sample), rate_of(sample))).collect();
        rates.push(Line { name, colour, points });
    }
    let size = (groups * GROUP) >> 20;
    let charts = [
        Chart {
            title: "Free space in runs of 64 KiB or more".to_owned(),
            unit: "% of free space".to_owned(),
            lines: shares,
            most: Some(100.0),
            target: Some((50.0, "target: at least 50 %")),
        },
        Chart {
            title: "Files made or removed per second of processor time".to_owned(),
            unit: "thousand / s".to_owned(),
            lines: rates,
            most: None,
            target: None,
        },
    ];
    crate::chart::draw(
        &format!("Ageing of a region of {size} MiB, 90 % full"),
        &format!("rewritten so far (times the region's {size} MiB)"),
        times as f64,
        &charts,
    )
}

/// Runs the experiment. A slice has the full size, and rewrites it less often: in a small region a
/// tenth of the space is no more than a few of the largest files, which take every long run there
/// is as soon as there is one.
pub(crate) fn run(plan: &Plan, report: &mut Report) -> Result<(), String> {
    let (groups, times) = if plan.quick { (512, 3) } else { (512, 20) };
    if let Some(cpu) = plan.processors.last_chunk::<1>() {
        processors::pin(cpu)?;
    }
    report.say(&format!(
        "a region of {} MiB, 90 % full, {times} times rewritten; files die at random",
        (groups * GROUP) >> 20
    ));
    report.keep("groups", groups);
    let mut runs = Vec::new();
    for sizes in [Sizes::LogNormal, Sizes::LogUniform] {
        let samples = age(groups, times, sizes, plan.seed, report)?;
        tell(sizes, &samples, report);
        judge(plan, sizes, &samples, report);
        runs.push((sizes, samples));
    }
    report.draw(draw(groups, times, &runs));
    Ok(())
}
