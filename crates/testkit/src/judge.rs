//! The offline checker as the judge of what tests leave: of images, before and after recovery, and
//! of the memory of an attached region at rest.

use core::sync::atomic::Ordering;

use conquest_format::{Offset, WORD};
use conquest_fsck::{Options, Report, Severity, View, check};
use conquest_pm::Core;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Image;

impl View for Image {
    fn len(&self) -> u64 {
        self.len()
    }

    fn load(&self, at: Offset) -> u64 {
        self.get(at.bytes() / WORD)
    }

    fn copy(&self, at: Offset, out: &mut [u8]) {
        let mut word = at.bytes() / WORD;
        let mut left = out;
        let mut within = (at.bytes() % WORD) as usize;
        while !left.is_empty() {
            let bytes = self.get(word).to_le_bytes();
            let there = &bytes[within..];
            let (now, rest) = left.split_at_mut(there.len().min(left.len()));
            now.copy_from_slice(&there[..now.len()]);
            (word, within, left) = (word + 1, 0, rest);
        }
    }
}

/// The memory of an attached region on which no operation is under way.
struct AtRest<'m, M> {
    memory: &'m M,
    len: u64,
}

impl<M: Memory> View for AtRest<'_, M> {
    fn len(&self) -> u64 {
        self.len
    }

    fn load(&self, at: Offset) -> u64 {
        self.memory.load(at, Ordering::Relaxed)
    }

    fn copy(&self, at: Offset, out: &mut [u8]) {
        self.memory.read(at, out);
    }
}

/// Checks the region in `view`.
///
/// # Errors
/// That it can't be checked, or the first things that are wrong with it; notes are not.
pub fn judge<V: View + ?Sized>(view: &V) -> Result<Report, String> {
    let options = Options { most_findings: 3, ..Options::default() };
    let report = check(view, &options).map_err(|error| error.to_string())?;
    let wrong = report.findings.iter().filter(|finding| finding.severity() > Severity::Note);
    let told: Vec<String> = wrong.take(8).map(ToString::to_string).collect();
    if told.is_empty() { Ok(report) } else { Err(told.join("\n")) }
}

/// Checks the region of `core`, on which no operation may be under way.
///
/// # Errors
/// Those of [`judge`].
pub fn judge_attached<M: Memory, H: Host>(core: &Core<M, H>) -> Result<Report, String> {
    let len = core.geometry().len_at(core.groups());
    judge(&AtRest { memory: core.memory(), len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_as_bytes() {
        let image = Image::new(32);
        image.set(0, 0x0706_0504_0302_0100);
        image.set(1, 0x0F0E_0D0C_0B0A_0908);
        let mut out = [0; 9];
        image.copy(Offset::new(5), &mut out);
        assert_eq!(out, [5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(View::load(&image, Offset::new(8)), 0x0F0E_0D0C_0B0A_0908);
    }
}
