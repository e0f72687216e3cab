//! Transfers of several ranges of the medium side by side, for one caller, who waits for all of
//! them.

use std::sync::PoisonError;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_uring::{Buffer, Completion, Job, Queue, Read, Request};

use crate::volume::Volume;

/// Most requests of one caller that are under way.
const DEPTH: u32 = 64;
/// Bytes that are read to memory of the caller at once.
const LENT_AT_ONCE: usize = 1 << 20;
/// Queues that are kept for the next caller.
const KEPT: usize = 8;

/// Whole transfers under way, for one caller: a queue of the devices' files, if they have any and
/// the system has queues.
pub(crate) struct Beside<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    queue: Option<Queue>,
}

/// A transfer that is over: by what number it is known, its memory, and whether all of it was done.
pub(crate) struct Done {
    pub(crate) tag: usize,
    pub(crate) buffer: Buffer,
    pub(crate) is_whole: bool,
}

impl<M: Memory, H: Host> Beside<'_, M, H> {
    /// Begins to read the medium from unit `place` on, if that can be done beside others: to all of
    /// the memory. Otherwise that is given back.
    pub(crate) fn read(&mut self, tag: usize, place: u64, buffer: Buffer) -> Option<Buffer> {
        let volume = self.volume;
        let route = volume.device.route(place * volume.layout.unit, buffer.len() as u64);
        self.submit(tag, route, Job::Read(buffer))
    }

    /// The same for writing, if [`Self::takes_writes`], to a segment that the caller holds.
    pub(crate) fn write(&mut self, tag: usize, place: u64, buffer: Buffer) -> Option<Buffer> {
        let volume = self.volume;
        let route = volume.device.route_write(place * volume.layout.unit, buffer.len() as u64);
        self.submit(tag, route, Job::Write(buffer))
    }

    fn submit(&mut self, tag: usize, route: Option<(usize, u64)>, job: Job) -> Option<Buffer> {
        let (Some(queue), Some((file, at))) = (self.queue.as_mut(), route) else {
            return memory_of(job);
        };
        let request = Request { tag: tag as u64, file, at, job };
        queue.submit(request).err().and_then(|(_, request)| memory_of(request.job))
    }

    /// Whether writes can be begun: not if they have to be in order, or come to several devices.
    pub(crate) fn takes_writes(&self) -> bool {
        let volume = self.volume;
        let route = volume.device.route_write(0, 0);
        self.queue.is_some() && route.is_some() && !volume.is_ordered()
    }

    /// Whether another transfer can be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.as_ref().is_some_and(Queue::has_room)
    }

    /// Reads the medium from each place on, to memory that begins with a page, and tells `each` of
    /// every one when it is complete: which, and whether all of it was read. False, and none is
    /// begun, if they can't be read side by side.
    pub(crate) fn read_to<'m>(
        &mut self,
        wanted: impl Iterator<Item = (u64, &'m mut [u8])>,
        mut each: impl FnMut(usize, bool, &mut [u8]),
    ) -> bool {
        let Some(queue) = self.queue.as_mut() else {
            return false;
        };
        let (unit, device) = (self.volume.layout.unit, &self.volume.device);
        let mut reads = Vec::new();
        for (place, into) in wanted {
            let Some((file, at)) = device.route(place * unit, into.len() as u64) else {
                return false;
            };
            reads.push(Read { file, at, into });
        }
        let read = queue.read_to(&mut reads, LENT_AT_ONCE, |index, outcome, bytes| {
            let is_whole = outcome.is_ok_and(|count| count == bytes.len());
            each(index, is_whole, bytes);
        });
        read.is_ok()
    }

    /// Sees to it that the devices begin with all that was submitted; transfers that are over.
    pub(crate) fn begin(&mut self) -> Vec<Done> {
        let completed = self.queue.as_mut().and_then(|queue| queue.wait(0).ok());
        completed.unwrap_or_default().into_iter().filter_map(done).collect()
    }

    /// How many transfers are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::under_way)
    }

    /// Transfers that are over now, `least` at least, or all if there are fewer; none if none is
    /// under way, or nobody can say what became of those that are.
    pub(crate) fn wait(&mut self, least: usize) -> Vec<Done> {
        let Some(queue) = self.queue.as_mut().filter(|queue| queue.under_way() > 0) else {
            return Vec::new();
        };
        let completed = queue.wait(least).unwrap_or_default();
        completed.into_iter().filter_map(done).collect()
    }
}

fn memory_of(job: Job) -> Option<Buffer> {
    match job {
        Job::Read(buffer) | Job::Write(buffer) => Some(buffer),
        Job::Flush => None,
    }
}

fn done(completion: Completion) -> Option<Done> {
    let Completion { tag, outcome, job } = completion;
    let buffer = memory_of(job)?;
    let is_whole = outcome.is_ok_and(|count| count == buffer.len());
    Some(Done { tag: tag as usize, buffer, is_whole })
}

impl<M: Memory, H: Host> Drop for Beside<'_, M, H> {
    fn drop(&mut self) {
        let mut kept = self.volume.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = self.queue.take_if(|queue| queue.under_way() == 0)
            && kept.len() < KEPT
        {
            kept.push(queue);
        }
    }
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// For several transfers side by side.
    pub(crate) fn beside(&self) -> Beside<'_, M, H> {
        let mut queue = None;
        if self.device.file_count() > 0 {
            queue = self.queues.lock().unwrap_or_else(PoisonError::into_inner).pop();
            queue = queue.or_else(|| Queue::new(DEPTH, self.device.files().ok()?).ok());
        }
        Beside { volume: self, queue }
    }
}
