//! A bare device, or a bare volume on one: each file is a range of it. It is on a device as file
//! systems of the kernel have it.

use std::path::PathBuf;

use super::device::{Backing, Device};
use super::{Survives, Target, store};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::volume::{Counted, create, device};
use crate::{Error, Result};

/// It.
pub(super) struct Ranges {
    disk: PathBuf,
    backing: Option<Backing>,
    device: Option<Device>,
    /// Whether there is a volume on the device.
    has_volume: bool,
    /// Bytes of each file.
    each: u64,
    /// How often it was made.
    made: u64,
}

impl Ranges {
    /// With devices in the directory `disk`.
    pub(super) fn new(disk: PathBuf, has_volume: bool) -> Ranges {
        Ranges { disk, backing: None, device: None, has_volume, each: 0, made: 0 }
    }
}

impl Target for Ranges {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        self.remove()?;
        self.each = (need.bytes / need.files.max(1)).next_multiple_of(1 << 20);
        let bytes = self.each * need.files;
        // What is overwritten is not free at once.
        let bytes = if self.has_volume { 3 * bytes + (256 << 20) } else { bytes };
        let backing = match self.backing.take() {
            Some(backing) if backing.bytes() == bytes => backing,
            _ => Backing::of_zeros(&self.disk, bytes)?,
        };
        let made = self.device.insert(backing.attach()?);
        self.backing = Some(backing);
        store::give(&made.path, owner)?;
        if self.has_volume {
            self.made += 1;
            let volume = device(&made.path, bytes)
                .and_then(|device| create(&Counted::new(device), 0, self.made));
            volume.map_err(|error| Error::Target {
                target: "volume".into(),
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }

    fn answering(&self) -> Answering {
        let path = self.device.as_ref().map(|device| device.path.clone()).unwrap_or_default();
        let volume = self.backing.as_ref().filter(|_| self.has_volume).map(Backing::bytes);
        Answering::Ranges { path, each: self.each, volume }
    }

    fn options(&self) -> Vec<String> {
        let bytes = self.backing.as_ref().map_or(0, Backing::bytes);
        let is_direct = self.device.as_ref().is_some_and(|device| device.is_direct);
        vec![
            format!("{} MiB loop device", bytes >> 20),
            if is_direct { "direct I/O" } else { "through the page cache below" }.to_owned(),
        ]
    }

    fn survives(&self) -> Survives {
        Survives::PowerAfterSync
    }

    fn remove(&mut self) -> Result<()> {
        self.device = None;
        Ok(())
    }
}
