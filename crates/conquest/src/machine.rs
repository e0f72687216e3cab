//! What this machine is: its boot, its RAM, its clock, its mounted file systems.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::failed;
use crate::{Id, Result};

/// The boot of this machine.
pub(crate) fn boot() -> Result<Id> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(failed(path, "ask for the boot id"))?;
    text.trim().parse().map_err(|_| {
        let invalid = std::io::Error::from_raw_os_error(libc::EINVAL);
        failed(path, "understand the boot id")(invalid)
    })
}

/// Bytes of RAM that this process may use: all, or what its control group has.
pub(crate) fn memory() -> Result<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = VERSIONS.iter().filter_map(|version| {
        let root = Path::new("/sys/fs/cgroup").join(version.root);
        limit(&root, version.group_of(&groups)?, version.file)
    });
    Ok(limits.min().unwrap_or(u64::MAX).min(ram()?))
}

/// Where one of the two versions of control groups keeps limits on memory.
struct Version {
    /// What a line of `/proc/self/cgroup` has between its number and the group.
    named: &'static str,
    /// Below `/sys/fs/cgroup`.
    root: &'static str,
    file: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version { named: "", root: "", file: "memory.max" },
    Version { named: "memory", root: "memory", file: "memory.limit_in_bytes" },
];

impl Version {
    /// The control group in the text of `/proc/self/cgroup`.
    fn group_of<'t>(&self, text: &'t str) -> Option<&'t Path> {
        text.lines().find_map(|line| {
            let (named, group) = line.split_once(':')?.1.split_once(':')?;
            let is_it = named.split(',').any(|name| name == self.named);
            is_it.then(|| Path::new(group.trim_start_matches('/')))
        })
    }
}

/// The least limit on memory of the group `path` below `root`, in the files of that name, and of
/// those that it is in. In a container the outermost may be all that can be seen.
fn limit(root: &Path, path: &Path, file: &str) -> Option<u64> {
    let limits = path.ancestors().filter_map(|path| {
        let text = std::fs::read_to_string(root.join(path).join(file)).ok()?;
        text.trim().parse().ok()
    });
    limits.min()
}

/// Bytes of RAM.
fn ram() -> Result<u64> {
    let path = Path::new("/proc/meminfo");
    let text = std::fs::read_to_string(path).map_err(failed(path, "ask for the size of RAM"))?;
    total(&text).ok_or_else(|| {
        let invalid = std::io::Error::from_raw_os_error(libc::EINVAL);
        failed(path, "understand the size of RAM")(invalid)
    })
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Processors that this process may use.
pub(crate) fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Nanoseconds since 1970; 0 if the clock says an earlier time.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A mounted tmpfs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tmpfs {
    /// Where.
    pub(crate) path: PathBuf,
    /// The value of its option `huge=`.
    pub(crate) huge: Option<String>,
}

/// The tmpfs in the text of `/proc/self/mountinfo` that can be written.
pub(crate) fn tmpfs(mountinfo: &str) -> Vec<Tmpfs> {
    mountinfo.lines().filter_map(one_tmpfs).collect()
}

fn one_tmpfs(line: &str) -> Option<Tmpfs> {
    // Optional fields end with a lone dash: type, source and the file system's options follow.
    let (first, rest) = line.split_once(" - ")?;
    let mut rest = rest.split(' ');
    let (kind, options) = (rest.next()?, rest.nth(1)?);
    let mut first = first.split(' ').skip(4);
    let (path, flags) = (first.next()?, first.next()?);
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro");
    if kind != "tmpfs" || is_read_only(flags) || is_read_only(options) {
        return None;
    }
    let huge = options.split(',').find_map(|option| option.strip_prefix("huge="));
    Some(Tmpfs { path: unescaped(path), huge: huge.map(str::to_owned) })
}

/// A path in which blanks and the like stand as a backslash and three octal digits.
fn unescaped(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                rest = after.get(3..).unwrap_or(&[]);
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_ram_is_in_kibibytes() {
        assert_eq!(total("MemTotal:       24684092 kB\nMemFree: 1 kB\n"), Some(24_684_092 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: many kB\n"), None);
        assert!(ram().unwrap() > 1 << 20);
        assert_eq!(boot().unwrap(), boot().unwrap());
    }

    #[test]
    fn a_control_group_limits_memory_and_so_do_those_around_it() {
        let name = format!("conquest-test-cgroup-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let inner = root.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        let none = limit(&root, Path::new("a/b"), "memory.max");
        std::fs::write(root.join("a/memory.max"), "4096000\n").unwrap();
        let outer = limit(&root, Path::new("a/b"), "memory.max");
        std::fs::write(inner.join("memory.max"), "5096000\n").unwrap();
        let both = limit(&root, Path::new("a/b"), "memory.max");
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!((none, outer, both), (None, Some(4_096_000), Some(4_096_000)));
        let [second, first] = &VERSIONS;
        assert_eq!(second.group_of("12:cpu:/x\n0::/a/b\n"), Some(Path::new("a/b")));
        assert_eq!(second.group_of("12:memory:/x\n"), None);
        let text = "3:cpu:/x\n4:hugetlb,memory:/a/b\n0::/\n";
        assert_eq!(first.group_of(text), Some(Path::new("a/b")));
        assert_eq!(first.group_of("3:cpu:/x\n0::/\n"), None);
        assert!(memory().unwrap() <= ram().unwrap());
    }

    #[test]
    fn writable_tmpfs_are_found_with_their_huge_pages() {
        let text = "\
25 24 0:23 / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw,size=24684092k
42 27 0:39 / /mnt/with\\040blank rw - tmpfs x rw,huge=within_size
43 27 0:40 / /ro ro,relatime - tmpfs x rw
44 27 0:41 / /disk rw - ext4 /dev/vda rw
nonsense
";
        let found = tmpfs(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Tmpfs { path: "/dev/shm".into(), huge: None });
        let huge = Some("within_size".to_owned());
        assert_eq!(found[1], Tmpfs { path: "/mnt/with blank".into(), huge });
        assert_eq!(unescaped("a\\0"), PathBuf::from("a\\0"));
    }
}
