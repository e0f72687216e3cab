//! The large-file benchmark of Sprite's log-structured file system, as it was and as the companion
//! paper corrects it (CQ 5.1.2; MB 2, 4.6.5, 5, 6).
//!
//! The original works on one file, reads it as the write has left the caches, puts its random
//! accesses at any byte, and makes one more call for each of these. Corrected, each phase goes
//! through several files of which the first does not count, begins with clean caches, keeps to
//! pages, touches each page once, and sequential accesses make the calls that random ones need.

use std::ffi::CString;

use rustix::fs::OFlags;

use super::files::consume;
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError, Opened};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// Bytes of one access.
const ACCESS: u64 = 4096;

/// The experiment, in one of its two forms.
pub(super) struct SpriteLarge {
    is_corrected: bool,
}

/// As it was published.
pub(super) const ORIGINAL: SpriteLarge = SpriteLarge { is_corrected: false };
/// As the companion paper has it.
pub(super) const CORRECTED: SpriteLarge = SpriteLarge { is_corrected: true };

const PHASES: [Phase; 5] = [
    Phase { id: "write-seq", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-seq", unit: Unit::Bytes, part: 0 },
    Phase { id: "write-random", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-random", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-seq-again", unit: Unit::Bytes, part: 0 },
];

impl Experiment for SpriteLarge {
    fn id(&self) -> &'static str {
        if self.is_corrected { "sprite-large" } else { "sprite-large-original" }
    }

    fn about(&self) -> &'static str {
        match self.is_corrected {
            true => "large files, sequentially and at random, corrected (MB 4.6.5, 5, 6)",
            false => "a large file, sequentially and at random, as published (CQ 5.1.2; MB 2)",
        }
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, caches: &Caches) -> Vec<Parameters> {
        let files = if self.is_corrected { 11 } else { 1 };
        let sizes = match size {
            Size::Smoke => vec![64 << 10],
            Size::Short => vec![1 << 20],
            // Either side of each cache, and the sizes of CQ 5.1.2 but for 100 MB files, of which
            // forty would fill the memory of most machines.
            Size::Full => {
                let steps = caches.steps().into_iter().flat_map(|bytes| [bytes / 2, bytes * 4]);
                let mut sizes: Vec<u64> = steps.chain([1 << 20, 1034 << 10]).collect();
                sizes.sort_unstable();
                sizes.dedup();
                sizes
            }
        };
        let point = |bytes| Parameters::of(&[("bytes", bytes), ("files", files)]);
        sizes.into_iter().map(point).collect()
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let bytes = in_range(parameters, "bytes", ACCESS..=1 << 40)?;
        let least = if self.is_corrected { 2 } else { 1 };
        let files = in_range(parameters, "files", least..=1 << 20)?;
        Ok(Need { bytes: bytes * files, files, ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        if !self.is_corrected {
            run.leave_caches();
        }
        let bytes = run.parameters.get("bytes");
        let files: Vec<CString> = (0..run.parameters.get("files"))
            .map(|number| calls::path(&format!("large{number}")))
            .collect();
        for phase in PHASES {
            let is_write = phase.id.starts_with("write");
            let is_random = phase.id.ends_with("random");
            if phase.id == "write-random" {
                // New files: what was written sequentially does not help.
                files.iter().try_for_each(|file| run.calls.unlink(file))?;
            }
            let orders: Vec<Vec<u64>> =
                files.iter().map(|_| self.offsets(run, bytes, is_random)).collect();
            let mut content = run.random.bytes(ACCESS as usize);
            let seeks = is_random || self.is_corrected;
            let mut watch = run.begin();
            for (number, (path, offsets)) in files.iter().zip(&orders).enumerate() {
                if self.is_corrected && number == 1 {
                    watch.restart();
                }
                let flags = match is_write {
                    true => OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC,
                    false => OFlags::RDONLY | OFlags::CLOEXEC,
                };
                let file = run.calls.open(path, flags)?;
                for &offset in offsets {
                    if seeks {
                        run.calls.seek(file, offset)?;
                    }
                    let done = match is_write {
                        true => run.calls.write(file, &content)?,
                        false => read(run, file, &mut content)?,
                    };
                    watch.did(done as u64);
                }
                if is_write {
                    run.calls.sync(file)?;
                }
                run.calls.close(file)?;
            }
            run.end(phase.id, watch);
        }
        Ok(())
    }
}

fn read(run: &mut Run<'_>, file: Opened, content: &mut [u8]) -> Result<usize, CallError> {
    let count = run.calls.read(file, content)?;
    consume(content.get(..count).unwrap_or_default());
    Ok(count)
}

impl SpriteLarge {
    /// Where a phase accesses a file of `bytes` bytes.
    fn offsets(&self, run: &mut Run<'_>, bytes: u64, is_random: bool) -> Vec<u64> {
        let mut offsets: Vec<u64> = (0..bytes / ACCESS).map(|at| at * ACCESS).collect();
        match (is_random, self.is_corrected) {
            (false, _) => {}
            (true, true) => run.random.shuffle(&mut offsets),
            (true, false) => {
                offsets.iter_mut().for_each(|at| *at = run.random.below(bytes - ACCESS + 1));
            }
        }
        offsets
    }
}
