//! Reserving space for a core.
//!
//! A region grows by itself, up to its maximum, and finds out then whether there is space. Here it
//! is had before, so that nobody else can take it; the region then grows into it.

use conquest_format::GROUP;

use super::Store;
use super::shape::{groups_in, within};
use crate::error::failed;
use crate::files::actor::Attachment;
use crate::{Error, Result};

impl Store {
    /// Reserves space so that the core can hold `size` bytes of files and metadata, whatever others
    /// take of its file system.
    ///
    /// # Errors
    /// [`Error::Range`] past the store's maximum, [`Error::NoRoom`] if there is not enough: then
    /// some of it may be reserved.
    pub fn grow(&self, size: u64) -> Result<()> {
        let core = self.fs().core();
        let geometry = core.geometry();
        let most = geometry.shape().max_groups * GROUP;
        within("bytes of the core", size, 1, most)?;
        let (from, to) = (core.groups(), groups_in(size));
        if to <= from {
            return Ok(());
        }
        let medium = core.host().medium();
        let backed = medium.back(&geometry.space(from, to), geometry.len_at(to));
        core.memory().note_len(geometry.len_at(to));
        backed.map_err(|error| no_room(error, &self.attachment.core, (to - from) * GROUP))
    }
}

impl Attachment {
    /// Bytes of files and metadata for which there is space, whatever others take.
    pub(crate) fn reserved(&self) -> Result<u64> {
        let core = self.fs.core();
        // A file with a residency table is longer.
        let length = match core.memory().len_without_table() {
            Some(length) => length,
            None => core.host().medium().len()?,
        };
        let heap = core.geometry().len_at(0);
        let most = core.geometry().shape().max_groups * GROUP;
        Ok(length.saturating_sub(heap).min(most).max(core.groups() * GROUP))
    }
}

/// What a region says for lack of space, with what there is.
pub(crate) fn no_room(error: conquest_pm::Error, core: &std::path::Path, wanted: u64) -> Error {
    match error {
        conquest_pm::Error::System { source, .. }
            if matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) =>
        {
            let space = super::place::Space::of(super::directory::parent(core));
            let available = space.map_or(0, |space| space.free);
            Error::NoRoom { core: core.to_owned(), wanted, available }
        }
        conquest_pm::Error::System { path, action, source } => failed(&path, action)(source),
        other => Error::Core(other),
    }
}
