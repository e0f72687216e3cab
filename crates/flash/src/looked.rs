//! Where units are that somebody was looking for a moment ago: who reads in order, in small pieces,
//! looks for many units at once, and need not look again until the map has changed.

use std::sync::Mutex;

use conquest_pm::Stamp;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::index::LOCK;
use crate::transfer::Piece;
use crate::volume::Volume;

/// Units that are looked for at once.
const UNITS: u64 = 64;
/// How many can be remembered, for readers in different parts of the space.
const PLACES: usize = 8;
/// Units of a part: reading goes on in it.
const PART: u64 = 1 << 18;

/// What a process knows of the map, as it was found last.
#[derive(Debug, Default)]
pub(crate) struct Looked([Mutex<Option<Look>>; PLACES]);

/// A look at the map.
#[derive(Debug)]
struct Look {
    /// As long as this is current, the map is what it was.
    stamp: Stamp,
    pieces: Vec<Piece>,
    /// The unit behind the last one that was asked for.
    next: u64,
}

impl Look {
    /// Whether it tells of all units from `unit` to `end`.
    fn covers(&self, unit: u64, end: u64) -> bool {
        let first = self.pieces.first().is_some_and(|piece| piece.unit <= unit);
        first && self.pieces.last().is_some_and(|piece| end <= piece.unit + piece.len)
    }
}

impl Looked {
    fn place(&self, unit: u64) -> Option<&Mutex<Option<Look>>> {
        let mixed = (unit / PART).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.0.get(mixed as usize % PLACES)
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Calls `each` with the pieces in which the `units` units from `unit` on are, and which units
    /// of the piece are meant, until it returns false: whether one look has found all of them, and
    /// it never did.
    pub(crate) fn with_pieces(
        &self,
        unit: u64,
        units: u64,
        mut each: impl FnMut(&Piece, std::ops::Range<u64>) -> bool,
    ) -> Result<bool> {
        let end = unit.saturating_add(units);
        // It is never waited for: in a forked child nobody may have it.
        let mut place = self.looked.place(unit).and_then(|place| place.try_lock().ok());
        let known = place.as_deref_mut().and_then(Option::as_mut);
        let is_next = known.as_ref().is_some_and(|known| known.next == unit);
        if let Some(known) = known
            && known.covers(unit, end)
            && self.core.is_current(known.stamp)
        {
            known.next = end;
            return Ok(all_of(&known.pieces, unit..end, &mut each));
        }
        let stamp = self.core.stamp(LOCK);
        let pieces = self.look(unit, if is_next { units.max(UNITS) } else { units })?;
        let look = Look { stamp, pieces, next: end };
        let found = look.covers(unit, end) && all_of(&look.pieces, unit..end, &mut each);
        if let Some(place) = place.as_deref_mut() {
            *place = Some(look);
        }
        Ok(found)
    }
}

/// Calls `each` with those of `pieces` that have some of `units`, and with the numbers of these
/// within each, until it returns false: whether it never did.
fn all_of(
    pieces: &[Piece],
    units: std::ops::Range<u64>,
    mut each: impl FnMut(&Piece, std::ops::Range<u64>) -> bool,
) -> bool {
    pieces.iter().all(|piece| {
        let from = units.start.max(piece.unit);
        let to = units.end.min(piece.unit + piece.len);
        from >= to || each(piece, from - piece.unit..to - piece.unit)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use conquest_format::volume::BLOCK;
    use conquest_format::{GROUP_PAGES, PAGE};

    use super::*;
    use crate::operations::tests::volume;

    const PER: u64 = PAGE / BLOCK;

    fn unit_of(value: u64) -> Vec<u8> {
        vec![value as u8; PAGE as usize]
    }

    /// What is remembered where `unit` is: units from the first one on.
    fn remembered<M: Memory, H: Host>(volume: &Volume<M, H>, unit: u64) -> Option<(u64, u64)> {
        let place = volume.looked.place(unit).unwrap().lock().unwrap();
        let look = place.as_ref()?;
        let pieces = look.pieces.iter().map(|piece| piece.len);
        Some((look.pieces.first()?.unit, pieces.sum()))
    }

    #[test]
    fn who_reads_in_order_looks_for_many_units_and_sees_what_is_written_meanwhile() {
        let volume = volume();
        volume.allow_cache(GROUP_PAGES * PAGE).unwrap();
        let mut wanted: Vec<u64> = (1..=200).collect();
        for (unit, &value) in (0..).zip(&wanted) {
            volume.write_to_keep(unit * PER, &unit_of(value)).unwrap();
        }
        volume.flush().unwrap();
        let mut found = unit_of(0);
        for unit in 0..200_u64 {
            volume.read_in_order(unit * PER, &mut found).unwrap();
            assert_eq!(u64::from(found[0]), wanted[unit as usize], "unit {unit}");
            // In its part of the space nobody else reads.
            let (first, len) = remembered(&volume, unit).unwrap();
            let is_known = first <= unit && unit < first + len;
            assert!(is_known, "unit {unit}: {len} from {first} on");
            match unit {
                0 => assert_eq!(len, 1),
                // Where what was known ends, or has changed.
                1 | 65 | 71 | 135 => assert_eq!((first, len), (unit, UNITS)),
                10 | 110 => assert!(first < unit),
                _ => {}
            }
            if unit == 70 {
                for (other, value) in (71..90).zip(&mut wanted[71..90]) {
                    *value = 255 - other;
                    volume.write_to_keep(other * PER, &unit_of(*value)).unwrap();
                }
                volume.flush().unwrap();
            }
        }
        // Somewhere else nothing is looked for that was not asked for.
        volume.read_in_order(33 * PER, &mut found).unwrap();
        assert_eq!((remembered(&volume, 33), found[0]), (Some((33, 1)), 34));
    }

    #[test]
    fn a_look_covers_what_it_has_found_and_no_more() {
        let volume = volume();
        (0..10).for_each(|unit| volume.write(unit * PER, &unit_of(unit)).unwrap());
        for (from, units) in [(0, 10), (3, 4), (9, 1)] {
            let mut seen = Vec::new();
            let found = volume.with_pieces(from, units, |piece, range| {
                seen.extend(range.map(|index| piece.unit + index));
                true
            });
            assert!(found.unwrap());
            assert_eq!(seen, (from..from + units).collect::<Vec<_>>());
        }
        // Of many pieces one look finds only some.
        let volume = self::volume();
        for unit in (0..200).step_by(2).chain((1..200).step_by(2)) {
            volume.write(unit * PER, &unit_of(unit)).unwrap();
        }
        let mut seen = Vec::new();
        let mut see = |piece: &Piece, range: std::ops::Range<u64>| {
            assert!(!range.is_empty());
            seen.extend(range.map(|index| piece.unit + index));
            true
        };
        assert!(!volume.with_pieces(0, 150, &mut see).unwrap());
        assert!(volume.with_pieces(0, 30, &mut see).unwrap());
        assert!(volume.with_pieces(30, 5, &mut see).unwrap());
        assert_eq!(seen, (0..35).collect::<Vec<_>>());
        // No more are told of when it is over.
        let mut calls = 0;
        let mut stop = |_: &Piece, _: std::ops::Range<u64>| {
            calls += 1;
            false
        };
        assert!(!volume.with_pieces(0, 10, &mut stop).unwrap());
        assert_eq!(calls, 1);
    }
}
