//! Writing to trees, and to what becomes one: in place, or to new pages that take the place of the
//! old ones.

use core::ops::Range;

use conquest_format::PAGE;
use conquest_format::fs::DATA;
use conquest_format::fs::tree::{SLOTS, Slot};
use conquest_format::inode::{Content, flag};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{OVERWRITE_ENTRIES, Tx};

use crate::Result;
use crate::content::contiguous::{AHEAD, fill_run};
use crate::content::patch::{Fill, Patch};
use crate::content::tree::Way;
use crate::content::write::{RESERVED, RUN_ENTRIES, bytes_inside, is_no_space, write_in_place};
use crate::content::{Freed, IN_PLACE_MAX, part_of_run};
use crate::inode::Draft;

/// [`super::write::write_some`] for trees, and for what becomes one: at most what one node of level
/// 1 leads to.
pub(super) fn write_tree<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    patch: &Patch<'_>,
) -> Result<u64> {
    let first = patch.at / PAGE;
    let patch = patch.until((first / SLOTS + 1) * SLOTS * PAGE);
    let end = patch.end().div_ceil(PAGE);
    let mut way = Way::find(tx, draft, first, end)?;
    let last = end.saturating_sub(1);
    let ahead = if way.page(last).is_none() { pages_ahead(draft, &patch) } else { 0 };
    if ahead > 0 {
        way = Way::find(tx, draft, first, end + ahead)?;
    }
    if patch.len() == SLOTS * PAGE && way.takes_run() && write_run(tx, draft, &way, &patch)? {
        return Ok(patch.len());
    }
    let inside = bytes_inside(draft.inode.size, &patch);
    let mut page = first;
    let mut is_changed = false;
    while page < end {
        let in_place = |page: u64| {
            let part = patch.of_page(page);
            let is_unseen = bytes_inside(draft.inode.size, &part) == 0;
            way.page(page).filter(|_| is_unseen || inside <= IN_PLACE_MAX)
        };
        let most = affordable(tx, &way);
        if let Some(at) = in_place(page) {
            if page > first && tx.room() < RESERVED + OVERWRITE_ENTRIES {
                break;
            }
            let place = |tx: &Tx<'_, M, H>, start: u64, len: u64| {
                Ok(part_of_run(tx, at, start - page * PAGE, len)?)
            };
            write_in_place(tx, draft.inode.size, &patch.of_page(page), place)?;
            page += 1;
        } else if most > 0 {
            let pages = (page..end.min(page + most)).take_while(|&page| in_place(page).is_none());
            let pages = page..page + pages.count() as u64;
            let room = most - (pages.end - pages.start);
            let ahead = if pages.end == end { ahead.min(room) } else { 0 };
            match replace_pages(tx, draft, &mut way, &patch, pages, ahead) {
                Ok(done) => page += done,
                Err(error) if is_no_space(&error) && page > first => break,
                Err(error) => return Err(error),
            }
            is_changed = true;
        } else {
            break;
        }
    }
    if is_changed {
        way.finish(tx, draft, first)?;
    }
    Ok((page * PAGE).min(patch.end()) - patch.at)
}

/// Stages zeros for the pages of `pages` that are holes of a tree, or of what becomes one, as far
/// as one node of level 1 leads and a record has room: the page that comes next.
pub(super) fn fill_holes<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    pages: Range<u64>,
) -> Result<u64> {
    let first = pages.start;
    let end = pages.end.min((first / SLOTS + 1) * SLOTS);
    let mut way = Way::find(tx, draft, first, end)?;
    let zeros = Patch { at: first * PAGE, fill: Fill::Zeros((end - first) * PAGE) };
    let is_empty = (first..end).all(|page| way.page(page).is_none());
    let takes_run = end - first == SLOTS && is_empty && way.takes_run();
    if takes_run && write_run(tx, draft, &way, &zeros)? {
        return Ok(end);
    }
    let mut page = first;
    let mut is_changed = false;
    while page < end {
        if way.page(page).is_some() {
            page += 1;
            continue;
        }
        let most = affordable(tx, &way);
        let holes = (page..end.min(page + most)).take_while(|&page| way.page(page).is_none());
        let holes = page..page + holes.count() as u64;
        if holes.is_empty() {
            break;
        }
        match replace_pages(tx, draft, &mut way, &zeros, holes, 0) {
            Ok(done) => page += done,
            Err(error) if is_no_space(&error) && is_changed => break,
            Err(error) => return Err(error),
        }
        is_changed = true;
    }
    if is_changed {
        way.finish(tx, draft, first)?;
    }
    Ok(page)
}

