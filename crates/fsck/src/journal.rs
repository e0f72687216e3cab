//! Journal lanes: what recovery would do with their records, done over the view.
//!
//! A record whose lane is armed and that matches its checksum has happened, or, in a region with a
//! log, one that is committed there; so the state to check
//! is the one after it. Lanes are taken one after the other, each with the bytes that those before
//! it have left, as recovery does.

use std::collections::HashMap;

use conquest_format::descriptor::Descriptor;
use conquest_format::fs::{DATA, PACKED_SIZES, cut, packed};
use conquest_format::journal::{
    self, Action, CHECKSUM, COMMIT, Commit, ENTRIES, ENTRY, Entry, INTENT, ImagePart, PAGES_USED,
};
use conquest_format::{GROUP_PAGES, Geometry, Offset, WORD, checksum, geometry, log};

use crate::overlay::Overlay;
use crate::report::{Counts, Findings, Hex};
use crate::{Code, View};

/// An unfinished intent of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent {
    /// Where it stands.
    pub(crate) at: Offset,
    /// [`cut::CUT`] or [`cut::REAP`].
    pub(crate) code: u64,
    /// The file's inode.
    pub(crate) number: u64,
    /// The generation of that.
    pub(crate) generation: u64,
}

/// What the lanes say, after their records.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Sequence of the last record of each.
    pub(crate) sequences: Vec<u64>,
    /// Sum of their counts of pages in use.
    pub(crate) pages_used: u64,
    /// Unfinished intents.
    pub(crate) intents: Vec<Intent>,
}

/// A pass over all lanes.
struct Replay<'a, 'v, V: ?Sized> {
    bytes: &'a mut Overlay<'v, V>,
    geometry: &'a Geometry,
    /// Groups that have space.
    groups: u64,
    findings: &'a mut Findings,
    /// Who has changed which bits of each word so far.
    changed: HashMap<Offset, Changed>,
}

/// Bits of a word that records have changed.
#[derive(Default)]
struct Changed {
    /// By the lane that came last.
    last: u64,
    /// That lane.
    lane: u32,
    /// By others.
    others: u64,
}

/// Puts what committed records change over the view, and reads what the lanes say then.
pub(crate) fn replay<V: View + ?Sized>(
    bytes: &mut Overlay<'_, V>,
    geometry: &Geometry,
    groups: u64,
    findings: &mut Findings,
    counts: &mut Counts,
) -> Lanes {
    let mut lanes = Lanes::default();
    let numbers = 0..geometry.shape().lanes;
    let mut replay = Replay { bytes, geometry, groups, findings, changed: HashMap::new() };
    for number in numbers.clone() {
        lanes.sequences.push(replay.settle(number, counts));
    }
    counts.words_pending = replay.changed.len() as u64;
    for number in numbers {
        let lane = geometry.lane(number);
        let used = bytes.load(lane.plus(PAGES_USED));
        lanes.pages_used = lanes.pages_used.wrapping_add(used);
        let at = lane.plus(INTENT);
        let [code, number, generation] = bytes.words(at);
        match code {
            0 => {}
            cut::CUT | cut::REAP => {
                lanes.intents.push(Intent { at, code, number, generation });
            }
            _ => findings.add(Code::IntentUnknown, 0, at, "0, 1 or 2", code),
        }
    }
    counts.intents_pending = lanes.intents.len() as u64;
    lanes
}

impl<V: View + ?Sized> Replay<'_, '_, V> {
    /// Carries out the record of lane `number`, if it has happened; the lane's sequence.
    fn settle(&mut self, number: u32, counts: &mut Counts) -> u64 {
        let lane = self.geometry.lane(number);
        let word = self.bytes.load(lane.plus(COMMIT));
        let Some(commit) = Commit::unpack(word) else {
            let expected = "at most 248 entries and ranges, and no ranges alone";
            self.findings.add(Code::LaneCommit, 0, lane.plus(COMMIT), expected, Hex(word));
            return Commit { sequence: word, ..Commit::default() }.pack();
        };
        if !commit.is_armed() {
            return commit.sequence;
        }
        if self.geometry.shape().log != 0 {
            self.settle_logged(number, commit, counts);
            return commit.sequence;
        }
        let found = self.bytes.load(lane.plus(CHECKSUM));
        match self.checksum(number, commit) {
            Some(expected) if expected == found => {
                self.carry_out_all(number, commit, counts);
            }
            expected => {
                let expected = Hex(expected.unwrap_or(0));
                let at = lane.plus(CHECKSUM);
                self.findings.add(Code::LaneDropped, 0, at, expected, Hex(found));
            }
        }
        commit.sequence
    }

    /// The same where the log says whether the record of lane `number` has happened.
    fn settle_logged(&mut self, number: u32, commit: Commit, counts: &mut Counts) {
        let at = self.geometry.log_lane(number).plus(log::lane::STATE);
        let found = self.bytes.load(at);
        match log::State::unpack(found) {
            Some(log::State::Committed(_)) => self.carry_out_all(number, commit, counts),
            _ => self.findings.add(Code::LaneDropped, 0, at, "a record in the log", Hex(found)),
        }
    }

    fn carry_out_all(&mut self, number: u32, commit: Commit, counts: &mut Counts) {
        counts.records_pending += 1;
        for index in 0..commit.entries {
            self.carry_out(number, self.geometry.lane(number).plus(ENTRIES + index * ENTRY));
        }
    }

