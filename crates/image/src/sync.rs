//! Making durable what has been committed.

use std::sync::Arc;
use std::time::Instant;

use conquest_pm::Core;
use conquest_pm::core::DurableMaker;
use conquest_pm::host::Host;
use conquest_pm::log::Lead;
use conquest_pm::memory::Memory;

use crate::{Image, Result};

impl<M: Memory, H: Host> Image<M, H> {
    /// Makes all that was committed when this was called durable: by an epoch of its own, or by
    /// that of somebody else who is at it. Several who call this at once are served together.
    ///
    /// # Errors
    /// [`crate::Error::Older`] and others if the volume is not this core's; those of the volume: it
    /// has failed then.
    pub fn sync<N: Memory, I: Host>(&self, core: &Core<N, I>) -> Result<()> {
        let target = core.next_sequence();
        while core.durable() < target {
            if let Some(lead) = take_lead(core, || core.durable() >= target) {
                self.write_once(core, lead)?;
            }
        }
        Ok(())
    }

    /// Writes an epoch with what has come since the last one, unless somebody else comes first, and
    /// makes it durable. The last one may be on its way to become so: that is not waited for
    /// before this one is written, and the next one may be written while this one is flushed.
    fn write_once<N: Memory, I: Host>(
        &self,
        core: &Core<N, I>,
        mut lead: Lead<'_, N, I>,
    ) -> Result<()> {
        let (root, seen) = self.look_for(core)?;
        let mut cut = root.cut;
        if cut < core.next_sequence() {
            match core.seal(cut, self.kept.take()) {
                Ok(Some(sealed)) => match self.write_epoch(&root, seen, sealed, None)? {
                    Some(root) => cut = root.cut,
                    None => return Ok(()),
                },
                // What was written by somebody who did not come to say so is flushed anyway.
                Ok(None) => {}
                Err(conquest_pm::Error::Again) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        if cut > core.durable() {
            self.volume.flush_telling(|| lead.hand_on())?;
            core.set_durable(cut)?;
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Image<M, H> {
    /// What a process gives its region ([`conquest_pm::Options::make_durable`]), so that its log
    /// does not get full.
    #[must_use]
    pub fn maker<N: Memory, I: Host>(image: &Arc<Image<M, H>>) -> DurableMaker<N, I> {
        let image = Arc::clone(image);
        Box::new(move |core| {
            image.sync(core).map_err(|error| conquest_pm::Error::NotDurable {
                path: core.path().to_owned(),
                reason: error.to_string(),
            })
        })
    }
}

/// The lead in writing; none if it `is_over`, or to be asked for again.
pub(crate) fn take_lead<N: Memory, I: Host>(
    core: &Core<N, I>,
    is_over: impl Fn() -> bool,
) -> Option<Lead<'_, N, I>> {
    let mut waiting = core.begin_waiting();
    let mut since = Instant::now();
    let mut seen = core.durable();
    loop {
        if is_over() {
            core.end_waiting(waiting);
            return None;
        }
        let now = core.durable();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if let Some(lead) = core.lead(since.elapsed()) {
            return Some(lead);
        }
        waiting = core.wait_on(waiting, since.elapsed());
    }
}
