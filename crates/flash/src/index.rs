//! What stands in the region of a volume, and where.
//!
//! The region is an index: everything in it can be made again from the devices. One lock guards all
//! of it; whoever holds it exclusively sees what its last holder has committed.

use conquest_format::geometry::STATE_ROOTS;
use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_format::volume::{LIVES_MAX, MIRRORS_MAX, PACKETS, STAND_INS_MAX};
use conquest_format::{Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{FreshRun, Object, Tx};

use crate::Result;
use crate::kinds::{self, Counts, Names, Node, Ring, Trims, Writer};
use crate::layout::Layout;

/// The lock.
pub(crate) const LOCK: u32 = 0;
/// What this program makes and understands.
pub(crate) const VERSION: u64 = 7;
/// Packets that the region keeps: each until it is on the device.
pub(crate) const RING: u64 = 32;

/// A word of the volume as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Word {
    /// [`VERSION`], once all else is there.
    Version,
    /// The root of the map.
    Map,
    /// The table of packets.
    Ring,
    /// The first of the [`Writer`]s.
    Writers,
    /// The last number that a writer got.
    WriterNumber,
    /// Where the next record goes: [`position`].
    End,
    /// Behind the last record that counts: those from here to the end are part of something that is
    /// not whole yet.
    Whole,
    /// Behind the last record that the map has.
    Applied,
    /// Units of payload in the open packet.
    Payload,
    /// Packets below are on the device.
    Written,
    /// Packets below were flushed, and all that they name.
    Durable,
    /// The highest [`Word::Durable`] that a flushed packet names: what recovery will know at least.
    Named,
    /// What packets say that they belong to.
    Life,
    /// Where the stream goes to when its segment is full.
    NextStream,
    /// Units of payload in use.
    Live,
    /// Units reserved.
    Reserved,
    /// The first packet that recovery needs.
    RootPacket,
    /// Id of its checkpoint.
    RootCheckpoint,
    /// The last number that was given to a root.
    LastSequence,
    /// The id of the newest checkpoint for which a root was begun.
    LastRooted,
    /// The last id that was given to a checkpoint.
    LastCheckpoint,
    /// Units of the checkpoint that the newest root names.
    CheckpointUnits,
    /// The list of ranges that are being trimmed.
    Trims,
    /// Ranges in it.
    TrimCount,
    /// Units of packets since the newest root.
    StreamUnits,
    /// Units of payload since the last flush.
    Unflushed,
    /// Not 0: the volume has failed.
    Failed,
    /// Segments into which payload goes now, by temperature, plus 1.
    OpenHot,
    /// For what was cleaned once.
    OpenCold,
    /// For what was cleaned more often.
    OpenCold2,
    /// The writer whose turn it is to make space, 0 if it is nobody's.
    Turn,
    /// Leads to what is counted.
    Counts,
    /// First of the words that lead to the table of segments.
    Segments = 32,
}

impl Word {
    pub(crate) const fn at(self) -> Offset {
        STATE_ROOTS.plus(self as u64 * WORD)
    }
}

/// What is counted since the index was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Count {
    /// Units that users have written.
    Asked,
    /// Units of packets that were sealed, payload included.
    Packets,
    /// Units of room that was given out for what users write.
    Placed,
    /// The same for what cleaning copies.
    Copied,
    /// Units of checkpoints.
    Checkpoints,
    /// Segments that are bad, whenever they became so.
    Bad,
}

/// The flush of the devices that others wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Flushing {
    /// The writer who makes it, 0 if nobody does.
    Writer = 8,
    /// Packets below were on the devices when it began, and all that they name.
    Below,
}

