//! Packets: what the commit stream consists of on the medium. A packet is a unit with a header and
//! records, and units of payload behind it.

use super::{Bind, first_words, is_sealed, sealed};

const MAGIC: u64 = u64::from_le_bytes(*b"CONQPACK");
/// Packets have smaller numbers: at a million a second, for four years.
pub const PACKETS: u64 = 1 << 47;
/// Words of a packet's first unit before its records.
pub const HEADER_WORDS: usize = 12;

/// The header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    /// Whose packet it is: see [`super::Life`].
    pub life: u64,
    /// Its number: one more than that of the packet before it.
    pub number: u64,
    /// Where it stands.
    pub place: u64,
    /// The generation of its segment.
    pub generation: u64,
    /// Its units, with this one.
    pub units: u64,
    /// Words of records.
    pub words: u64,
    /// Packets below this number, and all that they name, were flushed when this one was made.
    pub durable: u64,
    /// The segment that the stream goes to when it leaves this one.
    pub next: u64,
    /// The generation that it has then.
    pub next_generation: u64,
}

impl Packet {
    /// Words of records that a unit of so many bytes holds.
    #[must_use]
    pub const fn room(unit: u64) -> u64 {
        (unit / 8).saturating_sub(HEADER_WORDS as u64 + 1)
    }

    /// Makes `unit`, in which the records stand already, the first of this packet.
    pub fn fill(&self, bind: Bind, unit: &mut [u8]) {
        let fields = [
            MAGIC,
            self.life,
            self.number,
            self.place,
            self.generation,
            self.units,
            self.words,
            self.durable,
            self.next,
            self.next_generation,
            0,
            0,
        ];
        sealed(unit, bind, &fields);
    }

    /// The header of the packet that begins with `unit`; none if there is none.
    #[must_use]
    pub fn from_unit(bind: Bind, unit: &[u8]) -> Option<Packet> {
        let words: [u64; HEADER_WORDS] = first_words(unit);
        let [magic, life, number, place, generation, units, words, durable, next, then, _, _] =
            words;
        let room = Packet::room(unit.len() as u64);
        let is_possible = units > 0 && words <= room && number < PACKETS;
        if magic != MAGIC || !is_possible || !is_sealed(unit, bind) {
            return None;
        }
        let next_generation = then;
        Some(Packet {
            life,
            number,
            place,
            generation,
            units,
            words,
            durable,
            next,
            next_generation,
        })
    }
}
