//! The members of a volume: made, and put together.

use std::sync::Arc;

use conquest_format::geometry::Shape;
use conquest_format::kind::KindTable;
use conquest_format::volume::{
    ANCHORS, Arrangement, Life, MIRRORS_MAX, Root, SIZE, Superblock, UNIT, UNIT_MAX,
};
use conquest_format::{GROUP, PAGE};

use crate::device::{Device, InOrder, Inset, Limits, Mirrored, Missing, Striped};
use crate::index::{self, SEGMENTS_MAX};
use crate::layout::Layout;
use crate::{Error, Result};

/// What a new volume is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewVolume {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Nanoseconds since 1970.
    pub created: u64,
    /// How its members are combined.
    pub arrangement: Arrangement,
    /// Units of a segment, a power of two; none for what suits the size.
    pub segment: Option<u64>,
}

/// The members of a volume, put together: what its space is on.
#[derive(Clone)]
pub struct Body {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// Which device each member is, of those that were it; none for those that are missing.
    pub(crate) stamps: Vec<Option<u64>>,
}

/// Bytes of each member before its first segment.
const START: u64 = 65536;
/// Segments that a volume has at least.
const SEGMENTS_LEAST: u64 = 32;
/// Segments that cleaning needs to be good at choosing.
const SEGMENTS_WISHED: u64 = 8192;

fn shape_error(device: &dyn Device, what: &'static str) -> Error {
    Error::Shape { device: device.name().to_owned(), what }
}

fn failed(
    device: &dyn Device,
    action: &'static str,
    at: u64,
    bytes: u64,
) -> impl FnOnce(std::io::Error) -> Error {
    let device = device.name().to_owned();
    move |source| Error::Device { device, action, at, bytes, source }
}

/// Makes a volume of `members`: what is on them is lost.
///
/// # Errors
/// [`Error::Shape`], those of the devices.
pub fn create(members: &[Arc<dyn Device>], new: &NewVolume) -> Result<()> {
    let members: Vec<_> = members.iter().cloned().map(writable).collect();
    let first = plan(&members, new)?;
    for (number, member) in (0..).zip(&members) {
        let superblock = Superblock { member: number, len: member.len(), ..first };
        for at in [0, last_place(member.as_ref())] {
            write_superblock(member.as_ref(), at, &superblock)?;
        }
    }
    let device = combined(&members, &first)?;
    let layout = Layout::new(&first);
    let place = layout.first_place(ANCHORS);
    let lives = vec![Life { life: 1, packet: 1, place, generation: 1 }];
    let mut unit = vec![0; layout.unit as usize];
    let root = Root {
        sequence: 1,
        checkpoint: None,
        durable: 1,
        failed: 0,
        since: 0,
        known: 1,
        lives,
        stand_ins: vec![],
    };
    root.fill(layout.bind, &mut unit);
    for place in layout.root_places(1) {
        erase_segment(device.as_ref(), &layout, layout.segment_of(place))?;
        let at = place * layout.unit;
        let written = device.write(at, &unit);
        written.map_err(failed(device.as_ref(), "write", at, layout.unit))?;
    }
    device.flush().map_err(failed(device.as_ref(), "flush", 0, 0))
}

