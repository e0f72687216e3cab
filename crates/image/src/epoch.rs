//! An epoch: what is written at once, and read again.

use core::ops::Range;

use conquest_flash::{ATOMIC_MAX, Seen};
use conquest_format::image::{ImageDefect, LOG, PART_HEADER, PartHeader, ROOT, Root, UNIT};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::log::{Bytes, Copied, Sealed};
use conquest_pm::memory::Memory;

use crate::pages::{Plan, plan};
use crate::{Error, Image, Result};

/// Bytes of an epoch's body in one part.
const PART: usize = 16 << 20;
/// Bytes of a block.
const BLOCK: u64 = 512;

const _: () = assert!((PART as u64) < ATOMIC_MAX / 2);

/// What an epoch of the log has.
pub(crate) struct Epoch<'b> {
    pub(crate) header: PartHeader,
    /// The pages that are in the log, where they are in the region, and their bytes.
    places: &'b [[u8; WORD as usize]],
    bytes: &'b [Bytes],
    pub(crate) fragments: &'b [u8],
}

impl<'b> Epoch<'b> {
    /// That of which `body` is the body; none if that can't be one.
    fn of(header: PartHeader, body: &'b [u8]) -> Option<Epoch<'b>> {
        let (count, rest) = body.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (places, rest) = rest.split_at_checked(count.checked_mul(WORD as usize)?)?;
        let (bytes, fragments) = rest.split_at_checked(count.checked_mul(PAGE as usize)?)?;
        let (places, bytes) = (places.as_chunks().0, bytes.as_chunks().0);
        Some(Epoch { header, places, bytes, fragments })
    }

    /// Where its pages are in the region.
    pub(crate) fn places(&self) -> impl Iterator<Item = Offset> {
        self.places.iter().map(|word| Offset::new(u64::from_le_bytes(*word)))
    }

    /// Its pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (Offset, &'b Bytes)> {
        self.places().zip(self.bytes)
    }
}

/// What becomes of the log with an epoch.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// Where it begins in the root that this follows.
    pub(crate) follows: u64,
    /// Blocks from [`LOG`] on from which it is needed.
    pub(crate) log_start: u64,
    /// The record from which it is needed.
    pub(crate) checkpoint: u64,
}

/// The body of an epoch, which is made in parts, one after the other.
struct Body<'b, P> {
    /// What is still to come, and how many bytes that is.
    pieces: P,
    rest: &'b [u8],
    left: usize,
}

impl<'b, P: Iterator<Item = &'b [u8]>> Body<'b, P> {
    /// How many parts are still to come: one at least, if there was none.
    fn parts(&self) -> u32 {
        self.left.div_ceil(PART).max(1) as u32
    }

    /// Puts the next part to `bytes`, behind room for its header.
    fn next_part(&mut self, bytes: &mut Vec<u8>) {
        let len = PART_HEADER + self.left.min(PART);
        bytes.clear();
        bytes.reserve_exact(len.next_multiple_of(UNIT as usize));
        bytes.resize(PART_HEADER, 0);
        while bytes.len() < len {
            if self.rest.is_empty() {
                let Some(piece) = self.pieces.next() else {
                    break;
                };
                self.rest = piece;
            }
            let (now, later) = self.rest.split_at(self.rest.len().min(len - bytes.len()));
            bytes.extend(now);
            self.left -= now.len();
            self.rest = later;
        }
    }
}

/// How many pages are in the log, and which: what the body of an epoch begins with.
fn index(logged: &[Offset]) -> Vec<u8> {
    let words = core::iter::once(logged.len() as u64).chain(logged.iter().map(|at| at.bytes()));
    words.flat_map(u64::to_le_bytes).collect()
}

/// The body of the epoch with those pages of `pages` that are `logged`, of which that is the
/// `index`, and `fragments`.
fn body<'b>(
    index: &'b [u8],
    logged: &'b [Offset],
    pages: &'b Copied,
    fragments: &'b [u8],
) -> Body<'b, impl Iterator<Item = &'b [u8]>> {
    let bytes = logged.iter().filter_map(|at| pages.get(*at)).map(<[u8; PAGE as usize]>::as_slice);
    let pieces = core::iter::once(index).chain(bytes).chain([fragments]);
    let left = index.len() + logged.len() * PAGE as usize + fragments.len();
    Body { pieces, rest: &[], left }
}

