//! The space of a volume, shown by the program `conquest`, and an ext4 on it.

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

/// An ext4 on the space of a volume.
pub(super) struct Mounted<'r> {
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
    ) -> Result<Mounted<'r>, Failure> {
        let shown = room.make(&format!("{}.shown", name(&directory)))?;
        Ok(Mounted { space: Space::new(room, options, shown)?, directory, device: None })
    }

    fn attach(&mut self) -> Result<(), Failure> {
        let file = self.space.directory.join(Space::FILE);
        let options = ["--direct-io=on", "--sector-size", "4096"];
        self.device = Some(attach_loop(self.space.room, &options, &file.to_string_lossy())?);
        Ok(())
    }

    fn mount(&self) -> Result<(), Failure> {
        let directory = self.directory.to_string_lossy();
        self.space.room.mount(&["-t", "ext4", "-o", "discard", &self.source(), &directory])
    }
}

impl Target for Mounted<'_> {
    fn make(&mut self) -> Result<(), Failure> {
        self.space.make()?;
        self.attach()?;
        let mut make = command("mkfs.ext4", &["-q", &self.source()]);
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
        let mut check = command("e2fsck", &["-f", "-n", &self.source()]);
        self.space.room.must(&mut check, step::LIMIT)?;
        self.device = None;
        self.space.destroy()
    }
}
