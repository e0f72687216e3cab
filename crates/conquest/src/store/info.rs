//! What a store is, and what it survives.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conquest_format::geometry::Shape;
use conquest_format::{GROUP, PAGE};
use conquest_fs::Statfs;
use conquest_pm::media::{HugePages, Progress, Swap};
use conquest_pm::persist::WriteBack;

use super::attached::{Attached, attached};
use super::new::{Medium, Placement};
use super::place::Space;
use super::sync_mode::SyncMode;
use super::{Store, default_place, directory, keeper, region};
use crate::Id;
use crate::files::actor::Attachment;

/// The first number of users who log in.
const USERS: u32 = 1000;

/// What a completed operation survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survives {
    /// The death of any process, at once.
    pub process_death: bool,
    /// A restart of the machine in order, without saving before.
    pub restart: bool,
    /// A power failure, at once.
    pub power_failure: bool,
    /// The same in words.
    pub words: &'static str,
}

impl Survives {
    /// What operations on a core of `medium` survive.
    #[must_use]
    pub const fn on(medium: Medium) -> Survives {
        let (restart, power_failure, words) = match medium {
            Medium::Auto | Medium::Ram => (
                false,
                false,
                "the death of processes at once; a restart only through `conquest save` and \
                 `conquest restore`",
            ),
            Medium::Battery => (
                false,
                false,
                "the death of processes at once; a power failure if `conquest save` runs on the \
                 battery; a restart through `conquest save` and `conquest restore`",
            ),
            Medium::Logged => (
                true,
                false,
                "the death of processes at once; a power failure as of the last fsync, or the last \
                 commit",
            ),
            Medium::Dax => (true, true, "the death of processes, and power failures, at once"),
            Medium::Disk => (
                true,
                false,
                "the death of processes at once; a restart in order; a power failure may leave it \
                 unusable (a last resort)",
            ),
        };
        Survives { process_death: true, restart, power_failure, words }
    }
}

impl fmt::Display for Survives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

/// Space of a store, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Bytes in a block.
    pub block: u64,
    /// What the store can hold at most.
    pub total: u64,
    /// What files and metadata take.
    pub used: u64,
    /// What can still be had: up to the maximum, as far as the core's file system has space.
    pub free: u64,
    /// The part of `free` that callers without `CAP_SYS_RESOURCE` can have.
    pub available: u64,
    /// For what there is space whatever others take: `used` and some of `free`.
    pub reserved: u64,
    /// Most bytes in a name.
    pub name_max: u64,
    /// Most bytes in a regular file.
    pub file_size_max: u64,
}

/// How a store's volume stands.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct VolumeStands {
    /// Its identity.
    pub uuid: Id,
    /// Its devices.
    pub devices: Vec<PathBuf>,
    /// Who waits until what he has done is durable.
    pub sync: SyncMode,
    /// The number of the record that is committed next; 0 if the core needs no volume to be
    /// durable.
    pub committed: u64,
    /// Below which number all records are durable.
    pub durable: u64,
    /// Bytes that have to be written for the rest, about.
    pub lag_bytes: u64,
    /// For how long some of it may not have been durable.
    pub lag: Duration,
    /// The process that keeps the store, in its own pid namespace; none if there is no keeper.
    pub keeper: Option<u32>,
    /// Times that the core was brought back of the volume.
    pub incarnation: u64,
    /// Whether this process has done that.
    pub was_brought_back: bool,
    /// How far loading the core is; none if all of it is there.
    pub loading: Option<Progress>,
}

