//! What arguments name: a file on the host, or one inside a store.
//!
//! `STORE:/path` is inside a store: what stands before the first `:/` is the store's directory on
//! the host. Anything else is a path on the host, and so is what begins with `./`, whatever
//! follows: that is how a name that contains `:/` is written (`./a:/b`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::reason::{Reason, Result};
use conquest::quote;

/// What an argument names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A file on the host.
    Host(PathBuf),
    /// A file inside a store.
    Inside(Inside),
}

/// A file inside a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inside {
    /// The store's directory on the host.
    pub(crate) store: PathBuf,
    /// The path in it, from `/` on.
    pub(crate) path: Vec<u8>,
}

impl Place {
    /// What `argument` names.
    pub(crate) fn parse(argument: &OsStr) -> Place {
        let bytes = argument.as_bytes();
        let split = match bytes.starts_with(b"./") {
            true => None,
            false => bytes.windows(2).position(|pair| pair == b":/").filter(|at| *at > 0),
        };
        let Some((store, path)) = split.and_then(|at| bytes.split_at_checked(at)) else {
            return Place::Host(argument.into());
        };
        let path = path.get(1..).unwrap_or_default().to_vec();
        Place::Inside(Inside { store: OsStr::from_bytes(store).into(), path })
    }

    /// The file inside a store that it has to be.
    ///
    /// # Errors
    /// A rule that says how such a file is named.
    pub(crate) fn inside(argument: &OsStr) -> Result<Inside> {
        match Place::parse(argument) {
            Place::Inside(inside) => Ok(inside),
            Place::Host(_) => Err(Reason::rule(
                "not a place in a store (write STORE:/path, not beginning with ./)",
            )),
        }
    }

    /// How messages name it.
    pub(crate) fn label(&self) -> String {
        match self {
            Place::Host(path) => quote::message(path.as_os_str().as_bytes()),
            Place::Inside(inside) => inside.label(),
        }
    }

    /// How it is written, unquoted.
    pub(crate) fn plain(&self) -> Vec<u8> {
        match self {
            Place::Host(path) => path.as_os_str().as_bytes().to_vec(),
            Place::Inside(inside) => inside.plain(),
        }
    }

    /// The place called `name` in the directory that this is.
    pub(crate) fn join(&self, name: &[u8]) -> Place {
        match self {
            Place::Host(path) => Place::Host(path.join(OsStr::from_bytes(name))),
            Place::Inside(inside) => Place::Inside(inside.join(name)),
        }
    }

    /// The last component of its path; none if it is `/`, `.` or `..`.
    pub(crate) fn last_name(&self) -> Option<Vec<u8>> {
        let bytes = match self {
            Place::Host(path) => path.as_os_str().as_bytes(),
            Place::Inside(inside) => &inside.path,
        };
        let name = trimmed(bytes).rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec())
    }

    /// Whether slashes follow its last component.
    pub(crate) fn has_slash(&self) -> bool {
        match self {
            Place::Host(path) => path.as_os_str().as_bytes().ends_with(b"/"),
            Place::Inside(inside) => inside.path.ends_with(b"/"),
        }
    }
}

impl Inside {
    /// How messages name it.
    pub(crate) fn label(&self) -> String {
        quote::message(&self.plain())
    }

    /// How it is written, unquoted.
    pub(crate) fn plain(&self) -> Vec<u8> {
        let mut text = self.store.as_os_str().as_bytes().to_vec();
        text.push(b':');
        text.extend(&self.path);
        text
    }

    /// The place called `name` in the directory that this is.
    pub(crate) fn join(&self, name: &[u8]) -> Inside {
        let mut path = self.path.clone();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend(name);
        Inside { store: self.store.clone(), path }
    }

    /// The directory it is in, and its name there; none if it is `/`, or ends in `.` or `..`.
    pub(crate) fn split(&self) -> Option<(Inside, &[u8])> {
        let path = trimmed(&self.path);
        let at = path.iter().rposition(|byte| *byte == b'/')?;
        let (above, name) = path.split_at_checked(at + 1)?;
        let above = Inside { store: self.store.clone(), path: above.to_vec() };
        (!matches!(name, b"" | b"." | b"..")).then_some((above, name))
    }
}

/// `path` without slashes at its end.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path.get(..end).unwrap_or_default()
}

/// The store that `argument` names: its directory, with `:/` after it or not.
pub(crate) fn store(argument: &OsStr) -> PathBuf {
    let bytes = argument.as_bytes();
    let bytes = bytes.strip_suffix(b":/").filter(|rest| !rest.is_empty()).unwrap_or(bytes);
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// How messages name a path on the host.
pub(crate) fn host_label(path: &Path) -> String {
    quote::message(path.as_os_str().as_bytes())
}

/// The file on the host that is at `path`, from the root and without links. What has no name, and
/// is somebody's open file (`/proc/PID/fd/N`), keeps the path by which it can be reached.
///
/// # Errors
/// If there is none, with its name.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf> {
    let found = std::fs::canonicalize(path).or_else(|error| match std::fs::metadata(path) {
        Ok(_) => std::path::absolute(path),
        Err(_) => Err(error),
    });
    found.map_err(|error| Reason::Rule(format!("{}: {}", host_label(path), Reason::from(error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(store: &str, path: &str) -> Place {
        Place::Inside(Inside { store: store.into(), path: path.into() })
    }

    #[test]
    fn arguments_are_taken_apart() {
        let parse = |text: &str| Place::parse(OsStr::new(text));
        assert_eq!(parse("s:/a"), inside("s", "/a"));
        assert_eq!(parse("/srv/s:/"), inside("/srv/s", "/"));
        assert_eq!(parse("../s:/a:/b"), inside("../s", "/a:/b"));
        for host in ["a", "a:b", "./a:/b", ":/a", "/a/b"] {
            assert_eq!(parse(host), Place::Host(host.into()), "{host}");
        }
    }

    #[test]
    fn open_files_without_names_keep_their_paths() {
        use std::os::fd::AsRawFd;

        let path = std::env::temp_dir().join(format!("conquest-nameless-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let open = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        assert_eq!(resolved(Path::new(&open)).unwrap(), path.canonicalize().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(resolved(Path::new(&open)).unwrap(), Path::new(&open));
        assert!(resolved(&path).is_err());
    }

    #[test]
    fn last_names() {
        let name = |text: &str| Place::parse(OsStr::new(text)).last_name();
        assert_eq!(name("s:/a/b//"), Some(b"b".to_vec()));
        assert_eq!(name("x"), Some(b"x".to_vec()));
        for none in ["s:/", "s:/..", ".", "a/.", "/"] {
            assert_eq!(name(none), None, "{none}");
        }
        let place = Inside { store: "s".into(), path: b"/a/b/".to_vec() };
        let (above, name) = place.split().unwrap();
        assert_eq!((above.path.as_slice(), name), (&b"/a/"[..], &b"b"[..]));
    }
}
