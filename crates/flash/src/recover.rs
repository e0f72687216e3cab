//! Recovery: what the devices say that the volume is.
//!
//! The newest root names a checkpoint and where the stream goes on from it. What counts is the
//! longest unbroken row of packets, as far as all payload that they name is there: a packet of
//! which something is missing was never flushed, and neither it nor what comes behind it has
//! happened. Members of a mirror get what they lack of it (`alike.rs`); otherwise all of that is
//! found without writing anything. A new root then begins a new life, so
//! that what was cut off can't come back.

use conquest_format::volume::{
    ANCHORS, Checkpoint, Item, ItemReader, Packet, Record, Records, Root, Sums, digest,
};

use crate::ahead::Ahead;
use crate::both::both;
use crate::device::Device;
use crate::index::{RING, Use};
use crate::layout::Layout;
use crate::leaves::read_leaves;
use crate::map::Extent;
use crate::ranges::Ranges;
use crate::{Error, Result};

/// Bytes of payload that are read at once.
pub(crate) const AT_ONCE: u64 = 1 << 20;

/// Units of the stream that are read at once, at most and at least; and packets, if those are as
/// large as the last one.
const AHEAD: core::ops::RangeInclusive<u64> = 64..=256;
const PACKETS_AHEAD: u64 = 8;

/// What is known of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) used: Use,
    pub(crate) generation: u64,
    pub(crate) birth: u64,
    /// The last packet in it that counts, or its checkpoint.
    pub(crate) last: u64,
    /// Whether it is not to be begun any more.
    pub(crate) is_bad: bool,
}

/// Where checksums go as they are found: those that are found later replace others.
pub(crate) trait Checksums {
    /// Takes those of all units of `segment`, two in each word.
    fn put_all(&mut self, segment: u64, words: &[u64]) -> Result<()>;

    /// Takes those of the units from `place` on.
    fn put(&mut self, place: u64, sums: Sums<'_>) -> Result<()>;
}

/// A volume as its devices have it, but for the checksums.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) root: Root,
    pub(crate) segments: Vec<Segment>,
    pub(crate) map: Ranges,
    pub(crate) reserved: u64,
    /// The number that the next packet gets.
    pub(crate) packet: u64,
    /// Units of the packets since the checkpoint.
    pub(crate) stream: u64,
    /// Whether the last life of the root has a packet.
    pub(crate) has_begun: bool,
}

/// A packet and its records.
pub(crate) struct Found {
    pub(crate) header: Packet,
    pub(crate) words: Vec<u64>,
}

/// The generation that each segment has at some moment.
#[derive(Clone)]
pub(crate) struct Generations(Vec<u64>);

impl Generations {
    pub(crate) fn begin(&mut self, segment: u64, generation: u64) {
        if let Some(place) = self.0.get_mut(segment as usize) {
            *place = generation;
        }
    }

