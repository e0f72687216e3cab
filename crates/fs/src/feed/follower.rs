//! Following the change feed, notice by notice.

use core::time::Duration;

use conquest_format::WORD;
use conquest_format::feed::{BATCH_HEADER, BATCH_MAX};
use conquest_format::fs::dentry::NAME_MAX;
use conquest_format::fs::notice::{NAME, NoticeHeader, NoticeKind, WORDS};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Batch, BatchWords, Heard};

use crate::error::corrupt;
use crate::inode::FileId;
use crate::{FileSystem, Result};

/// Room for a name.
pub type NameBuffer = [u8; NAME_MAX as usize];

/// What a follower is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Something has changed.
    Notice(Notice),
    /// Notices were lost, all of this lane's up to now: whatever is kept in mind may be wrong, and
    /// has to be looked at again.
    Lost {
        /// The lane.
        lane: u32,
    },
}

/// A change to a file, or to one of its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// What has happened.
    pub kind: NoticeKind,
    /// The file.
    pub file: FileId,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// The directory of the name; none if it is not about a name.
    pub directory: Option<FileId>,
    /// Bytes of the name, which are at the beginning of the buffer.
    pub name_len: usize,
    /// The same in the two notices that say from where to where a file was moved; never 0. If two
    /// files exchange names, it is the same in all four.
    pub cookie: u64,
    /// Slot of the process of which an operation has done it; none if it was a part of one that
    /// was left over. [`Follower::is_own`] compares it.
    pub slot: Option<u32>,
    /// Grows from change to change of one file, and of the names of one directory.
    pub version: u64,
}

/// Follows the changes of a file system from some moment on.
///
/// To keep something in mind: begin to follow, then look. What has changed since the look is told,
/// by the time that anybody can see it: whoever is told looks again. After [`Told::Lost`],
/// everything has to be looked at again.
pub struct Follower<M: Memory, H: Host> {
    feed: conquest_pm::Follower<M, H>,
    words: Box<BatchWords>,
    batch: Option<Batch>,
    /// Words of the batch that were given.
    given: usize,
}

impl<M: Memory, H: Host> core::fmt::Debug for Follower<M, H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Begins to follow what changes.
    pub fn follow(&self) -> Follower<M, H> {
        let words = Box::new([0; (BATCH_MAX - BATCH_HEADER) as usize]);
        Follower { feed: self.core().follow(), words, batch: None, given: 0 }
    }
}

impl<M: Memory, H: Host> Follower<M, H> {
    /// What comes next; none if there is nothing more at present. A name is copied to `name`. Takes
    /// no lock, allocates nothing, and waits for nobody.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] if the feed is damaged, which counts as [`Told::Lost`]: the
    /// next call goes on; [`conquest_pm::Error::Failed`].
    pub fn next(&mut self, name: &mut NameBuffer) -> Result<Option<Told>> {
        loop {
            if let Some(batch) = self.batch {
                if self.given < batch.words {
                    return self.take(&batch, name).map(|notice| Some(Told::Notice(notice)));
                }
                self.batch = None;
            }
            self.given = 0;
            match self.feed.next(&mut self.words)? {
                Heard::Batch(batch) => self.batch = Some(batch),
                Heard::Lost(lane) => return Ok(Some(Told::Lost { lane })),
                Heard::Nothing => return Ok(None),
            }
        }
    }

    /// Sleeps until there is something to be told, or `patience` has passed; whether there is.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Interrupted`] when a signal arrives; [`conquest_pm::Error::Failed`].
    pub fn wait(&self, patience: Duration) -> Result<bool> {
        let is_within = self.batch.is_some_and(|batch| self.given < batch.words);
        Ok(is_within || self.feed.wait(patience)?)
    }

    /// Whether `notice` is of what this process has done.
    pub fn is_own(&self, notice: &Notice) -> bool {
        notice.slot == Some(self.feed.core().slot())
    }

    /// The next notice of `batch`.
    fn take(&mut self, batch: &Batch, name: &mut NameBuffer) -> Result<Notice> {
        let words = self.words.get(self.given..batch.words).unwrap_or_default();
        let word = |index: u64| words.get(index as usize).copied().unwrap_or(0);
        let header = NoticeHeader::unpack(word(0));
        let Some(header) = header.filter(|header| header.words() <= words.len() as u64) else {
            let position = batch.position.wrapping_add(BATCH_HEADER + self.given as u64);
            let at = self.feed.core().geometry().ring_word(batch.lane, position);
            let error = corrupt("change feed", at, "a notice", word(0));
            self.batch = None;
            return Err(error.into());
        };
        let file = FileId { number: word(1), generation: word(2) };
        let directory = FileId { number: word(WORDS), generation: word(WORDS + 1) };
        let name_len = usize::from(header.name_len);
        for (index, chunk) in (NAME..).zip(name.chunks_mut(WORD as usize)) {
            if index >= header.words() {
                break;
            }
            let bytes = word(index).to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
        self.given += header.words() as usize;
        Ok(Notice {
            kind: header.kind,
            file,
            is_directory: header.is_directory,
            directory: header.kind.has_name().then_some(directory),
            name_len,
            cookie: u64::from(batch.lane + 1) << 48 | batch.position & 0xFFFF_FFFF_FFFF,
            slot: batch.slot,
            version: batch.version,
        })
    }
}
