//! A tree as a list of lines: everything that has to be the same on every file system.
//!
//! Compared are names, types, modes, owners, sizes, numbers and groups of hard links, devices,
//! targets, extended attributes (access lists are among them), and contents. Left out is what
//! differs by nature: inode numbers, space, sizes and links of directories, and times of the
//! present. Times of modification before 2020 are compared: somebody has set them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{lgetxattr, llistxattr};
use twox_hash::XxHash3_128;

use crate::Failure;

/// 2020-01-01 in seconds.
const PAST: i64 = 1_577_836_800;
/// Longest list of names of attributes, and longest value, that the kernel gives.
const ATTRIBUTES_MAX: usize = 65_536;

/// Attributes that say where something is and not what it is.
const NOT_COMPARED: [&str; 4] = [
    // Set by the machine's security modules.
    "security.selinux",
    // File handles of an overlay's lower layer.
    "trusted.overlay.origin",
    "trusted.overlay.uuid",
    "trusted.overlay.impure",
];

/// The lines of the tree at `root`, in the order of paths.
pub(super) fn take(root: &Path) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    let mut first = HashMap::new();
    if root.exists() {
        walk(root, Path::new("."), &mut lines, &mut first)?;
    }
    Ok(lines)
}

type First = HashMap<u64, String>;

fn walk(
    place: &Path,
    name: &Path,
    lines: &mut Vec<String>,
    first: &mut First,
) -> Result<(), Failure> {
    let system = |error: io::Error| Failure::system("can't look at", place, &error);
    let metadata = std::fs::symlink_metadata(place).map_err(system)?;
    lines.push(line(place, name, &metadata, first).map_err(system)?);
    if !metadata.is_dir() {
        return Ok(());
    }
    let mut names = std::fs::read_dir(place)
        .map_err(system)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(system)?;
    names.sort();
    names.iter().try_for_each(|n| walk(&place.join(n), &name.join(n), lines, first))
}

fn line(place: &Path, name: &Path, it: &Metadata, first: &mut First) -> io::Result<String> {
    let shown = name.as_os_str().as_bytes().escape_ascii().to_string();
    let mut line = format!("{shown} {:o} {}:{}", it.mode(), it.uid(), it.gid());
    let kind = it.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        line.push_str(&format!(" device={:x}", it.rdev()));
    }
    if !it.is_dir() {
        line.push_str(&format!(" links={}", it.nlink()));
        if it.nlink() > 1 {
            let group = first.entry(it.ino()).or_insert_with(|| shown.clone());
            line.push_str(&format!(" same={group}"));
        }
    }
    if it.mtime() < PAST {
        line.push_str(&format!(" time={}.{:09}", it.mtime(), it.mtime_nsec()));
    }
    for (name, value) in attributes(place)? {
        line.push_str(&format!(" {name}={}", value.escape_ascii()));
    }
    if it.is_symlink() {
        let target = std::fs::read_link(place)?;
        line.push_str(&format!(" -> {}", target.as_os_str().as_bytes().escape_ascii()));
    } else if it.is_file() {
        let content = std::fs::read(place)?;
        line.push_str(&format!(
            " size={} content={:032x}",
            it.size(),
            XxHash3_128::oneshot(&content)
        ));
    }
    Ok(line)
}

fn attributes(place: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut room = vec![0; ATTRIBUTES_MAX];
    let length = match llistxattr(place, &mut room) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    let names: Vec<Vec<u8>> = room
        .iter()
        .take(length)
        .copied()
        .collect::<Vec<u8>>()
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let mut found = Vec::new();
    for name in names {
        let shown = name.escape_ascii().to_string();
        if NOT_COMPARED.contains(&shown.as_str()) {
            continue;
        }
        let length = lgetxattr(place, OsStr::from_bytes(&name), &mut room)?;
        found.push((shown, room.iter().take(length).copied().collect()));
    }
    found.sort();
    Ok(found)
}
