//! Errors, each naming the object, what was expected, what was found and the remedy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Id;
use crate::files::FileError;
use crate::store::attached::Names;
use crate::store::identity::Place;
use crate::store::new::Medium;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{path}: {action}: {source}")]
    System {
        /// The file.
        path: PathBuf,
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The region says so.
    #[error(transparent)]
    Core(#[from] conquest_pm::Error),
    /// The file system says so.
    #[error(transparent)]
    Fs(#[from] conquest_fs::Error),
    /// The volume says so.
    #[error(transparent)]
    Volume(#[from] conquest_flash::Error),
    /// The core on the volume says so.
    #[error(transparent)]
    Image(#[from] conquest_image::Error),
    /// The volume is another one than the store's.
    #[error(
        "{directory}: the volume on {device} is {found}, the store's is {expected}; put the right \
         one in its place, or name it in `store.toml`"
    )]
    VolumeOfAnother {
        /// The store.
        directory: PathBuf,
        /// The volume's first device.
        device: PathBuf,
        /// The store's volume.
        expected: Id,
        /// What is there.
        found: Id,
    },
    /// The volume is the store's, but not as its core needs it.
    #[error("{directory}: the volume on {device} does not fit the core: {why}")]
    VolumeUnfit {
        /// The store.
        directory: PathBuf,
        /// The volume's first device.
        device: PathBuf,
        /// What does not fit, and what to do.
        why: &'static str,
    },
    /// A device for a new volume holds something.
    #[error("{device}: it is not empty; name another one, or use --force, and all on it is lost")]
    NotEmpty {
        /// The device.
        device: PathBuf,
    },
    /// Others have a volume open that is to be rescued: its core is there.
    #[error(
        "{device}: other processes have the volume open, so its core is there; let them detach the \
         store (`conquest info` tells who has it attached), or save it with `conquest save`"
    )]
    VolumeOpen {
        /// The volume's first device.
        device: PathBuf,
    },
    /// A volume on which there is nothing that could be rescued.
    #[error("{device}: nothing can be rescued of this volume: {why}")]
    NothingToRescue {
        /// The volume's first device.
        device: PathBuf,
        /// Why, and what to do.
        why: &'static str,
    },
    /// A directory that is to be new holds something.
    #[error("{directory}: not empty: it holds {name:?}; name a new or an empty directory")]
    NotEmptyDirectory {
        /// The directory.
        directory: PathBuf,
        /// One of the names in it.
        name: String,
    },
    /// What is asked for needs, or can't have, a volume.
    #[error("{directory}: {what}")]
    VolumeRule {
        /// The store.
        directory: PathBuf,
        /// What does not go together, and what does.
        what: &'static str,
    },
    /// Large files without a volume, where their data is.
    #[error(
        "{directory}: there are large files, whose data is on a volume, and it has none; name one \
         with --volume (a size, or devices)"
    )]
    LargeFiles {
        /// The store.
        directory: PathBuf,
    },
    /// An operation on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory is no store.
    #[error(
        "{directory}: not a store: it has no `store.toml`; name a store's directory, or make one \
         with `conquest mkfs`"
    )]
    NotAStore {
        /// The directory.
        directory: PathBuf,
    },
    /// A store is there already.
    #[error("{directory}: holds a store already; to replace it and lose it, use --force")]
    Exists {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory holds something else.
    #[error(
        "{directory}: not empty, and no store: it holds {name:?}; name a new or an empty directory"
    )]
    Occupied {
        /// The directory.
        directory: PathBuf,
        /// One of the names in it.
        name: String,
    },
    /// The core's place holds something already.
    #[error(
        "{core}: exists already and is not this store's core; remove it, or name another place"
    )]
    CoreExists {
        /// The file.
        core: PathBuf,
    },
    /// `store.toml` can't be understood.
    #[error("{path}: line {line}: {reason}; repair it, or restore the store from a saved copy")]
    Settings {
        /// The file.
        path: PathBuf,
        /// Where, counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// `store.toml` was written by a newer program.
    #[error("{path}: format {found} of the store, this program knows {known}; use a newer release")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest that this program knows.
        known: u64,
    },
    /// Somebody else does something with the store as a whole.
    #[error(
        "{directory}: in use for {waited:?} by {holder}; wait until that is done, or see whether \
         it is stopped"
    )]
    Busy {
        /// The directory.
        directory: PathBuf,
        /// Who, as far as it is known.
        holder: String,
        /// How long this process has waited.
        waited: Duration,
    },
    /// Files of the store are open in this process.
    #[error(
        "{directory}: {count} files of it are open in this process: close them; it is detached \
         with the last one"
    )]
    FilesOpen {
        /// The store.
        directory: PathBuf,
        /// How many.
        count: usize,
    },
    /// The core was in RAM, and the machine was restarted.
    #[error(
        "{directory}: its core {core} was in RAM and is lost: the machine was restarted \
         (boot {found}, the core is of boot {expected}); bring back a saved copy with \
         `conquest restore`, or begin anew with `conquest mkfs --force`"
    )]
    CoreLost {
        /// The store.
        directory: PathBuf,
        /// Where the core was.
        core: PathBuf,
        /// The boot in which the core was live.
        expected: Id,
        /// This one.
        found: Id,
    },
    /// The core is not where it was.
    #[error(
        "{directory}: its core {core} is not there, though the machine was not restarted since it \
         was: it was removed, or is on a file system that is not mounted here (another container \
         has its own); attach from where it is, bring back a saved copy with `conquest restore \
         --force`, or begin anew with `conquest mkfs --force`"
    )]
    CoreGone {
        /// The store.
        directory: PathBuf,
        /// Where the core was.
        core: PathBuf,
    },
    /// The core is on a disk file, and the machine stopped while it was attached.
    #[error(
        "{directory}: its core {core} is on a disk file and was attached when the machine stopped: \
         what the kernel had written back of it is unknown; bring back a saved copy with `conquest \
         restore --force`, or take it as it is with --adopt, and check it"
    )]
    CoreTorn {
        /// The store.
        directory: PathBuf,
        /// The core.
        core: PathBuf,
    },
    /// Another file stands in the core's place.
    #[error(
        "{directory}: {core} is not the store's live core: that is {expected}, this is {found}. It \
         is a copy, or belongs to another container. Attach from where the live one is; if that is \
         gone for good, take this one with --adopt, or bring back a saved copy with `conquest \
         restore`"
    )]
    CoreForeign {
        /// The store.
        directory: PathBuf,
        /// What stands there.
        core: PathBuf,
        /// The live one.
        expected: Place,
        /// This one.
        found: Place,
    },
    /// The core is that of another store.
    #[error(
        "{directory}: {core} holds region {found}, the store's is {expected}: it is another \
         store's core; put the right one there, or bring back a saved copy with `conquest restore`"
    )]
    CoreOfAnother {
        /// The store.
        directory: PathBuf,
        /// The core.
        core: PathBuf,
        /// The store's region.
        expected: Id,
        /// What was found.
        found: Id,
    },
    /// The directory is a copy of a store that is still there.
    #[error(
        "{directory}: a copy of the store {original}, which is still there; use that one, or make \
         a store of your own from a saved copy with `conquest restore --new-identity`"
    )]
    Copied {
        /// The directory.
        directory: PathBuf,
        /// Where the store is.
        original: PathBuf,
    },
    /// No place for the core.
    #[error("no suitable shared RAM for the core: {reasons}; name a place with --core")]
    NoPlace {
        /// What was looked at, and why it does not do.
        reasons: String,
    },
    /// A directory that others could use to get at the core.
    #[error("{path}: {what}; remove it, or name another place for the core with --core")]
    Untrusted {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The core's file is not of the medium that was asked for.
    #[error("{path}: medium {wanted} was asked for, but this is {found}; {remedy}")]
    Medium {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        wanted: Medium,
        /// What it is.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An impossible number.
    #[error("{what}: {value} is out of range {least} to {most}")]
    Range {
        /// Of what.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least possible.
        least: u64,
        /// The most possible.
        most: u64,
    },
    /// Others have the store attached.
    #[error("{directory}: attached by {who}; let them detach first")]
    Attached {
        /// The store.
        directory: PathBuf,
        /// Who they are.
        who: Names,
    },
    /// The file is no saved copy.
    #[error(
        "{path}: not a saved copy: expected \"CONQSAVE\" at offset 0, found {found}; name a file \
         that `conquest save` made"
    )]
    NotACopy {
        /// The file.
        path: PathBuf,
        /// What stands there, as hexadecimal bytes.
        found: String,
    },
    /// A saved copy of another version.
    #[error(
        "{path}: version {found} of saved copies, this program knows {known}; use the release \
             that made it"
    )]
    CopyVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that this program knows.
        known: u32,
    },
    /// A saved copy that was not finished.
    #[error(
        "{path}: not complete: it ends at offset {offset} before {missing}; run `conquest save` \
         again, or use another copy"
    )]
    CopyIncomplete {
        /// The file.
        path: PathBuf,
        /// Where it ends.
        offset: u64,
        /// What is missing.
        missing: &'static str,
    },
    /// A saved copy that is damaged.
    #[error(
        "{path}: damaged at offset {offset}: {what}: expected {expected:#x}, found {found:#x}; \
         use another copy"
    )]
    CopyDamaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
        /// What would be right.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Something that is not to be overwritten.
    #[error("{path}: exists already; name another file, or replace it with --force")]
    CopyExists {
        /// The file.
        path: PathBuf,
    },
    /// The store has a core whose contents a restore would lose.
    #[error(
        "{directory}: its core has changed since the copy was saved (core: attach generation \
         {core}; copy: {copy}); save it first, or lose what is in it with --force"
    )]
    CoreNewer {
        /// The store.
        directory: PathBuf,
        /// The attach generation of the core.
        core: u64,
        /// That of the copy.
        copy: u64,
    },
    /// The copy is of another store.
    #[error(
        "{directory}: is store {expected}, the copy is of store {found}; restore into another \
         directory, or lose what is in this one with --force"
    )]
    CopyOfAnother {
        /// The store.
        directory: PathBuf,
        /// The store's identity.
        expected: Id,
        /// That of the saved one.
        found: Id,
    },
    /// The store of which this is a copy still lives elsewhere.
    #[error(
        "{directory}: the store that was saved is still at {original}: two of the same identity \
         would be mistaken for each other; restore with --new-identity, or remove that one"
    )]
    OriginalLives {
        /// Where the copy was to be restored.
        directory: PathBuf,
        /// Where the original is.
        original: PathBuf,
    },
    /// There is no room for the core.
    #[error(
        "{core}: {wanted} bytes are needed for the core, {available} are free; ask for less with \
         --size, or name a place that has room with --core"
    )]
    NoRoom {
        /// Where it was to be.
        core: PathBuf,
        /// Bytes needed.
        wanted: u64,
        /// Bytes free.
        available: u64,
    },
    /// There is no room for a volume.
    #[error(
        "{path}: {wanted} bytes are needed for the volume, {available} are free; ask for less with \
         --size-max, name a place with --volume, or do without by --volume none"
    )]
    NoRoomForVolume {
        /// Where it was to be.
        path: PathBuf,
        /// Bytes needed.
        wanted: u64,
        /// Bytes free.
        available: u64,
    },
    /// A volume that has no room for all that the core may have, and the large files of a copy.
    #[error(
        "{volume}: has {found} bytes, and the store may need {expected} of it; name a larger \
         volume, or let the core grow less (--size-max)"
    )]
    VolumeTooSmall {
        /// Its first device.
        volume: PathBuf,
        /// Bytes needed.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A device or a region that the copy does not fit on.
    #[error(
        "{core}: has {found} bytes, the saved region needs {expected}: a region keeps its shape \
         for life; restore to a place that has room for it"
    )]
    TooSmall {
        /// The place.
        core: PathBuf,
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// What should be a map of a user namespace is none.
    #[error("{path}: line {line}: expected three numbers, of ids in a row; is this /proc?")]
    NoIdMap {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1 on.
        line: usize,
    },
    /// A store can't keep an id.
    #[error(
        "{what} {id} is nobody outside this user namespace, so that a store can't keep it; name \
         one that is in /proc/self/uid_map and gid_map"
    )]
    NoId {
        /// User or group.
        what: &'static str,
        /// Its number.
        id: u32,
    },
    /// The caller's progress function asked for it.
    #[error("cancelled")]
    Cancelled,
}