/// Stages that page `page` of the file of `draft`, which has none there, is `bytes`.
pub(crate) fn put_page<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    page: u64,
    bytes: &[u8],
) -> Result<()> {
    let patch = Patch { at: page * PAGE, fill: Fill::Bytes(bytes) };
    let mut way = Way::find(tx, draft, page, page + 1)?;
    replace_pages(tx, draft, &mut way, &patch, page..page + 1, 0)?;
    way.finish(tx, draft, page)
}

/// How many pages that stand in a row can still be replaced in the record: each may take an entry
/// for its slot, if that is not in a node that is made, and one for the old page; together they
/// take a few to be allocated.
fn affordable<M: Memory, H: Host>(tx: &Tx<'_, M, H>, way: &Way) -> u64 {
    let room = tx.room().saturating_sub(RESERVED + 2 * RUN_ENTRIES);
    if way.node.is_some() {
        room / 2
    } else if room > 0 {
        SLOTS
    } else {
        0
    }
}

/// Pages that a large file gets behind the last one of `patch`, which is appended to it, in the
/// node that leads to its first one: so most records of those who append small pieces change
/// nothing but the size and the times. None if what is behind its end stays when it is closed.
fn pages_ahead(draft: &Draft, patch: &Patch<'_>) -> u64 {
    let is_large = matches!(draft.inode.content, Content::Large { .. });
    let keeps_tail = draft.inode.flags & flag::KEEPS_TAIL != 0;
    if !is_large || keeps_tail || patch.at != draft.inode.size || patch.len() >= AHEAD * PAGE {
        return 0;
    }
    let behind_node = (patch.at / PAGE / SLOTS + 1) * SLOTS;
    AHEAD.min(behind_node.saturating_sub(patch.end().div_ceil(PAGE)))
}

/// Stages new pages with the bytes of the pages `pages` of the file and `patch`, as many as there
/// is a run for, and behind them up to `ahead` more of which nothing is filled: how many with
/// bytes.
fn replace_pages<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    way: &mut Way,
    patch: &Patch<'_>,
    pages: Range<u64>,
    ahead: u64,
) -> Result<u64> {
    let mut count = pages.end - pages.start;
    let is_hole = |page: &u64| way.page(*page).is_none();
    let mut ahead = (pages.end..pages.end + ahead).take_while(is_hole).count() as u64;
    let before = pages.start.checked_sub(1).filter(|before| before / SLOTS == pages.start / SLOTS);
    let near = before.and_then(|before| way.page(before)).map(|at| at.plus(PAGE));
    let mut run = loop {
        match tx.alloc_run(DATA, count + ahead, near) {
            Err(conquest_pm::Error::NoSpace { .. }) if ahead > 0 => ahead = 0,
            Err(conquest_pm::Error::NoSpace { .. }) if count > 1 => count /= 2,
            made => break made?,
        }
    };
    let end = ((pages.start + count) * PAGE).min(draft.inode.size.max(patch.end()));
    let range = pages.start * PAGE..end;
    fill_run(tx, &mut run, draft.inode.content, draft.inode.size, patch, range)?;
    let made = if ahead > 0 { tx.finish_run_ahead(run) } else { tx.finish_run(run) };
    let mut old = Freed::default();
    for (index, page) in (0..count + ahead).zip(pages.start..) {
        if let Some(at) = way.page(page) {
            old.add(tx, at, 1)?;
        }
        way.set(tx, page, made.plus(index * PAGE))?;
    }
    draft.inode.pages += count + ahead;
    draft.inode.pages -= old.finish(tx)?;
    Ok(count)
}

/// Stages a run with all bytes of `patch` in the place of a node; false if there is none free.
fn write_run<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    way: &Way,
    patch: &Patch<'_>,
) -> Result<bool> {
    let mut run = match tx.alloc_run(DATA, SLOTS, None) {
        Err(conquest_pm::Error::NoSpace { .. }) => return Ok(false),
        made => made?,
    };
    let size = draft.inode.size;
    fill_run(tx, &mut run, draft.inode.content, size, patch, patch.at..patch.end())?;
    let made = tx.finish_run(run);
    let mut old = Freed::default();
    for at in (patch.at / PAGE..patch.end() / PAGE).filter_map(|page| way.page(page)) {
        old.add(tx, at, 1)?;
    }
    draft.inode.pages += SLOTS;
    draft.inode.pages -= old.finish(tx)?;
    way.lead_to(tx, draft, patch.at / PAGE, Slot::Run(made, SLOTS))?;
    Ok(true)
}
