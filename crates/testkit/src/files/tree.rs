//! A tree as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conquest_format::checksum;
use conquest_fs::dir::FileType;
use conquest_fs::xattr::whole;
use conquest_fs::{Error, FileId, FileSystem};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use super::operation::{ATTRIBUTE, root_user};

/// Bytes that have room for all entries of a small directory.
pub const LISTING: usize = 1 << 16;

/// A tree as text: of every path type and permissions, links, owner, time of modification if it was
/// set, size, checksum of content and attribute, and the first path of the same file.
///
/// # Errors
/// What breaks a rule.
pub fn describe<M: Memory, H: Host>(files: &FileSystem<M, H>) -> Result<String, String> {
    let mut tree = String::new();
    let mut first = BTreeMap::new();
    describe_directory(files, files.root(), "", &mut first, &mut tree)?;
    let census = files.check().map_err(|error| error.to_string())?;
    match census.findings.first() {
        Some(finding) => Err(format!("{finding}, in\n{tree}")),
        None => Ok(tree),
    }
}

fn describe_directory<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    directory: FileId,
    path: &str,
    first: &mut BTreeMap<u64, String>,
    tree: &mut String,
) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let mut room = vec![0; LISTING];
    let mut listed: Vec<_> = files.list(directory, 2, &mut room).map_err(text)?.collect();
    listed.sort_by_key(|entry| entry.name);
    for entry in listed {
        let name = String::from_utf8_lossy(entry.name);
        let name = name.trim_start_matches('0');
        let path = format!("{path}/{name}");
        let found = files.lookup(&root_user(), directory, entry.name).map_err(text)?;
        let (file, _) = found.ok_or("a listed name that is not found")?;
        let stat = files.stat(file).map_err(text)?;
        let same = first.entry(file.number).or_insert_with(|| path.clone()).clone();
        let time = if stat.mtime == 9 { "set" } else { "" };
        let size = if entry.file_type == FileType::Directory { 0 } else { stat.size };
        let mut bytes = vec![0; size as usize];
        if entry.file_type == FileType::Regular {
            files.read_file(file, 0, &mut bytes).map_err(text)?;
        }
        let value = whole(|out| files.attribute(&root_user(), file, ATTRIBUTE, out));
        bytes.extend(value.unwrap_or_default());
        let (mode, links, uid, sum) = (stat.mode, stat.links, stat.uid, checksum(0, &bytes));
        let written = writeln!(tree, "{path} {mode:o} {links} {uid} {size} {sum:x} {time} {same}");
        written.map_err(|error| error.to_string())?;
        if entry.file_type == FileType::Directory {
            describe_directory(files, file, &path, first, tree)?;
        }
    }
    Ok(())
}
