//! What is known of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conquest_fs::FileId;
use conquest_fs::attributes::Stat;
use conquest_fs::dir::FileType;

/// What is known of a file, as of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata(Stat);

impl Metadata {
    pub(crate) fn new(stat: Stat) -> Metadata {
        Metadata(stat)
    }

    /// All that there is, in the units of `stat`; times are nanoseconds since 1970.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.0
    }

    /// Which file it is: number and generation.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.0.file
    }

    /// Its type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        // What is no type is refused where inodes are read.
        FileType::new((self.0.mode >> 12) as u8).unwrap_or(FileType::Regular)
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::Regular
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// The low twelve bits of the mode.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.0.mode & 0o7777
    }

    /// When the content was last looked at.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        time(self.0.atime)
    }

    /// When the content was last changed.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        time(self.0.mtime)
    }

    /// When anything was last changed.
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        time(self.0.ctime)
    }

    /// When the file was made.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        time(self.0.btime)
    }
}

/// The time that is so many nanoseconds after 1970.
fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_before_1970() {
        assert_eq!(time(-1) + Duration::from_nanos(1), UNIX_EPOCH);
        assert_eq!(time(5), UNIX_EPOCH + Duration::from_nanos(5));
        assert!(time(i64::MIN) < time(i64::MAX));
    }
}
