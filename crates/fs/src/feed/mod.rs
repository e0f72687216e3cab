//! What the change feed says of files and names, and following it.
//!
//! | change | notices |
//! | --- | --- |
//! | a name is made | created, or linked |
//! | a name is removed | removed |
//! | a renaming | moved from and moved to, of each file that is moved |
//! | the last name goes, or a file without names is closed | gone |
//! | anything else of a file | attributes, content, size, extended attributes |
//!
//! A notice that names a file and a directory also says that what `stat` tells of both may have
//! changed. Looking at files and reading them is not told, nor the times of access that follow.
//!
//! Names are told by the operations on them. Everything else follows from what is staged of an
//! inode (`crate::inode::Draft::stage`), so that no operation can forget it.

mod follower;

pub use conquest_format::fs::notice::NoticeKind;
pub use follower::{Follower, NameBuffer, Notice, Told};

use conquest_format::WORD;
use conquest_format::fs::dentry::NAME_MAX;
use conquest_format::fs::notice::{NAME, NoticeHeader, WORDS_MAX};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::inode::FileId;

/// Tells that `kind` has happened to `file`, which is a directory if `is_directory`.
pub(crate) fn tell<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    kind: NoticeKind,
    (file, is_directory): (FileId, bool),
) -> Result<()> {
    let header = NoticeHeader { kind, is_directory, name_len: 0 };
    Ok(tx.tell(&[header.pack(), file.number, file.generation])?)
}

/// Tells that `kind` has happened to the name `name` that `file`, a directory if `is_directory`,
/// has or had in `directory`.
pub(crate) fn tell_name<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    kind: NoticeKind,
    (file, is_directory): (FileId, bool),
    directory: FileId,
    name: &[u8],
) -> Result<()> {
    let name = name.get(..NAME_MAX as usize).unwrap_or(name);
    let header = NoticeHeader { kind, is_directory, name_len: name.len() as u8 };
    let mut words = [0; WORDS_MAX as usize];
    let ids = [file.number, file.generation, directory.number, directory.generation];
    let name = name.chunks(WORD as usize).map(|chunk| {
        let mut bytes = [0; WORD as usize];
        for (to, from) in bytes.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_le_bytes(bytes)
    });
    let all = core::iter::once(header.pack()).chain(ids).chain(name);
    for (word, value) in words.iter_mut().zip(all) {
        *word = value;
    }
    const _: () = assert!(WORDS_MAX == NAME + NAME_MAX.div_ceil(WORD));
    Ok(tx.tell(words.get(..header.words() as usize).unwrap_or(&words))?)
}
