//! The file systems that suites can judge.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::conquest::Conquest;
use super::options::Options;
use super::room::Room;
use super::step::{self, command};
use super::volume::{EXT3, EXT4, Mounted, Space, XFS};
use crate::Failure;
use crate::packages::Need;

/// Bytes of memory of a tmpfs, of a device below ext4, and of a core.
pub(super) const BYTES: &str = "6G";

/// A file system that is mounted for a suite.
pub(super) trait Target {
    /// Makes it anew, empty, and mounts it.
    fn make(&mut self) -> Result<(), Failure>;
    /// Where it is mounted.
    fn directory(&self) -> &Path;
    /// What mount(8) is told to mount.
    fn source(&self) -> String;
    /// Unmounts it and mounts it again: what is in it is still there.
    fn remount(&mut self) -> Result<(), Failure>;
    /// Unmounts it, checks it if there is a checker, and removes it.
    ///
    /// # Errors
    /// Also if the checker finds anything.
    fn destroy(&mut self) -> Result<(), Failure>;
}

/// A kind of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A store mounted by root.
    Conquest,
    /// A store mounted by an ordinary user.
    ConquestUnprivileged,
    /// The kernel's, in memory.
    Tmpfs,
    /// The kernel's, on a loop device in memory.
    Ext4,
    /// The same, on the space of a volume.
    Volume,
    /// The kernel's ext3 there.
    VolumeExt3,
    /// The kernel's XFS there.
    VolumeXfs,
    /// The space of a volume itself: one file.
    Space,
}

impl Kind {
    /// All, with their names.
    const ALL: [(Kind, &str); 8] = [
        (Kind::Conquest, "conquest"),
        (Kind::ConquestUnprivileged, "conquest-unprivileged"),
        (Kind::Tmpfs, "tmpfs"),
        (Kind::Ext4, "ext4"),
        (Kind::Volume, "volume"),
        (Kind::VolumeExt3, "volume-ext3"),
        (Kind::VolumeXfs, "volume-xfs"),
        (Kind::Space, "space"),
    ];

    /// The kind called `name`.
    pub(super) fn parse(name: &str) -> Result<Kind, Failure> {
        let found = Kind::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(kind, _)| *kind).ok_or_else(|| {
            let names = Kind::ALL.map(|(_, name)| name).join(", ");
            Failure::Usage(format!("conform: no file system {name:?}; there is: {names}"))
        })
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Whether our program makes it.
    pub(super) fn takes_program(self) -> bool {
        !matches!(self, Kind::Tmpfs | Kind::Ext4)
    }

    /// Whether it is a store.
    pub(super) fn is_conquest(self) -> bool {
        matches!(self, Kind::Conquest | Kind::ConquestUnprivileged)
    }

    /// Whether its source is a device.
    pub(super) fn is_on_device(self) -> bool {
        matches!(self, Kind::Ext4 | Kind::Volume | Kind::VolumeExt3 | Kind::VolumeXfs)
    }

    /// Commands that it needs.
    pub(super) fn needed(self) -> &'static [Need] {
        match self {
            Kind::Conquest | Kind::ConquestUnprivileged => &[("fusermount3", "fuse3")],
            Kind::VolumeXfs => &[("mkfs.xfs", "xfsprogs")],
            _ => &[],
        }
    }

    /// A file system of this kind, to be made in `room`, with directories called after `name`.
    pub(super) fn target<'r>(
        self,
        room: &'r Room,
        options: &Options,
        name: &str,
    ) -> Result<Box<dyn Target + 'r>, Failure> {
        let directory = room.make(name)?;
        Ok(match self {
            Kind::Conquest | Kind::ConquestUnprivileged => {
                Box::new(Conquest::new(room, options, directory, self == Kind::Conquest)?)
            }
            Kind::Tmpfs => Box::new(Tmpfs { room, directory }),
            Kind::Ext4 => {
                let image = room.directory.join(format!("{name}.ext4"));
                Box::new(Ext4 { room, directory, image, device: None })
            }
            Kind::Volume => Box::new(Mounted::new(room, options, directory, EXT4)?),
            Kind::VolumeExt3 => Box::new(Mounted::new(room, options, directory, EXT3)?),
            Kind::VolumeXfs => Box::new(Mounted::new(room, options, directory, XFS)?),
            Kind::Space => Box::new(Space::new(room, options, directory)?),
        })
    }
}

