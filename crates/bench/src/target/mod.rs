//! What experiments are done on.

mod bare;
mod device;
mod directory;
mod floor;
mod kernel;
mod leader;
mod logged;
mod mounted;
mod ranges;
mod room;
mod server;
pub(crate) mod store;
mod twins;

use std::path::PathBuf;
use std::time::Duration;

use conquest::Preset;
use rustix::fs::Access;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result};

pub use bare::Bare;
pub use kernel::Kind;
pub(crate) use kernel::available;
pub use room::Room;
pub use twins::{ON_DEVICE, ON_VOLUME};

/// What the effects of a call that has returned outlive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Survives {
    /// Nothing: a floor.
    Nothing,
    /// The end of the process that made it.
    Process,
    /// A restart in order; after fsync(2) a power failure.
    PowerAfterSync,
    /// A power failure.
    Power,
}

impl Survives {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Survives::Nothing => "nothing",
            Survives::Process => "the process",
            Survives::PowerAfterSync => "power after fsync",
            Survives::Power => "power",
        }
    }
}

/// Which target.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Name {
    /// The loop itself.
    Null,
    /// One system call for each call.
    SystemCall,
    /// Memory of the process.
    Memory,
    /// Bytes that one process makes durable for all.
    Leader,
    /// A bare device, of which each file is a range.
    Raw,
    /// The same of a bare volume.
    Volume,
    /// A store, by the library.
    Conquest,
    /// A store with a volume, by the library: all files are in its core.
    Logged,
    /// The same with large files on the volume.
    Hybrid,
    /// A store, mounted.
    Fuse,
    /// One with a volume, as [`Name::Hybrid`], mounted.
    HybridFuse,
    /// A file system of the kernel, made on the spot.
    Kernel(Kind),
    /// A file system of the kernel on a volume, and beside it the same on a bare device.
    Twins(Kind),
    /// A device without files, made on the spot.
    Device(Bare),
    /// A directory that is there.
    Directory(PathBuf),
}

impl Name {
    /// All that need no path.
    pub const ALL: [Name; 24] = [
        Name::Null,
        Name::SystemCall,
        Name::Memory,
        Name::Leader,
        Name::Raw,
        Name::Volume,
        Name::Conquest,
        Name::Logged,
        Name::Hybrid,
        Name::Fuse,
        Name::HybridFuse,
        Name::Kernel(Kind::Ramfs),
        Name::Kernel(Kind::Tmpfs),
        Name::Kernel(Kind::TmpfsHuge),
        Name::Kernel(Kind::Ext2),
        Name::Kernel(Kind::Ext3),
        Name::Kernel(Kind::Ext4),
        Name::Kernel(Kind::Xfs),
        Name::Kernel(Kind::Btrfs),
        Name::Twins(Kind::Ext3),
        Name::Twins(Kind::Ext4),
        Name::Twins(Kind::Xfs),
        Name::Device(Bare::Disk),
        Name::Device(Bare::Loop),
    ];

    /// The target that `word` names: one of the list, or a path with a slash in it.
    #[must_use]
    pub fn parse(word: &str) -> Option<Name> {
        let listed = Name::ALL.into_iter().find(|name| name.id() == word);
        listed.or_else(|| word.contains('/').then(|| Name::Directory(PathBuf::from(word))))
    }

    /// As it stands in reports: paths are not told.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Name::Null => "null".into(),
            Name::SystemCall => "syscall".into(),
            Name::Memory => "memory".into(),
            Name::Leader => "leader".into(),
            Name::Raw => "device".into(),
            Name::Volume => "volume".into(),
            Name::Conquest => "conquest".into(),
            Name::Logged => "logged".into(),
            Name::Hybrid => "hybrid".into(),
            Name::Fuse => "fuse".into(),
            Name::HybridFuse => "hybrid-fuse".into(),
            Name::Kernel(kind) => kind.id().into(),
            Name::Twins(kind) => twins_id(*kind).into(),
            Name::Device(bare) => bare.id().into(),
            Name::Directory(_) => "directory".into(),
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn about(&self) -> &'static str {
        match self {
            Name::Null => "the same loop with calls that do nothing: a floor",
            Name::SystemCall => "one system call that does nothing for each call: a floor",
            Name::Memory => "bytes are copied in memory of the process: a floor for transfers",
            Name::Leader => {
                "bytes that one process writes to a device for all who wait: a floor for fsync"
            }
            Name::Raw => "a bare device, of which each file is a range; a loop device on a disk",
            Name::Volume => "the same of a bare volume on such a device",
            Name::Conquest => "a store, by the library in the same process",
            Name::Logged => {
                "a store in RAM that is durable on a volume, by the library; on a loop device on a disk"
            }
            Name::Hybrid => "the same with the data of files above 1 MiB on the volume",
            Name::Fuse => "a store, mounted by conquest mount",
            Name::HybridFuse => "a store as hybrid, mounted by conquest mount",
            Name::Kernel(kind) => kind.about(),
            Name::Twins(Kind::Ext3) => "ext3 (by the ext4 driver) on a volume and on a bare device",
            Name::Twins(Kind::Xfs) => "XFS on a volume and on a bare device",
            Name::Twins(_) => "ext4 on a volume and on a bare device",
            Name::Device(bare) => bare.about(),
            Name::Directory(_) => "any directory, by its path",
        }
    }

    /// What it lacks on this machine, with how to get it; none if it can be made.
    #[must_use]
    pub fn lack(&self) -> Option<String> {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Name::Null | Name::SystemCall | Name::Memory | Name::Directory(_) => None,
            Name::Conquest => None,
            Name::Leader | Name::Raw | Name::Volume | Name::Logged | Name::Hybrid => {
                match is_root {
                    true => device::lack(),
                    false => Some(ROOT_DEVICES.into()),
                }
            }
            Name::Fuse => lack_of_fuse(),
            Name::HybridFuse if !is_root => Some(ROOT_DEVICES.into()),
            Name::HybridFuse => device::lack().or_else(lack_of_fuse),
            Name::Twins(_) if !is_root => Some(ROOT_MOUNTS.into()),
            Name::Twins(kind) => kind.lack().or_else(lack_of_fuse),
            Name::Device(bare) => bare.lack(is_root),
            Name::Kernel(kind) if !is_root && !kind.is_memory() => Some(ROOT_MOUNTS.into()),
            Name::Kernel(kind) => kind.lack(),
        }
    }
}

