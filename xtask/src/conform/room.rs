//! The room: namespaces of mounts, processes and shared memory that end with the suite.
//!
//! Its directory, its `/dev/shm` and its lists of users are in memory that goes with the
//! namespaces. When the first process of the namespace of processes ends, the kernel kills all
//! others, and then unmounts what was mounted; so neither a daemon nor a mount can stay behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::step::{self, command, must};
use super::watch;
use crate::tally::Tally;
use crate::{Failure, harness, tree};

/// Directories of every system that may be covered while a suite runs: the first one that does
/// not hold the workspace is.
const PLACES: [&str; 3] = ["/media", "/mnt", "/srv"];
/// The ordinary users that suites ask for, and one who mounts. Passwords can't match.
const USERS: [&str; 4] = ["fsgqa", "fsgqa2", "123456-fsgqa", MOUNTER];
/// Who mounts without privileges.
pub(super) const MOUNTER: &str = "conquest-mounter";
/// From here on, numbers are looked for that no user has.
const FIRST_ID: u32 = 61_000;

const MOUNT_SPACE: &str = "/proc/self/ns/mnt";

/// The room, seen from inside.
pub(super) struct Room {
    /// The directory for all that a suite makes, in memory.
    pub(super) directory: PathBuf,
    /// Where logs are kept.
    pub(super) logs: PathBuf,
}

fn space() -> Result<String, Failure> {
    let link = std::fs::read_link(MOUNT_SPACE);
    let link = link.map_err(|e| Failure::system("can't read", MOUNT_SPACE.as_ref(), &e))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Runs `conform-inside` with `arguments` in a room, for at most `limit`.
pub(super) fn enter(arguments: &[String], limit: Duration) -> Result<Tally, Failure> {
    // If this process is killed, so is the one that waits for the room, and with that the room. The
    // shell is its first process: it buries whatever loses its parent, so that who asks whether a
    // daemon has ended is not told of a dead one.
    let mut command = command("setpriv", &["--pdeathsig", "KILL", "unshare", "--mount", "--pid"]);
    command.args(["--ipc", "--fork", "--kill-child", "--propagation", "private"]);
    command.args(["sh", "-c", "\"$@\"; exit $?", "sh"]);
    command.arg(own_program()?);
    command.args([super::INSIDE, &space()?]).args(arguments).current_dir(tree::root());
    harness::counted(&mut command, limit, "conform")
}

/// This program. If it was built anew since it was started, the kernel says that it was deleted:
/// the new one, of the same source, is in its place.
fn own_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe();
    let program = program.map_err(|e| Failure::Broken(format!("can't find this program: {e}")))?;
    let words = program.to_string_lossy();
    Ok(words.strip_suffix(" (deleted)").map_or_else(|| program.clone(), PathBuf::from))
}

impl Room {
    /// Makes the namespace that this process is in a room. `outside` is the namespace of mounts
    /// that must stay as it is; logs get the name `name`.
    pub(super) fn furnish(outside: &str, name: &str) -> Result<Room, Failure> {
        if space()? == outside {
            return Err(Failure::Broken("this is no mount namespace of its own".into()));
        }
        let root = tree::root();
        let is_free = |place: &&&str| Path::new(place).is_dir() && !root.starts_with(place);
        let place = PLACES.iter().find(is_free).ok_or_else(|| {
            Failure::Broken(format!("none of the directories {} is free", PLACES.join(", ")))
        })?;
        let logs = tree::output().join("conform").join(name);
        if logs.exists() {
            std::fs::remove_dir_all(&logs)
                .map_err(|e| Failure::system("can't remove", &logs, &e))?;
        }
        make_directory(&logs)?;
        let room = Room { directory: place.into(), logs };
        // A suite may fill memory only as far as the machine stays usable.
        room.mount(&["-t", "tmpfs", "-o", "mode=755,size=60%", "room", place])?;
        room.mount(&["-t", "tmpfs", "-o", "mode=1777,size=60%", "shm", "/dev/shm"])?;
        // The machine's, where all locks are listed: ours lists none of a process that has ended.
        room.mount(&["--bind", "/proc", &room.make("proc")?.to_string_lossy()])?;
        room.mount(&["-t", "proc", "proc", "/proc"])?;
        room.add_users()?;
        if Path::new(watch::CONNECTIONS).is_dir() {
            room.mount(&["-t", "fusectl", "fusectl", watch::CONNECTIONS])?;
        }
        Ok(room)
    }

    /// A new directory in the room.
    pub(super) fn make(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.directory.join(name);
        make_directory(&path)?;
        Ok(path)
    }

    /// Runs `command`, which must end well, for at most `limit`.
    pub(super) fn must(&self, command: &mut Command, limit: Duration) -> Result<(), Failure> {
        must(command, limit, &self.directory.join("step.log"))
    }

    /// Mounts something.
    pub(super) fn mount(&self, arguments: &[&str]) -> Result<(), Failure> {
        // The first mounts make the directory that the log of later ones is in.
        let log = std::env::temp_dir().join(format!("xtask-conform-{}", std::process::id()));
        let done = must(&mut command("mount", arguments), step::LIMIT, &log);
        let _ = std::fs::remove_file(&log);
        done
    }

    /// Lets `file` be read instead of `over`.
    pub(super) fn cover(&self, over: &str, text: &str) -> Result<(), Failure> {
        let name = over.replace('/', "-");
        let file = self.directory.join(name.trim_start_matches('-'));
        std::fs::write(&file, text).map_err(|e| Failure::system("can't write", &file, &e))?;
        self.mount(&["--bind", &file.to_string_lossy(), over])
    }

    fn add_users(&self) -> Result<(), Failure> {
        let mut lists = ["/etc/passwd", "/etc/group"].map(|path| (path, String::new()));
        for (path, text) in &mut lists {
            *text = std::fs::read_to_string(&path)
                .map_err(|e| Failure::system("can't read", path.as_ref(), &e))?;
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        let [(_, users), (_, groups)] = &mut lists;
        let mut next = FIRST_ID;
        for name in USERS {
            let is_listed = |list: &str| list.lines().any(|l| l.split(':').next() == Some(name));
            if is_listed(users) && is_listed(groups) {
                continue;
            }
            let is_used = |id: u32, list: &str| {
                list.lines().any(|l| l.split(':').nth(2) == Some(&id.to_string()))
            };
            while is_used(next, users) || is_used(next, groups) {
                next += 1;
            }
            if !is_listed(users) {
                users.push_str(&format!("{name}:*:{next}:{next}::/:/bin/bash\n"));
            }
            if !is_listed(groups) {
                groups.push_str(&format!("{name}:x:{next}:\n"));
            }
        }
        lists.iter().try_for_each(|(path, text)| self.cover(path, text))
    }
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|e| Failure::system("can't make", path, &e))
}
