//! Mapping a range anew, so that nobody ever finds it unmapped.

use conquest_format::WORD;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Result, Tx};

use super::edit::{Cut, Path, Room, has_room, refuse_invalid};
use super::extent::Extent;
use super::node::{SLOTS, Words, below, slot_at, slots};
use super::tree::Tree;

/// Whether `extent` takes exactly the place of `found` in the leaf that has `words`: then one word
/// says so. It does not if it belongs together with what is beside it.
pub(super) fn replaces(words: &Words, found: Extent, extent: Extent) -> bool {
    let is_beside = |other: Extent| {
        (other.end() == extent.unit && other.place + other.len == extent.place)
            || (extent.end() == other.unit && extent.place + extent.len == other.place)
    };
    found.unit == extent.unit
        && found.len == extent.len
        && !slots(words).filter_map(|slot| slot.extent()).any(is_beside)
}

impl Tree {
    /// Maps the range of `extent` to its place, and calls `removed` with each part of what was
    /// mapped there, as [`Self::clear`] and [`Self::insert`] together would do. But each record
    /// that is committed leaves each unit where it was, or where it is to be: nobody finds a hole.
    ///
    /// Returns whether all is done; if not, as [`Self::clear`]. What is there already, because of
    /// an earlier call or one of somebody who died, is not told to `removed`.
    ///
    /// # Errors
    /// Those of [`Self::clear`] and [`Self::insert`].
    pub fn assign<'c, M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'c, M, H>,
        extent: Extent,
        room: Room,
        mut removed: impl FnMut(&mut Tx<'c, M, H>, Extent) -> Result<()>,
    ) -> Result<bool> {
        refuse_invalid(&extent)?;
        let mut from = extent.unit;
        while let Some(rest) = extent.within(from, extent.end()) {
            let Some(mut path) = self.path(tx, from)? else {
                return self.plant(tx, room.kept);
            };
            let slot = below(&path.words, from);
            let found = slot.and_then(|slot| slot.extent());
            let there = found.and_then(|found| found.within(from, rest.end()));
            let replaced = slot.zip(found).filter(|(_, found)| replaces(&path.words, *found, rest));
            let until = match (there, replaced) {
                (Some(found), _) if found.place == rest.place => found.end(),
                (_, Some((slot, found))) => {
                    if !has_room(tx, 1 + room.each + room.kept)? {
                        return Ok(false);
                    }
                    let at = slot_at(path.leaf.offset(), slot.index);
                    tx.set(at.plus(WORD), rest.pack()[1])?;
                    removed(tx, found)?;
                    rest.end()
                }
                _ => match self.assign_in_leaf(tx, &mut path, rest, room, &mut removed)? {
                    Some(until) => until,
                    None => return Ok(false),
                },
            };
            if path.is_sparse() && !self.tidy(tx, from, room.kept)? {
                return Ok(false);
            }
            from = until;
        }
        Ok(true)
    }

    /// Maps what it can of `extent` in the leaf of `path`, in which it begins: up to where; none if
    /// the caller is to commit first.
    fn assign_in_leaf<'c, M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'c, M, H>,
        path: &mut Path,
        extent: Extent,
        room: Room,
        removed: &mut impl FnMut(&mut Tx<'c, M, H>, Extent) -> Result<()>,
    ) -> Result<Option<u64>> {
        // One for the extent, and one for the second part of what it is within.
        if path.used + 2 > SLOTS {
            self.split(tx, path, extent.unit, room.kept)?;
            return Ok(None);
        }
        // Up to what is there already.
        let is_there = |found: &Extent| {
            let piece = found.within(extent.unit, extent.end());
            piece.is_some_and(|piece| extent.within(piece.unit, piece.end()) == Some(piece))
        };
        let there = slots(&path.words).filter_map(|slot| slot.extent()).filter(is_there);
        let limit = there.map(|found| found.unit).chain([path.limit()]).min();
        let Some(piece) = extent.within(extent.unit, limit.unwrap_or(extent.unit)) else {
            return Ok(None);
        };
        let after = path.entries_to_add();
        if !has_room(tx, after + room.kept)? {
            return Ok(None);
        }
        let until = match self.cut(tx, path, &(piece.unit..piece.end()), room, after, removed)? {
            Cut::Whole => piece.end(),
            Cut::Until(unit) => unit,
            Cut::Full => return Ok(None),
        };
        let Some(piece) = piece.within(piece.unit, until) else {
            return Ok(None);
        };
        // Cutting has left room for it: the hole and what fills it are of one record.
        self.add(tx, path, piece)?;
        Ok(Some(until))
    }
}
