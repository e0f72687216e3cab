//! The directory of a store: names in it, and files that are replaced as a whole.

use std::fs::{DirBuilder, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::failed;
use crate::store::new::NewStore;
use crate::{Error, Result};

/// What the store is.
pub(crate) const SETTINGS: &str = "store.toml";
/// The core, or a symbolic link to it.
pub(crate) const CORE: &str = "core";
/// The volume, if it is a file that was made with the store.
pub(crate) const VOLUME: &str = "volume";
/// The volume, if the one that it has replaced was a file, too.
pub(crate) const VOLUME_TWO: &str = "volume2";
/// Held by the keeper as long as it is there.
pub(crate) const KEEPER: &str = "keeper.lock";
/// Held by whoever does something with the store as a whole.
pub(crate) const LOCK: &str = "store.lock";
/// The end of the name of a file that is not complete yet.
pub(crate) const PARTIAL: &str = ".partial";
/// The end of the name of a file that is about to replace another one.
const NEW: &str = ".new";

/// The name under which what gets the name `path` is built.
pub(crate) fn partial(path: &Path) -> PathBuf {
    with_end(path, PARTIAL)
}

/// The name that what is about to replace `path` has until it is complete.
pub(crate) fn unwritten(path: &Path) -> PathBuf {
    with_end(path, NEW)
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Makes the directory of a new store, or takes an empty one; `Ok` also if it holds a store, or
/// what a death left of one.
pub(crate) fn prepare(directory: &Path, new: &NewStore) -> Result<()> {
    let mode = new.mode & 0o777 | (new.mode & 0o444) >> 2;
    match DirBuilder::new().mode(mode).create(directory) {
        Ok(()) => {
            // What the umask took away was asked for.
            let set = std::fs::set_permissions(directory, Permissions::from_mode(mode));
            set.map_err(failed(directory, "set its permissions"))?;
            if let Some((user, group)) = new.owner {
                let given = std::os::unix::fs::chown(directory, Some(user), Some(group));
                given.map_err(failed(directory, "give it to its owner"))?;
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => only_ours(directory),
        Err(error) => Err(failed(directory, "make the store's directory")(error)),
    }
}

/// Refuses a directory that is no store and holds anything but what a death can leave of one.
fn only_ours(directory: &Path) -> Result<()> {
    if directory.join(SETTINGS).exists() {
        return Ok(());
    }
    let list = |error| failed(directory, "list it")(error);
    for entry in std::fs::read_dir(directory).map_err(list)? {
        let name = entry.map_err(list)?.file_name();
        let text = name.to_string_lossy();
        let stem = text.strip_suffix(NEW).unwrap_or(&text);
        let stem = stem.strip_suffix(PARTIAL).unwrap_or(stem);
        if ![SETTINGS, CORE, LOCK, VOLUME, VOLUME_TWO, KEEPER].contains(&stem) {
            let name = text.into_owned();
            return Err(Error::Occupied { directory: directory.to_owned(), name });
        }
    }
    Ok(())
}

/// Gives `file` the permissions `mode`, whatever the umask, and to `owner`.
pub(crate) fn own(path: &Path, file: &File, mode: u32, owner: Option<(u32, u32)>) -> Result<()> {
    let found = file.metadata().map_err(failed(path, "ask who owns it"))?;
    let me = rustix::process::geteuid().as_raw();
    if ![Some(me), owner.map(|(user, _)| user)].contains(&Some(found.uid())) {
        let what = format!("it belongs to user {} all of a sudden", found.uid());
        return Err(Error::Untrusted { path: path.to_owned(), what });
    }
    if let Some((user, group)) = owner
        && (user, group) != (found.uid(), found.gid())
    {
        fchown(file, Some(user), Some(group)).map_err(failed(path, "give it to its owner"))?;
    }
    let set = file.set_permissions(Permissions::from_mode(mode & 0o777));
    set.map_err(failed(path, "set its permissions"))
}

/// Makes names in `directory` durable.
pub(crate) fn sync(directory: &Path) -> Result<()> {
    let opened = File::open(directory).map_err(failed(directory, "open it"))?;
    match opened.sync_all() {
        // Some file systems have nothing to do here, and say so.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result.map_err(failed(directory, "make it durable")),
    }
}

/// The directory that `path` is in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Gives the complete file `from` the name `to`, in the same directory, durably.
pub(crate) fn put_in_place(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(failed(to, "put it in place"))?;
    sync(parent(to))
}

/// Replaces `path` by a file of these bytes: either the old or the new file is there at any time,
/// as a whole. Under the store's lock. Whoever may do it keeps the owner and the permissions.
pub(crate) fn replace(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> Result<()> {
    let temporary = unwritten(path);
    let write = || {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)
            .map_err(failed(&temporary, "make it"))?;
        own(&temporary, &file, mode, owner)?;
        file.write_all(bytes).map_err(failed(&temporary, "write it"))?;
        file.sync_all().map_err(failed(&temporary, "make it durable"))?;
        put_in_place(&temporary, path)
    };
    let written = write();
    if written.is_err() {
        // The error to report is the first one; whoever attaches next removes what is left.
        let _removed = std::fs::remove_file(&temporary);
    }
    written
}

/// A core that is about to be replaced or removed. A forked child of a process that had it attached
/// may have it mapped without being attached, until its first operation: what it finds then must
/// not look like a region.
#[derive(Debug)]
pub(crate) struct OldCore(File);

impl OldCore {
    /// The core `path`, if it is a file.
    pub(crate) fn open(path: &Path) -> Result<Option<OldCore>> {
        if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Ok(None);
        }
        let opened = File::options().write(true).open(path);
        Ok(Some(OldCore(opened.map_err(failed(path, "open the old core"))?)))
    }

    /// Takes away what is in it, under whatever name it is, or under none.
    pub(crate) fn empty(self, path: &Path) -> Result<()> {
        self.0.set_len(0).map_err(failed(path, "empty the old core"))
    }
}

/// Removes `path`, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed(path, "remove it")(error))
        }
        _ => Ok(()),
    }
}
