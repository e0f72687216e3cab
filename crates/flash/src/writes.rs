//! Writes of payload to room of its own, several under way at once.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::beside::{Beside, Done};
use crate::segments::Room;
use crate::volume::Volume;
use crate::writer::Hold;

/// Room to which a write was begun.
pub(crate) struct Begun<'v, M: Memory, H: Host> {
    pub(crate) room: Room,
    /// Of the room's segment.
    pub(crate) hold: Hold<'v, M, H>,
    /// Whether the write is over, and all of it was done.
    pub(crate) is_written: bool,
}

/// Writes under way.
pub(crate) struct Writes<'v, M: Memory, H: Host> {
    volume: &'v Volume<M, H>,
    /// Before the holds: who drops it waits for what is under way.
    beside: Beside<'v, M, H>,
    begun: Vec<Begun<'v, M, H>>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// For writes that are to be under way at once.
    pub(crate) fn writes(&self) -> Writes<'_, M, H> {
        Writes { volume: self, beside: self.beside(), begun: Vec::new() }
    }
}

impl<'v, M: Memory, H: Host> Writes<'v, M, H> {
    /// Whether there can be any.
    pub(crate) fn can_be(&self) -> bool {
        self.beside.takes_writes()
    }

    /// Whether another one can be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.beside.has_room()
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.beside.under_way()
    }

    /// Writes to `room`, which `hold` holds, what `fill` puts in memory of its size: at once, if
    /// that can't be done beside others.
    pub(crate) fn begin(&mut self, room: Room, hold: Hold<'v, M, H>, fill: impl FnOnce(&mut [u8])) {
        let (volume, mut is_written) = (self.volume, false);
        if let Ok(mut buffer) = volume.buffers.take((room.len * volume.layout.unit) as usize) {
            fill(&mut buffer);
            // That nobody takes it says nothing of the place.
            if let Some(buffer) = self.beside.write(self.begun.len(), room.place, buffer) {
                is_written = volume.write_room(&room, &buffer).is_ok();
                volume.buffers.give(buffer);
            }
        }
        self.begun.push(Begun { room, hold, is_written });
    }

    /// Sees to it that the devices go on while the caller does something else.
    pub(crate) fn go_on(&mut self) {
        let done = self.beside.begin();
        self.take_in(done);
    }

    /// Waits until at least `least` more are over, or all if there are fewer; false if there are
    /// none, or nobody can say what became of them.
    pub(crate) fn wait(&mut self, least: usize) -> bool {
        let done = self.beside.wait(least);
        let is_any = !done.is_empty();
        self.take_in(done);
        is_any
    }

    /// All that were begun, in their order, when they are over.
    pub(crate) fn finish(&mut self) -> Vec<Begun<'v, M, H>> {
        while self.wait(usize::MAX) {}
        std::mem::take(&mut self.begun)
    }

    fn take_in(&mut self, done: Vec<Done>) {
        for Done { tag, buffer, is_whole } in done {
            if let Some(one) = self.begun.get_mut(tag) {
                // Nobody names what is there yet, so it may be written again.
                one.is_written = is_whole || self.volume.write_room(&one.room, &buffer).is_ok();
            }
            self.volume.buffers.give(buffer);
        }
    }
}
