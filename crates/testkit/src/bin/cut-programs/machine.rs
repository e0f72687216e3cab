//! The machine whose power is cut: a disk, a store with a volume on it, and its mount.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::Outcome;
use crate::disk::{ACKNOWLEDGED, VOLUME};
use crate::processes::{self, run, until};

/// How long a command of ours, the disk, or a look at what is there may take, on a machine that has
/// much else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// Where cores and indexes are. It is this machine's only: all of it goes with the power.
const MEMORY: &str = "/dev/shm";
/// The core.
const CORE: &str = "/dev/shm/core";
/// How what we mount is called: by this end of its name it is found if it hangs.
const SOURCE: &str = "cuts-source";

/// How large things are, and how the store syncs.
pub(crate) struct Shape {
    /// Bytes of the disk.
    pub(crate) disk: u64,
    /// Bytes that the core may grow to.
    pub(crate) core: &'static str,
    /// Bytes of a file that stays in the core.
    pub(crate) threshold: &'static str,
    /// The mode of syncing.
    pub(crate) sync: &'static str,
}

/// The process of the disk.
struct Disk {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

/// A file of the store's own directory: all of them are metadata that a file system below would
/// have kept, as nothing changes them while the store is in use.
enum Kept {
    Link(PathBuf),
    File(u32, Vec<u8>),
}

pub(crate) struct Machine {
    /// The program `conquest`.
    program: PathBuf,
    place: PathBuf,
    disk: Disk,
    /// What the store's directory had when recording ended.
    store: Vec<(PathBuf, Kept)>,
}

fn told<T>(what: &Path, result: std::io::Result<T>) -> Outcome<T> {
    result.map_err(|e| format!("{}: {e}", what.display()))
}

impl Disk {
    fn new(point: &Path, len: u64) -> Outcome<Disk> {
        let own = told(point, std::env::current_exe())?;
        let mut command = Command::new(own);
        command.arg("disk").arg(point).arg(SOURCE).arg(len.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the disk has no pipes".into());
        };
        let (sender, answers) = channel();
        // It ends with the output.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let file = point.join(VOLUME);
        until("the disk", LIMIT, || {
            let is_over = child.try_wait().map_err(|e| e.to_string())?.is_some();
            if is_over { Err("the disk has ended".to_owned()) } else { Ok(file.exists()) }
        })?;
        Ok(Disk { child, input, answers })
    }

    fn ask(&mut self, what: &str) -> Outcome<String> {
        let sent = writeln!(self.input, "{what}").and_then(|()| self.input.flush());
        sent.map_err(|e| format!("the disk does not listen: {e}"))?;
        let answer = self.answers.recv_timeout(LIMIT);
        let answer = answer.map_err(|e| format!("the disk does not answer {what:?}: {e}"))?;
        answer.strip_prefix("failed: ").map_or(Ok(answer.clone()), |why| Err(why.to_owned()))
    }
}

impl Machine {
    /// A machine in the directory `place`, with a disk of `len` bytes.
    pub(crate) fn new(program: &Path, place: &Path, len: u64) -> Outcome<Machine> {
        let mut memory = told(MEMORY.as_ref(), std::fs::read_dir(MEMORY))?;
        if memory.next().is_some() {
            return Err(format!("{MEMORY} is not empty: it has to be this machine's only"));
        }
        processes::become_parent()?;
        for name in ["disk", "mnt", "store"] {
            let path = place.join(name);
            told(&path, std::fs::create_dir_all(&path))?;
        }
        let disk = Disk::new(&place.join("disk"), len)?;
        Ok(Machine { program: program.to_owned(), place: place.to_owned(), disk, store: vec![] })
    }

    /// A directory, or file, in the machine's place, beside the mount.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Where the store is mounted.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.place.join("mnt")
    }

    fn store(&self) -> PathBuf {
        self.place.join("store")
    }

