//! The mounts that this process sees, and which of them a path or a file is in.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

pub(crate) use conquest_fuse::mounts::MountEntry as Mount;
use rustix::fs::{Mode, OFlags};

use crate::place;
use crate::reason::{Reason, Result};

/// The file system type of Conquest's mounts.
const KIND: &str = "fuse.conquest";

/// All mounts that this process sees.
///
/// # Errors
/// If /proc is not there.
pub(crate) fn read() -> Result<Vec<Mount>> {
    Ok(conquest_fuse::mounts::list()?)
}

/// The number of the mount that one gets to at `path`: the topmost one, if it is a mount point.
/// Its server is not asked, so it need not live; neither is a symbolic link at the end followed.
///
/// # Errors
/// If there is nothing, or it may not be looked at.
pub(crate) fn id_at(path: &Path) -> Result<u64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    id_of(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The mount of Conquest whose mount point is `point`, an absolute path without links.
///
/// # Errors
/// If it is none: what it is instead, and what to do. The reason names the object.
pub(crate) fn conquest_at(point: &Path) -> Result<Mount> {
    let rule = |text: String| Reason::Rule(format!("{}: {text}", place::host_label(point)));
    let id = id_at(point).map_err(|reason| rule(reason.to_string()))?;
    let mount = read()?.into_iter().find(|mount| mount.id == id);
    match mount {
        Some(mount) if mount.directory != point => Err(rule("not a mount point".to_owned())),
        None => Err(rule("its mount is gone".to_owned())),
        Some(mount) if mount.kind == KIND => Ok(mount),
        Some(mount) => {
            let kind = mount.kind.to_string_lossy();
            Err(rule(format!("a mount of {kind}, not of Conquest (use umount(8))")))
        }
    }
}

/// The number of the mount that the open file `file` is in.
///
/// # Errors
/// If the system does not tell.
pub(crate) fn id_of(file: impl AsFd) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let id = field(&text, "mnt_id").and_then(|id| id.parse().ok());
    id.ok_or_else(|| Reason::rule("the kernel does not tell its mount (it has to be Linux 3.15)"))
}

/// The value of `name` in `text`, which a file `fdinfo` of /proc has.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = |line: &'t str| line.strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(line).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path_is_one_of_those_that_are_there() {
        let mounts = read().unwrap();
        let id = id_at(Path::new("/proc")).unwrap();
        let proc = mounts.iter().find(|mount| mount.id == id).unwrap();
        assert_eq!(
            (proc.directory.as_path(), proc.kind.to_str()),
            (Path::new("/proc"), Some("proc"))
        );
        assert!(id_at(Path::new("/proc/none")).is_err());
        let refused = conquest_at(Path::new("/proc")).unwrap_err().to_string();
        assert!(refused.contains("a mount of proc"), "{refused}");
    }
}
