//! A mount namespace of its own: whatever is mounted in it ends with the process, however that ends.

use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::{Error, Result};

/// Directories of every system that may be covered meanwhile: the first one in which nothing is that
/// is used.
const PLACES: [&str; 3] = ["/media", "/mnt", "/srv"];

/// The room.
#[derive(Debug)]
pub struct Room {
    directory: PathBuf,
}

impl Room {
    /// Takes this process out of the machine's mounts. To be called while it has one thread. What is
    /// below one of `used` stays in sight. Who is not root gets a user namespace besides, in which
    /// there is nobody else, and in which only file systems in memory can be mounted.
    ///
    /// # Errors
    /// What the system says: some let only root do it.
    pub fn enter(used: &[PathBuf]) -> Result<Room> {
        let is_free = |place: &&&str| {
            let is_in = |path: &PathBuf| path.starts_with(place);
            Path::new(place).is_dir() && !used.iter().any(is_in)
        };
        let place = PLACES.iter().find(is_free).ok_or_else(|| Error::Target {
            target: PLACES.join(", "),
            reason: "none of these directories is free to be covered".into(),
        })?;
        let named = || Error::system("mount namespace");
        match rustix::process::geteuid().is_root() {
            true => nix::sched::unshare(CloneFlags::CLONE_NEWNS)
                .map_err(|error| named()(error.into()))?,
            false => enter_user_namespace()?,
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).map_err(|error| named()(error.into()))?;
        let directory = PathBuf::from(place);
        mount("tmpfs", &directory, "tmpfs", "mode=755")?;
        Ok(Room { directory })
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn place(&self, kind: &str) -> Result<PathBuf> {
        new(&self.directory, kind)
    }
}

/// A user namespace with the caller in it, and a mount namespace of it.
fn enter_user_namespace() -> Result<()> {
    let named = || Error::system("user namespace");
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // There is no way back. A program that its user may not read can't say who is in it.
    let map = std::fs::File::options().write(true).open("/proc/self/uid_map");
    drop(map.map_err(named())?);
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .map_err(|error| named()(error.into()))?;
    let write = |file: &str, text: String| {
        std::fs::write(Path::new("/proc/self").join(file), text).map_err(named())
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// A new directory for who has no room, in the one for temporary files.
///
/// # Errors
/// What the system says.
pub(super) fn temporary(kind: &str) -> Result<PathBuf> {
    new(&std::env::temp_dir(), &format!("conquest-bench-{}-{kind}", std::process::id()))
}

/// A new directory in `above`, of that name or a similar one.
fn new(above: &Path, name: &str) -> Result<PathBuf> {
    for number in 1_u32.. {
        let path = match number {
            1 => above.join(name),
            _ => above.join(format!("{name}-{number}")),
        };
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::system(&path.display().to_string())(error)),
        }
    }
    Err(Error::Target { target: name.to_owned(), reason: "no name is free".into() })
}

/// Mounts `source` at `at`.
///
/// # Errors
/// What the system says.
pub(super) fn mount(source: &str, at: &Path, kind: &str, options: &str) -> Result<()> {
    let options = std::ffi::CString::new(options).unwrap_or_default();
    rustix::mount::mount(source, at, kind, MountFlags::empty(), options.as_c_str())
        .map_err(|error| Error::system(&format!("mount of {kind}"))(error.into()))
}
