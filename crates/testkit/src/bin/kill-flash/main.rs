//! Kills and stops real processes that work on one volume. Each thread of each process has a slice
//! of the space, and knows what it holds; some units are everybody's. Whatever is killed, all that
//! was acknowledged is there; and if the index is lost with that, or the power is cut, all that was
//! flushed, and of the rest the first operations in their order, each whole.

mod board;
mod examine;
mod judge;
#[path = "../kill/mod.rs"]
#[allow(dead_code, reason = "other programs use the rest")]
mod kill;
mod operation;
#[path = "../os/mod.rs"]
#[allow(dead_code, reason = "other programs use the rest")]
mod os;
mod place;
mod power;
mod requests;
mod rounds;
mod share;
mod space;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use kill::tally::{Tally, counted};
use place::Devices;
use rounds::Run;

const USAGE: &str = "\
usage: kill-flash [--operations N] [--openings N] [--seed S] [--processes P] [--threads T]
                  [--full PERCENT] [--mib N] [--segment UNITS]
                  [--devices 1|striped:N|mirrored:N] [--directory DIR] [--cuts N] [--kills N]
  --operations N    in all, 10000000 unless told otherwise
  --openings N      in how many rounds, each of which ends with all processes closing the volume or
                    killed, 1000 unless told otherwise
  --seed S          decides what is done, and when somebody is killed, but not when he gets to run
  --full PERCENT    of what the volume can hold is in use at least, 85 unless told otherwise
  --mib N           that the devices have together, 64 unless told otherwise
  --directory DIR   where the devices are; in memory unless told otherwise
  --cuts N          moments of rounds in which a log is kept at which the power is cut, 1000 unless
                    told otherwise
  --kills N         a slice: N openings, 100 N operations and N / 4 cuts";

/// Percent of what the volume can hold that come and go.
pub(crate) const LEAST_BELOW: u64 = 7;

/// What to do.
pub(crate) struct Plan {
    operations: u64,
    openings: u64,
    seed: u64,
    processes: usize,
    threads: usize,
    full: u64,
    mib: u64,
    segment: u64,
    devices: Devices,
    directory: Option<PathBuf>,
    cuts: u64,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let mut plan = Plan {
        operations: 10_000_000,
        openings: 1000,
        seed: 1,
        processes: 4,
        threads: 4,
        full: 85,
        mib: 64,
        segment: 64,
        devices: Devices::parse("1")?,
        directory: None,
        cuts: 1000,
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        let number = value.parse::<u64>().ok();
        match argument.as_str() {
            "--operations" => plan.operations = number?,
            "--openings" => plan.openings = number?.max(1),
            "--seed" => plan.seed = number?,
            "--processes" => plan.processes = number?.clamp(1, 16) as usize,
            "--threads" => plan.threads = number?.clamp(1, 16) as usize,
            "--full" => plan.full = number?.clamp(10, 98),
            "--mib" => plan.mib = number?,
            "--segment" => plan.segment = number?,
            "--devices" => plan.devices = Devices::parse(&value)?,
            "--directory" => plan.directory = Some(value.into()),
            "--cuts" => plan.cuts = number?,
            "--kills" => {
                plan.openings = number?.max(1);
                (plan.operations, plan.cuts) = (plan.openings * 100, plan.openings / 4);
            }
            _ => return None,
        }
    }
    Some(plan)
}

/// The run, and how to do about the same again if it fails.
fn run(plan: &Plan, tally: &Tally) -> Result<(), String> {
    let begin = Instant::now();
    let mut run = Run::new(plan)?;
    let outcome = run.run(tally);
    println!("{}", run.figures());
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    outcome
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(plan) = parse(arguments.iter().cloned()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    counted(|tally| {
        run(&plan, tally).map_err(|error| {
            let (seed, given) = (plan.seed, arguments.join(" "));
            format!("{error}; seed {seed}: cargo xtask kill flash {given} --seed {seed}")
        })
    })
}
