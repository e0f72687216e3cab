//! An attached region: what every other module of this crate works on.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use conquest_format::kind::{Kind, KindSpec, KindTable};
use conquest_format::volatile::{self, head};
use conquest_format::{Geometry, Offset};

use crate::host::Host;
use crate::memory::Memory;
use crate::{Error, Result};

/// A holder that makes others wait although it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process id, in its own pid namespace.
    pub process: u32,
    /// Its thread id, in its own pid namespace.
    pub thread: u32,
    /// State letter as in `/proc/PID/stat` (`T` is stopped), if it can be seen from here.
    pub state: Option<char>,
    /// How long somebody has waited for it.
    pub waited: Duration,
}

/// What finishes an intent: called with the transaction of one step and the intent as it stands;
/// stages the step's changes and the intent's next state. Called again until the code is 0.
pub type IntentHandler<M, H> =
    Box<dyn Fn(&mut crate::tx::Tx<'_, M, H>, crate::intent::Intent) -> Result<()> + Send + Sync>;

/// Makes what is in the log durable.
pub type DurableMaker<M, H> = Box<dyn Fn(&Core<M, H>) -> Result<()> + Send + Sync>;

/// Choices of one process.
pub struct Options<M: Memory, H: Host> {
    /// Finishes intents, whoever began them.
    pub intents: Option<IntentHandler<M, H>>,
    /// Ends holdings of the dead, and buries what they kept in existence.
    pub burials: Option<crate::holdings::BurialHandler<M, H>>,
    /// Makes durable what is in the log of a region that has one: called when it is getting full,
    /// also by who holds locks.
    pub make_durable: Option<DurableMaker<M, H>>,
    /// What a region is loaded from that may be so: its image on a volume.
    pub fill: Option<Arc<dyn crate::media::Fill>>,
    /// Told of a holder that has made a wait last a second, and then every second.
    pub on_slow: Option<Box<dyn Fn(Holder) + Send + Sync>>,
    /// Groups by which the region grows when it is out of space.
    pub growth_groups: u64,
    /// Longest wait for other processes that attach or detach.
    pub attach_patience: Duration,
}

impl<M: Memory, H: Host> Default for Options<M, H> {
    fn default() -> Self {
        Options {
            intents: None,
            burials: None,
            make_durable: None,
            fill: None,
            on_slow: None,
            growth_groups: 16,
            attach_patience: Duration::from_secs(10),
        }
    }
}

/// A region that this process has attached.
pub struct Core<M: Memory, H: Host> {
    pub(crate) memory: M,
    pub(crate) host: H,
    pub(crate) geometry: Geometry,
    pub(crate) kinds: KindTable,
    pub(crate) path: PathBuf,
    pub(crate) options: Options<M, H>,
    /// Tag of volatile words in the present attach generation.
    pub(crate) tag: AtomicU32,
    /// This process's slot; [`NO_SLOT`] while it has none.
    pub(crate) slot: AtomicU32,
    pub(crate) claim: Mutex<Option<H::Claim>>,
    /// The thread that recovers dead threads of this process, 0 for none.
    pub(crate) turn: AtomicU32,
    /// Most groups that this process has seen.
    pub(crate) groups_seen: AtomicU64,
    /// Groups that are known to be in the durable number of groups.
    pub(crate) groups_durable: AtomicU64,
    /// This value, for the threads that use it.
    pub(crate) this: Weak<Self>,
    /// Differs between the values of this type in a process.
    pub(crate) id: u64,
    /// Forked children on the way here that have become processes of their own.
    pub(crate) life: AtomicU32,
    failed: AtomicBool,
    reason: Mutex<&'static str>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Not a slot number.
pub(crate) const NO_SLOT: u32 = u32::MAX;

impl<M: Memory, H: Host> Core<M, H> {
    pub(crate) fn new(
        memory: M,
        host: H,
        path: &Path,
        geometry: Geometry,
        kinds: KindTable,
        options: Options<M, H>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Core {
            memory,
            host,
            geometry,
            kinds,
            path: path.to_owned(),
            options,
            tag: AtomicU32::new(0),
            slot: AtomicU32::new(NO_SLOT),
            claim: Mutex::new(None),
            turn: AtomicU32::new(0),
            groups_seen: AtomicU64::new(0),
            groups_durable: AtomicU64::new(0),
            this: this.clone(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            life: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            reason: Mutex::new("its state can't be trusted"),
        })
    }

    /// The region's identity.
    ///
    /// # Errors
    /// Those of a superblock that is damaged.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let found = crate::superblock::read(&self.memory);
        crate::superblock::choose(&self.path, &found).map(|superblock| superblock.uuid)
    }

    /// The region's file, or what stands for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The region's layout.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The region's bytes.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The machine below.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// This process's slot.
    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// Which process of a line of descent the calling one is, among those that have used this
    /// value; none in a forked child that has not, yet. What a process has (holdings) is its own
    /// only if this is as it was when it got it. Two loads.
    pub fn life(&self) -> Option<u32> {
        if self.host.is_forked() {
            return None;
        }
        // Who sees that the child is a process sees which one.
        self.memory.load_fence();
        Some(self.life.load(Ordering::Relaxed))
    }

    /// What `kind` looks like in this region.
    pub fn spec(&self, kind: Kind) -> KindSpec {
        self.kinds.get(usize::from(kind.number())).copied().unwrap_or(KindSpec::UNUSED)
    }

    /// Groups that have space now. Who sees a new one too early finds its bitmap as it was, which
    /// can only hide free pages.
    pub fn groups(&self) -> u64 {
        let groups = self.memory.load(conquest_format::geometry::STATE_GROUPS, Ordering::Relaxed);
        groups.min(self.geometry.shape().max_groups)
    }

    /// Makes every later operation of this process fail, for `reason`.
    pub(crate) fn fail(&self, reason: &'static str) {
        self.end(reason);
        self.set_value(self.geometry.head(head::FAILED), 1, Ordering::Relaxed);
    }

    /// Makes every later operation on this value fail, for `reason`.
    pub(crate) fn end(&self, reason: &'static str) {
        // A signal handler that interrupted this must not wait for it.
        if let Ok(mut place) = self.reason.try_lock() {
            *place = reason;
        }
        // Who sees the flag may still find an older reason: nothing else hangs on it.
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Takes a failure back.
    pub(crate) fn mend(&self) {
        self.failed.store(false, Ordering::Relaxed);
    }

    /// The error for something impossible that no operation could get around: the region has
    /// failed.
    #[cold]
    pub(crate) fn damaged(
        &self,
        what: &'static str,
        offset: Offset,
        expected: &'static str,
        found: u64,
    ) -> Error {
        self.fail(what);
        Error::Corrupt { what, offset, expected, found }
    }

    /// Whether the region can still be used: its file, its memory, and what was found on it.
    ///
    /// # Errors
    /// [`Error::Failed`], with the reason.
    pub fn check_health(&self) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) {
            let reason = self.reason.try_lock().map_or("it is failing now", |reason| *reason);
            return Err(Error::Failed { reason });
        }
        if let Some(reason) = self.memory.failure() {
            self.fail(reason);
            return Err(Error::Failed { reason });
        }
        if self.value(self.geometry.head(head::FAILED), Ordering::Relaxed) != 0 {
            return Err(Error::Failed { reason: "another process found it damaged" });
        }
        Ok(())
    }

    /// The owner word of the calling thread.
    pub(crate) fn me(&self) -> u32 {
        volatile::owner(self.slot.load(Ordering::Relaxed), self.host.identity().thread)
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag.load(Ordering::Relaxed)
    }

    // --- volatile words ----------------------------------------------------------------------

    /// The volatile value at `at`: 0 if nobody has set it in this attach generation.
    pub(crate) fn value(&self, at: Offset, order: Ordering) -> u32 {
        volatile::current(self.memory.load(at, order), self.tag()).unwrap_or(0)
    }

    /// Stores the volatile value `value` at `at`, which nobody else stores to.
    pub(crate) fn set_value(&self, at: Offset, value: u32, order: Ordering) {
        self.memory.store(at, volatile::tagged(self.tag(), value), order);
    }

    /// Changes the volatile value at `at` to what `change` makes of it, atomically; `default` is
    /// the value of a word that nobody has set. `Err` with the value found if `change` refuses:
    /// that orders nothing.
    pub(crate) fn update(
        &self,
        at: Offset,
        default: u32,
        success: Ordering,
        mut change: impl FnMut(u32) -> Option<u32>,
    ) -> core::result::Result<u32, u32> {
        let tag = self.tag();
        let mut word = self.memory.load(at, Ordering::Relaxed);
        loop {
            let old = volatile::current(word, tag).unwrap_or(default);
            let Some(new) = change(old) else {
                return Err(old);
            };
            let new = volatile::tagged(tag, new);
            match self.memory.compare_exchange(at, word, new, success, Ordering::Relaxed) {
                Ok(_) => return Ok(old),
                Err(found) => word = found,
            }
        }
    }

    /// Changes the volatile value at `at` from `old` to `new`; whether it was `old`.
    pub(crate) fn replace(&self, at: Offset, old: u32, new: u32, success: Ordering) -> bool {
        self.update(at, 0, success, |found| (found == old).then_some(new)).is_ok()
    }
}
