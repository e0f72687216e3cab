//! Packets that are durable when their write is complete (FUA): no flush has to follow.
//!
//! A flush makes everything durable that was written before; such a write only itself. So it takes
//! the place of a flush only where the durable position then covers nothing else that is not
//! durable: the packets are all from that position on, and are one request; and what they name is
//! in them, or durable already.

use conquest_format::volume::{HEADER_WORDS, Packet, Record, Records, words};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::volume::Volume;

impl<M: Memory, H: Host> Volume<M, H> {
    /// Whether `packets`, which are all that are not durable, and are `bytes` beside each other,
    /// can be made so by one write.
    pub(crate) fn can_write_durably(&self, packets: &[Packet], bytes: &[u8]) -> bool {
        self.device.limits().fua && self.name_only_themselves(packets, bytes)
    }

    /// Whether payload that `packets` name for the first time is in their `bytes`. What has room of
    /// its own was written, and may not have been flushed since.
    fn name_only_themselves(&self, packets: &[Packet], bytes: &[u8]) -> bool {
        let Some(start) = packets.first().map(|first| first.place) else {
            return false;
        };
        let unit = self.layout.unit as usize;
        let end = start + (bytes.len() / unit) as u64;
        packets.iter().all(|packet| {
            let header = bytes.get((packet.place - start) as usize * unit..).unwrap_or_default();
            let records: Vec<u64> =
                words(header).skip(HEADER_WORDS).take(packet.words as usize).collect();
            Records::new(&records).all(|record| match record {
                Ok((Record::Write { place, len, .. }, _)) => start <= place && place + len <= end,
                // Payload that is placed elsewhere in the space has been named by a write before.
                Ok(_) => true,
                Err(_) => false,
            })
        })
    }

    /// Writes `bytes`, units of the medium from `place` on in a segment that the caller holds, so
    /// that they are durable: also on all members that have not failed.
    pub(crate) fn write_durably(&self, place: u64, bytes: &[u8]) -> Result<()> {
        let at = place * self.layout.unit;
        self.learn_standing();
        let written = self.device.write_durable(at, bytes);
        self.tell_failures()?;
        let Err(source) = written else {
            return Ok(());
        };
        // If what others have written may be lost by that, this fails, too, and so does the volume.
        self.flush_members()?;
        Err(self.device_error("write", at, bytes.len() as u64, source))
    }
}
