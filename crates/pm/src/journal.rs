//! A lane's journal record: staged in place, committed by one word, applied, retired.
//!
//! What makes each step safe on a medium that loses unfenced words:
//!
//! 1. *Staging* writes entries behind a commit word that says "retired": they mean nothing.
//! 2. *Commit* writes the checksum and the commit word, writes the lane back and fences. Whatever
//!    subset of these words reaches the medium early, the record counts only if all of it did,
//!    prepared objects included, because the checksum covers them. After the fence it is durable:
//!    the commit point.
//! 3. *Apply* stores each entry to its word or words, writes these back and fences. Doing it again
//!    gives the same result, because nobody else can change these words or bits before the record
//!    is retired: the locks over them, and the busy bits, are still held.
//! 4. *Retire* writes the commit word back to "retired" and fences. Only then are busy bits cleared
//!    and locks released, so that no later record of another lane touches a word that this record
//!    could still be applied to.

use core::sync::atomic::Ordering;

use conquest_format::journal::{self, Action, Commit, ENTRY, Entry};
use conquest_format::{Offset, WORD, checksum, volatile};

use crate::busy::BitWord;
use crate::core::Core;
use crate::host::Host;
use crate::memory::{Memory, Window};
use crate::{Error, Result};

/// They are stored as a pair.
const _: () = assert!(journal::COMMIT + WORD == journal::CHECKSUM);

/// Where entry or range number `index` of lane `lane` stands.
pub(crate) fn entry_at(lane: Offset, index: u64) -> Offset {
    lane.plus(journal::ENTRIES + index * ENTRY)
}

impl<M: Memory, H: Host> Core<M, H> {
    /// The commit word of lane `number`, checked.
    pub(crate) fn commit_word(&self, number: u32) -> Result<Commit> {
        self.commit_word_of(number, Ordering::Relaxed)
    }

    /// [`Self::commit_word`], for who does not own the lane.
    pub(crate) fn commit_word_of(&self, number: u32, order: Ordering) -> Result<Commit> {
        let at = self.geometry.lane(number).plus(journal::COMMIT);
        let word = self.memory.load(at, order);
        Commit::unpack(word).ok_or(Error::Corrupt {
            what: "commit word",
            offset: at,
            expected: "counts that fit a lane",
            found: word,
        })
    }

    /// Stores two words at `at`.
    pub(crate) fn stage_pair(&self, at: Offset, pair: [u64; 2]) {
        for (at, word) in [at, at.plus(WORD)].into_iter().zip(pair) {
            self.memory.put(at, word, Ordering::Relaxed);
        }
    }

    pub(crate) fn load_pair(&self, at: Offset) -> [u64; 2] {
        let first = self.memory.load(at, Ordering::Relaxed);
        [first, self.memory.load(at.plus(WORD), Ordering::Relaxed)]
    }

    /// The checksum of the record of `number` under `commit`, over the bytes as they are now; none
    /// if its ranges are impossible.
    fn record_checksum(&self, number: u32, commit: Commit) -> Option<u64> {
        let lane = self.geometry.lane(number);
        let mut head = [0; 16];
        head[..8].copy_from_slice(&u64::from(number).to_le_bytes());
        head[8..].copy_from_slice(&commit.pack().to_le_bytes());
        let mut sum = checksum(0, &head);
        let staged = (commit.entries + commit.ranges) * ENTRY;
        sum = self.checksum_bytes(sum, entry_at(lane, 0), staged);
        let mut covered = 0;
        for index in 0..commit.ranges {
            let [at, len] = self.load_pair(entry_at(lane, commit.entries + index));
            covered += len.min(journal::RANGE_BYTES_MAX + 1);
            if covered > journal::RANGE_BYTES_MAX || !self.may_prepare(at, len) {
                return None;
            }
            sum = self.checksum_bytes(sum, Offset::new(at), len);
        }
        Some(sum)
    }

