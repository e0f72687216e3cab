//! Busy bits: pages and objects that a record has freed but not yet retired.
//!
//! A freed bit is clear in the persistent bitmap from the moment its record is applied, but until
//! the record is retired it could be applied again, after a crash, over an allocation that somebody
//! made meanwhile. So it stays busy, and nobody allocates it, until then. Marking and clearing can
//! be done again with the same result, and a dead lane's record says which bits are concerned.

use core::sync::atomic::Ordering;

use conquest_format::volatile::{group, slab};
use conquest_format::{LINE, Offset, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// What a word of allocation bits describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BitWord {
    /// 64 pages, from word `.1` of group `.0`.
    Pages(u64, u64),
    /// The objects of the slab whose head is this page.
    Objects(u64),
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Which allocation bits the persistent word at `target` holds; none if it holds others.
    pub(crate) fn bit_word(&self, target: Offset) -> Option<BitWord> {
        let at = target.bytes();
        let bitmaps = self.geometry.bitmaps();
        if bitmaps.contains(&at) {
            let within = at - bitmaps.start;
            return Some(BitWord::Pages(within / LINE, within % LINE / WORD));
        }
        let maps = self.geometry.slab_maps();
        maps.contains(&at).then(|| BitWord::Objects((at - maps.start) / WORD))
    }

    /// The two volatile words with the busy bits of the allocation bits at `target`.
    fn busy_words(&self, target: Offset) -> Option<[Offset; 2]> {
        let first = match self.bit_word(target)? {
            BitWord::Pages(number, word) => {
                self.geometry.group_record(number).plus(group::BUSY + word * 2 * WORD)
            }
            BitWord::Objects(page) => self.geometry.slab_record(page).plus(slab::BUSY),
        };
        Some([first, first.plus(WORD)])
    }

    /// The busy ones of the allocation bits at `target`.
    pub(crate) fn busy(&self, target: Offset) -> u64 {
        let Some([low, high]) = self.busy_words(target) else {
            return 0;
        };
        let low = self.value(low, Ordering::Acquire);
        u64::from(self.value(high, Ordering::Acquire)) << 32 | u64::from(low)
    }

    /// The allocation bits at `target` that nobody can allocate now: set, or busy.
    ///
    /// The bits themselves are looked at first: who sees one clear also sees that it was made busy
    /// before. The other way round, a bit could become busy and clear between the two looks.
    pub(crate) fn allocated_or_busy(&self, target: Offset) -> u64 {
        let allocated = self.memory.load(target, Ordering::Acquire);
        allocated | self.busy(target)
    }

    /// Makes `bits` at `target` busy.
    pub(crate) fn mark_busy(&self, target: Offset, bits: u64) {
        self.change_busy(target, bits, |old, bits| old | bits);
    }

    /// Ends the busy time of `bits` at `target`.
    pub(crate) fn clear_busy(&self, target: Offset, bits: u64) {
        self.change_busy(target, bits, |old, bits| old & !bits);
    }

    fn change_busy(&self, target: Offset, bits: u64, change: fn(u32, u32) -> u32) {
        let Some([low, high]) = self.busy_words(target) else {
            return;
        };
        for (at, bits) in [(low, bits as u32), (high, (bits >> 32) as u32)] {
            if bits != 0 {
                let (Ok(_) | Err(_)) =
                    self.update(at, 0, Ordering::AcqRel, |old| Some(change(old, bits)));
            }
        }
    }
}
