//! What it costs a process to reach a target's files before its first call: a store is attached, a
//! directory is entered.

use std::time::Instant;

use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Source};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// The experiment.
pub(super) struct Attach;

const COLD: &str = "cold";
const WARM: &str = "warm";

impl Experiment for Attach {
    fn id(&self) -> &'static str {
        "attach"
    }

    fn about(&self) -> &'static str {
        "reaching the files: nobody has a store attached, with clean caches, and while one has"
    }

    fn phases(&self) -> &'static [Phase] {
        const PHASES: [Phase; 2] = [
            Phase { id: COLD, unit: Unit::Attachments, part: 0 },
            Phase { id: WARM, unit: Unit::Attachments, part: 0 },
        ];
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let times = if size == Size::Smoke { 2 } else { 50 };
        vec![Parameters::of(&[("times", times)])]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        in_range(parameters, "times", 1..=1 << 20)?;
        Ok(Need { bytes: 0, files: 1, ..Need::default() })
    }

    fn reaches(&self) -> bool {
        true
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let times = run.parameters.get("times");
        let Source::Later(answering) = run.source() else {
            return Ok(());
        };
        run.begin_all();
        let (mut cold, mut warm) = (run.pieces(), run.pieces());
        for _ in 0..times {
            run.clean_caches();
            let begin = Instant::now();
            let first = Source::reach(answering)?;
            cold.add(1, begin.elapsed());
            let begin = Instant::now();
            let second = Source::reach(answering)?;
            warm.add(1, begin.elapsed());
            second.leave()?;
            first.leave()?;
        }
        run.end_all(vec![(COLD, cold.finish()), (WARM, warm.finish())]);
        Ok(())
    }
}
