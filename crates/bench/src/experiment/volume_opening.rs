//! Opening a volume after the power was cut, at random moments and just before a checkpoint would
//! have been complete: how long it takes until it can be used.
//!
//! The device is in memory, and a power cut takes of what was not flushed each unit at random; so
//! what is measured is the work of recovery, and not the device's time.

use std::sync::Arc;
use std::time::Instant;

use super::{Experiment, Need, On, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Outcome};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::statistics::median;
use crate::volume::thin::{Cut, Thin};
use crate::volume::{Counted, PER_UNIT, UNIT, Volume, create, failed, recover};

/// The experiment.
pub(super) struct VolumeOpening;

const PHASES: [Phase; 6] = [
    amount("longest", Unit::Seconds),
    amount("half", Unit::Seconds),
    amount("before-a-checkpoint", Unit::Seconds),
    amount("after-a-checkpoint", Unit::Seconds),
    amount("extents", Unit::Each),
    amount("checksums", Unit::Each),
];
/// Bytes of roots, at the beginning of the device: its start and four segments.
const START: u64 = 64 << 10;
const ANCHORS: u64 = 4;
/// Bytes of the device besides its segments.
const AROUND: u64 = 1 << 20;
/// Writes that are waited for a checkpoint, for each extent.
const WRITES: u64 = 50;

const fn amount(id: &'static str, unit: Unit) -> Phase {
    Phase { id, unit, part: 0 }
}

impl Experiment for VolumeOpening {
    fn id(&self) -> &'static str {
        "volume-opening"
    }

    fn about(&self) -> &'static str {
        "opening a volume of many extents after power cuts, on a device in memory"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn on(&self) -> On {
        On::Memory
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |extents, segment, cuts| {
            let numbers = [("extents", extents), ("units", 16), ("segment", segment)];
            Parameters::of(&[&numbers[..], &[("fill", 80), ("cuts", cuts)]].concat())
        };
        vec![match size {
            Size::Smoke => point(2000, 64, 3),
            Size::Short => point(100_000, 256, 10),
            Size::Full => point(1 << 20, 2048, 50),
        }]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        in_range(parameters, "extents", 1000..=1 << 26)?;
        in_range(parameters, "units", 1..=256)?;
        in_range(parameters, "segment", 16..=1 << 16)?;
        in_range(parameters, "fill", 1..=80)?;
        in_range(parameters, "cuts", 1..=10_000)?;
        Ok(Need::default())
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let parameters = run.parameters.clone();
        let number = |name: &str| parameters.get(name);
        let (extents, units, segment) = (number("extents"), number("units"), number("segment"));
        let segments = (extents * units * 100 / number("fill")).div_ceil(segment).max(256);
        let thin = Arc::new(Thin::new(segments * segment * UNIT + AROUND));
        let device = Counted::new(Arc::clone(&thin) as _);
        create(&device, segment, run.random.number())?;
        let volume = recover(&device)?;
        let roots = START + ANCHORS * segment * UNIT;
        let mut opening =
            Opening { thin, device, roots, extents, units, random: run.random.clone(), volume };
        run.begin_all();
        let (amounts, shape) = opening.measure(number("cuts"))?;
        let all = [amounts.as_slice(), shape.as_slice()].concat();
        run.end_all_with(Vec::new(), &all);
        Ok(())
    }
}

/// The experiment under way.
struct Opening {
    thin: Arc<Thin>,
    device: Arc<Counted>,
    /// Roots end before this byte.
    roots: u64,
    extents: u64,
    units: u64,
    random: Random,
    volume: Volume,
}

type Amounts = Vec<(&'static str, f64)>;

impl Opening {
    /// Fills the volume, and cuts the power `cuts` times and once more: what opening took, and what
    /// there was.
    fn measure(&mut self, cuts: u64) -> Outcome<(Amounts, Amounts)> {
        for extent in 0..self.extents {
            self.write(extent)?;
        }
        self.volume.flush().map_err(failed("flush a volume"))?;
        self.volume.checkpoint().map_err(failed("write a checkpoint"))?;
        let info = self.volume.info().map_err(failed("look at a volume"))?;
        let shape = vec![("extents", info.map.extents as f64), ("checksums", info.used as f64)];
        let after = self.open()?;
        // So many requests there are from one checkpoint to the next.
        let before = self.device.counts().writes;
        let mut longest = self.cut(Cut::Within(self.roots))?;
        let between = self.device.counts().writes - before;
        let mut times = Vec::new();
        for _ in 0..cuts {
            let cut = Cut::After(self.random.below(between));
            times.push(self.cut(cut)?);
        }
        let last = self.cut(Cut::Within(self.roots))?.max(longest);
        longest = times.iter().copied().fold(0.0, f64::max);
        let amounts = vec![
            ("longest", longest),
            ("half", median(&times)),
            ("before-a-checkpoint", last),
            ("after-a-checkpoint", after),
        ];
        Ok((amounts, shape))
    }

    /// Writes all of an extent, with something new in it.
    fn write(&mut self, extent: u64) -> Outcome<()> {
        let word = self.random.number().to_le_bytes();
        let bytes = word.repeat((self.units * UNIT) as usize / word.len());
        // What follows is not next to it, so that it stays an extent of its own.
        let block = extent * (self.units + 1) * PER_UNIT;
        self.volume.write(block, &bytes).map_err(failed("write to a volume"))
    }

    /// Overwrites extents at random until the power goes, and opens the volume again: how long that
    /// took.
    fn cut(&mut self, cut: Cut) -> Outcome<f64> {
        self.thin.set_cut(cut);
        for _ in 0..WRITES * self.extents {
            let extent = self.random.below(self.extents);
            match self.write(extent) {
                Ok(()) => {}
                Err(_) if self.thin.is_off() => return self.open(),
                Err(error) => return Err(error),
            }
        }
        Err(CallError::of("cut the power", std::io::Error::other("nothing was written for long")))
    }

    /// Lets the power come back, and opens the volume: how long that took.
    fn open(&mut self) -> Outcome<f64> {
        // None of what was not flushed is lost, or all, or something in between.
        let lost = self.random.below(5) as f64 / 4.0;
        self.thin.restore(lost, &mut self.random);
        let begin = Instant::now();
        let volume = recover(&self.device)?;
        let taken = begin.elapsed();
        self.volume = volume;
        Ok(taken.as_secs_f64())
    }
}
