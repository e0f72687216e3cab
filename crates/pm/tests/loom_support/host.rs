//! Processes and their claims: what the kernel knows.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use conquest_pm::Result;
use conquest_pm::host::{Host, Identity};
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::locked;

/// All processes.
pub(crate) struct World {
    /// Who holds the lock of each slot, plus one; then who has the turn of seeing to each; then the
    /// attach lock.
    claims: Mutex<Vec<Arc<AtomicU32>>>,
    kept: Mutex<Vec<u32>>,
}

impl World {
    pub(super) fn new(slots: u32) -> Arc<World> {
        let world =
            World { claims: Mutex::default(), kept: Mutex::new(vec![0; 2 * slots as usize + 1]) };
        world.start();
        Arc::new(world)
    }

    /// Remembers who holds what as the state to start from.
    pub(super) fn keep(&self) {
        let claims = locked(&self.claims).clone();
        *locked(&self.kept) = claims.iter().map(|claim| claim.load(Acquire)).collect();
    }

    pub(super) fn start(&self) {
        let kept = locked(&self.kept).clone();
        *locked(&self.claims) =
            kept.into_iter().map(|value| Arc::new(AtomicU32::new(value))).collect();
    }

    /// Process `actor`.
    pub(crate) fn host(self: &Arc<Self>, actor: u32) -> ModelHost {
        ModelHost { world: Arc::clone(self), actor }
    }

    /// Frees whatever `actor` holds. All that it did before is visible to who finds out.
    pub(super) fn kill(&self, actor: u32) {
        let claims = locked(&self.claims).clone();
        for claim in claims {
            let _ = claim.compare_exchange(actor + 1, 0, Release, Acquire);
        }
    }

    fn word(&self, lock: u32) -> Arc<AtomicU32> {
        Arc::clone(&locked(&self.claims)[lock as usize])
    }

    fn slots(&self) -> u32 {
        locked(&self.kept).len() as u32 / 2
    }

    /// What the kernel knows is never stale, but asking tells others nothing: a change that changes
    /// nothing and releases nothing.
    fn holder(&self, lock: u32) -> u32 {
        self.word(lock).fetch_add(0, Acquire)
    }

    fn claim(self: &Arc<Self>, lock: u32, actor: u32) -> Option<ModelClaim> {
        let taken = self.word(lock).compare_exchange(0, actor + 1, AcqRel, Acquire);
        taken.is_ok().then(|| ModelClaim { world: Arc::clone(self), lock, actor })
    }
}

/// A claim of `actor`.
pub(crate) struct ModelClaim {
    world: Arc<World>,
    lock: u32,
    actor: u32,
}

impl Drop for ModelClaim {
    fn drop(&mut self) {
        // Who unwinds has died: the kernel frees it, in `World::kill`.
        if !std::thread::panicking() {
            let _ =
                self.world.word(self.lock).compare_exchange(self.actor + 1, 0, Release, Acquire);
        }
    }
}

/// The host as one process sees it.
#[derive(Clone)]
pub(crate) struct ModelHost {
    world: Arc<World>,
    actor: u32,
}

impl Host for ModelHost {
    type Claim = ModelClaim;
    type Carried = ModelClaim;

    fn claim(&self, slot: u32) -> Result<Option<ModelClaim>> {
        Ok(self.world.claim(slot, self.actor))
    }

    fn claim_to_carry(&self, slot: u32) -> Result<Option<ModelClaim>> {
        self.claim(slot)
    }

    fn claim_turn(&self, slot: u32) -> Result<Option<ModelClaim>> {
        Ok(self.world.claim(self.world.slots() + slot, self.actor))
    }

    fn is_turn_taken(&self, slot: u32) -> Result<bool> {
        Ok(self.world.holder(self.world.slots() + slot) != 0)
    }

    fn is_claimed(&self, slot: u32) -> Result<bool> {
        Ok(self.world.holder(slot) != 0)
    }

    fn is_anyone_attached(&self) -> Result<bool> {
        Ok((0..self.world.slots()).any(|slot| self.world.holder(slot) != 0))
    }

    fn claim_attach(&self) -> Result<Option<ModelClaim>> {
        Ok(self.world.claim(2 * self.world.slots(), self.actor))
    }

    fn identity(&self) -> Identity {
        Identity { process: self.actor + 100, thread: self.actor + 1, namespace: 1 }
    }

    fn is_thread_alive(&self, _thread: u32) -> bool {
        true
    }

    fn is_forked(&self) -> bool {
        false
    }

    fn adopt(&self) -> Result<()> {
        Ok(())
    }

    fn process_state(&self, _process: u32, _namespace: u64) -> Option<char> {
        None
    }

    fn back(&self, _ranges: &[Range<u64>], _len: u64) -> Result<()> {
        Ok(())
    }

    fn boot_id(&self) -> [u8; 16] {
        [1; 16]
    }

    /// Time stands still: no decision may rest on it.
    fn now(&self) -> u64 {
        0
    }
}
