//! Roots: where recovery begins. They are units of the anchor segments, one after the other; the
//! one with the highest sequence number counts.

use super::packet::PACKETS;
use super::{Bind, first_words, is_sealed, sealed};

const MAGIC: u64 = u64::from_le_bytes(*b"CONQROOT");
/// Words before those of the lives.
const HEAD: usize = 10;
/// Words of a life.
const LIFE: usize = 4;
/// Where the stand-ins are: their number, and then each.
const STAND_INS: usize = HEAD + LIVES_MAX * LIFE;
/// Words of a stand-in.
const STAND_IN: usize = 4;
const WORDS: usize = STAND_INS + 1 + STAND_INS_MAX * STAND_IN;
/// Most lives of a root.
pub const LIVES_MAX: usize = 64;
/// Most stand-ins of a root.
pub const STAND_INS_MAX: usize = 8;
/// Roots have smaller sequence numbers: at a hundred a second, for 170 years.
pub const SEQUENCES: u64 = 1 << 39;

/// A checkpoint of the map, as a root names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// What its units say that they belong to: no other checkpoint has it, or had.
    pub id: u64,
    /// The segment in which it begins.
    pub segment: u64,
    /// Its units.
    pub units: u64,
}

/// Where the stream goes on after somebody has recovered the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// What its packets say that they belong to: the sequence number of the root that began it.
    pub life: u64,
    /// The number of its first packet.
    pub packet: u64,
    /// The place of its first packet.
    pub place: u64,
    /// The generation of that place's segment.
    pub generation: u64,
}

/// Units that are written once more elsewhere, because a process may still write the same to
/// their place, which a power cut may damage then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StandIn {
    /// The first of them.
    pub place: u64,
    /// How many.
    pub units: u64,
    /// The first one that stands in.
    pub at: u64,
    /// The checksum of all of them.
    pub sum: u64,
}

/// A root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root {
    /// Higher than that of each root before it.
    pub sequence: u64,
    /// The map as it was, at the earliest, when the first packet of the first life was begun; none
    /// of an empty volume.
    pub checkpoint: Option<Checkpoint>,
    /// Packets below this number, and all that they name, were flushed before the root was written.
    pub durable: u64,
    /// Members of a mirror that have failed, a bit each: they lack what the others have.
    pub failed: u64,
    /// Nanoseconds since 1970 at which the first of those was noted.
    pub since: u64,
    /// A root of this sequence, or a later one, is on all members that have not failed.
    pub known: u64,
    /// From where on packets count, 1 to [`LIVES_MAX`] of them: those of each life up to the first
    /// one of the next, and of the last one as far as they go.
    pub lives: Vec<Life>,
    /// At most [`STAND_INS_MAX`].
    pub stand_ins: Vec<StandIn>,
}

impl Root {
    /// Puts the root into a unit.
    pub fn fill(&self, bind: Bind, unit: &mut [u8]) {
        let mut words = Vec::with_capacity(WORDS);
        let Checkpoint { id, segment, units } =
            self.checkpoint.unwrap_or(Checkpoint { id: 0, segment: 0, units: 0 });
        let (lives, durable) = (self.lives.len() as u64, self.durable);
        words.extend([MAGIC, self.sequence, id, segment, units, lives, durable]);
        words.extend([self.failed, self.since, self.known]);
        for life in &self.lives {
            words.extend([life.life, life.packet, life.place, life.generation]);
        }
        words.resize(STAND_INS, 0);
        words.push(self.stand_ins.len() as u64);
        for stand_in in &self.stand_ins {
            words.extend([stand_in.place, stand_in.units, stand_in.at, stand_in.sum]);
        }
        unit.fill(0);
        sealed(unit, bind, &words);
    }

    /// The root in a unit; none if there is none.
    #[must_use]
    pub fn from_unit(bind: Bind, unit: &[u8]) -> Option<Root> {
        let words: [u64; WORDS] = first_words(unit);
        let [magic, sequence, id, segment, units, lives, durable, failed, since, known, ..] = words;
        let is_possible = lives > 0 && lives <= LIVES_MAX as u64 && sequence < SEQUENCES;
        if magic != MAGIC || !is_possible || !is_sealed(unit, bind) {
            return None;
        }
        let (stand_ins, places) = words.get(STAND_INS..)?.split_first()?;
        if *stand_ins > STAND_INS_MAX as u64 {
            return None;
        }
        let places = places.as_chunks::<STAND_IN>().0.iter().take(*stand_ins as usize);
        let stand_in =
            |&[place, units, at, sum]: &[u64; STAND_IN]| StandIn { place, units, at, sum };
        let stand_ins = places.map(stand_in).collect();
        let all = words.get(HEAD..).unwrap_or_default().as_chunks::<LIFE>().0;
        let life = |&[life, packet, place, generation]: &[u64; LIFE]| Life {
            life,
            packet,
            place,
            generation,
        };
        let lives: Vec<Life> = all.iter().take(lives as usize).map(life).collect();
        if lives.iter().any(|life| life.packet >= PACKETS) {
            return None;
        }
        let checkpoint = (units > 0).then_some(Checkpoint { id, segment, units });
        Some(Root { sequence, checkpoint, durable, failed, since, known, lives, stand_ins })
    }
}
