//! The newest root of a volume, and which members of a mirror have what it says.

use conquest_format::volume::{ANCHORS, Root};

use crate::device::Device;
use crate::layout::Layout;
use crate::recover::Reading;
use crate::{Error, Result};

/// The newest root of the volume on `device`. Members that have failed by it, or lack what it says
/// that they have, count as failed in it.
pub(crate) fn newest_root(device: &dyn Device, layout: Layout) -> Result<Root> {
    let reading = Reading { device, layout };
    let copies = device.copies();
    let is_there = |copy: &u32| device.missing() & bit(*copy) == 0;
    let there: Vec<u32> = (0..copies).filter(is_there).collect();
    let newest = |&copy: &u32| reading.newest_root_on(copy).map(|root| (copy, root));
    let found: Vec<(u32, Root)> = there.iter().filter_map(newest).collect();
    let all = found.iter().map(|(_, root)| root);
    let newest = all.clone().max_by_key(|root| root.sequence);
    let mut newest = newest.cloned().ok_or_else(|| reading.unreadable("root"))?;
    if copies == 1 {
        // Nothing could be meant by it.
        newest.failed = 0;
        return Ok(newest);
    }
    if has_parted(&found) {
        return Err(Error::Parted { device: device.name().to_owned() });
    }
    let has_it = |copy: u32| {
        found.iter().any(|(other, root)| *other == copy && root.sequence >= newest.known)
    };
    let lacking = (0..copies).filter(|&copy| !has_it(copy)).map(bit).sum::<u64>();
    newest.failed = (newest.failed | lacking) & (u64::MAX >> (64 - copies.clamp(1, 64)));
    match there.iter().any(|&copy| newest.failed & bit(copy) == 0) {
        true => Ok(newest),
        false => Err(reading.unreadable("root")),
    }
}

const fn bit(copy: u32) -> u64 {
    1 << copy
}

/// Whether two members each say that the other has failed: they were used without each other, and
/// each has what the other one lacks.
fn has_parted(found: &[(u32, Root)]) -> bool {
    // One that was being brought up to date has a root that says so of itself.
    let accuses =
        |(one, root): &(u32, Root), other: u32| *one != other && root.failed & bit(other) != 0;
    found.iter().any(|one| found.iter().any(|other| accuses(one, other.0) && accuses(other, one.0)))
}

impl Reading<'_> {
    /// The newest root that copy `copy` has.
    fn newest_root_on(&self, copy: u32) -> Option<Root> {
        let per = self.layout.roots_per_anchor();
        let roots = (0..ANCHORS).flat_map(|anchor| {
            let first = self.layout.first_place(anchor);
            let bytes = self.units_of(copy, first, per);
            let unit = self.layout.unit as usize;
            let found = (first..).zip(bytes.chunks(unit)).filter_map(|(place, unit)| {
                let root = Root::from_unit(self.layout.bind, unit)?;
                self.layout.root_places(root.sequence).contains(&place).then_some(root)
            });
            found.collect::<Vec<_>>()
        });
        roots.max_by_key(|root| root.sequence)
    }

    /// Units from `first` on as copy `copy` has them; zeros for those that can't be read.
    pub(crate) fn units_of(&self, copy: u32, first: u64, count: u64) -> Vec<u8> {
        let unit = self.layout.unit;
        let mut bytes = vec![0; (count * unit) as usize];
        if self.device.read_copy(copy, first * unit, &mut bytes).is_ok() {
            return bytes;
        }
        for (place, part) in (first..).zip(bytes.chunks_mut(unit as usize)) {
            if self.device.read_copy(copy, place * unit, part).is_err() {
                part.fill(0);
            }
        }
        bytes
    }
}
