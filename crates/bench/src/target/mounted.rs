//! A store, mounted by the program.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Survives, Target, store};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result, program};

/// Longest wait for the mount, and for its end.
const LIMIT: Duration = Duration::from_secs(30);
/// The kernel's number for FUSE.
const FUSE: i64 = 0x6573_5546;

/// It.
pub(super) struct Mounted {
    directory: PathBuf,
    program: PathBuf,
    server: Option<Child>,
    options: Vec<String>,
}

impl Mounted {
    /// In the empty directory `directory`, which goes with it, by the program `program`.
    pub(super) fn new(directory: PathBuf, program: PathBuf) -> Mounted {
        Mounted { directory, program, server: None, options: Vec::new() }
    }

    fn point(&self) -> PathBuf {
        self.directory.join("mount")
    }

    fn failed(reason: impl Into<String>) -> Error {
        Error::Target { target: "fuse".into(), reason: reason.into() }
    }

    fn is_mounted(&self) -> bool {
        rustix::fs::statfs(self.point()).is_ok_and(|found| found.f_type == FUSE)
    }

    /// Waits for the server's end; ends it if that takes too long.
    fn end(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            if server.try_wait().map_err(Error::system("the server"))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // It may end at this moment.
        let _ = server.kill();
        let _ = server.wait();
        Err(Mounted::failed(format!("the server has not ended after {} s", LIMIT.as_secs())))
    }
}

impl Target for Mounted {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        let core = self.directory.join("store");
        std::fs::create_dir_all(self.point()).map_err(Error::system("the mount point"))?;
        // The store is root's, who serves it; its files are the owner's.
        self.options = store::make(&core, need, None)?;
        let is_root = rustix::process::geteuid().is_root();
        // If this process is killed, so is the server, and with it the namespace goes.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.program).args(["mount", "-f"]);
        if is_root {
            command.args(["-o", "allow_other"]);
        }
        command.arg(&core).arg(self.point());
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let server = command.spawn().map_err(Error::system("conquest mount"))?;
        self.server = Some(server);
        let begin = Instant::now();
        while !self.is_mounted() {
            let ended = self.server.as_mut().and_then(|server| server.try_wait().ok().flatten());
            if ended.is_some() {
                let output = self.server.take().and_then(|server| server.wait_with_output().ok());
                let said = output.map(|output| output.stderr).unwrap_or_default();
                return Err(Mounted::failed(String::from_utf8_lossy(&said).trim()));
            }
            if begin.elapsed() > LIMIT {
                return Err(Mounted::failed(format!("not mounted after {} s", LIMIT.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        store::give(&self.point(), owner)
    }

    fn answering(&self) -> Answering {
        Answering::Directory { path: self.point() }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        Survives::Process
    }

    fn remove(&mut self) -> Result<()> {
        if self.server.is_some() && self.is_mounted() {
            // As who mounted it: who is not root may not call umount(8).
            let (program, point) = (self.program.to_string_lossy(), self.point());
            program::run(&program, &["umount", &point.to_string_lossy()])?;
        }
        self.end()?;
        store::destroy(&self.directory)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Nobody is left who could be told.
            let _ = server.kill();
            let _ = server.wait();
        }
        let program = self.program.to_string_lossy();
        let _ = program::run(&program, &["umount", "--lazy", &self.point().to_string_lossy()]);
        let _ = store::destroy(&self.directory);
    }
}
