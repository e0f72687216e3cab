//! Wear and damage of flash memory: how evenly a volume on simulated NAND has its blocks erased
//! while half of its data never changes, what that costs, and what comes of bits that turn over and
//! pages that die.

use std::time::{Duration, Instant};

use conquest_format::volume::Arrangement;

use super::{Bound, Experiment, Need, On, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Outcome};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::volume::damage::{Written, scrub};
use crate::volume::erased::{Erased, Erasures};
use crate::volume::{PER_UNIT, UNIT, failed};

/// The experiment.
pub(super) struct VolumeWear;

/// From the least to the most often erased block, at most, as a share of the mean.
const SPREAD: f64 = 0.15;
/// Write amplification with levelling, at most, by that without.
const COST: f64 = 1.1;
/// Erase blocks, and mean erasures, from which on that is wanted: levelling lets blocks be some
/// times behind the others, which is a large share of few; and what is kept free and open is a
/// large share of few blocks.
const ENOUGH: [u64; 2] = [2000, 100];
/// Of the units of a volume with damage, those that are written.
const HALF: u64 = 2;

const PHASES: [Phase; 19] = [
    each("spread"),
    each("least-erased"),
    each("most-erased"),
    each("mean-erased"),
    each("amplification"),
    each("amplification-by-unlevelled"),
    each("unlevelled-spread"),
    each("unlevelled-mean-erased"),
    each("unlevelled-amplification"),
    each("mirrored-injected"),
    each("mirrored-corrected"),
    each("mirrored-repaired"),
    each("mirrored-not-corrected"),
    each("alone-injected"),
    each("alone-detected"),
    each("alone-not-detected"),
    each("refused-without-damage"),
    each("wrong-bytes"),
    Phase { id: "write", unit: Unit::Requests, part: 0 },
];

const fn each(id: &'static str) -> Phase {
    Phase { id, unit: Unit::Each, part: 0 }
}

impl Experiment for VolumeWear {
    fn id(&self) -> &'static str {
        "volume-wear"
    }

    fn about(&self) -> &'static str {
        "wear and damage of simulated NAND, of which half the data never changes"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn bounds(&self, parameters: &Parameters) -> Vec<Bound> {
        let bound = |phase, most| Bound { phase, target: None, most };
        let mut all = vec![
            bound("mirrored-not-corrected", 0.0),
            bound("alone-not-detected", 0.0),
            bound("refused-without-damage", 0.0),
            bound("wrong-bytes", 0.0),
        ];
        let [blocks, erasures] = ENOUGH;
        if parameters.get("blocks") >= blocks && parameters.get("erasures") >= erasures {
            all.extend([bound("spread", SPREAD), bound("amplification-by-unlevelled", COST)]);
        }
        all
    }

    fn on(&self) -> On {
        On::Memory
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |blocks, erasures, bits, dead| {
            Parameters::of(&[
                ("blocks", blocks),
                ("pages", 16),
                ("fill", 85),
                ("erasures", erasures),
                ("bits", bits),
                ("dead", dead),
            ])
        };
        vec![match size {
            Size::Smoke => point(80, 5, 10, 10),
            Size::Short => point(250, 100, 100, 100),
            Size::Full => point(2000, 100, 1000, 1000),
        }]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let blocks = in_range(parameters, "blocks", 64..=1 << 20)?;
        let pages = in_range(parameters, "pages", 8..=1 << 12)?;
        in_range(parameters, "fill", 1..=92)?;
        in_range(parameters, "erasures", 1..=100_000)?;
        // All damaged units are others, of the quarter of all pages that surely has payload.
        let most = blocks * pages / 4;
        let bits = in_range(parameters, "bits", 0..=most)?;
        in_range(parameters, "dead", 0..=most - bits)?;
        Ok(Need::default())
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let wearing = Wearing { parameters: run.parameters.clone(), random: run.random.clone() };
        run.begin_all();
        let levelled = wearing.wear(true, None)?;
        let other = wearing.wear(false, Some(levelled.writes))?;
        let amounts = [wear_amounts(&levelled, &other), wearing.damage()?].concat();
        let mut pieces = run.pieces();
        pieces.add(levelled.writes, levelled.time);
        run.end_all_with(vec![("write", pieces.finish())], &amounts);
        Ok(())
    }
}

/// What wear came to.
#[derive(Clone, Copy, Debug)]
struct Worn {
    erasures: Erasures,
    /// Units written to the device for each that changed.
    amplification: f64,
    /// Units that changed, again and again.
    writes: u64,
    /// How long that took.
    time: Duration,
}

/// The experiment under way.
struct Wearing {
    parameters: Parameters,
    random: Random,
}