/// Why nothing can be mounted through FUSE, if it can't.
fn lack_of_fuse() -> Option<String> {
    match rustix::fs::access("/dev/fuse", Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => None,
        Err(Errno::NOENT) => Some("there is no /dev/fuse (load the kernel module fuse)".into()),
        Err(_) => Some("only root may open /dev/fuse (chmod 666 /dev/fuse)".into()),
    }
}

/// The name of the target that is `kind` on a volume and beside it.
fn twins_id(kind: Kind) -> &'static str {
    match kind {
        Kind::Ext3 => "volume-ext3",
        Kind::Xfs => "volume-xfs",
        _ => "volume-ext4",
    }
}

/// Why ordinary users can't have a file system of the kernel.
pub const ROOT_MOUNTS: &str =
    "mounting needs root (run it by sudo, or measure a directory that is mounted)";

/// Why ordinary users can't have a device for a volume.
const ROOT_DEVICES: &str = "loop devices need root (run it by sudo)";

/// A target, made and removed again and again.
pub trait Target {
    /// Makes it anew, empty, with room for `need`, for the user and group `owner`.
    ///
    /// # Errors
    /// Why it can't be made.
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()>;

    /// By whom its calls are answered, once it is made.
    fn answering(&self) -> Answering;

    /// What it was made with, for the report.
    fn options(&self) -> Vec<String>;

    /// What it survives.
    fn survives(&self) -> Survives;

    /// Removes what was made.
    ///
    /// # Errors
    /// Why it can't be removed.
    fn remove(&mut self) -> Result<()>;
}

/// What targets are made of.
#[derive(Clone, Debug)]
pub struct Making {
    /// The program `conquest`, which mounts stores.
    pub program: PathBuf,
    /// A directory on a disk: devices are files there.
    pub disk: PathBuf,
}

/// The target `name`, not made yet; its mounts are in `room`, if there is one. Who serves it is
/// ended if it is there for much longer than `limit`, the longest time for a part of an experiment.
///
/// # Errors
/// If it needs a room, and there is none.
pub fn target(
    name: &Name,
    making: &Making,
    limit: Duration,
    room: Option<&Room>,
) -> Result<Box<dyn Target>> {
    let place = |kind: &str| -> Result<PathBuf> {
        match room {
            Some(room) => room.place(kind),
            None => room::temporary(kind),
        }
    };
    let own_place = |kind: &str| -> Result<PathBuf> {
        let lacking = || Error::Target { target: kind.into(), reason: ROOT_MOUNTS.into() };
        room.ok_or_else(lacking)?.place(kind)
    };
    Ok(match name {
        Name::Null => Box::new(floor::Floor(Answering::Null)),
        Name::SystemCall => Box::new(floor::Floor(Answering::SystemCall)),
        Name::Memory => Box::new(floor::Floor(Answering::Memory)),
        Name::Leader => Box::new(leader::Leader::new(place("leader")?, making.disk.clone())),
        Name::Raw => Box::new(ranges::Ranges::new(making.disk.clone(), false)),
        Name::Volume => Box::new(ranges::Ranges::new(making.disk.clone(), true)),
        Name::Conquest => Box::new(store::StoreTarget::new(place("conquest")?)),
        Name::Logged | Name::Hybrid => {
            let is_hybrid = *name == Name::Hybrid;
            let preset = if is_hybrid { Preset::Conquest } else { Preset::Simfs };
            let directory = place(if is_hybrid { "hybrid" } else { "logged" })?;
            Box::new(logged::Logged::new(directory, making.disk.clone(), preset))
        }
        Name::Fuse => {
            let store = mounted::Store::Memory;
            Box::new(mounted::Mounted::new(place("fuse")?, store, making.program.clone(), limit))
        }
        Name::HybridFuse => {
            let at = place("hybrid-fuse")?;
            let store = at.join("store");
            let store = logged::Logged::new(store, making.disk.clone(), Preset::Conquest);
            let store = mounted::Store::Hybrid(Box::new(store));
            Box::new(mounted::Mounted::new(at, store, making.program.clone(), limit))
        }
        Name::Kernel(kind) => {
            let at = own_place(kind.id())?;
            Box::new(kernel::Kernel::new(*kind, at, making.disk.clone()))
        }
        Name::Twins(kind) => {
            let label = twins_id(*kind);
            Box::new(twins::Twins::new((label, *kind), own_place(label)?, making, limit)?)
        }
        Name::Device(Bare::Disk) => Box::new(bare::Device::on_disk(&making.disk)),
        Name::Device(Bare::Loop) => Box::new(bare::Device::in_memory(own_place(Bare::Loop.id())?)),
        Name::Directory(path) => Box::new(directory::Directory::new(path)),
    })
}
