//! Operations on the names of a directory: looking up, listing, making, linking, removing and
//! renaming.
//!
//! Each is one transaction, so it happens as a whole or not at all, and checks what the kernel
//! checks, in the kernel's order. A change first looks without locks for the files that it is
//! about, then takes the locks of all of them, in the order of their numbers, and looks again;
//! if the names have come to mean other files meanwhile, it starts over.

mod create;
mod link;
mod list;
mod lookup;
mod remove;
mod rename;

pub use conquest_access::Removal;
pub use create::New;
pub use list::{LISTED_MAX, Listed, Listing};
pub use rename::Renaming;

use conquest_access::{Access, Credentials, Errno, File, permission};
use conquest_format::fs::dentry::NAME_MAX;
use conquest_format::inode::Inode;
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::{Entry, Key, Name, Room};
use crate::inode::{Draft, FileId, access_list, load, rules_of};
use crate::{Error, FileSystem, Reader, Result};

/// Names that a file can have: the link count has 32 bits.
pub const LINKS_MAX: u32 = u32::MAX;

/// A name that was copied from the caller, whose memory is not touched while locks are held.
pub(crate) struct LocalName {
    bytes: [u8; NAME_MAX as usize],
    len: usize,
}

impl LocalName {
    /// A copy of `name`; none if no entry can have such a name.
    pub(crate) fn new(name: &[u8]) -> Option<LocalName> {
        let mut bytes = [0; NAME_MAX as usize];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(LocalName { bytes, len: name.len() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// `name`, hashed.
///
/// # Errors
/// `EINVAL` if no entry can have it.
fn hashed<'n>(key: Key, name: &'n [u8]) -> Result<Name<'n>> {
    // Any directory hashes alike: the place does not matter.
    let anywhere = crate::inode::directory(FileId { number: 1, generation: 0 }, key)?;
    anywhere.name(name).ok_or(Error::Refused(Errno::EINVAL))
}

/// The directory `file`, in which `who` may look for names.
///
/// # Errors
/// `ENOENT` if it is gone, `ENOTDIR` if it is no directory, `EACCES`.
pub(crate) fn searchable(reader: &impl Reader, who: &Credentials, file: FileId) -> Result<Inode> {
    let (inode, _) = load(reader, file).map_err(gone)?;
    let acl = access_list(reader, &inode)?;
    check_searchable(who, &rules_of(&inode, acl.as_ref()))?;
    Ok(inode)
}

fn check_searchable(who: &Credentials, rules: &File<'_>) -> Result<()> {
    if !rules.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    Ok(permission(who, rules, Access::EXECUTE)?)
}

/// A directory that is there no more has no names.
pub(crate) fn gone(error: Error) -> Error {
    match error {
        Error::Stale => Errno::ENOENT.into(),
        error => error,
    }
}

/// Opens the directory `file`, whose names are to be changed, in a transaction that holds its lock.
fn open_directory<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    who: &Credentials,
    file: FileId,
) -> Result<Draft> {
    let draft = Draft::open(tx, file).map_err(gone)?;
    check_searchable(who, &draft.rules())?;
    Ok(draft)
}

/// Whether `entry` still names `file`.
fn still_names(reader: &impl Reader, entry: Option<Entry>, file: Option<FileId>) -> Result<bool> {
    let found = entry.map(|entry| crate::inode::identify(reader, entry.inode)).transpose()?;
    Ok(found == file)
}

/// To start over, with another look.
fn again<T>() -> Result<T> {
    Err(Error::Core(conquest_pm::Error::Again))
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Stages one step towards room for `name` in `directory`; whether there was something to do.
    fn make_room(&self, tx: &mut Tx<'_, M, H>, directory: &Draft, name: &Name<'_>) -> Result<bool> {
        match directory.directory(self.key()).make_room(tx, name)? {
            Room::There => Ok(false),
            Room::Staged => {
                directory.stage(tx)?;
                Ok(true)
            }
        }
    }
}
