//! The user-level test: an array in memory, written once and read twice, without any file
//! (MB 4.6.3).

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::stopwatch::Pieces;

/// Shows what caches do by themselves.
pub(super) struct Array;

const PHASES: [Phase; 3] = [
    Phase { id: "write", unit: Unit::Bytes, part: 0 },
    Phase { id: "read", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-again", unit: Unit::Bytes, part: 0 },
];
/// Least time of each phase: all are done in turn until each has had it.
const LEAST: Duration = Duration::from_millis(4);

impl Experiment for Array {
    fn id(&self) -> &'static str {
        "array"
    }

    fn about(&self) -> &'static str {
        "an array in memory, written once and read twice: what caches do by themselves (MB 4.6.3)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, caches: &Caches) -> Vec<Parameters> {
        let sizes = match size {
            Size::Smoke => vec![1 << 20],
            Size::Short | Size::Full => {
                caches.steps().into_iter().flat_map(|bytes| [bytes / 2, bytes * 4]).collect()
            }
        };
        sizes.into_iter().map(|bytes| Parameters::of(&[("bytes", bytes)])).collect()
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        in_range(parameters, "bytes", 4096..=1 << 40)?;
        Ok(Need::default())
    }

    fn has_files(&self) -> bool {
        false
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        run.leave_caches();
        let bytes = run.parameters.get("bytes");
        // Pages are there before anything is measured.
        let mut array = vec![1_u32; bytes as usize / size_of::<u32>()];
        let mut times = ORDER.map(|_| run.pieces());
        run.begin_all();
        let mut turns = 0;
        while turns < 2 || times.iter().any(|time| time.taken() < LEAST) {
            for (what, time) in ORDER.iter().zip(&mut times) {
                let begin = Instant::now();
                what.pass(&mut array);
                time.add(bytes, begin.elapsed());
            }
            if turns == 0 {
                times.iter_mut().for_each(Pieces::forget);
            }
            turns += 1;
        }
        let times = times.into_iter().map(Pieces::finish);
        run.end_all(PHASES.iter().map(|phase| phase.id).zip(times).collect());
        Ok(())
    }
}

/// What is done with the whole array.
enum Pass {
    Write,
    Read,
}

/// As the phases are.
const ORDER: [Pass; PHASES.len()] = [Pass::Write, Pass::Read, Pass::Read];

impl Pass {
    #[inline(never)]
    fn pass(&self, array: &mut [u32]) {
        match self {
            Pass::Write => {
                array.iter_mut().zip(0..).for_each(|(word, new)| *word = new);
                black_box(array);
            }
            Pass::Read => {
                let sum = array.iter().fold(0_u32, |sum, word| sum.wrapping_add(*word));
                black_box(sum);
            }
        }
    }
}