    /// The checksum of the record of lane `number`; none if its ranges are impossible.
    fn checksum(&self, number: u32, commit: Commit) -> Option<u64> {
        let lane = self.geometry.lane(number);
        let mut head = [0; 16];
        let words = [u64::from(number), commit.pack()];
        for (to, word) in head.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let staged = (commit.entries + commit.ranges) * ENTRY;
        let mut sum = self.pieces(checksum(0, &head), lane.plus(ENTRIES), staged);
        let mut covered = 0_u64;
        for index in commit.entries..commit.entries + commit.ranges {
            let [at, len] = self.bytes.words(lane.plus(ENTRIES + index * ENTRY));
            covered = covered.saturating_add(len);
            if covered > journal::RANGE_BYTES_MAX || !self.is_prepared(at, len) {
                return None;
            }
            sum = self.pieces(sum, Offset::new(at), len);
        }
        Some(sum)
    }

    /// The checksum of `len` bytes, of which there are at most a lane's, after `sum`.
    fn pieces(&self, mut sum: u64, at: Offset, len: u64) -> u64 {
        let mut piece = [0; journal::PIECE as usize];
        let mut done = 0;
        while done < len {
            let size = (len - done).min(journal::PIECE);
            let piece = piece.get_mut(..size as usize).unwrap_or_default();
            self.bytes.copy(at.plus(done), piece);
            sum = checksum(sum, piece);
            done += size;
        }
        sum
    }

    /// Whether `len` bytes at `at` lie in the persistent part after the lanes, and have space.
    fn is_prepared(&self, at: u64, len: u64) -> bool {
        let volatile = self.geometry.volatile();
        let tables = self.geometry.lane(self.geometry.shape().lanes).bytes();
        let Some(end) = at.checked_add(len) else { return false };
        let is_outside = end <= volatile.start || at >= volatile.end;
        at >= tables && end <= self.geometry.len_at(self.groups) && is_outside
    }

    /// Carries out the entry at `at` of lane `number`.
    fn carry_out(&mut self, number: u32, at: Offset) {
        let words: [u64; 2] = self.bytes.words(at);
        let Some(entry) = Entry::unpack(words).filter(|entry| self.is_possible(entry)) else {
            let expected = "a known action on words of the persistent part";
            self.findings.add(Code::LaneEntry, 0, at, expected, Hex(words[0]));
            return;
        };
        let old = self.bytes.load(entry.target);
        match entry.action {
            Action::Set => self.change(number, at, entry.target, entry.operand, u64::MAX),
            Action::Allocate => {
                self.change(number, at, entry.target, old | entry.operand, entry.operand);
            }
            Action::Free => {
                self.change(number, at, entry.target, old & !entry.operand, entry.operand);
            }
            Action::Copy => {
                let Some(part) = ImagePart::unpack(entry.operand) else { return };
                let image = self.geometry.image_page(number).plus(part.from);
                for word in (0..part.len).step_by(WORD as usize) {
                    let new = self.bytes.load(image.plus(word));
                    self.change(number, at, entry.target.plus(word), new, u64::MAX);
                }
            }
        }
    }

    /// Puts `new` in the place of the word at `target`, of which the entry at `at` of lane `number`
    /// changes `bits`.
    fn change(&mut self, number: u32, at: Offset, target: Offset, new: u64, bits: u64) {
        let changed = self.changed.entry(target).or_default();
        if changed.lane != number {
            changed.others |= changed.last;
            (changed.last, changed.lane) = (0, number);
        }
        changed.last |= bits;
        let shared = changed.others & bits;
        if shared != 0 {
            let expected = "bits that no other lane's record changes";
            self.findings.add(Code::LaneConflict, 0, at, expected, Hex(shared));
        }
        self.bytes.put(target, new);
    }

    /// Whether `entry` can be carried out.
    fn is_possible(&self, entry: &Entry) -> bool {
        match entry.action {
            Action::Copy => self.may_copy(entry.target, entry.operand),
            _ => self.may_change(entry.target),
        }
    }

    /// Whether a record may copy to `target` what `operand` says: words of allocated pages of its
    /// kind, which has the bytes of files.
    fn may_copy(&self, target: Offset, operand: u64) -> bool {
        let Some(part) = ImagePart::unpack(operand) else { return false };
        let page = |at| self.geometry.page_of(at);
        let Some((first, last)) = page(target).zip(page(target.plus(part.len - 1))) else {
            return false;
        };
        let is_content = part.kind == DATA
            || (0..PACKED_SIZES.len()).any(|class| packed(class) == Some(part.kind));
        let is_of_kind = |page: u64| {
            let (group, bit) = (page / GROUP_PAGES, page % GROUP_PAGES);
            let bits = self.bytes.load(self.geometry.bitmap(group).plus(bit / 64 * WORD));
            let found = Descriptor::unpack(self.bytes.load(self.geometry.descriptor(page)), page);
            let found = found.map(Descriptor::kind);
            group < self.groups && bits >> (bit % 64) & 1 == 1 && found == Some(part.kind)
        };
        is_content && (first..=last).all(is_of_kind)
    }

    /// Whether a record may change the word at `target`.
    fn may_change(&self, target: Offset) -> bool {
        let at = target.bytes();
        let lanes = self.geometry.lane(0).bytes();
        let tables = self.geometry.lane(self.geometry.shape().lanes).bytes();
        let has_space = at.saturating_add(WORD) <= self.geometry.len_at(self.groups);
        // The image pages are what the persistent part has before the volatile one.
        let gap = self.geometry.image_page(0).bytes()..self.geometry.volatile().end;
        if at < geometry::STATE.bytes() || !has_space || gap.contains(&at) {
            return false;
        }
        let within = (at.saturating_sub(lanes)) % journal::LANE;
        let is_header = (PAGES_USED..ENTRIES).contains(&within);
        at < lanes || at >= tables || is_header
    }
}
