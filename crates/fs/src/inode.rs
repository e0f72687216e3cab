//! Inodes in the region: reading, making, changing and freeing them.
//!
//! Whoever reads an inode through a view does so in a read of its lock; whoever changes it holds
//! that lock exclusively. A [`FileId`] names one inode for ever: a number is used again, with
//! another generation.

use conquest_access::{Acl, AclKind, Errno, File};
use conquest_format::Offset;
use conquest_format::fs::INODE;
use conquest_format::inode::{
    self, Content, Defect, FileType, Inode, Links, Owner, WORDS, offset_of, word,
};
use conquest_format::kind::Kind;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Object, Ptr, Tx};

use crate::dir::{Directory, Key, Root};
use crate::error::corrupt;
use crate::extended::{self, Attributes};
use crate::feed::{NoticeKind, tell};
use crate::{Error, Reader, Result, time};

/// An inode in the region.
#[derive(Debug)]
pub(crate) struct InodeObject;

impl Object for InodeObject {
    const KIND: Kind = INODE;
}

/// Names a file for ever, also after its number is used for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// Its number.
    pub number: u64,
    /// Its generation.
    pub generation: u64,
}

/// The number of the inode at `at`.
pub(crate) fn number_of(at: Offset) -> conquest_pm::Result<u64> {
    let expected = "a multiple of 64";
    inode::number_of(at).ok_or_else(|| corrupt("offset of an inode", at, expected, at.bytes()))
}

/// The file that an entry names, whose inode is at `at`. The directory's lock guards that there is
/// one.
pub(crate) fn identify(reader: &impl Reader, at: Offset) -> Result<FileId> {
    let place = reader.core().resolve_kind(at, INODE)?;
    let generation = reader.word(place.offset().plus(word::GENERATION));
    Ok(FileId { number: number_of(at)?, generation })
}

/// The inode of `file`.
///
/// # Errors
/// [`Error::Stale`] if it is there no more; [`conquest_pm::Error::Corrupt`] if it is damaged.
pub(crate) fn load(reader: &impl Reader, file: FileId) -> Result<(Inode, [u64; WORDS])> {
    let at = offset_of(file.number).ok_or(Error::Stale)?;
    reader.core().resolve_kind(at, INODE).map_err(|_| Error::Stale)?;
    if reader.word(at.plus(word::GENERATION)) != file.generation {
        return Err(Error::Stale);
    }
    let mut words = [0; WORDS];
    for (index, word) in (0..).zip(&mut words) {
        *word = reader.word(at.plus(index * conquest_format::WORD));
    }
    match Inode::from_words(words, file.number) {
        Ok(inode) => Ok((inode, words)),
        Err(defect) => Err(damaged(at, defect).into()),
    }
}

/// The access list of `inode`, if it has one.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if its attributes are damaged.
pub(crate) fn access_list(reader: &impl Reader, inode: &Inode) -> Result<Option<Acl>> {
    extended::access_list(reader, inode, AclKind::Access)
}

/// What the rules of access need to know of a file with this inode and access list.
pub(crate) fn rules_of<'a>(inode: &Inode, acl: Option<&'a Acl>) -> File<'a> {
    File {
        mode: inode.mode().st_mode().into(),
        uid: inode.owner.uid,
        gid: inode.owner.gid,
        flags: inode.flags & inode::flag::OF_USERS,
        acl,
    }
}

#[cold]
fn damaged(at: Offset, defect: Defect) -> conquest_pm::Error {
    match defect {
        Defect::Number(number) => corrupt("inode", at, "a number of an inode", number),
        Defect::Checksum(_, found) => {
            corrupt("inode", at.plus(word::CHECK), "the checksum of its words", found)
        }
        Defect::Field(offset, found) => {
            corrupt("inode", at.plus(offset), "a possible value", found)
        }
    }
}

