//! Persistent memory as a character device: what sysfs says of it.

use std::path::{Path, PathBuf};

/// A `/dev/dax*` device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DevDax {
    /// Bytes.
    pub(super) size: u64,
    /// Offsets and lengths of mappings are multiples of this.
    pub(super) align: u64,
}

/// The device numbered `major`:`minor`, if it is one; `sysfs` is where sysfs is mounted.
pub(super) fn device(sysfs: &Path, major: u32, minor: u32) -> Option<DevDax> {
    let directory = sysfs.join(format!("dev/char/{major}:{minor}"));
    let subsystem: PathBuf = std::fs::read_link(directory.join("subsystem")).ok()?;
    if subsystem.file_name()? != "dax" {
        return None;
    }
    let number = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(directory.join(name)).ok()?;
        text.trim().parse().ok()
    };
    Some(DevDax {
        size: number("size")?,
        align: number("align").filter(|align| align.is_power_of_two())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn size_and_alignment_come_from_sysfs() {
        let sysfs = std::env::temp_dir().join(format!("conquest-sysfs-{}", std::process::id()));
        let dax = sysfs.join("dev/char/252:1");
        let other = sysfs.join("dev/char/1:3");
        for directory in [&dax, &other] {
            std::fs::create_dir_all(directory).unwrap();
        }
        symlink("../../../bus/dax", dax.join("subsystem")).unwrap();
        symlink("../../../class/mem", other.join("subsystem")).unwrap();
        std::fs::write(dax.join("size"), "1073741824\n").unwrap();
        assert_eq!(device(&sysfs, 252, 1), None);
        std::fs::write(dax.join("align"), "2097152\n").unwrap();
        let found = device(&sysfs, 252, 1);
        let not = (device(&sysfs, 1, 3), device(&sysfs, 9, 9));
        std::fs::remove_dir_all(&sysfs).unwrap();
        let expected = DevDax { size: 1 << 30, align: 1 << 21 };
        assert_eq!(found, Some(expected));
        assert_eq!(not, (None, None));
    }
}
