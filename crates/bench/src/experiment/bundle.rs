//! Operations on small files, one by one and in bundles (MB 10): what entering the kernel, or doing
//! again what the operation before has done, costs.

use std::ffi::CString;

use super::files::{Tree, consume};
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{Bundled, CallError, FILES_MAX, alone};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::target::Name;

/// Each operation of `sprite-small`, all of them one by one and then all in bundles; each phase by
/// a process of its own.
pub(super) struct Bundle;

const PHASES: [Phase; 8] = [
    Phase { id: "create", unit: Unit::Files, part: 0 },
    Phase { id: "read", unit: Unit::Files, part: 1 },
    Phase { id: "stat", unit: Unit::Files, part: 2 },
    Phase { id: "unlink", unit: Unit::Files, part: 3 },
    Phase { id: "create-bundled", unit: Unit::Files, part: 4 },
    Phase { id: "read-bundled", unit: Unit::Files, part: 5 },
    Phase { id: "stat-bundled", unit: Unit::Files, part: 6 },
    Phase { id: "unlink-bundled", unit: Unit::Files, part: 7 },
];
/// Operations.
const OPERATIONS: usize = 4;

impl Experiment for Bundle {
    fn id(&self) -> &'static str {
        "bundle"
    }

    fn about(&self) -> &'static str {
        "create, read, stat and unlink small files one by one and in bundles (MB 10)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |files, directories, bundle| {
            let small = [("files", files), ("bytes", 1024), ("directories", directories)];
            Parameters::of(&[&small[..], &[("bundle", bundle)]].concat())
        };
        match size {
            Size::Smoke => vec![point(200, 10, 16)],
            Size::Short => vec![point(10_000, 100, 64)],
            Size::Full => [1, 4, 16, 64, 256].map(|bundle| point(10_000, 100, bundle)).into(),
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 31)?;
        let bytes = in_range(parameters, "bytes", 0..=1 << 30)?;
        let directories = in_range(parameters, "directories", 1..=1 << 24)?;
        in_range(parameters, "bundle", 1..=FILES_MAX)?;
        Ok(Need { bytes: files * bytes, files: files + 2 * directories, ..Need::default() })
    }

    fn lack(&self, target: &Name) -> Option<&'static str> {
        let is_mounted = matches!(target, Name::Fuse | Name::HybridFuse);
        let is_kernel = is_mounted || matches!(target, Name::Kernel(_) | Name::Directory(_));
        (is_kernel && !conquest_uring::Ring::is_possible())
            .then_some("bundles need io_uring, which the kernel does not have or allow here")
    }

    fn run(&self, part: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let phase = self.phases().get(part).map_or("", |phase| phase.id);
        let (operation, is_bundled) = (part % OPERATIONS, part >= OPERATIONS);
        let tree = Tree::new(run.parameters.get("files"), run.parameters.get("directories"));
        let content = run.random.bytes(run.parameters.get("bytes") as usize);
        // As many whether there are bundles or not: so many caches hold them or don't.
        let mut buffers = vec![content.clone(); run.parameters.get("bundle") as usize];
        if part == 0 {
            // Who comes second finds empty directories, and space that was used before: so does
            // who comes first.
            tree.make(&mut *run.calls)?;
            for path in &tree.files {
                alone(&mut *run.calls, &mut Bundled::Create(path, &content))?;
            }
            for path in &tree.files {
                alone(&mut *run.calls, &mut Bundled::Unlink(path))?;
            }
        }
        let mut watch = run.begin();
        for paths in tree.files.chunks(buffers.len()) {
            let files = paths.iter().zip(&mut buffers);
            let mut files: Vec<_> =
                files.map(|(path, buffer)| wanted(operation, path, &content, buffer)).collect();
            match is_bundled {
                true => run.calls.bundle(&mut files)?,
                false => files.iter_mut().try_for_each(|file| alone(&mut *run.calls, file))?,
            }
            if operation == 1 {
                buffers.iter().take(paths.len()).for_each(|buffer| consume(buffer));
            }
            watch.did(paths.len() as u64);
        }
        run.end(phase, watch);
        Ok(())
    }
}

/// What is done with the file at `path`.
fn wanted<'b>(
    operation: usize,
    path: &'b CString,
    content: &'b [u8],
    buffer: &'b mut [u8],
) -> Bundled<'b> {
    match operation {
        0 => Bundled::Create(path, content),
        1 => Bundled::Read(path, buffer),
        2 => Bundled::Stat(path),
        _ => Bundled::Unlink(path),
    }
}
