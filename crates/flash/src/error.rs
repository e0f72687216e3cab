//! Errors, each naming the object, the reason and the remedy.

use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device did not do what it was asked for.
    #[error("{device}: {action} {bytes} bytes at byte {at}: {source}")]
    Device {
        /// The device.
        device: PathBuf,
        /// What was being done, as a verb.
        action: &'static str,
        /// From which byte on.
        at: u64,
        /// How much.
        bytes: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A device can't be opened.
    #[error("{device}: {what}: {source}")]
    Open {
        /// The device.
        device: PathBuf,
        /// What is wrong with it.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The index of a volume can't be made or used.
    #[error("{index}: the volume's index can't be used: {what}")]
    Index {
        /// Its file, or where that was to be.
        index: PathBuf,
        /// Why.
        what: String,
    },
    /// A device is no member of the volume, or says what can't be.
    #[error("{device}: {what}; name all members of one volume, as they were made")]
    Member {
        /// The device.
        device: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A member of a mirror is not there.
    #[error(
        "{device}: member {member} of its mirror, of {members}, is missing; name it, too, or open \
         the volume without it (--degraded): if this one is old, what was written since is lost"
    )]
    Missing {
        /// A device that is there.
        device: PathBuf,
        /// Which is not, from 0.
        member: u32,
        /// How many there are.
        members: u32,
    },
    /// A member of a mirror can't be brought up to date.
    #[error("{device}: a member of its mirror can't be brought up to date: {what}")]
    Restore {
        /// The device.
        device: PathBuf,
        /// Why.
        what: &'static str,
    },
    /// Members of a mirror were used without each other.
    #[error(
        "{device}: the members of its mirror were used without each other, and each has what the \
         other lacks; open the volume with those alone that are right (--degraded), and replace \
         the others"
    )]
    Parted {
        /// The device.
        device: PathBuf,
    },
    /// A volume can't be made so.
    #[error("{device}: can't be made a volume: {what}")]
    Shape {
        /// The device.
        device: PathBuf,
        /// Why.
        what: &'static str,
    },
    /// What the map leads to is not what was written, on any copy.
    #[error(
        "{device}: block {block} of the volume can't be read: what the device has for it (byte \
         {at}) is not what was written; restore it from elsewhere, or trim it"
    )]
    Damaged {
        /// The device.
        device: PathBuf,
        /// First block of the space that is concerned.
        block: u64,
        /// Byte of the device.
        at: u64,
    },
    /// What recovery needs can't be read.
    #[error("{device}: the volume's {what} can't be read; it can't be opened as it is")]
    Unreadable {
        /// The device.
        device: PathBuf,
        /// What.
        what: &'static str,
    },
    /// All of the space that there is for payload is in use.
    #[error(
        "{device}: no space left: {used} of {most} units are in use or reserved{}; trim some",
        bad_text(*bad, *all)
    )]
    NoSpace {
        /// The device.
        device: PathBuf,
        /// Units with payload, and reserved ones.
        used: u64,
        /// Units that can be so.
        most: u64,
        /// Segments that can't be written any more.
        bad: u64,
        /// Segments in all.
        all: u64,
    },
    /// A range that can't be.
    #[error("block {block}, {count} blocks: {what}")]
    Range {
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// More at once than there is room for.
    #[error("{wanted} ranges in one atomic write are more than {most}; write fewer at once")]
    TooMany {
        /// Ranges.
        wanted: u64,
        /// Most of them.
        most: u64,
    },
    /// More bytes at once than there is room for.
    #[error(
        "{bytes} bytes in one atomic write are too many: at most {most}, and fewer where free \
         space is in small pieces; write fewer at once"
    )]
    TooLarge {
        /// Bytes.
        bytes: u64,
        /// Most of them.
        most: u64,
    },
    /// The volume failed before, in this process or another one.
    #[error("{device}: the volume has failed: {reason}; close it everywhere and open it again")]
    Failed {
        /// The device.
        device: PathBuf,
        /// What happened.
        reason: &'static str,
    },
    /// Others use the volume in a way that shuts this process out.
    #[error("{device}: in use by processes that this one can't work with: {what}")]
    InUse {
        /// The device.
        device: PathBuf,
        /// Why.
        what: &'static str,
    },
    /// The region of the volume.
    #[error(transparent)]
    Region(#[from] conquest_pm::Error),
}

/// What bad segments have to do with it.
fn bad_text(bad: u64, all: u64) -> String {
    match bad {
        0 => String::new(),
        _ => {
            let left = all.saturating_sub(bad);
            format!(", and {bad} of {all} segments can't be written any more ({left} are left)")
        }
    }
}

/// Shorthand.
pub type Result<T> = core::result::Result<T, Error>;
