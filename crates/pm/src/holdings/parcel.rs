//! Parcels: holdings on their way to another process.
//!
//! A descriptor that a process sends away, or leaves to a child, belongs to nobody for a while: the
//! sender may have closed it, or may be dead, before the receiver knows of it. So what is on its
//! way stands in a slot of its own, whose kernel lock lives as long as a file descriptor, in
//! whatever process that is: it can be inherited, kept over `exec`, and sent through a socket. If
//! everybody who could receive it dies, so does the slot, like that of any process.

use core::sync::atomic::Ordering;

use conquest_format::volatile::{self, slot};

use super::Held;
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::thread::Open;
use crate::{Error, Result};

/// Holdings on their way. Dropping it gives up this process's part in it.
#[derive(Debug)]
pub struct Parcel<H: Host> {
    slot: u32,
    carried: H::Carried,
}

impl<H: Host> Parcel<H> {
    /// The number of its slot, by which it is received.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// What keeps it.
    pub fn carried(&self) -> &H::Carried {
        &self.carried
    }

    /// What keeps it, to be passed on.
    pub fn into_carried(self) -> H::Carried {
        self.carried
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// An empty parcel.
    ///
    /// # Errors
    /// [`Error::Slots`] if all slots are in use; those of the host, and of recovery.
    pub fn parcel(&self) -> Result<Parcel<H>> {
        let _open = Open::new();
        self.enter()?;
        for number in 0..self.geometry.shape().slots {
            if self.host.is_claimed(number)? {
                continue;
            }
            // As in `claim_slot`.
            if let Some(_turn) = self.host.claim_turn(number)?
                && let Some(carried) = self.host.claim_to_carry(number)?
            {
                let state = self.geometry.slot(number).plus(slot::STATE);
                if self.value(state, Ordering::Relaxed) != 0 {
                    self.recover_claimed_slot(number)?;
                }
                let tagged = volatile::tagged(self.tag(), slot::PARCEL);
                self.memory.store(state, tagged, Ordering::Release);
                return Ok(Parcel { slot: number, carried });
            }
        }
        let slots = self.geometry.shape().slots;
        Err(Error::Slots { path: self.path.clone(), slots })
    }

    /// The parcel in slot `number`, kept by `carried`: of all who have it, one process can receive
    /// it.
    ///
    /// # Errors
    /// [`Error::NoParcel`] if there is none there, or somebody else has received it.
    pub fn receive(&self, number: u32, carried: H::Carried) -> Result<Parcel<H>> {
        let _open = Open::new();
        self.enter()?;
        let is_slot = number < self.geometry.shape().slots;
        if is_slot && self.host.is_claimed(number)? {
            let state = self.geometry.slot(number).plus(slot::STATE);
            if self.replace(state, slot::PARCEL, slot::RECEIVED, Ordering::Acquire) {
                return Ok(Parcel { slot: number, carried });
            }
        }
        Err(Error::NoParcel { path: self.path.clone(), slot: number })
    }

    /// Calls `visit` for what is in `parcel`.
    pub fn look_into(&self, parcel: &Parcel<H>, visit: impl FnMut(Held)) {
        self.holdings_of(parcel.slot, visit);
    }

    /// Ends `parcel`. Whatever is still in it is buried.
    ///
    /// # Errors
    /// Those of burials; they will be gone on with.
    pub fn discard(&self, parcel: Parcel<H>) -> Result<()> {
        let _open = Open::new();
        let number = parcel.slot;
        let buried = if self.has_holdings(number) {
            self.mark_dead(number);
            self.bury_all()
        } else {
            Ok(())
        };
        self.free_chunks(number);
        let state = self.geometry.slot(number).plus(slot::STATE);
        self.set_value(state, 0, Ordering::Relaxed);
        drop(parcel);
        buried
    }
}
