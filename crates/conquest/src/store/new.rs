//! What a new store is to be.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::sync_mode::SyncMode;

/// Where a new store's core is put.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CorePlace {
    /// Into the store's directory if that is in RAM; otherwise into the most suitable tmpfs, in a
    /// directory of the user's own.
    #[default]
    Default,
    /// This file, which is made, or this device of persistent memory.
    Path(PathBuf),
}

/// What a core is kept on, which decides what it survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Medium {
    /// What the core's file is: `dax` on persistent memory, `disk` on a disk, otherwise `logged`
    /// with a volume, and `ram` without one.
    #[default]
    Auto,
    /// RAM that is lost when the machine stops.
    Ram,
    /// RAM that outlives a power failure. Only the user can know.
    Battery,
    /// Persistent memory that is mapped directly.
    Dax,
    /// An ordinary file on a disk: a last resort.
    Disk,
    /// RAM whose changes are made durable on the store's volume, of which it is brought back after
    /// a restart of the machine.
    Logged,
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Medium::Auto => "auto",
            Medium::Ram => "ram",
            Medium::Battery => "battery",
            Medium::Dax => "dax",
            Medium::Disk => "disk",
            Medium::Logged => "logged",
        })
    }
}

/// A word that names none of the choices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct Unknown {
    /// The choices.
    pub expected: &'static str,
    /// The word.
    pub found: String,
}

impl FromStr for Medium {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Medium, Unknown> {
        match text {
            "auto" => Ok(Medium::Auto),
            "ram" => Ok(Medium::Ram),
            "battery" => Ok(Medium::Battery),
            "dax" => Ok(Medium::Dax),
            "disk" => Ok(Medium::Disk),
            "logged" => Ok(Medium::Logged),
            _ => Err(Unknown {
                expected: "auto, ram, battery, dax, disk or logged",
                found: text.to_owned(),
            }),
        }
    }
}

/// A set of choices that is one of the papers' systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Preset {
    /// Metadata and small files in the core, large files on a volume.
    #[default]
    Conquest,
    /// Everything in the core, whatever its size.
    Simfs,
    /// Every file's data on a volume.
    Dfs,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Preset::Conquest => "conquest",
            Preset::Simfs => "simfs",
            Preset::Dfs => "dfs",
        })
    }
}

impl FromStr for Preset {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Preset, Unknown> {
        match text {
            "conquest" => Ok(Preset::Conquest),
            "simfs" => Ok(Preset::Simfs),
            "dfs" => Ok(Preset::Dfs),
            _ => Err(Unknown { expected: "conquest, simfs or dfs", found: text.to_owned() }),
        }
    }
}

/// Where contents of files go. Recorded in `store.toml`; a store without a volume keeps everything
/// in the core, whatever stands here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Most bytes of a file that stays in the core.
    pub threshold: u64,
    /// The set of choices that it was made from.
    pub preset: Preset,
}

/// One mebibyte: files up to it stay in the core.
pub const THRESHOLD_DEFAULT: u64 = 1 << 20;
/// 16 TiB for each large file, of which there can be 2^29 then.
pub const CHUNK_DEFAULT: u64 = 16 << 40;
/// The threshold that no file passes.
pub const THRESHOLD_NONE: u64 = i64::MAX as u64;

impl Placement {
    /// The placement of `preset`.
    #[must_use]
    pub const fn of(preset: Preset) -> Placement {
        let threshold = match preset {
            Preset::Conquest => THRESHOLD_DEFAULT,
            Preset::Simfs => THRESHOLD_NONE,
            Preset::Dfs => 0,
        };
        Placement { threshold, preset }
    }
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::of(Preset::default())
    }
}

/// The devices of a new store's volume.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VolumePlace {
    /// If the core is in RAM, and the store's directory on a disk, a file there: four times what
    /// the core may grow to, unless that is more than a quarter of the space that is free;
    /// otherwise none.
    Auto,
    /// A file of so many bytes in the store's directory, which has its space from the start.
    Size(u64),
    /// These: block devices and files that are there, which must be empty unless what is in the way
    /// is lost by the user's wish.
    Devices {
        /// Their names.
        paths: Vec<PathBuf>,
        /// Whether each of them has everything.
        mirror: bool,
    },
}

/// What a new store is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewStore {
    /// Where its core is put.
    pub core: CorePlace,
    /// Bytes of files and metadata to which the core may grow; fixed for the store's life. 0 for
    /// half of the machine's RAM, or of what the core's file system has, if that is less, or a
    /// quarter of a volume that is chosen by itself; on a device, all of it. What manages them
    /// comes on top, 1 or 2 in a hundred.
    pub size_max: u64,
    /// Bytes for which there is space from the start. 0 for 16 MiB, or half of that
    /// maximum if it is less.
    pub size: u64,
    /// What the core is kept on.
    pub medium: Medium,
    /// Where its volume is; none for a store that has none.
    pub volume: Option<VolumePlace>,
    /// Who waits until what he has done is durable on the volume; none for the default, and for a
    /// store without a volume.
    pub sync: Option<SyncMode>,
    /// Bytes of RAM that what was read from the volume, or written to it, may take, up to 64 GiB;
    /// none for a sixteenth of the RAM, at most 512 MiB, and for a store without a volume. They are
    /// taken 2 MiB at a time, and for as long as somebody has the store attached.
    pub cache: Option<u64>,
    /// Most bytes in a regular file, up to 2^63 - 1.
    pub file_size_max: u64,
    /// Percentage of the space that only callers with `CAP_SYS_RESOURCE` may use: up to 50.
    pub reserve: u64,
    /// Where contents of files go.
    pub placement: Placement,
    /// Bytes of the volume's space that each large file has, a power of two from 1 GiB to 1 EiB:
    /// less a page, what a file can have at most in a store with a volume. None for
    /// [`CHUNK_DEFAULT`], and for a store without a volume.
    pub chunk: Option<u64>,
    /// User and group that own the store's files and its root directory; none for the caller.
    pub owner: Option<(u32, u32)>,
    /// Permissions of the store's files. Its directory has the same, and may be searched by those
    /// who may read.
    pub mode: u32,
    /// Permissions of the root directory of the file system.
    pub root_mode: u32,
    /// Operations that can change the store at the same time: 0 for four a processor, at least 32.
    pub lanes: u32,
    /// Processes that can attach at the same time: 0 for 32 a processor, at least 256.
    pub slots: u32,
    /// Locks that inodes share, a power of two: 0 for so many that they seldom collide.
    pub locks: u32,
    /// Whether a store that is there already is replaced, and lost, unless somebody has it
    /// attached.
    pub force: bool,
}

impl Default for NewStore {
    fn default() -> NewStore {
        NewStore {
            core: CorePlace::Default,
            size_max: 0,
            size: 0,
            medium: Medium::Auto,
            volume: Some(VolumePlace::Auto),
            sync: None,
            cache: None,
            file_size_max: i64::MAX as u64,
            reserve: 1,
            placement: Placement::default(),
            chunk: None,
            owner: None,
            mode: 0o600,
            root_mode: 0o755,
            lanes: 0,
            slots: 0,
            locks: 0,
            force: false,
        }
    }
}
