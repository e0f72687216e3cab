//! Waiting: spin, then sleep in the kernel, look for a dead holder, name a slow one.

use core::sync::atomic::Ordering;
use std::time::Duration;

use conquest_format::Offset;
use conquest_format::volatile::{self, lane, slot};

use crate::core::{Core, Holder};
use crate::host::Host;
use crate::memory::{Memory, Wake};
use crate::{Error, Result};

/// Looks at the word before the first sleep. None in a model: there, more of the same add nothing.
const SPINS: u32 = if cfg!(loom) { 0 } else { 64 };
/// Longest sleep before the holder's death is looked for: a fifth of the promised 100 ms.
pub(crate) const NAP: Duration = Duration::from_millis(20);
/// Looks at a lock between which its holder's lane belonged to nobody, before it counts as lost.
const LOST: u32 = 10;
/// Nanoseconds after which a holder is named.
const SLOW: u64 = 1_000_000_000;

/// One wait, from the first failed try to success.
pub(crate) struct Patience {
    spins: u32,
    /// Nanoseconds on the host's clock; set at the first sleep.
    since: Option<u64>,
    /// Nanoseconds waited when a holder was last named.
    named: u64,
    /// Sleeps in a row after which the holder's lane belonged to nobody.
    lost: u32,
    interruptible: bool,
}

impl Patience {
    pub(crate) fn new(interruptible: bool) -> Self {
        Patience { spins: 0, since: None, named: 0, lost: 0, interruptible }
    }

    /// Whether it is still too early to sleep.
    pub(crate) fn spin(&mut self) -> bool {
        self.spins += 1;
        core::hint::spin_loop();
        self.spins <= SPINS
    }

    /// Whether what is waited for has been held by nobody's lane for so long that nobody will ever
    /// let go of it. A lane that was left and taken again between two looks is no such.
    pub(crate) fn is_lost(&mut self, has_owner: bool) -> bool {
        self.lost = if has_owner || self.since.is_none() { 0 } else { self.lost + 1 };
        self.lost > LOST
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Sees to the owner of lane `holder`, who is why the caller waits: recovers it if it is dead,
    /// names it if it is slow. Otherwise sleeps while the volatile word at `at` has the low half
    /// `seen`, a nap at most: the caller looks again in any case.
    pub(crate) fn sleep(
        &self,
        patience: &mut Patience,
        at: Offset,
        seen: u32,
        holder: Option<u32>,
    ) -> Result<()> {
        self.check_health()?;
        let since = *patience.since.get_or_insert_with(|| self.host.now());
        if let Some(holder) = holder {
            if self.see_to(holder)? {
                return Ok(());
            }
            let waited = self.host.now().saturating_sub(since);
            if waited >= patience.named + SLOW {
                patience.named = waited;
                self.name_holder(holder, Duration::from_nanos(waited));
            }
        }
        match self.memory.wait(at, seen, NAP) {
            Wake::Interrupted if patience.interruptible => Err(Error::Interrupted),
            Wake::Woken | Wake::Interrupted | Wake::TimedOut => Ok(()),
        }
    }

    /// If the owner of lane `holder` is dead, recovers it; whether it was.
    pub(crate) fn see_to(&self, holder: u32) -> Result<bool> {
        let at = self.geometry.lane_record(holder).plus(lane::OWNER);
        let owner = self.lane_owner(holder);
        let Some(number) = volatile::owner_slot(owner) else {
            return Ok(false);
        };
        if owner == volatile::ORPHAN {
            // Whoever waits for lanes, or begins next, adopts it. Who made it an orphan may have
            // died before he told.
            self.tell_of_orphans();
            return Ok(false);
        }
        if number >= self.geometry.shape().slots {
            return Err(self.damaged("owner of a lane", at, "a process slot", u64::from(owner)));
        }
        if number == self.slot.load(Ordering::Relaxed) {
            return self.recover_own_thread(volatile::owner_thread(owner));
        }
        // To ask costs no descriptor, to claim does: who waits for the living opens no file.
        if self.host.is_claimed(number)? {
            return Ok(false);
        }
        self.recover_slot(number)
    }

    fn name_holder(&self, holder: u32, waited: Duration) {
        let Some(on_slow) = &self.options.on_slow else {
            return;
        };
        let owner = self.lane_owner(holder);
        let slots = self.geometry.shape().slots;
        let Some(number) = volatile::owner_slot(owner).filter(|&slot| slot < slots) else {
            return;
        };
        let record = self.geometry.slot(number);
        let process = self.value(record.plus(slot::PID), Ordering::Relaxed);
        let namespace = self.memory.load(record.plus(slot::PID_NAMESPACE), Ordering::Relaxed);
        let state = self.host.process_state(process, namespace);
        on_slow(Holder { process, thread: volatile::owner_thread(owner), state, waited });
    }
}