/// The directory whose inode is at `at`.
fn directory_at(at: Offset, key: Key) -> Directory<Key> {
    let root = Root {
        content: at.plus(word::CONTENT),
        entries: at.plus(word::SIZE),
        pages: at.plus(word::PAGES),
    };
    Directory::new(root, key)
}

/// The directory `file`, to look at what its inode says are its entries.
///
/// # Errors
/// [`Error::Stale`] if there can't be such an inode.
pub(crate) fn directory(file: FileId, key: Key) -> Result<Directory<Key>> {
    Ok(directory_at(offset_of(file.number).ok_or(Error::Stale)?, key))
}

/// What a new inode begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode {
    pub(crate) file_type: FileType,
    pub(crate) permissions: u16,
    pub(crate) flags: u32,
    pub(crate) owner: Owner,
    pub(crate) links: Links,
    pub(crate) content: Content,
    pub(crate) size: u64,
    pub(crate) pages: u64,
    /// The word that leads to the extended attributes.
    pub(crate) attributes: u64,
    /// Of a directory, its parent's number; none for the root, which is its own.
    pub(crate) parent: Option<u64>,
    /// The threshold of its own, in bytes.
    pub(crate) threshold: Option<u64>,
}

impl NewInode {
    /// Stages the inode, made at `now`. A transaction makes one at most, as the generation is the
    /// transaction's number.
    pub(crate) fn stage<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        now: i64,
    ) -> conquest_pm::Result<(Ptr<InodeObject>, FileId)> {
        let generation = tx.number();
        let is_directory = self.file_type == FileType::Directory;
        let inode = Inode {
            file_type: self.file_type,
            permissions: self.permissions,
            flags: self.flags,
            owner: self.owner,
            links: self.links,
            size: self.size,
            pages: self.pages,
            mtime: now,
            ctime: now,
            atime: now,
            btime: now,
            change: 1,
            content: self.content,
            attributes: self.attributes,
            parent: self.parent.unwrap_or(0),
            threshold: self.threshold,
            generation,
        };
        let fresh = tx.alloc::<InodeObject>()?;
        // The root directory's parent is itself, which has no number before the seal.
        let is_root = is_directory && self.parent.is_none();
        let words = inode.to_words(0);
        for (index, word) in (0..).zip(words) {
            tx.fill_word(&fresh, index, word)?;
        }
        let mut number = Ok(0);
        let sealed = tx.seal_with(fresh, WORDS as u64 - 1, |at| {
            number = number_of(at);
            let number = *number.as_ref().unwrap_or(&0);
            let parent = if is_root { number } else { inode.parent };
            let [.., check] = Inode { parent, ..inode }.to_words(number);
            check
        })?;
        let number = number?;
        if is_root {
            tx.set(sealed.offset().plus(word::PARENT), number)?;
        }
        Ok((sealed, FileId { number, generation }))
    }
}

/// An inode that a transaction changes: it holds its lock exclusively.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) file: FileId,
    at: Offset,
    old: [u64; WORDS],
    pub(crate) inode: Inode,
    /// The access list, as it was when the draft was made.
    acl: Option<Acl>,
    /// What becomes of the content, if something does.
    pub(crate) content_change: Option<NoticeKind>,
    /// Whether a notice of a name, of the same transaction, is about it, too.
    pub(crate) is_told: bool,
}

impl Draft {
    /// The inode of `file`, to be changed.
    ///
    /// # Errors
    /// Those of [`load`].
    pub(crate) fn open(reader: &impl Reader, file: FileId) -> Result<Draft> {
        let (inode, old) = load(reader, file)?;
        let at = offset_of(file.number).ok_or(Error::Stale)?;
        let acl = access_list(reader, &inode)?;
        Ok(Draft { file, at, old, inode, acl, content_change: None, is_told: false })
    }

