//! An epoch: what is written at once, and read again.

use conquest_flash::{ATOMIC_MAX, Seen};
use conquest_format::image::{ImageDefect, LOG, PART_HEADER, PartHeader, ROOT, Root, UNIT};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::log::{Copied, Sealed};
use conquest_pm::memory::Memory;

use crate::pages::{Plan, plan};
use crate::{Error, Image, Result};

/// Bytes of an epoch's body in one part.
const PART: usize = 16 << 20;
/// Bytes of a block.
const BLOCK: u64 = 512;

const _: () = assert!((PART as u64) < ATOMIC_MAX / 2);

/// What an epoch of the log has.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) header: PartHeader,
    /// Pages that are in the log.
    pub(crate) pages: Copied,
    pub(crate) fragments: Vec<u8>,
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

/// The body of an epoch in parts, each with room for its header in front of it.
struct Body {
    parts: Vec<Vec<u8>>,
    /// Bytes that are still to come.
    left: usize,
}

impl Body {
    /// That of the epoch with those `pages` in the log, and `fragments`: one part at least.
    fn of(pages: &Copied, fragments: &[u8]) -> Body {
        let words = core::iter::once(pages.len() as u64).chain(pages.keys().map(|at| at.bytes()));
        let left = (1 + pages.len()) * WORD as usize + pages.len() * PAGE as usize;
        let mut body = Body { parts: Vec::new(), left: left + fragments.len() };
        words.for_each(|word| body.extend(&word.to_le_bytes()));
        pages.values().for_each(|page| body.extend(&**page));
        body.extend(fragments);
        body
    }

    fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let most = PART_HEADER + PART;
            if self.parts.last().is_none_or(|part| part.len() == most) {
                let len = (PART_HEADER + self.left.min(PART)).next_multiple_of(UNIT as usize);
                let mut part = Vec::with_capacity(len);
                part.resize(PART_HEADER, 0);
                self.parts.push(part);
            }
            let Some(part) = self.parts.last_mut() else {
                return;
            };
            let (now, later) = bytes.split_at(bytes.len().min(most - part.len()));
            part.extend(now);
            self.left -= now.len();
            bytes = later;
        }
    }
}

/// The pages and fragments in `body`; none if that can't be one.
fn unpack(body: &[u8]) -> Option<(Copied, Vec<u8>)> {
    let (count, rest) = body.split_first_chunk()?;
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    let (places, rest) = rest.split_at_checked(count.checked_mul(WORD as usize)?)?;
    let (bytes, fragments) = rest.split_at_checked(count.checked_mul(PAGE as usize)?)?;
    let places = places.as_chunks().0.iter().map(|word| Offset::new(u64::from_le_bytes(*word)));
    let pages = bytes.as_chunks().0.iter().map(|page| Box::new(*page));
    Some((places.zip(pages).collect(), fragments.to_vec()))
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
        let Plan { runs, logged } = plan(pages);
        let body = Body::of(&logged, &fragments).parts;
        let (parts, epoch) = (body.len() as u32, root.epoch + 1);
        let (mut root, mut seen) = (root.clone(), seen);
        for (part, mut bytes) in (0..).zip(body) {
            let is_last = part + 1 == parts;
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
                ranges.extend(runs.iter().map(|(at, run)| (at.bytes() / BLOCK, run.as_slice())));
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
        mut each: impl FnMut(u64, Epoch) -> Result<()>,
    ) -> Result<()> {
        let mut at = root.log_start;
        let mut body = Vec::new();
        let (mut begin, mut next, mut number) = (at, 0, 0);
        while at < root.log_end {
            let (header, piece) = self.read_part(at)?;
            // What is not followed by the rest of its epoch was given up.
            if header.part == 0 {
                body.clear();
                (begin, next, number) = (at, 0, header.epoch);
            }
            at += header.blocks();
            if header.part != next || header.epoch != number {
                return Err(self.damaged(at, ImageDefect::Field(16, header.part.into())));
            }
            body.extend(piece);
            next += 1;
            if next < header.parts {
                continue;
            }
            let unpacked = unpack(&body);
            let (pages, fragments) = unpacked
                .ok_or_else(|| self.damaged(begin, ImageDefect::Field(24, body.len() as u64)))?;
            each(begin, Epoch { header, pages, fragments })?;
        }
        Ok(())
    }

    fn read_part(&self, at: u64) -> Result<(PartHeader, Vec<u8>)> {
        let mut first = vec![0; UNIT as usize];
        self.volume.read_once(LOG + at, &mut first)?;
        let damaged = |defect| self.damaged(at, defect);
        let found = first.first_chunk().map(PartHeader::from_bytes);
        let (header, sum) = found.unwrap_or(Err(ImageDefect::Magic)).map_err(damaged)?;
        let mut bytes = vec![0; (header.blocks() * BLOCK) as usize];
        self.volume.read_once(LOG + at, &mut bytes)?;
        let body = bytes.get(PART_HEADER..PART_HEADER + header.bytes as usize);
        let body = body.unwrap_or_default();
        header.check(body, sum).map_err(damaged)?;
        Ok((header, body.to_vec()))
    }

    fn damaged(&self, at: u64, defect: ImageDefect) -> Error {
        let (volume, what) = (self.name(), "the core's log");
        Error::Corrupt { volume, what, block: LOG + at, defect }
    }
}
