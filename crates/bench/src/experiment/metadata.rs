//! Operations on names and attributes, each kind in a phase of its own (SIM 6.1.3).

use std::ffi::CString;
use std::hint::black_box;

use rustix::fs::OFlags;

use super::files::Tree;
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError, Calls};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// The experiment.
pub(super) struct Metadata;

const PHASES: [Phase; 8] = [
    Phase { id: "mkdir", unit: Unit::Files, part: 0 },
    Phase { id: "create", unit: Unit::Files, part: 0 },
    Phase { id: "open", unit: Unit::Files, part: 0 },
    Phase { id: "stat", unit: Unit::Files, part: 0 },
    Phase { id: "list", unit: Unit::Files, part: 0 },
    Phase { id: "rename", unit: Unit::Files, part: 0 },
    Phase { id: "delete", unit: Unit::Files, part: 0 },
    Phase { id: "rmdir", unit: Unit::Files, part: 0 },
];

impl Experiment for Metadata {
    fn id(&self) -> &'static str {
        "metadata"
    }

    fn about(&self) -> &'static str {
        "operations on names and attributes, each kind by itself (SIM 6.1.3)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point =
            |files, directories| Parameters::of(&[("files", files), ("directories", directories)]);
        match size {
            Size::Smoke => vec![point(200, 20)],
            Size::Short => vec![point(20_000, 200)],
            // The second one has all files in one directory.
            Size::Full => vec![point(100_000, 1000), point(100_000, 1)],
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 32)?;
        let directories = in_range(parameters, "directories", 1..=1 << 24)?;
        Ok(Need { bytes: 0, files: 2 * files + 2 * directories, ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let files = run.parameters.get("files");
        let tree = Tree::new(files, run.parameters.get("directories"));
        // As many directories as files, so that these phases are as long as the others.
        let more: Vec<CString> =
            (0..files).map(|at| calls::path(&format!("m{}/{at}", at / 1000))).collect();
        let above: Vec<CString> =
            (0..files.div_ceil(1000)).map(|at| calls::path(&format!("m{at}"))).collect();
        above.iter().try_for_each(|path| run.calls.mkdir(path))?;
        tree.make(&mut *run.calls)?;
        let renamed: Vec<CString> = tree
            .files
            .iter()
            .map(|path| calls::path(&format!("{}r", path.to_string_lossy())))
            .collect();
        // Files are not visited in the order in which they were made.
        let mut order: Vec<usize> = (0..tree.files.len()).collect();
        run.random.shuffle(&mut order);
        let old = || order.iter().filter_map(|at| tree.files.get(*at));
        let new = || order.iter().filter_map(|at| renamed.get(*at));
        each(run, "mkdir", more.iter(), |calls, path| calls.mkdir(path))?;
        let made = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        each(run, "create", tree.files.iter(), |calls, path| opened(calls, path, made))?;
        let reading = OFlags::RDONLY | OFlags::CLOEXEC;
        each(run, "open", old(), |calls, path| opened(calls, path, reading))?;
        each(run, "stat", old(), |calls, path| {
            black_box(calls.stat(path)?);
            Ok(())
        })?;
        list(run, &tree)?;
        each(run, "rename", old().zip(new()), |calls, (old, new)| calls.rename(old, new))?;
        each(run, "delete", new(), |calls, path| calls.unlink(path))?;
        each(run, "rmdir", more.iter(), |calls, path| calls.rmdir(path))
    }
}

/// The phase `phase`: `work` with each of `items`.
fn each<T>(
    run: &mut Run<'_>,
    phase: &'static str,
    items: impl Iterator<Item = T>,
    work: impl Fn(&mut dyn Calls, T) -> Result<(), CallError>,
) -> Result<(), CallError> {
    let mut watch = run.begin();
    for item in items {
        work(&mut *run.calls, item)?;
        watch.did(1);
    }
    run.end(phase, watch);
    Ok(())
}

fn opened(calls: &mut dyn Calls, path: &CString, flags: OFlags) -> Result<(), CallError> {
    let file = calls.open(path, flags)?;
    calls.close(file)
}

/// Lists the directories with files, ten times: the rate counts names.
fn list(run: &mut Run<'_>, tree: &Tree) -> Result<(), CallError> {
    let mut watch = run.begin();
    for _ in 0..10 {
        for (directory, names) in &tree.leaves {
            black_box(run.calls.list(directory)?);
            watch.did(*names);
        }
    }
    run.end("list", watch);
    Ok(())
}
