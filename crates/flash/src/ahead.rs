//! Reading units one after the other, with fewer requests than that: what is behind one is mostly
//! wanted next.

use crate::recover::Reading;

/// The units of the medium that were read last.
pub(crate) struct Ahead<'d> {
    reading: Reading<'d>,
    first: u64,
    bytes: Vec<u8>,
}

impl<'d> Ahead<'d> {
    pub(crate) fn new(reading: Reading<'d>) -> Self {
        Ahead { reading, first: 0, bytes: Vec::new() }
    }

    /// The unit at `place` as whatever `parse` makes of it, from whatever copy has it. If it has to
    /// be read, so are those behind it in its segment: `units` with itself.
    pub(crate) fn parsed<T>(
        &mut self,
        place: u64,
        units: u64,
        mut parse: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let copies = self.reading.device.copies();
        let found = match self.unit(place, units) {
            Some(unit) => parse(unit).ok_or(copies > 1),
            None => Err(true),
        };
        match found {
            Ok(parsed) => Some(parsed),
            Err(may_be_elsewhere) if may_be_elsewhere => self.reading.parsed(place, parse),
            Err(_) => None,
        }
    }

    /// The unit at `place`, as one copy has it.
    fn unit(&mut self, place: u64, units: u64) -> Option<&[u8]> {
        let layout = self.reading.layout;
        let size = layout.unit as usize;
        let known = self.first..self.first + (self.bytes.len() / size) as u64;
        if !known.contains(&place) {
            self.bytes.resize(units.clamp(1, layout.rest_of(place)) as usize * size, 0);
            self.first = place;
            if !self.reading.read(place, &mut self.bytes) {
                self.bytes.clear();
            }
        }
        let from = (place - self.first) as usize * size;
        self.bytes.get(from..from + size)
    }
}