/// What an operation of this crate returns.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// The error number that a system call would give.
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        match self {
            Error::System { source, .. }
            | Error::Core(conquest_pm::Error::System { source, .. }) => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Error::Core(conquest_pm::Error::AttachBusy { .. }) => libc::EBUSY,
            Error::Core(conquest_pm::Error::Slots { .. }) => libc::EUSERS,
            Error::Core(conquest_pm::Error::NoParcel { .. }) => libc::EBADF,
            Error::Core(conquest_pm::Error::NoSpace { .. }) => libc::ENOSPC,
            Error::Core(_) => libc::EIO,
            Error::Volume(conquest_flash::Error::NoSpace { .. })
            | Error::Image(conquest_image::Error::Volume(conquest_flash::Error::NoSpace {
                ..
            })) => libc::ENOSPC,
            Error::Volume(conquest_flash::Error::InUse { .. }) | Error::VolumeOpen { .. } => {
                libc::EBUSY
            }
            Error::NothingToRescue { .. } => libc::ENODATA,
            Error::Volume(_) | Error::Image(_) => libc::EIO,
            Error::VolumeOfAnother { .. } | Error::VolumeUnfit { .. } => libc::ESTALE,
            Error::NotEmpty { .. } => libc::EEXIST,
            Error::VolumeRule { .. } => libc::EINVAL,
            Error::LargeFiles { .. } => libc::EOPNOTSUPP,
            Error::Fs(error) => error.errno().number(),
            Error::File(error) => error.errno().number(),
            Error::NotAStore { .. } | Error::CoreGone { .. } => libc::ENOENT,
            Error::Exists { .. } | Error::CoreExists { .. } | Error::CopyExists { .. } => {
                libc::EEXIST
            }
            Error::Occupied { .. } | Error::NotEmptyDirectory { .. } => libc::ENOTEMPTY,
            Error::NewerFormat { .. } | Error::CopyVersion { .. } => libc::EPROTONOSUPPORT,
            Error::Busy { .. } | Error::Attached { .. } | Error::FilesOpen { .. } => libc::EBUSY,
            Error::CoreLost { .. } => libc::ENODATA,
            Error::CoreTorn { .. } => libc::EIO,
            Error::CoreForeign { .. }
            | Error::CoreOfAnother { .. }
            | Error::Copied { .. }
            | Error::OriginalLives { .. }
            | Error::CopyOfAnother { .. }
            | Error::CoreNewer { .. } => libc::ESTALE,
            Error::NoPlace { .. }
            | Error::NoRoom { .. }
            | Error::NoRoomForVolume { .. }
            | Error::VolumeTooSmall { .. }
            | Error::TooSmall { .. } => libc::ENOSPC,
            Error::Untrusted { .. } => libc::EPERM,
            Error::Medium { .. } | Error::Range { .. } | Error::NotACopy { .. } => libc::EINVAL,
            Error::NoIdMap { .. } | Error::NoId { .. } => libc::EINVAL,
            Error::Settings { .. } | Error::CopyIncomplete { .. } | Error::CopyDamaged { .. } => {
                libc::EIO
            }
            Error::Cancelled => libc::ECANCELED,
        }
    }

    /// What kind of error the standard library takes it for.
    #[must_use]
    pub fn kind(&self) -> std::io::ErrorKind {
        std::io::Error::from_raw_os_error(self.raw_os_error()).kind()
    }
}

/// The error as the standard library's: of the same kind, with the same words. It can be had back
/// by [`std::io::Error::downcast`].
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        std::io::Error::new(error.kind(), error)
    }
}

/// Makes the error of `action` on `path`.
pub(crate) fn failed<E: Into<std::io::Error>>(
    path: &Path,
    action: &'static str,
) -> impl FnOnce(E) -> Error {
    move |source| Error::System { path: path.to_owned(), action, source: source.into() }
}
