//! A process that opens the volume when nobody works on it, and notes on the board what it holds.

use std::sync::atomic::Ordering;

use conquest_flash::{Damage, Verifying, Volume};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::operation::TestVolume;
use crate::worker::Stage;
use conquest_testkit::flash::values::{BLOCK, HOLE, PER_UNIT, ZEROS, value_of};

/// How to examine a volume.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Examination {
    /// Compare the index with itself and with all checksums.
    pub(crate) check: bool,
    /// And all copies, by what users have for it.
    pub(crate) verify: bool,
    /// Flush what was found.
    pub(crate) flush: bool,
    /// Close the volume, so that its index goes.
    pub(crate) close: bool,
}

impl Stage<'_> {
    /// Examines the volume.
    pub(crate) fn examine(&self, how: Examination) -> Result<(), String> {
        let volume = self.open()?;
        volume.info().map_err(|error| format!("info: {error}"))?;
        self.note(&volume, how.check)?;
        if how.verify {
            verify(&volume)?;
        }
        if how.flush {
            volume.flush().map_err(|error| format!("flush: {error}"))?;
        }
        if how.close {
            volume.close().map_err(|error| format!("close: {error}"))?;
        }
        Ok(())
    }

    /// Notes what `volume` holds, and compares its index with itself and with all checksums if that
    /// is to be checked.
    pub(crate) fn note<M: Memory, H: Host>(
        &self,
        volume: &Volume<M, H>,
        is_checked: bool,
    ) -> Result<(), String> {
        let usage = volume.usage();
        self.board.capacity().store(usage.capacity, Ordering::SeqCst);
        self.board.reserved().store(usage.reserved, Ordering::SeqCst);
        if is_checked {
            check(volume)?;
        }
        self.read(volume)?;
        self.note_allocated(volume)
    }

    /// Notes what all blocks hold.
    fn read<M: Memory, H: Host>(&self, volume: &Volume<M, H>) -> Result<(), String> {
        let found = self.board.found();
        let mut bytes = Vec::new();
        let mut stripes: Vec<_> = self.space.all().collect();
        stripes.sort_unstable_by_key(|stripe| stripe.block);
        for run in stripes.chunk_by(|one, next| one.block + one.len as u64 == next.block) {
            for part in run.chunks(64) {
                let blocks: usize = part.iter().map(|stripe| stripe.len).sum();
                bytes.resize(blocks * BLOCK, 0);
                let first = part.first().map_or(0, |stripe| stripe.block);
                volume.read(first, &mut bytes).map_err(|error| format!("read: {error}"))?;
                let model = part.iter().flat_map(|stripe| stripe.at..stripe.at + stripe.len);
                for (at, (block, bytes)) in model.zip((first..).zip(bytes.chunks(BLOCK))) {
                    let value = value_of(bytes);
                    let value = value.ok_or_else(|| format!("block {block}: nobody wrote that"))?;
                    found[at].store(value, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Tells zeros from what is nowhere, and looks for what should not be anywhere.
    fn note_allocated<M: Memory, H: Host>(&self, volume: &Volume<M, H>) -> Result<(), String> {
        let found = self.board.found();
        let mut stripes: Vec<_> = self.space.all().collect();
        stripes.sort_unstable_by_key(|stripe| stripe.block);
        let mut stripes = stripes.into_iter().peekable();
        let mut at = 0;
        loop {
            let next = volume.allocated(at).map_err(|error| format!("allocated: {error}"))?;
            let (first, end) = next.map_or((u64::MAX, u64::MAX), |(at, count)| (at, at + count));
            if !(first | end).is_multiple_of(PER_UNIT as u64) && next.is_some() {
                return Err(format!("allocated is half a unit, at block {first} or {end}"));
            }
            let mut covered = first;
            while let Some(stripe) = stripes.peek() {
                for (block, model) in (stripe.block..).zip(stripe.at..stripe.at + stripe.len) {
                    let is_hole = found[model].load(Ordering::Relaxed) == HOLE;
                    if (first..end).contains(&block) {
                        covered = covered.max(block + 1);
                        if is_hole {
                            found[model].store(ZEROS, Ordering::Relaxed);
                        }
                    } else if !is_hole && block >= at && block < first {
                        return Err(format!("block {block} is not allocated, and not zeros"));
                    }
                }
                if stripe.block + stripe.len as u64 > end {
                    break;
                }
                stripes.next();
            }
            if next.is_none() {
                return Ok(());
            }
            if covered < end {
                return Err(format!("block {covered} is allocated, which nobody wrote"));
            }
            at = end;
        }
    }
}

fn check<M: Memory, H: Host>(volume: &Volume<M, H>) -> Result<(), String> {
    let findings = volume.check().map_err(|error| format!("check: {error}"))?;
    match findings.first() {
        Some(first) => Err(format!("check: {first} (and {} more)", findings.len() - 1)),
        None => Ok(()),
    }
}

fn verify(volume: &TestVolume) -> Result<(), String> {
    let mut damage: Vec<Damage> = Vec::new();
    let how = Verifying {
        repair: false,
        found: &mut |found| damage.push(found),
        progress: &mut |_, _| true,
    };
    volume.verify(how).map_err(|error| format!("verify: {error}"))?;
    match damage.first() {
        Some(first) => Err(format!("verify: {first:?} (and {} more)", damage.len() - 1)),
        None => Ok(()),
    }
}
