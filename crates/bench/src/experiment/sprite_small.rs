//! The small-file benchmark of Sprite's log-structured file system (CQ 5.1.1).

use rustix::fs::OFlags;

use super::files::{Tree, consume};
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// Creates, reads, looks at and unlinks files of 1 KiB.
pub(super) struct SpriteSmall;

impl Experiment for SpriteSmall {
    fn id(&self) -> &'static str {
        "sprite-small"
    }

    fn about(&self) -> &'static str {
        "create, read, stat and unlink small files, each phase by a process of its own (CQ 5.1.1)"
    }

    fn phases(&self) -> &'static [Phase] {
        const PHASES: [Phase; 4] = [
            Phase { id: "create", unit: Unit::Files, part: 0 },
            Phase { id: "read", unit: Unit::Files, part: 1 },
            Phase { id: "stat", unit: Unit::Files, part: 2 },
            Phase { id: "unlink", unit: Unit::Files, part: 3 },
        ];
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let (files, directories) = match size {
            Size::Smoke => (200, 10),
            Size::Short | Size::Full => (10_000, 100),
        };
        vec![Parameters::of(&[("files", files), ("bytes", 1024), ("directories", directories)])]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 32)?;
        let bytes = in_range(parameters, "bytes", 0..=1 << 30)?;
        let directories = in_range(parameters, "directories", 1..=1 << 24)?;
        Ok(Need { bytes: files * bytes, files: files + 2 * directories, ..Need::default() })
    }

    fn run(&self, part: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let tree = Tree::new(run.parameters.get("files"), run.parameters.get("directories"));
        let mut content = run.random.bytes(run.parameters.get("bytes") as usize);
        if part == 0 {
            tree.make(&mut *run.calls)?;
        }
        let mut watch = run.begin();
        let calls = &mut *run.calls;
        match part {
            0 => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                for path in &tree.files {
                    let file = calls.open(path, flags)?;
                    calls.write(file, &content)?;
                    calls.close(file)?;
                    watch.did(1);
                }
            }
            1 => {
                for path in &tree.files {
                    let file = calls.open(path, OFlags::RDONLY | OFlags::CLOEXEC)?;
                    calls.read(file, &mut content)?;
                    consume(&content);
                    calls.close(file)?;
                    watch.did(1);
                }
            }
            2 => {
                for path in &tree.files {
                    std::hint::black_box(calls.stat(path)?);
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
        let phase = self.phases().get(part).map_or("", |phase| phase.id);
        run.end(phase, watch);
        Ok(())
    }
}
