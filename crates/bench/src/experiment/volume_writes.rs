//! Writes to a volume beside writes to the device that it is on: of 4 KiB at random places, which
//! the volume makes writes in order of, and what cleaning makes of that.
//!
//! The volume has the first half of the device, and the bare device is the second half: both were
//! written in full before, and requests to both go past the kernel's cache and take turns.

use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::volume_pair::batches;
use super::{Experiment, Need, On, Pair, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Outcome};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::stopwatch::Pieces;
use crate::volume::aged::{Aged, Ageing, LARGE};
use crate::volume::flow::{self, Ours, Raw, Until, Way, flow};
use crate::volume::slices::{Taken, in_turn, until};
use crate::volume::{PER_UNIT, UNIT, failed};

/// The experiment.
pub(super) struct VolumeWrites;

/// Requests under way at once.
const DEPTH: u32 = 32;
/// So many slices are one where writing is sustained: what cleaning is behind with at its end is
/// waited for.
const LONGER: u32 = 10;
/// With many under way, one flush comes after so many writes.
const BETWEEN_FLUSHES: u64 = 1000;

const PHASES: [Phase; 15] = [
    Phase { id: "write-flush", unit: Unit::Requests, part: 0 },
    Phase { id: "device-write-flush", unit: Unit::Requests, part: 0 },
    Phase { id: "write-32", unit: Unit::Requests, part: 0 },
    Phase { id: "device-write-32", unit: Unit::Requests, part: 0 },
    Phase { id: "sustained", unit: Unit::Bytes, part: 0 },
    Phase { id: "sustained-on-device", unit: Unit::Bytes, part: 0 },
    Phase { id: "device-in-order", unit: Unit::Bytes, part: 0 },
    Phase { id: "added-processor-time", unit: Unit::Seconds, part: 0 },
    Phase { id: "added-processor-time-32", unit: Unit::Seconds, part: 0 },
    Phase { id: "amplification", unit: Unit::Each, part: 0 },
    Phase { id: "amplification-told", unit: Unit::Each, part: 0 },
    Phase { id: "sustained-half", unit: Unit::Seconds, part: 0 },
    Phase { id: "sustained-99-percent", unit: Unit::Seconds, part: 0 },
    Phase { id: "sustained-999-permille", unit: Unit::Seconds, part: 0 },
    Phase { id: "sustained-longest", unit: Unit::Seconds, part: 0 },
];
const PAIRS: [Pair; 3] = [
    Pair {
        id: "4 KiB, one at a time, each flushed",
        phases: ["write-flush", "device-write-flush"],
        aim: Some(0.9),
        other_aims: &[],
    },
    Pair {
        id: "4 KiB, 32 under way, a flush for 1,000",
        phases: ["write-32", "device-write-32"],
        aim: Some(1.5),
        other_aims: &[],
    },
    // A share of its rate by as much as is written for each: so all that is written.
    Pair {
        id: "sustained, by write amplification",
        phases: ["sustained-on-device", "device-in-order"],
        aim: Some(0.9),
        other_aims: &[],
    },
];

