//! What a volume writes for what it is asked to write, when it has been overwritten several times:
//! on a device in memory, which counts every byte, those of headers, of the map and of padding too.

use std::sync::Arc;
use std::time::Instant;

use conquest_flash::device::{Limits, MemoryDevice};

use super::{Bound, Experiment, Need, On, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Outcome};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::volume::{Counted, PER_UNIT, UNIT, Volume, create, failed, recover, theory};

/// The experiment.
pub(super) struct VolumeAmplification;

/// Of all writes, those to the hot part if there is one, and its share of the space; of ten.
const OFTEN: u64 = 9;
const HOT: u64 = 1;
/// Of a hundred blocks of the device, those that are live.
const FILL: u64 = 80;
/// What is not to be written more for each byte, if all is overwritten alike.
const MOST: f64 = 3.1;
/// The same if there is a hot part.
const MOST_HOT: f64 = 2.0;
/// Bytes of the device besides its segments.
const AROUND: u64 = 1 << 20;

/// Of each overwriting of the whole device, and of all together.
const ROUNDS: [&str; 5] =
    ["overwriting-1", "overwriting-2", "overwriting-3", "overwriting-4", "overwriting-5"];
const PHASES: [Phase; 9] = [
    each("amplification"),
    each("theory"),
    each(ROUNDS[0]),
    each(ROUNDS[1]),
    each(ROUNDS[2]),
    each(ROUNDS[3]),
    each(ROUNDS[4]),
    each("amplification-told"),
    Phase { id: "write", unit: Unit::Requests, part: 0 },
];

const fn each(id: &'static str) -> Phase {
    Phase { id, unit: Unit::Each, part: 0 }
}

impl Experiment for VolumeAmplification {
    fn id(&self) -> &'static str {
        "volume-amplification"
    }

    fn about(&self) -> &'static str {
        "bytes written for each byte of random writes to a volume, all the same or 90 % to 10 %"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    /// Of what is wanted, which is said of volumes that are as full as these.
    fn bounds(&self, parameters: &Parameters) -> Vec<Bound> {
        if parameters.get("fill") != FILL {
            return Vec::new();
        }
        let most = if parameters.get("hot") == 1 { MOST_HOT } else { MOST };
        vec![Bound { phase: "amplification", target: None, most }]
    }

    fn on(&self) -> On {
        On::Memory
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let shapes: &[[u64; 2]] = match size {
            Size::Smoke => &[[256, 16]],
            Size::Short => &[[1024, 16]],
            Size::Full => &[[4096, 16], [1024, 64]],
        };
        let ways: &[[u64; 2]] =
            if size == Size::Smoke { &[[1, 1]] } else { &[[0, 0], [1, 0], [1, 1]] };
        let point = |[segments, segment]: &[u64; 2], [hot, moved]: &[u64; 2]| {
            Parameters::of(&[
                ("segments", *segments),
                ("segment", *segment),
                ("fill", FILL),
                ("hot", *hot),
                ("moved", *moved),
            ])
        };
        shapes.iter().flat_map(|shape| ways.iter().map(|way| point(shape, way))).collect()
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        in_range(parameters, "segments", 128..=1 << 18)?;
        in_range(parameters, "segment", 8..=1 << 16)?;
        in_range(parameters, "fill", 1..=92)?;
        in_range(parameters, "hot", 0..=1)?;
        in_range(parameters, "moved", 0..=1)?;
        Ok(Need::default())
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let parameters = run.parameters.clone();
        let number = |name: &str| parameters.get(name);
        let units = number("segments") * number("segment");
        let live = units * number("fill") / 100;
        let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
        let memory = MemoryDevice::new("memory", units * UNIT + AROUND, limits);
        let memory = memory.map_err(|source| CallError::of("make a device", source))?;
        let device = Counted::new(Arc::new(memory));
        create(&device, number("segment"), run.random.number())?;
        let volume = recover(&device)?;
        let is_hot = number("hot") == 1;
        let mut load = Load { random: run.random.clone(), live, is_hot, from: 0 };
        let mut content = run.random.bytes(UNIT as usize);
        for unit in 0..live {
            write(&volume, &mut content, unit)?;
        }
        run.begin_all();
        let told = || volume.info().map_err(failed("look at a volume")).map(|info| info.written);
        let (before, begun, begin) = (told()?, device.counts().written, Instant::now());
        let mut amounts = Vec::new();
        for (round, phase) in ROUNDS.iter().enumerate() {
            let begun = device.counts().written;
            for done in 0..units {
                if number("moved") == 1 && round == ROUNDS.len() / 2 && done == units / 2 {
                    load.from = live / 2;
                }
                write(&volume, &mut content, load.next())?;
            }
            let written = device.counts().written - begun;
            amounts.push((*phase, written as f64 / (units * UNIT) as f64));
        }
        let (taken, all) = (begin.elapsed(), ROUNDS.len() as u64 * units);
        let (after, written) = (told()?, device.counts().written - begun);
        let share = live as f64 / units as f64;
        amounts.extend([
            ("amplification", written as f64 / (all * UNIT) as f64),
            ("theory", load.theory(share)),
            (
                "amplification-told",
                (after.all() - before.all()) as f64 / (after.asked - before.asked) as f64,
            ),
        ]);
        let mut pieces = run.pieces();
        pieces.add(all, taken);
        run.end_all_with(vec![("write", pieces.finish())], &amounts);
        Ok(())
    }
}

/// Writes `unit`, with something new in it.
fn write(volume: &Volume, content: &mut [u8], unit: u64) -> Outcome<()> {
    if let Some(first) = content.first_mut() {
        *first = first.wrapping_add(1);
    }
    volume.write(unit * PER_UNIT, content).map_err(failed("write to a volume"))
}

/// Which units are written.
struct Load {
    random: Random,
    live: u64,
    is_hot: bool,
    /// Where the hot part begins.
    from: u64,
}

impl Load {
    fn next(&mut self) -> u64 {
        if !self.is_hot {
            return self.random.below(self.live);
        }
        let hot = self.live * HOT / 10;
        let number = match self.random.below(10) < OFTEN {
            true => self.random.below(hot),
            false => hot + self.random.below(self.live - hot),
        };
        (self.from + number) % self.live
    }

    /// What is known to be possible if `share` of all units are live.
    fn theory(&self, share: f64) -> f64 {
        let tenths = |count: u64| count as f64 / 10.0;
        match self.is_hot {
            true => theory::separated(share, tenths(HOT), tenths(OFTEN)),
            false => theory::uniform(share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_writes_go_to_the_hot_part() {
        let mut load = Load { random: Random::new(1), live: 1000, is_hot: true, from: 950 };
        let mut counts = vec![0; 1000];
        (0..100_000).for_each(|_| counts[load.next() as usize] += 1);
        let hot: u64 = (0..100).map(|number| counts[(950 + number) % 1000]).sum();
        assert!((89_000..91_000).contains(&hot), "{hot}");
        assert!(counts.iter().all(|count| *count > 0));
        load.is_hot = false;
        assert!((load.theory(0.8) - 2.69).abs() < 0.01);
    }
}
