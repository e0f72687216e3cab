//! Which file a core is, so that no other one is taken for it.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::str::FromStr;

use crate::Id;

/// A file, as long as the machine runs: device and inode number; of a device its own number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId {
    /// Major and minor number of the device that it is on, or is.
    pub device: (u32, u32),
    /// Inode number; 0 for a device.
    pub inode: u64,
}

impl FileId {
    /// The file that `found` is about.
    #[must_use]
    pub fn of(found: &Metadata) -> FileId {
        let is_device = found.file_type().is_char_device();
        let number = if is_device { found.rdev() } else { found.dev() };
        let device = (rustix::fs::major(number), rustix::fs::minor(number));
        FileId { device, inode: if is_device { 0 } else { found.ino() } }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} of device {}:{}", self.inode, self.device.0, self.device.1)
    }
}

/// A file in a boot of the machine: numbers of files mean something in one boot only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: FileId,
    /// The boot.
    pub boot: Id,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in boot {}", self.file, self.boot)
    }
}

/// The text of a device number, such as `0:23`.
pub(crate) fn device_text(device: (u32, u32)) -> String {
    format!("{}:{}", device.0, device.1)
}

/// The device number in such a text.
pub(crate) fn device_of(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((u32::from_str(major).ok()?, u32::from_str(minor).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_written_and_read() {
        assert_eq!(device_of(&device_text((259, 70_000))), Some((259, 70_000)));
        for bad in ["", "1", "1:", ":1", "1:2:3", "a:b", "-1:2"] {
            assert_eq!(device_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_device_is_itself_and_a_file_is_an_inode() {
        let null = FileId::of(&std::fs::metadata("/dev/null").unwrap());
        assert_eq!(null, FileId { device: (1, 3), inode: 0 });
        let file = FileId::of(&std::fs::metadata("/proc/self/exe").unwrap());
        assert_ne!(file.inode, 0);
    }
}
