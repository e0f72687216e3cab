//! The user-level test: an array in memory, written once and read twice, without any file
//! (MB 4.6.3).

use std::hint::black_box;

use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// Shows what caches do by themselves.
pub(super) struct Array;

impl Experiment for Array {
    fn id(&self) -> &'static str {
        "array"
    }

    fn about(&self) -> &'static str {
        "an array in memory, written once and read twice: what caches do by themselves (MB 4.6.3)"
    }

    fn phases(&self) -> &'static [Phase] {
        const PHASES: [Phase; 3] = [
            Phase { id: "write", unit: Unit::Bytes, part: 0 },
            Phase { id: "read", unit: Unit::Bytes, part: 0 },
            Phase { id: "read-again", unit: Unit::Bytes, part: 0 },
        ];
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
        for round in 0..2 {
            let is_warm = round == 1;
            for phase in self.phases() {
                let mut watch = run.begin();
                // Pieces of a page, so that the clock can be looked at in between.
                for (number, page) in array.chunks_mut(1024).enumerate() {
                    if phase.id == "write" {
                        page.iter_mut().zip(number as u32..).for_each(|(word, new)| *word = new);
                        black_box(&mut *page);
                    } else {
                        let sum = page.iter().fold(0_u32, |sum, word| sum.wrapping_add(*word));
                        black_box(sum);
                    }
                    watch.did(size_of_val(page) as u64);
                }
                if is_warm {
                    run.end(phase.id, watch);
                }
            }
        }
        Ok(())
    }
}
