//! Which segments are free: where one is needed, most are not looked at.
//!
//! Whoever looks at all of them remembers which were free. They are looked at again, one by one,
//! when one is needed: others may have begun them since. Those that have become free since are
//! found when what is remembered does not suffice.

use std::cmp::Reverse;
use std::sync::PoisonError;

use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::index::{Of, Words};
use crate::volume::Volume;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Segments that can be begun anew.
    pub(crate) fn count_free(&self) -> Result<u64> {
        self.change(|change| {
            let free = self.free_segments(&change.tx)?;
            let count = free.len() as u64;
            self.remember_free(free);
            Ok(count)
        })
    }

    /// A segment to be begun that leaves `left` others: how many are free, or as many as matter;
    /// and the one that was begun least often, as far as that is known, or most often, for what
    /// `is_for_long`.
    pub(crate) fn free_for(
        &self,
        tx: &Tx<'_, M, H>,
        left: u64,
        is_for_long: bool,
    ) -> Result<(u64, Option<u64>)> {
        if !self.levels_wear() {
            let (count, best) = self.known_free_for(tx, &self.held_segments(tx)?, left);
            // Who makes space has looked at all, and does so when others come for it.
            if count > left || !self.space.is_mine() {
                return Ok((count, best));
            }
        }
        let free = self.free_segments(tx)?;
        let best = if is_for_long { free.first() } else { free.last() };
        let found = (free.len() as u64, best.copied());
        self.remember_free(free);
        Ok(found)
    }

    /// [`Self::free_for`] among those that are remembered, if these are `held`.
    pub(crate) fn known_free_for(
        &self,
        words: &impl Words,
        held: &[u64],
        left: u64,
    ) -> (u64, Option<u64>) {
        let mut known = self.known_free.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = left.saturating_add(self.kept_ahead() + 1);
        let mut free = Vec::new();
        while (free.len() as u64) < enough
            && let Some(segment) = known.pop()
        {
            if self.is_reusable(words, segment, held) {
                free.push(segment);
            }
        }
        let found = (free.len() as u64, free.first().copied());
        known.extend(free.into_iter().rev());
        found
    }

    /// All that are free, the one last that was begun least often.
    fn free_segments(&self, tx: &Tx<'_, M, H>) -> Result<Vec<u64>> {
        let held = self.held_segments(tx)?;
        let core = self.core.as_ref();
        // Most are in use. One in which a change under way has made the last unit dead is not free
        // before that was flushed.
        let is_free = |&segment: &u64| {
            core.segment(segment, Of::Live) == 0 && self.is_reusable(tx, segment, &held)
        };
        let mut free: Vec<u64> = (0..self.layout.segments).filter(is_free).collect();
        free.sort_by_key(|&segment| Reverse((tx.usage(segment).1, segment)));
        Ok(free)
    }

    pub(crate) fn remember_free(&self, free: Vec<u64>) {
        *self.known_free.lock().unwrap_or_else(PoisonError::into_inner) = free;
    }
}
