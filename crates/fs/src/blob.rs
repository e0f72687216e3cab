//! Short contents that are made as a whole and never changed: targets of symbolic links.

use conquest_format::fs::{DATA, PACKED_SIZES, packed};
use conquest_format::inode::Content;
use conquest_format::{Offset, PAGE, pointer};
use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Tx, View};

use crate::error::corrupt;
use crate::{Reader, Result};

/// Where a content's bytes are.
struct Place {
    at: Offset,
    /// Bytes that there is room for.
    room: u64,
}

/// Stages `bytes`: what an inode says of them, and their pages. Up to 2 KiB are one object, more,
/// up to 2 MiB, a run.
///
/// # Errors
/// Those of the region.
pub(crate) fn stage<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    bytes: &[u8],
) -> Result<(Content, u64)> {
    let len = bytes.len() as u64;
    let class = PACKED_SIZES.iter().position(|&size| len <= size);
    let Some((class, kind)) = class.and_then(|class| Some((class, packed(class)?))) else {
        let pages = len.div_ceil(PAGE);
        let mut run = tx.alloc_run(DATA, pages, None)?;
        tx.append(&mut run, bytes)?;
        let root = pointer::pack(tx.finish_run(run), DATA);
        return Ok((Content::Extent { root, pages }, pages));
    };
    let fresh = tx.alloc_untyped(kind)?;
    tx.fill(&fresh, 0, bytes)?;
    let root = pointer::pack(tx.seal_untyped(fresh), kind);
    Ok((Content::Packed { root, class: class as u64 }, 0))
}

/// Checks that what `content` says is there.
fn resolve(reader: &impl Reader, content: Content) -> conquest_pm::Result<Option<Place>> {
    let bad = |root| corrupt("content", Offset::NONE, "a pointer to what its form says", root);
    Ok(match content {
        Content::Packed { root, class } => {
            let kind = packed(class as usize).ok_or_else(|| bad(root))?;
            let at = pointer::unpack(root, kind).ok_or_else(|| bad(root))?;
            let place = reader.core().resolve_kind(at, kind)?;
            Some(Place { at, room: place.len() })
        }
        Content::Extent { root, pages } => {
            let at = pointer::unpack(root, DATA).ok_or_else(|| bad(root))?;
            let place = reader.core().resolve_run(at, pages, DATA)?;
            Some(Place { at, room: place.len() })
        }
        _ => None,
    })
}

/// Copies the bytes of `content` to `out`.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if they are not there.
pub(crate) fn read<M: Memory, H: Host>(
    view: &View<'_, M, H>,
    content: Content,
    out: &mut [u8],
) -> Result<()> {
    match resolve(view, content)? {
        Some(place) if out.len() as u64 <= place.room => {
            view.bytes(place.at, out);
            Ok(())
        }
        place => {
            let room = place.map_or(0, |place| place.room);
            Err(corrupt("content", Offset::NONE, "room for its size", room).into())
        }
    }
}

/// Adds what `content` consists of to `reachable`.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if it is not there.
pub(crate) fn reach(
    reader: &impl Reader,
    content: Content,
    reachable: &mut Reachable,
) -> Result<()> {
    match (resolve(reader, content)?, content) {
        (None, _) => {}
        (Some(place), Content::Packed { .. }) => reachable.object(place.at),
        (Some(place), _) => reachable.run(place.at, place.room / PAGE),
    }
    Ok(())
}

/// Stages that the bytes of `content` are no more.
///
/// # Errors
/// Those of the region.
pub(crate) fn free<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, content: Content) -> Result<()> {
    let Some(place) = resolve(tx, content)? else {
        return Ok(());
    };
    match content {
        Content::Packed { class, .. } => {
            if let Some(kind) = packed(class as usize) {
                tx.free_untyped(place.at, kind)?;
            }
        }
        _ => tx.free_run(place.at, place.room / PAGE, DATA)?,
    }
    Ok(())
}
