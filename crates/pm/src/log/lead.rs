//! Who writes what is sealed, and waiting for it.
//!
//! Anybody may write at any time; that one does at a time is for speed: the others wait for him,
//! and what they have committed meanwhile is written together by the next one. A dead leader is
//! followed by whoever sees that; one who may be stopped, by whoever has waited long enough.
//!
//! Those who wait belong to a *group*: who takes the lead serves the present one, and those who
//! come later are the next. He *hands the lead on* when what he has written is about to be flushed:
//! then he wakes a single waiter of the next group, who seals and writes what has come meanwhile.
//! When it is durable, he wakes his group. So nobody wakes for what is not his, however many wait.

use core::sync::atomic::Ordering;
use core::time::Duration;

use conquest_format::log::{GROUPS, head};
use conquest_format::{LINE, Offset, volatile};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// Who makes nothing durable for so long may be stopped: somebody else leads then, too.
pub const PATIENCE: Duration = Duration::from_millis(250);
/// Longest sleep of who waits: then he looks whether anybody leads.
const LOOK: Duration = Duration::from_millis(31);
/// Before that nobody looks whether who leads is alive: that takes system calls, and he mostly is.
const TRUST: Duration = Duration::from_millis(2);

/// The lead, until it is [handed on](Lead::hand_on) or dropped; and who waits for it to be dropped.
#[must_use]
pub struct Lead<'c, M: Memory, H: Host> {
    core: &'c Core<M, H>,
    me: u64,
    /// The group that comes after those who are served.
    next: u64,
    is_handed_on: bool,
}

/// Somebody who waits: which group he is in, and what its bell had rung when he looked last.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    group: u64,
    rung: u32,
}

impl<M: Memory, H: Host> Drop for Lead<'_, M, H> {
    fn drop(&mut self) {
        self.hand_on();
        // Also those before, whose leader has died.
        for group in [self.next.wrapping_sub(1), self.next.wrapping_sub(2)] {
            self.core.ring_bell_of(group, u32::MAX);
        }
    }
}

impl<M: Memory, H: Host> Lead<'_, M, H> {
    /// Lets somebody else lead. Those who are served go on waiting until this is dropped.
    pub fn hand_on(&mut self) {
        if core::mem::replace(&mut self.is_handed_on, true) {
            return;
        }
        let at = self.core.leader_word();
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // Somebody else may have taken it.
        let (Ok(_) | Err(_)) = self.core.memory.compare_exchange(at, self.me, 0, order, failure);
        self.core.ring_bell_of(self.next, 1);
    }
}

// Those who are served, those of who leads meanwhile, those after them, and those before.
const _: () = assert!(GROUPS >= 4);

impl<M: Memory, H: Host> Core<M, H> {
    fn leader_word(&self) -> Offset {
        self.geometry.log_head(head::LEADER)
    }

    fn bell(&self, group: u64) -> Offset {
        self.geometry.log_head(head::BELLS + group % GROUPS * LINE)
    }

    fn ring_bell_of(&self, group: u64, count: u32) {
        self.add_to_log_word(head::BELLS + group % GROUPS * LINE, 1, Ordering::AcqRel);
        self.memory.wake(self.bell(group), count);
    }

    /// The calling thread waits from now on: for what was committed before.
    pub fn begin_waiting(&self) -> Waiting {
        // Who takes the lead later sees what was committed.
        self.memory.full_fence();
        self.look_at_bell(self.log_word(head::GROUP, Ordering::Acquire))
    }

    fn look_at_bell(&self, group: u64) -> Waiting {
        let rung = self.memory.load(self.bell(group), Ordering::Acquire) as u32;
        Waiting { group, rung }
    }

    /// The calling thread, which was `waiting`, needs no more: if it was woken to lead its group,
    /// somebody else has to.
    pub fn end_waiting(&self, waiting: Waiting) {
        if self.log_word(head::GROUP, Ordering::Acquire) == waiting.group {
            self.ring_bell_of(waiting.group, 1);
        }
    }

    /// Takes the lead, for who has waited so long in vain, if nobody has it: or somebody who is
    /// dead, or whom nobody waits for any more.
    pub fn lead(&self, waited: Duration) -> Option<Lead<'_, M, H>> {
        let at = self.leader_word();
        let leader = self.memory.load(at, Ordering::Relaxed);
        let is_given_up = || waited > PATIENCE || (waited > TRUST && !self.may_lead(leader as u32));
        let is_free = leader == 0 || is_given_up();
        let me = u64::from(self.me());
        let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if !is_free || self.memory.compare_exchange(at, leader, me, order, failure).is_err() {
            return None;
        }
        let group = self.add_to_log_word(head::GROUP, 1, Ordering::AcqRel);
        self.memory.full_fence();
        Some(Lead { core: self, me, next: group.wrapping_add(1), is_handed_on: false })
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

    /// Sleeps until something has come since `waiting` was looked at last, or it is time to look
    /// whether anybody leads, for who has `waited` so long in vain.
    pub fn wait_on(&self, waiting: Waiting, waited: Duration) -> Waiting {
        let timeout = (TRUST + waited).min(LOOK);
        self.memory.wait(self.bell(waiting.group), waiting.rung, timeout);
        self.look_at_bell(waiting.group)
    }
}
