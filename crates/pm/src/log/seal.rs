//! Making a cut, and collecting what is below it.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use conquest_format::journal::{Action, Entry};
use conquest_format::log::{
    CHUNK, FRAGMENT, Item, Items, State, chunk as header, head, unpack_end, unpack_fragment,
};
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};

use crate::busy::BitWord;
use crate::core::Core;
use crate::host::Host;
use crate::log::Copied;
use crate::memory::Memory;
use crate::{Error, Result};

/// Rounds of copying after which records that name pages are held back.
const FREELY: u32 = 2;
/// Rounds after which sealing is given up: records were named faster than they could be copied.
const ROUNDS_MAX: u32 = 1000;

/// What records below a cut have come to, from what was durable on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The first number in it.
    pub from: u64,
    /// The first number behind it.
    pub cut: u64,
    /// The fragments of all records from `from` to `cut`, ordered by their numbers.
    pub fragments: Vec<u8>,
    /// Pages to be written to the image as a whole.
    pub pages: Copied,
}

/// What has been found so far.
struct Found {
    from: u64,
    /// Fragments, one after the other as they were found.
    bytes: Vec<u8>,
    /// Where those of records are, by their numbers.
    fragments: BTreeMap<(u64, u32), Range<usize>>,
    /// Those of them that nobody has looked into for pages.
    unread: Vec<(u64, u32)>,
    /// Pages that are named and not copied.
    named: BTreeSet<u64>,
    /// Pages that were copied because they were named.
    taken: BTreeSet<u64>,
    /// How far chunks have been read.
    read: BTreeMap<u32, Read>,
}

/// How far a chunk has been read.
#[derive(Clone, Copy, Default)]
struct Read {
    /// In which of its lives.
    life: u64,
    at: u64,
    /// The record of the last fragment before that, if there is one.
    sequence: Option<u64>,
}

impl Found {
    /// All fragments in the order of their numbers.
    fn in_order(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.fragments.values().map(Range::len).sum());
        for place in self.fragments.values() {
            all.extend(self.bytes.get(place.clone()).unwrap_or_default());
        }
        all
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Seals what begins with number `from`, which is where what was written last ends, be that
    /// durable or not. With it go pages that were `copied` since it was seen where that ends; one
    /// that is named by what is sealed is copied again. None if there is nothing.
    ///
    /// What is sealed may be written only if nobody else has written anything since: a page of that
    /// might have been copied before it was named there, and would be older than what is written.
    ///
    /// # Errors
    /// [`Error::Again`] if somebody else has made something from `from` on durable meanwhile.
    pub fn seal(&self, from: u64, copied: Copied) -> Result<Option<Sealed>> {
        let held = self.geometry.log_head(head::HELD_BACK);
        let mut holding = None;
        let sealed = self.seal_in_rounds(from, copied, |round| {
            if round == FREELY {
                let found = self.memory.load(held, Ordering::Relaxed);
                let odd = found | 1;
                let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
                let (Ok(_) | Err(_)) =
                    self.memory.compare_exchange(held, found, odd, order, failure);
                holding = Some(odd);
            }
        });
        if let Some(held) = holding {
            self.end_holding_back(held);
        }
        sealed
    }

    fn seal_in_rounds(
        &self,
        from: u64,
        mut copied: Copied,
        mut begin: impl FnMut(u32),
    ) -> Result<Option<Sealed>> {
        // What was copied was there before the number is read.
        self.memory.load_fence();
        let mut found = Found {
            from,
            bytes: Vec::new(),
            fragments: BTreeMap::new(),
            unread: Vec::new(),
            named: BTreeSet::new(),
            taken: BTreeSet::new(),
            read: BTreeMap::new(),
        };
        for round in 0..ROUNDS_MAX {
            begin(round);
            let cut = self.read_below_a_cut(&mut found);
            self.read_pages(&mut found, &mut copied);
            if !found.named.is_empty() {
                for page in core::mem::take(&mut found.named) {
                    let at = Offset::new(page * PAGE);
                    self.copy_page(at, &mut copied);
                    found.taken.insert(page);
                }
                // What is in the copies was there before the next number is read.
                self.memory.load_fence();
                continue;
            }
            // Whoever has made a part of it durable may have let it go meanwhile.
            self.memory.load_fence();
            if self.durable() > from {
                return Err(Error::Again);
            }
            if cut == from && copied.is_empty() {
                return Ok(None);
            }
            return Ok(Some(Sealed { from, cut, fragments: found.in_order(), pages: copied }));
        }
        Err(Error::Again)
    }

    /// Adds the page at `at` to those that were `copied`, as it is: each of its words by itself.
    pub fn copy_page(&self, at: Offset, copied: &mut Copied) {
        copied.add(at, |page| self.memory.read(at, page));
    }

    /// Makes a cut, and reads what is below it.
    fn read_below_a_cut(&self, found: &mut Found) -> u64 {
        let cut = self.next_sequence();
        // Who has drawn a smaller number has said so before, and commits now, or draws again.
        let mut committed = BTreeMap::new();
        for lane in 0..self.geometry.shape().lanes {
            if let State::Committed(sequence) = self.push(lane)
                && (found.from..cut).contains(&sequence)
            {
                committed.insert(lane, sequence);
            }
        }
        for chunk in 0..self.geometry.shape().log {
            while !self.read_chunk(found, chunk, cut, &committed) {}
        }
        cut
    }

