//! What commands tell of a file.

use conquest::Stat;
use serde::Serialize;

use crate::json::Name;
use crate::reason::Result;
use crate::tree::{FileType, Inner, Tree};

/// What `--json` tells of a file.
#[derive(Serialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    name: Name,
    #[serde(rename = "type")]
    file_type: &'static str,
    /// Octal digits.
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    inode: u64,
    generation: u64,
    atime_ns: i64,
    mtime_ns: i64,
    ctime_ns: i64,
    btime_ns: i64,
    flags: u32,
    project: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Name>,
}

impl Entry {
    /// Of `node`, called `name`.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn of(files: &Inner, name: &[u8], stat: &Stat) -> Result<Entry> {
        let file_type = type_of(stat);
        let target = match file_type {
            FileType::Symlink => Some(Name::new(&files.target(&stat.file)?)),
            _ => None,
        };
        let is_device = matches!(file_type, FileType::Character | FileType::Block);
        Ok(Entry {
            name: Name::new(name),
            file_type: word(file_type),
            mode: format!("{:04o}", stat.mode & 0o7777),
            links: stat.links,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            blocks: stat.blocks,
            inode: stat.file.number,
            generation: stat.file.generation,
            atime_ns: stat.atime,
            mtime_ns: stat.mtime,
            ctime_ns: stat.ctime,
            btime_ns: stat.btime,
            flags: stat.flags,
            project: stat.project,
            device: is_device.then_some([stat.device.0, stat.device.1]),
            target,
        })
    }
}

/// The type that `stat` tells; a regular file, should it be none.
pub(super) fn type_of(stat: &Stat) -> FileType {
    FileType::new((stat.mode >> 12) as u8).unwrap_or(FileType::Regular)
}

/// One word for a type.
pub(super) const fn word(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Character => "character",
        FileType::Block => "block",
    }
}

/// What `stat(1)` calls a type.
pub(super) const fn words(file_type: FileType, size: u64) -> &'static str {
    match file_type {
        FileType::Regular if size == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Character => "character special file",
        FileType::Block => "block special file",
    }
}

/// Type and mode as `ls -l` has them: `-rwxr-xr-x`.
pub(super) fn letters(file_type: FileType, mode: u32) -> String {
    let kind = match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Character => 'c',
        FileType::Block => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_like_ls_does() {
        assert_eq!(letters(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(letters(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(letters(FileType::Regular, 0o6711), "-rws--s--x");
        assert_eq!(letters(FileType::Socket, 0o7000), "s--S--S--T");
    }
}
