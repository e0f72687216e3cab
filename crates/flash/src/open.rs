//! Opening a volume by the paths of its devices.
//!
//! All processes of a volume share its index: a region in a file in memory, whose name is made of
//! the volume's UUID and its life (the newest root of the devices tells which that is). Who finds
//! the file joins those who have it; who finds none makes it from the devices, which begins a new
//! life. So an index that others have gone past, because they opened the volume where this file
//! can't be seen, is never found again.
//!
//! *Who opens and who closes do so one at a time*, under a lock on all members: other
//! containers have another `/dev/shm`, but the same device. A file is there when it is complete: it
//! gets its name last, and before that it has none, so that a process that dies while it makes one
//! leaves nothing.
//!
//! *The last one to close removes the file.* Those who are killed leave it: whoever opens
//! the volume next joins it and goes on, and all that was acknowledged is there, flushed or not.
//! Only if the file itself is gone or can't be used is what was not flushed lost, as after a power
//! cut.
//!
//! *Whoever may write the devices can join*: the file can be written by those classes (owner,
//! group, others) that may write all of them, and has their owner and group as far as its maker
//! may give it away. A maker that is not their owner and may not do so stays the file's owner; a
//! group that it is not in, or that differs between devices, gets nothing. Access lists are not
//! looked at. A file of somebody who may not be able to write the devices is not trusted.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use conquest_format::geometry::{SUPERBLOCKS, Shape};
use conquest_format::superblock::SIZE;
use conquest_format::volume::{Root, Superblock};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, Medium, MediumKind, OsHost, Source};
use conquest_pm::{Access as Attaching, Options, Region};

use crate::cache::runs_of;
use crate::device::{Access, Device, Exclusive, FileDevice};
use crate::index::{Slot, Word, Words};
use crate::members::{
    Body, NewVolume, assemble, assemble_degraded, create, make_member, superblock_of,
};
use crate::newest::newest_root;
use crate::volume::Volume;
use crate::{Error, Result};

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where its index is: a directory of a file system in memory, the same one for all processes
    /// that are to share the volume.
    pub directory: PathBuf,
    /// Processes that can have it open at once, at least 2: who makes the index decides.
    pub processes: u32,
    /// Bytes of its index that are a cache of what was read, at most [`crate::CACHE_MAX`]; 0 for
    /// none: who makes the index decides. It takes memory 2 MiB at a time, long before it is full.
    pub cache: u64,
    /// Whether a mirrored volume is opened without those of its members that are not named: they
    /// have failed from then on, and what only they have is lost.
    pub degraded: bool,
    /// Longest wait for others: those who open or close it, and those who were killed with requests
    /// under way.
    pub patience: Duration,
    /// What the volume is to use for each of its devices: most often that itself.
    pub through: Through,
}

/// Those of the region of an index: it takes memory as the volume gets full.
fn region_options() -> Options<Mapped, OsHost> {
    Options { growth_groups: GROWTH, ..Options::default() }
}

/// Makes of a device what a volume uses for it, which knows the same writers.
pub type Through = fn(Arc<FileDevice>) -> std::io::Result<Arc<dyn Device>>;

impl Default for OpenOptions {
    /// In `/dev/shm`, for 64 processes, without a cache, waiting for 10 seconds at most.
    fn default() -> OpenOptions {
        OpenOptions {
            directory: "/dev/shm".into(),
            processes: 64,
            cache: 0,
            degraded: false,
            patience: Duration::from_secs(10),
            through: |device| Ok(device),
        }
    }
}

/// Pauses between looks at what others do.
const PAUSE: Duration = Duration::from_millis(2);
/// Groups of 2 MiB by which an index grows.
const GROWTH: u64 = 2;
/// Longest wait of those who make a volume of devices that nobody should have.
const BRIEFLY: Duration = Duration::from_secs(1);
/// Times that an index is made, for those that are lost at once.
const TRIES: u32 = 3;

/// The files of an open volume.
pub(crate) struct Opened {
    /// Its members that are there, by their numbers.
    pub(crate) devices: Vec<(u32, Arc<FileDevice>)>,
    pub(crate) index: PathBuf,
    pub(crate) superblock: Superblock,
    patience: Duration,
}

