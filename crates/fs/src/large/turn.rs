//! Turns at a chunk of the volume's space: a lock of the process, as record locks are, so it goes
//! with its process. It is held while the volume is asked, so it guards nothing that anybody needs
//! who does not ask the volume: reading takes no turn, and neither does writing to the core.
//!
//! It is one of the chunk, not of the file: who pushes need not have the file open, so it may be
//! removed meanwhile. Then what he writes goes to a chunk that nobody has, and that no other file
//! gets before it was trimmed, alone.

use core::sync::atomic::{AtomicU64, Ordering};

use conquest_format::Offset;
use conquest_format::inode::NUMBER_UNIT;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::inode::FileId;
use crate::locks::{END, Lock, Mode, TURN, Wait, Who};
use crate::{FileSystem, Result};

/// Tells apart the turns of a process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Does `work` in a turn at the chunk that `file` has: with others, if they are in shared ones,
    /// or alone. None if it has none.
    pub(super) fn in_turn<T>(
        &self,
        file: FileId,
        mode: Mode,
        wait: Wait,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        let mut work = Some(work);
        while let Some((at, _)) = self.placed_chunk_of(file)? {
            let done = self.in_turn_at(at, mode, wait, || {
                // Another turn may have come before this one.
                let is_its = self.placed_chunk_of(file)?.is_some_and(|(now, _)| now == at);
                work.take_if(|_| is_its).map(|work| work()).transpose()
            })?;
            if done.is_some() {
                return Ok(done);
            }
        }
        Ok(None)
    }

    /// Does `work` in a turn at the chunk at `at`, whoever has it.
    pub(super) fn in_turn_at<T>(
        &self,
        at: Offset,
        mode: Mode,
        wait: Wait,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // The chunk's own number, which no inode has.
        let chunk = FileId { number: at.bytes() / NUMBER_UNIT, generation: 0 };
        let core = self.core();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let who = Who { kind: TURN, slot: Some(core.slot()), number };
        let process = core.host().identity().process;
        let wish = Lock { who, first: 0, last: END, mode: Some(mode), process };
        self.set_lock(chunk, &wish, wait)?;
        let done = work();
        let ended = self.set_lock(chunk, &Lock { mode: None, ..wish }, Wait::No);
        let value = done?;
        ended?;
        Ok(value)
    }
}