    /// The file for what is acknowledged.
    pub(crate) fn acknowledged(&self) -> PathBuf {
        self.place.join("disk").join(ACKNOWLEDGED)
    }

    /// The same, opened for the output of a program.
    pub(crate) fn acknowledged_output(&self) -> Outcome<std::fs::File> {
        let path = self.acknowledged();
        told(&path, std::fs::File::options().append(true).open(&path))
    }

    /// Asks the disk.
    pub(crate) fn ask(&mut self, what: &str) -> Outcome<String> {
        self.disk.ask(what)
    }

    fn conquest(&self, words: &[&OsStr]) -> Outcome<String> {
        run(Command::new(&self.program).args(words).current_dir(&self.place), LIMIT)
    }

    /// Begins recording, makes a store and mounts it.
    pub(crate) fn begin(&mut self, shape: &Shape) -> Outcome<()> {
        self.cut_power()?;
        clear(&self.store())?;
        self.ask("new")?;
        let (volume, store) = (self.place.join("disk").join(VOLUME), self.store());
        // The store's directory is in memory as well, where cores are put by default.
        let words: Vec<&OsStr> = ["mkfs", "--quiet", "--core", CORE, "--size-max", shape.core]
            .into_iter()
            .chain(["--threshold", shape.threshold, "--sync", shape.sync, "--volume"])
            .map(OsStr::new)
            .chain([volume.as_os_str(), store.as_os_str()])
            .collect();
        self.conquest(&words)?;
        self.mount()
    }

    /// Mounts the store.
    pub(crate) fn mount(&self) -> Outcome<()> {
        let options = format!("allow_other,suid,dev,fsname={SOURCE}");
        let (store, point) = (self.store(), self.mount_point());
        let words = ["mount", "-o", &options].map(OsStr::new);
        self.conquest(&[&words[..], &[store.as_os_str(), point.as_os_str()]].concat())?;
        Ok(())
    }

    /// Makes what was done on the mount durable.
    pub(crate) fn sync(&self) -> Outcome<()> {
        run(Command::new("sync").arg("--file-system").arg(self.mount_point()), LIMIT).map(drop)
    }

    /// Unmounts the store in order, and checks it.
    pub(crate) fn check(&self) -> Outcome<()> {
        let (store, point) = (self.store(), self.mount_point());
        self.conquest(&["umount".as_ref(), point.as_os_str()])?;
        let found =
            self.conquest(&["fsck".as_ref(), "--no-changes".as_ref(), store.as_os_str()])?;
        if found.lines().any(|line| line == "consistent") { Ok(()) } else { Err(found) }
    }

    /// Ends all processes at once and takes away what is in RAM. What is under way at the disk is
    /// complete then.
    pub(crate) fn cut_power(&mut self) -> Outcome<()> {
        processes::end_all(self.disk.child.id())?;
        let point = self.mount_point();
        let mounts = told(&point, std::fs::read_to_string("/proc/self/mounts"))?;
        if mounts.lines().any(|line| line.split(' ').nth(1) == point.to_str()) {
            run(Command::new("umount").arg("--lazy").arg(&point), LIMIT)?;
        }
        clear(MEMORY.as_ref())?;
        until("the end of all requests", LIMIT, || Ok(self.disk.ask("openers")? == "0"))
    }

    /// Keeps what the store's directory has, for all cuts.
    pub(crate) fn keep_store(&mut self) -> Outcome<()> {
        self.store.clear();
        let store = self.store();
        for entry in told(&store, std::fs::read_dir(&store))?.flatten() {
            let path = entry.path();
            let metadata = told(&path, std::fs::symlink_metadata(&path))?;
            let kept = if metadata.is_symlink() {
                Kept::Link(told(&path, std::fs::read_link(&path))?)
            } else {
                Kept::File(metadata.mode(), told(&path, std::fs::read(&path))?)
            };
            self.store.push((path, kept));
        }
        Ok(())
    }

