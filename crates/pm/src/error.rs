//! Errors, each naming the object, what was expected, what was found and the remedy.

use std::path::PathBuf;
use std::time::Duration;

use conquest_format::Offset;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed on the region's file.
    #[error("{path}: {action}: {source}")]
    System {
        /// The region's file, or what stands for it.
        path: PathBuf,
        /// What was being done, as a verb phrase.
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// As many holdings as the region can have.
    #[error(
        "{path}: processes have {most} files open or locked, which is all that the region has room \
         for; close some, or make a store with more"
    )]
    Holdings {
        /// The region's file.
        path: PathBuf,
        /// How many there can be.
        most: u64,
    },
    /// A process died that had files open, and this program can't end that.
    #[error("{path}: a dead process had files open, which this program knows nothing of")]
    NoBurials {
        /// The region's file.
        path: PathBuf,
    },
    /// The file is no region.
    #[error(
        "{path}: not a Conquest region: expected magic \"CONQCORE\" at offset {offset}, found \
         {found}; name the core file of a store, or make one"
    )]
    NotARegion {
        /// The file.
        path: PathBuf,
        /// Where the magic was looked for.
        offset: Offset,
        /// What stands there, as hexadecimal bytes.
        found: String,
    },
    /// The region was made on a machine of the other byte order.
    #[error(
        "{path}: region is big-endian (version field at offset {offset}); this format is \
             little-endian on every machine: the file was not written by Conquest"
    )]
    Endianness {
        /// The file.
        path: PathBuf,
        /// Offset of the version field.
        offset: Offset,
    },
    /// Another format version.
    #[error(
        "{path}: format version at offset {offset}: expected {expected}, found {found}; use the \
         release of Conquest that made it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Offset of the version field.
        offset: Offset,
        /// The version this program knows.
        expected: u32,
        /// The version found.
        found: u32,
    },
    /// Features that this program must know and doesn't.
    #[error(
        "{path}: incompatible features {found:#x} at offset {offset}: this program knows \
         {expected:#x}; use a newer release"
    )]
    Features {
        /// The file.
        path: PathBuf,
        /// Offset of the feature word.
        offset: Offset,
        /// Bits known.
        expected: u64,
        /// Bits unknown.
        found: u64,
    },
    /// Attached by processes that work together in another way.
    #[error(
        "{path}: attached by processes of live protocol {found}, this program has {expected}; \
         let them detach first, or use their release"
    )]
    LiveProtocol {
        /// The file.
        path: PathBuf,
        /// This program's.
        expected: u32,
        /// That of those attached.
        found: u32,
    },
    /// The region holds other kinds of object than the caller expects.
    #[error(
        "{path}: kind {kind} at offset {offset}: expected objects of {expected} bytes, found \
         {found}; the region belongs to another program or release"
    )]
    Kind {
        /// The file.
        path: PathBuf,
        /// Offset of the kind's entry.
        offset: Offset,
        /// The kind's number.
        kind: u8,
        /// Bytes expected.
        expected: u16,
        /// Bytes found.
        found: u16,
    },
    /// Neither superblock copy is usable.
    #[error(
        "{path}: both superblocks are corrupt (offsets {first} and {second}: expected checksum \
         {expected:#018x}, found {found:#018x}); restore the region from a save"
    )]
    Superblocks {
        /// The file.
        path: PathBuf,
        /// Offset of the first copy.
        first: Offset,
        /// Offset of the second copy.
        second: Offset,
        /// The first copy's computed checksum.
        expected: u64,
        /// The first copy's stored checksum.
        found: u64,
    },
    /// The file is shorter than the region.
    #[error(
        "{path}: truncated: the region needs {expected} bytes, the file has {found}; restore it \
         from a save"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// A file that processes can't share by mapping it.
    #[error("{path}: a {kind} can't be shared as memory; put the core on {remedy}")]
    Unsharable {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: String,
        /// What would do.
        remedy: &'static str,
    },
    /// Impossible numbers for a new region.
    #[error("{path}: {what}: {value} is out of range {least} to {most}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Smallest allowed.
        least: u64,
        /// Largest allowed.
        most: u64,
    },
    /// A region is there already.
    #[error("{path}: already holds a region; remove it first, or choose another file")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// All process slots are taken by living processes.
    #[error(
        "{path}: all {slots} process slots are in use; detach a process, or make the region with \
         more slots"
    )]
    Slots {
        /// The file.
        path: PathBuf,
        /// Slots in the region.
        slots: u32,
    },
    /// A parcel that is not there, or that somebody else has received.
    #[error(
        "{path}: there is no parcel in slot {slot} to receive; whoever sent it has to send \
         another one"
    )]
    NoParcel {
        /// The file.
        path: PathBuf,
        /// The slot.
        slot: u32,
    },
    /// Attaching waits for a process that neither finishes nor dies.
    #[error("{path}: another process has been attaching for {waited:?}; see whether it is stopped")]
    AttachBusy {
        /// The file.
        path: PathBuf,
        /// How long this process has waited.
        waited: Duration,
    },
    /// The region holds something impossible.
    #[error(
        "corrupt {what} at offset {offset}: expected {expected}, found {found:#x}; check the store"
    )]
    Corrupt {
        /// What is corrupt.
        what: &'static str,
        /// Where.
        offset: Offset,
        /// What would be right.
        expected: &'static str,
        /// What is there.
        found: u64,
    },
    /// The region has failed before; nothing is done on it any more.
    #[error("the region has failed ({reason}); detach, check the store and attach again")]
    Failed {
        /// Why it failed.
        reason: &'static str,
    },
    /// Operations of the process that wants to detach are under way.
    #[error("{path}: {lanes} operations of this process are under way; end them, then detach")]
    InUse {
        /// The file.
        path: PathBuf,
        /// How many.
        lanes: u32,
    },
    /// No space left.
    #[error("no space left in the region: {wanted} pages wanted, {free} of {total} free")]
    NoSpace {
        /// Pages wanted in one run.
        wanted: u64,
        /// Pages free, as counted.
        free: u64,
        /// Pages the region has at most.
        total: u64,
    },
    /// The region is loaded from a volume, and the caller can't.
    #[error("{path}: this core is being loaded from its volume; attach it by its store")]
    Loading {
        /// The region's file.
        path: PathBuf,
    },
    /// What is not resident could not be loaded.
    #[error("{path}: it could not be loaded from its volume: {reason}")]
    NotLoaded {
        /// The region's file.
        path: PathBuf,
        /// Why, with the object.
        reason: String,
    },
    /// What is in the log can't be made durable.
    #[error("{path}: what was changed can't be made durable: {reason}")]
    NotDurable {
        /// The region's file.
        path: PathBuf,
        /// Why, with the object and the remedy.
        reason: String,
    },
    /// There is no room for a record in the log.
    #[error(
        "{path}: all {chunks} chunks of the log have something that is not durable, and this \
         program can't make it so; let one run that can, or see what it says of the volume"
    )]
    LogFull {
        /// The region's file.
        path: PathBuf,
        /// Chunks that there are.
        chunks: u32,
    },
    /// The operation met another one on its way: drop the transaction and start again.
    #[error("another operation is in the way; start again")]
    Again,
    /// A lock that this very thread holds in an operation that a signal interrupted.
    #[error("lock {lock} is held by the operation that this signal handler interrupted")]
    OwnLock {
        /// The lock's number.
        lock: u32,
    },
    /// No lane for an operation of a signal handler: the one that it interrupted holds lanes, and
    /// nobody must wait for lanes while he holds one.
    #[error(
        "no journal lane is free, and the operation that this signal handler interrupted holds \
         one; try again after it, or make the region with more lanes"
    )]
    OwnLane,
    /// The process was forked in the middle of an operation, which has not returned in this child.
    #[error("this child was forked in the middle of an operation: let that return first")]
    ForkedInside,
    /// A signal arrived during an interruptible wait.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The region was mapped for reading only.
    #[error("the region is attached for reading only")]
    ReadOnly,
    /// One operation is larger than a journal lane.
    #[error("operation too large: {what}: {wanted} wanted, a lane has {most}; use an intent")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many were wanted.
        wanted: u64,
        /// How many there can be.
        most: u64,
    },
    /// An intent of a code that nobody here can finish.
    #[error("lane {lane}: unfinished work of unknown code {code}; use the release that began it")]
    UnknownIntent {
        /// The lane.
        lane: u32,
        /// The code.
        code: u64,
    },
}

/// What an operation of this crate returns.
pub type Result<T> = core::result::Result<T, Error>;
