//! Ways to corrupt what is on the devices: as media do, and with right checksums.

use conquest_format::volume::{
    Arrangement, Bind, HEADER_WORDS, Leaf, Packet, Records, Root, put_words, words,
};
use conquest_testkit::Rng;
use conquest_testkit::flash::{Medium, SECTOR};

use crate::base::{Base, SEGMENT, START, UNIT};

/// What a unit of a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Superblock,
    Root,
    Packet,
    Leaf,
    Other,
}

/// A unit of a member that is not zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) member: usize,
    /// Its byte.
    pub(crate) at: u64,
    pub(crate) kind: Kind,
    /// Of roots and packets, their number.
    number: u64,
}

/// All units of `members` that are not zeros.
pub(crate) fn survey(members: &[Medium], bind: Bind) -> Vec<Place> {
    let mut found = Vec::new();
    for (member, medium) in members.iter().enumerate() {
        for at in (0..medium.len()).step_by(UNIT as usize) {
            let unit = read(medium, at);
            let (kind, number) = if at < START || at + START >= medium.len() {
                (Kind::Superblock, 0)
            } else if let Some(root) = Root::from_unit(bind, &unit) {
                (Kind::Root, root.sequence)
            } else if let Some(packet) = Packet::from_unit(bind, &unit) {
                (Kind::Packet, packet.number)
            } else if let Some(leaf) = Leaf::from_unit(bind, &unit) {
                (Kind::Leaf, leaf.id)
            } else {
                (Kind::Other, 0)
            };
            if unit.iter().any(|&byte| byte != 0) {
                found.push(Place { member, at, kind, number });
            }
        }
    }
    found
}

pub(crate) fn read(medium: &Medium, at: u64) -> Vec<u8> {
    let mut unit = vec![0; UNIT as usize];
    // What can't be read is zeros.
    let _ = medium.read(at, &mut unit);
    unit
}

/// Some place, of a kind that is as likely as others; often one of the newest.
fn pick(rng: &mut Rng, places: &[Place]) -> Option<Place> {
    let kinds = [Kind::Superblock, Kind::Root, Kind::Packet, Kind::Packet, Kind::Leaf, Kind::Other];
    let kind = kinds[rng.below(kinds.len() as u64) as usize];
    let mut of: Vec<_> = places.iter().filter(|place| place.kind == kind).collect();
    of.sort_by_key(|place| place.number);
    let count = of.len() as u64;
    let index = match rng.below(3) {
        0 => count.saturating_sub(1 + rng.below(8)),
        _ => rng.below(count),
    };
    of.get(index as usize).copied().copied()
}

/// What was done to a volume.
pub(crate) struct Corruption {
    pub(crate) what: Vec<String>,
    /// The member that alone was corrupted.
    pub(crate) member: Option<usize>,
    /// Superblocks are as they were.
    pub(crate) has_superblocks: bool,
}

/// Corrupts `members`, which are those of `base`, as media do.
pub(crate) fn corrupt(rng: &mut Rng, base: &Base, members: &mut [Medium]) -> Corruption {
    let mut places = survey(members, base.bind);
    let only = rng.chance(1, 2).then(|| rng.below(members.len() as u64) as usize);
    if let Some(only) = only {
        places.retain(|place| place.member == only);
    }
    let spare_superblocks = rng.chance(1, 2);
    if spare_superblocks {
        places.retain(|place| place.kind != Kind::Superblock);
    }
    let mut what = Vec::new();
    let count = [1, 1, 1, 2, 5, 40][rng.below(6) as usize];
    for _ in 0..count {
        let Some(place) = pick(rng, &places) else { continue };
        let done = spoil(rng, base, members, &places, place);
        what.push(format!(
            "{done} {:?} {} at {}:{:#x}",
            place.kind, place.number, place.member, place.at
        ));
    }
    let member = only.or((members.len() == 1).then_some(0));
    Corruption { what, member, has_superblocks: spare_superblocks }
}

fn spoil(
    rng: &mut Rng,
    base: &Base,
    members: &mut [Medium],
    places: &[Place],
    place: Place,
) -> &'static str {
    let Place { member, at, .. } = place;
    let mut unit = read(&members[member], at);
    let what = match rng.below(10) {
        0 => {
            let bit = rng.below(UNIT * 8) as usize;
            unit[bit / 8] ^= 1 << (bit % 8);
            "bit of"
        }
        1 => {
            unit[rng.below(UNIT) as usize] = rng.word() as u8;
            "byte of"
        }
        2 => {
            let end = if rng.chance(1, 2) { 24 } else { UNIT / 8 };
            let word = rng.below(end) as usize * 8;
            unit[word..word + 8].copy_from_slice(&rng.word().to_le_bytes());
            "word of"
        }
        3 => {
            let sector = (rng.below(UNIT / SECTOR) * SECTOR) as usize;
            unit[sector..sector + SECTOR as usize].fill(0);
            "zeros in"
        }
        4 => {
            let sector = (rng.below(UNIT / SECTOR) * SECTOR) as usize;
            unit[sector..].iter_mut().for_each(|byte| *byte = rng.word() as u8);
            "garbage in"
        }
        5 => {
            unit.fill(0);
            "zeros for"
        }
        6 => {
            let other = places[rng.below(places.len() as u64) as usize];
            unit = read(&members[other.member], other.at);
            "another unit for"
        }
        7 => {
            let sector = (rng.below(UNIT / SECTOR) * SECTOR) as usize;
            let Some(earlier) = earlier(rng, base, member) else { return "nothing of" };
            let old = read(earlier, at);
            unit[..sector].copy_from_slice(&old[..sector]);
            "the old begin of"
        }
        8 => {
            let Some(earlier) = earlier(rng, base, member) else { return "nothing of" };
            unit = read(earlier, at);
            "the old"
        }
        _ => {
            let count = SECTOR << rng.below(4);
            members[member].spoil(at, count);
            return "unreadable";
        }
    };
    members[member].write(at, &unit);
    what
}