/// What stands in roots, and belongs to that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Noted {
    /// Members of a mirror that have failed, a bit each.
    Failed = 16,
    /// When the first of them did, in nanoseconds since 1970.
    Since,
    /// Those of them that are being brought up to date: they are written, but not read.
    Restored,
    /// The writer who does so.
    Restorer,
    /// Members that somebody has not had who has the volume open, or had.
    Missing,
    /// [`Noted::Failed`] as the newest root that is durable has it, if no newer one was begun.
    InRoot,
    /// The highest sequence of a root that is on all members that have not failed.
    Known,
    /// Segment and units of the checkpoint of the newest root that was begun.
    Segment,
    /// Its units.
    Units,
    /// How many lives it has, 0 if none was begun since the index was made.
    Lives,
    /// The first of its lives.
    Life = 32,
    /// Runs that the cache can have.
    CacheRuns = 288,
    /// The pages with the places of those that it has.
    CacheTable,
    /// How many it has.
    CacheMade,
    /// Which device the first member is, of those that were it, plus 1; 0 if nobody has it.
    Stamps = 320,
    /// The first of the stand-ins.
    StandIns = 384,
}

/// Words of a life.
const LIFE_WORDS: u64 = 4;
const _: () =
    assert!(Noted::Life as u64 + LIVES_MAX as u64 * LIFE_WORDS <= Noted::CacheRuns as u64);
const _: () = assert!(Noted::Stamps as u64 + MIRRORS_MAX as u64 <= Noted::StandIns as u64);

/// A word of a stand-in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Stand {
    /// How far it has come.
    State,
    /// The writer who makes it.
    Helper,
    /// The writer who may still write to the place.
    Stopped,
    /// The first packet there,
    First,
    /// and below which one they are.
    Below,
    /// The place.
    Place,
    /// Units there.
    Units,
    /// Where they stand in.
    At,
    /// Their checksum.
    Sum,
}

const STAND_WORDS: u64 = 16;
const _: () =
    assert!((Noted::StandIns as u64 + STAND_INS_MAX as u64 * STAND_WORDS) * WORD <= kinds::COUNTS);

/// Position in the stream: a packet's number and words of records in it.
pub(crate) const fn position(packet: u64, words: u64) -> u64 {
    packet << POSITION_SHIFT | words
}

/// Packet and words of a position.
pub(crate) const fn packet_of(position: u64) -> (u64, u64) {
    (position >> POSITION_SHIFT, position & ((1 << POSITION_SHIFT) - 1))
}

const POSITION_SHIFT: u32 = 16;
// Also when more follow that were not recovered.
const _: () = assert!((2 * PACKETS - 1) << POSITION_SHIFT >> POSITION_SHIFT == 2 * PACKETS - 1);

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Use {
    /// For nothing yet, or payload all of which is dead.
    Payload,
    /// The stream, with payload in its packets.
    Stream,
    /// A checkpoint.
    Checkpoint,
    /// Roots.
    Anchor,
}

impl Use {
    const fn from_word(word: u64) -> Use {
        match word & 0xFF {
            0 => Use::Payload,
            1 => Use::Stream,
            2 => Use::Checkpoint,
            _ => Use::Anchor,
        }
    }
}

/// A word of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Of {
    /// What it is used for, and how often it was begun.
    Use,
    /// Units in it that the map leads to.
    Live,
    /// The packet with the last record that made units of it dead, 0 for none.
    Touched,
    /// The packet that was open when it was begun.
    Birth,
    /// The first of its [`Names`].
    Names,
    /// Entries in them.
    NamesCount,
    /// Units that were given out.
    Next,
    /// Its checksums.
    Sums,
    /// The last packet that stands in it, if it is one of the stream; the checkpoint, if it is one
    /// of those.
    Last,
    /// How often what is in it was copied by cleaning, at least.
    Age,
    /// Units in use that cleaning could not read.
    Unreadable,
    /// Whether it was erased since it was in use, where segments have to be.
    Ready,
    /// Whether it could not be written, or erased: it is not begun again.
    Bad,
}

/// Words of a segment.
const SEGMENT_WORDS: u64 = 16;
/// Pages of a run of the table of segments, and how many segments that is.
const TABLE_PAGES: u64 = 256;
const PER_TABLE: u64 = TABLE_PAGES * PAGE / (SEGMENT_WORDS * WORD);
/// Runs of the table.
const TABLES: u64 = 32;
/// Most segments of a volume.
pub(crate) const SEGMENTS_MAX: u64 = PER_TABLE * TABLES;