    pub(crate) fn of(&self, segment: u64) -> u64 {
        self.0.get(segment as usize).copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Reading<'d> {
    pub(crate) device: &'d dyn Device,
    pub(crate) layout: Layout,
}

/// Reads what the volume on `device` is, by its newest root. Its checksums go to `sums`.
pub(crate) fn recover(
    device: &dyn Device,
    layout: Layout,
    root: Root,
    sums: &mut impl Checksums,
) -> Result<Recovered> {
    let reading = Reading { device, layout };
    let empty = Segment { used: Use::Payload, generation: 0, birth: 0, last: 0, is_bad: false };
    let mut recovered = Recovered {
        segments: vec![empty; layout.segments as usize],
        map: Ranges::default(),
        reserved: 0,
        packet: 0,
        stream: 0,
        has_begun: false,
        root: root.clone(),
    };
    for anchor in recovered.segments.iter_mut().take(ANCHORS as usize) {
        anchor.used = Use::Anchor;
    }
    root.stand_ins.iter().try_for_each(|stand_in| reading.put_in_place(stand_in))?;
    let load = || match root.checkpoint {
        Some(checkpoint) => reading.load(&checkpoint, &mut recovered, sums),
        None => Ok(()),
    };
    let (loaded, packets) = both(load, || reading.packets(&root));
    loaded?;
    let mut packets = packets?;
    let generations = recovered.segments.iter().map(|segment| segment.generation).collect();
    let generations = Generations(generations);
    let said = packets.iter().map(|found| found.header.durable);
    let durable = said.fold(recovered.root.durable, u64::max);
    let cut = reading.first_incomplete(durable, &packets, generations.clone())?;
    packets.retain(|found| found.header.number < cut);
    reading.make_alike(&packets, durable, generations);
    let first = recovered.root.lives.last().map_or(1, |life| life.packet);
    recovered.packet = packets.last().map_or(first, |found| found.header.number + 1).max(first);
    recovered.stream = packets.iter().map(|found| found.header.units).sum();
    recovered.has_begun = recovered.packet > first;
    for life in &recovered.root.lives {
        let segment = layout.segment_of(life.place);
        note_stream(&mut recovered.segments, segment, life.generation, life.packet);
    }
    recovered.replay(&layout, &packets, sums)?;
    Ok(recovered)
}

impl Reading<'_> {
    pub(crate) fn unreadable(&self, what: &'static str) -> Error {
        Error::Unreadable { device: self.device.name().to_owned(), what }
    }

    /// Reads the units from `place` on, from whatever copy; whether they could be read.
    pub(crate) fn read(&self, place: u64, units: &mut [u8]) -> bool {
        let end = self.layout.segments * self.layout.segment;
        let count = units.len() as u64 / self.layout.unit;
        let is_inside = place < end && count <= end - place;
        is_inside && self.device.read(place * self.layout.unit, units).is_ok()
    }

    /// The unit at `place` as whatever `parse` makes of it, from whatever copy has it.
    pub(crate) fn parsed<T>(
        &self,
        place: u64,
        mut parse: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let mut unit = vec![0; self.layout.unit as usize];
        if place >= self.layout.segments * self.layout.segment {
            return None;
        }
        (0..self.device.copies()).find_map(|copy| {
            let read = self.device.read_copy(copy, place * self.layout.unit, &mut unit);
            read.ok().and_then(|()| parse(&unit))
        })
    }

    /// Loads `checkpoint`.
    fn load(
        &self,
        checkpoint: &Checkpoint,
        recovered: &mut Recovered,
        sums: &mut impl Checksums,
    ) -> Result<()> {
        let damaged = || self.unreadable("checkpoint");
        let mut reader = ItemReader::default();
        let mut is_whole = false;
        let used = read_leaves(*self, checkpoint, |words| {
            reader.add(words);
            while let Some(item) = reader.next_item().map_err(|_| damaged())? {
                is_whole |= item == Item::End;
                recovered.load(&self.layout, item, sums)?.ok_or_else(damaged)?;
            }
            Ok(())
        })?;
        if !is_whole {
            return Err(damaged());
        }
        for segment in used {
            let found = recovered.segments.get_mut(segment as usize).ok_or_else(damaged)?;
            found.used = Use::Checkpoint;
            found.last = checkpoint.id;
        }
        Ok(())
    }

    /// All packets that follow each other.
    fn packets(&self, root: &Root) -> Result<Vec<Found>> {
        let mut packets: Vec<Found> = Vec::new();
        let mut ahead = Ahead::new(*self);
        for (index, life) in root.lives.iter().enumerate() {
            let until = root.lives.get(index + 1).map(|next| next.packet);
            let (mut number, mut place) = (life.packet, life.place);
            let mut generation = life.generation;
            while until != Some(number) {
                let last = packets.last().map_or(1, |found| found.header.units);
                let units = (last * PACKETS_AHEAD).clamp(*AHEAD.start(), *AHEAD.end());
                let found = ahead.parsed(place, units, |unit| {
                    self.packet(unit, life.life, number, place, generation)
                });
                let Some(found) = found else {
                    if until.is_some() || self.goes_on(life.life, number, place, packets.last()) {
                        return Err(self.unreadable("stream"));
                    }
                    break;
                };
                number = number.saturating_add(1);
                (place, generation) = self.after(&found.header);
                packets.push(found);
            }
        }
        Ok(packets)
    }