/// A volume's devices, by their numbers, and where its index belongs.
struct Opening<'o> {
    devices: Vec<(u32, Arc<FileDevice>)>,
    body: Body,
    options: &'o OpenOptions,
}

/// What can be joined at the place of an index.
enum Found {
    Joined(Box<Volume<Mapped, OsHost>>),
    /// Nothing.
    Absent,
    /// Something that is of no use: why.
    Useless(Error),
}

impl Volume<Mapped, OsHost> {
    /// Opens the volume whose devices are at `paths`, all of them, in any order: joins those who
    /// have it open, or recovers it.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Member`] for the devices; [`Error::InUse`] while others use the
    /// volume without the index that is in [`OpenOptions::directory`], or have a device for
    /// themselves; [`Error::Index`] if there can't be one; [`Error::Failed`]; those of recovery.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &OpenOptions) -> Result<Self> {
        let opening = Opening::new(paths, options)?;
        let _alone = lock_all(&opening.devices, options.patience)?;
        let mut useless = None;
        for _ in 0..TRIES {
            let (index, root) = opening.index()?;
            match opening.join(&index, &root)? {
                Found::Joined(mut volume) => {
                    let (devices, superblock) = (opening.devices.clone(), opening.body.superblock);
                    let patience = options.patience;
                    volume.opened = Some(Opened { devices, index, superblock, patience });
                    return Ok(*volume);
                }
                Found::Absent => {}
                Found::Useless(error) => useless = Some(error),
            }
            opening.wait_for_writers(useless.take())?;
            remove(&index)?;
            opening.make()?;
        }
        let (index, _) = opening.index()?;
        Err(Error::Index { index, what: "it goes as soon as it is made".into() })
    }

    /// Closes the volume: flushes it, and if nobody else has it open, frees the memory of its
    /// index. A volume that is dropped without this is left as if the process were killed.
    ///
    /// # Errors
    /// Those of [`Volume::flush`]: the index stays then.
    pub fn close(self) -> Result<()> {
        self.flush()?;
        let Some(opened) = self.opened.as_ref() else {
            return Ok(());
        };
        let alone = opened.devices.iter().map(|(_, device)| {
            // Also if it was removed since: its index is not to stay.
            lock(device, opened.patience, FileDevice::claim_opened)
        });
        let Ok(alone) = alone.collect::<Result<Vec<Exclusive>>>() else {
            // Who has it will be the last one, or leave it to the one after.
            return Ok(());
        };
        let outcome = self.remove_if_last(&opened.index, opened.patience);
        // Nobody is to see that somebody has the volume who will not look again. The files may be
        // open for longer: the kernel has those of queues for a while, and children that are just
        // being forked.
        let left = self.device.leave(self.writing.number);
        let left = left.map_err(|source| self.device_error("leave", 0, 0, source));
        drop(self);
        drop(alone);
        outcome.and(left)
    }

    /// Frees the index if nobody else has it, or only those who were killed and whose requests are
    /// complete within `patience`. Under the lock.
    fn remove_if_last(&self, index: &Path, patience: Duration) -> Result<()> {
        let since = Instant::now();
        loop {
            let anyone = self.device.is_anyone_entered();
            if !anyone.map_err(|source| self.device_error("ask who writes to", 0, 0, source))? {
                break;
            }
            // Requests of those who were killed are complete in a moment.
            if since.elapsed() > patience || self.core.is_anyone_else_attached()? {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        // What others have left who were killed.
        self.flush()?;
        // Recovery is to know what was flushed: so it takes what is damaged then for damaged, and
        // not for what never came to be. The packet that says so has nothing else.
        let last = self.root(Word::Durable).saturating_sub(1);
        let has = |of| self.core.packet(last, of);
        if has(Slot::Number) == last && has(Slot::Words) > 0 {
            self.name_durable()?;
        }
        remove(index)
    }

    /// Whether another process, or somebody else in this one, has it open by the same index.
    ///
    /// # Errors
    /// Those of the region.
    pub fn is_anyone_else_here(&self) -> Result<bool> {
        Ok(self.core.is_anyone_else_attached()?)
    }

    /// The file of its index; none for a volume that was not opened by paths.
    #[must_use]
    pub fn index(&self) -> Option<&Path> {
        self.opened.as_ref().map(|opened| opened.index.as_path())
    }
}

/// The device at `path`, to write to it.
///
/// # Errors
/// [`Error::Open`].
pub fn open_device(path: &Path) -> Result<FileDevice> {
    FileDevice::open(path, Access::Write).map_err(|source| {
        let what = match source.raw_os_error() {
            Some(libc::EINVAL) => "it is neither a file nor a block device",
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
                "it can't be written to, which opening a volume takes"
            }
            _ => "it can't be opened",
        };
        Error::Open { device: path.to_owned(), what, source }
    })
}

