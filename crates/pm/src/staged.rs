//! What a transaction sees of its own: words as it has staged them.
//!
//! Entries stand in the lane, which is searched from the end. Most words that a transaction reads
//! it has not set, and a filter says so without a look at the lane.

use core::sync::atomic::Ordering;

use conquest_format::journal::{Action, Entry};
use conquest_format::{Offset, WORD};

use crate::host::Host;
use crate::memory::Memory;
use crate::tx::Tx;

/// Bytes of the blocks that the filter knows beside words.
const BLOCK: u64 = 1024;
/// Words of one of its tables, and the shift that leaves the number of a bit.
const TABLE: usize = 8;
const SHIFT: u32 = 64 - 9;
const _: () = assert!(1 << (64 - SHIFT) == TABLE * 64);

/// For which words, and in which blocks, something may be staged: it may be wrong about what is
/// not, never about what is.
#[derive(Default)]
pub(crate) struct Filter {
    words: [u64; TABLE],
    blocks: [u64; TABLE],
}

/// The word of a table and the bit of it that stand for `number`.
const fn bit(number: u64) -> (usize, u64) {
    // The golden ratio: numbers that follow each other are far apart.
    let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> SHIFT;
    (hash as usize / 64, 1 << (hash % 64))
}

fn add(table: &mut [u64; TABLE], number: u64) {
    let (word, bit) = bit(number);
    if let Some(word) = table.get_mut(word) {
        *word |= bit;
    }
}

fn may_have(table: &[u64; TABLE], number: u64) -> bool {
    let (word, bit) = bit(number);
    table.get(word).is_none_or(|word| word & bit != 0)
}

impl Filter {
    /// Notes that something is staged for the word at `target`.
    pub(crate) fn note(&mut self, target: Offset) {
        add(&mut self.words, target.bytes() / WORD);
        add(&mut self.blocks, target.bytes() / BLOCK);
    }

    fn may_have_word(&self, at: Offset) -> bool {
        may_have(&self.words, at.bytes() / WORD)
    }

    fn may_have_any(&self, at: Offset, len: u64) -> bool {
        let (first, last) = (at.bytes() / BLOCK, at.bytes().saturating_add(len) / BLOCK);
        (first..=last).any(|block| may_have(&self.blocks, block))
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// The word at `at` as this transaction sees it: the value it set last, or the present one.
    /// The lock that guards the word orders it.
    #[inline]
    pub fn get(&self, at: Offset) -> u64 {
        let set = if self.filter.may_have_word(at) { self.last_set(at) } else { None };
        set.unwrap_or_else(|| self.core.memory.load(at, Ordering::Relaxed))
    }

    /// What this transaction has set the word at `at` to, last.
    fn last_set(&self, at: Offset) -> Option<u64> {
        let mut entries = self.entries().rev();
        let entry = entries.find(|entry| entry.target == at && entry.action == Action::Set);
        entry.map(|entry| entry.operand)
    }

    /// Copies the bytes from `at` on, an aligned place, to `out`, as this transaction sees them:
    /// [`Self::get`] of each word.
    #[inline]
    pub fn bytes(&self, at: Offset, out: &mut [u8]) {
        self.core.memory.read(at, out);
        if self.filter.may_have_any(at, out.len() as u64) {
            self.set_in(at, out);
        }
    }

    /// Puts what this transaction has set from `at` on into `out`.
    fn set_in(&self, at: Offset, out: &mut [u8]) {
        // In the order in which they were staged.
        for entry in self.entries().filter(|entry| entry.action == Action::Set) {
            let Some(within) = entry.target.bytes().checked_sub(at.bytes()) else {
                continue;
            };
            let within = usize::try_from(within).unwrap_or(usize::MAX);
            let rest = out.get_mut(within..).unwrap_or_default();
            for (byte, set) in rest.iter_mut().zip(entry.operand.to_le_bytes()) {
                *byte = set;
            }
        }
    }

    /// The bits that this transaction has staged with `action` for the word at `at`.
    pub(crate) fn staged_bits(&self, at: Offset, action: Action) -> u64 {
        if !self.filter.may_have_word(at) {
            return 0;
        }
        let entries = self.entries();
        entries
            .filter(|entry| entry.target == at && entry.action == action)
            .fold(0, |bits, entry| bits | entry.operand)
    }

    /// What is staged, in its order.
    fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> {
        (0..self.entries).filter_map(|index| Entry::unpack(self.core.load_pair(self.entry(index))))
    }
}
