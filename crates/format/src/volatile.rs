//! The volatile part: words that mean nothing once everybody has detached.
//!
//! Every volatile word carries in its upper half the *tag*, the low 32 bits of the attach
//! generation, never 0. A word with another tag reads as its default, so attaching never has to
//! clear them. They are never journalled, checksummed, saved or written back.

use crate::{Offset, WORD};

/// The lower half of a volatile word, if it carries `tag`.
#[must_use]
pub const fn current(word: u64, tag: u32) -> Option<u32> {
    if (word >> 32) as u32 == tag { Some(word as u32) } else { None }
}

/// The volatile word of `tag` and `value`.
#[must_use]
pub const fn tagged(tag: u32, value: u32) -> u64 {
    (tag as u64) << 32 | value as u64
}

/// Bits of a version. Above them, a word with a version carries the low half of the tag only.
pub const VERSION_BITS: u32 = 48;
const VERSION: u64 = (1 << VERSION_BITS) - 1;

/// The version in `word`; 0 if it is of another attach generation. One whose tag happens to have
/// the same low half may come through: any version is harmless.
#[must_use]
pub const fn version(word: u64, tag: u32) -> u64 {
    if (word >> VERSION_BITS) as u16 == tag as u16 { word & VERSION } else { 0 }
}

/// The word with `version`.
#[must_use]
pub const fn versioned(tag: u32, version: u64) -> u64 {
    (tag as u64) << VERSION_BITS | version & VERSION
}

/// The even version that comes after `version`, with an odd one in between.
#[must_use]
pub const fn next_version(version: u64) -> u64 {
    (version | 1).wrapping_add(1) & VERSION
}

/// The odd version before the even `version`.
#[must_use]
pub const fn odd_before(version: u64) -> u64 {
    version.wrapping_sub(1) & VERSION
}

/// Whether version `left` is later than `right`: they go round.
#[must_use]
pub const fn is_later(left: u64, right: u64) -> bool {
    (left.wrapping_sub(right) << (u64::BITS - VERSION_BITS)).cast_signed() > 0
}

/// The head of the volatile part.
pub mod head {
    /// Bytes.
    pub const SIZE: u64 = crate::PAGE;
    /// A store that has failed: nonzero code of the reason.
    pub const FAILED: u64 = 0;
    /// Tickets drawn by threads that wait for a lane.
    pub const QUEUE_NEXT: u64 = 8;
    /// The ticket that may take a lane next.
    pub const QUEUE_SERVING: u64 = 16;
    /// Group from which the next search for pages starts.
    pub const ROTOR: u64 = 24;
    /// 1 if a lane may hold an intent whose process died.
    pub const ORPHANS: u64 = 32;
    /// 1 if there may be holdings whose process died, or orphans that nobody has open.
    pub const BURIALS: u64 = 584;
    /// A word that is never set, for those to sleep on who wait to attach.
    pub const ATTACH: u64 = 56;
    /// The lock under which the region grows: two words, like those of the table.
    pub const GROW: u64 = 40;
    /// First of the words that say, per kind, from which group on a slab with room may be.
    pub const PARTIAL_FROM: u64 = 64;
    /// Times that the lane queue's bell has rung: who waits for a lane sleeps on it.
    pub const BELL: u64 = 576;
    /// Odd while somebody may sleep until something is published in the feed; counts.
    pub const FEED_SLEEPERS: u64 = 640;
    /// The version that every change which is told is to be above.
    pub const FEED_FLOOR: u64 = 648;
}

/// Waiting threads that the lane queue can name.
pub const QUEUE_CELLS: u64 = 1024;

/// A process slot.
pub mod slot {
    /// Bytes.
    pub const SIZE: u64 = crate::LINE;
    /// 1 while a process has the slot, 2 and 3 while there is a parcel. The kernel's lock on this
    /// byte of the core says whether its process lives.
    pub const STATE: u64 = 0;
    /// State of a slot that a process has.
    pub const PROCESS: u32 = 1;
    /// State of a slot with a parcel that nobody has received yet.
    pub const PARCEL: u32 = 2;
    /// State of a slot with a parcel that somebody has received.
    pub const RECEIVED: u32 = 3;
    /// The byte whose lock is the turn of seeing to the slot.
    pub const TURN: u64 = 1;
    /// Process id, in the process's own pid namespace.
    pub const PID: u64 = 8;
    /// Inode number of that pid namespace.
    pub const PID_NAMESPACE: u64 = 16;
    /// First chunk, plus one, of the slot's holdings.
    pub const CHUNK: u64 = 24;
    /// Threads of the process that look for holdings of the dead.
    pub const BURIES: u64 = 32;
    /// Largest number of slots: slot numbers have ten bits.
    pub const MAX: u32 = 1023;
}