/// Makes a volume of the devices at `paths`, which nobody else may have: what is on them is lost.
///
/// # Errors
/// [`Error::Open`]; [`Error::InUse`]; [`Error::Shape`], also for a device that is part of a volume
/// already, unless it is to `overwrite` that; those of the devices.
pub fn create_at<P: AsRef<Path>>(paths: &[P], new: &NewVolume, overwrite: bool) -> Result<()> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    let (mut alone, mut inodes) = (Vec::new(), Vec::new());
    for path in paths {
        let device = open_device(path.as_ref())?;
        let failed = |action: &'static str| {
            let device = device.name().to_owned();
            move |source| Error::Device { device, action, at: 0, bytes: 0, source }
        };
        let refuse = |what| Err(Error::Shape { device: device.name().to_owned(), what });
        let inode = device.inode().map_err(failed("look at"))?;
        if inodes.contains(&inode) {
            return refuse("it is given twice");
        }
        inodes.push(inode);
        alone.push(lock(&device, BRIEFLY, FileDevice::claim_exclusively)?);
        if !await_writers(&device, BRIEFLY)? {
            let what = "they have it open as part of a volume; let them close it";
            return Err(Error::InUse { device: device.name().to_owned(), what });
        }
        if !overwrite && superblock_of(&device).is_ok() {
            return refuse("it is part of a volume already");
        }
        devices.push(Arc::new(device));
    }
    create(&devices, new)
}

/// Lets the device at `by` be the member of a mirrored volume that is not among `paths`: what is on
/// it is lost. It has failed until [`Volume::restore`] has brought it up to date.
///
/// # Errors
/// [`Error::Open`]; [`Error::InUse`], also while others have the volume open; [`Error::Member`] if
/// not just one is missing; [`Error::Shape`] for a device that is too small, or is part of a volume
/// already, unless it is to `overwrite` that; those of the devices.
pub fn replace_at<P: AsRef<Path>>(
    paths: &[P],
    by: &Path,
    options: &OpenOptions,
    overwrite: bool,
) -> Result<()> {
    let degraded = OpenOptions { degraded: true, ..options.clone() };
    let opening = Opening::new(paths, &degraded)?;
    let _alone = lock_all(&opening.devices, options.patience)?;
    opening.wait_for_writers(None)?;
    let new = open_device(by)?;
    let _new_alone = lock(&new, BRIEFLY, FileDevice::claim_exclusively)?;
    if !await_writers(&new, BRIEFLY)? {
        let what = "they have it open as part of a volume; let them close it";
        return Err(Error::InUse { device: by.to_owned(), what });
    }
    if !overwrite && superblock_of(&new).is_ok() {
        let what = "it is part of a volume already";
        return Err(Error::Shape { device: by.to_owned(), what });
    }
    let missing = opening.body.device.missing();
    if missing.count_ones() != 1 {
        let what = "just one member of a mirror can be replaced, which is not to be named";
        return Err(Error::Member { device: opening.body.device.name().to_owned(), what });
    }
    make_member(&new, &opening.body.superblock, missing.trailing_zeros())
}

