//! Somebody who syncs nothing, beside others who do: what they cost him.
//!
//! A process makes and removes small files, alone and beside three others, in turn: one makes small
//! files durable one by one; one writes over a large file, piece by piece, each made durable, so
//! that a volume has to be cleaned; and one is stopped, wherever it is, as long as its slice lasts.
//!
//! Each has a directory of its own, or all are `together` in one. A store's process that is stopped
//! while it changes a directory keeps that from all others until it goes on; the kernel stops
//! nobody there.

use std::ffi::CString;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;

use super::many::now;
use super::{Beside, Bound, Experiment, Need, On, Pair, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError, Calls};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::stopwatch::Batch;
use crate::target::Name;
use crate::worker::Purpose;

/// The experiment.
pub(super) struct Neighbour;

const PHASES: [Phase; 6] = [
    Phase { id: "alone", unit: Unit::Files, part: 0 },
    Phase { id: "beside", unit: Unit::Files, part: 0 },
    Phase { id: "alone-999", unit: Unit::Seconds, part: 0 },
    Phase { id: "beside-999", unit: Unit::Seconds, part: 0 },
    Phase { id: "alone-longest", unit: Unit::Seconds, part: 0 },
    Phase { id: "beside-longest", unit: Unit::Seconds, part: 0 },
];
const PAIRS: [Pair; 1] = [Pair {
    id: "beside others",
    phases: ["beside", "alone"],
    aim: None,
    other_aims: &[("logged", 0.9), ("hybrid", 0.9)],
}];
/// Seconds that 99.9 % of its files take at most.
const LONGEST: f64 = 0.002;

/// Bytes of small files.
const SMALL: usize = 4096;
/// Files that it has at once.
const WINDOW: u64 = 64;
/// Bytes of a piece of the large file, and the pause after each.
const PIECE: usize = 256 << 10;
const PAUSE: Duration = Duration::from_millis(2);
/// Bytes that are written before with one sync.
const FILLED: u64 = 8 << 20;
/// Everything begins so long after it was asked for: until then the others have reached the files.
const LEAD: u64 = 500_000_000;
/// A part of each slice in which nobody is measured: the others begin, or end, what they are at.
const GUARD: u64 = 10;

/// Who is beside it.
const SYNCS: usize = 0;
const OVERWRITES: usize = 1;
const STOPPED: usize = 2;
const OTHERS: usize = 3;

