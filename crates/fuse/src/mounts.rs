//! What is mounted where, as `/proc/self/mountinfo` says it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{self, Error, Result};

const MOUNT_INFO: &str = "/proc/self/mountinfo";

/// A mount in this process's mount namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// Its number.
    pub id: u64,
    /// The number of the mount that it stands on.
    pub parent: u64,
    /// The device number of its file system: major and minor.
    pub device: (u32, u32),
    /// Where in its file system it begins.
    pub root: PathBuf,
    /// Where it is mounted.
    pub directory: PathBuf,
    /// The mount's options, as `rw,nosuid`.
    pub options: OsString,
    /// The type of its file system, as `ext4` or `fuse.subtype`.
    pub kind: OsString,
    /// What was mounted.
    pub source: OsString,
    /// The file system's options.
    pub super_options: OsString,
}

impl MountEntry {
    /// The subtype, if it is a FUSE mount: empty if it has none.
    #[must_use]
    pub fn subtype(&self) -> Option<&[u8]> {
        let kind = self.kind.as_encoded_bytes();
        if kind == b"fuse" { Some(&[]) } else { kind.strip_prefix(b"fuse.") }
    }

    /// The number of its connection, if it is a FUSE mount.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.subtype().map(|_| self.device.1)
    }
}

/// All mounts that this process sees.
///
/// # Errors
/// If `/proc` is not there or makes no sense.
pub fn list() -> Result<Vec<MountEntry>> {
    let read = std::fs::read(MOUNT_INFO);
    let text = read.map_err(|source| Error::System {
        object: MOUNT_INFO.into(),
        action: "read",
        source,
        remedy: error::Remedy(Some("mount /proc")),
    })?;
    parse(&text)
}

/// The mounts in a text of the form of `/proc/self/mountinfo`.
///
/// # Errors
/// If a line is none of it.
pub fn parse(text: &[u8]) -> Result<Vec<MountEntry>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let parse = |line: &[u8]| {
        let error = || Error::MountInfo { line: String::from_utf8_lossy(line).into_owned() };
        parse_line(line).ok_or_else(error)
    };
    lines.map(parse).collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut device = fields.next()?.split(|byte| *byte == b':');
    let device = (number(device.next()?)?, number(device.next()?)?);
    let root = unescape(fields.next()?).into();
    let directory = unescape(fields.next()?).into();
    let options = unescape(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let [kind, source, super_options] =
        [(); 3].map(|()| fields.next()).map(|field| field.map(unescape));
    Some(MountEntry {
        id,
        parent,
        device,
        root,
        directory,
        options,
        kind: kind?,
        source: source?,
        super_options: super_options?,
    })
}

fn number<T: core::str::FromStr>(digits: &[u8]) -> Option<T> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Undoes the kernel's escapes: a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        rest = after;
        let mut byte = *first;
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) =
            (*first, rest)
        {
            byte = (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0');
            rest = after;
        }
        plain.push(byte);
    }
    OsString::from_vec(plain)
}

/// The mount that is seen at `directory`, an absolute path without links: the topmost one that is
/// mounted right there. None if there is none, or something is mounted over the way to it.
#[must_use]
pub fn topmost<'a>(mounts: &'a [MountEntry], directory: &Path) -> Option<&'a MountEntry> {
    let mut current: Option<&MountEntry> = None;
    let is_listed = |id| mounts.iter().any(|mount| mount.id == id);
    let mut path = PathBuf::new();
    for component in directory.components() {
        path.push(component);
        // Each mount hides what it stands on; what stands on nothing that is listed is the ground.
        // There are no more steps than mounts, whatever the list says.
        for _ in 0..mounts.len() {
            let on_top = mounts.iter().find(|mount| {
                let stands_here = match current {
                    Some(current) => mount.parent == current.id && mount.id != current.id,
                    None => !is_listed(mount.parent) || mount.parent == mount.id,
                };
                stands_here && mount.directory == path
            });
            match on_top {
                Some(mount) => current = Some(mount),
                None => break,
            }
        }
    }
    current.filter(|mount| mount.directory == directory)
}

/// `path` as an absolute path without links, of which only the directories on the way to it are
/// looked at: what is mounted at it may be dead.
///
/// # Errors
/// If a directory on the way can't be looked at.
pub fn resolve(path: &Path) -> Result<PathBuf> {
    let failed = |source| Error::System {
        object: path.into(),
        action: "look up",
        source,
        remedy: error::Remedy::default(),
    };
    // Reading a link asks the file system for nothing if there is no link.
    let is_link = std::fs::read_link(path).is_ok();
    let (Some(Component::Normal(name)), false) = (path.components().next_back(), is_link) else {
        return std::fs::canonicalize(path).map_err(failed);
    };
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    Ok(std::fs::canonicalize(parent).map_err(failed)?.join(name))
}