impl<M: Memory, H: Host> Image<M, H> {
    /// Writes what was `sealed` as the epoch that follows `root`, which was `seen`, and lets the
    /// log begin where `start` says, if that is given. None if somebody else has come first; it is
    /// durable when the volume has been flushed.
    pub(crate) fn write_epoch(
        &self,
        root: &Root,
        seen: Seen,
        sealed: Sealed,
        start: Option<Start>,
    ) -> Result<Option<Root>> {
        let Sealed { from, cut, fragments, pages } = sealed;
        let written = self.write_parts(root, seen, (from..cut, &fragments, &pages), start);
        self.kept.give(pages);
        written
    }

    /// Writes the epoch of the records in a range of numbers, their fragments, and pages.
    fn write_parts(
        &self,
        root: &Root,
        mut seen: Seen,
        (records, fragments, pages): (Range<u64>, &[u8], &Copied),
        start: Option<Start>,
    ) -> Result<Option<Root>> {
        let Plan { runs, logged } = plan(pages);
        let index = index(&logged);
        let mut body = body(&index, &logged, pages, fragments);
        let (parts, epoch, mut root) = (body.parts(), root.epoch + 1, root.clone());
        let Range { start: from, end: cut } = records;
        let mut bytes = Vec::new();
        for part in 0..parts {
            let is_last = part + 1 == parts;
            body.next_part(&mut bytes);
            let len = (bytes.len() - PART_HEADER) as u64;
            PartHeader { epoch, part, parts, bytes: len, from, cut }.complete(&mut bytes);
            let place = LOG + root.log_end;
            let mut next =
                Root { log_end: root.log_end + bytes.len() as u64 / BLOCK, ..root.clone() };
            if is_last {
                next.epoch += 1;
                next.cut = cut;
                if let Some(Start { log_start, checkpoint, .. }) = start {
                    (next.log_start, next.checkpoint) = (log_start, checkpoint);
                }
            }
            let root_bytes = next.to_bytes();
            let mut ranges: Vec<(u64, &[u8])> = vec![(place, &bytes), (ROOT, &root_bytes)];
            if is_last {
                ranges.extend(runs.iter().map(|(at, run)| (at.bytes() / BLOCK, &**run)));
            }
            if !self.volume.write_atomic_if(&seen, &ranges)? {
                return Ok(None);
            }
            if !is_last {
                let (found, now) = self.look()?;
                if found != next {
                    return Ok(None);
                }
                seen = now;
            }
            root = next;
        }
        Ok(Some(root))
    }

