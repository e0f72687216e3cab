//! Who keeps a mount busy.
//!
//! No server is asked for anything: files are told by the number of their mount, which the kernel
//! knows, so this works on a mount whose server has ended or hangs, and from within the server.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use conquest::quote;
use rustix::fs::{Mode, OFlags};

use super::processes::Process;
use super::table::{self, Mount};
use crate::people::People;
use crate::place;
use crate::reason::Result;

/// How a process uses a mount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Use {
    /// Its working directory is there.
    WorkingDirectory,
    /// Its root directory is there.
    Root,
    /// The program that it runs is there.
    Program,
    /// It has files there open.
    OpenFile,
    /// It has files there mapped.
    MappedFile,
}

impl Use {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Use::WorkingDirectory => "working directory",
            Use::Root => "root directory",
            Use::Program => "running program",
            Use::OpenFile => "open file",
            Use::MappedFile => "mapped file",
        }
    }
}

/// A process that uses a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct User {
    pub(crate) process: u32,
    /// What it calls itself.
    pub(crate) name: String,
    /// Whose it is.
    pub(crate) owner: String,
    /// How it uses the mount, each way once, with a file that it uses so.
    pub(crate) uses: Vec<(Use, PathBuf)>,
}

/// All that keeps a mount busy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Users {
    /// Processes, in the order of their numbers.
    pub(crate) processes: Vec<User>,
    /// Mounts beneath it.
    pub(crate) mounts: Vec<PathBuf>,
    /// Loop devices on files of it.
    pub(crate) loops: Vec<PathBuf>,
    /// Whether there are processes that may not be looked into.
    pub(crate) is_partial: bool,
}

impl Users {
    /// Who uses `mount`.
    ///
    /// # Errors
    /// If /proc is not there.
    pub(crate) fn of(mount: &Mount) -> Result<Users> {
        let all = table::read()?;
        let is_beneath = |other: &&Mount| other.parent == mount.id && other.id != mount.id;
        let mounts = all.iter().filter(is_beneath).map(|other| other.directory.clone()).collect();
        let mut users = Users { mounts, loops: loops(mount), ..Users::default() };
        let mut people = People::default();
        for process in Process::all() {
            match uses(process, mount) {
                None => users.is_partial |= process.file("").exists(),
                Some(uses) if uses.is_empty() => {}
                Some(uses) => users.processes.push(User {
                    process: process.0,
                    name: process.name().unwrap_or_default(),
                    owner: owner(process, &mut people),
                    uses,
                }),
            }
        }
        users.processes.sort_by_key(|user| user.process);
        Ok(users)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = quote::message(self.name.as_bytes());
        write!(f, "process {} ({name}, of {}): ", self.process, self.owner)?;
        for (at, (how, path)) in self.uses.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", how.words(), place::host_label(path))?;
        }
        Ok(())
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for user in &self.processes {
            write!(f, "\n  {user}")?;
        }
        for mount in &self.mounts {
            write!(f, "\n  a mount beneath it: {}", place::host_label(mount))?;
        }
        for device in &self.loops {
            write!(f, "\n  a loop device on it: {}", place::host_label(device))?;
        }
        if self.is_partial {
            write!(f, "\n  perhaps processes of others, which only root may look into")?;
        }
        Ok(())
    }
}

fn owner(process: Process, people: &mut People) -> String {
    match std::fs::metadata(process.file("")) {
        Ok(found) => people.user(found.uid()).to_owned(),
        Err(_) => "nobody known".to_owned(),
    }
}

/// The loop devices on files of `mount`: the kernel tells their paths, as this process sees them.
fn loops(mount: &Mount) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let is_on_it = |entry: &std::fs::DirEntry| {
        let path = std::fs::read(entry.path().join("loop/backing_file")).unwrap_or_default();
        Path::new(OsStr::from_bytes(path.trim_ascii_end())).starts_with(&mount.directory)
    };
    let on_it = entries.filter(is_on_it);
    on_it.map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

/// How `process` uses `mount`; none if it may not be looked into, or is gone.
fn uses(process: Process, mount: &Mount) -> Option<Vec<(Use, PathBuf)>> {
    let mut found = Vec::new();
    let mut add = |how: Use, link: &str| {
        found.push((how, std::fs::read_link(process.file(link)).unwrap_or_default()));
    };
    for (link, how) in [("cwd", Use::WorkingDirectory), ("root", Use::Root), ("exe", Use::Program)]
    {
        if id_behind(&process.file(link)) == Some(mount.id) {
            add(how, link);
        }
    }
    let is_in = |number: &u32| {
        let told = process.descriptor(*number);
        let id = told.as_deref().and_then(|text| table::field(text, "mnt_id")?.parse().ok());
        id == Some(mount.id)
    };
    if let Some(number) = process.descriptors()?.into_iter().find(is_in) {
        add(Use::OpenFile, &format!("fd/{number}"));
    }
    let maps = std::fs::read(process.file("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    if let Some(line) = maps.lines().find(|line| device_of_map(line) == Some(mount.device)) {
        let path = line.split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
        found.push((Use::MappedFile, path.into()));
    }
    Some(found)
}

/// The number of the mount that the link `path` of /proc leads to. Kernel threads have none.
fn id_behind(path: &Path) -> Option<u64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    table::id_of(rustix::fs::open(path, flags, Mode::empty()).ok()?).ok()
}

/// The device in a line of `/proc/PID/maps`.
fn device_of_map(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split_ascii_whitespace().nth(3)?.split_once(':')?;
    Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_maps() {
        let line = "7f00-7f01 r--p 00000000 00:2b 1234    /mnt/a b";
        assert_eq!(device_of_map(line), Some((0, 0x2b)));
        assert_eq!(device_of_map("nothing"), None);
    }

    #[test]
    fn this_process_uses_what_its_program_is_on() {
        let program = std::env::current_exe().unwrap();
        let file = std::fs::File::open(program).unwrap();
        let id = table::id_of(&file).unwrap();
        let mounts = table::read().unwrap();
        let mount = mounts.into_iter().find(|mount| mount.id == id).unwrap();
        let users = Users::of(&mount).unwrap();
        let own = users.processes.iter().find(|user| user.process == std::process::id()).unwrap();
        let program = std::env::current_exe().unwrap();
        assert!(own.uses.contains(&(Use::Program, program)), "{own}");
        assert!(own.uses.iter().any(|(how, _)| *how == Use::OpenFile), "{own}");
        drop(file);
        assert!(users.to_string().contains(&format!("\n  {own}")), "{users}");
    }
}
