//! Looking entries up.

use conquest_format::fs::dentry::{Position, position_of};
use conquest_pm::Result;

use crate::Reader;
use crate::dir::bucket::{Bucket, Tags};
use crate::dir::path::Path;
use crate::dir::{Directory, Entry, Name, NameHash};

/// Where an entry was found.
pub(super) struct Found {
    pub(super) path: Path,
    pub(super) bucket: Bucket,
    pub(super) tags: Tags,
    pub(super) granule: u64,
}

impl<N: NameHash> Directory<N> {
    /// The entry named `name`, if there is one. Takes no lock, allocates nothing and makes no
    /// system call.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] names what is damaged on the way to the entry.
    pub fn find(&self, reader: &impl Reader, name: &Name<'_>) -> Result<Option<Entry>> {
        let path = self.descend(reader, name.hash())?;
        let Some(at) = path.bucket else {
            return Ok(None);
        };
        let bucket = Bucket::open(reader, at, path.hash, path.len)?;
        let tags = bucket.tags(reader);
        let mut candidates = bucket.of_hash(reader, &tags, path.hash);
        let found = candidates.find(|&(at, word)| bucket.is_named(reader, at, word, name));
        found.map(|(granule, _)| bucket.entry(reader, granule)).transpose()
    }

    /// The entry at `position`, if there is one.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] names what is damaged on the way to the entry.
    pub fn entry_at(&self, reader: &impl Reader, position: Position) -> Result<Option<Entry>> {
        let found = self.locate(reader, position)?;
        found.map(|found| found.bucket.entry(reader, found.granule)).transpose()
    }

    /// Where the entry at `position` is, if there is one.
    pub(super) fn locate(&self, reader: &impl Reader, position: Position) -> Result<Option<Found>> {
        let path = self.descend(reader, position.hash())?;
        let Some(at) = path.bucket else {
            return Ok(None);
        };
        let bucket = Bucket::open(reader, at, path.hash, path.len)?;
        let tags = bucket.tags(reader);
        let mut candidates = bucket.of_hash(reader, &tags, path.hash);
        let granule = candidates.find(|&(_, word)| position_of(word) == position);
        drop(candidates);
        Ok(granule.map(|(granule, _)| Found { path, bucket, tags, granule }))
    }
}