    /// Lets lane `lane` draw another number, if it has not committed with the one that it may have
    /// drawn: its state before.
    pub(super) fn push(&self, lane: u32) -> State {
        loop {
            let state = self.lane_state(lane, Ordering::Acquire);
            let is_drawing = state == State::Drawing;
            if !is_drawing || self.replace_lane_state(lane, State::Drawing, State::Pushed) {
                return state;
            }
        }
    }

    /// Reads what is in `chunk` below `cut`; and a fragment behind that, if it is of the record
    /// that its lane has `committed` last. False if the chunk was begun anew meanwhile: what was
    /// there is durable then, and what is there now may be below the cut.
    ///
    /// Behind its end a chunk has what an earlier life has left, which may look like anything. So
    /// a record of which it has a fragment already has no other one there, and in a chunk that its
    /// lane has let go all is counted. Any other chunk has a fragment of that record, or was just
    /// begun: then its first words are those of a fragment of an earlier life, with the number of
    /// another record.
    fn read_chunk(
        &self,
        found: &mut Found,
        chunk: u32,
        cut: u64,
        committed: &BTreeMap<u32, u64>,
    ) -> bool {
        let owner = self.owner(chunk, Ordering::Acquire);
        let Some(lane) = owner.lane else {
            return true;
        };
        let (life, last) = (owner.life, committed.get(&lane).copied());
        let known = found.read.get(&chunk).filter(|read| read.life == life);
        let Read { mut at, sequence: mut before, .. } = known.copied().unwrap_or_default();
        // Of another life it says nothing of this one.
        let end = unpack_end(self.header(chunk, header::END, Ordering::Acquire), life).min(CHUNK);
        let mut fragments = Vec::new();
        while at + FRAGMENT <= CHUNK {
            let [first, sequence] = self.load_pair(self.geometry.log_chunk(chunk).plus(at));
            let is_last = owner.is_held && last == Some(sequence) && before != last;
            let is_committed = at < end || is_last;
            let Some((bytes, number)) = unpack_fragment(first).filter(|_| is_committed) else {
                break;
            };
            if sequence >= cut || at + bytes > CHUNK {
                break;
            }
            if sequence >= found.from {
                let place = found.bytes.len()..found.bytes.len() + bytes as usize;
                found.bytes.resize(place.end, 0);
                let fragment = found.bytes.get_mut(place.clone()).unwrap_or_default();
                self.memory.read(self.geometry.log_chunk(chunk).plus(at), fragment);
                fragments.push(((sequence, number), place));
            }
            at += bytes;
            before = Some(sequence);
        }
        self.memory.load_fence();
        if self.owner(chunk, Ordering::Relaxed).life != life {
            return false;
        }
        found.read.insert(chunk, Read { life, at, sequence: before });
        for (key, place) in fragments {
            found.unread.push(key);
            found.fragments.insert(key, place);
        }
        true
    }

    /// Notes the pages that records name which were not looked into yet, in the order of their
    /// numbers, and drops those that a later one frees, copies of these too: nobody looks at them
    /// before they are named again. Records with smaller numbers have all been found.
    fn read_pages(&self, found: &mut Found, copied: &mut Copied) {
        let mut unread = core::mem::take(&mut found.unread);
        unread.sort_unstable();
        let Found { bytes, fragments, named, taken, .. } = found;
        for place in unread.iter().filter_map(|key| fragments.get(key)) {
            for item in Items::of(bytes.get(place.clone()).unwrap_or_default()) {
                if let Item::Pages(first, count) = item {
                    let first = first.bytes() / PAGE;
                    named.extend((first..first + count).filter(|page| self.has_page(*page)));
                }
                for page in item.entries().flat_map(|entry| self.freed_pages(entry)) {
                    named.remove(&page);
                    if taken.remove(&page) {
                        copied.remove(Offset::new(page * PAGE));
                    }
                }
            }
        }
    }

    /// The pages that `entry` frees.
    fn freed_pages(&self, entry: Entry) -> impl Iterator<Item = u64> + use<M, H> {
        let Entry { target, action, operand } = entry;
        let first = match self.bit_word(target) {
            Some(BitWord::Pages(group, word)) if action == Action::Free => {
                Some(self.geometry.page(group * GROUP_PAGES + word * 64).bytes() / PAGE)
            }
            _ => None,
        };
        let pages = first.into_iter().flat_map(|first| first..first + 64).zip(0..);
        pages.filter(move |(_, bit)| operand >> bit & 1 == 1).map(|(page, _)| page)
    }

    /// Whether page `page` of the region is one that can be in its image.
    fn has_page(&self, page: u64) -> bool {
        let at = page * PAGE;
        self.geometry.is_logged(at) && at < self.geometry.len_at(self.groups())
    }

    /// Notes that all records below `cut` are durable.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn set_durable(&self, cut: u64) -> Result<()> {
        let _window = super::record::window(self)?;
        let at = self.geometry.log_head(head::DURABLE);
        let mut old = self.memory.load(at, Ordering::Relaxed);
        while old < cut {
            let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.memory.compare_exchange(at, old, cut, order, failure) {
                Ok(_) => break,
                Err(found) => old = found,
            }
        }
        // What was named since the cut is not counted: there is little of it.
        self.memory.store(self.geometry.log_head(head::PAGES), 0, Ordering::Relaxed);
        let now = self.host.now();
        self.memory.store(self.geometry.log_head(head::DURABLE_AT), now, Ordering::Relaxed);
        self.free_chunks_below(cut);
        Ok(())
    }
}

const _: () = assert!(FRAGMENT == 2 * WORD);
