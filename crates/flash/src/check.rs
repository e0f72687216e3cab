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
        let mut found = Vec::new();
        self.change(|change| {
            self.map.check(&change.tx, &mut Reachable::default())?;
            Ok(())
        })?;
        let extents = self.extents()?;
        self.check_counts(&extents, &mut found);
        self.check_places(&extents, &mut found);
        self.check_names(&extents, &mut found)?;
        let mut bytes = Vec::new();
        for extent in &extents {
            bytes.resize((extent.len * self.layout.unit) as usize, 0);
            match self.read_units(extent.unit, &mut bytes) {
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

    /// All of the map.
    fn extents(&self) -> Result<Vec<Extent>> {
        let mut all = Vec::new();
        let mut at = Some(0);
        while let Some(unit) = at {
            let mut extents = Vec::new();
            at = self.core.read(crate::index::LOCK, |view| {
                extents.clear();
                self.map.leaf(view, unit, &mut extents)
            })?;
            all.append(&mut extents);
        }
        Ok(all)
    }

    fn check_counts(&self, extents: &[Extent], found: &mut Vec<Finding>) {
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
        let core = self.core.as_ref();
        compare("units in use", 0, live.iter().sum(), self.root(Word::Live));
        for (segment, &count) in (0..).zip(&live) {
            compare("units in use", segment, count, core.segment(segment, Of::Live));
        }
    }

    fn check_places(&self, extents: &[Extent], found: &mut Vec<Finding>) {
        let core = self.core.as_ref();
        let mut places = BTreeSet::new();
        for extent in extents {
            let segment = self.layout.segment_of(extent.place);
            let (used, generation) = core.usage(segment);
            let mut add = |what, expected, value| {
                found.push(Finding { what, of: extent.unit, expected, found: value });
            };
            if !matches!(used, Use::Payload | Use::Stream) || generation == 0 {
                add("use of the segment", Use::Payload as u64, used as u64);
            }
            if self.layout.rest_of(extent.place) < extent.len {
                add("units in one segment", self.layout.rest_of(extent.place), extent.len);
            }
            let next = core.segment(segment, Of::Next);
            let end = extent.place % self.layout.segment + extent.len;
            if used == Use::Payload && end > next {
                add("room that was given out", next, end);
            }
            for place in extent.place..extent.place + extent.len {
                if !places.insert(place) {
                    add("a place for one unit", 1, place);
                }
            }
        }
    }

    /// Whether cleaning would find all that is in use.
    fn check_names(&self, extents: &[Extent], found: &mut Vec<Finding>) -> Result<()> {
        let mut named = BTreeSet::new();
        for segment in 0..self.layout.segments {
            for name in self.names(self.core.as_ref(), segment)? {
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
