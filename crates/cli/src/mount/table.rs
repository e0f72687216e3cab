//! The mounts that this process sees: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::place;
use crate::reason::{Reason, Result};

/// The file system type of Conquest's mounts.
const KIND: &str = "fuse.conquest";

/// A mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    /// Its number.
    pub(crate) id: u64,
    /// The mount that it is on.
    pub(crate) parent: u64,
    /// The device of its files: of a FUSE mount, the second number is that of its connection.
    pub(crate) device: (u32, u32),
    /// Whether it is only a part of a file system, bound to another place.
    pub(crate) is_part: bool,
    /// Where it is.
    pub(crate) point: PathBuf,
    /// The type of its file system.
    pub(crate) kind: String,
}

impl Mount {
    /// Whether it is one of Conquest's.
    pub(crate) fn is_conquest(&self) -> bool {
        self.kind == KIND
    }
}

/// All mounts that this process sees.
///
/// # Errors
/// If /proc is not there.
pub(crate) fn read() -> Result<Vec<Mount>> {
    let path = "/proc/self/mountinfo";
    let bytes = std::fs::read(path).map_err(|error| {
        Reason::rule(format!("{path}: {} (mount proc at /proc)", crate::reason::words(&error)))
    })?;
    Ok(bytes.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount that is described by `line`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut device = fields.next()?.split(|byte| *byte == b':').map(number);
    let device = (device.next()??.try_into().ok()?, device.next()??.try_into().ok()?);
    let is_part = fields.next()? != b"/";
    let point = PathBuf::from(OsString::from_vec(unescaped(fields.next()?)));
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let kind = String::from_utf8_lossy(&unescaped(kind)).into_owned();
    Some(Mount { id, parent, device, is_part, point, kind })
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// `field` with what `\ooo` stands for.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    out
}

/// The number of the mount that one gets to at `path`: the topmost one, if it is a mount point.
/// Its server is not asked, so it need not live; neither is a symbolic link at the end followed.
///
/// # Errors
/// If there is nothing, or it may not be looked at.
pub(crate) fn id_at(path: &Path) -> Result<u64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    id_of(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The mount of Conquest whose mount point is `point`, an absolute path without links.
///
/// # Errors
/// If it is none: what it is instead, and what to do. The reason names the object.
pub(crate) fn conquest_at(point: &Path) -> Result<Mount> {
    let rule = |text: String| Reason::Rule(format!("{}: {text}", place::host_label(point)));
    let id = id_at(point).map_err(|reason| rule(reason.to_string()))?;
    let mount = read()?.into_iter().find(|mount| mount.id == id);
    match mount {
        Some(mount) if mount.point != point => Err(rule("not a mount point".to_owned())),
        None => Err(rule("its mount is gone".to_owned())),
        Some(mount) if mount.is_conquest() => Ok(mount),
        Some(mount) => {
            Err(rule(format!("a mount of {}, not of Conquest (use umount(8))", mount.kind)))
        }
    }
}

/// The number of the mount that the open file `file` is in.
///
/// # Errors
/// If the system does not tell.
pub(crate) fn id_of(file: impl AsFd) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let id = field(&text, "mnt_id").and_then(|id| id.parse().ok());
    id.ok_or_else(|| Reason::rule("the kernel does not tell its mount (it has to be Linux 3.15)"))
}

/// The value of `name` in `text`, which a file `fdinfo` of /proc has.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let line = |line: &'t str| line.strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(line).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = b"63 43 0:39 / /mnt/a\\040b\\134c rw,relatime shared:1 master:2 - \
                     fuse.conquest s\\054rc rw,user_id=0";
        let mount = parse(line).unwrap();
        let expected = Mount {
            is_part: false,
            id: 63,
            parent: 43,
            device: (0, 39),
            point: "/mnt/a b\\c".into(),
            kind: "fuse.conquest".into(),
        };
        assert_eq!(mount, expected);
        assert!(mount.is_conquest());
        for line in [&b""[..], b"1 2", b"1 2 0:x / / rw - tmpfs t rw", b"1 2 0:3 / / rw tmpfs"] {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescaped(b"a\\x\\04"), b"a\\x\\04");
    }

    #[test]
    fn the_mount_of_a_path_is_one_of_those_that_are_there() {
        let mounts = read().unwrap();
        let id = id_at(Path::new("/proc")).unwrap();
        let proc = mounts.iter().find(|mount| mount.id == id).unwrap();
        assert_eq!((proc.point.as_path(), proc.kind.as_str()), (Path::new("/proc"), "proc"));
        assert!(!proc.is_conquest());
        assert!(id_at(Path::new("/proc/none")).is_err());
    }
}
