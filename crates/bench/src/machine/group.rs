//! Less memory than the machine has: for this process and those that it starts, by a control group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Where groups are, in their two versions, and the file with the limit; the first one that is
/// there is used.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// Longest wait until those who were started have left the group.
const PATIENCE: Duration = Duration::from_secs(20);

/// A group with so much memory, pages of files included, in which this process is as long as this
/// is there.
pub struct Group {
    /// The group in which the process was before.
    home: PathBuf,
    path: PathBuf,
}

impl Group {
    /// Enters a new one with `bytes` bytes.
    ///
    /// # Errors
    /// If control groups can't be made: that takes root, and a controller of memory.
    pub fn enter(bytes: u64) -> Result<Group> {
        Group::enter_below(&PLACES.map(|(root, limit)| (Path::new(root), limit)), bytes)
    }

    fn enter_below(places: &[(&Path, &str)], bytes: u64) -> Result<Group> {
        let found = places.iter().find(|(root, limit)| may_limit(root, limit));
        let (root, limit) = found.ok_or_else(|| Error::Target {
            target: "memory".into(),
            reason: "control groups that limit it need root and a controller of memory \
                     (/sys/fs/cgroup); leave the limit out: --set memory-percent=0"
                .into(),
        })?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let home = home(root, &groups);
        let path = root.join(format!("conquest-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(of(&path))?;
        let group = Group { home, path };
        write(&group.path.join(limit), &bytes.to_string())?;
        group.go_in()?;
        Ok(group)
    }

    fn go_in(&self) -> Result<()> {
        write(&self.path.join("cgroup.procs"), "0")
    }

    fn go_home(&self) -> Result<()> {
        write(&self.home.join("cgroup.procs"), "0")
    }

    /// Does `work` as if this were not there: what it takes is not counted here.
    ///
    /// # Errors
    /// Those of the system.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.go_home()?;
        let done = work();
        self.go_in()?;
        Ok(done)
    }
}

/// Whether limits on memory can be set below `root`, by files named `limit`.
fn may_limit(root: &Path, limit: &str) -> bool {
    let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    root.join(limit).exists() || controllers.split_whitespace().any(|one| one == "memory")
}

/// The group below `root` that the text of `/proc/self/cgroup` names; `root` itself, if it can't be
/// seen from here.
fn home(root: &Path, groups: &str) -> PathBuf {
    let named = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let is_it = ["", "memory"].iter().any(|one| controllers.split(',').any(|it| it == *one));
        is_it.then(|| root.join(group.trim_start_matches('/')))
    });
    let mut seen = named.filter(|path| path != root && path.join("cgroup.procs").exists());
    seen.next().unwrap_or_else(|| root.to_path_buf())
}

fn of(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    Error::system(&path.display().to_string())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(of(path))
}

impl Drop for Group {
    fn drop(&mut self) {
        // Who can't go back stays limited, and the next group says why it can't be made.
        let _ = self.go_home();
        let begun = Instant::now();
        while fs::remove_dir(&self.path).is_err() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_goes_back_to_where_he_was() {
        let root = std::env::temp_dir().join(format!("conquest-test-home-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/cgroup.procs"), "").unwrap();
        let text = "5:cpu:/a\n4:hugetlb,memory:/a/b\n0::/\n";
        let (there, hidden) = (home(&root, text), home(&root, "4:memory:/c\n0::/\n"));
        let second = home(&root, "0::/a/b\n");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(there, root.join("a/b"));
        assert_eq!((hidden, second), (root, there));
    }

    #[test]
    fn the_first_version_that_is_there_gets_a_group_with_the_limit() {
        let name = format!("conquest-test-group-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let (first, second) = (root.join("memory"), root.join("second"));
        fs::create_dir_all(&first).unwrap();
        fs::create_dir_all(&second).unwrap();
        let places = [(first.as_path(), "memory.limit_in_bytes"), (second.as_path(), "memory.max")];
        let refused = Group::enter_below(&places, 4096).err().unwrap().to_string();
        assert!(refused.contains("control groups"), "{refused}");
        fs::write(second.join("cgroup.subtree_control"), "cpu memory\n").unwrap();
        let group = Group::enter_below(&places, 4096).unwrap();
        assert!(group.path.starts_with(&second), "{}", group.path.display());
        assert_eq!(fs::read_to_string(group.path.join("memory.max")).unwrap(), "4096");
        let procs = [&group.home, &group.path].map(|path| path.join("cgroup.procs"));
        assert!(!procs[0].exists());
        assert_eq!(fs::read_to_string(&procs[1]).unwrap(), "0");
        fs::write(&procs[1], "").unwrap();
        let seen = || procs.clone().map(|procs| fs::read_to_string(procs).unwrap());
        assert_eq!(group.outside(seen).unwrap(), ["0", ""]);
        assert_eq!(seen(), ["0", "0"]);
        fs::write(first.join("memory.limit_in_bytes"), "").unwrap();
        let other = Group::enter_below(&places, 8192).unwrap();
        assert_eq!(fs::read_to_string(other.path.join("memory.limit_in_bytes")).unwrap(), "8192");
        // Files of real groups go with them.
        fs::remove_dir_all(&group.path).unwrap();
        fs::remove_dir_all(&other.path).unwrap();
        fs::create_dir(&group.path).unwrap();
        fs::create_dir(&other.path).unwrap();
        drop((group, other));
        let left = fs::read_dir(&second).unwrap().count() + fs::read_dir(&first).unwrap().count();
        fs::remove_dir_all(&root).unwrap();
        // The files, and who was moved back.
        assert_eq!(left, 4);
    }
}
