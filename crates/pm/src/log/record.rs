//! A lane's record in the log: written as it is staged, committed by one word, settled.

use core::sync::atomic::Ordering;
use core::time::Duration;

use conquest_format::journal::{Action, Entry, ImagePart};
use conquest_format::log::{
    CHUNK, FRAGMENT, ItemKind, State, chunk as header, fragment, head, unpack_fragment,
};
use conquest_format::{Offset, PAGE, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::{Memory, Window};
use crate::tx::Tx;
use crate::{Error, Result};

/// Bytes that are copied at once.
const PIECE: usize = 512;
/// Bytes of payload that an item has at least, if it is only a part.
const LEAST: u64 = 64;
/// How long a record that names pages is held back at most.
const HELD_BACK: Duration = Duration::from_millis(1);

/// The record that a transaction is writing to the log.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Building {
    /// The chunk that it is in at the moment, where its fragment begins there, and how far it is.
    chunk: Option<u32>,
    start: u64,
    at: u64,
    /// Number of that fragment.
    number: u32,
    /// Pages that are named.
    pages: u64,
    /// It could not be written down.
    has_failed: bool,
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Notes that `len` bytes at `at` are new: whole pages are named, the rest is copied.
    pub(crate) fn log_new(&mut self, at: Offset, len: u64) {
        if !self.core.geometry.is_logged(at.bytes()) {
            return;
        }
        let end = at.bytes().saturating_add(len);
        let (first, last) = (at.bytes().next_multiple_of(PAGE), end / PAGE * PAGE);
        let is_heap = self.core.geometry.page_of(at).is_some();
        let noted = if is_heap && first < last {
            self.log_bytes(at, first - at.bytes())
                .and_then(|()| self.log_pages(Offset::new(first), (last - first) / PAGE))
                .and_then(|()| self.log_bytes(Offset::new(last), end - last))
        } else {
            self.log_bytes(at, len)
        };
        // Those who have something new need not look; the commit fails.
        self.log.has_failed |= noted.is_err();
    }

    /// Notes that `len` bytes at `at` are zeros from now on.
    pub(crate) fn log_zeros(&mut self, at: Offset, len: u64) {
        let noted = self.log_head(ItemKind::Zeros, len, at);
        self.log.has_failed |= noted.is_err();
    }

    /// Notes that bits of a word are set, whoever has set them.
    pub(crate) fn log_bits(&mut self, target: Offset, bits: u64) {
        let entry = Entry { target, action: Action::Allocate, operand: bits };
        let noted = self.log_room(3 * WORD).map(|_| {
            self.log_word(ItemKind::Words.head(1));
            entry.pack().into_iter().for_each(|word| self.log_word(word));
        });
        self.log.has_failed |= noted.is_err();
    }

    fn log_bytes(&mut self, at: Offset, len: u64) -> Result<()> {
        let (mut at, mut len) = (at, len);
        while len > 0 {
            let room = self.log_room(2 * WORD + LEAST.min(len.next_multiple_of(WORD)))? - 2 * WORD;
            let now = len.min(room);
            self.log_head(ItemKind::Bytes, now, at)?;
            let mut done = 0;
            while done < now {
                let mut piece = [0; PIECE];
                let size = (now - done).min(PIECE as u64);
                if let Some(piece) = piece.get_mut(..size as usize) {
                    self.core.memory.read(at.plus(done), piece);
                }
                // Whole words.
                let whole = size.next_multiple_of(WORD);
                let place = self.log_place();
                self.core.memory.put_bytes(place, piece.get(..whole as usize).unwrap_or_default());
                self.log.at += whole;
                done += size;
            }
            at = at.plus(now);
            len -= now;
        }
        Ok(())
    }

    fn log_pages(&mut self, at: Offset, pages: u64) -> Result<()> {
        self.log.pages += pages;
        self.log_head(ItemKind::Pages, pages, at)
    }

    fn log_head(&mut self, kind: ItemKind, count: u64, at: Offset) -> Result<()> {
        self.log_room(2 * WORD)?;
        self.log_word(kind.head(count));
        self.log_word(at.bytes());
        Ok(())
    }

    /// Where the next word goes.
    fn log_place(&self) -> Offset {
        self.core.geometry.log_chunk(self.log.chunk.unwrap_or(0)).plus(self.log.at)
    }

    fn log_word(&mut self, word: u64) {
        self.core.memory.put(self.log_place(), word, Ordering::Relaxed);
        self.log.at += WORD;
    }

    /// Sees to it that `least` bytes follow each other: how many there are.
    fn log_room(&mut self, least: u64) -> Result<u64> {
        self.refuse_child()?;
        match self.log.chunk {
            None => {
                let (chunk, start) = self.core.open_chunk(self.lane)?;
                self.log = Building {
                    chunk: Some(chunk),
                    start,
                    at: start + FRAGMENT,
                    number: 0,
                    ..self.log
                };
            }
            Some(_) if self.log.at + least > CHUNK => {
                self.log_fragment();
                let chunk = self.core.take_chunk(self.lane)?;
                self.log = Building {
                    chunk: Some(chunk),
                    start: 0,
                    at: FRAGMENT,
                    number: self.log.number + 1,
                    ..self.log
                };
            }
            Some(_) => {}
        }
        Ok(CHUNK - self.log.at)
    }

    /// Ends the fragment that is being written.
    fn log_fragment(&self) {
        let Building { chunk, start, at, number, .. } = self.log;
        let place = self.core.geometry.log_chunk(chunk.unwrap_or(0)).plus(start);
        self.core.memory.put(place, fragment(at - start, number), Ordering::Relaxed);
    }

    /// Adds the entries of the record, which are all staged, and ends it.
    ///
    /// # Errors
    /// [`Error::LogFull`], also if there was no room for something before.
    pub(crate) fn log_entries(&mut self) -> Result<()> {
        let mut index = 0;
        while index < self.entries {
            let entry = Entry::unpack(self.core.load_pair(self.entry(index)));
            match entry {
                Some(Entry { target, action: Action::Copy, operand }) => {
                    self.log_copy(target, operand)?;
                    index += 1;
                }
                _ => index += self.log_words_from(index)?,
            }
        }
        self.log_room(0)?;
        if self.log.has_failed {
            return Err(self.core.log_full());
        }
        self.log_fragment();
        Ok(())
    }

    /// Adds entries from number `first` on up to one that copies, as many as there is room for: how
    /// many.
    fn log_words_from(&mut self, first: u64) -> Result<u64> {
        let room = (self.log_room(3 * WORD)? - WORD) / (2 * WORD);
        let is_word = |index: &u64| {
            let entry = Entry::unpack(self.core.load_pair(self.entry(*index)));
            entry.is_none_or(|entry| entry.action != Action::Copy)
        };
        let count = (first..self.entries.min(first + room)).take_while(is_word).count() as u64;
        self.log_word(ItemKind::Words.head(count));
        for index in first..first + count {
            let pair = self.core.load_pair(self.entry(index));
            pair.into_iter().for_each(|word| self.log_word(word));
        }
        Ok(count)
    }

    /// Adds what an entry copies from the lane's image page.
    fn log_copy(&mut self, target: Offset, operand: u64) -> Result<()> {
        let Some(ImagePart { from, len, .. }) = ImagePart::unpack(operand) else {
            return Ok(());
        };
        let mut done = 0;
        while done < len {
            let room = self.log_room(2 * WORD + LEAST.min(len - done))? - 2 * WORD;
            let now = (len - done).min(room).min(PIECE as u64);
            self.log_head(ItemKind::Bytes, now, target.plus(done))?;
            let mut piece = [0; PIECE];
            let piece = piece.get_mut(..now as usize).unwrap_or_default();
            let source = self.core.geometry.image_page(self.lane).plus(from + done);
            self.core.memory.read(source, piece);
            self.core.memory.put_bytes(self.log_place(), piece);
            self.log.at += now;
            done += now;
        }
        Ok(())
    }

    /// Commits the record in the log, in which it stands as a whole: from now on it has happened.
    pub(crate) fn commit_logged(&mut self) {
        let Building { chunk, start, number, pages, .. } = core::mem::take(&mut self.log);
        let Some(chunk) = chunk else {
            return;
        };
        let core = self.core;
        if pages > 0 {
            core.await_copies();
            match self.pages_pass {
                true => core.count_passing(pages),
                false => {
                    core.add_to_log_word(head::PAGES, pages, Ordering::Relaxed);
                }
            }
        }
        loop {
            let sequence = core.add_to_log_word(head::NEXT, 1, Ordering::AcqRel);
            match number {
                0 => core.put_sequence(chunk, start, sequence),
                _ => core.held_by(self.lane).for_each(|chunk| {
                    let start = core.chunk_end(chunk);
                    core.put_sequence(chunk, start, sequence);
                }),
            }
            if core.replace_lane_state(self.lane, State::Drawing, State::Committed(sequence)) {
                match number {
                    0 => core.advance(chunk, sequence),
                    _ => core.advance_all(self.lane, sequence, chunk),
                }
                return;
            }
            // Somebody has made a cut meanwhile: the record is behind it.
            core.set_lane_state(self.lane, State::Drawing);
        }
    }

    /// Drops the record that was being written, if there is one.
    pub(crate) fn drop_logged(&mut self) {
        let Building { number, .. } = core::mem::take(&mut self.log);
        if number > 0 {
            self.core.let_others_go(self.lane);
        }
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    pub(super) fn log_full(&self) -> Error {
        Error::LogFull { path: self.path.clone(), chunks: self.geometry.shape().log }
    }

    /// From now on what stands in the lane's record counts once it is committed in the log.
    pub(crate) fn draw(&self, lane: u32) {
        self.set_lane_state(lane, State::Drawing);
    }

    fn put_sequence(&self, chunk: u32, start: u64, sequence: u64) {
        let at = self.geometry.log_chunk(chunk).plus(start + WORD);
        self.memory.put(at, sequence, Ordering::Relaxed);
    }

    /// The end of the fragment that begins at the end of `chunk`, if it is of record `sequence`.
    fn end_of_last(&self, chunk: u32, sequence: u64) -> Option<u64> {
        let end = self.chunk_end(chunk);
        if end + FRAGMENT > CHUNK || !end.is_multiple_of(WORD) {
            return None;
        }
        let [first, found] = self.load_pair(self.geometry.log_chunk(chunk).plus(end));
        let (bytes, _) = unpack_fragment(first)?;
        (found == sequence && end + bytes <= CHUNK).then_some(end + bytes)
    }

    /// The record of the last fragment that is counted among those in `chunk`.
    fn last_counted(&self, chunk: u32) -> Option<u64> {
        let end = self.chunk_end(chunk);
        let (mut at, mut last) = (0, None);
        while at + FRAGMENT <= end.min(CHUNK) {
            let [first, sequence] = self.load_pair(self.geometry.log_chunk(chunk).plus(at));
            let (bytes, _) = unpack_fragment(first)?;
            last = Some(sequence);
            at += bytes;
        }
        last
    }

    /// Counts the fragment of record `sequence`, which is committed, among those in `chunk`, where
    /// it is not counted yet: what is behind its end otherwise may look like one.
    fn advance(&self, chunk: u32, sequence: u64) {
        if let Some(end) = self.end_of_last(chunk, sequence) {
            self.set_header(chunk, header::LAST, sequence, Ordering::Relaxed);
            self.set_chunk_end(chunk, end);
        }
    }

    /// The same for all chunks that lane `lane` holds; it goes on in `next`.
    fn advance_all(&self, lane: u32, sequence: u64, next: u32) {
        self.held_by(lane).for_each(|chunk| self.advance(chunk, sequence));
        self.go_on_in(lane, next);
        self.let_others_go(lane);
    }

    fn let_others_go(&self, lane: u32) {
        let stays = self.chunk_of(lane);
        let others = self.held_by(lane).filter(|chunk| Some(*chunk) != stays);
        others.for_each(|chunk| self.let_chunk_go(chunk));
    }

    /// Whether the record that stands in lane `lane`, armed, is committed in the log.
    pub(crate) fn is_committed_in_log(&self, lane: u32) -> bool {
        matches!(self.lane_state(lane, Ordering::Acquire), State::Committed(_))
    }

    /// Finishes or drops what a dead owner of lane `lane` was writing to the log.
    pub(crate) fn settle_logged(&self, lane: u32) {
        match self.lane_state(lane, Ordering::Acquire) {
            State::Committed(sequence) => {
                let is_left = |chunk: &u32| self.last_counted(*chunk) != Some(sequence);
                let left = self.held_by(lane).filter(is_left);
                left.for_each(|chunk| self.advance(chunk, sequence));
            }
            _ => self.set_lane_state(lane, State::None),
        }
        self.let_others_go(lane);
    }

    /// Lets who is copying pages get on for a moment, so that there is a cut before which no page
    /// is named that is not copied.
    fn await_copies(&self) {
        let at = self.geometry.log_head(head::HELD_BACK);
        let held = self.memory.load(at, Ordering::Relaxed);
        if held.is_multiple_of(2) {
            return;
        }
        self.memory.wait(at, held as u32, HELD_BACK);
        // He may be stopped.
        self.end_holding_back(held);
    }

    /// Ends what `held` says, unless that is over.
    pub(super) fn end_holding_back(&self, held: u64) {
        let at = self.geometry.log_head(head::HELD_BACK);
        let next = held.wrapping_add(1);
        let (order, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.memory.compare_exchange(at, held, next, order, failure).is_ok() {
            self.memory.wake(at, u32::MAX);
        }
    }
}

/// Nothing of a region's log is stored without the permission to store.
pub(super) fn window<M: Memory, H: Host>(core: &Core<M, H>) -> Result<Window<'_, M>> {
    Window::open(&core.memory)
}
