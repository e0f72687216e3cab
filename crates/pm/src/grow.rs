//! Growing: the file grows beneath the mapping, a few groups at a time.
//!
//! Space is allocated by the host before any allocator owns it, so that a shortage is an error here
//! and never a signal later. The number of groups is one word that only grows, under a lock of its
//! own: it needs no journal. What makes it durable is the first record of each process that
//! allocates in a new group: others see the word before a fence here could be done, so that fence
//! would not help them.

use core::ops::Range;
use core::sync::atomic::Ordering;

use conquest_format::geometry::STATE_GROUPS;
use conquest_format::{GROUP, GROUP_PAGES, LINE};

use crate::core::Core;
use crate::host::Host;
use crate::lock::{GROW_LOCK, Mode};
use crate::memory::Memory;
use crate::tx::{GROW_PLACE, Tx};
use crate::{Error, Result};

impl<M: Memory, H: Host> Core<M, H> {
    /// Grows the region by the usual step, less where there is less, for lane `lane`; whether there
    /// is more space than before.
    pub(crate) fn grow(&self, lane: u32) -> Result<bool> {
        let seen = self.groups();
        if seen >= self.geometry.shape().max_groups {
            return Ok(false);
        }
        self.acquire(lane, GROW_PLACE, GROW_LOCK, Mode::Exclusive, false)?;
        let grown = if self.groups() > seen {
            Ok(true)
        } else {
            // A number of groups that was damaged must not clear the bitmaps of groups in use.
            self.check_groups().and_then(|()| self.grow_from(seen))
        };
        self.release(lane, GROW_PLACE, GROW_LOCK, Mode::Exclusive);
        grown
    }

    fn grow_from(&self, from: u64) -> Result<bool> {
        let most = self.geometry.shape().max_groups - from;
        let mut step = self.options.growth_groups.clamp(1, most);
        loop {
            match self.grow_to(from, from + step) {
                Ok(()) => return Ok(true),
                Err(Error::System { source, .. })
                    if matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) =>
                {
                    if step == 1 {
                        return Ok(false);
                    }
                    step /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives groups `from..to` space, marks their pages free and publishes them.
    pub(crate) fn grow_to(&self, from: u64, to: u64) -> Result<()> {
        self.host.back(&self.geometry.space(from, to), self.geometry.len_at(to))?;
        let bitmaps = self.geometry.bitmap(from);
        self.memory.put_zeros(bitmaps, (to - from) * LINE);
        self.memory.write_back(bitmaps, (to - from) * LINE);
        self.memory.fence();
        self.memory.put(STATE_GROUPS, to, Ordering::Relaxed);
        Ok(())
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Makes the pages of `groups`, which have space, ready: the first stores to them take no
    /// longer than others.
    pub fn make_ready(&self, groups: Range<u64>) {
        for group in groups {
            self.memory.make_ready(self.geometry.page(group * GROUP_PAGES), GROUP);
        }
    }
}

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Lets the region grow until about `pages` pages are free, as far as it can: the groups that
    /// are new.
    ///
    /// # Errors
    /// Those of the system, but for a lack of space.
    pub fn provide(&mut self, pages: u64) -> Result<Range<u64>> {
        let from = self.core.groups();
        let used = self.core.pages_used();
        let is_enough = |groups: u64| (groups * GROUP_PAGES).saturating_sub(used) >= pages;
        while !is_enough(self.core.groups()) && self.core.grow(self.lane)? {}
        Ok(from..self.core.groups())
    }
}