impl Experiment for Neighbour {
    fn id(&self) -> &'static str {
        "neighbour"
    }

    fn about(&self) -> &'static str {
        "small files that nobody syncs, beside one who syncs, one who overwrites, and one stopped"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn pairs(&self) -> &'static [Pair] {
        &PAIRS
    }

    fn bounds(&self, _: &Parameters) -> Vec<Bound> {
        let of = |target| Bound { phase: "beside-999", target: Some(target), most: LONGEST };
        ["logged", "hybrid"].map(of).to_vec()
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |together, mebibytes, times, slices, slice| {
            Parameters::of(&[
                ("together", together),
                ("mebibytes", mebibytes),
                ("times", times),
                ("slices", slices),
                ("slice", slice),
            ])
        };
        // Before it begins, a volume has been written to its end.
        match size {
            Size::Smoke => vec![point(0, 4, 1, 1, 50)],
            Size::Short => vec![point(0, 256, 6, 4, 250)],
            Size::Full => [0, 1].map(|together| point(together, 256, 6, 20, 250)).to_vec(),
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let bytes = in_range(parameters, "mebibytes", 1..=1 << 20)? << 20;
        in_range(parameters, "together", 0..=1)?;
        in_range(parameters, "times", 0..=1000)?;
        in_range(parameters, "slices", 1..=10_000)?;
        in_range(parameters, "slice", 10..=60_000)?;
        Ok(Need { bytes, files: 3 * WINDOW, ..Need::default() })
    }

    fn on(&self) -> On {
        On::Durable
    }

    fn lack(&self, target: &Name) -> Option<&'static str> {
        let is_floor = *target == Name::Leader;
        is_floor.then_some("whoever is stopped while it leads stops all others")
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        if run.request().purpose != Purpose::Time {
            return Ok(());
        }
        let number = |name: &str| run.parameters.get(name);
        let slices =
            Slices { start: 0, slice: number("slice") * 1_000_000, count: number("slices") };
        let content = run.random.bytes(PIECE);
        let mut large = Large::open(&mut *run.calls, number("mebibytes") << 20)?;
        for piece in 0..number("times") * large.pieces {
            large.write(&mut *run.calls, piece % large.pieces, &content)?;
            if ((piece + 1) * PIECE as u64).is_multiple_of(FILLED) {
                run.calls.sync(large.file)?;
            }
        }
        run.calls.sync_all()?;
        let slices = Slices { start: now() + LEAD, ..slices };
        run.begin_all();
        let [alone, beside] = run.among(0, OTHERS, slices.start, |run| {
            let mut small = Small::new("neighbour", &content, run)?;
            slices.measure(&mut *run.calls, &mut small)
        })?;
        let phases =
            [("alone", &alone), ("beside", &beside)].map(|(id, taken)| (id, taken.batches.clone()));
        let amounts = [
            ("alone-999", alone.within(0.999)),
            ("beside-999", beside.within(0.999)),
            ("alone-longest", alone.within(1.0)),
            ("beside-longest", beside.within(1.0)),
        ];
        run.end_all_with(phases.to_vec(), &amounts);
        Ok(())
    }

    fn beside(&self, beside: Beside, run: &mut Run<'_>) -> Result<(), CallError> {
        let number = |name: &str| run.parameters.get(name);
        let (slice, count) = (number("slice") * 1_000_000, number("slices"));
        let slices = Slices { start: beside.start, slice, count };
        let content = run.random.bytes(PIECE);
        let mut random = run.random.clone();
        match beside.number {
            OVERWRITES => {
                let calls = &mut *run.calls;
                let mut large = Large::open(calls, number("mebibytes") << 20)?;
                slices.each(|until| {
                    while now() < until {
                        large.write(calls, random.below(large.pieces), &content)?;
                        calls.sync(large.file)?;
                        std::thread::sleep(PAUSE);
                    }
                    Ok(())
                })
            }
            SYNCS => {
                let mut small = Small { is_synced: true, ..Small::new("syncs", &content, run)? };
                slices.each(|until| {
                    while now() < until {
                        small.next(&mut *run.calls)?;
                    }
                    Ok(())
                })
            }
            STOPPED => {
                let mut small = Small::new("stopped", &content, run)?;
                slices.each(|until| {
                    let mut stopping = stopped_until(until, &mut random)?;
                    while now() < until {
                        small.next(&mut *run.calls)?;
                    }
                    let ended = stopping.wait();
                    ended.map(drop).map_err(|source| CallError::of("wait for kill", source))
                })
            }
            _ => Ok(()),
        }
    }
}

