//! Reads of a volume beside reads of the device that it is on: what the map, checksums and the
//! bookkeeping of the volume cost.
//!
//! Both sides read the very same bytes of the medium, past the kernel's cache, in slices that
//! take turns. The volume has been aged before: what is next to each other in its space is not so
//! on the device. Nothing of it is kept in memory but the index.
//!
//! A volume looks at all that it reads, as whoever wanted it will. To look takes time, and so does,
//! for the device, storing to memory that a processor has in its caches. So one pair of large reads
//! is also made with both sides looking at each line of what they have read.

use std::cell::RefCell;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use conquest_format::LINE;
use conquest_uring::Buffer;

use super::volume_pair::batches;
use super::{Bound, Experiment, Need, On, Pair, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Outcome};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::volume::aged::{Aged, Ageing, LARGE};
use crate::volume::flow::{self, Ours, Raw, Until, Way, flow};
use crate::volume::slices::{Taken, in_turn, until};
use crate::volume::{PER_UNIT, UNIT, failed};

/// The experiment.
pub(super) struct VolumeReads;

/// Requests under way at once: of a unit, and of a large piece.
const DEPTH: u32 = 32;
const LARGE_DEPTH: u32 = 8;
/// Bytes of a device that hold neither segments nor what is left over by them.
const AROUND: u64 = 1 << 20;
/// Bytes before the first segment, and segments before those for payload.
const START: u64 = 64 << 10;
const ANCHORS: u64 = 4;

const PHASES: [Phase; 14] = [
    Phase { id: "read", unit: Unit::Requests, part: 0 },
    Phase { id: "device-read", unit: Unit::Requests, part: 0 },
    Phase { id: "read-32", unit: Unit::Requests, part: 0 },
    Phase { id: "device-read-32", unit: Unit::Requests, part: 0 },
    Phase { id: "read-large", unit: Unit::Bytes, part: 0 },
    Phase { id: "device-read-large", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-large-looked-at", unit: Unit::Bytes, part: 0 },
    Phase { id: "device-read-large-looked-at", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-large-8", unit: Unit::Bytes, part: 0 },
    Phase { id: "device-read-large-8", unit: Unit::Bytes, part: 0 },
    Phase { id: "added-processor-time", unit: Unit::Seconds, part: 0 },
    Phase { id: "added-processor-time-32", unit: Unit::Seconds, part: 0 },
    Phase { id: "requests-for-a-read", unit: Unit::Each, part: 0 },
    Phase { id: "requests-for-a-large-read", unit: Unit::Each, part: 0 },
];
const PAIRS: [Pair; 5] = [
    small("4 KiB, one at a time", ["read", "device-read"]),
    small("4 KiB, 32 under way", ["read-32", "device-read-32"]),
    large("1 MiB, one at a time", ["read-large", "device-read-large"]),
    large(
        "1 MiB, one at a time, looked at",
        ["read-large-looked-at", "device-read-large-looked-at"],
    ),
    large("1 MiB, 8 under way", ["read-large-8", "device-read-large-8"]),
];
/// Seconds of processors that a read may take more on a device in memory, which does not hide them.
const ADDED: f64 = 2e-6;

/// Reads of a unit: of a device in memory, the volume's part of the time is larger.
const fn small(id: &'static str, phases: [&'static str; 2]) -> Pair {
    Pair { id, phases, aim: Some(0.95), other_aims: &[("loop", 0.9)] }
}

const fn large(id: &'static str, phases: [&'static str; 2]) -> Pair {
    Pair { id, phases, aim: Some(0.97), other_aims: &[] }
}

impl Experiment for VolumeReads {
    fn id(&self) -> &'static str {
        "volume-reads"
    }

    fn about(&self) -> &'static str {
        "random reads of an aged volume, in turn with reads of the device that it is on"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn pairs(&self) -> &'static [Pair] {
        &PAIRS
    }

    fn bounds(&self, _: &Parameters) -> Vec<Bound> {
        let bound = |phase| Bound { phase, target: Some("loop"), most: ADDED };
        vec![bound("added-processor-time"), bound("added-processor-time-32")]
    }

    fn on(&self) -> On {
        On::Device
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |extents, large, fill, segment, [slices, slice]: [u64; 2]| {
            Parameters::of(&[
                ("extents", extents),
                ("large", large),
                ("fill", fill),
                ("ageing", 100),
                ("segment", segment),
                ("slices", slices),
                ("slice", slice),
            ])
        };
        vec![match size {
            Size::Smoke => point(3000, 2, 60, 32, [1, 5]),
            Size::Short => point(100_000, 64, 80, 512, [30, 25]),
            Size::Full => point(4_000_000, 64, 90, 512, [80, 25]),
        }]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let units = in_range(parameters, "extents", 1000..=1 << 30)?
            + in_range(parameters, "large", 1..=1 << 20)? * (LARGE / UNIT);
        let fill = in_range(parameters, "fill", 1..=90)?;
        in_range(parameters, "ageing", 0..=10_000)?;
        in_range(parameters, "segment", 0..=1 << 16)?;
        in_range(parameters, "slices", 1..=1 << 20)?;
        in_range(parameters, "slice", 1..=60_000)?;
        Ok(Need {
            bytes: (units * 100 / fill * UNIT + AROUND).next_multiple_of(AROUND),
            files: 0,
            ..Need::default()
        })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let parameters = run.parameters.clone();
        let number = |name: &str| parameters.get(name);
        let bytes = self.need(&run.parameters).map(|need| need.bytes).unwrap_or_default();
        let extents = number("extents");
        let ageing = Ageing {
            bytes,
            segment: number("segment"),
            small: extents,
            apart: 2,
            large: number("large"),
            again: extents * number("ageing") / 100,
        };
        let slice = Duration::from_millis(number("slice"));
        let slices = number("slices");
        let aged = ageing.open(run.source().device()?, &mut run.random.clone())?;
        let reading =
            Reading { random: run.random.clone(), aged: &aged, ageing: &ageing, slices, slice };
        reading.run(run)
    }
}

