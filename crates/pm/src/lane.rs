//! Taking and leaving a journal lane.
//!
//! A lane belongs to one thread from the begin of an operation to its end; its caches (leased
//! group, leased slabs) stay with the lane and serve whoever takes it next, so what a dead process
//! had cached is not lost. A thread tries the lane it had last, so in a quiet system each thread
//! keeps its own and no cache line moves. What only the owner uses (the journal page; in the
//! record, all but the locks held) is loaded and stored without orderings of
//! its own: the owner word, acquired and released, orders it, and the kernel what a dead owner did.
//!
//! When all lanes are taken, threads queue. A ticket is a cell of the ring, claimed by one
//! compare-and-exchange that writes the thread's name, so every ticket's holder is known; the
//! thread whose ticket is served takes the next lane that becomes free, the others let it. A dead
//! holder's ticket is struck out by anybody.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use conquest_format::volatile::{self, head, lane};
use conquest_format::{Offset, volatile::QUEUE_CELLS};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::wait::Patience;
use crate::{Error, Result};

#[cfg(not(loom))]
thread_local! {
    /// The lane this thread had last: only a hint.
    static LAST: Cell<u32> = const { Cell::new(u32::MAX) };
}
// A model's threads are not threads of the system.
#[cfg(loom)]
loom::thread_local! { static LAST: Cell<u32> = Cell::new(u32::MAX); }

impl<M: Memory, H: Host> Core<M, H> {
    fn owner_word(&self, number: u32) -> Offset {
        self.geometry.lane_record(number).plus(lane::OWNER)
    }

    /// Takes a free lane, waiting for one if need be.
    pub(crate) fn take_lane(&self, interruptible: bool) -> Result<u32> {
        if self.queue_is_empty()
            && let Some(number) = self.try_take_any()
        {
            return Ok(number);
        }
        if self.has_lane() {
            return self.take_second_lane();
        }
        let mut patience = Patience::new(interruptible);
        let ticket = self.draw_ticket(&mut patience)?;
        let taken = self.wait_for_turn(ticket, &mut patience);
        self.strike_ticket(ticket, self.me());
        taken
    }

    /// Whether an operation of the calling thread, which a signal interrupted, has a lane.
    fn has_lane(&self) -> bool {
        let me = self.me();
        (0..self.geometry.shape().lanes).any(|number| self.lane_owner(number) == me)
    }

    /// Takes a lane for a signal handler, without waiting: others may wait for what the interrupted
    /// operation holds.
    fn take_second_lane(&self) -> Result<u32> {
        if let Some(number) = self.try_take_any() {
            return Ok(number);
        }
        for number in 0..self.geometry.shape().lanes {
            self.see_to(number)?;
        }
        self.try_take_any().ok_or(Error::OwnLane)
    }

    /// Refuses to try again and again for what lane `number` has, if an operation of the calling
    /// thread holds it, which a signal interrupted.
    pub(crate) fn refuse_own_lane(&self, number: u32) -> Result<()> {
        if self.lane_owner(number) == self.me() { Err(Error::OwnLane) } else { Ok(()) }
    }

    /// Gives lane `number` back.
    pub(crate) fn leave_lane(&self, number: u32) {
        self.set_value(self.owner_word(number), 0, Ordering::Release);
        if !self.queue_is_empty() {
            self.ring();
        }
    }

    /// Takes lane `number` if its owner is `from`.
    pub(crate) fn try_take(&self, number: u32, from: u32) -> bool {
        self.replace(self.owner_word(number), from, self.me(), Ordering::AcqRel)
    }

    /// The owner of lane `number`, 0 for nobody. Whoever goes on to take the lane acquires it then.
    pub(crate) fn lane_owner(&self, number: u32) -> u32 {
        self.value(self.owner_word(number), Ordering::Relaxed)
    }

    /// Makes the caller's lane `number` an orphan, for anybody to adopt.
    pub(crate) fn orphan_lane(&self, number: u32) {
        self.set_value(self.owner_word(number), volatile::ORPHAN, Ordering::Release);
        self.tell_of_orphans();
    }

    fn try_take_any(&self) -> Option<u32> {
        let lanes = self.geometry.shape().lanes;
        let me = self.me();
        // Threads that have no lane yet start at different places.
        let start = match LAST.with(Cell::get) {
            u32::MAX => me.wrapping_mul(0x9E37_79B1) % lanes,
            last => last % lanes,
        };
        let number = (0..lanes)
            .map(|step| (start + step) % lanes)
            .find(|&number| self.lane_owner(number) == 0 && self.try_take(number, 0))?;
        LAST.with(|last| last.set(number));
        Some(number)
    }

    // --- the queue ---------------------------------------------------------------------------
    //
    // Its words guard nothing: the lane's owner word does. Whoever finds a cell or the number of
    // tickets older than it is passes a ticket over, which counts as its turn. One thing must hold,
    // that nobody sees more tickets served than drawn: who moves SERVING on has seen that many
    // drawn, and releases it; who looks at both looks at SERVING first, and acquires it.

    fn next(&self) -> u32 {
        self.value(self.geometry.head(head::QUEUE_NEXT), Ordering::Relaxed)
    }

