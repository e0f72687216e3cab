//! Bytes in memory that all share, and a device to which one process writes them for all who wait:
//! a floor for what is made durable. It is on a device as file systems of the kernel have it.

use std::fs::File;
use std::path::PathBuf;

use super::device::{Backing, Device};
use super::{Survives, Target, store};
use crate::calls::{Answering, LEADER_BYTES};
use crate::experiment::Need;
use crate::{Error, Result};

/// Bytes of the device: written again from the beginning on when it is full.
const DEVICE: u64 = 256 << 20;

/// It.
pub(super) struct Leader {
    directory: PathBuf,
    disk: PathBuf,
    backing: Option<Backing>,
    device: Option<Device>,
}

impl Leader {
    /// In the empty directory `directory`, in memory, which goes with it, with a device in the
    /// directory `disk`.
    pub(super) fn new(directory: PathBuf, disk: PathBuf) -> Leader {
        Leader { directory, disk, backing: None, device: None }
    }

    fn memory(&self) -> PathBuf {
        self.directory.join("memory")
    }
}

impl Target for Leader {
    fn make(&mut self, _: Need, owner: Option<(u32, u32)>) -> Result<()> {
        self.remove()?;
        let backing = match self.backing.take() {
            Some(backing) => backing,
            None => Backing::of_zeros(&self.disk, DEVICE)?,
        };
        let device = self.device.insert(backing.attach()?);
        self.backing = Some(backing);
        store::give(&device.path, owner)?;
        let memory = self.memory();
        let named = || Error::system(&memory.display().to_string());
        std::fs::create_dir_all(&self.directory).map_err(named())?;
        let file = File::create_new(&memory).map_err(named())?;
        file.set_len(LEADER_BYTES).map_err(named())?;
        store::give(&memory, owner)
    }

    fn answering(&self) -> Answering {
        let device = self.device.as_ref().map(|device| device.path.clone()).unwrap_or_default();
        Answering::Leader { memory: self.memory(), device }
    }

    fn options(&self) -> Vec<String> {
        let is_direct = self.device.as_ref().is_some_and(|device| device.is_direct);
        vec![
            format!("{} MiB of memory, a device of {} MiB", LEADER_BYTES >> 20, DEVICE >> 20),
            if is_direct { "direct I/O" } else { "through the page cache below" }.to_owned(),
        ]
    }

    fn survives(&self) -> Survives {
        Survives::PowerAfterSync
    }

    fn remove(&mut self) -> Result<()> {
        self.device = None;
        store::destroy(&self.directory)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // What could be said of it was said before.
        let _ = self.remove();
    }
}