    /// Cuts the power behind `event` of the record: what the disk has then, and the mounted store
    /// that was brought back from it.
    pub(crate) fn cut(&mut self, event: u64, seed: u64) -> Outcome<String> {
        let said = self.ask(&format!("cut {event} {seed}"))?;
        let store = self.store();
        clear(&store)?;
        for (path, kept) in &self.store {
            match kept {
                Kept::Link(target) => told(path, symlink(target, path))?,
                Kept::File(mode, bytes) => {
                    told(path, std::fs::write(path, bytes))?;
                    let mode = PermissionsExt::from_mode(*mode);
                    told(path, std::fs::set_permissions(path, mode))?;
                }
            }
        }
        Ok(said)
    }

    /// Keeps the record and the store's directory in the directory `at`.
    pub(crate) fn save(&mut self, at: &Path) -> Outcome<()> {
        told(at, std::fs::create_dir_all(at.join("store")))?;
        let record = at.join("record");
        self.ask(&format!("save {}", record.display()))?;
        for (path, kept) in &self.store {
            let copy = at.join("store").join(path.file_name().unwrap_or_default());
            // One that an earlier run has left.
            let _ = std::fs::remove_file(&copy);
            match kept {
                Kept::Link(target) => told(&copy, symlink(target, &copy))?,
                Kept::File(mode, bytes) => {
                    told(&copy, std::fs::write(&copy, bytes))?;
                    let mode = PermissionsExt::from_mode(*mode);
                    told(&copy, std::fs::set_permissions(&copy, mode))?;
                }
            }
        }
        Ok(())
    }

    /// Takes what [`Machine::save`] has kept.
    pub(crate) fn load(&mut self, at: &Path) -> Outcome<String> {
        let (store, saved) = (self.store(), at.join("store"));
        clear(&store)?;
        let inode = told(&store, std::fs::metadata(&store))?.ino();
        for entry in told(&saved, std::fs::read_dir(&saved))?.flatten() {
            let (from, to) = (entry.path(), store.join(entry.file_name()));
            if told(&from, entry.file_type())?.is_symlink() {
                told(&to, symlink(told(&from, std::fs::read_link(&from))?, &to))?;
            } else if entry.file_name() == "store.toml" {
                let text = told(&from, std::fs::read_to_string(&from))?;
                told(&to, std::fs::write(&to, at_home(&text, inode)))?;
            } else {
                told(&from, std::fs::copy(&from, &to))?;
            }
        }
        self.keep_store()?;
        self.ask(&format!("load {}", at.join("record").display()))
    }
}

/// The text of `store.toml`, for a store whose directory has another inode: it is the same one.
fn at_home(text: &str, inode: u64) -> String {
    let mut section = "";
    let mut found = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        if section == "[home]" && line.starts_with("inode = ") {
            found.push_str(&format!("inode = {inode}\n"));
        } else {
            found.push_str(line);
            found.push('\n');
        }
    }
    found
}

/// Removes all that is in `directory`.
fn clear(directory: &Path) -> Outcome<()> {
    for entry in told(directory, std::fs::read_dir(directory))?.flatten() {
        let path = entry.path();
        let is_directory = told(&path, entry.file_type())?.is_dir();
        let removed =
            if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        told(&path, removed)?;
    }
    Ok(())
}

impl Drop for Machine {
    /// Ends all that was started; the disk ends when its input does, and is unmounted.
    fn drop(&mut self) {
        let _ = self.cut_power();
        let _ = self.disk.child.kill();
        let _ = self.disk.child.wait();
        let _ = run(Command::new("umount").arg("--lazy").arg(self.place.join("disk")), LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_told_where_it_is() {
        let text = "[home]\npath = \"/a\"\ninode = 5\n\n[live]\ninode = 5\n";
        let moved = "[home]\npath = \"/a\"\ninode = 77\n\n[live]\ninode = 5\n";
        assert_eq!(at_home(text, 77), moved);
    }
}
