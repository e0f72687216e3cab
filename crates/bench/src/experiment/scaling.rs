//! How costs grow with the number of files: ten thousand and ten million.

use std::hint::black_box;

use rustix::fs::OFlags;

use super::files::Tree;
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// The experiment.
pub(super) struct Scaling;

/// Files that are looked at, however many there are.
const LOOKS: u64 = 100_000;

const PHASES: [Phase; 3] = [
    Phase { id: "create", unit: Unit::Files, part: 0 },
    Phase { id: "stat-random", unit: Unit::Files, part: 1 },
    Phase { id: "unlink", unit: Unit::Files, part: 2 },
];

impl Experiment for Scaling {
    fn id(&self) -> &'static str {
        "scaling"
    }

    fn about(&self) -> &'static str {
        "how costs grow with the number of files, from ten thousand to ten million"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let counts: &[u64] = match size {
            Size::Smoke => &[300],
            Size::Short => &[10_000, 100_000],
            Size::Full => &[10_000, 100_000, 1_000_000, 10_000_000],
        };
        let point = |files: &u64| {
            Parameters::of(&[("files", *files), ("directories", files.div_ceil(1000))])
        };
        counts.iter().map(point).collect()
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 32)?;
        let directories = in_range(parameters, "directories", 1..=1 << 24)?;
        Ok(Need { bytes: 0, files: files + 2 * directories, ..Need::default() })
    }

    fn run(&self, part: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let files = run.parameters.get("files");
        let tree = Tree::new(files, run.parameters.get("directories"));
        if part == 0 {
            tree.make(&mut *run.calls)?;
        }
        let looks: Vec<usize> =
            (0..LOOKS.min(10 * files)).map(|_| run.random.below(files) as usize).collect();
        let mut watch = run.begin();
        let calls = &mut *run.calls;
        match part {
            0 => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                for path in &tree.files {
                    let file = calls.open(path, flags)?;
                    calls.close(file)?;
                    watch.did(1);
                }
            }
            1 => {
                for path in looks.iter().filter_map(|at| tree.files.get(*at)) {
                    black_box(calls.stat(path)?);
                    watch.did(1);
                }
            }
            _ => {
                for path in &tree.files {
                    calls.unlink(path)?;
                    watch.did(1);
                }
            }
        }
        run.end(PHASES.get(part).map_or("", |phase| phase.id), watch);
        Ok(())
    }
}
