//! Who writes what is sealed, and waiting for it.
//!
//! Anybody may write at any time; that one does at a time is for speed: the others wait for him,
//! and what they have committed meanwhile is written together by the next one. A dead leader is
//! followed by whoever sees that; one who may be stopped, by whoever has waited long enough.

use core::sync::atomic::Ordering;
use core::time::Duration;

use conquest_format::log::head;
use conquest_format::{Offset, volatile};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// The lead, until it is dropped.
#[must_use]
pub struct Lead<'c, M: Memory, H: Host> {
    core: &'c Core<M, H>,
    me: u64,
}

impl<M: Memory, H: Host> Drop for Lead<'_, M, H> {
    fn drop(&mut self) {
        let at = self.core.leader_word();
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // Somebody else may have taken it.
        let (Ok(_) | Err(_)) = self.core.memory.compare_exchange(at, self.me, 0, order, failure);
        self.core.memory.wake(self.core.geometry.log_head(head::DURABLE), u32::MAX);
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    fn leader_word(&self) -> Offset {
        self.geometry.log_head(head::LEADER)
    }

    /// Takes the lead, if nobody has it who is alive; or anyway, if `from_anyone`.
    pub fn lead(&self, from_anyone: bool) -> Option<Lead<'_, M, H>> {
        let at = self.leader_word();
        let leader = self.memory.load(at, Ordering::Relaxed);
        let is_free = leader == 0 || from_anyone || !self.may_lead(leader as u32);
        let me = u64::from(self.me());
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_taken =
            is_free && self.memory.compare_exchange(at, leader, me, order, failure).is_ok();
        is_taken.then_some(Lead { core: self, me })
    }

    /// Whether thread `leader` may still be at work.
    fn may_lead(&self, leader: u32) -> bool {
        let slots = self.geometry.shape().slots;
        let Some(slot) = volatile::owner_slot(leader).filter(|&slot| slot < slots) else {
            return false;
        };
        if slot == self.slot.load(Ordering::Relaxed) {
            return self.host.is_thread_alive(volatile::owner_thread(leader));
        }
        self.host.is_claimed(slot).unwrap_or(true)
    }

    /// Sleeps while records below `durable`, and no others, are durable, until somebody gives the
    /// lead up or this long.
    pub fn await_durable(&self, durable: u64, timeout: Duration) {
        let at = self.geometry.log_head(head::DURABLE);
        self.memory.wait(at, durable as u32, timeout);
    }
}
