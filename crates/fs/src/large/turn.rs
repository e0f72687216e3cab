//! Turns at what the volume has of a file: a lock of the process, as record locks are, so it goes
//! with its process. It is held while the volume is asked, so it guards nothing that anybody needs
//! who does not ask the volume: reading takes no turn, and neither does writing to the core.

use core::sync::atomic::{AtomicU64, Ordering};

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::FileId;
use crate::locks::{END, Lock, Mode, TURN, Wait, Who};
use crate::{FileSystem, Result};

/// Tells apart the turns of a process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Does `work` in a turn at `file`: with others, if they are in shared ones, or alone.
    pub(super) fn in_turn<T>(
        &self,
        file: FileId,
        mode: Mode,
        wait: Wait,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let core = self.core();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let who = Who { kind: TURN, slot: Some(core.slot()), number };
        let process = core.host().identity().process;
        let wish = Lock { who, first: 0, last: END, mode: Some(mode), process };
        self.set_lock(file, &wish, wait)?;
        let done = work();
        let ended = self.set_lock(file, &Lock { mode: None, ..wish }, Wait::No);
        let value = done?;
        ended?;
        Ok(value)
    }
}