struct Tmpfs<'r> {
    room: &'r Room,
    directory: PathBuf,
}

impl Target for Tmpfs<'_> {
    fn make(&mut self) -> Result<(), Failure> {
        let options = format!("mode=755,size={BYTES}");
        let directory = self.directory.to_string_lossy();
        self.room.mount(&["-t", "tmpfs", "-o", &options, &self.source(), &directory])
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn source(&self) -> String {
        source(&self.directory)
    }

    /// A tmpfs that is unmounted is lost: it is only told its options anew.
    fn remount(&mut self) -> Result<(), Failure> {
        let directory = self.directory.to_string_lossy();
        self.room.mount(&["-o", "remount", &directory])
    }

    fn destroy(&mut self) -> Result<(), Failure> {
        unmount(self.room, &self.directory)
    }
}

struct Ext4<'r> {
    room: &'r Room,
    directory: PathBuf,
    /// The bytes of the device.
    image: PathBuf,
    /// The loop device, which goes when it is neither open nor mounted.
    device: Option<(File, String)>,
}

impl Ext4<'_> {
    fn attach(&self) -> Result<(), Failure> {
        let directory = self.directory.to_string_lossy();
        self.room.mount(&["-t", "ext4", &self.source(), &directory])
    }
}

impl Target for Ext4<'_> {
    fn make(&mut self) -> Result<(), Failure> {
        let image = self.image.to_string_lossy();
        let mut make = command("mkfs.ext4", &["-q", "-F", "-b", "4096", &image, BYTES]);
        self.room.must(&mut make, step::LIMIT)?;
        self.device = Some(attach_loop(self.room, &[], &image)?);
        self.attach()
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn source(&self) -> String {
        self.device.as_ref().map(|(_, path)| path.clone()).unwrap_or_default()
    }

    fn remount(&mut self) -> Result<(), Failure> {
        unmount(self.room, &self.directory)?;
        self.attach()
    }

    fn destroy(&mut self) -> Result<(), Failure> {
        unmount(self.room, &self.directory)?;
        self.room.must(&mut command("e2fsck", &["-f", "-n", &self.source()]), step::LIMIT)?;
        self.device = None;
        std::fs::remove_file(&self.image)
            .map_err(|e| Failure::system("can't remove", &self.image, &e))
    }
}

/// A loop device with the bytes of `image`, open, made with further options of losetup(8).
pub(super) fn attach_loop(
    room: &Room,
    options: &[&str],
    image: &str,
) -> Result<(File, String), Failure> {
    let made = command("losetup", &["--find", "--show"]).args(options).arg(image).output();
    let made = made.map_err(|e| Failure::system("can't run", Path::new("losetup"), &e))?;
    let path = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(Failure::Broken(format!("losetup --find {image}: {}", said.trim())));
    }
    let file = File::open(&path);
    // While it is open it can't go, but from now on it goes once it is not, even if we are killed.
    room.must(&mut command("losetup", &["--detach", &path]), step::LIMIT)?;
    Ok((file.map_err(|e| Failure::system("can't open", Path::new(&path), &e))?, path))
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// How the names end of what we mount.
pub(super) const SOURCE: &str = "-source";

/// What is mounted at `directory` is called: something that no path has a part of, because some
/// suites look for it in what programs say.
pub(super) fn source(directory: &Path) -> String {
    format!("{}{SOURCE}", name(directory))
}

/// Whether something is mounted at `directory`, which has no odd characters.
pub(super) fn is_mounted(directory: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == directory.to_str())
}

/// Unmounts what a suite may have unmounted already.
pub(super) fn unmount(room: &Room, directory: &Path) -> Result<(), Failure> {
    if !is_mounted(directory) {
        return Ok(());
    }
    room.must(command("umount", &[]).arg(directory), step::LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (kind, name) in Kind::ALL {
            assert_eq!(Kind::parse(name).unwrap(), kind);
            assert_eq!(kind.name(), name);
        }
        assert!(matches!(Kind::parse("ramfs"), Err(Failure::Usage(_))));
    }
}
