//! Where a run has its volume, and its index: directories that go with the run.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use conquest_flash::device::FileDevice;
use conquest_flash::{NewVolume, create_at};
use conquest_format::volume::Arrangement;
use conquest_testkit::flash::{Event, Log, Medium};

/// What names of directories begin with; the process's number follows.
const PREFIX: &str = "conquest-kill-flash-";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// How many devices, and how they are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Devices {
    pub(crate) count: u64,
    pub(crate) arrangement: Arrangement,
}

impl Devices {
    /// Understands `1`, `striped:3`, `mirrored:2`.
    pub(crate) fn parse(text: &str) -> Option<Devices> {
        let (how, count) = text.split_once(':').unwrap_or(("striped", text));
        let arrangement = match how {
            "striped" => Arrangement::Striped,
            "mirrored" => Arrangement::Mirrored,
            _ => return None,
        };
        let count = count.parse().ok().filter(|count| (1..=16).contains(count))?;
        Some(Devices { count, arrangement })
    }
}

/// The files of a run.
pub(crate) struct Place {
    devices: Vec<PathBuf>,
    indices: PathBuf,
    directories: Vec<PathBuf>,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("can't {action} {path}: {error}")
}

impl Place {
    /// Makes a volume of `devices` devices that have `bytes` bytes for it together, in `directory`
    /// or in memory.
    pub(crate) fn new(
        devices: Devices,
        bytes: u64,
        segment: u64,
        directory: Option<&Path>,
    ) -> Result<Place, String> {
        let memory = Path::new(MEMORY);
        sweep(memory);
        let name = format!("{PREFIX}{}", std::process::id());
        let indices = memory.join(&name);
        let mut place =
            Place { devices: Vec::new(), indices: indices.clone(), directories: vec![indices] };
        if let Some(directory) = directory {
            place.directories.push(directory.join(&name));
        }
        for directory in &place.directories {
            std::fs::create_dir(directory).map_err(failed("make", directory))?;
        }
        let within = place.directories.last().unwrap_or(&place.indices).clone();
        let share = match devices.arrangement {
            Arrangement::Striped => bytes / devices.count,
            Arrangement::Mirrored => bytes,
        };
        for number in 0..devices.count {
            let path = within.join(format!("device-{number}"));
            let len = share.next_multiple_of(4096) + (2 << 16);
            FileDevice::create(&path, len, 0o600, &mut |_| {}).map_err(failed("make", &path))?;
            place.devices.push(path);
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut uuid = [7; 16];
        uuid[..8].copy_from_slice(&(since.as_nanos() as u64).to_le_bytes());
        uuid[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        let new = NewVolume {
            uuid,
            created: since.as_nanos() as u64,
            arrangement: devices.arrangement,
            segment: Some(segment),
        };
        create_at(&place.devices, &new, false).map_err(|error| error.to_string())?;
        Ok(place)
    }

    /// The devices of the volume.
    pub(crate) fn devices(&self) -> &[PathBuf] {
        &self.devices
    }

    /// The directory for its index.
    pub(crate) fn indices(&self) -> &Path {
        &self.indices
    }

    /// The files of indices that there are.
    pub(crate) fn found_indices(&self) -> Result<Vec<PathBuf>, String> {
        let entries = std::fs::read_dir(&self.indices).map_err(failed("read", &self.indices))?;
        let paths = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
        Ok(paths.filter(|path| !self.devices.contains(path)).collect())
    }

    fn log_directory(&self) -> PathBuf {
        Log::directory(self.directories.last().unwrap_or(&self.indices))
    }

    /// Begins a log of what is done to the devices, which nobody has open: what they hold.
    pub(crate) fn begin_log(&self) -> Result<Vec<Medium>, String> {
        let directory = self.log_directory();
        Log::begin(&self.devices).map_err(failed("begin a log in", &directory))?;
        let medium = |path: &PathBuf| {
            let bytes = std::fs::read(path).map_err(failed("read", path))?;
            let mut medium = Medium::new(bytes.len() as u64);
            medium.write(0, &bytes);
            Ok(medium)
        };
        self.devices.iter().map(medium).collect()
    }

    /// The log, for this process; none if there is none now.
    pub(crate) fn log(&self) -> Result<Option<Log>, String> {
        let directory = self.log_directory();
        if !directory.exists() {
            return Ok(None);
        }
        Log::open(&directory).map(Some).map_err(failed("open a log in", &directory))
    }

    /// All that the log says.
    pub(crate) fn load_log(&self) -> Result<Vec<(u64, usize, Event)>, String> {
        let directory = self.log_directory();
        Log::load(&directory).map_err(failed("read a log in", &directory))
    }

    /// Ends the log, if there is one.
    pub(crate) fn end_log(&self) -> Result<(), String> {
        let directory = self.log_directory();
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed("remove", &directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the index, as a restart of the machine does.
    pub(crate) fn remove_index(&self) -> Result<(), String> {
        for path in self.found_indices()? {
            std::fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for directory in &self.directories {
            // It is not what the run is about.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Removes what runs have left that were killed.
fn sweep(memory: &Path) {
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
        if process.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
