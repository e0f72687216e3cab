//! Where a core's file is, or is going to be.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use conquest_pm::media::{Medium as MediumFile, MediumKind, Source};

use super::directory::{CORE, parent, partial};
use super::new::Medium;
use crate::error::failed;
use crate::{Error, Result};

/// The place of a core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CoreFile {
    /// Its name, from the root.
    pub(crate) path: PathBuf,
    /// Whether it is not in the store's directory, where a symbolic link leads to it.
    pub(crate) is_linked: bool,
    /// What it is on.
    pub(crate) kind: MediumKind,
}

impl CoreFile {
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.kind, MediumKind::DevDax { .. })
    }

    /// The name under which the core is built: a device has no other one.
    pub(crate) fn partial(&self) -> PathBuf {
        if self.is_device() { self.path.clone() } else { partial(&self.path) }
    }

    /// Bytes that its file system has, and has free; of a device, all of it.
    pub(crate) fn space(&self) -> Result<Space> {
        match self.kind {
            MediumKind::DevDax { size, .. } => Ok(Space { total: size, free: size }),
            _ => Space::of(parent(&self.path)),
        }
    }
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Space {
    /// All of it; `u64::MAX` if it has no limit.
    pub(crate) total: u64,
    /// What this process can still have; `u64::MAX` if it has no limit.
    pub(crate) free: u64,
}

impl Space {
    /// That of the file system with `path`.
    pub(crate) fn of(path: &Path) -> Result<Space> {
        let found = rustix::fs::statvfs(path).map_err(failed(path, "ask for its space"))?;
        // A tmpfs without a limit says that it has no blocks.
        if found.f_blocks == 0 {
            return Ok(Space { total: u64::MAX, free: u64::MAX });
        }
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

/// The place that the user named for a core: an existing device, or a file to be made.
pub(crate) fn named(directory: &Path, path: &Path) -> Result<CoreFile> {
    let path = std::path::absolute(path).map_err(failed(path, "find its place"))?;
    if path.to_str().is_none() {
        return Err(Error::Untrusted { path, what: "its name is not UTF-8".to_owned() });
    }
    let is_linked = path != directory.join(CORE);
    match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => Err(Error::CoreExists { core: path }),
        Ok(_) => {
            let kind = MediumFile::open(Source::from(path.as_path()))?.kind().clone();
            Ok(CoreFile { path, is_linked, kind })
        }
        Err(_) => {
            let kind = probe(&path)?;
            Ok(CoreFile { path, is_linked, kind })
        }
    }
}

/// What a file `path` would be, which is not there yet: makes one without a name, or, where that
/// can't be, under its partial name, and removes it again.
pub(crate) fn probe(path: &Path) -> Result<MediumKind> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
    if let Ok(file) = options.open(parent(path)) {
        return Ok(MediumFile::open(Source::from(OwnedFd::from(file)))?.kind().clone());
    }
    let temporary = partial(path);
    super::directory::remove(&temporary)?;
    let made = MediumFile::create(Source::from(temporary.as_path()), 0o600);
    let kind = made.map(|file| file.kind().clone());
    super::directory::remove(&temporary)?;
    Ok(kind?)
}

/// Whether a core of this kind is gone after a restart of the machine.
pub(crate) fn is_volatile(medium: Medium) -> bool {
    !matches!(medium, Medium::Dax | Medium::Disk)
}

/// The medium of a core on `kind`, if `wanted` can be had there.
pub(crate) fn medium_on(path: &Path, kind: &MediumKind, wanted: Medium) -> Result<Medium> {
    let natural = match kind {
        MediumKind::DevDax { .. } | MediumKind::FsDax { .. } => Medium::Dax,
        MediumKind::Disk { .. } => Medium::Disk,
        _ => Medium::Ram,
    };
    let remedy = match (wanted, natural) {
        (Medium::Auto, _) => return Ok(natural),
        (wanted @ (Medium::Battery | Medium::Logged), Medium::Ram) => return Ok(wanted),
        (wanted, natural) if wanted == natural => return Ok(natural),
        (Medium::Ram | Medium::Battery | Medium::Logged, _) => "name a file on a tmpfs with --core",
        (Medium::Dax, _) => "name persistent memory with --core: a device, or a file on DAX",
        (Medium::Disk, _) => "name a file on a disk with --core",
    };
    let (path, found) = (path.to_owned(), kind.to_string());
    Err(Error::Medium { path, wanted, found, remedy })
}

/// Makes the contents of the core's file durable, where that is more than nothing.
pub(crate) fn sync_core(path: &Path, kind: &MediumKind) -> Result<()> {
    if !matches!(kind, MediumKind::Disk { .. } | MediumKind::FsDax { .. }) {
        return Ok(());
    }
    let file = File::open(path).map_err(failed(path, "open it"))?;
    file.sync_all().map_err(failed(path, "make it durable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_what_the_file_is_or_can_be() {
        let (path, tmpfs) = (Path::new("core"), MediumKind::Tmpfs);
        let disk = MediumKind::Disk { fs: "ext4" };
        let dax = MediumKind::FsDax { fs: "xfs" };
        let on = |kind, wanted| medium_on(path, kind, wanted).ok();
        assert_eq!(on(&tmpfs, Medium::Auto), Some(Medium::Ram));
        assert_eq!(on(&tmpfs, Medium::Battery), Some(Medium::Battery));
        assert_eq!(on(&disk, Medium::Auto), Some(Medium::Disk));
        assert_eq!(on(&dax, Medium::Auto), Some(Medium::Dax));
        for (kind, wanted) in [
            (&tmpfs, Medium::Dax),
            (&tmpfs, Medium::Disk),
            (&disk, Medium::Battery),
            (&disk, Medium::Ram),
            (&dax, Medium::Ram),
        ] {
            assert_eq!(on(kind, wanted), None);
        }
    }
}
