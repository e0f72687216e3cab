//! Directories, as `getdents64` lists them.

use std::fs::File;

use conquest_peers::sys::{self, Outcome};

/// Bytes of an entry before its name.
const NAME_AT: usize = 19;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    /// `DT_REG` and the like.
    pub(crate) kind: u8,
    pub(crate) number: u64,
    /// Where the next one begins.
    pub(crate) next: i64,
}

/// The next entries of an open directory, with room for so many bytes; none at the end.
pub(crate) fn list(directory: &File, room: usize) -> Outcome<Vec<Listed>> {
    let mut bytes = vec![0; room];
    let len = sys::list(directory, &mut bytes)?;
    let mut rest = &bytes[..len];
    let mut listed = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().unwrap());
        let len = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
        let name = rest[NAME_AT..len].split(|byte| *byte == 0).next().unwrap().to_vec();
        let next = number(8).cast_signed();
        listed.push(Listed { name, kind: rest[18], number: number(0), next });
        rest = &rest[len..];
    }
    Ok(listed)
}

/// All entries but those of the directory and its parent, in the order in which they come.
pub(crate) fn list_all(directory: &File, room: usize) -> Outcome<Vec<Listed>> {
    let mut all = Vec::new();
    loop {
        let piece = list(directory, room)?;
        if piece.is_empty() {
            all.retain(|entry: &Listed| entry.name != b"." && entry.name != b"..");
            return Ok(all);
        }
        all.extend(piece);
    }
}
