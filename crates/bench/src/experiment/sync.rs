//! Small changes made durable one by one, by processes beside each other: what mail servers, data
//! bases and build systems wait for.

use std::ffi::CString;

use rustix::fs::OFlags;

use super::many::now;
use super::{Beside, Experiment, Need, On, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;

/// The experiment.
pub(super) struct Sync;

const CREATE: Phase = Phase { id: "create-sync", unit: Unit::Files, part: 0 };
const APPEND: Phase = Phase { id: "append-sync", unit: Unit::Transactions, part: 0 };
const PHASES: [Phase; 2] = [CREATE, APPEND];
/// Bytes of a record that is appended.
const RECORD: usize = 128;

impl Experiment for Sync {
    fn id(&self) -> &'static str {
        "sync"
    }

    fn about(&self) -> &'static str {
        "small files made and records appended, each made durable by itself, by processes at once"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |processes, requests| {
            Parameters::of(&[("processes", processes), ("bytes", 4096), ("requests", requests)])
        };
        match size {
            Size::Smoke => vec![point(1, 20), point(2, 20)],
            Size::Short => vec![point(1, 500), point(16, 100)],
            Size::Full => [1, 2, 4, 8, 16, 32].map(|count| point(count, 20_000 / count)).to_vec(),
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let processes = in_range(parameters, "processes", 1..=256)?;
        let bytes = in_range(parameters, "bytes", 1..=1 << 30)?;
        let files = processes * in_range(parameters, "requests", 1..=1 << 30)?;
        // A record takes less than a page, and there are a million of them at most.
        Ok(Need { bytes: files * bytes + (256 << 20), files: files + processes, ..Need::default() })
    }

    fn on(&self) -> On {
        On::Durable
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let processes = run.parameters.get("processes") as usize;
        for (number, phase) in PHASES.iter().enumerate() {
            match processes {
                1 => one(phase.id, 0, run)?,
                _ => run.processes(phase.id, number, processes)?,
            }
        }
        Ok(())
    }

    fn beside(&self, beside: Beside, run: &mut Run<'_>) -> Result<(), CallError> {
        PHASES.get(beside.phase).map_or(Ok(()), |phase| one(phase.id, beside.number, run))
    }
}

/// What one process does in the phase `phase`; `process` is its number.
fn one(phase: &'static str, process: usize, run: &mut Run<'_>) -> Result<(), CallError> {
    let (bytes, requests) = (run.parameters.get("bytes"), run.parameters.get("requests"));
    let content = run.random.bytes(bytes as usize);
    let until = run.request().beside.map_or(0, |beside| beside.until());
    let name = |number: u64| -> CString { calls::path(&format!("{phase}-{process}-{number}")) };
    let to_write = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    run.threads(phase, 1, |_, calls, counter| {
        if phase == APPEND.id {
            let file = calls.open(&name(0), to_write | OFlags::APPEND)?;
            loop {
                for _ in 0..requests {
                    calls.write(file, content.get(..RECORD).unwrap_or(&content))?;
                    calls.sync(file)?;
                    counter.did(1);
                }
                if now() >= until {
                    return calls.close(file);
                }
            }
        }
        let mut is_again = false;
        loop {
            for number in 0..requests {
                let name = name(number);
                if is_again {
                    calls.unlink(&name)?;
                }
                let file = calls.open(&name, to_write | OFlags::EXCL)?;
                calls.write(file, &content)?;
                calls.sync(file)?;
                calls.close(file)?;
                counter.did(1);
            }
            if now() >= until {
                return Ok(());
            }
            is_again = true;
        }
    })
}