/// A word of a packet that the region keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Slot {
    /// Its number.
    Number,
    /// Where it stands.
    Place,
    /// The generation of its segment.
    Generation,
    /// Its units.
    Units,
    /// Words of records.
    Words,
    /// What it says is durable.
    Durable,
    /// Where the stream goes to behind its segment.
    Next,
    /// The generation of that.
    NextGeneration,
    /// [`Stage`].
    Stage,
    /// The writer who has undertaken to write it.
    Claim,
    /// Its bytes.
    Data,
}

const SLOT_WORDS: u64 = 16;
const _: () = assert!(RING * SLOT_WORDS * WORD == kinds::RING);

/// How far a packet has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Stage {
    /// Records are added.
    Open,
    /// It does not change any more.
    Sealed,
    /// It is on the device.
    Written,
}

/// Reads words: of the region as it is, or as a transaction sees it.
pub(crate) trait Words {
    /// The word at `at`.
    fn word(&self, at: Offset) -> u64;

    fn root(&self, word: Word) -> u64 {
        self.word(word.at())
    }

    /// Where word `of` of `segment` is.
    fn segment_at(&self, segment: u64, of: Of) -> Offset {
        let table = Word::Segments.at().plus(segment / PER_TABLE * WORD);
        let base = Offset::new(self.word(table));
        base.plus((segment % PER_TABLE * SEGMENT_WORDS + of as u64) * WORD)
    }

    fn segment(&self, segment: u64, of: Of) -> u64 {
        self.word(self.segment_at(segment, of))
    }

    /// What `segment` is used for, and its generation.
    fn usage(&self, segment: u64) -> (Use, u64) {
        let word = self.segment(segment, Of::Use);
        (Use::from_word(word), word >> 8)
    }

    /// Where word `of` of the place for packet `number` is.
    fn packet_at(&self, number: u64, of: Slot) -> Offset {
        let base = Offset::new(self.root(Word::Ring));
        base.plus((number % RING * SLOT_WORDS + of as u64) * WORD)
    }

    fn packet(&self, number: u64, of: Slot) -> u64 {
        self.word(self.packet_at(number, of))
    }

    /// Where a count is.
    fn count_at(&self, of: Count) -> Offset {
        Offset::new(self.root(Word::Counts)).plus(of as u64 * WORD)
    }

    /// Where something is that is known of the flush under way.
    fn flushing_at(&self, what: Flushing) -> Offset {
        Offset::new(self.root(Word::Counts)).plus(what as u64 * WORD)
    }

    fn flushing(&self, what: Flushing) -> u64 {
        self.word(self.flushing_at(what))
    }

    /// Where something is that stands in roots.
    fn noted_at(&self, what: Noted) -> Offset {
        Offset::new(self.root(Word::Counts)).plus(what as u64 * WORD)
    }

    fn noted(&self, what: Noted) -> u64 {
        self.word(self.noted_at(what))
    }

    /// Where the stamp of member `number` is.
    fn stamp_at(&self, number: u64) -> Offset {
        self.noted_at(Noted::Stamps).plus(number * WORD)
    }

    /// Where word `of` of stand-in `number` is.
    fn stand_in_at(&self, number: u64, of: Stand) -> Offset {
        self.noted_at(Noted::StandIns).plus((number * STAND_WORDS + of as u64) * WORD)
    }

    fn stand_in(&self, number: u64, of: Stand) -> u64 {
        self.word(self.stand_in_at(number, of))
    }

    /// Where the words of life `number` of the newest root are.
    fn life_at(&self, number: u64) -> [Offset; 4] {
        let first = self.noted_at(Noted::Life).plus(number * LIFE_WORDS * WORD);
        [0, 1, 2, 3].map(|index| first.plus(index * WORD))
    }

