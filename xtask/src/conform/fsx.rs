//! `conform fsx`: random operations on the bytes of one file, compared with a model.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::options::Options;
use super::room::Room;
use super::target::{Kind, Target};
use super::volume::Space;
use super::{data, judged, step, tools, watch};
use crate::Failure;
use crate::tally::Tally;

/// Name and version in the crate registry.
pub(super) const TOOL: (&str, &str) = ("fsx", "0.3.2");
/// Its configurations: a file of 1 MiB, and one of 256 MiB with operations of up to 4 MiB.
const CONFIGURATIONS: [&str; 2] = ["fsx", "fsx-large"];
/// For a file whose length stays.
const OF_SPACES: [&str; 1] = ["fsx-space"];
/// Longest time for one run.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs it: a case is a configuration and a seed, and the file that is left is still the same when
/// the file system was unmounted.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    judged(room, options, |target| {
        let mut tally = Tally::default();
        let is_space = options.on == Kind::Space;
        let configurations = if is_space { &OF_SPACES[..] } else { &CONFIGURATIONS };
        for configuration in configurations {
            let name = if is_space { Space::FILE } else { configuration };
            let file = target.directory().join(name);
            for seed in 1..=options.seeds {
                let name = format!("{configuration}-{seed}");
                if options.wants(&name) {
                    tally += one(room, options, configuration, seed, &file)?;
                }
            }
            if file.exists() {
                tally += kept(target, &file)?;
                if !is_space {
                    std::fs::remove_file(&file)
                        .map_err(|e| Failure::system("can't remove", &file, &e))?;
                }
            }
        }
        Ok(tally)
    })
}

fn one(
    room: &Room,
    options: &Options,
    configuration: &str,
    seed: u64,
    file: &Path,
) -> Result<Tally, Failure> {
    let name = format!("{configuration}-{seed}");
    let log = room.logs.join(format!("{name}.log"));
    let mut command = Command::new(tools::path(TOOL.0, TOOL.1));
    command.arg("-f").arg(data(&format!("{configuration}.toml")));
    command.args(["-S", &seed.to_string(), "-N", &options.operations.to_string()]);
    // With it, the file of a failed run is kept among the logs.
    command.arg("-P").arg(&room.logs).arg(file);
    command.env("RUST_BACKTRACE", "0");
    let start = Instant::now();
    let ended = watch::run_logged(&mut command, LIMIT, &log)?;
    println!("{name}: {ended}, {:.1} s", start.elapsed().as_secs_f64());
    if !ended.is_well() {
        let text = std::fs::read(&log).unwrap_or_default();
        println!("  {}", step::tail(&String::from_utf8_lossy(&text), 3));
    }
    Ok(Tally::one(ended.is_well()))
}

/// Whether `file` is the same after unmounting and mounting.
fn kept(target: &mut dyn Target, file: &Path) -> Result<Tally, Failure> {
    let read = || {
        watch::within(step::LIMIT, || std::fs::read(file))
            .map_err(|e| Failure::system("can't read", file, &e))
    };
    let before = read()?;
    target.remount()?;
    let is_same = read()? == before;
    if !is_same {
        println!("{}: FAILED: another content after unmounting and mounting", file.display());
    }
    Ok(Tally::one(is_same))
}
