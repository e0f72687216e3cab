//! What recovery keeps is on every member of a mirror.
//!
//! A power cut may leave something on one member only of what was not flushed. Recovery takes it
//! from there; and as it counts as durable from then on, it is written to the others before, so
//! that it outlives the one that had it. Members that don't take it have failed.

use conquest_format::volume::{Packet, Record, Records, Sums, digest};

use crate::recover::{AT_ONCE, Found, Generations, Reading};

impl Reading<'_> {
    /// Writes what `packets` consist of and name to the copies that lack it: those that need not
    /// have been flushed, from number `durable` on. `generations` are those of the segments before
    /// the first of all packets.
    pub(crate) fn make_alike(&self, packets: &[Found], durable: u64, generations: Generations) {
        // What has to be written in order is written behind what was lost.
        if self.device.copies() == 1 || self.device.limits().erase.is_some() {
            return;
        }
        let mut generations = generations;
        for Found { header, words } in packets {
            generations.begin(self.layout.segment_of(header.place), header.generation);
            let is_flushed = header.number < durable;
            if !is_flushed {
                self.make_header_alike(header);
            }
            for (record, _) in Records::new(words).flatten() {
                match record {
                    Record::Begin { segment, generation } => generations.begin(segment, generation),
                    Record::Write { place, len, sums, .. } if !is_flushed => {
                        let generation = generations.of(self.layout.segment_of(place));
                        self.make_payload_alike(place, len, generation, sums);
                    }
                    _ => {}
                }
            }
        }
    }

    fn make_header_alike(&self, header: &Packet) {
        let bind = self.layout.bind;
        self.make_units_alike(header.place, 1, |_, unit| {
            Packet::from_unit(bind, unit).is_some_and(|found| found == *header)
        });
    }

    fn make_payload_alike(&self, place: u64, len: u64, generation: u64, sums: Sums<'_>) {
        let bind = self.layout.bind;
        let sums: Vec<u32> = sums.iter().collect();
        let at_once = (AT_ONCE / self.layout.unit).max(1);
        for first in (0..len).step_by(at_once as usize) {
            let count = at_once.min(len - first);
            self.make_units_alike(place + first, count, |index, unit| {
                let sum = bind.sum(place + first + index, generation, digest(unit));
                sums.get((first + index) as usize) == Some(&sum)
            });
        }
    }

    /// Lets all copies of `len` units from `place` on be as one that `is_right`, unit by unit.
    fn make_units_alike(&self, place: u64, len: u64, is_right: impl Fn(u64, &[u8]) -> bool) {
        let unit = self.layout.unit;
        let failed = self.device.standing().failed;
        let used = (0..self.device.copies()).filter(|copy| failed & 1 << copy == 0);
        let read = |copy: u32| (copy, self.units_of(copy, place, len));
        let copies: Vec<(u32, Vec<u8>)> = used.map(read).collect();
        for index in 0..len {
            let range = (index * unit) as usize..((index + 1) * unit) as usize;
            let of = |bytes: &'_ Vec<u8>| bytes.get(range.clone()).map(<[u8]>::to_vec);
            let all: Vec<_> =
                copies.iter().filter_map(|(copy, bytes)| Some((*copy, of(bytes)?))).collect();
            let (right, wrong): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|(_, unit)| is_right(index, unit));
            let Some((_, right)) = right.first() else {
                continue;
            };
            for (copy, _) in wrong {
                // One that does not take it has failed by that.
                let _ = self.device.write_copy(copy, (place + index) * unit, right);
            }
        }
    }
}