/// The superblock of a new volume.
fn plan(members: &[Arc<dyn Device>], new: &NewVolume) -> Result<Superblock> {
    let Some(first) = members.first() else {
        return Err(Error::Shape { device: "no device".into(), what: "it takes at least one" });
    };
    let limits = members.iter().map(|member| member.limits());
    let unit = limits.clone().map(|limits| u64::from(limits.physical)).max().unwrap_or(UNIT);
    let unit = unit.max(UNIT);
    if !unit.is_power_of_two() || unit > UNIT_MAX {
        return Err(shape_error(first.as_ref(), "its physical blocks are larger than 64 KiB"));
    }
    let erase = limits.clone().filter_map(|limits| limits.erase).max().unwrap_or(1);
    let start = START.next_multiple_of(erase);
    let least = members.iter().map(|member| last_place(member.as_ref())).min().unwrap_or(0);
    let share = least.saturating_sub(start);
    let count = match new.arrangement {
        Arrangement::Striped => members.len() as u64,
        Arrangement::Mirrored => 1,
    };
    let segment = new.segment.unwrap_or_else(|| fitting(share * count / unit).max(erase / unit));
    if !(segment * unit).is_multiple_of(erase) {
        return Err(shape_error(first.as_ref(), "segments have to be whole erase blocks"));
    }
    let rows = share / (unit * segment.max(1));
    let superblock = Superblock {
        uuid: new.uuid,
        created: new.created,
        member: 0,
        members: members.len() as u32,
        arrangement: new.arrangement,
        unit,
        segment,
        segments: rows * count,
        start,
        len: first.len(),
        stamp: 0,
    };
    if superblock.arrangement == Arrangement::Mirrored && superblock.members > MIRRORS_MAX {
        return Err(shape_error(first.as_ref(), "a mirror has 64 members at most"));
    }
    if superblock.segments < SEGMENTS_LEAST {
        return Err(shape_error(first.as_ref(), "it is too small: it takes 32 segments at least"));
    }
    if superblock.segments > SEGMENTS_MAX {
        return Err(shape_error(first.as_ref(), "it would have more than 262,144 segments"));
    }
    if !superblock.is_possible() {
        return Err(shape_error(first.as_ref(), "segments have 8 to 65,536 units, a power of two"));
    }
    Ok(superblock)
}

/// Units of a segment of a volume of so many units.
fn fitting(units: u64) -> u64 {
    let wished = units / SEGMENTS_WISHED;
    if wished < 16 { 16 } else { (1 << wished.ilog2()).clamp(16, 65536) }
}

/// Where the second superblock of a member stands: in its last page, or block, if these are larger,
/// or erase block.
pub(crate) fn last_place(member: &dyn Device) -> u64 {
    let Limits { block, erase, .. } = member.limits();
    let whole = erase.unwrap_or(PAGE.max(block.into()));
    (member.len() / whole * whole).saturating_sub(whole)
}

/// Bytes that a superblock takes on `member`.
fn superblock_bytes(member: &dyn Device) -> usize {
    SIZE.next_multiple_of(member.limits().block as usize)
}

/// Makes `device` member `number` of a mirror like `superblock`, with nothing of what the others
/// have: it has failed until it gets that.
pub(crate) fn make_member(device: &dyn Device, superblock: &Superblock, number: u32) -> Result<()> {
    let layout = Layout::new(superblock);
    let mut drawn = [0; 8];
    rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| failed(device, "draw a number for", 0, 8)(errno.into()))?;
    let stamp = u64::from_le_bytes(drawn);
    let superblock = Superblock { member: number, len: device.len(), stamp, ..*superblock };
    if !superblock.is_possible() {
        return Err(shape_error(device, "it is smaller than what the other members have in use"));
    }
    // It may have been a member before: what roots it has don't count.
    let bytes = layout.roots_per_anchor() * layout.unit;
    for anchor in 0..ANCHORS {
        let at = superblock.start + layout.first_place(anchor) * layout.unit;
        let written = device.write(at, &vec![0; bytes as usize]);
        written.map_err(failed(device, "write", at, bytes))?;
    }
    device.flush().map_err(failed(device, "flush", 0, 0))?;
    for at in [0, last_place(device)] {
        write_superblock(device, at, &superblock)?;
    }
    device.flush().map_err(failed(device, "flush", 0, 0))
}

/// Writes a copy of `superblock` to byte `at` of `member`.
pub(crate) fn write_superblock(
    member: &dyn Device,
    at: u64,
    superblock: &Superblock,
) -> Result<()> {
    let mut bytes = superblock.to_bytes().to_vec();
    bytes.resize(superblock_bytes(member), 0);
    erase(member, at)?;
    member.write(at, &bytes).map_err(failed(member, "write", at, bytes.len() as u64))
}

/// `member`, written as others are if it has to be written in order.
fn writable(member: Arc<dyn Device>) -> Arc<dyn Device> {
    match member.limits().erase {
        Some(_) => Arc::new(InOrder(member)),
        None => member,
    }
}

/// Erases the erase block at `at` if `member` has any.
fn erase(member: &dyn Device, at: u64) -> Result<()> {
    match member.limits().erase {
        Some(bytes) => {
            let erased = member.discard(at, bytes);
            erased.map_err(failed(member, "erase", at, bytes))
        }
        None => Ok(()),
    }
}

