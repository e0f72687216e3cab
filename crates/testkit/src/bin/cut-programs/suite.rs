//! A suite: programs at work on a mounted store, recorded; then many power cuts of that record.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use conquest_testkit::Rng;

use crate::Outcome;
use crate::machine::{Machine, Shape};

/// Modes of syncing, one for each recording.
const SYNCS: [&str; 2] = ["interval=1s", "fsync"];
/// Fewer cuts than this are made of one recording.
const FEW: u64 = 10;
/// Cuts after which it is said how far it has come.
const PROGRESS: u64 = 25;
/// Characters of the reason of a failure.
const REASON: usize = 600;
/// Of so many cuts one is just behind something that was acknowledged.
const BEHIND: u64 = 3;

/// Programs, and what they have to find again.
pub(crate) trait Suite {
    /// What it is called.
    fn name(&self) -> &'static str;
    /// How large things are, for a store that syncs so.
    fn shape(&self, sync: &'static str) -> Shape;
    /// Makes on the mount what the programs need. No power is cut before that is done.
    fn prepare(&self, machine: &mut Machine) -> Outcome<()>;
    /// Lets the programs work for `time`.
    fn work(&self, machine: &mut Machine, time: Duration) -> Outcome<()>;
    /// Looks at what is on the mount after a power cut, before which `acknowledged` was said.
    fn judge(&self, machine: &mut Machine, acknowledged: &[&str]) -> Outcome<()>;
}

/// What was asked for.
pub(crate) struct Options {
    /// The program `conquest`.
    pub(crate) program: PathBuf,
    /// An empty directory in memory.
    pub(crate) place: PathBuf,
    /// Where records are kept of which a cut has failed.
    pub(crate) keep: PathBuf,
    pub(crate) cuts: u64,
    pub(crate) seed: u64,
    /// How long the programs work in each recording.
    pub(crate) time: Duration,
    /// A record that was kept, and one cut of it: an event and a seed.
    pub(crate) replay: Option<(PathBuf, u64, u64)>,
}

/// A line that was acknowledged, and its event.
type Line = (u64, String);

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// Runs `suite`.
pub(crate) fn run(suite: &dyn Suite, options: &Options) -> Outcome<Counts> {
    let len = suite.shape(SYNCS[0]).disk;
    let mut machine = Machine::new(&options.program, &options.place, len)?;
    let mut counts = Counts::default();
    if let Some((record, event, seed)) = &options.replay {
        println!("{}: {}", suite.name(), machine.load(record)?);
        let lines = lines(&mut machine)?;
        let outcome = one(suite, &mut machine, &lines, *event, *seed);
        outcome.1.map_err(|why| format!("{}: {}: {why}", suite.name(), outcome.0))?;
        return Ok(Counts { passed: 1, failed: 0 });
    }
    // A slice makes one recording do.
    let rounds = if options.cuts < FEW { 1 } else { SYNCS.len() as u64 };
    for (round, sync) in (0..rounds).zip(SYNCS) {
        let cuts = (options.cuts + round) / rounds;
        recorded(suite, &mut machine, options, (round, sync, cuts), &mut counts)?;
    }
    Ok(counts)
}

/// Lets the programs work once, and cuts the power so often.
fn recorded(
    suite: &dyn Suite,
    machine: &mut Machine,
    options: &Options,
    (round, sync, cuts): (u64, &'static str, u64),
    counts: &mut Counts,
) -> Outcome<()> {
    let name = format!("{}, {sync}", suite.name());
    let begin = Instant::now();
    machine.begin(&suite.shape(sync))?;
    suite.prepare(machine)?;
    machine.sync()?;
    let first = machine.ask("events")?.parse::<u64>().map_err(|e| e.to_string())?;
    suite.work(machine, options.time)?;
    machine.cut_power()?;
    let numbers = machine.ask("stop")?;
    machine.keep_store()?;
    let lines = lines(machine)?;
    let numbers: Vec<u64> = numbers.split(' ').filter_map(|word| word.parse().ok()).collect();
    let &[events, writes, flushes, size] = numbers.as_slice() else {
        return Err("the disk has lost count".into());
    };
    println!(
        "{name}: {} acknowledged; {writes} writes of {size} MiB, {flushes} flushes; {:.1} s",
        lines.len(),
        begin.elapsed().as_secs_f64()
    );
    if lines.is_empty() || events <= first {
        return Err(format!("{name}: nothing was acknowledged"));
    }
    let begin = Instant::now();
    let mut rng = Rng::stream(options.seed, round);
    let mut points: Vec<(u64, u64)> =
        (0..cuts).map(|_| (place(&mut rng, first..events, &lines), rng.word())).collect();
    points.sort_unstable();
    let mut waiting = Vec::new();
    let mut is_kept = false;
    for (number, (event, seed)) in points.into_iter().enumerate() {
        if number > 0 && (number as u64).is_multiple_of(PROGRESS) {
            println!("{name}: {number} of {cuts} cuts, {:.0} s", begin.elapsed().as_secs_f64());
        }
        let (what, outcome) = one(suite, machine, &lines, event, seed);
        waiting.extend(what.split(' ').next().and_then(|word| word.parse::<u64>().ok()));
        let Err(why) = outcome else {
            counts.passed += 1;
            continue;
        };
        counts.failed += 1;
        let at = options.keep.join(format!("{}-{round}", suite.name()));
        let why = in_short(&why);
        println!("{name}: FAILED: event {event} of {events}, {what}: {why}");
        println!("  --only {} --replay {}@{event}:{seed}", suite.name(), at.display());
        if !is_kept {
            machine.save(&at)?;
            is_kept = true;
        }
    }
    waiting.sort_unstable();
    println!(
        "{name}: {cuts} cuts in {:.1} s; writes not flushed: {} in half of them, {} at most",
        begin.elapsed().as_secs_f64(),
        waiting.get(waiting.len() / 2).unwrap_or(&0),
        waiting.last().unwrap_or(&0)
    );
    Ok(())
}

/// A place to cut: any event, or the next at which something is acknowledged.
fn place(rng: &mut Rng, range: core::ops::Range<u64>, lines: &[Line]) -> u64 {
    let event = range.start + rng.below(range.end - range.start);
    if !rng.chance(1, BEHIND) {
        return event;
    }
    let next = lines.partition_point(|(at, _)| *at < event);
    lines.get(next).map_or(event, |(at, _)| *at)
}

/// What was said, in one line that is not too long.
fn in_short(said: &str) -> String {
    said.lines().map(str::trim).collect::<Vec<_>>().join("; ").chars().take(REASON).collect()
}

/// What was acknowledged.
fn lines(machine: &mut Machine) -> Outcome<Vec<Line>> {
    let said = machine.ask("acknowledged")?;
    let lines = said.split('\t').filter_map(|line| line.split_once(' '));
    Ok(lines.filter_map(|(at, line)| Some((at.parse().ok()?, line.to_owned()))).collect())
}

/// One cut: what the disk had, and whether it was right.
fn one(
    suite: &dyn Suite,
    machine: &mut Machine,
    lines: &[Line],
    event: u64,
    seed: u64,
) -> (String, Outcome<()>) {
    let mut what = String::new();
    let mut judge = |machine: &mut Machine| {
        what = machine.cut(event, seed)?;
        machine.mount()?;
        let before = lines.iter().filter(|(at, _)| *at <= event);
        let before: Vec<&str> = before.map(|(_, line)| line.as_str()).collect();
        suite.judge(machine, &before)?;
        machine.check()
    };
    let outcome = judge(machine);
    let ended = machine.cut_power();
    (what, outcome.and(ended))
}