type Amounts = Vec<(&'static str, f64)>;

fn wear_amounts(levelled: &Worn, other: &Worn) -> Amounts {
    vec![
        ("spread", levelled.erasures.spread()),
        ("least-erased", levelled.erasures.least.into()),
        ("most-erased", levelled.erasures.most.into()),
        ("mean-erased", levelled.erasures.mean),
        ("amplification", levelled.amplification),
        ("amplification-by-unlevelled", levelled.amplification / other.amplification),
        ("unlevelled-spread", other.erasures.spread()),
        ("unlevelled-mean-erased", other.erasures.mean),
        ("unlevelled-amplification", other.amplification),
    ]
}

impl Wearing {
    fn number(&self, name: &str) -> u64 {
        self.parameters.get(name)
    }

    fn shape(&self) -> [u64; 2] {
        [self.number("blocks"), self.number("pages")]
    }

    /// Fills a volume, and overwrites one half of what it holds at random: so often as `writes`
    /// says, or until blocks were erased as often on average as wanted.
    fn wear(&self, is_levelled: bool, writes: Option<u64>) -> Outcome<Worn> {
        let mut random = self.random.clone();
        let made = Erased::new(Arrangement::Striped, 1, self.shape(), random.number())?;
        made.volume.level_wear(is_levelled);
        let info = made.volume.info().map_err(failed("look at a volume"))?;
        let units = info.capacity * self.number("fill") / 100;
        let changing = (units / 2).max(1);
        let mut content = random.bytes(UNIT as usize);
        let mut write = |unit: u64| {
            if let Some(first) = content.first_mut() {
                *first = first.wrapping_add(1);
            }
            made.volume.write(unit * PER_UNIT, &content).map_err(failed("write to a volume"))
        };
        for unit in 0..units {
            write(unit)?;
        }
        let (begun, wanted) = (made.written(), self.number("erasures") as f64);
        let (mut done, begin) = (0, Instant::now());
        loop {
            let is_over = match writes {
                Some(writes) => done >= writes,
                None => made.erasures().mean >= wanted,
            };
            if is_over {
                break;
            }
            for _ in 0..changing {
                write(random.below(changing))?;
            }
            done += changing;
        }
        let (time, written) = (begin.elapsed(), (made.written() - begun) as f64);
        let amplification = written / (done.max(1) * UNIT) as f64;
        Ok(Worn { erasures: made.erasures(), amplification, writes: done, time })
    }

    /// Damages a mirrored volume and one without a mirror. The mirrored one is scrubbed then; what
    /// cleaning has moved meanwhile, by the copy that was right, scrubbing does not find.
    fn damage(&self) -> Outcome<Amounts> {
        let mut random = self.random.clone();
        let wanted = [self.number("bits"), self.number("dead")];
        let mut damaged = |arrangement, count| {
            let made = Erased::new(arrangement, count, self.shape(), random.number())?;
            let info = made.volume.info().map_err(failed("look at a volume"))?;
            let units = info.capacity / HALF;
            let written = Written::to(&made, units, 2 * units, &mut random)?;
            let units = written.damage(&made, wanted, &mut random)?;
            let mut read = written.read(&made, &units)?;
            let [_, repaired] = scrub(&made)?;
            let mut left = 0;
            if arrangement == Arrangement::Mirrored {
                // What was written anew has to be right, too, and nothing be left.
                let again = written.read(&made, &[])?;
                read.refused += again.refused;
                read.wrong += again.wrong;
                [left, _] = scrub(&made)?;
            }
            Outcome::Ok((units.len() as u64, read, [repaired, left]))
        };
        let (mirrored, corrected, [repaired, left]) = damaged(Arrangement::Mirrored, 2)?;
        let (alone, detected, _) = damaged(Arrangement::Striped, 1)?;
        let numbers = [
            ("mirrored-injected", mirrored),
            ("mirrored-corrected", corrected.corrected),
            ("mirrored-repaired", repaired),
            ("mirrored-not-corrected", mirrored - corrected.corrected + left),
            ("alone-injected", alone),
            ("alone-detected", detected.detected),
            ("alone-not-detected", alone - detected.detected),
            ("refused-without-damage", corrected.refused + detected.refused),
            ("wrong-bytes", corrected.wrong + detected.wrong),
        ];
        Ok(numbers.map(|(phase, number)| (phase, number as f64)).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levelled_blocks_are_erased_more_evenly() {
        let parameters = Parameters::of(&[
            ("blocks", 100),
            ("pages", 16),
            ("fill", 85),
            ("erasures", 40),
            ("bits", 8),
            ("dead", 8),
        ]);
        let wearing = Wearing { parameters, random: Random::new(1) };
        let levelled = wearing.wear(true, None).unwrap();
        let other = wearing.wear(false, Some(levelled.writes)).unwrap();
        assert!(levelled.erasures.mean >= 40.0 && levelled.writes == other.writes);
        assert!(levelled.erasures.spread() < 0.5 * other.erasures.spread());
        let found = wear_amounts(&levelled, &other);
        let amount = |of: &Amounts, name| of.iter().find(|(phase, _)| *phase == name).unwrap().1;
        assert!(amount(&found, "amplification-by-unlevelled") < 1.3, "{found:?}");
        let found = wearing.damage().unwrap();
        for (phase, number) in [
            ("mirrored-injected", 16.0),
            ("mirrored-corrected", 16.0),
            ("mirrored-not-corrected", 0.0),
            ("alone-detected", 16.0),
            ("wrong-bytes", 0.0),
        ] {
            assert!(amount(&found, phase) == number, "{found:?}");
        }
    }

    /// How evenly few erasures of few blocks are spread says little.
    #[test]
    fn wear_is_bounded_if_there_is_enough_of_it() {
        let bounds = |size| {
            let points = VolumeWear.points(size, &Caches::default());
            let all = points.iter().flat_map(|point| VolumeWear.bounds(point));
            all.filter(|bound| bound.most > 0.0).count()
        };
        assert_eq!([Size::Smoke, Size::Short, Size::Full].map(bounds), [0, 0, 2]);
    }
}