fn earlier<'b>(rng: &mut Rng, base: &'b Base, member: usize) -> Option<&'b Medium> {
    let index = rng.below(base.earlier.len() as u64) as usize;
    base.earlier.get(index).and_then(|media| media.get(member))
}

/// Changes something that has a meaning, and makes the checksum right.
pub(crate) fn forge(rng: &mut Rng, base: &Base, members: &mut [Medium]) -> Vec<String> {
    let mut places = survey(members, base.bind);
    places.retain(|place| place.kind != Kind::Other);
    let mut done = Vec::new();
    for _ in 0..[1, 1, 2, 6][rng.below(4) as usize] {
        let Some(place) = pick(rng, &places) else { continue };
        let unit = read(&members[place.member], place.at);
        let mut fields: Vec<u64> = words(&unit).collect();
        let index = meant(rng, place.kind, &fields);
        let segments = members[0].len() / (SEGMENT * UNIT);
        let old = fields[index];
        fields[index] = forged(rng, old, &fields, segments);
        let mut bytes = vec![0; UNIT as usize];
        put_words(&mut bytes, fields.iter().copied());
        bytes.truncate(UNIT as usize - 8);
        let seal = base.bind.checksum(&bytes);
        bytes.extend(seal.to_le_bytes());
        members[place.member].write(place.at, &bytes);
        if base.arrangement == Arrangement::Mirrored
            && rng.chance(3, 4)
            && place.kind != Kind::Superblock
        {
            members.iter_mut().for_each(|member| member.write(place.at, &bytes));
        }
        done.push(format!(
            "{:?} {} at {}:{:#x}: word {index} {old:#x} is {:#x}",
            place.kind, place.number, place.member, place.at, fields[index]
        ));
    }
    done
}

/// A word of a unit of this `kind` that means something.
fn meant(rng: &mut Rng, kind: Kind, fields: &[u64]) -> usize {
    let below = |rng: &mut Rng, end: u64| rng.below(end.clamp(1, fields.len() as u64 - 1)) as usize;
    match kind {
        Kind::Superblock => below(rng, 16),
        Kind::Root => {
            let lives = fields[5].min(64);
            if rng.chance(1, 2) { below(rng, 8) } else { below(rng, 8 + lives * 4) }
        }
        Kind::Leaf => {
            let end = 8 + fields[4].min(500);
            match rng.below(3) {
                0 => below(rng, 8),
                // The heads of the first items.
                1 => 8 + below(rng, 12),
                _ => below(rng, end),
            }
        }
        _ if rng.chance(1, 3) => below(rng, HEADER_WORDS as u64),
        _ => {
            // A word of some record: mostly one of its first three.
            let end = HEADER_WORDS + (fields[6] as usize).min(fields.len() - HEADER_WORDS - 1);
            let mut records = Records::new(&fields[HEADER_WORDS..end]);
            let mut starts = vec![0];
            while let Some(Ok(_)) = records.next() {
                starts.push(records.at());
            }
            let start = starts[rng.below(starts.len() as u64) as usize];
            let within = if rng.chance(3, 4) { rng.below(3) } else { rng.below(40) };
            (HEADER_WORDS + start + within as usize).min(fields.len() - 2)
        }
    }
}

/// What a word may be made.
fn forged(rng: &mut Rng, old: u64, fields: &[u64], segments: u64) -> u64 {
    match rng.below(14) {
        0 => 0,
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => u64::MAX,
        4 => old ^ 1 << rng.below(64),
        5 => fields[rng.below(fields.len() as u64) as usize],
        6 => rng.word() >> rng.below(64),
        7 => 1 << rng.below(64),
        8 => (1 << rng.below(64)) - 1,
        9 => rng.below(segments + 2),
        10 => rng.below((segments + 2) * SEGMENT),
        // Another kind, the end of a group, other lengths, in a head.
        11 => old & !0xff | rng.below(8),
        12 => old ^ 0x100,
        _ => old & u64::from(u32::MAX) | (rng.word() & 0x1ff_ffff) >> rng.below(25) << 32,
    }
}