/// A lane's volatile record.
pub mod lane {
    /// Bytes.
    pub const SIZE: u64 = 1024;
    /// Who uses the lane: [`owner`](super::owner), 0 for nobody.
    pub const OWNER: u64 = 0;
    /// Position up to which the lane's batches in the feed count: 64 bits, without a tag.
    pub const FEED: u64 = 8;
    /// Position up to which words of the ring may have been stored: 64 bits, without a tag.
    pub const FEED_LIMIT: u64 = 16;
    /// Low half of the position up to which the batch goes whose record is being committed.
    pub const FEED_PREPARED: u64 = 24;
    /// Version of the lane's latest batch.
    pub const FEED_VERSION: u64 = 32;
    /// First of the [`HELD_MAX`] words that name the locks this lane holds or is about to take.
    pub const HELD: u64 = 64;
    /// Locks that one operation can hold.
    pub const HELD_MAX: u64 = 16;
    /// Group leased for slabs and short runs, plus one.
    pub const LEASE_LOW: u64 = 192;
    /// Group leased for long runs, plus one.
    pub const LEASE_HIGH: u64 = 200;
    /// Page of the low group from which to search (a hint, untagged).
    pub const CURSOR_LOW: u64 = 208;
    /// Page of the high group from which to search (a hint, untagged).
    pub const CURSOR_HIGH: u64 = 216;
    /// Head page, plus one, of the slab that this lane is giving back.
    pub const RECLAIM: u64 = 224;
    /// Entries of the record whose freed bits are busy, from its application until they no longer
    /// are.
    pub const FREED: u64 = 232;
    /// Where the lane's search for a slab with room is: [`search`](super::search), 0 for nowhere.
    pub const SEARCH: u64 = 240;
    /// First of the words that name, per kind, the head page of the slab leased, plus one.
    pub const SLABS: u64 = 256;
    /// Largest number of lanes.
    pub const MAX: u32 = 4096;
}

/// The name of a search for slabs of kind `kind` that has come to group `group`.
#[must_use]
pub const fn search(group: u64, kind: u8) -> u32 {
    ((group as u32) << 6 | (kind as u32) & 63) + 1
}

/// Group and kind of the search named `name`; none if it names no search.
#[must_use]
pub const fn unpack_search(name: u32) -> Option<(u64, u8)> {
    match name.checked_sub(1) {
        Some(name) => Some(((name >> 6) as u64, (name & 63) as u8)),
        None => None,
    }
}

/// The owner of a lane whose process died with an intent unfinished: anybody may adopt it.
pub const ORPHAN: u32 = u32::MAX;

/// The owner of a lane: slot (ten bits, number plus one) and thread id (22 bits).
#[must_use]
pub const fn owner(slot: u32, thread: u32) -> u32 {
    (slot + 1) << 22 | (thread & 0x3F_FFFF)
}

/// The slot number in an owner; none for 0.
#[must_use]
pub const fn owner_slot(owner: u32) -> Option<u32> {
    (owner >> 22).checked_sub(1)
}

/// The thread id in an owner.
#[must_use]
pub const fn owner_thread(owner: u32) -> u32 {
    owner & 0x3F_FFFF
}

/// A lock: its word, then the version of what it guards.
pub mod lock {
    /// Bytes.
    pub const SIZE: u64 = 16;
    /// Lane that holds the lock exclusively (number plus one, 16 bits) and the flags below.
    pub const WORD: u64 = 0;
    /// The version: odd while a committed change is being applied under the lock.
    pub const VERSION: u64 = 8;
    /// Some lane may hold, or be about to take, the lock shared: look at the lanes' records.
    pub const READERS: u32 = 1 << 16;
    /// Somebody sleeps on the lock.
    pub const WAITERS: u32 = 1 << 17;
    /// The exclusive holder sleeps until the lanes' records name the lock as shared no more.
    pub const DRAINING: u32 = 1 << 18;
    /// There may be holdings of what the lock guards.
    pub const HOLDINGS: u32 = 1 << 19;
    /// Largest number of locks.
    pub const MAX: u32 = 1 << 24;
}

