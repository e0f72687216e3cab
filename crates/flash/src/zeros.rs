//! Space that a file has only reserved: when some of it is written for the first time, the file
//! system changes its metadata, and whoever flushes next waits twice as long. So zeros are written
//! to segments before they are begun for the first time, by who works in the background.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_uring::Buffer;

use crate::Result;
use crate::index::Words;
use crate::volume::Volume;

/// Bytes that are written at once.
const STEP: u64 = 1 << 20;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Writes zeros to the next segments that were never begun, `bytes` of them, as far as the
    /// device has only reserved their space: then what is written there can be flushed sooner. How
    /// many bytes were written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn write_zeros_ahead(&self, bytes: u64) -> Result<u64> {
        if self.is_ordered() {
            return Ok(0);
        }
        let len = self.layout.segment * self.layout.unit;
        let mut written = 0;
        // Those are begun first that have the lowest numbers.
        let core = self.core.as_ref();
        let is_new = |&segment: &u64| core.usage(segment).1 == 0;
        let next = (0..self.layout.segments).filter(is_new).take(bytes.div_ceil(len) as usize);
        for segment in next {
            let at = self.layout.first_place(segment) * self.layout.unit;
            let is_written = self.device.is_written(at, len);
            if is_written.map_err(|source| self.device_error("ask about", at, len, source))? {
                continue;
            }
            written += self.write_zeros_to(segment, at, len)?;
        }
        Ok(written)
    }

    /// Writes zeros to `segment`, `len` bytes from `at` on, unless somebody has begun it; nobody
    /// begins it meanwhile.
    fn write_zeros_to(&self, segment: u64, at: u64, len: u64) -> Result<u64> {
        let hold = self.spare_hold()?;
        let is_ours = self.change(|change| {
            let held = self.held_segments(&change.tx)?;
            let is_new = change.tx.usage(segment).1 == 0;
            let is_free = is_new && self.is_reusable(&change.tx, segment, &held);
            if is_free {
                hold.set(segment)?;
            }
            Ok(is_free)
        })?;
        if !is_ours {
            return Ok(0);
        }
        let failed = |source| self.device_error("write zeros to", at, len, source);
        let zeros = Buffer::new(STEP.min(len) as usize).map_err(failed)?;
        for from in (0..len).step_by(STEP as usize) {
            let part = zeros.get(..STEP.min(len - from) as usize).unwrap_or_default();
            self.device.write(at + from, part).map_err(failed)?;
        }
        Ok(len)
    }
}