    /// The checksum of `len` bytes at `at`, in pieces, after `sum`.
    fn checksum_bytes(&self, mut sum: u64, at: Offset, len: u64) -> u64 {
        let mut piece = [0; journal::PIECE as usize];
        let mut done = 0;
        while done < len {
            let size = (len - done).min(journal::PIECE);
            if let Some(piece) = piece.get_mut(..size as usize) {
                self.memory.read(at.plus(done), piece);
                sum = checksum(sum, piece);
            }
            done += size;
        }
        sum
    }

    /// Makes the staged record of lane `number` count: the commit point.
    pub(crate) fn arm(&self, number: u32, commit: Commit) {
        let lane = self.geometry.lane(number);
        let sum = self.record_checksum(number, commit).unwrap_or(0);
        // Until both are stored the checksum differs, whichever is first. Who sees that the record
        // is armed also sees what the lane has said before in its log.
        self.memory.put(lane.plus(journal::COMMIT), commit.pack(), Ordering::Release);
        self.memory.put(lane.plus(journal::CHECKSUM), sum, Ordering::Relaxed);
        self.memory.write_back(lane, 2 * WORD);
        self.memory.write_back(entry_at(lane, 0), (commit.entries + commit.ranges) * ENTRY);
        self.memory.fence();
    }

    /// Stores every entry of the committed record to its word and makes that durable.
    pub(crate) fn apply(&self, number: u32, commit: Commit) -> Result<()> {
        let lane = self.geometry.lane(number);
        for index in 0..commit.entries {
            let at = entry_at(lane, index);
            let pair = self.load_pair(at);
            let entry = Entry::unpack(pair).filter(|entry| self.may_apply(entry));
            let Some(entry) = entry else {
                return Err(Error::Corrupt {
                    what: "journal entry",
                    offset: at,
                    expected: "an action on persistent words",
                    found: pair[0],
                });
            };
            match entry.action {
                // Readers without locks who see the word also see that the version was stepped.
                Action::Set => self.memory.put(entry.target, entry.operand, Ordering::Release),
                Action::Allocate => self.memory.put_or(entry.target, entry.operand),
                Action::Free => {
                    self.note_freed(number, commit.entries);
                    self.mark_busy(entry.target, entry.operand);
                    self.memory.put_and_not(entry.target, entry.operand);
                }
                Action::Copy => {
                    self.copy_image(number, entry.target, entry.operand);
                    continue;
                }
            }
            self.memory.write_back(entry.target, WORD);
        }
        self.memory.fence();
        Ok(())
    }

    /// Makes sure that the record is never applied again.
    pub(crate) fn retire(&self, number: u32, commit: Commit) {
        let at = self.geometry.lane(number).plus(journal::COMMIT);
        // Who sees it also sees what was applied.
        self.memory.put(at, commit.retired().pack(), Ordering::Release);
        self.memory.write_back(at, WORD);
        self.memory.fence();
    }

    /// Lets the bits that the retired record freed be allocated again.
    ///
    /// The retired record's entries still stand in the lane, and its volatile record says how many
    /// they are, so that this can be done for a dead owner too.
    pub(crate) fn clear_freed(&self, number: u32) {
        let noted = self.freed_word(number);
        let entries = u64::from(self.value(noted, Ordering::Relaxed));
        if entries == 0 {
            return;
        }
        let lane = self.geometry.lane(number);
        let mut last_group = None;
        for index in 0..entries.min(journal::ENTRIES_MAX) {
            let entry = Entry::unpack(self.load_pair(entry_at(lane, index)));
            let Some(Entry { target, action: Action::Free, operand }) = entry else {
                continue;
            };
            self.clear_busy(target, operand);
            match self.bit_word(target) {
                Some(BitWord::Objects(page)) => self.note_object_freed(page),
                Some(BitWord::Pages(group, _)) if last_group != Some(group) => {
                    // Words of one group stand in a row; its last word is still to be cleared.
                    if let Some(done) = last_group.replace(group) {
                        self.note_pages_freed(done);
                    }
                }
                _ => {}
            }
        }
        if let Some(done) = last_group {
            self.note_pages_freed(done);
        }
        self.set_value(noted, 0, Ordering::Relaxed);
    }