/// Waits until nobody else has `device` for himself, as `claim` says: what is then done to the
/// volume, nobody else does.
fn lock(
    device: &FileDevice,
    patience: Duration,
    claim: impl Fn(&FileDevice) -> std::io::Result<Option<Exclusive>>,
) -> Result<Exclusive> {
    let since = Instant::now();
    loop {
        let claimed = claim(device).map_err(|source| Error::Open {
            device: device.name().to_owned(),
            what: "it can't be locked",
            source,
        })?;
        if let Some(alone) = claimed {
            return Ok(alone);
        }
        if since.elapsed() > patience {
            let what = "they have a lock on it: it is mounted, or being opened; wait for them";
            return Err(Error::InUse { device: device.name().to_owned(), what });
        }
        std::thread::sleep(PAUSE);
    }
}

/// [`lock`] on each of `devices`, in their order, so that nobody waits for who waits for him.
/// Others may have some of them only, if those are a mirror.
fn lock_all(devices: &[(u32, Arc<FileDevice>)], patience: Duration) -> Result<Vec<Exclusive>> {
    let claim = FileDevice::claim_exclusively;
    devices.iter().map(|(_, device)| lock(device, patience, claim)).collect()
}

/// Waits until nobody else writes to `device`: those who were killed with requests under way do so
/// for a moment. Whether that came.
fn await_writers(device: &dyn Device, patience: Duration) -> Result<bool> {
    let since = Instant::now();
    loop {
        let anyone = device.is_anyone_entered().map_err(|source| Error::Device {
            device: device.name().to_owned(),
            action: "ask who writes to",
            at: 0,
            bytes: 0,
            source,
        })?;
        if !anyone || since.elapsed() > patience {
            return Ok(!anyone);
        }
        std::thread::sleep(PAUSE);
    }
}

fn remove(index: &Path) -> Result<()> {
    match std::fs::remove_file(index) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(index_error(index, "remove it", &error))
        }
        _ => Ok(()),
    }
}

fn index_error(index: &Path, action: &str, source: &std::io::Error) -> Error {
    Error::Index { index: index.to_owned(), what: format!("{action}: {source}") }
}

/// The error for what the region of an index says that is not there yet, as one that names its
/// place.
fn named(index: &Path, error: conquest_pm::Error) -> Error {
    match error {
        conquest_pm::Error::System { action, source, .. } => index_error(index, action, &source),
        other => Error::Region(other),
    }
}

