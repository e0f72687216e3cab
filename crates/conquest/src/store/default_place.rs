//! Where a core goes if the user names no place.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::default_volume::is_on_disk;
use super::directory::CORE;
use super::new::NewStore;
use super::place::{CoreFile, Space, probe};
use crate::error::failed;
use crate::machine::{self, Tmpfs};
use crate::{Error, Id, Result};

/// What every Linux system has for shared memory.
const SHM: &str = "/dev/shm";
/// The value of `huge=` with which the kernel gives no huge pages.
const NEVER: &str = "never";

/// The place for the core of the new store `uuid` in `directory`, which needs `size` bytes at
/// first: in the store's directory if that is in memory; otherwise in the tmpfs that suits best, in
/// a directory of the user's own, under the store's UUID.
pub(crate) fn choose(directory: &Path, new: &NewStore, uuid: Id, size: u64) -> Result<CoreFile> {
    let here = directory.join(CORE);
    if !is_on_disk(&here)? {
        return Ok(CoreFile { kind: probe(&here)?, path: here, is_linked: false });
    }
    let mut reasons = Vec::new();
    for candidate in candidates()? {
        match try_candidate(&candidate, new, uuid, size) {
            Ok(file) => return Ok(file),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(Error::NoPlace { reasons: reasons.join("; ") })
}

/// The tmpfs to try, the best one first: those with huge pages, then `/dev/shm`, then that of the
/// user's session, which ends with it.
fn candidates() -> Result<Vec<Tmpfs>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = std::fs::read(path).map_err(failed(path, "ask what is mounted"))?;
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let shared = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    Ok(rank(
        machine::tmpfs(&String::from_utf8_lossy(&text)),
        session.as_deref(),
        is_denied(&shared.unwrap_or_default()),
    ))
}

/// Whether the kernel gives no tmpfs huge pages, whatever its option says, by the text of
/// `shmem_enabled`. The other words there, but `force`, are not about mounted tmpfs.
fn is_denied(shmem_enabled: &str) -> bool {
    shmem_enabled.contains("[deny]")
}

fn rank(mounted: Vec<Tmpfs>, session: Option<&Path>, denied: bool) -> Vec<Tmpfs> {
    let mut ranked: Vec<(u32, Tmpfs)> = Vec::new();
    for tmpfs in mounted {
        let place = if tmpfs.path == Path::new(SHM) {
            1
        } else if session == Some(&tmpfs.path) {
            2
        } else {
            0
        };
        let is_asked = tmpfs.huge.as_deref().is_some_and(|value| value != NEVER);
        // What has been mounted with huge pages is for such a use; another tmpfs is for its own.
        match (is_asked && !denied, place) {
            (true, place) => ranked.push((place, tmpfs)),
            (false, 0) => {}
            (false, place) => ranked.push((10 + place, tmpfs)),
        }
    }
    // What is mounted later at the same place hides what was there.
    ranked.reverse();
    let mut seen = std::collections::BTreeSet::new();
    ranked.retain(|(_, tmpfs)| seen.insert(tmpfs.path.clone()));
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, tmpfs)| tmpfs).collect()
}

fn try_candidate(tmpfs: &Tmpfs, new: &NewStore, uuid: Id, size: u64) -> Result<CoreFile> {
    let space = Space::of(&tmpfs.path)?;
    if space.free < size {
        let (core, available) = (tmpfs.path.clone(), space.free);
        return Err(Error::NoRoom { core, wanted: size, available });
    }
    let path = private(&tmpfs.path, new)?.join(uuid.to_string());
    let kind = probe(&path)?;
    Ok(CoreFile { path, is_linked: true, kind })
}