impl Experiment for VolumeWrites {
    fn id(&self) -> &'static str {
        "volume-writes"
    }

    fn about(&self) -> &'static str {
        "random writes to a volume, in turn with writes to the device that it is on"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn pairs(&self) -> &'static [Pair] {
        &PAIRS
    }

    fn on(&self) -> On {
        On::Device
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |mebibytes, fill, segment, [ageing, overwrites]: [u64; 2], slices, slice| {
            Parameters::of(&[
                ("mebibytes", mebibytes),
                ("fill", fill),
                ("segment", segment),
                ("ageing", ageing),
                ("overwrites", overwrites),
                ("depth", 256),
                ("in_order", 1),
                ("slices", slices),
                ("slice", slice),
            ])
        };
        // What is nearly empty takes no cleaning yet.
        match size {
            Size::Smoke => vec![point(16, 80, 16, [50, 20], 1, 5)],
            Size::Short => [30, 80].map(|fill| point(512, fill, 0, [200, 100], 20, 50)).to_vec(),
            Size::Full => [30, 80].map(|fill| point(4096, fill, 0, [200, 100], 50, 100)).to_vec(),
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let mebibytes = in_range(parameters, "mebibytes", 16..=1 << 20)?;
        in_range(parameters, "fill", 1..=90)?;
        in_range(parameters, "segment", 0..=1 << 16)?;
        in_range(parameters, "ageing", 0..=10_000)?;
        in_range(parameters, "overwrites", 1..=10_000)?;
        in_range(parameters, "depth", 1..=4096)?;
        in_range(parameters, "in_order", 1..=256)?;
        in_range(parameters, "slices", 1..=1 << 20)?;
        in_range(parameters, "slice", 1..=60_000)?;
        Ok(Need { bytes: 2 * (mebibytes << 20), files: 0, ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let parameters = run.parameters.clone();
        let number = |name: &str| parameters.get(name);
        let bytes = number("mebibytes") << 20;
        let units = bytes / UNIT;
        let ageing = Ageing {
            bytes,
            segment: number("segment"),
            small: units * number("fill") / 100,
            apart: 1,
            large: 0,
            again: units * number("ageing") / 100,
        };
        let aged = ageing.open(run.source().device()?, &mut run.random.clone())?;
        let mut random = run.random.clone();
        let writing = Writing {
            content: random.bytes(LARGE as usize),
            random: RefCell::new(random),
            aged: &aged,
            ageing: &ageing,
            slices: number("slices"),
            slice: Duration::from_millis(number("slice")),
        };
        aged.volume.with_keeper(|| {
            writing.flushed(run)?;
            let depths = [number("depth") as u32, number("in_order") as u32];
            writing.sustained(run, units * number("overwrites") / 100, depths)
        })
    }
}

/// The experiment under way.
struct Writing<'r> {
    content: Vec<u8>,
    random: RefCell<Random>,
    aged: &'r Aged,
    ageing: &'r Ageing,
    slices: u64,
    slice: Duration,
}

impl Writing<'_> {
    fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().below(limit)
    }

    /// Where the volume is written next.
    fn ours(&self) -> u64 {
        self.ageing.small_at(self.below(self.ageing.small))
    }

    /// Where the bare device is written next, from its part's beginning on.
    fn other(&self) -> u64 {
        self.below(self.ageing.bytes / UNIT) * UNIT
    }

    fn unit(&self) -> &[u8] {
        self.content.get(..UNIT as usize).unwrap_or_default()
    }

    fn flush(&self) -> Outcome<()> {
        self.aged.volume.flush().map_err(failed("flush a volume"))
    }

    fn flush_device(&self) -> Outcome<()> {
        self.aged.file.sync_data().map_err(|source| CallError::of("fdatasync", source))
    }

    /// What a slice of the volume has `done`, when what is done for it in the background is done,
    /// too: it belongs to the slice, and must not be beside the device's.
    fn settled(&self, done: u64) -> u64 {
        self.aged.volume.await_keeper();
        done
    }

    fn turns(&self) -> Random {
        Random::new(self.random.borrow_mut().number())
    }

    /// Writes with flushes: one for each, and one for many.
    fn flushed(&self, run: &mut Run<'_>) -> Outcome<()> {
        run.begin_all();
        let both = [self.one_by_one()?, self.side_by_side()?];
        let added = both.map(|[ours, other]| ours.used_for_each() - other.used_for_each());
        let pairs = PAIRS.iter().zip(&both);
        let phases = pairs.flat_map(|(pair, both)| batches(run, pair, both, 1)).collect();
        let [one, many] = added;
        let amounts = [("added-processor-time", one), ("added-processor-time-32", many)];
        run.end_all_with(phases, &amounts);
        Ok(())
    }

    fn one_by_one(&self) -> Outcome<[Taken; 2]> {
        let buffers = flow::buffers(2, self.unit())?;
        let [bytes, beside] = buffers.as_slice() else {
            return Ok(Default::default());
        };
        in_turn(
            self.slices,
            &mut self.turns(),
            || {
                until(self.slice, || {
                    let block = self.ours() / UNIT * PER_UNIT;
                    self.aged.volume.write(block, bytes).map_err(failed("write to a volume"))?;
                    self.flush().map(|()| 1)
                })
                .map(|done| self.settled(done))
            },
            || {
                until(self.slice, || {
                    let at = self.ageing.bytes + self.other();
                    let written = self.aged.file.write_all_at(beside, at);
                    written.map_err(|source| CallError::of("write to a device", source))?;
                    self.flush_device().map(|()| 1)
                })
            },
        )
    }

    fn side_by_side(&self) -> Outcome<[Taken; 2]> {
        let mut buffers = flow::buffers(DEPTH as usize, self.unit())?;
        let mut beside = flow::buffers(DEPTH as usize, self.unit())?;
        let queue = self.aged.volume.queue(DEPTH).map_err(failed("make a queue"))?;
        let mut volume = Ours(queue);
        let mut device = Raw::new(&self.aged.file, DEPTH, self.ageing.bytes)?;
        let count = Until::Count(BETWEEN_FLUSHES);
        in_turn(
            self.slices,
            &mut self.turns(),
            || {
                until(self.slice, || {
                    let mut next = || self.ours();
                    let way = Way::Write;
                    let done = flow(&mut volume, &mut buffers, way, count, &mut next, &mut |_| {})?;
                    self.flush().map(|()| done)
                })
                .map(|done| self.settled(done))
            },
            || {
                until(self.slice, || {
                    let mut next = || self.other();
                    let way = Way::Write;
                    let done = flow(&mut device, &mut beside, way, count, &mut next, &mut |_| {})?;
                    self.flush_device().map(|()| done)
                })
            },
        )
    }

    /// At least `units` writes, without an end to cleaning; in turn with writes of the device in
    /// order, so many of each under way at once. Each slice ends with a flush: what is in the
    /// disk's cache then would be written while the other side has its turn.
    fn sustained(&self, run: &mut Run<'_>, units: u64, depths: [u32; 2]) -> Outcome<()> {
        let [depth, in_order] = depths;
        run.begin_all();
        let mut times = Vec::with_capacity(units as usize);
        let mut buffers = flow::buffers(depth as usize, self.unit())?;
        let mut beside = flow::buffers(in_order as usize, &self.content)?;
        let queue = self.aged.volume.queue(depth).map_err(failed("make a queue"))?;
        let mut volume = Ours(queue);
        let mut device = Raw::new(&self.aged.file, in_order, self.ageing.bytes)?;
        let told = || self.aged.volume.info().map_err(failed("look at a volume"));
        let (written, begun) = (self.aged.device.counts().written, told()?.written);
        let slice = Until::Time(self.slice * LONGER);
        let (mut at, mut both) = (0, [Taken::default(); 2]);
        while both[0].units < units {
            // The first slice counts here: what it does is among what was written.
            both[0] += Taken::of(|| {
                let mut next = || self.ours();
                let mut told = |time| times.push(time);
                let done =
                    flow(&mut volume, &mut buffers, Way::Write, slice, &mut next, &mut told)?;
                let done = self.settled(done);
                self.flush().map(|()| done)
            })?;
            both[1] += Taken::of(|| {
                let mut next = || {
                    at = (at + LARGE) % self.ageing.bytes;
                    at
                };
                let done =
                    flow(&mut device, &mut beside, Way::Write, slice, &mut next, &mut |_| {})?;
                self.flush_device().map(|()| done)
            })?;
        }
        drop(volume);
        let written = self.aged.device.counts().written - written;
        let now = told()?.written;
        let [ours, other] = both;
        let all = Taken { units: written, ..ours };
        let phases = vec![
            ("sustained", ours.batches(UNIT, run.pieces())),
            ("sustained-on-device", all.batches(1, run.pieces())),
            ("device-in-order", other.batches(LARGE, Pieces::new(0.0))),
        ];
        let asked = (now.asked - begun.asked) as f64;
        let mut amounts = vec![
            ("amplification", written as f64 / (ours.units * UNIT) as f64),
            ("amplification-told", (now.all() - begun.all()) as f64 / asked),
        ];
        amounts.extend(percentiles(times));
        run.end_all_with(phases, &amounts);
        Ok(())
    }
}

/// How long the one in the middle took, and those at the end.
fn percentiles(mut times: Vec<Duration>) -> [(&'static str, f64); 4] {
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len() as f64 * share) as usize;
        let found = times.get(place.min(times.len().saturating_sub(1)));
        found.map_or(0.0, Duration::as_secs_f64)
    };
    [
        ("sustained-half", at(0.5)),
        ("sustained-99-percent", at(0.99)),
        ("sustained-999-permille", at(0.999)),
        ("sustained-longest", at(1.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all() {
        let times = (1..=1000).rev().map(Duration::from_secs).collect();
        let found = percentiles(times).map(|(_, time)| time);
        assert_eq!(found, [501.0, 991.0, 1000.0, 1000.0]);
        assert_eq!(percentiles(Vec::new())[0].1, 0.0);
    }
}