    /// Where the packet after `header` is, and in which generation.
    fn after(&self, header: &Packet) -> (u64, u64) {
        let last = header.place + header.units - 1;
        // A packet needs two units, or the stream goes elsewhere.
        if self.layout.rest_of(last) > 2 {
            (last + 1, header.generation)
        } else {
            (self.layout.first_place(header.next), header.next_generation)
        }
    }

    /// The packet that begins with `unit`, if it is that with this number at this place.
    fn packet(
        &self,
        unit: &[u8],
        life: u64,
        number: u64,
        place: u64,
        generation: u64,
    ) -> Option<Found> {
        let header = Packet::from_unit(self.layout.bind, unit)?;
        let is_it = header.life == life
            && header.number == number
            && header.place == place
            && header.generation == generation
            && header.units <= self.layout.rest_of(place);
        let skip = conquest_format::volume::HEADER_WORDS;
        let words = conquest_format::volume::words(unit).skip(skip);
        let words = words.take(header.words as usize).collect();
        is_it.then_some(Found { header, words })
    }

    /// Whether packet `number`, which can't be read at `place`, was flushed: one behind it says so.
    fn goes_on(&self, life: u64, number: u64, place: u64, before: Option<&Found>) -> bool {
        let rest = self.layout.rest_of(place).min(RING * 2);
        let near = place.saturating_add(1)..place.saturating_add(rest);
        let next = before.map(|found| self.layout.first_place(found.header.next));
        near.chain(next).filter(|&at| at != place).any(|at| {
            let header = self.parsed(at, |unit| Packet::from_unit(self.layout.bind, unit));
            header.is_some_and(|header| {
                header.life == life && header.place == at && header.durable > number
            })
        })
    }

    /// The first packet with a record whose payload is not there, among those that need not have
    /// been flushed, from number `durable` on. `generations` are those of the segments, as of the
    /// checkpoint.
    fn first_incomplete(
        &self,
        durable: u64,
        packets: &[Found],
        mut generations: Generations,
    ) -> Result<u64> {
        for Found { header, words } in packets {
            let segment = self.layout.segment_of(header.place);
            generations.begin(segment, header.generation);
            for record in Records::new(words) {
                let is_right = match record {
                    Ok((Record::Begin { segment, generation }, _)) => {
                        generations.begin(segment, generation);
                        true
                    }
                    Ok((Record::Write { unit, place, len, sums }, _)) => {
                        let generation = generations.of(self.layout.segment_of(place));
                        let is_flushed = header.number < durable;
                        self.layout.can_lead(unit, place, len)
                            && (is_flushed || self.is_there(place, len, generation, sums))
                    }
                    Ok((Record::Place { unit, place, len }, _)) => {
                        self.layout.can_lead(unit, place, len)
                    }
                    Ok((Record::Reserved { units }, _)) => units <= self.layout.capacity(),
                    Ok((Record::Bad { segment }, _)) => segment < self.layout.segments,
                    Ok(_) => true,
                    Err(_) => false,
                };
                if !is_right && header.number < durable {
                    return Err(self.unreadable("stream"));
                }
                if !is_right {
                    return Ok(header.number);
                }
            }
        }
        Ok(u64::MAX)
    }
}

