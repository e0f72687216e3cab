//! Many reads and writes under way at once, for one caller.
//!
//! Reads go to the devices while the caller goes on. Writes are gathered in packets, which are
//! written when the caller waits: each write is complete when its packet is on the devices, and
//! what was submitted together takes one request.

use std::collections::VecDeque;

use conquest_format::volume::BLOCK;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_uring::{Buffer, Job as Transfer, Request as Submission};

use crate::Result;
use crate::index::{Word, packet_of};
use crate::slots::Slots;
use crate::transfer::{Found, Piece};
use crate::volume::Volume;

/// One of so many requests that can be under way is looked at before the caller can submit more.
const SHARE: usize = 4;
/// Bytes of what is looked at next that the processor is asked for meanwhile: it goes on itself.
const AHEAD: usize = 512;

/// What a request does, with memory that is the queue's until it is complete.
#[derive(Debug)]
pub enum Job {
    /// [`Volume::read`], of as much as the buffer takes.
    Read(Buffer),
    /// [`Volume::write`], of all of the buffer.
    Write(Buffer),
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// What its completion is known by.
    pub tag: u64,
    /// From which block on.
    pub block: u64,
    /// What.
    pub job: Job,
}

/// What has come of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub tag: u64,
    /// Whether it was done.
    pub outcome: Result<()>,
    /// What was done, with its buffer.
    pub job: Job,
}

/// A read under way.
struct Reading {
    tag: u64,
    /// None while the device has it.
    buffer: Option<Buffer>,
    /// Pieces that the devices have.
    left: usize,
    outcome: Result<()>,
}

/// A piece of a read that a device has.
struct Part {
    reading: usize,
    piece: Piece,
    /// Where in the buffer of the read it goes; none if that itself is what is read to.
    start: Option<usize>,
}

/// A piece that a device has read, and nobody has looked at.
struct Unseen {
    part: Part,
    buffer: Buffer,
    /// Whether all of it was read.
    is_read: bool,
}

/// A write that is in the map, and is to be on the devices.
struct Writing {
    tag: u64,
    buffer: Buffer,
    /// The packet with its last record.
    packet: u64,
}

/// A queue of requests to a volume. It belongs to one thread, and a child that is forked must
/// neither use nor drop its copy.
pub struct Queue<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    devices: conquest_uring::Queue,
    depth: usize,
    readings: Slots<Reading>,
    parts: Slots<Part>,
    unseen: VecDeque<Unseen>,
    writings: VecDeque<Writing>,
    done: VecDeque<Completion>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// A queue of up to `depth` requests, at most [`conquest_uring::DEPTH_MAX`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn queue(&self, depth: u32) -> Result<Queue<'_, M, H>> {
        let failed = |source| self.device_error("make a queue for", 0, 0, source);
        let files = self.device.files().map_err(failed)?;
        let devices = conquest_uring::Queue::new(depth, files).map_err(failed)?;
        Ok(Queue {
            volume: self,
            devices,
            depth: depth as usize,
            readings: Slots::new(),
            parts: Slots::new(),
            unseen: VecDeque::new(),
            writings: VecDeque::new(),
            done: VecDeque::new(),
        })
    }
}