/// Erases `segment`, if the device of all members has to be.
pub(crate) fn erase_segment(device: &dyn Device, layout: &Layout, segment: u64) -> Result<()> {
    if device.limits().erase.is_none() {
        return Ok(());
    }
    let bytes = layout.segment * layout.unit;
    let at = layout.first_place(segment) * layout.unit;
    device.discard(at, bytes).map_err(failed(device, "erase", at, bytes))
}

/// The segments of all members as one device.
fn combined(members: &[Arc<dyn Device>], superblock: &Superblock) -> Result<Arc<dyn Device>> {
    let bytes = superblock.unit * superblock.segment;
    let rows = match superblock.arrangement {
        Arrangement::Striped => superblock.segments / u64::from(superblock.members),
        Arrangement::Mirrored => superblock.segments,
    };
    let inset = |member: &Arc<dyn Device>| -> Arc<dyn Device> {
        Arc::new(Inset::new(Arc::clone(member), superblock.start, rows * bytes))
    };
    let insets: Vec<_> = members.iter().map(inset).collect();
    let name = members.first().map(|member| member.name().to_owned()).unwrap_or_default();
    if let [only] = insets.as_slice() {
        return Ok(Arc::clone(only));
    }
    let device: std::io::Result<Arc<dyn Device>> = match superblock.arrangement {
        Arrangement::Striped => Striped::new(insets, bytes).map(|device| Arc::new(device) as _),
        Arrangement::Mirrored => Mirrored::new(insets).map(|device| Arc::new(device) as _),
    };
    device.map_err(|_| Error::Shape { device: name, what: "its members can't be combined" })
}

/// Puts the members of a volume together, in whatever order they are given.
///
/// # Errors
/// [`Error::Member`], [`Error::Missing`], those of the devices.
pub fn assemble(members: Vec<Arc<dyn Device>>) -> Result<Body> {
    together(members, false)
}

/// The same for those members of a mirrored volume that are there. Those that are not have failed
/// from then on; if what they have is newer, it is lost.
///
/// # Errors
/// [`Error::Member`], those of the devices.
pub fn assemble_degraded(members: Vec<Arc<dyn Device>>) -> Result<Body> {
    together(members, true)
}

fn together(members: Vec<Arc<dyn Device>>, is_degraded: bool) -> Result<Body> {
    let mut found = Vec::new();
    for member in members.into_iter().map(writable) {
        found.push((superblock_of(member.as_ref())?, member));
    }
    found.sort_by_key(|(superblock, _)| superblock.member);
    let Some((first, device)) = found.first().cloned() else {
        return Err(Error::Shape { device: "no device".into(), what: "it takes at least one" });
    };
    check_alike(&first, &found)?;
    if first.segments > SEGMENTS_MAX {
        let what = "it has more segments than this program can manage";
        return Err(Error::Member { device: device.name().to_owned(), what });
    }
    let mut found = found.into_iter().peekable();
    let mut members: Vec<Arc<dyn Device>> = Vec::new();
    let mut stamps = Vec::new();
    for number in 0..first.members {
        let next = found.next_if(|(superblock, _)| superblock.member == number);
        let is_mirrored = first.arrangement == Arrangement::Mirrored;
        stamps.push(next.as_ref().map(|(superblock, _)| superblock.stamp));
        members.push(match next {
            Some((_, member)) => member,
            None if is_mirrored && is_degraded => Arc::new(Missing::like(device.as_ref())),
            None => return Err(missing(device.as_ref(), number, &first)),
        });
    }
    Ok(Body { device: combined(&members, &first)?, superblock: first, stamps })
}

/// The error for member `number`, which is not there.
fn missing(device: &dyn Device, number: u32, superblock: &Superblock) -> Error {
    let (device, members) = (device.name().to_owned(), superblock.members);
    match superblock.arrangement {
        Arrangement::Mirrored => Error::Missing { device, member: number, members },
        Arrangement::Striped => Error::Member { device, what: "members of the volume are missing" },
    }
}

