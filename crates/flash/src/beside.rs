//! Reading several ranges of the medium side by side, for one caller who waits for all of them.

use std::sync::PoisonError;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_uring::{Buffer, Job, Queue, Request};

use crate::volume::Volume;

/// Most requests of one caller that are under way.
const DEPTH: u32 = 64;
/// Queues that are kept for the next caller.
const KEPT: usize = 8;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Reads units of the medium from each place on: whether each could be.
    pub(crate) fn read_beside(&self, wanted: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let mut queue = if wanted.len() > 1 { self.take_queue() } else { None };
        let mut done = vec![false; wanted.len()];
        let mut next = 0;
        while let Some(queue) = queue.as_mut() {
            while next < wanted.len() && queue.has_room() && self.begin_read(queue, next, wanted) {
                next += 1;
            }
            if queue.under_way() == 0 {
                break;
            }
            let Ok(completed) = queue.wait(1) else {
                // What is not done is done below.
                break;
            };
            for one in completed {
                let index = one.tag as usize;
                let (Job::Read(buffer), Some((_, into))) = (one.job, wanted.get_mut(index)) else {
                    continue;
                };
                if one.outcome.is_ok_and(|count| count == into.len()) && buffer.len() == into.len()
                {
                    into.copy_from_slice(&buffer);
                    done[index] = true;
                }
                self.buffers.give(buffer);
            }
        }
        if let Some(queue) = queue {
            self.give_queue(queue);
        }
        for (is_done, (place, into)) in done.iter_mut().zip(wanted) {
            *is_done = *is_done || self.read_at(*place, into).is_ok();
        }
        done
    }

    /// Begins to read the range with number `index`; whether it could.
    fn begin_read(&self, queue: &mut Queue, index: usize, wanted: &[(u64, &mut [u8])]) -> bool {
        let Some((place, into)) = wanted.get(index) else {
            return false;
        };
        let len = into.len();
        let Some((file, at)) = self.device.route(place * self.layout.unit, len as u64) else {
            return false;
        };
        // Those that are kept have sizes of their own.
        let buffer = if len.is_power_of_two() { self.buffers.take(len) } else { Buffer::new(len) };
        let Ok(buffer) = buffer else {
            return false;
        };
        let request = Request { tag: index as u64, file, at, job: Job::Read(buffer) };
        queue.submit(request).is_ok()
    }

    /// A queue with nothing under way; none if the devices have no files, or the system no queues.
    fn take_queue(&self) -> Option<Queue> {
        if self.device.file_count() == 0 {
            return None;
        }
        let kept = self.queues.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.or_else(|| Queue::new(DEPTH, self.device.files().ok()?).ok())
    }

    fn give_queue(&self, queue: Queue) {
        let mut kept = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.under_way() == 0 && kept.len() < KEPT {
            kept.push(queue);
        }
    }
}
