//! A store, mounted by the program `conquest`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::options::Options;
use super::room::{MOUNTER, Room};
use super::step;
use super::target::{BYTES, Target, is_mounted, name, source};
use crate::harness::BUILD_LIMIT;
use crate::{Failure, child, tree};

/// How long `conquest fsck` may take.
const CHECK_LIMIT: Duration = Duration::from_secs(600);

/// Builds the program.
pub(super) fn build() -> Result<(), Failure> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "-p", "conquest-cli"]).current_dir(tree::root());
    if child::run_shown(&mut build, BUILD_LIMIT, |_| true)?.is_well() {
        return Ok(());
    }
    Err(Failure::Broken("conquest-cli does not build".into()))
}

/// A copy of the program that was asked for, in the room, where ordinary users can run it.
pub(super) fn installed(room: &Room, options: &Options) -> Result<PathBuf, Failure> {
    let program = room.make("bin")?.join("conquest");
    let built = tree::output().join("release/conquest");
    let built = options.program.as_ref().unwrap_or(&built);
    if !program.exists() {
        std::fs::copy(built, &program).map_err(|e| Failure::system("can't copy", built, &e))?;
    }
    Ok(program)
}

/// A mounted store.
pub(super) struct Conquest<'r> {
    room: &'r Room,
    /// A copy of the program where ordinary users can run it.
    program: PathBuf,
    store: PathBuf,
    directory: PathBuf,
    is_privileged: bool,
    /// Options of `mount` that were asked for, each with a comma.
    options: String,
}

impl<'r> Conquest<'r> {
    /// A store that is to be mounted at `directory`, by root or by an ordinary user.
    pub(super) fn new(
        room: &'r Room,
        options: &Options,
        directory: PathBuf,
        is_privileged: bool,
    ) -> Result<Conquest<'r>, Failure> {
        let program = installed(room, options)?;
        let parent = room.make(&format!("{}.home", name(&directory)))?;
        if !is_privileged {
            let_others_mount(room)?;
            for path in [&directory, &parent] {
                let mut own = step::command("chown", &[&format!("{MOUNTER}:{MOUNTER}")]);
                room.must(own.arg(path), step::LIMIT)?;
            }
        }
        let store = parent.join("store");
        let options = options.mount.iter().map(|option| format!("{option},")).collect();
        Ok(Conquest { room, program, store, directory, is_privileged, options })
    }

    /// The program, run by whom the store belongs to.
    fn conquest(&self, arguments: &[&str]) -> Command {
        let mut command = if self.is_privileged {
            Command::new(&self.program)
        } else {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", MOUNTER, "--regid", MOUNTER, "--clear-groups"]);
            command.arg(&self.program);
            command
        };
        command.args(arguments).env("HOME", self.store.parent().unwrap_or(&self.store));
        command
    }

    fn attach(&self) -> Result<(), Failure> {
        // What suites do needs devices and set-id bits, which only root may ask for.
        let privileges = if self.is_privileged { "suid,dev," } else { "" };
        let (asked, source) = (&self.options, self.source());
        let options = format!("allow_other,{privileges}{asked}fsname={source}");
        let mut mount = self.conquest(&["mount", "-o", &options]);
        self.room.must(mount.arg(&self.store).arg(&self.directory), step::LIMIT)
    }

    fn detach(&self) -> Result<(), Failure> {
        // A suite may have unmounted it.
        if !is_mounted(&self.directory) {
            return Ok(());
        }
        self.room.must(self.conquest(&["umount"]).arg(&self.directory), step::LIMIT)
    }
}

/// Lets ordinary users mount as most machines let them: whoever may open the device may mount, and
/// let others in.
fn let_others_mount(room: &Room) -> Result<(), Failure> {
    const CONFIGURATION: &str = "/etc/fuse.conf";
    const DEVICE: &str = "/dev/fuse";
    let missing = |e| Failure::system("the package fuse3 has", CONFIGURATION.as_ref(), &e);
    let lines = std::fs::read_to_string(CONFIGURATION).map_err(missing)?;
    if !lines.lines().any(|line| line.trim() == "user_allow_other") {
        room.cover(CONFIGURATION, &format!("{lines}\nuser_allow_other\n"))?;
    }
    let device = room.directory.join("fuse");
    if !device.exists() {
        let mut make = step::command("cp", &["--archive", DEVICE]);
        room.must(make.arg(&device), step::LIMIT)?;
        room.must(step::command("chmod", &["666"]).arg(&device), step::LIMIT)?;
        room.mount(&["--bind", &device.to_string_lossy(), DEVICE])?;
    }
    Ok(())
}

impl Target for Conquest<'_> {
    fn make(&mut self) -> Result<(), Failure> {
        let mut mkfs = self.conquest(&["mkfs", "--quiet", "--size-max", BYTES]);
        self.room.must(mkfs.arg(&self.store), step::LIMIT)?;
        self.attach()?;
        // The suites are root's, whoever has made the store.
        let root = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.directory, root)
            .map_err(|e| Failure::system("can't change the mode of", &self.directory, &e))
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn source(&self) -> String {
        source(&self.directory)
    }

    fn remount(&mut self) -> Result<(), Failure> {
        self.detach()?;
        self.attach()
    }

    fn destroy(&mut self) -> Result<(), Failure> {
        self.detach()?;
        self.room.must(self.conquest(&["fsck", "-n"]).arg(&self.store), CHECK_LIMIT)?;
        self.room.must(self.conquest(&["destroy", "--yes"]).arg(&self.store), step::LIMIT)
    }
}