    /// Notes that lane `number` is about to make bits busy by a record of `entries` entries.
    fn note_freed(&self, number: u32, entries: u64) {
        let noted = self.freed_word(number);
        if self.value(noted, Ordering::Relaxed) == 0 {
            self.set_value(noted, entries as u32, Ordering::Relaxed);
        }
    }

    fn freed_word(&self, number: u32) -> Offset {
        self.geometry.lane_record(number).plus(volatile::lane::FREED)
    }

    /// Finishes or drops what stands in lane `number`, whose owner is dead or which nobody has
    /// used since the power failed. The caller owns the lane.
    ///
    /// | commit word | checksum | decision |
    /// | --- | --- | --- |
    /// | impossible counts | | corrupt: an error |
    /// | retired | | only busy bits may be left to clear |
    /// | armed | matches | committed: apply, retire |
    /// | armed | differs | never committed: retire |
    ///
    /// Where there is a log, its word decides instead of the checksum.
    pub(crate) fn settle_record(&self, number: u32) -> Result<()> {
        let _window = Window::open(&self.memory)?;
        let commit = self.commit_word(number)?;
        let is_in_log = self.is_logged() && self.is_committed_in_log(number);
        if self.is_logged() {
            self.settle_logged(number);
        }
        if !commit.is_armed() {
            self.clear_freed(number);
            return Ok(());
        }
        let at = self.geometry.lane(number).plus(journal::CHECKSUM);
        let found = self.memory.load(at, Ordering::Relaxed);
        let committed = match self.is_logged() {
            true => is_in_log,
            false => self.record_checksum(number, commit) == Some(found),
        };
        if committed {
            // On media that need it, nothing may become visible before the record is durable: its
            // owner may have died between the commit word and the fence.
            let lane = self.geometry.lane(number);
            self.memory.write_back(lane, 2 * WORD);
            self.memory.write_back(entry_at(lane, 0), (commit.entries + commit.ranges) * ENTRY);
            self.write_back_ranges(number, commit);
            self.memory.fence();
            self.apply(number, commit)?;
        }
        self.retire(number, commit);
        self.clear_freed(number);
        Ok(())
    }

    fn write_back_ranges(&self, number: u32, commit: Commit) {
        let lane = self.geometry.lane(number);
        for index in 0..commit.ranges {
            let [at, len] = self.load_pair(entry_at(lane, commit.entries + index));
            self.memory.write_back(Offset::new(at), len);
        }
    }

    /// Whether `len` bytes at `at` can be a prepared range: they lie in the persistent part after
    /// the lanes, and have space.
    fn may_prepare(&self, at: u64, len: u64) -> bool {
        let tables = self.geometry.lane(self.geometry.shape().lanes).bytes();
        let volatile = self.geometry.volatile();
        let end = self.geometry.len_at(self.groups());
        let Some(last) = at.checked_add(len) else {
            return false;
        };
        at >= tables && last <= end && (last <= volatile.start || at >= volatile.end)
    }

    /// Whether `entry` is possible.
    fn may_apply(&self, entry: &Entry) -> bool {
        match entry.action {
            Action::Copy => self.may_copy(entry.target, entry.operand),
            _ => self.may_change(entry.target),
        }
    }

    /// Whether a record may change the word at `target`: it has space, lies in the persistent part
    /// and is not of a superblock, a lane's record or an image page.
    fn may_change(&self, target: Offset) -> bool {
        let at = target.bytes();
        let lanes = self.geometry.lane(0).bytes();
        let tables = self.geometry.lane(self.geometry.shape().lanes).bytes();
        let state = conquest_format::geometry::STATE.bytes();
        let end = self.geometry.len_at(self.groups());
        // The image pages are what the persistent part has before the volatile one.
        let gap = self.geometry.image_page(0).bytes()..self.geometry.volatile().end;
        if at < state || at >= end || gap.contains(&at) {
            return false;
        }
        if at < lanes || at >= tables {
            return true;
        }
        let within = (at - lanes) % journal::LANE;
        (journal::PAGES_USED..journal::ENTRIES).contains(&within)
    }
}