/// The directory of the store's owner in the directory `mount`: made if it is missing, and checked:
/// nobody else may be able to put something in the core's place.
fn private(mount: &Path, new: &NewStore) -> Result<PathBuf> {
    let look =
        |path: &Path| std::fs::symlink_metadata(path).map_err(failed(path, "look who owns it"));
    let untrusted = |path: &Path, what: String| Error::Untrusted { path: path.to_owned(), what };
    let user = new.owner.map_or(rustix::process::geteuid().as_raw(), |(user, _)| user);
    let above = look(mount)?;
    if above.uid() != 0 && above.uid() != user {
        return Err(untrusted(mount, format!("it belongs to user {}", above.uid())));
    }
    if above.mode() & 0o022 != 0 && above.mode() & libc::S_ISVTX == 0 {
        return Err(untrusted(mount, "others may rename what is in it".to_owned()));
    }
    let path = mount.join(format!("conquest-{user}"));
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => {
            if let Some((user, group)) = new.owner {
                let given = std::os::unix::fs::lchown(&path, Some(user), Some(group));
                given.map_err(failed(&path, "give it to its owner"))?;
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(&path, "make the directory for cores")(error)),
    }
    let found = look(&path)?;
    if !found.is_dir() {
        return Err(untrusted(&path, "it is no directory, or a link to one".to_owned()));
    }
    if found.uid() != user {
        return Err(untrusted(&path, format!("it belongs to user {}", found.uid())));
    }
    if found.mode() & 0o066 != 0 {
        let what =
            format!("its permissions {:o} let others list or change it", found.mode() & 0o777);
        return Err(untrusted(&path, what));
    }
    // Whom the store is shared with must get through to its core, whose name they learn from the
    // store's directory; they still can't list.
    let whose = [(0o060, 0o010), (0o006, 0o001)];
    let shared = whose.iter().filter(|(rights, _)| new.mode & rights != 0);
    let search = shared.fold(0, |all, (_, search)| all | search);
    if search & !found.mode() != 0 {
        let mode = Permissions::from_mode(found.mode() & 0o777 | search);
        let set = std::fs::set_permissions(&path, mode);
        set.map_err(failed(&path, "let the store's group through"))?;
    }
    Ok(path)
}

/// Whether `path` is in a directory that this module makes: what stands there is a core's.
pub(crate) fn is_ours(path: &Path) -> bool {
    let parent = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    parent
        .and_then(|name| name.strip_prefix("conquest-"))
        .is_some_and(|user| !user.is_empty() && user.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tmpfs(path: &str, huge: Option<&str>) -> Tmpfs {
        Tmpfs { path: path.into(), huge: huge.map(str::to_owned) }
    }

    #[test]
    fn huge_pages_come_first_then_shared_memory_then_the_session() {
        let mounted = vec![
            tmpfs("/run", None),
            tmpfs("/run/user/7", None),
            tmpfs("/dev/shm", None),
            tmpfs("/never", Some("never")),
            tmpfs("/huge", Some("within_size")),
        ];
        let session = Some(Path::new("/run/user/7"));
        let paths = |ranked: Vec<Tmpfs>| -> Vec<PathBuf> {
            ranked.into_iter().map(|tmpfs| tmpfs.path).collect()
        };
        let ranked = paths(rank(mounted.clone(), session, false));
        assert_eq!(ranked, ["/huge", "/dev/shm", "/run/user/7"].map(PathBuf::from));
        assert!(is_denied("always within_size advise never [deny] force"));
        assert!(!is_denied("always within_size advise [never] deny force"));
        assert_eq!(paths(rank(mounted, None, true)), [PathBuf::from("/dev/shm")]);
        let hidden = vec![tmpfs("/dev/shm", Some("always")), tmpfs("/dev/shm", None)];
        assert_eq!(rank(hidden, None, false), [tmpfs("/dev/shm", None)]);
    }

    #[test]
    fn private_directories_are_told_by_their_names() {
        assert!(is_ours(Path::new("/dev/shm/conquest-1000/x")));
        for other in ["/dev/shm/conquest-/x", "/dev/shm/conquest-a/x", "/conquest-1", "/x"] {
            assert!(!is_ours(Path::new(other)), "{other}");
        }
    }
}