    /// Calls `each` with the epochs of the log of `root`, in their order, and where each begins.
    pub(crate) fn epochs(
        &self,
        root: &Root,
        mut each: impl FnMut(u64, &Epoch<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = root.log_start;
        let mut body = Vec::new();
        let (mut begin, mut next, mut number) = (at, 0, 0);
        while at < root.log_end {
            let (header, sum) = self.read_header(at)?;
            // What is not followed by the rest of its epoch was given up.
            if header.part == 0 {
                body.clear();
                (begin, next, number) = (at, 0, header.epoch);
            }
            if header.part != next || header.epoch != number {
                let defect = ImageDefect::Field(16, header.part.into());
                return Err(self.damaged(at + header.blocks(), defect));
            }
            // Nothing has looked at its checksum yet: it may ask for any amount of memory.
            if header.blocks() > root.log_end - at {
                return Err(self.damaged(at, ImageDefect::Field(24, header.bytes)));
            }
            self.read_part(at, &header, sum, &mut body)?;
            at += header.blocks();
            next += 1;
            if next < header.parts {
                continue;
            }
            let defect = ImageDefect::Field(24, body.len() as u64);
            let epoch = Epoch::of(header, &body).ok_or_else(|| self.damaged(begin, defect))?;
            each(begin, &epoch)?;
            // It has no more parts.
            next = 0;
        }
        Ok(())
    }

    /// The header of the part at block `at` of the log, and the checksum of the part.
    fn read_header(&self, at: u64) -> Result<(PartHeader, u64)> {
        let mut first = vec![0; UNIT as usize];
        self.volume.read_once(LOG + at, &mut first)?;
        let found = first.first_chunk().map(PartHeader::from_bytes);
        found.unwrap_or(Err(ImageDefect::Magic)).map_err(|defect| self.damaged(at, defect))
    }

    /// Reads what the part at block `at` of the log, which begins with `header`, has of a body, to
    /// the end of `body`.
    fn read_part(&self, at: u64, header: &PartHeader, sum: u64, body: &mut Vec<u8>) -> Result<()> {
        let end = body.len();
        body.resize(end + (header.blocks() * BLOCK) as usize, 0);
        let part = body.get_mut(end..).unwrap_or_default();
        self.volume.read_once(LOG + at, part)?;
        let len = header.bytes as usize;
        header
            .check(part.get(PART_HEADER..PART_HEADER + len).unwrap_or_default(), sum)
            .map_err(|defect| self.damaged(at, defect))?;
        part.copy_within(PART_HEADER..PART_HEADER + len, 0);
        body.truncate(end + len);
        Ok(())
    }

    fn damaged(&self, at: u64, defect: ImageDefect) -> Error {
        let (volume, what) = (self.name(), "the core's log");
        Error::Corrupt { volume, what, block: LOG + at, defect }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The parts of the body of an epoch with `count` pages in the log, and so many bytes of
    /// fragments, with what stands in front of each; and all of them together.
    fn parts(count: u64, fragments: usize) -> (Copied, Vec<usize>, Vec<u8>) {
        let mut pages = Copied::new();
        for page in 0..count {
            pages.add(Offset::new(2 * page * PAGE), |bytes| *bytes = [page as u8; PAGE as usize]);
        }
        let logged: Vec<Offset> = pages.places().collect();
        let (index, fragments) = (index(&logged), vec![9; fragments]);
        let mut body = body(&index, &logged, &pages, &fragments);
        let (mut bytes, mut all) = (Vec::new(), Vec::new());
        let lens = (0..body.parts()).map(|_| {
            body.next_part(&mut bytes);
            assert_eq!(bytes[..PART_HEADER], [0; PART_HEADER]);
            all.extend(&bytes[PART_HEADER..]);
            bytes.len() - PART_HEADER
        });
        let lens = lens.collect();
        assert_eq!(body.left, 0);
        drop(body);
        (pages, lens, all)
    }

    #[test]
    fn bodies_come_in_parts_and_are_read_again() {
        let header = PartHeader { epoch: 1, part: 0, parts: 1, bytes: 0, from: 2, cut: 3 };
        let pages_of_a_part = PART as u64 / PAGE;
        for (count, fragments, expected) in [
            (0, 0, 1),
            (3, 100, 1),
            // The index is what is too much for one part.
            (pages_of_a_part, 5, 2),
            (2 * pages_of_a_part, 0, 3),
            (0, PART - WORD as usize, 1),
            (0, PART - WORD as usize + 1, 2),
            (1, 2 * PART, 3),
        ] {
            let (pages, lens, all) = parts(count, fragments);
            assert_eq!(lens.len(), expected, "{count} {fragments}");
            assert!(lens[..expected - 1].iter().all(|len| *len == PART));
            let epoch = Epoch::of(header, &all).unwrap();
            assert!(epoch.places().eq(pages.places()) && epoch.pages().eq(pages.iter()));
            assert!(epoch.fragments == vec![9; fragments]);
        }
        // What can't be one: more pages than there are bytes.
        assert!(Epoch::of(header, &[1; 7]).is_none());
        assert!(Epoch::of(header, &u64::MAX.to_le_bytes()).is_none());
        assert!(Epoch::of(header, &[[1, 0, 0, 0, 0, 0, 0, 0]; 2].concat()).is_none());
    }
}
