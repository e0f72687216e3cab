//! The queue of a slot, and what its reads may find: what was there when they were submitted, or
//! since.

use std::sync::atomic::Ordering;

use conquest_flash::{Completion, Job, Queue, Request};
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::flash::values::{BLOCK, HOLE, ZEROS, value_of};
use conquest_uring::Buffer;

use crate::board::Board;
use crate::operation::TestVolume;

/// Requests of a slot that are under way at once, at most.
const DEPTH: u32 = 64;

/// A read under way.
struct Reading {
    tag: u64,
    /// First block of the slice.
    at: usize,
    /// What the blocks held when it was submitted.
    values: Vec<u64>,
    /// What was written to which of them since.
    later: Vec<(usize, u64)>,
}

impl Reading {
    /// What of `bytes` can't be there.
    fn wrong(&self, bytes: &[u8]) -> Option<String> {
        let known = |value| if value == ZEROS { HOLE } else { value };
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            let found = value_of(block);
            let later = self.later.iter().filter(|(at, _)| *at == self.at + index);
            let mut all = self.values.get(index).into_iter().chain(later.map(|(_, value)| value));
            if !all.any(|&value| found == Some(known(value))) {
                let (at, value) = (self.at + index, self.values.get(index));
                return Some(format!("block {at} of the slice is {found:x?} and was {value:x?}"));
            }
        }
        None
    }
}

/// What a slot has under way.
pub(crate) struct Requests<'s> {
    board: &'s Board,
    slot: usize,
    queue: Queue<'s, Mapped, OsHost>,
    readings: Vec<Reading>,
}

impl<'s> Requests<'s> {
    pub(crate) fn new(
        volume: &'s TestVolume,
        board: &'s Board,
        slot: usize,
    ) -> Result<Requests<'s>, String> {
        let queue = volume.queue(DEPTH).map_err(|error| format!("queue: {error}"))?;
        Ok(Requests { board, slot, queue, readings: Vec::new() })
    }

    /// Sees to it that one more can be submitted, by waiting for `least` if not.
    pub(crate) fn make_room(&mut self, least: usize) -> Result<(), String> {
        while !self.queue.has_room() {
            self.wait(least)?;
        }
        Ok(())
    }

    /// Begins to read the blocks from `at` of the slice on, which are from `block` on, and hold
    /// `values`.
    pub(crate) fn read(
        &mut self,
        tag: u64,
        (at, block): (usize, u64),
        values: &[u64],
    ) -> Result<(), String> {
        let buffer = Buffer::new(values.len() * BLOCK).map_err(|error| error.to_string())?;
        self.readings.push(Reading { tag, at, values: values.to_vec(), later: Vec::new() });
        self.submit(Request { tag, block, job: Job::Read(buffer) })
    }

    /// Begins to write `bytes` from `block` on: they are in the map when this returns.
    pub(crate) fn write(&mut self, tag: u64, block: u64, bytes: &[u8]) -> Result<(), String> {
        let mut buffer = Buffer::new(bytes.len()).map_err(|error| error.to_string())?;
        buffer.copy_from_slice(bytes);
        self.submit(Request { tag, block, job: Job::Write(buffer) })
    }

    fn submit(&mut self, request: Request) -> Result<(), String> {
        let submitted = self.queue.submit(request);
        self.note();
        submitted.map_err(|request| format!("request {} has no room", request.tag))
    }

    fn note(&self) {
        let count = self.queue.under_way() as u64;
        self.board.under_way(self.slot).store(count, Ordering::Relaxed);
    }

    /// Block `block` of the slice is `value` now.
    pub(crate) fn changed(&mut self, block: usize, value: u64) {
        for reading in &mut self.readings {
            if (reading.at..reading.at + reading.values.len()).contains(&block) {
                reading.later.push((block, value));
            }
        }
    }

    /// Waits for `least` requests, and judges those that are complete.
    pub(crate) fn wait(&mut self, least: usize) -> Result<(), String> {
        let complete = self.queue.wait(least).map_err(|error| format!("wait: {error}"))?;
        complete.into_iter().try_for_each(|completion| self.complete(completion))?;
        self.note();
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> Result<(), String> {
        let Completion { tag, outcome, job } = completion;
        outcome.map_err(|error| format!("by the queue, operation {tag} of the round: {error}"))?;
        let Job::Read(buffer) = job else {
            self.board.land(self.slot, tag);
            return Ok(());
        };
        let found = self.readings.iter().position(|reading| reading.tag == tag);
        let reading = self.readings.swap_remove(found.ok_or("a read that nobody asked for")?);
        match reading.wrong(&buffer) {
            None => Ok(()),
            Some(what) => Err(format!("read by the queue, operation {tag} of the round: {what}")),
        }
    }

    /// Waits for all.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.wait(usize::MAX)
    }
}
