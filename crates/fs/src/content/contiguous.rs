//! Content in one piece: packed, or an extent.

use conquest_format::fs::{DATA, PACKED_SIZES, packed};
use conquest_format::inode::{Content, EXTENT_PAGES_MAX};
use conquest_format::{GROUP_PAGES, PAGE, pointer};
use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{FreshRun, Place, Tx};

use crate::content::patch::{Fill, Patch};
use crate::content::{part_of_run, target};
use crate::error::corrupt;
use crate::inode::Draft;
use crate::{Reader, Result};

/// Most bytes of packed content.
pub(super) const PACKED_MAX: u64 = PACKED_SIZES[PACKED_SIZES.len() - 1];

/// Pages that an extent gets ahead, if it gets more of them where it is, and a large file, if small
/// pieces are appended to it.
pub(super) const AHEAD: u64 = 16;

/// Bytes that `content` covers, which has no tree.
pub(super) fn capacity(content: Content) -> u64 {
    match content {
        Content::Packed { class, .. } => PACKED_SIZES.get(class as usize).copied().unwrap_or(0),
        Content::Extent { pages, .. } => pages * PAGE,
        _ => 0,
    }
}

/// `len` bytes of `content`, which is in one piece, from byte `start` on.
pub(super) fn part(
    reader: &impl Reader,
    content: Content,
    start: u64,
    len: u64,
) -> conquest_pm::Result<Place> {
    match content {
        Content::Packed { root, class } => {
            let wrong = || corrupt("content", conquest_format::Offset::NONE, "a class", class);
            let kind = packed(class as usize).ok_or_else(wrong)?;
            let at = target(root, kind)?;
            let place = reader.core().resolve_kind(at, kind)?;
            place.part(start, len).ok_or_else(|| corrupt("content", at, "room", start))
        }
        Content::Extent { root, .. } => part_of_run(reader, target(root, DATA)?, start, len),
        _ => Err(corrupt("content", conquest_format::Offset::NONE, "one piece", len)),
    }
}

/// Adds what `content` consists of to `reachable`; how many pages these are.
pub(super) fn reach(
    reader: &impl Reader,
    content: Content,
    reachable: &mut Reachable,
) -> Result<u64> {
    let len = capacity(content);
    if len == 0 {
        return Ok(0);
    }
    let place = part(reader, content, 0, len)?;
    if matches!(content, Content::Packed { .. }) {
        reachable.object(place.offset());
        return Ok(0);
    }
    reachable.run(place.offset(), len / PAGE);
    Ok(len / PAGE)
}

/// Stages that the bytes of `content`, which is in one piece, are no more.
///
/// # Errors
/// Those of the region.
pub(crate) fn free<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, content: Content) -> Result<()> {
    match content {
        Content::Packed { class, root } => {
            if let Some(kind) = packed(class as usize) {
                tx.free_untyped(target(root, kind)?, kind)?;
            }
        }
        Content::Extent { root, pages } => tx.free_run(target(root, DATA)?, pages, DATA)?,
        _ => {}
    }
    Ok(())
}

/// Stages content that consists of `bytes`, at most 2 MiB: what an inode says of it, and its pages.
///
/// # Errors
/// Those of the region.
pub(crate) fn stage<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    bytes: &[u8],
) -> Result<(Content, u64)> {
    let patch = Patch { at: 0, fill: Fill::Bytes(bytes) };
    let len = bytes.len() as u64;
    if len <= PACKED_MAX {
        return Ok((pack(tx, Content::None, 0, &patch, len)?, 0));
    }
    let pages = len.div_ceil(PAGE);
    Ok((extend(tx, Content::None, 0, &patch, pages)?, pages))
}

/// Stages packed content of `len` bytes: those of `old`, of a file of `size` bytes, with `patch`.
fn pack<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    old: Content,
    size: u64,
    patch: &Patch<'_>,
    len: u64,
) -> Result<Content> {
    let class = PACKED_SIZES.iter().position(|&size| len <= size);
    let found = class.and_then(|class| Some((class, packed(class)?)));
    let Some((class, kind)) = found else {
        return Err(corrupt("content", conquest_format::Offset::NONE, "few bytes", len).into());
    };
    let mut bytes = [0; PACKED_MAX as usize];
    let bytes = bytes.get_mut(..len as usize).unwrap_or_default();
    patch.compose(tx, old, size, 0, bytes)?;
    let fresh = tx.alloc_untyped(kind)?;
    tx.fill(&fresh, 0, bytes)?;
    let root = pointer::pack(tx.seal_untyped(fresh), kind);
    Ok(Content::Packed { root, class: class as u64 })
}