/// Lets this process be stopped in a moment, until `until`.
fn stopped_until(until: u64, random: &mut Random) -> Result<std::process::Child, CallError> {
    let left = Duration::from_nanos(until.saturating_sub(now()));
    let soon = Duration::from_micros(random.below(2000));
    let script = format!(
        "sleep {}; kill -STOP {process}; sleep {}; kill -CONT {process}",
        soon.as_secs_f64(),
        left.saturating_sub(soon).as_secs_f64(),
        process = std::process::id()
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().map_err(|source| CallError {
        call: "run",
        path: Some("sh".into()),
        source: io::Error::new(source.kind(), source),
    })
}

/// Slices of time: first one alone, then one beside others, and so on.
#[derive(Clone, Copy)]
struct Slices {
    /// When the first one begins: nanoseconds of the system's monotonic clock.
    start: u64,
    /// Nanoseconds of each.
    slice: u64,
    /// How many there are of each kind.
    count: u64,
}

/// What was done in slices of one kind.
#[derive(Default)]
struct Taken {
    batches: Vec<Batch>,
    /// Nanoseconds that each took.
    times: Vec<u64>,
}

impl Slices {
    fn begin(&self, number: u64) -> u64 {
        self.start + number * self.slice
    }

    /// Calls `work` at the beginning of each slice of those who are beside, with its end.
    fn each(&self, mut work: impl FnMut(u64) -> Result<(), CallError>) -> Result<(), CallError> {
        for number in 0..self.count {
            sleep_until(self.begin(2 * number + 1));
            work(self.begin(2 * number + 2))?;
        }
        Ok(())
    }

    /// Makes files in all slices: what was done alone, and beside others.
    fn measure(
        &self,
        calls: &mut dyn Calls,
        small: &mut Small<'_>,
    ) -> Result<[Taken; 2], CallError> {
        let mut all = [Taken::default(), Taken::default()];
        for number in 0..self.count {
            for (kind, taken) in (0..).zip(&mut all) {
                let (begin, end) =
                    (self.begin(2 * number + kind), self.begin(2 * number + kind + 1));
                let from = begin + self.slice / GUARD;
                sleep_until(begin);
                let (mut units, mut then) = (0, now());
                while then < from {
                    small.next(calls)?;
                    then = now();
                }
                let first = then;
                while then < end {
                    small.next(calls)?;
                    let time = now();
                    taken.times.push(time - then);
                    (then, units) = (time, units + 1);
                }
                taken.batches.push(Batch { units, nanoseconds: then - first });
            }
        }
        Ok(all)
    }
}

impl Taken {
    /// Seconds within which the share `share` of all was done.
    fn within(&self, share: f64) -> f64 {
        let mut times = self.times.clone();
        let place = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        match times.is_empty() {
            true => 0.0,
            false => *times.select_nth_unstable(place).1 as f64 / 1e9,
        }
    }
}

fn sleep_until(time: u64) {
    std::thread::sleep(Duration::from_nanos(time.saturating_sub(now())));
}

/// The large file.
struct Large {
    file: calls::Opened,
    pieces: u64,
}

impl Large {
    fn open(calls: &mut dyn Calls, bytes: u64) -> Result<Large, CallError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = calls.open(&calls::path("large"), flags)?;
        Ok(Large { file, pieces: bytes / PIECE as u64 })
    }

    fn write(
        &mut self,
        calls: &mut dyn Calls,
        piece: u64,
        content: &[u8],
    ) -> Result<(), CallError> {
        calls.write_at(self.file, content, piece * PIECE as u64).map(drop)
    }
}

/// Small files, one after the other, of which so many are there as fit the window.
struct Small<'c> {
    names: Vec<CString>,
    content: &'c [u8],
    is_synced: bool,
    made: u64,
}

impl<'c> Small<'c> {
    /// Those of `who`.
    fn new(who: &str, content: &'c [u8], run: &mut Run<'_>) -> Result<Small<'c>, CallError> {
        let is_alone = run.parameters.get("together") == 0;
        if is_alone {
            run.calls.mkdir(&calls::path(who))?;
        }
        let between = if is_alone { '/' } else { '-' };
        let name = |number| calls::path(&format!("{who}{between}{number}"));
        let content = content.get(..SMALL).unwrap_or(content);
        let names = (0..WINDOW).map(name).collect();
        Ok(Small { names, content, is_synced: false, made: 0 })
    }

    /// Makes the next one, in the place of the one that was made first.
    fn next(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        let Some(name) = self.names.get((self.made % WINDOW) as usize) else {
            return Ok(());
        };
        if self.made >= WINDOW {
            calls.unlink(name)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = calls.open(name, flags)?;
        calls.write(file, self.content)?;
        if self.is_synced {
            calls.sync(file)?;
        }
        calls.close(file)?;
        self.made += 1;
        Ok(())
    }
}
