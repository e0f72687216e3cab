//! A look at all segments: which are free, and which will be.
//!
//! No lock is held, as it takes long where there are many: so it is a hint. Who begins a segment
//! looks at that one again.

use std::cmp::Reverse;

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;
use crate::index::{Of, Slot, Use, Word, Words, packet_of};
use crate::volume::Volume;

/// What was seen.
pub(crate) struct Survey {
    /// Segments that can be begun anew.
    pub(crate) free: u64,
    /// Those in which nothing is in use, and which wait for a flush.
    pub(crate) unnamed: u64,
    /// Those that wait for a checkpoint.
    pub(crate) unrooted: u64,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Looks at all segments, and remembers which are free.
    pub(crate) fn survey(&self) -> Result<Survey> {
        let core = self.core.as_ref();
        let held = self.segments_held_now()?;
        let (open, _) = packet_of(core.root(Word::End));
        let current = self.layout.segment_of(core.packet(open, Slot::Place));
        let (named, rooted) = (core.root(Word::Named), core.root(Word::RootPacket));
        let next = core.root(Word::NextStream);
        let (mut free, mut unnamed, mut unrooted) = (Vec::new(), 0, 0);
        for segment in 0..self.layout.segments {
            // Most are in use.
            if core.segment(segment, Of::Live) > 0 || core.segment(segment, Of::Bad) > 0 {
                continue;
            }
            let touched = core.segment(segment, Of::Touched);
            match core.usage(segment).0 {
                Use::Stream if segment == current || segment == next => {}
                Use::Stream if core.segment(segment, Of::Last) >= rooted => unrooted += 1,
                Use::Payload | Use::Stream if touched >= named && touched > 0 => unnamed += 1,
                _ if self.is_reusable(core, segment, &held) => {
                    free.push(Reverse((core.usage(segment).1, segment)));
                }
                _ => {}
            }
        }
        free.sort_unstable();
        let count = free.len() as u64;
        self.remember_free(free.into_iter().map(|Reverse((_, segment))| segment).collect());
        Ok(Survey { free: count, unnamed, unrooted })
    }
}