/// Which start of the machine this is.
fn boot() -> std::io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.chars().filter(char::is_ascii_hexdigit).collect())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<'o> Opening<'o> {
    fn new<P: AsRef<Path>>(paths: &[P], options: &'o OpenOptions) -> Result<Self> {
        let mut devices = Vec::new();
        for path in paths {
            devices.push(Arc::new(open_device(path.as_ref())?));
        }
        let mut members = Vec::new();
        for device in &devices {
            let member = (options.through)(Arc::clone(device));
            members.push(member.map_err(|source| Error::Open {
                device: device.name().to_owned(),
                what: "it can't be used",
                source,
            })?);
        }
        let body = match options.degraded {
            true => assemble_degraded(members)?,
            false => assemble(members)?,
        };
        let numbered = |device: Arc<FileDevice>| {
            let number = superblock_of(device.as_ref()).map(|superblock| superblock.member);
            number.map(|number| (number, device))
        };
        let mut devices = devices.into_iter().map(numbered).collect::<Result<Vec<_>>>()?;
        devices.sort_by_key(|(number, _)| *number);
        Ok(Opening { devices, body, options })
    }

    /// What names of indices of the volume begin with.
    fn prefix(&self) -> String {
        format!("conquest-volume-{}-", hexadecimal(&self.body.uuid()))
    }

    /// The file of the index of the present life, whether it is there or not, and the newest root.
    /// Under the lock.
    fn index(&self) -> Result<(PathBuf, Root)> {
        let root = newest_root(self.body.device.as_ref(), self.body.layout())?;
        let life = root.lives.last().map_or(0, |life| life.life);
        Ok((self.options.directory.join(format!("{}{life}", self.prefix())), root))
    }

    /// Joins those who have `index`; `root` is the newest one, read before. Under the lock.
    fn join(&self, index: &Path, root: &Root) -> Result<Found> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(index);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Found::Absent);
            }
            Err(error) => return Err(index_error(index, "open it", &error)),
        };
        self.trust(index, &file)?;
        if let Err(error) = self.check_identity(index, &file) {
            return Ok(Found::Useless(error));
        }
        let source = Source::Descriptor(OwnedFd::from(file));
        let kinds = self.body.kinds();
        let core = match Region::open(source, &kinds, Attaching::default(), region_options()) {
            Ok(core) => core,
            Err(error) if is_defect(&error) => return Ok(Found::Useless(error.into())),
            Err(error) => return Err(error.into()),
        };
        let life = root.lives.last().map_or(0, |life| life.life);
        let is_newest = root.sequence <= core.root(Word::LastSequence);
        if !is_newest || core.root(Word::Life) != life {
            let what = "their index does not know what was written by another one since";
            return Ok(Found::Useless(self.in_use(what)));
        }
        if core.root(Word::Failed) != 0 {
            let volume = Volume::over(core, self.device(), self.body.layout());
            return Ok(Found::Useless(volume.failed()));
        }
        match Volume::join(core, &self.body) {
            Ok(volume) => Ok(Found::Joined(Box::new(volume))),
            Err(Error::Region(error)) if is_defect(&error) => Ok(Found::Useless(error.into())),
            Err(error @ Error::InUse { .. }) => Ok(Found::Useless(error)),
            Err(error) => Err(error),
        }
    }

    fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.body.device)
    }

    fn in_use(&self, what: &'static str) -> Error {
        Error::InUse { device: self.body.device.name().to_owned(), what }
    }

    /// Refuses what somebody may have put there who could not write the devices.
    fn trust(&self, index: &Path, file: &File) -> Result<()> {
        let found = file.metadata().map_err(|error| index_error(index, "look at it", &error))?;
        let rights = self.rights()?;
        let is_owner = [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
            || rights.owner == Some(found.uid());
        // Who is not in a group can't give files to it.
        let is_member = rights.mode & 0o020 != 0 && rights.group == Some(found.gid());
        if found.is_file() && (is_owner || is_member || rights.mode & 0o002 != 0) {
            return Ok(());
        }
        let what = format!(
            "it is no file, or of user {}, who may not be able to write the devices; remove it",
            found.uid()
        );
        Err(Error::Index { index: index.to_owned(), what })
    }

    /// Whether the region in `file` is this volume's, and of this start of the machine.
    fn check_identity(&self, index: &Path, file: &File) -> Result<()> {
        let failed = |error: std::io::Error| index_error(index, "read it", &error);
        let again = file.try_clone().map_err(failed)?;
        let medium = Medium::open(Source::Descriptor(OwnedFd::from(again)))?;
        let mut copies = [[0; SIZE]; 2];
        for (at, copy) in SUPERBLOCKS.into_iter().zip(&mut copies) {
            medium.peek(at.bytes(), copy)?;
        }
        let superblock = conquest_pm::superblock::choose(index, &copies)?;
        let is_ours = superblock.uuid == self.body.uuid();
        if is_ours && hexadecimal(&superblock.boot_id) == boot().map_err(failed)? {
            return Ok(());
        }
        let what = "it is of another volume, or from before the machine was started".into();
        Err(Error::Index { index: index.to_owned(), what })
    }

    /// Waits until nobody writes to the devices, whose index would be another one. If somebody
    /// does, that is the error, or `why` if that tells more.
    fn wait_for_writers(&self, why: Option<Error>) -> Result<()> {
        if await_writers(self.body.device.as_ref(), self.options.patience)? {
            return Ok(());
        }
        let what = "their index of the volume is not in the directory for indices (it was \
                    removed, or theirs is another one); let them close it";
        Err(why.unwrap_or_else(|| self.in_use(what)))
    }
}

/// Whether `error` is about what is in the region, so that another one would do.
fn is_defect(error: &conquest_pm::Error) -> bool {
    use conquest_pm::Error as E;
    matches!(
        error,
        E::NotARegion { .. }
            | E::Endianness { .. }
            | E::Version { .. }
            | E::Features { .. }
            | E::Kind { .. }
            | E::Superblocks { .. }
            | E::Truncated { .. }
            | E::Corrupt { .. }
            | E::Failed { .. }
    )
}

/// Who may write to all devices.
struct Rights {
    /// Permission bits that all have.
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
}