impl Recovered {
    /// Takes an item of a checkpoint in; none if it can't be.
    fn load(
        &mut self,
        layout: &Layout,
        item: Item,
        sums: &mut impl Checksums,
    ) -> Result<Option<()>> {
        match item {
            Item::Segment { segment, generation, is_bad, birth } => {
                let Some(found) = self.segments.get_mut(segment as usize) else {
                    return Ok(None);
                };
                found.generation = generation;
                found.birth = birth;
                found.is_bad = is_bad;
            }
            Item::Sums { segment, words } => {
                let is_right = words.len() as u64 == Sums::words(layout.segment);
                if segment >= layout.segments || !is_right {
                    return Ok(None);
                }
                sums.put_all(segment, &words)?;
            }
            Item::Extents(extents) => {
                for [unit, place, len] in extents {
                    if len == 0 || !layout.can_lead(unit, place, len) {
                        return Ok(None);
                    }
                    self.map.lead(Extent { unit, place, len });
                }
            }
            Item::Reserved(units) if units > layout.capacity() => return Ok(None),
            Item::Reserved(units) => self.reserved = units,
            Item::End => {}
        }
        Ok(Some(()))
    }

    /// Applies the records of `packets`, as far as they belong to something whole.
    fn replay(
        &mut self,
        layout: &Layout,
        packets: &[Found],
        sums: &mut impl Checksums,
    ) -> Result<()> {
        let mut open: Vec<(Record<'_>, u64)> = Vec::new();
        let mut life = 0;
        for Found { header, words } in packets {
            // What a life has left half added did not happen, whatever the next one adds.
            if header.life != life {
                open.clear();
                life = header.life;
            }
            let segment = layout.segment_of(header.place);
            note_stream(&mut self.segments, segment, header.generation, header.number);
            for (record, last) in Records::new(words).flatten() {
                if record == Record::Void {
                    open.clear();
                    continue;
                }
                open.push((record, header.number));
                if last {
                    for (record, number) in open.drain(..) {
                        self.apply(&record, number, sums)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        record: &Record<'_>,
        number: u64,
        checksums: &mut impl Checksums,
    ) -> Result<()> {
        match *record {
            Record::Write { unit, place, len, sums } => {
                checksums.put(place, sums)?;
                self.map.lead(Extent { unit, place, len });
            }
            Record::Place { unit, place, len } => self.map.lead(Extent { unit, place, len }),
            Record::Hole { unit, len } => self.map.clear(unit, unit.saturating_add(len)),
            Record::Begin { segment, generation } => {
                if let Some(found) = self.segments.get_mut(segment as usize) {
                    found.used = Use::Payload;
                    found.generation = generation;
                    found.birth = number;
                    found.last = 0;
                }
            }
            Record::Bad { segment } => {
                if let Some(found) = self.segments.get_mut(segment as usize) {
                    found.is_bad = true;
                }
            }
            Record::Reserved { units } => self.reserved = units,
            Record::Void => {}
        }
        Ok(())
    }
}

/// Notes that packet `number` stands in `segment`.
fn note_stream(segments: &mut [Segment], segment: u64, generation: u64, number: u64) {
    if let Some(found) = segments.get_mut(segment as usize) {
        if found.used != Use::Stream || found.generation != generation {
            found.birth = number;
        }
        found.used = Use::Stream;
        found.generation = generation;
        found.last = number;
    }
}

impl Reading<'_> {
    /// Whether `len` units from `place` on, of one segment, are what `sums` say.
    fn is_there(&self, place: u64, len: u64, generation: u64, sums: Sums<'_>) -> bool {
        let (bind, unit) = (self.layout.bind, self.layout.unit);
        let mut sums = sums.iter();
        let mut bytes = Vec::new();
        (place..place + len).step_by((AT_ONCE / unit) as usize).all(|first| {
            let count = (place + len - first).min(AT_ONCE / unit);
            bytes.resize((count * unit) as usize, 0);
            let is_read = self.read(first, &mut bytes);
            let mut units = (first..).zip(bytes.chunks(unit as usize)).zip(sums.by_ref());
            units.all(|((place, bytes), sum)| {
                let is_it = |unit: &[u8]| bind.sum(place, generation, digest(unit)) == sum;
                // Another copy may have it.
                is_read && is_it(bytes)
                    || self.parsed(place, |unit| is_it(unit).then_some(())).is_some()
            })
        })
    }
}