/// What a store is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// Its directory.
    pub directory: PathBuf,
    /// Its identity.
    pub uuid: Id,
    /// The identity of its region.
    pub region: Id,
    /// Nanoseconds since 1970 at which it was made.
    pub created: u64,
    /// Its core's file.
    pub core: PathBuf,
    /// What that file is, in words.
    pub core_kind: String,
    /// What the core is kept on.
    pub medium: Medium,
    /// What a completed operation survives.
    pub survives: Survives,
    /// How this process makes stores durable.
    pub write_back: WriteBack,
    /// Whether this process has huge pages.
    pub huge_pages: HugePages,
    /// Whether the core can be swapped out; none if this process did not ask.
    pub swap: Option<Swap>,
    /// Where contents of files go.
    pub placement: Placement,
    /// Its space.
    pub usage: Usage,
    /// Bytes of address space that the region has.
    pub mapped: u64,
    /// Its shape.
    pub shape: Shape,
    /// Times that somebody attached it while nobody had it attached.
    pub attach_generation: u64,
    /// Whether it was left in disorder, so that this process had to recover it, or others had it
    /// attached.
    pub was_dirty: bool,
    /// How its volume stands; none if it has none.
    pub volume: Option<VolumeStands>,
    /// Who has it attached.
    pub attached: Vec<Attached>,
    /// What its user should know.
    pub notes: Vec<String>,
}

impl Store {
    /// What the store is, and who has it attached. It looks at the state of processes and of this
    /// one's memory: for people, not for every operation. What can't be found out stands in the
    /// notes.
    #[must_use]
    pub fn info(&self) -> Info {
        let core = self.fs().core();
        let memory = core.memory();
        let settings = &self.settings;
        let volume = self.volume_stands();
        let mut notes = self.notes(volume.as_ref());
        let superblock = region::superblock(core);
        let (generation, tag) = match &superblock {
            Ok(superblock) => (superblock.attach_generation, superblock.tag()),
            Err(error) => {
                notes.push(format!("the region can't be read any more: {error}"));
                (0, 0)
            }
        };
        let who = attached(memory, core.host(), core.geometry(), tag).unwrap_or_else(|error| {
            notes.push(format!("who has it attached can't be told: {error}"));
            Vec::new()
        });
        Info {
            directory: self.directory.clone(),
            uuid: settings.uuid,
            region: settings.live.region,
            created: settings.created,
            core: self.attachment.core.clone(),
            core_kind: memory.kind().to_string(),
            medium: settings.medium,
            survives: Survives::on(settings.medium),
            write_back: memory.policy(),
            huge_pages: memory.huge_pages(),
            swap: self.swap.clone(),
            placement: settings.placement,
            usage: self.usage(),
            mapped: core.geometry().len(),
            shape: core.geometry().shape(),
            attach_generation: generation,
            was_dirty: self.was_dirty,
            volume,
            attached: who,
            notes,
        }
    }

    fn volume_stands(&self) -> Option<VolumeStands> {
        let at = self.settings.volume.as_ref()?;
        let core = self.fs().core();
        // Where there is no log, a change is durable when it is committed.
        let lag = if core.is_logged() { core.lag() } else { conquest_pm::log::Lag::default() };
        let (committed, durable, incarnation) = match core.is_logged() {
            true => (core.next_sequence(), core.durable(), core.incarnation()),
            false => (0, 0, 0),
        };
        Some(VolumeStands {
            uuid: at.uuid,
            devices: at.devices.iter().map(|path| self.directory.join(path)).collect(),
            sync: at.sync,
            committed,
            durable,
            lag_bytes: lag.bytes,
            lag: lag.age.unwrap_or_default(),
            keeper: keeper::keeper_soon(&self.directory),
            incarnation,
            was_brought_back: self.was_brought_back,
            loading: core.memory().progress(),
        })
    }