    fn serving(&self) -> u32 {
        self.value(self.geometry.head(head::QUEUE_SERVING), Ordering::Acquire)
    }

    /// How often the bell has rung. Who looks before he sees that it is not his turn, or that no
    /// lane is free, and then sleeps until it rings again, misses nothing.
    fn rung(&self) -> u32 {
        self.value(self.geometry.head(head::BELL), Ordering::Acquire)
    }

    /// Tells everybody who waits that a lane is free or a ticket served.
    fn ring(&self) {
        let bell = self.geometry.head(head::BELL);
        let next = |rung: u32| Some(rung.wrapping_add(1));
        let (Ok(_) | Err(_)) = self.update(bell, 0, Ordering::Release, next);
        self.memory.wake(bell, u32::MAX);
    }

    fn queue_is_empty(&self) -> bool {
        self.serving() == self.next()
    }

    /// Claims the next cell of the ring. Whoever finds it claimed moves the counter on, so a death
    /// between the two steps holds nobody up.
    fn draw_ticket(&self, patience: &mut Patience) -> Result<u32> {
        let me = self.me();
        let counter = self.geometry.head(head::QUEUE_NEXT);
        loop {
            let serving = self.serving();
            let ticket = self.next();
            if u64::from(ticket.wrapping_sub(serving)) >= QUEUE_CELLS {
                let rung = self.rung();
                self.serve_next();
                self.check_queue()?;
                if self.serving() == serving {
                    self.sleep(patience, self.geometry.head(head::BELL), rung, None)?;
                }
                continue;
            }
            let claimed = self.replace(self.geometry.queue_cell(ticket), 0, me, Ordering::Relaxed);
            self.replace(counter, ticket, ticket.wrapping_add(1), Ordering::Relaxed);
            if claimed {
                return Ok(ticket);
            }
        }
    }

    fn wait_for_turn(&self, ticket: u32, patience: &mut Patience) -> Result<u32> {
        let mut probe = 0;
        loop {
            let rung = self.rung();
            // All lanes may have become orphans.
            self.adopt_orphans()?;
            // Unsigned distance: a ticket that was passed over counts as served.
            let serving = self.serving();
            let ahead = ticket.wrapping_sub(serving);
            // And a handler may use the turn of the thread that it interrupted.
            let is_my_turn = ahead == 0
                || u64::from(ahead) >= QUEUE_CELLS
                || self.value(self.geometry.queue_cell(serving), Ordering::Relaxed) == self.me();
            if is_my_turn && let Some(number) = self.try_take_any() {
                return Ok(number);
            }
            if patience.spin() {
                continue;
            }
            self.serve_next();
            self.check_queue()?;
            if self.next().wrapping_sub(ticket) as i32 <= 0 {
                let at = self.geometry.head(head::QUEUE_NEXT);
                let found = u64::from(self.next());
                return Err(self.damaged("lane queue", at, "tickets past those drawn", found));
            }
            probe = (probe + 1) % self.geometry.shape().lanes;
            self.sleep(patience, self.geometry.head(head::BELL), rung, Some(probe))?;
        }
    }

    /// The queue's counters must be no further apart than the ring is long.
    fn check_queue(&self) -> Result<()> {
        let serving = self.serving();
        let waiting = self.next().wrapping_sub(serving);
        if u64::from(waiting) > QUEUE_CELLS && self.serving() == serving {
            let at = self.geometry.head(head::QUEUE_NEXT);
            let found = u64::from(waiting);
            return Err(self.damaged("lane queue", at, "no more tickets than cells", found));
        }
        Ok(())
    }

    /// Gives ticket `ticket` of thread `holder` up and lets the next one be served.
    fn strike_ticket(&self, ticket: u32, holder: u32) {
        self.replace(self.geometry.queue_cell(ticket), holder, 0, Ordering::Relaxed);
        self.serve_next();
    }

    /// Moves on past tickets that nobody holds any more.
    fn serve_next(&self) {
        let at = self.geometry.head(head::QUEUE_SERVING);
        for _ in 0..QUEUE_CELLS {
            let serving = self.serving();
            if serving == self.next() {
                return;
            }
            let holder = self.value(self.geometry.queue_cell(serving), Ordering::Relaxed);
            if holder != 0 && self.holds_ticket(holder) {
                return;
            }
            if holder != 0 {
                let cell = self.geometry.queue_cell(serving);
                self.replace(cell, holder, 0, Ordering::Relaxed);
            }
            self.replace(at, serving, serving.wrapping_add(1), Ordering::Release);
            self.ring();
        }
    }

    /// Whether thread `holder` can still be waiting.
    fn holds_ticket(&self, holder: u32) -> bool {
        let slots = self.geometry.shape().slots;
        let Some(slot) = volatile::owner_slot(holder).filter(|&slot| slot < slots) else {
            return false;
        };
        if slot == self.slot.load(Ordering::Relaxed) {
            return self.host.is_thread_alive(volatile::owner_thread(holder));
        }
        self.host.is_claimed(slot).unwrap_or(true)
    }
}
