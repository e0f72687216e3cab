//! The real machine as [`Host`].

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use conquest_format::{Geometry, volatile};

use super::claim::{Bytes, Carried, Claim, carry, claim, is_claimed};
use super::fork::Token;
use super::identity::identity;
use super::medium::Medium;
use super::process;
use super::sys::failed;
use crate::Result;
use crate::host::{Host, Identity};

/// The byte whose lock is that of attaching and detaching: the superblock's first.
const ATTACH: Bytes = Bytes { start: 0, len: 1 };

/// What a region needs of the machine, for the region on one medium.
#[derive(Debug)]
pub struct OsHost {
    medium: Arc<Medium>,
    /// Where the first process slot is: the locks' bytes are the slots' own.
    first_slot: u64,
    slots: u32,
    process: Token,
    /// The token of the process that made this value, or adopted it.
    token: AtomicU64,
    boot: [u8; 16],
}

impl OsHost {
    /// The host of the region of this layout on `medium`.
    ///
    /// # Errors
    /// If the system can't tell forked children from their parents, or has no boot id.
    pub fn new(medium: Arc<Medium>, geometry: &Geometry) -> Result<OsHost> {
        let action = "prepare for forks";
        let process = Token::get().map_err(failed(medium.path(), action))?;
        let action = "ask for the boot id";
        let boot = process::boot_id().map_err(failed(medium.path(), action))?;
        Ok(OsHost {
            first_slot: geometry.slot(0).bytes(),
            slots: geometry.shape().slots,
            process,
            token: AtomicU64::new(process.current()),
            boot,
            medium,
        })
    }

    /// The region's file.
    #[must_use]
    pub fn medium(&self) -> &Arc<Medium> {
        &self.medium
    }

    fn slot(&self, slot: u32) -> Bytes {
        Bytes { start: self.first_slot + u64::from(slot) * volatile::slot::SIZE, len: 1 }
    }

    fn turn(&self, slot: u32) -> Bytes {
        Bytes { start: self.slot(slot).start + volatile::slot::TURN, len: 1 }
    }
}

impl Host for OsHost {
    type Claim = Claim;
    type Carried = Carried;

    fn claim(&self, slot: u32) -> Result<Option<Claim>> {
        claim(&self.medium, self.slot(slot), self.process)
    }

    fn claim_to_carry(&self, slot: u32) -> Result<Option<Carried>> {
        carry(&self.medium, self.slot(slot))
    }

    fn claim_turn(&self, slot: u32) -> Result<Option<Claim>> {
        claim(&self.medium, self.turn(slot), self.process)
    }

    fn is_turn_taken(&self, slot: u32) -> Result<bool> {
        is_claimed(&self.medium, self.turn(slot))
    }

    fn is_claimed(&self, slot: u32) -> Result<bool> {
        is_claimed(&self.medium, self.slot(slot))
    }

    fn is_anyone_attached(&self) -> Result<bool> {
        let all =
            Bytes { start: self.first_slot, len: u64::from(self.slots) * volatile::slot::SIZE };
        is_claimed(&self.medium, all)
    }

    fn claim_attach(&self) -> Result<Option<Claim>> {
        claim(&self.medium, ATTACH, self.process)
    }

    #[inline]
    fn identity(&self) -> Identity {
        identity(self.process)
    }

    fn is_thread_alive(&self, thread: u32) -> bool {
        process::is_thread_alive(thread)
    }

    #[inline]
    fn is_forked(&self) -> bool {
        self.process.now() != self.token.load(Ordering::Relaxed)
    }

    fn adopt(&self) -> Result<()> {
        self.token.store(self.process.current(), Ordering::Relaxed);
        Ok(())
    }

    fn process_state(&self, process: u32, namespace: u64) -> Option<char> {
        let own = self.identity().namespace;
        if own == 0 || own != namespace {
            return None;
        }
        process::state(process)
    }

    fn back(&self, ranges: &[Range<u64>], len: u64) -> Result<()> {
        self.medium.back(ranges, len)
    }

    fn boot_id(&self) -> [u8; 16] {
        self.boot
    }

    fn now(&self) -> u64 {
        process::now()
    }
}