    fn count(&self, of: Count) -> u64 {
        self.word(self.count_at(of))
    }
}

impl<M: Memory, H: Host> Words for Tx<'_, M, H> {
    fn word(&self, at: Offset) -> u64 {
        self.get(at)
    }
}

impl<M: Memory, H: Host> Words for conquest_pm::View<'_, M, H> {
    fn word(&self, at: Offset) -> u64 {
        conquest_pm::View::word(self, at)
    }
}

impl<M: Memory, H: Host> Words for conquest_pm::Core<M, H> {
    fn word(&self, at: Offset) -> u64 {
        self.memory().load(at, core::sync::atomic::Ordering::Acquire)
    }
}

/// The word for what a segment is used for.
pub(crate) const fn use_word(used: Use, generation: u64) -> u64 {
    used as u64 | generation << 8
}

/// The kinds of the region of a volume with segments of so many units.
pub(crate) fn kind_table(layout: &Layout) -> KindTable {
    let mut table = [KindSpec::UNUSED; KINDS];
    let sums = match layout.sums_bytes() {
        small if small < PAGE => KindSpec::object(small),
        _ => Some(KindSpec::RUN),
    };
    let specs = [
        (Node::KIND, KindSpec::object(kinds::NODE)),
        (Names::KIND, KindSpec::object(kinds::NAMES)),
        (Ring::KIND, KindSpec::object(kinds::RING)),
        (Writer::KIND, KindSpec::object(kinds::WRITER)),
        (Trims::KIND, KindSpec::object(kinds::TRIMS)),
        (Counts::KIND, KindSpec::object(kinds::COUNTS)),
        (kinds::SUMS, sums),
        (kinds::PACKET, Some(KindSpec::RUN)),
        (kinds::SEGMENTS, Some(KindSpec::RUN)),
        (kinds::CACHED, Some(KindSpec::RUN)),
    ];
    for (kind, spec) in specs {
        if let Some(place) = table.get_mut(usize::from(kind.number())) {
            *place = spec.unwrap_or(KindSpec::UNUSED);
        }
    }
    table
}

/// Makes the tables of a volume in a new region: all words 0, no packet open.
pub(crate) fn make<M: Memory, H: Host>(
    core: &conquest_pm::Core<M, H>,
    layout: &Layout,
) -> Result<()> {
    core.run(|tx| {
        let ring = tx.alloc::<Ring>()?;
        let ring = tx.seal(ring);
        tx.set(Word::Ring.at(), ring.offset().bytes())?;
        let trims = tx.alloc::<Trims>()?;
        let trims = tx.seal(trims);
        tx.set(Word::Trims.at(), trims.offset().bytes())?;
        let counts = tx.alloc::<Counts>()?;
        let counts = tx.seal(counts);
        tx.set(Word::Counts.at(), counts.offset().bytes())
    })?;
    for table in 0..layout.segments.div_ceil(PER_TABLE) {
        let at = Word::Segments.at().plus(table * WORD);
        core.run(|tx| new_run(tx, kinds::SEGMENTS, TABLE_PAGES, at))?;
    }
    let pages = layout.packet_pages();
    for number in 0..RING {
        let at = core.packet_at(number, Slot::Data);
        core.run(|tx| new_run(tx, kinds::PACKET, pages, at))?;
    }
    Ok(())
}

/// The run of the table in which `segment` is, and where in it word `of` is.
pub(crate) fn table_word(segment: u64, of: Of) -> (Offset, u64) {
    let table = Word::Segments.at().plus(segment / PER_TABLE * WORD);
    (table, segment % PER_TABLE * SEGMENT_WORDS + of as u64)
}

/// Makes a run of zeros, to which the word at `at` leads.
pub(crate) fn new_run<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    kind: Kind,
    pages: u64,
    at: Offset,
) -> conquest_pm::Result<()> {
    let run: FreshRun = tx.alloc_run(kind, pages, None)?;
    let offset = tx.finish_run(run);
    tx.set(at, offset.bytes())
}