impl<M: Memory, H: Host> Queue<'_, M, H> {
    /// Requests that were submitted and not given back.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.readings.len() + self.writings.len() + self.done.len()
    }

    /// Whether one more can be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.under_way() < self.depth
    }

    /// Begins `request`. What fails, or is complete at once, is told by the next [`Self::wait`] as
    /// everything else.
    ///
    /// # Errors
    /// The request is given back if there is no room for it.
    pub fn submit(&mut self, request: Request) -> core::result::Result<(), Request> {
        if !self.has_room() {
            return Err(request);
        }
        let Request { tag, block, job } = request;
        match job {
            Job::Read(buffer) => self.submit_read(tag, block, buffer),
            Job::Write(buffer) => match self.volume.write_told(block, &buffer) {
                Ok(packet) => self.writings.push_back(Writing { tag, buffer, packet }),
                Err(error) => self.end(tag, Err(error), Job::Write(buffer)),
            },
        }
        Ok(())
    }

    fn end(&mut self, tag: u64, outcome: Result<()>, job: Job) {
        self.done.push_back(Completion { tag, outcome, job });
    }

    fn submit_read(&mut self, tag: u64, block: u64, mut buffer: Buffer) {
        let volume = self.volume;
        let (size, per) = (volume.unit(), volume.unit() / BLOCK);
        let is_whole = block.is_multiple_of(per) && (buffer.len() as u64).is_multiple_of(size);
        if !is_whole || self.devices.files().is_empty() {
            let outcome = volume.read(block, &mut buffer);
            return self.end(tag, outcome, Job::Read(buffer));
        }
        let (unit, units) = (block / per, buffer.len() as u64 / size);
        let looked = volume.check_health().and_then(|()| volume.check_blocks(block, units * per));
        match looked.and_then(|()| volume.look(unit, units)) {
            Err(error) => self.end(tag, Err(error), Job::Read(buffer)),
            Ok(pieces) => self.read_pieces(tag, unit, pieces, buffer),
        }
    }

    /// Begins to read `pieces`, with which what follows `unit` begins.
    fn read_pieces(&mut self, tag: u64, unit: u64, pieces: Vec<Piece>, mut buffer: Buffer) {
        let size = self.volume.unit() as usize;
        let reading = Reading { tag, buffer: None, left: 0, outcome: Ok(()) };
        let number = self.readings.put(reading);
        if let [piece] = pieces.as_slice()
            && piece.len as usize * size == buffer.len()
        {
            match self.transfer(number, piece, None, buffer) {
                None => return,
                Some(back) => buffer = back,
            }
        }
        let (mut end, mut outcome) = (unit, Ok(()));
        for piece in &pieces {
            let start = (piece.unit - unit) as usize * size;
            let len = piece.len as usize * size;
            let Some(part) = buffer.get_mut(start..start + len) else {
                break;
            };
            end = piece.unit + piece.len;
            match &piece.found {
                None => part.fill(0),
                Some(_) => {
                    let own = Buffer::new(len).ok();
                    let back = own.map(|own| self.transfer(number, piece, Some(start), own));
                    if !matches!(back, Some(None)) {
                        outcome = outcome.and(self.volume.read_units(piece.unit, part));
                    }
                }
            }
        }
        // What one look does not find is read by the caller.
        let rest = buffer.get_mut((end - unit) as usize * size..).unwrap_or_default();
        outcome = outcome.and(self.volume.read_units(end, rest));
        if let Some(reading) = self.readings.get_mut(number) {
            reading.buffer = Some(buffer);
            reading.outcome = outcome;
        }
        self.end_if_complete(number);
    }

    /// Hands the reading of `piece` to its device; if that can't be, `buffer` is given back.
    fn transfer(
        &mut self,
        reading: usize,
        piece: &Piece,
        start: Option<usize>,
        buffer: Buffer,
    ) -> Option<Buffer> {
        let Some(Found { place, inline: None, .. }) = piece.found else {
            return Some(buffer);
        };
        let at = place * self.volume.unit();
        let Some((file, at)) = self.volume.device.route(at, buffer.len() as u64) else {
            return Some(buffer);
        };
        let number = self.parts.put(Part { reading, piece: piece.clone(), start });
        let job = Transfer::Read(buffer);
        match self.devices.submit(Submission { tag: number as u64, file, at, job }) {
            Ok(()) => {
                if let Some(reading) = self.readings.get_mut(reading) {
                    reading.left += 1;
                }
                None
            }
            Err((_, Submission { job, .. })) => {
                self.parts.take(number);
                let (Transfer::Read(buffer) | Transfer::Write(buffer)) = job else {
                    return None;
                };
                Some(buffer)
            }
        }
    }

    /// Hands the devices what was submitted, and takes what they have completed, at least `least`
    /// pieces.
    fn reap(&mut self, least: usize) -> Result<()> {
        let failed = |source| self.volume.device_error("wait for", 0, 0, source);
        for completed in self.devices.wait(least).map_err(failed)? {
            let part = self.parts.take(completed.tag as usize);
            if let (Some(part), Transfer::Read(buffer)) = (part, completed.job) {
                let is_read = completed.outcome.is_ok_and(|count| count == buffer.len());
                self.unseen.push_back(Unseen { part, buffer, is_read });
            }
        }
        Ok(())
    }

    /// Looks at some of the pieces that were read. Not at all of them: the devices are to have
    /// something to do meanwhile, which the caller submits when he has got these.
    fn look_at_some(&mut self) {
        let most = (self.depth / SHARE).max(1);
        for _ in 0..most {
            let Some(Unseen { part, buffer, is_read }) = self.unseen.pop_front() else {
                return;
            };
            if let Some(next) = self.unseen.front() {
                next.buffer.prefetch(AHEAD);
            }
            self.take_in(part, buffer, is_read);
        }
    }

    /// Takes in a piece that a device has read, if it `is_read`.
    fn take_in(&mut self, part: Part, mut buffer: Buffer, is_read: bool) {
        let volume = self.volume;
        let found = part.piece.found.as_ref();
        let is_right = is_read && found.is_some_and(|found| volume.is_what_was(found, &buffer));
        // Otherwise it has moved meanwhile, or another copy has it.
        let again = if is_right { Ok(()) } else { volume.read_units(part.piece.unit, &mut buffer) };
        let Some(reading) = self.readings.get_mut(part.reading) else {
            return;
        };
        match part.start {
            None => reading.buffer = Some(buffer),
            Some(start) => {
                let place = reading.buffer.as_mut();
                let place = place.and_then(|into| into.get_mut(start..start + buffer.len()));
                if let Some(place) = place {
                    place.copy_from_slice(&buffer);
                }
            }
        }
        reading.left -= 1;
        if again.is_err() && reading.outcome.is_ok() {
            reading.outcome = again;
        }
        self.end_if_complete(part.reading);
    }

    fn end_if_complete(&mut self, number: usize) {
        let is_complete = self.readings.get_mut(number).is_some_and(|reading| reading.left == 0);
        if is_complete
            && let Some(reading) = self.readings.take(number)
            && let Some(buffer) = reading.buffer
        {
            self.end(reading.tag, reading.outcome, Job::Read(buffer));
        }
    }

    /// Waits until at least `least` requests are complete, or all if there are fewer, and gives
    /// those that are.
    ///
    /// # Errors
    /// Of the devices, when packets are written: none of the writes that are under way counts as
    /// done then, and another call tries again. [`crate::Error::Failed`] once the volume has
    /// failed.
    pub fn wait(&mut self, least: usize) -> Result<Vec<Completion>> {
        let least = least.min(self.under_way());
        self.reap(0)?;
        self.look_at_some();
        while self.done.len() < least {
            if !self.unseen.is_empty() {
                self.look_at_some();
            } else if self.writings.is_empty() {
                self.reap(1)?;
            } else {
                self.write_some()?;
                self.reap(0)?;
            }
        }
        Ok(self.done.drain(..).collect())
    }

    /// Gets packets written in which the first writes under way are; writes that are on the devices
    /// are complete.
    fn write_some(&mut self) -> Result<()> {
        let volume = self.volume;
        let Some(first) = self.writings.front().map(|writing| writing.packet) else {
            return Ok(());
        };
        volume.check_health()?;
        if volume.root(Word::Written) <= first {
            let (open, _) = packet_of(volume.root(Word::End));
            if first >= open {
                volume.change(|change| change.seal_all())?;
            }
            volume.write_sealed()?;
        }
        let written = volume.root(Word::Written);
        while let Some(Writing { tag, buffer, .. }) =
            self.writings.pop_front_if(|writing| writing.packet < written)
        {
            self.end(tag, Ok(()), Job::Write(buffer));
        }
        Ok(())
    }
}
