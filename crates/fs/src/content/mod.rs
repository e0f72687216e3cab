//! What regular files and symbolic links consist of (Conquest 2002, 3.3; SIMFS 2016, 3.1 and 4.1).
//!
//! Content has one of three forms: *packed*, an object of at most 2 KiB; an *extent*, one run of at
//! most 2 MiB; a *tree* of pages and runs. Any of them may cover less than the file has bytes, or
//! more:
//!
//! - what it does not cover of the file is a hole, which reads as zeros;
//! - what it covers past the file's size is not there. Such bytes may be anything: space that was
//!   allocated ahead, the rest of a file that was cut off, the beginning of a write whose process
//!   died. Whoever makes the size grow over them zeros them first. So a write past the end stores
//!   into place, where nobody looks, and a truncation is done when the size says so.
//!
//! Bytes inside the size are changed by a journal record: up to a page of them in place; more by
//! new pages that take the place of the old ones, or, if there are none, in place, page by page. So
//! what a write does to one page is seen as a whole or not at all, and overwriting never fails for
//! lack of space. A write that needs several records is there up to some page if its process dies:
//! each record makes the next part of it happen.

mod allocate;
mod contiguous;
mod cut;
mod freed;
mod patch;
mod read;
mod tree;
mod write;
mod write_tree;

pub use allocate::Allocate;
pub use read::Seek;
pub use write::WriteAt;

pub(crate) use allocate::punch;
pub(crate) use contiguous::stage;
pub(crate) use cut::clear;
pub(crate) use cut::{finish_cut, reap, stage_trim};
use freed::Freed;
pub(crate) use patch::{Fill, Parts, Patch};
pub(crate) use read::{Copied, STEP, copy_out};
pub(crate) use write::{Begin, expose};
pub(crate) use write_tree::put_page;

use conquest_format::fs::DATA;
use conquest_format::inode::Content;
use conquest_format::{Offset, PAGE, pointer};
use conquest_pm::Place;
use conquest_pm::check::Reachable;

use crate::error::corrupt;
use crate::large::chunk;
use crate::{Reader, Result};

/// Most bytes inside the size that a write changes in place if there are pages to be had: what one
/// record can.
const IN_PLACE_MAX: u64 = PAGE;

/// The beginning of what content says of a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// So many bytes are not covered.
    Hole(u64),
    /// Bytes in one piece.
    Bytes(Place),
    /// So many bytes are what the volume has.
    Far(u64),
}

impl Piece {
    /// Bytes.
    pub(crate) fn len(self) -> u64 {
        match self {
            Piece::Hole(len) | Piece::Far(len) => len,
            Piece::Bytes(place) => place.len(),
        }
    }
}

/// What `content` says of the bytes from `from` on: as far as they are of a piece, at most `limit`.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if the bytes are not where it says.
pub(crate) fn piece(
    reader: &impl Reader,
    content: Content,
    from: u64,
    limit: u64,
) -> conquest_pm::Result<Piece> {
    if let Content::Tree { root, height } = content {
        return tree::piece(reader, root, height, from, limit);
    }
    if let Content::Large { root, height, chunk } = content {
        let found = match root {
            0 => Piece::Hole(limit),
            root => tree::piece(reader, root, height, from, limit)?,
        };
        return chunk::before_holes(reader, chunk, found, from);
    }
    let room = contiguous::capacity(content);
    if from >= room {
        return Ok(Piece::Hole(limit));
    }
    contiguous::part(reader, content, from, limit.min(room - from)).map(Piece::Bytes)
}

/// The pages of `content`, a tree or a large file's, that are in the core, from page `from` on:
/// their numbers and where they are, at most `most`.
pub(crate) fn pages_in_core(
    reader: &impl Reader,
    content: Content,
    from: u64,
    most: usize,
) -> Result<Vec<(u64, Offset)>> {
    match content.tree() {
        Some((root, height)) => Ok(tree::pages(reader, root, height, from, most)?),
        None => Ok(Vec::new()),
    }
}

/// `len` bytes of the run of [`DATA`] at `at`, from byte `start` on.
fn part_of_run(
    reader: &impl Reader,
    at: Offset,
    start: u64,
    len: u64,
) -> conquest_pm::Result<Place> {
    let first = start / PAGE;
    let within = start % PAGE;
    let pages = (within + len).div_ceil(PAGE).max(1);
    let place = reader.core().resolve_run(at.plus(first * PAGE), pages, DATA)?;
    place.part(within, len).ok_or_else(|| corrupt("content", at, "room for its bytes", start))
}

/// Copies the bytes of `content` from `from` on to `out`: zeros from `size` on, and in holes. What
/// the volume has is left as it is in `out`, and told to `far`: where it begins in the file, and
/// how many bytes it is.
///
/// # Errors
/// As [`piece`]; those of `far`.
pub(crate) fn read_bytes(
    reader: &impl Reader,
    content: Content,
    size: u64,
    from: u64,
    out: &mut [u8],
    far: &mut dyn FnMut(u64, usize) -> Result<()>,
) -> Result<()> {
    let there = size.saturating_sub(from).min(out.len() as u64) as usize;
    let (mut left, past) = out.split_at_mut(there);
    past.fill(0);
    let mut at = from;
    while !left.is_empty() {
        let piece = piece(reader, content, at, left.len() as u64)?;
        let (part, rest) = left.split_at_mut((piece.len() as usize).min(left.len()));
        match piece {
            Piece::Hole(_) => part.fill(0),
            Piece::Bytes(place) => reader.bytes(place.offset(), part),
            Piece::Far(_) => far(at, part.len())?,
        }
        at += part.len() as u64;
        left = rest;
    }
    Ok(())
}

/// Adds what `content` consists of to `reachable`; how many pages these are.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if it is not there.
pub(crate) fn reach(
    reader: &impl Reader,
    content: Content,
    reachable: &mut Reachable,
) -> Result<u64> {
    match content {
        Content::Tree { root, height } => tree::reach(reader, root, height, reachable),
        Content::Large { root, height, chunk } => {
            chunk::load(reader, chunk)?;
            reachable.object(chunk);
            if root == 0 { Ok(0) } else { tree::reach(reader, root, height, reachable) }
        }
        _ => contiguous::reach(reader, content, reachable),
    }
}

/// For content that is never on the volume.
pub(crate) fn nothing_far(at: u64, _len: usize) -> Result<()> {
    Err(corrupt("content", Offset::NONE, "nothing that is on the volume", at).into())
}

/// The target of a pointer word that `content` has as its root.
fn target(root: u64, kind: conquest_format::kind::Kind) -> conquest_pm::Result<Offset> {
    let at = pointer::unpack(root, kind).filter(|at| !at.is_none());
    at.ok_or_else(|| corrupt("content", Offset::NONE, "a pointer to what its form says", root))
}
