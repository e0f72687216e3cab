//! Where something is to be mounted.

use std::path::{Path, PathBuf};

use conquest::Errno;

use crate::place;
use crate::reason::{Reason, Result};

/// The directory `point`, from the root and without links. It need not be empty.
///
/// # Errors
/// If it is none, with what to do about it.
pub(crate) fn check(point: &Path) -> Result<PathBuf> {
    let found = std::fs::canonicalize(point).and_then(|path| Ok((std::fs::metadata(&path)?, path)));
    match found.map_err(Reason::from) {
        Ok((found, path)) if found.is_dir() => Ok(path),
        Ok(_) => Err(Reason::rule("not a directory (a store is mounted at a directory)")),
        Err(reason) if reason.is(Errno::ENOENT) => {
            Err(Reason::rule(format!("{reason} (make the mount point first: mkdir)")))
        }
        Err(reason) if reason.errno() == Some(libc::ENOTCONN) => Err(Reason::rule(
            "what is mounted there has lost its server (conquest umount it first)",
        )),
        Err(reason) => Err(reason),
    }
}

/// The same, as something that is asked for.
///
/// # Errors
/// A reason that names it.
pub(crate) fn named(point: &Path) -> Result<PathBuf> {
    check(point).map_err(|reason| Reason::Rule(format!("{}: {reason}", place::host_label(point))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_directories() {
        let base = std::env::temp_dir().join(format!("conquest-point-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let (file, link) = (base.join("file"), base.join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&base, &link).unwrap();
        let said = |path: &Path| check(path).unwrap_err().to_string();
        assert_eq!(check(&link).unwrap(), std::fs::canonicalize(&base).unwrap());
        assert!(said(&file).starts_with("not a directory ("));
        assert_eq!(
            said(&base.join("none")),
            "No such file or directory (make the mount point first: mkdir)"
        );
        std::fs::remove_dir_all(base).unwrap();
    }
}