/// Stages an extent of `pages` pages: the bytes of `old`, of a file of `size` bytes, with `patch`.
fn extend<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    old: Content,
    size: u64,
    patch: &Patch<'_>,
    pages: u64,
) -> Result<Content> {
    let mut run = tx.alloc_run(DATA, pages, None)?;
    let there = size.min(capacity(old)).max(patch.end()).min(pages * PAGE);
    fill_run(tx, &mut run, old, size, patch, 0..there)?;
    let root = pointer::pack(tx.finish_run(run), DATA);
    Ok(Content::Extent { root, pages })
}

/// Fills a new run with the bytes of `range`, which begins at a page: those of `old`, of a file of
/// `size` bytes, with `patch`.
pub(super) fn fill_run<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    run: &mut FreshRun,
    old: Content,
    size: u64,
    patch: &Patch<'_>,
    range: core::ops::Range<u64>,
) -> Result<()> {
    let mut page = [0; PAGE as usize];
    let mut at = range.start;
    while at < range.end {
        let rest = patch.from(at).until(range.end);
        // Whole pages of the patch are copied as they come.
        let whole = if rest.at == at { rest.run().len() as u64 / PAGE * PAGE } else { 0 };
        if whole > 0 {
            tx.append(run, rest.run().get(..whole as usize).unwrap_or_default())?;
            at += whole;
            continue;
        }
        let len = PAGE.min(range.end - at);
        let bytes = page.get_mut(..len as usize).unwrap_or_default();
        patch.compose(tx, old, size, at, bytes)?;
        tx.append(run, bytes)?;
        at += len;
    }
    Ok(())
}

/// Replaces the content of `draft`, if it has any a packed one, by packed content of `len` bytes.
pub(super) fn repack<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
    len: u64,
) -> Result<()> {
    let old = draft.inode.content;
    let new = pack(tx, old, draft.inode.size, patch, len)?;
    free(tx, old)?;
    draft.inode.content = new;
    Ok(())
}

/// Replaces the content of `draft`, which is in one piece, by an extent of `pages` pages.
pub(super) fn reextend<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
    pages: u64,
) -> Result<()> {
    let old = draft.inode.content;
    let new = extend(tx, old, draft.inode.size, patch, pages)?;
    free(tx, old)?;
    draft.inode.content = new;
    draft.inode.pages = pages;
    Ok(())
}

/// Appends `patch` to the content of `draft`, an extent that is full, if enough pages behind that
/// are free, and it does not get too long: whether that is so.
pub(super) fn lengthen<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
) -> Result<bool> {
    let Content::Extent { root, pages: old } = draft.inode.content else {
        return Ok(false);
    };
    // Nothing is copied, so there is no need for much.
    let pages = patch.end().div_ceil(PAGE).max(old + (old / 4).clamp(1, AHEAD));
    if draft.inode.size != old * PAGE || patch.at != draft.inode.size || pages > EXTENT_PAGES_MAX {
        return Ok(false);
    }
    let behind = target(root, DATA)?.plus(old * PAGE);
    let page = tx.core().geometry().page_of(behind);
    if page.is_none_or(|page| page.is_multiple_of(GROUP_PAGES)) {
        // An extent is in one group.
        return Ok(false);
    }
    let Some(mut run) = tx.alloc_run_at(DATA, pages - old, behind)? else {
        return Ok(false);
    };
    fill_run(tx, &mut run, draft.inode.content, patch.at, patch, patch.at..patch.end())?;
    tx.finish_run(run);
    draft.inode.content = Content::Extent { root, pages };
    draft.inode.pages = pages;
    Ok(true)
}

/// Pages of the extent of a file that is to have `len` bytes, and whose extent has `pages` pages
/// now. One that is copied to grow doubles, so that growth copies each byte about once.
pub(super) fn pages_for(len: u64, pages: u64) -> u64 {
    len.div_ceil(PAGE).max((2 * pages).min(EXTENT_PAGES_MAX))
}