    fn notes(&self, volume: Option<&VolumeStands>) -> Vec<String> {
        let memory = self.fs().core().memory();
        let is_logged = self.attachment.backing.as_ref().is_some_and(|backing| backing.is_logged());
        let mut notes: Vec<String> = memory.kind().note().map(str::to_owned).into_iter().collect();
        match volume {
            None => {
                notes.push("it has no volume: files of any size are kept in the core".to_owned());
            }
            Some(stands) if stands.keeper.is_none() && !is_logged => notes.push(
                "it has no keeper: what large files were overwritten with since the last fsync may \
                 be lost in a power failure, and what was removed keeps its space (put the program \
                 conquest on PATH, or name it in CONQUEST_PROGRAM)"
                    .to_owned(),
            ),
            Some(stands) if stands.keeper.is_none() => notes.push(
                "it has no keeper: what was done since the last fsync may be lost in a power \
                 failure, however long ago that was (put the program conquest on PATH, or name it \
                 in CONQUEST_PROGRAM)"
                    .to_owned(),
            ),
            Some(_) => {}
        }
        let backing = self.attachment.backing.as_ref();
        if let Some(Err(error)) = backing.map(|backing| backing.check(self.fs().core())) {
            let then = match self.fs().core().refusal() {
                Some(_) => ", so nothing can be changed",
                None => "",
            };
            notes.push(match is_logged {
                true => format!("nothing is made durable any more{then}: {error}"),
                false => format!("large files can't be used: {error}"),
            });
        }
        if !memory.huge_pages().is_obtained() && !memory.kind().is_last_resort() {
            notes.push(
                "no huge pages: put the core on a tmpfs that is mounted with huge=within_size, or \
                 mount this one anew so (mount -o remount,huge=within_size)"
                    .to_owned(),
            );
        }
        // One with a volume is brought back.
        if volume.is_none() && ends_with_session(&self.attachment.core) {
            notes.push(
                "the core is lost when you log out, if the system removes shared memory then \
                 (RemoveIPC of systemd-logind): `loginctl enable-linger` prevents it"
                    .to_owned(),
            );
        }
        if let Some(Swap::CanSwap { why }) = &self.swap {
            notes.push(format!("the core can be swapped out: {why}"));
        }
        notes
    }

    /// The space of the store: some hundred loads and two system calls, whatever it holds.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.attachment.usage()
    }
}

impl Attachment {
    /// The space of the store.
    pub(crate) fn usage(&self) -> Usage {
        let reserved = self.reserved_or_had();
        let stat = self.statfs_with(reserved);
        Usage {
            block: stat.block,
            total: self.fs.core().geometry().shape().max_groups * GROUP + self.fs.volume_bytes(),
            used: (stat.blocks - stat.free) * stat.block,
            free: stat.free * stat.block,
            available: stat.available * stat.block,
            reserved,
            name_max: stat.name_max,
            file_size_max: self.fs.size_max(),
        }
    }

    /// The space of the store, as statfs(2) tells it.
    pub(crate) fn statfs(&self) -> Statfs {
        self.statfs_with(self.reserved_or_had())
    }

    fn statfs_with(&self, reserved: u64) -> Statfs {
        let outside = match self.is_device() {
            true => 0,
            false => Space::of(directory::parent(&self.core)).map_or(0, |space| space.free),
        };
        // What is still to be loaded takes some of it.
        let missing = self.fs.core().memory().progress();
        let outside = outside
            .saturating_sub(missing.map_or(0, |progress| progress.total - progress.resident));
        self.fs.statfs(self.uuid.to_fsid(), reserved.saturating_add(outside) / PAGE)
    }

    /// Bytes for which there is space whatever others take. If the system can't tell, it is what
    /// the region has for sure.
    fn reserved_or_had(&self) -> u64 {
        self.reserved().unwrap_or(self.fs.core().groups() * GROUP)
    }

    /// Whether the core has all the space that it can have.
    fn is_device(&self) -> bool {
        use conquest_pm::media::MediumKind;
        matches!(self.fs.core().memory().kind(), MediumKind::DevDax { .. })
    }
}

/// Whether the core may be removed with its owner's session. System users have none.
fn ends_with_session(core: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_user = std::fs::metadata(core).is_ok_and(|found| found.uid() >= USERS);
    is_user && default_place::is_ours(core) && Path::new("/run/systemd/seats").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_media_survive_is_said() {
        let of = |medium| {
            let survives = Survives::on(medium);
            (survives.process_death, survives.restart, survives.power_failure)
        };
        assert_eq!(of(Medium::Ram), (true, false, false));
        assert_eq!(of(Medium::Battery), (true, false, false));
        assert_eq!(of(Medium::Dax), (true, true, true));
        assert_eq!(of(Medium::Disk), (true, true, false));
        assert!(Survives::on(Medium::Disk).to_string().contains("last resort"));
    }
}
