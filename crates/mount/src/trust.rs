//! Whom a mount may trust.
//!
//! Who can write the core can give any file any owner and any mode, make devices, and say whose a
//! file is that others read. So what makes files of the mount count for others than the server's
//! user is given only if nobody but that user and root can write the core.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

/// Somebody besides root and this process's user who can write a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// The user who owns it.
    Owner(u32),
    /// This group, or somebody whom its access list names.
    Group(u32),
    /// Everybody.
    Everybody,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stranger::Owner(user) => write!(f, "user {user}, who owns it, can write it"),
            Stranger::Group(group) => {
                write!(f, "group {group}, or whom its access list names, can write it")
            }
            Stranger::Everybody => write!(f, "everybody can write it"),
        }
    }
}

/// Somebody besides root and this process's user who can write the file or device `core`, if there
/// is anybody.
///
/// # Errors
/// If it can't be looked at.
pub fn stranger(core: &Path) -> io::Result<Option<Stranger>> {
    let found = std::fs::metadata(core)?;
    let (owner, mode) = (found.uid(), found.mode());
    let is_device = found.file_type().is_block_device() || found.file_type().is_char_device();
    Ok(if owner != 0 && owner != geteuid().as_raw() {
        Some(Stranger::Owner(owner))
    } else if mode & 0o002 != 0 {
        Some(Stranger::Everybody)
    } else if mode & 0o020 != 0 && !(is_device && found.gid() == 0) {
        // With an access list, these bits are the mask of all that it gives.
        Some(Stranger::Group(found.gid()))
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn strangers_are_found_by_owner_and_mode() {
        let path = std::env::temp_dir().join(format!("conquest-trust-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        let group = std::fs::metadata(&path).unwrap().gid();
        for (mode, expected) in [
            (0o600, None),
            (0o644, None),
            (0o660, Some(Stranger::Group(group))),
            (0o666, Some(Stranger::Everybody)),
        ] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(stranger(&path).unwrap(), expected, "{mode:o}");
        }
        if geteuid().is_root() {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(4321), None).unwrap();
            assert_eq!(stranger(&path).unwrap(), Some(Stranger::Owner(4321)));
        }
        std::fs::remove_file(&path).unwrap();
    }
}
