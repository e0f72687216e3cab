//! A power failure, as far as a program can make one: all processes that use a store are killed,
//! and what it has in RAM is taken away. What its disk would lose is not.

use std::path::Path;
use std::time::{Duration, Instant};

use conquest::Id;
use rustix::process::{Pid, Signal, kill_process};

use super::scratch::Scratch;
use super::worker::{Crew, Done};
use crate::reason::{Reason, Result};

/// Where indexes of volumes are.
const SHARED: &str = "/dev/shm";
/// Longest wait for a keeper to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills `crew` and the keeper of the store in `scratch`, and removes its core and the index of its
/// `volume`. What each member of the crew had done.
pub(super) fn cut(scratch: &Scratch, volume: Id, crew: Crew) -> Result<Vec<Done>> {
    let directory = scratch.path().join("store");
    let done = crew.kill()?;
    let since = Instant::now();
    while let Some(keeper) = conquest::keeper_of(&directory) {
        if let Some(keeper) = Pid::from_raw(keeper.cast_signed()) {
            // It may have just ended.
            let _ = kill_process(keeper, Signal::KILL);
        }
        if since.elapsed() > PATIENCE {
            return Err(Reason::rule("the store's keeper did not end"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::remove_file(scratch.core())?;
    remove_indexes(volume)?;
    Ok(done)
}

/// Removes the index of `volume`.
pub(super) fn remove_indexes(volume: Id) -> Result<()> {
    let simple: String = volume.to_string().chars().filter(|it| *it != '-').collect();
    let prefix = format!("conquest-volume-{simple}-");
    for entry in std::fs::read_dir(Path::new(SHARED))? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
