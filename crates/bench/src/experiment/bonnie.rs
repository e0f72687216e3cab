//! The six metadata phases of Bonnie++ (MB 7): empty files in many directories, made, looked at and
//! deleted in order, and at random.

use std::ffi::CString;
use std::hint::black_box;

use rustix::fs::OFlags;

use super::files::Tree;
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// The experiment.
pub(super) struct Bonnie;

pub(super) const PHASES: [Phase; 6] = [
    Phase { id: "create-seq", unit: Unit::Files, part: 0 },
    Phase { id: "stat-seq", unit: Unit::Files, part: 0 },
    Phase { id: "delete-seq", unit: Unit::Files, part: 0 },
    Phase { id: "create-random", unit: Unit::Files, part: 0 },
    Phase { id: "stat-random", unit: Unit::Files, part: 0 },
    Phase { id: "delete-random", unit: Unit::Files, part: 0 },
];

impl Experiment for Bonnie {
    fn id(&self) -> &'static str {
        "bonnie"
    }

    fn about(&self) -> &'static str {
        "empty files, made, looked at and deleted, in order and at random: Bonnie++ (MB 7)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let (files, directories) = match size {
            Size::Smoke => (256, 16),
            Size::Short | Size::Full => (16 << 10, 1024),
        };
        vec![Parameters::of(&[("files", files), ("directories", directories)])]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 32)?;
        let directories = in_range(parameters, "directories", 1..=1 << 24)?;
        Ok(Need { bytes: 0, files: files + 2 * directories })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let tree = Tree::new(run.parameters.get("files"), run.parameters.get("directories"));
        tree.make(&mut *run.calls)?;
        for phase in PHASES {
            // Each phase has an order of its own: what is found by luck is found by all alike.
            let mut order: Vec<&CString> = tree.files.iter().collect();
            if phase.id.ends_with("random") {
                run.random.shuffle(&mut order);
            }
            let mut watch = run.begin();
            let calls = &mut *run.calls;
            for path in order {
                if phase.id.starts_with("create") {
                    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    let file = calls.open(path, flags)?;
                    calls.close(file)?;
                } else if phase.id.starts_with("stat") {
                    black_box(calls.stat(path)?);
                } else {
                    calls.unlink(path)?;
                }
                watch.did(1);
            }
            run.end(phase.id, watch);
        }
        Ok(())
    }
}
