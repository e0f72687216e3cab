//! A store, mounted by the program: in memory, or with a volume for large files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::logged::Logged;
use super::server::{Server, is_mounted};
use super::{Survives, Target, store};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::{Error, Result, program};

/// Which store.
pub(super) enum Store {
    /// One in memory.
    Memory,
    /// One with a volume, in the directory `store` beside the mount point.
    Hybrid(Box<Logged>),
}

/// It.
pub(super) struct Mounted {
    directory: PathBuf,
    store: Store,
    program: PathBuf,
    limit: Duration,
    server: Option<Server>,
    options: Vec<String>,
}

impl Mounted {
    /// In the empty directory `directory`, which goes with it, by the program `program`, for a
    /// part of an experiment that takes no longer than `limit`.
    pub(super) fn new(
        directory: PathBuf,
        store: Store,
        program: PathBuf,
        limit: Duration,
    ) -> Mounted {
        Mounted { directory, store, program, limit, server: None, options: Vec::new() }
    }

    fn label(&self) -> &'static str {
        match self.store {
            Store::Memory => "fuse",
            Store::Hybrid(_) => "hybrid-fuse",
        }
    }

    fn point(&self) -> PathBuf {
        self.directory.join("mount")
    }
}

impl Target for Mounted {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        let (core, point) = (self.directory.join("store"), self.point());
        std::fs::create_dir_all(&point).map_err(Error::system("the mount point"))?;
        // The store is root's, who serves it; its files are the owner's.
        self.options = match &mut self.store {
            Store::Memory => store::make(&core, need, None)?,
            Store::Hybrid(store) => {
                std::fs::create_dir_all(&core).map_err(Error::system("the store"))?;
                store.make(need, None)?;
                store.options()
            }
        };
        let is_root = rustix::process::geteuid().is_root();
        let options: &[&str] = if is_root { &["-o", "allow_other"] } else { &[] };
        let words = ["mount", "-f"].iter().chain(options).map(Path::new);
        let words = std::iter::once(self.program.as_path()).chain(words);
        let command: Vec<&Path> = words.chain([core.as_path(), point.as_path()]).collect();
        let server = Server::start(self.label(), &self.program, &command, &point, self.limit)?;
        self.server = Some(server);
        store::give(&point, owner)
    }

    fn answering(&self) -> Answering {
        Answering::Directory { path: self.point() }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        match &self.store {
            Store::Memory => Survives::Process,
            Store::Hybrid(store) => store.survives(),
        }
    }

    fn remove(&mut self) -> Result<()> {
        if self.server.is_some() && is_mounted(&self.point()) {
            // As who mounted it: who is not root may not call umount(8).
            let (program, point) = (self.program.to_string_lossy(), self.point());
            program::run(&program, &["umount", &point.to_string_lossy()])?;
        }
        self.server.take().map_or(Ok(()), Server::end)?;
        if let Store::Hybrid(store) = &mut self.store {
            store.remove()?;
        }
        store::destroy(&self.directory)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        drop(self.server.take());
        let program = self.program.to_string_lossy();
        let _ = program::run(&program, &["umount", "--lazy", &self.point().to_string_lossy()]);
        if let Store::Hybrid(store) = &mut self.store {
            let _ = store.remove();
        }
        let _ = store::destroy(&self.directory);
    }
}