    /// What the rules of access need to know of it.
    pub(crate) fn rules(&self) -> File<'_> {
        rules_of(&self.inode, self.acl.as_ref())
    }

    /// Its entries.
    pub(crate) fn directory(&self, key: Key) -> Directory<Key> {
        directory_at(self.at, key)
    }

    /// Notes that the content was modified at `now`.
    pub(crate) fn touch(&mut self, now: i64) {
        self.inode.mtime = time::after(self.inode.mtime, now);
        if self.inode.file_type != FileType::Directory {
            self.content_change = Some(NoticeKind::Content);
        }
        self.change(now);
    }

    /// Notes that the inode was changed at `now`.
    pub(crate) fn change(&mut self, now: i64) {
        self.inode.ctime = time::after(self.inode.ctime, now);
        self.inode.change = self.inode.change.wrapping_add(1);
    }

    /// Stages what was changed, and tells of it. What the transaction has staged of a directory's
    /// entries stays.
    pub(crate) fn stage<M: Memory, H: Host>(&self, tx: &mut Tx<'_, M, H>) -> Result<()> {
        let mut words = self.inode.to_words(self.file.number);
        if self.inode.file_type == FileType::Directory {
            for offset in [word::CONTENT, word::SIZE, word::PAGES] {
                if let Some(word) = words.get_mut((offset / conquest_format::WORD) as usize) {
                    *word = tx.get(self.at.plus(offset));
                }
            }
            let sum = inode::check(&words, self.file.number);
            let [.., check] = &mut words;
            *check = sum;
        }
        for ((index, new), old) in (0..).zip(words).zip(self.old) {
            let at = self.at.plus(index * conquest_format::WORD);
            // A directory's own words are staged already.
            if new != old && tx.get(at) != new {
                tx.set(at, new)?;
            }
        }
        self.tell(tx, &words)
    }

    /// Tells what is different in `words`, which the inode will be.
    fn tell<M: Memory, H: Host>(&self, tx: &mut Tx<'_, M, H>, words: &[u64; WORDS]) -> Result<()> {
        let differs = |offset: u64, bits: u64| {
            let index = (offset / conquest_format::WORD) as usize;
            let both = words.get(index).zip(self.old.get(index));
            both.is_some_and(|(new, old)| (new ^ old) & bits != 0)
        };
        // The time of access is not in the checksum.
        if !differs(word::CHECK, u64::MAX) {
            return Ok(());
        }
        let mut is_told = self.is_told;
        if let Some(kind) = self.content_change {
            tell(tx, kind, self.told())?;
            is_told = true;
        }
        let own = self.inode.file_type.threshold_word();
        if differs(word::ATTRIBUTES, u64::MAX) || own.is_some_and(|at| differs(at, u64::MAX)) {
            tell(tx, NoticeKind::ExtendedAttributes, self.told())?;
            is_told = true;
        }
        let seen = u64::from(inode::flag::OF_USERS) << 32 | 0xFFFF;
        let is_more = differs(word::MODE, seen) || differs(word::OWNER, u64::MAX);
        if !is_told || is_more && !self.is_told {
            tell(tx, NoticeKind::Attributes, self.told())?;
        }
        Ok(())
    }

    /// How notices name it.
    pub(crate) fn told(&self) -> (FileId, bool) {
        (self.file, self.inode.file_type == FileType::Directory)
    }

    /// Stages that the file has these attributes.
    ///
    /// # Errors
    /// `ENOSPC` if they are too many; those of the region.
    pub(crate) fn set_attributes<M: Memory, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        attributes: &Attributes,
    ) -> Result<()> {
        let word = attributes.stage(tx)?.ok_or(Errno::ENOSPC)?;
        extended::free(tx, self.inode.attributes)?;
        self.inode.attributes = word;
        Ok(())
    }

    /// Stages that the inode is no more, and its attributes, and tells of it.
    pub(crate) fn free<M: Memory, H: Host>(&self, tx: &mut Tx<'_, M, H>) -> Result<()> {
        extended::free(tx, self.inode.attributes)?;
        tx.free_untyped(self.at, INODE)?;
        tell(tx, NoticeKind::Gone, self.told())
    }
}