/// A name in a lane's held list: lock number and mode.
#[must_use]
pub const fn held(lock: u32, shared: bool) -> u32 {
    1 << 31 | (shared as u32) << 30 | (lock & 0x3FFF_FFFF)
}

/// The lock number and mode in a held word; none for 0.
#[must_use]
pub const fn unpack_held(word: u32) -> Option<(u32, bool)> {
    if word >> 31 == 0 { None } else { Some((word & 0x3FFF_FFFF, word >> 30 & 1 == 1)) }
}

/// A group's volatile record.
pub mod group {
    /// Bytes.
    pub const SIZE: u64 = 192;
    /// Lane that alone may allocate pages here, plus one.
    pub const LEASE: u64 = 0;
    /// Two words, 32 kinds each: a set bit says that a slab with room may be here. A word with a
    /// stale tag reads as all ones.
    pub const PARTIAL: u64 = 8;
    /// Sixteen words, 32 pages each: freed by a record that is not yet retired.
    pub const BUSY: u64 = 64;
}

/// A slab's volatile record, at its head page's number.
pub mod slab {
    use crate::WORD;
    /// Bytes.
    pub const SIZE: u64 = 3 * WORD;
    /// Lane that alone may allocate objects here, plus one (16 bits), and the object from which it
    /// searches (bits 16..22).
    pub const LEASE: u64 = 0;
    /// Two words, 32 objects each: freed by a record that is not yet retired.
    pub const BUSY: u64 = 8;
}

/// What processes have of files at the moment, in chunks of 56 holdings of 64 bytes.
///
/// A process's chunks make a tree, from the one that its slot names; which of a chunk's children is
/// the next one on the way to a key depends on the key's lock. The words of a chunk, but for its
/// children, carry no tag: whoever takes a chunk clears its keys before anything leads to it.
pub mod holding {
    use crate::{LINE, PAGE};
    /// Bytes of a chunk.
    pub const CHUNK: u64 = PAGE;
    /// Largest number of chunks.
    pub const CHUNKS_MAX: u32 = 1 << 20;
    /// Chunks below one.
    pub const CHILDREN: u64 = 4;
    /// First of the words that name the chunks below, plus one.
    pub const CHILD: u64 = 0;
    /// First of the keys in a chunk, one word a holding.
    pub const KEYS: u64 = 64;
    /// Holdings in a chunk.
    pub const PER_CHUNK: u64 = 56;
    /// First holding in a chunk.
    pub const FIRST: u64 = 512;
    /// Bytes of a holding.
    pub const SIZE: u64 = LINE;
    /// Words of a holding.
    pub const WORDS: u64 = 8;
}

/// Groups whose class stands in one word, sixteen bits each.
pub const CLASSES_PER_WORD: u64 = 2;
/// Class of a group that nobody has looked at since the attach generation began.
pub const CLASS_UNKNOWN: u16 = 0;
/// Class of a group without a free page. With a longest free run of `n` pages the class is
/// `FULL + n`.
pub const CLASS_FULL: u16 = 1;

/// The class of a group whose longest free run is `pages` long.
#[must_use]
pub const fn class_of(pages: u64) -> u16 {
    CLASS_FULL + pages as u16
}

/// Word `index` of an array of words at `base`.
#[must_use]
pub const fn word(base: Offset, index: u64) -> Offset {
    base.plus(index * WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GROUP_PAGES;

    #[test]
    fn versions_go_round() {
        assert_eq!([0, 1, 2, 3].map(next_version), [2, 2, 4, 4]);
        assert_eq!([VERSION - 1, VERSION].map(next_version), [0, 0]);
        assert_eq!([2, 0].map(odd_before), [1, VERSION]);
        assert!(is_later(2, 0) && !is_later(0, 2) && !is_later(4, 4));
        assert!(is_later(next_version(VERSION), VERSION - 1));
        let word = versioned(0x1_0007, 1 << 50 | 9);
        assert_eq!((version(word, 7), version(word, 8)), (9, 0));
    }

    #[test]
    fn classes_follow_the_longest_run() {
        assert_ne!(CLASS_FULL, CLASS_UNKNOWN);
        assert_eq!(class_of(0), CLASS_FULL);
        for pages in 1..=GROUP_PAGES {
            assert!(class_of(pages) > class_of(pages - 1), "{pages}");
        }
    }
}
