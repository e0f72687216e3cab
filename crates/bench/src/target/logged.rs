//! A store whose core is in RAM and outlives it on a volume, by the library in the processes that
//! measure. The volume is on a device as file systems of the kernel have it.

use std::path::PathBuf;
use std::time::Duration;

use conquest::{CorePlace, NewStore, Placement, Preset, Store, SyncMode, VolumePlace};

use super::device::{Backing, Device};
use super::{Survives, Target, kernel, store};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result};

/// Longest wait for the keeper, which leaves when it is asked to.
const PATIENCE: Duration = Duration::from_secs(20);

/// Least bytes that a core may have, if memory is not limited. They are taken as they are needed; how
/// many may wait to be made durable depends on it.
const CORE: u64 = 2 << 30;

/// It.
pub(super) struct Logged {
    directory: PathBuf,
    disk: PathBuf,
    backing: Option<Backing>,
    device: Option<Device>,
    preset: Preset,
    options: Vec<String>,
}

impl Logged {
    /// In the empty directory `directory`, which goes with it, with devices in the directory
    /// `disk`, of which the files that `preset` says are on the volume.
    pub(super) fn new(directory: PathBuf, disk: PathBuf, preset: Preset) -> Logged {
        Logged { directory, disk, backing: None, device: None, preset, options: Vec::new() }
    }

    /// A device of `bytes` bytes at least.
    fn device(&mut self, bytes: u64) -> Result<&Device> {
        let backing = match self.backing.take() {
            Some(backing) if backing.bytes() >= bytes => backing,
            _ => Backing::of_zeros(&self.disk, bytes)?,
        };
        let device = backing.attach()?;
        self.backing = Some(backing);
        Ok(self.device.insert(device))
    }
}

impl Target for Logged {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        self.remove()?;
        // Large files are not in a core that has a limit.
        let is_whole = self.preset == Preset::Simfs;
        let limit = need.memory.filter(|_| !is_whole).map(|memory| memory.core);
        let core = limit.unwrap_or_else(|| store::room(need).max(CORE));
        if need.memory.is_none() {
            let taken = store::room(need);
            kernel::available("logged", taken + taken / 8 + (64 << 20))?;
        }
        // Large files are written elsewhere before what they were is cleaned.
        let large = if is_whole { 0 } else { 2 * need.bytes };
        let bytes = (2 * core + large + (256 << 20)).next_multiple_of(1 << 20);
        let device = self.device(bytes)?;
        let (path, is_direct) = (device.path.clone(), device.is_direct);
        store::give(&path, owner)?;
        let sync = SyncMode::default();
        let new = NewStore {
            core: CorePlace::Path(store::core(&self.directory)),
            size_max: core,
            placement: Placement::of(self.preset),
            volume: Some(VolumePlace::Devices { paths: vec![path], mirror: false }),
            sync: Some(sync),
            cache: need.memory.map(|memory| memory.cache),
            owner,
            root_mode: 0o777,
            // What was there is the device of the round before.
            force: true,
            ..NewStore::default()
        };
        Store::make(&self.directory, &new).map_err(failed)?;
        self.options = vec![
            format!("a core of {} MiB on tmpfs, a volume of {} MiB", core >> 20, bytes >> 20),
            if is_direct { "direct I/O" } else { "through the page cache below" }.to_owned(),
            format!("sync {sync}"),
        ];
        let cache = need.memory.map(|memory| format!("a cache of {} MiB", memory.cache >> 20));
        self.options.extend(cache);
        Ok(())
    }

    fn answering(&self) -> Answering {
        Answering::Store { path: self.directory.clone() }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        Survives::PowerAfterSync
    }

    fn remove(&mut self) -> Result<()> {
        if self.directory.join("store.toml").exists() {
            Store::destroy(&self.directory, PATIENCE).map_err(failed)?;
        }
        self.device = None;
        store::destroy(&self.directory)
    }
}

/// The error for what a store says.
fn failed(error: conquest::Error) -> Error {
    Error::Target { target: "logged".into(), reason: error.to_string() }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // What could be said of it was said before.
        let _ = self.remove();
    }
}
