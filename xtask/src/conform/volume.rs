//! The space of a volume, shown by the program `conquest`, and file systems of the kernel on it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::conquest::installed;
use super::options::Options;
use super::room::Room;
use super::step::{self, command};
use super::target::{Target, attach_loop, is_mounted, name, source, unmount};
use crate::Failure;

/// Bytes of the volume, all of which are written.
const BYTES: &str = "2G";
/// How long the kernel may take to let go of a loop device.
const LOOP_LIMIT: Duration = Duration::from_secs(20);

/// The space of a volume, as a file in a directory.
pub(super) struct Space<'r> {
    room: &'r Room,
    program: PathBuf,
    disk: PathBuf,
    directory: PathBuf,
}

impl<'r> Space<'r> {
    /// The name of the file.
    pub(super) const FILE: &'static str = "space";

    /// One that is to be shown in `directory`.
    pub(super) fn new(
        room: &'r Room,
        options: &Options,
        directory: PathBuf,
    ) -> Result<Space<'r>, Failure> {
        let program = installed(room, options)?;
        let disk = room.directory.join(format!("{}.disk", name(&directory)));
        Ok(Space { room, program, disk, directory })
    }

    fn conquest(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command
    }

    fn show(&self) -> Result<(), Failure> {
        let mut export = self.conquest(&["volume", "export", "--fuse"]);
        self.room.must(export.arg(&self.directory).arg(&self.disk), step::LIMIT)
    }

    /// Ends it, as soon as nobody uses the file.
    fn hide(&self) -> Result<(), Failure> {
        let begin = Instant::now();
        while is_mounted(&self.directory) {
            let done = self.room.must(self.conquest(&["umount"]).arg(&self.directory), step::LIMIT);
            if done.is_err() && begin.elapsed() > LOOP_LIMIT {
                return done;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Target for Space<'_> {
    fn make(&mut self) -> Result<(), Failure> {
        let mut create = self.conquest(&["volume", "create", "--size", BYTES]);
        self.room.must(create.arg(&self.disk), step::LIMIT)?;
        self.show()
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn source(&self) -> String {
        source(&self.directory)
    }

    fn remount(&mut self) -> Result<(), Failure> {
        self.hide()?;
        self.show()
    }

    fn destroy(&mut self) -> Result<(), Failure> {
        self.hide()?;
        let mut check = self.conquest(&["volume", "check"]);
        self.room.must(check.arg(&self.disk), step::LIMIT)?;
        std::fs::remove_file(&self.disk)
            .map_err(|e| Failure::system("can't remove", &self.disk, &e))
    }
}

/// A file system of the kernel.
pub(super) struct System {
    /// What mount(8) calls it.
    name: &'static str,
    /// What makes it on a device.
    make: &'static [&'static str],
    /// What changes nothing on a device, and fails if anything is wrong there.
    check: &'static [&'static str],
}

/// The same driver as the next one, with a journal and a map of blocks of the old kind.
pub(super) const EXT3: System =
    System { name: "ext3", make: &["mkfs.ext3", "-q"], check: &["e2fsck", "-f", "-n"] };
pub(super) const EXT4: System =
    System { name: "ext4", make: &["mkfs.ext4", "-q"], check: &["e2fsck", "-f", "-n"] };
pub(super) const XFS: System =
    System { name: "xfs", make: &["mkfs.xfs", "-q"], check: &["xfs_repair", "-n"] };

impl System {
    /// One of its commands, for `device`.
    fn command(words: &[&str], device: &str) -> Command {
        let mut command = command(words[0], &words[1..]);
        command.arg(device);
        command
    }
}

/// A file system of the kernel on the space of a volume.
pub(super) struct Mounted<'r> {
    system: System,
    space: Space<'r>,
    directory: PathBuf,
    /// The loop device, which goes when it is neither open nor mounted.
    device: Option<(File, String)>,
}

impl<'r> Mounted<'r> {
    /// One that is to be mounted at `directory`.
    pub(super) fn new(
        room: &'r Room,
        options: &Options,
        directory: PathBuf,
        system: System,
    ) -> Result<Mounted<'r>, Failure> {
        let shown = room.make(&format!("{}.shown", name(&directory)))?;
        let space = Space::new(room, options, shown)?;
        Ok(Mounted { system, space, directory, device: None })
    }

    fn attach(&mut self) -> Result<(), Failure> {
        let file = self.space.directory.join(Space::FILE);
        let options = ["--direct-io=on", "--sector-size", "4096"];
        self.device = Some(attach_loop(self.space.room, &options, &file.to_string_lossy())?);
        Ok(())
    }

    fn mount(&self) -> Result<(), Failure> {
        let directory = self.directory.to_string_lossy();
        let (kind, source) = (self.system.name, self.source());
        self.space.room.mount(&["-t", kind, "-o", "discard", &source, &directory])
    }
}

impl Target for Mounted<'_> {
    fn make(&mut self) -> Result<(), Failure> {
        self.space.make()?;
        self.attach()?;
        let mut make = System::command(self.system.make, &self.source());
        self.space.room.must(&mut make, step::LIMIT)?;
        self.mount()
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn source(&self) -> String {
        self.device.as_ref().map(|(_, path)| path.clone()).unwrap_or_default()
    }

    fn remount(&mut self) -> Result<(), Failure> {
        unmount(self.space.room, &self.directory)?;
        self.device = None;
        self.space.remount()?;
        self.attach()?;
        self.mount()
    }

    fn destroy(&mut self) -> Result<(), Failure> {
        unmount(self.space.room, &self.directory)?;
        let mut check = System::command(self.system.check, &self.source());
        self.space.room.must(&mut check, step::LIMIT)?;
        self.device = None;
        self.space.destroy()
    }
}
