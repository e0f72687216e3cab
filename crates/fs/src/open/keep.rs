//! Files that have no name but are open: kept by a holding, and buried when nobody has them open.

use conquest_access::Errno;
use conquest_format::fs::INODE;
use conquest_format::inode::{flag, offset_of, word};
use conquest_format::{Offset, pointer};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Held, Holding, Mode, Remains, Tx};

use crate::content::{reap, stage_trim};
use crate::error::corrupt;
use crate::file_system::lock_of;
use crate::inode::{Draft, FileId, number_of};
use crate::locks::{FLOCK, RECORD_OF_OPEN, owner};
use crate::open::share::{description, end_description, is_used};
use crate::open::{DESCRIPTION, OPEN, OPEN_TO_WRITE};
use crate::{Error, Reader, Result};

/// The word by which a holding names inode `number` as an orphan.
pub(crate) fn orphan_of(number: u64) -> Result<u64> {
    Ok(pointer::pack(offset_of(number).ok_or(Errno::EIO)?, INODE))
}

/// A holding that keeps inode `number`, whose lock the transaction holds exclusively.
pub(crate) fn keeper<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    number: u64,
) -> Result<Option<Holding>> {
    let mut found = None;
    tx.holdings(lock_of(tx.core(), number), |held| {
        if held.key == number && matches!(held.kind, OPEN | OPEN_TO_WRITE) && !held.is_dead {
            found = Some(held.holding);
        }
    })?;
    Ok(found)
}

/// Stages what becomes of what a holding kept that its process can't end, or has ended, or that
/// lasts: the handler that a region with a file system needs, as
/// [`conquest_pm::Options::burials`].
///
/// # Errors
/// Those of the region.
pub fn bury<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    held: Held,
    orphan: u64,
) -> conquest_pm::Result<Remains> {
    let number = match orphan {
        0 => held.key,
        word => number_of(pointer::unpack(word, INODE).unwrap_or(Offset::NONE)).unwrap_or(0),
    };
    tx.lock(lock_of(tx.core(), number), Mode::Exclusive)?;
    // Whoever does it, it was another one's file.
    tx.disown();
    if tx.orphan(held.holding) != orphan {
        // Somebody has named an orphan here, or buried it.
        return Err(conquest_pm::Error::Again);
    }
    if held.kind != 0 && tx.core().look_at(held.holding) != Some(held) {
        // Somebody has buried it.
        return Ok(Remains::Nothing);
    }
    let remains = remains(tx, number, held);
    let settled = settle(tx, number, held, orphan);
    match remains.and_then(|remains| settled.map(|()| remains)) {
        Ok(remains) => Ok(remains),
        Err(Error::Core(error)) if !matches!(error, conquest_pm::Error::Corrupt { .. }) => {
            Err(error)
        }
        // What is damaged is left to be repaired; it must not stop everybody.
        Err(_) => {
            tx.set_orphan(held.holding, 0)?;
            Ok(Remains::Nothing)
        }
    }
}

/// What is left of `held`, which is of inode `number`: descriptions, and their locks, as long as
/// somebody has them. A description that nobody has ends.
fn remains<M: Memory, H: Host>(tx: &Tx<'_, M, H>, number: u64, held: Held) -> Result<Remains> {
    let core = tx.core();
    let holding = held.holding;
    let home = match held.kind {
        OPEN | OPEN_TO_WRITE | DESCRIPTION => Some(description(core, &held)),
        RECORD_OF_OPEN | FLOCK => owner(core, holding),
        _ => None,
    };
    let Some(home) = home else {
        return Ok(Remains::Nothing);
    };
    let is_of_lock = matches!(held.kind, RECORD_OF_OPEN | FLOCK);
    if is_used(tx, number, home, holding)? {
        return Ok(match held.kind {
            _ if is_of_lock => Remains::Kind(held.kind),
            _ if home == holding => Remains::Kind(DESCRIPTION),
            _ => Remains::Nothing,
        });
    }
    if !is_of_lock {
        end_description(tx, number, home, holding)?;
    }
    Ok(Remains::Nothing)
}

fn settle<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    number: u64,
    held: Held,
    orphan: u64,
) -> Result<()> {
    let mut draft = Draft::open(tx, present(tx, number)?)?;
    if orphan == 0 {
        let trims = held.kind == OPEN_TO_WRITE && draft.inode.flags & flag::KEEPS_TAIL == 0;
        return if trims { stage_trim(tx, draft).map(drop) } else { Ok(()) };
    }
    let other = keeper(tx, number)?;
    tx.set_orphan(held.holding, 0)?;
    match other {
        _ if draft.inode.links.count != 0 => Ok(()),
        Some(other) => Ok(tx.set_orphan(other, orphan)?),
        None => {
            draft.inode.flags &= !flag::LINKABLE;
            reap(tx, draft).map(drop)
        }
    }
}

/// The file that has inode `number` now.
pub(crate) fn present(reader: &impl Reader, number: u64) -> Result<FileId> {
    let at = offset_of(number).ok_or(Error::Stale)?;
    let place = reader.core().resolve_kind(at, INODE).map_err(|_| {
        Error::Core(corrupt("orphan", at, "an inode that is allocated", at.bytes()))
    })?;
    Ok(FileId { number, generation: reader.word(place.offset().plus(word::GENERATION)) })
}
