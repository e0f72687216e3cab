//! Many threads or processes on one file (SIM 6.1.2): reading, writing at random places, and both
//! at once.

use rustix::fs::OFlags;

use super::files::consume;
use super::many::now;
use super::throughput::fill;
use super::{Beside, Experiment, Need, Phase, Run, Size, Unit, in_range};
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
        "threads and processes that read and write one file at random places (SIM 6.1.2)"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |threads, processes, bytes, requests| {
            Parameters::of(&[
                ("request", 4096),
                ("threads", threads),
                ("processes", processes),
                ("bytes", bytes),
                ("requests", requests),
            ])
        };
        match size {
            Size::Smoke => {
                vec![point(2, 1, 1 << 20, 500), point(1, 2, 1 << 20, 500)]
            }
            Size::Short => [(1, 1), (2, 1), (1, 2)]
                .map(|(threads, processes)| point(threads, processes, 64 << 20, 50_000))
                .to_vec(),
            Size::Full => {
                let threads = [1, 2, 4, 8, 16].map(|count| (count, 1));
                let processes = [2, 4, 8, 16].map(|count| (1, count));
                let all = threads.into_iter().chain(processes);
                all.map(|(threads, processes)| point(threads, processes, 256 << 20, 200_000))
                    .collect()
            }
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let bytes = in_range(parameters, "bytes", 1 << 10..=1 << 42)?;
        in_range(parameters, "request", 1..=bytes)?;
        in_range(parameters, "requests", 1..=1 << 40)?;
        in_range(parameters, "threads", 1..=1024)?;
        in_range(parameters, "processes", 1..=256)?;
        Ok(Need { bytes, files: 1, ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let content = run.random.bytes(1 << 20);
        fill(run, 0, run.parameters.get("bytes"), &content)?;
        let processes = run.parameters.get("processes") as usize;
        for (number, phase) in PHASES.iter().enumerate() {
            match processes {
                ..=1 => threads(phase.id, 0, run)?,
                _ => run.processes(phase.id, number, processes)?,
            }
        }
        Ok(())
    }

    fn beside(&self, beside: Beside, run: &mut Run<'_>) -> Result<(), CallError> {
        match PHASES.get(beside.phase) {
            Some(phase) => threads(phase.id, beside.number, run),
            None => Ok(()),
        }
    }
}

/// What the threads of one process do in the phase `phase`; `process` is its number.
fn threads(phase: &'static str, process: usize, run: &mut Run<'_>) -> Result<(), CallError> {
    let number = |name: &str| run.parameters.get(name);
    let (threads, processes) = (number("threads") as usize, number("processes") as usize);
    let (bytes, request, requests) = (number("bytes"), number("request"), number("requests"));
    let (path, seed) = (calls::path("file0"), run.random.number());
    let until = run.request().beside.map_or(0, |beside| beside.until());
    let is_mixed = phase == "read-while-written";
    run.threads(phase, threads, |thread, calls, counter| {
        let is_reader = match is_mixed {
            true => (process * threads + thread) % 2 == 1,
            false => phase == "read",
        };
        // Who is alone does both in turn.
        let does_both = is_mixed && threads * processes == 1;
        let mut random = Random::new(seed ^ thread as u64);
        let mut buffer = random.bytes(request as usize);
        let file = calls.open(&path, OFlags::RDWR | OFlags::CLOEXEC)?;
        loop {
            for round in 0..requests {
                let offset = random.below(bytes / request) * request;
                let count = match is_reader || (does_both && round % 2 == 1) {
                    true => {
                        let count = calls.read_at(file, &mut buffer, offset)?;
                        consume(&buffer);
                        count
                    }
                    false => calls.write_at(file, &buffer, offset)?,
                };
                counter.did(count as u64);
            }
            if now() >= until {
                break;
            }
        }
        calls.close(file)
    })
}