impl Opening<'_> {
    fn rights(&self) -> Result<Rights> {
        let mut all: Option<Rights> = None;
        for (_, device) in &self.devices {
            let found = rustix::fs::fstat(device).map_err(|errno| Error::Open {
                device: device.name().to_owned(),
                what: "can't tell who may write to it",
                source: errno.into(),
            })?;
            let before = all.unwrap_or(Rights {
                mode: 0o666,
                owner: Some(found.st_uid),
                group: Some(found.st_gid),
            });
            all = Some(Rights {
                mode: before.mode & found.st_mode,
                owner: before.owner.filter(|&owner| owner == found.st_uid),
                group: before.group.filter(|&group| group == found.st_gid),
            });
        }
        Ok(all.unwrap_or(Rights { mode: 0, owner: None, group: None }))
    }

    /// Makes the index from the devices: its file has its name when this has returned, and those of
    /// earlier lives are gone. Under the lock, and nobody writes to the devices.
    fn make(&self) -> Result<()> {
        let directory = &self.options.directory;
        let place = directory.join(format!("{}(new)", self.prefix()));
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
        let opened = options.open(directory);
        let file = opened.map_err(|error| index_error(&place, "make it", &error))?;
        let again = || {
            let file = file.try_clone().map_err(|error| index_error(&place, "make it", &error))?;
            Ok::<_, Error>(Source::Descriptor(OwnedFd::from(file)))
        };
        let kind = Medium::open(again()?)?.kind().clone();
        if !matches!(kind, MediumKind::Tmpfs | MediumKind::HugeTmpfs { .. } | MediumKind::Ramfs) {
            let what = format!("{kind} is no place for it; name a directory in memory (tmpfs)");
            return Err(Error::Index { index: place, what });
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let kinds = self.body.kinds();
        let runs = runs_of(self.options.cache, self.body.layout().unit);
        let shape = self.body.shape(self.options.processes);
        let new = NewRegion {
            shape: Shape { max_groups: shape.max_groups + runs, ..shape },
            kinds,
            uuid: self.body.uuid(),
            created: since.as_nanos() as u64,
            groups: 1,
        };
        Region::create(again()?, 0o600, &new).map_err(|error| named(&place, error))?;
        let core = Region::open(again()?, &kinds, Attaching::default(), region_options())
            .map_err(|error| named(&place, error))?;
        // It is joined again by its name, for messages.
        let recovered = Volume::recover(core, &self.body).map_err(|error| match error {
            Error::Region(error) => named(&place, error),
            other => other,
        })?;
        recovered.allow_cache(self.options.cache)?;
        drop(recovered);
        self.give(&place, &file)?;
        let (index, _) = self.index()?;
        remove(&index)?;
        let made = format!("/proc/self/fd/{}", file.as_raw_fd());
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, made, rustix::fs::CWD, &index, follow)
            .map_err(|errno| index_error(&index, "name it", &errno.into()))?;
        self.remove_others(&index);
        Ok(())
    }

    /// Gives the file of an index to those who may write to the devices.
    fn give(&self, place: &Path, file: &File) -> Result<()> {
        let rights = self.rights()?;
        let mut mode = 0o600;
        let is_given =
            |owner, group| std::os::unix::fs::fchown(file, owner, group).is_ok() && group.is_some();
        // The second way is for those who may not give their files away.
        let is_shared = is_given(rights.owner, rights.group) || is_given(None, rights.group);
        if is_shared && rights.mode & 0o020 != 0 {
            mode |= 0o060;
        }
        if rights.mode & 0o002 != 0 {
            mode |= 0o006;
        }
        file.set_permissions(std::fs::Permissions::from_mode(mode))
            .map_err(|error| index_error(place, "set who may use it", &error))
    }

    /// Removes indices of earlier lives, which nobody has: those that are somebody else's stay.
    fn remove_others(&self, index: &Path) {
        let Ok(entries) = std::fs::read_dir(&self.options.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let is_one = entry.file_name().as_encoded_bytes().starts_with(self.prefix().as_bytes());
            if is_one && entry.path() != index {
                // It takes memory, and nothing else.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