/// The experiment under way.
struct Reading<'r> {
    random: Random,
    aged: &'r Aged,
    ageing: &'r Ageing,
    slices: u64,
    slice: Duration,
}

/// What one way of reading took on both sides, and what the volume asked of the device for each
/// read.
struct Read {
    both: [Taken; 2],
    requests: f64,
}

impl Read {
    /// Seconds of processors that a read of the volume took more.
    fn added(&self) -> f64 {
        let [ours, other] = self.both;
        ours.used_for_each() - other.used_for_each()
    }
}

impl Reading<'_> {
    fn run(mut self, run: &mut Run<'_>) -> Outcome<()> {
        run.begin_all();
        let one = self.one_by_one(UNIT, |_| ())?;
        let many = self.side_by_side(UNIT, DEPTH)?;
        let large = self.one_by_one(LARGE, |_| ())?;
        let looked_at = self.one_by_one(LARGE, look)?;
        let large_many = self.side_by_side(LARGE, LARGE_DEPTH)?;
        let amounts = [
            ("added-processor-time", one.added()),
            ("added-processor-time-32", many.added()),
            ("requests-for-a-read", many.requests),
            ("requests-for-a-large-read", large.requests),
        ];
        let mut phases = Vec::new();
        let each = [(one, 1), (many, 1), (large, LARGE), (looked_at, LARGE), (large_many, LARGE)];
        for (pair, (read, bytes)) in PAIRS.iter().zip(each) {
            phases.extend(batches(run, pair, &read.both, bytes));
        }
        run.end_all_with(phases, &amounts);
        Ok(())
    }

    /// Device requests that the volume made for each of `reads` reads since there were `before`.
    fn requests(&self, before: u64, reads: u64) -> f64 {
        (self.aged.device.counts().reads - before) as f64 / reads.max(1) as f64
    }

    /// Where reads of `bytes` bytes may be: in the space of the volume, and on the device.
    fn places(&self, bytes: u64, random: &mut Random) -> [u64; 2] {
        if bytes == UNIT {
            let ours = self.ageing.small_at(random.below(self.ageing.small));
            return [ours, random.below(self.ageing.bytes / UNIT) * UNIT];
        }
        // Large pieces were written first: so they are at the beginning of the device.
        let number = random.below(self.ageing.large);
        let segment = self.aged.volume.unit() * self.ageing.segment;
        [self.ageing.large_at(number), START + ANCHORS * segment + number * LARGE]
    }

    /// Reads of `bytes` bytes, each when the one before has ended and was taken by `take`.
    fn one_by_one(&mut self, bytes: u64, take: fn(&[u8])) -> Outcome<Read> {
        let (mut random, slice) = (self.random.clone(), self.slice);
        let (mut ours, mut others) = (random.clone(), Random::new(random.number()));
        // The same memory for both: where it is makes a difference.
        let into = RefCell::new(Buffer::new(bytes as usize).map_err(no_memory)?);
        let (before, mut reads) = (self.aged.device.counts().reads, 0);
        let both = in_turn(
            self.slices,
            &mut random,
            || {
                let done = until(slice, || {
                    let [at, _] = self.places(bytes, &mut ours);
                    let into = &mut *into.borrow_mut();
                    let read = self.aged.volume.read(at / UNIT * PER_UNIT, into);
                    read.map_err(failed("read a volume"))?;
                    take(into);
                    Ok(1)
                })?;
                reads += done;
                Ok(done)
            },
            || {
                until(slice, || {
                    let [_, at] = self.places(bytes, &mut others);
                    let into = &mut *into.borrow_mut();
                    let read = self.aged.file.read_exact_at(into, at);
                    read.map_err(|source| CallError::of("read a device", source))?;
                    take(into);
                    Ok(1)
                })
            },
        )?;
        self.random = random;
        Ok(Read { both, requests: self.requests(before, reads) })
    }

    /// Reads of `bytes` bytes, `depth` under way at once.
    fn side_by_side(&mut self, bytes: u64, depth: u32) -> Outcome<Read> {
        let (mut random, until) = (self.random.clone(), Until::Time(self.slice));
        let (mut ours, mut others) = (random.clone(), Random::new(random.number()));
        let content = vec![0; bytes as usize];
        let buffers = RefCell::new(flow::buffers(depth as usize, &content)?);
        let queue = self.aged.volume.queue(depth).map_err(failed("make a queue"))?;
        let (mut volume, mut device) = (Ours(queue), Raw::new(&self.aged.file, depth, 0)?);
        let (before, mut reads) = (self.aged.device.counts().reads, 0);
        let both = in_turn(
            self.slices,
            &mut random,
            || {
                let mut next = || self.places(bytes, &mut ours)[0];
                let buffers = &mut buffers.borrow_mut();
                let done = flow(&mut volume, buffers, Way::Read, until, &mut next, &mut |_| {})?;
                reads += done;
                Ok(done)
            },
            || {
                let mut next = || self.places(bytes, &mut others)[1];
                let buffers = &mut buffers.borrow_mut();
                flow(&mut device, buffers, Way::Read, until, &mut next, &mut |_| {})
            },
        )?;
        self.random = random;
        Ok(Read { both, requests: self.requests(before, reads) })
    }
}

/// Looks at a byte of each line.
fn look(bytes: &[u8]) {
    let firsts = bytes.iter().step_by(LINE as usize);
    black_box(firsts.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
}

fn no_memory(source: io::Error) -> CallError {
    CallError::of("get memory for requests", source)
}
