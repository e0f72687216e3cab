//! A volume's index looks at itself.

use std::collections::BTreeSet;

use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::index::{Of, Use, Word, Words};
use crate::map::Extent;
use crate::volume::Volume;
use crate::{Error, Result};

/// Something that is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}, of {of}: expected {expected}, found {found}")]
pub struct Finding {
    /// What.
    pub what: &'static str,
    /// Of which segment, or unit of the space.
    pub of: u64,
    /// What should be there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Compares the map with itself, with what is counted and noted of segments, and with what is
    /// on the devices. All of the volume is read. Not while somebody changes it.
    ///
    /// # Errors
    /// Those of the devices and of the region, among them that the map's nodes are damaged.
    pub fn check(&self) -> Result<Vec<Finding>> {
        let (mut found, extents) = self.check_index()?;
        let mut bytes = Vec::new();
        for extent in &extents {
            bytes.resize((extent.len * self.layout.unit) as usize, 0);
            match self.read_units_anew(extent.unit, &mut bytes) {
                Err(Error::Damaged { .. } | Error::Device { .. }) => found.push(Finding {
                    what: "what the map leads to",
                    of: extent.unit,
                    expected: extent.place,
                    found: 0,
                }),
                other => other?,
            }
        }
        Ok(found)
    }

    /// Compares the map with itself, and with what is counted and noted of segments, while nobody
    /// changes it: what is wrong, and all extents.
    pub(crate) fn check_index(&self) -> Result<(Vec<Finding>, Vec<Extent>)> {
        self.change(|change| {
            // What was moved is in the map twice until that is done where it was.
            while change.trim_some()? {}
            let words = &change.tx;
            self.map.check(words, &mut Reachable::default())?;
            let mut found = Vec::new();
            let (mut extents, mut leaf, mut at) = (Vec::new(), Vec::new(), Some(0));
            while let Some(unit) = at {
                at = self.map.leaf(words, unit, &mut leaf)?;
                extents.append(&mut leaf);
            }
            self.check_counts(words, &extents, &mut found);
            self.check_places(words, &extents, &mut found);
            self.check_names(words, &extents, &mut found)?;
            Ok((found, extents))
        })
    }

    fn check_counts(&self, words: &impl Words, extents: &[Extent], found: &mut Vec<Finding>) {
        let mut live = vec![0; self.layout.segments as usize];
        for extent in extents {
            if let Some(count) = live.get_mut(self.layout.segment_of(extent.place) as usize) {
                *count += extent.len;
            }
        }
        let mut compare = |what, of, expected, value| {
            if expected != value {
                found.push(Finding { what, of, expected, found: value });
            }
        };
        compare("units in use", 0, live.iter().sum(), words.root(Word::Live));
        for (segment, &count) in (0..).zip(&live) {
            compare("units in use", segment, count, words.segment(segment, Of::Live));
        }
    }

    fn check_places(&self, words: &impl Words, extents: &[Extent], found: &mut Vec<Finding>) {
        let mut places: Vec<_> = extents.iter().map(|extent| (extent.place, extent.len)).collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            if let &[(place, len), (next, _)] = pair
                && place + len > next
            {
                let what = "a place for one unit";
                found.push(Finding { what, of: next, expected: 1, found: 2 });
            }
        }
        for extent in extents {
            let mut add = |what, expected, value| {
                found.push(Finding { what, of: extent.unit, expected, found: value });
            };
            let segment = self.layout.segment_of(extent.place);
            if segment >= self.layout.segments {
                add("a segment", self.layout.segments, segment);
                continue;
            }
            let (used, generation) = words.usage(segment);
            if !matches!(used, Use::Payload | Use::Stream) || generation == 0 {
                add("use of the segment", Use::Payload as u64, used as u64);
            }
            if self.layout.rest_of(extent.place) < extent.len {
                add("units in one segment", self.layout.rest_of(extent.place), extent.len);
            }
            let next = words.segment(segment, Of::Next);
            let end = extent.place % self.layout.segment + extent.len;
            if used == Use::Payload && end > next {
                add("room that was given out", next, end);
            }
        }
    }

    /// Whether cleaning would find all that is in use.
    fn check_names(
        &self,
        words: &impl Words,
        extents: &[Extent],
        found: &mut Vec<Finding>,
    ) -> Result<()> {
        let mut named = BTreeSet::new();
        for segment in 0..self.layout.segments {
            for name in self.names(words, segment)? {
                let units = name.unit..name.end();
                named.extend(units.zip(name.place..));
            }
        }
        for extent in extents {
            for pair in (extent.unit..extent.end()).zip(extent.place..) {
                if !named.contains(&pair) {
                    let (of, expected) = pair;
                    found.push(Finding { what: "a name", of, expected, found: 0 });
                }
            }
        }
        Ok(())
    }
}
