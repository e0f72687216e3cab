//! Listing directories. A position is a cookie of the directory, so nothing is kept for a listing.

use conquest_fs::names::LISTED_MAX;
use conquest_fs::{Error, Result};
use conquest_fuse::wire::{Entry, Listing, Read};

use crate::caller::Caller;
use crate::server::Server;

/// Bytes of a direntplus without its name, at least.
const ENTRY: usize = 152;

impl Server {
    /// Fills `listing` with entries after a position. `room` is memory for as many as it takes.
    pub(crate) fn list(
        &self,
        read: &Read,
        room: &mut [u8],
        listing: &mut Listing<'_>,
    ) -> Result<()> {
        let open = self.open_file(read.handle)?;
        for entry in self.fs().list_open(&open, read.offset, room)? {
            let file_type = entry.file_type.number();
            if !listing.push(entry.number, entry.cookie, file_type, entry.name) {
                break;
            }
        }
        Ok(())
    }

    /// The same with what names stand for, of which the kernel is told.
    pub(crate) fn list_entries(
        &self,
        caller: Caller<'_>,
        read: &Read,
        room: &mut [u8],
        listing: &mut Listing<'_>,
    ) -> Result<()> {
        let open = self.open_file(read.handle)?;
        // No more are listed than there is room for with attributes.
        let len = (room.len() / ENTRY * LISTED_MAX).clamp(LISTED_MAX, room.len().max(LISTED_MAX));
        let room = room.get_mut(..len).unwrap_or_default();
        for listed in self.fs().list_open(&open, read.offset, room)? {
            let entry = match listed.name {
                // The kernel knows these.
                b"." | b".." => Entry::default(),
                name => match self.named(caller, open.file, name) {
                    Ok(entry) => entry,
                    // Removed since it was listed: it is told as an entry without a file.
                    Err(error) if is_gone(&error) => Entry::default(),
                    Err(error) => return Err(error),
                },
            };
            let file_type = listed.file_type.number();
            if !listing.push_plus(&entry, listed.number, listed.cookie, file_type, listed.name) {
                if entry.node != 0 {
                    self.forget(entry.node, 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// What `name` stands for.
    fn named(&self, caller: Caller<'_>, directory: conquest::FileId, name: &[u8]) -> Result<Entry> {
        let found = self.fs().lookup(&caller.credentials(), directory, name)?;
        let (file, _) = found.ok_or(Error::Stale)?;
        self.entry(caller, file)
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Stale)
}