/// Refuses members, in the order of their numbers, that are not of one volume, as `first`.
fn check_alike(first: &Superblock, found: &[(Superblock, Arc<dyn Device>)]) -> Result<()> {
    let refuse = |device: &Arc<dyn Device>, what| {
        Err(Error::Member { device: device.name().to_owned(), what })
    };
    for (superblock, device) in found {
        if superblock.uuid != first.uuid {
            return refuse(device, "it belongs to another volume than the others");
        }
        let Superblock { member, len, stamp, .. } = *first;
        let same = Superblock { member, len, stamp, ..*superblock };
        if same != *first {
            return refuse(device, "it says of the volume what the others don't");
        }
    }
    for pair in found.windows(2) {
        if let [(one, _), (other, member)] = pair
            && one.member == other.member
        {
            return refuse(member, "it is given twice, or the same member as another one");
        }
    }
    Ok(())
}

/// The superblock of `member`: the first that can be read.
pub(crate) fn superblock_of(member: &dyn Device) -> Result<Superblock> {
    let mut why = None;
    for at in [0, last_place(member)] {
        match superblock_at(member, at) {
            None => {}
            Some(Ok(found)) if found.len > member.len() => {
                why = Some("it is shorter than it was");
            }
            Some(Ok(found)) => return Ok(found),
            // At the end of one that has become shorter, there is none.
            Some(Err(what)) => why = why.or(Some(what)),
        }
    }
    let what = why.unwrap_or("it can't be read");
    Err(Error::Member { device: member.name().to_owned(), what })
}

/// The superblock of `member` at `at`, or what is wrong with it; none if it can't be read.
pub(crate) fn superblock_at(
    member: &dyn Device,
    at: u64,
) -> Option<core::result::Result<Superblock, &'static str>> {
    let mut bytes = vec![0; superblock_bytes(member)];
    member.read(at, &mut bytes).ok()?;
    bytes.first_chunk().map(Superblock::from_bytes)
}

impl Body {
    /// Which volume.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.superblock)
    }

    /// The kinds of its region.
    #[must_use]
    pub fn kinds(&self) -> KindTable {
        index::kind_table(&self.layout())
    }

    /// The shape of a region for it, which holds its map however many extents that has, and has
    /// room for so many processes.
    #[must_use]
    pub fn shape(&self, processes: u32) -> Shape {
        let layout = self.layout();
        let units = layout.segments * layout.segment;
        // A unit each: a slot of the map at worst a third full, its name, its checksum.
        let bytes = units * 72
            + layout.segments * 2 * PAGE
            + crate::index::RING * layout.packet_pages() * PAGE
            + GROUP;
        Shape {
            max_groups: (bytes + u64::from(processes) * PAGE).div_ceil(GROUP) + 4,
            lanes: processes.saturating_mul(2).clamp(4, 256),
            slots: processes.clamp(2, 1000),
            locks: 4,
            chunks: processes.clamp(2, 1000),
            log: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Faults, Faulty, MemoryDevice, Work};

    /// What it says of itself may be there after a power cut as soon as it is written. Roots that
    /// it has from when it was a member before would count then.
    #[test]
    fn a_device_is_no_member_before_the_roots_that_it_had_are_gone_for_good() {
        let faults = Arc::new(Faults::default());
        let memory = || MemoryDevice::new("memory", 8 << 20, Limits::of_blocks(4096)).unwrap();
        let device = Faulty::new(memory(), Arc::clone(&faults));
        let members: [Arc<dyn Device>; 2] = [Arc::new(memory()), Arc::new(memory())];
        let arrangement = Arrangement::Mirrored;
        let new = NewVolume { uuid: [1; 16], created: 1, arrangement, segment: Some(16) };
        create(&members, &new).unwrap();
        let superblock = superblock_of(members[0].as_ref()).unwrap();
        let mut steps: Vec<_> = (0..ANCHORS).map(|nth| (Work::Write, nth)).collect();
        steps.push((Work::Flush, 0));
        for (work, nth) in steps {
            faults.fail(work, nth, libc::EIO);
            let refused = make_member(&device, &superblock, 1);
            assert!(matches!(refused, Err(Error::Device { .. })), "{work:?} {nth}: {refused:?}");
            assert!(superblock_of(&device).is_err(), "{work:?} {nth}");
        }
        // Nor before that is there for good.
        faults.fail(Work::Flush, 1, libc::EIO);
        assert!(make_member(&device, &superblock, 1).is_err());
        make_member(&device, &superblock, 1).unwrap();
        assert_eq!(superblock_of(&device).unwrap().member, 1);
    }
}
