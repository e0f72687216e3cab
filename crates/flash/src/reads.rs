//! Reads of ranges of the medium that go on while the caller does something else.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::beside::{Beside, Done};
use crate::buffers::Lent;
use crate::volume::Volume;

/// Reads under way, side by side as far as that can be.
pub(crate) struct Reads<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    beside: Beside<'v, M, H>,
    /// From which unit on, and how many bytes.
    wanted: Vec<(u64, usize)>,
    /// How many of them were begun.
    begun: usize,
    read: Vec<Option<Lent<'v>>>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Begins to read the medium from each place on, so many bytes.
    pub(crate) fn begin_reads(&self, wanted: Vec<(u64, usize)>) -> Reads<'_, M, H> {
        let read = wanted.iter().map(|_| None).collect();
        let mut reads = Reads { volume: self, beside: self.beside(), wanted, begun: 0, read };
        reads.begin_some();
        let done = reads.beside.begin();
        reads.take_in(done);
        reads
    }
}

impl<'v, M: Memory, H: Host> Reads<'v, M, H> {
    fn begin_some(&mut self) {
        while self.beside.has_room()
            && let Some(&(place, len)) = self.wanted.get(self.begun)
        {
            let buffer = self.volume.buffers.take(len).ok();
            let tag = self.begun;
            if let Some(left) = buffer.and_then(|buffer| self.beside.read(tag, place, buffer)) {
                self.volume.buffers.give(left);
            }
            self.begun += 1;
        }
    }

    fn take_in(&mut self, done: Vec<Done>) {
        for Done { tag, buffer, is_whole } in done {
            let lent = self.volume.buffers.lent(buffer);
            if let Some(place) = self.read.get_mut(tag).filter(|_| is_whole) {
                *place = Some(lent);
            }
        }
    }

    fn await_all(&mut self) {
        loop {
            self.begin_some();
            let done = self.beside.wait(usize::MAX);
            if done.is_empty() {
                return;
            }
            self.take_in(done);
        }
    }

    /// What was read, when that is complete. Of what can't be read, there is anything.
    pub(crate) fn finish(mut self) -> Result<Vec<Lent<'v>>> {
        self.await_all();
        let volume = self.volume;
        let in_turn = |(read, (place, len)): (Option<Lent<'v>>, (u64, usize))| match read {
            Some(read) => Ok(read),
            None => {
                let mut bytes = volume.lend(len)?;
                let _ = volume.read_at(place, &mut bytes);
                Ok(bytes)
            }
        };
        self.read.into_iter().zip(self.wanted).map(in_turn).collect()
    }
}
