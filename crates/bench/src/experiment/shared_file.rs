//! Many threads on one file (SIM 6.1.2): reading, writing in places of their own, and both at once.

use rustix::fs::OFlags;

use super::files::consume;
use super::throughput::fill;
use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;

/// The experiment.
pub(super) struct SharedFile;

const PHASES: [Phase; 3] = [
    Phase { id: "read", unit: Unit::Bytes, part: 0 },
    Phase { id: "write", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-while-written", unit: Unit::Bytes, part: 0 },
];

impl Experiment for SharedFile {
    fn id(&self) -> &'static str {
        "shared-file"
    }

    fn about(&self) -> &'static str {
        "threads that read and write one file at random places (SIM 6.1.2)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |threads, bytes, requests| {
            let numbers =
                [("request", 4096), ("threads", threads), ("bytes", bytes), ("requests", requests)];
            Parameters::of(&numbers)
        };
        match size {
            Size::Smoke => vec![point(2, 1 << 20, 500)],
            Size::Short => [1, 2].map(|threads| point(threads, 64 << 20, 50_000)).to_vec(),
            Size::Full => {
                [1, 2, 4, 8, 16].map(|threads| point(threads, 256 << 20, 200_000)).to_vec()
            }
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let bytes = in_range(parameters, "bytes", 1 << 10..=1 << 42)?;
        in_range(parameters, "request", 1..=bytes)?;
        in_range(parameters, "requests", 1..=1 << 40)?;
        in_range(parameters, "threads", 1..=1024)?;
        Ok(Need { bytes, files: 1 })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let number = |name: &str| run.parameters.get(name);
        let (threads, bytes) = (number("threads") as usize, number("bytes"));
        let (request, requests) = (number("request"), number("requests"));
        let content = run.random.bytes(1 << 20);
        fill(run, 0, bytes, &content)?;
        let (path, seed) = (calls::path("file0"), run.random.number());
        for phase in PHASES {
            run.threads(phase.id, threads, |thread, calls, counter| {
                let is_read = match phase.id {
                    "read" => true,
                    "write" => false,
                    // With one thread, it does both in turn.
                    _ => thread % 2 == 1,
                };
                let does_both = threads == 1 && phase.id == "read-while-written";
                let mut random = Random::new(seed ^ thread as u64);
                let mut buffer = random.bytes(request as usize);
                let file = calls.open(&path, OFlags::RDWR | OFlags::CLOEXEC)?;
                for round in 0..requests {
                    let offset = random.below(bytes / request) * request;
                    let count = match is_read || (does_both && round % 2 == 1) {
                        true => {
                            let count = calls.read_at(file, &mut buffer, offset)?;
                            consume(&buffer);
                            count
                        }
                        false => calls.write_at(file, &buffer, offset)?,
                    };
                    counter.did(count as u64);
                }
                calls.close(file)
            })?;
        }
        Ok(())
    }
}
