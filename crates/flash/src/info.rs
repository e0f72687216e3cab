//! What a volume is, and how it is used.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use conquest_format::volume::{Arrangement, Superblock};
use conquest_pm::host::Host;
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::memory::Memory;

use crate::Result;
use crate::device::Device;
use crate::index::{LOCK, Use, Word, Words, packet_of};
use crate::layout::Layout;
use crate::map::Measure;
use crate::volume::Volume;

/// How a volume is used. Others may change it meanwhile, so its parts may be of different moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Info {
    /// Bytes of a unit.
    pub unit: u64,
    /// Units of a segment.
    pub segment: u64,
    /// Segments, by their use.
    pub segments: Segments,
    /// Units that can have payload or be reserved.
    pub capacity: u64,
    /// Units with payload.
    pub used: u64,
    /// Units that are reserved.
    pub reserved: u64,
    /// The map.
    pub map: Measure,
    /// The stream.
    pub stream: Stream,
    /// Units of the checkpoint that recovery begins with, 0 if there is none.
    pub checkpoint: u64,
    /// Number of this life of the volume.
    pub life: u64,
    /// Writers that this life has had.
    pub writers: u64,
}

/// Segments, by their use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Segments {
    /// All of them.
    pub all: u64,
    /// That can be begun anew.
    pub free: u64,
    /// With payload, or that had some and wait for a flush.
    pub payload: u64,
    /// With packets of the stream, and the payload in them.
    pub stream: u64,
    /// With a checkpoint.
    pub checkpoint: u64,
    /// For roots.
    pub anchor: u64,
    /// Out of use.
    pub bad: u64,
}

/// The stream, by the numbers of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stream {
    /// The packet to which records are added.
    pub open: u64,
    /// Packets below are on the devices.
    pub written: u64,
    /// Packets below are durable.
    pub durable: u64,
    /// The first one that recovery reads.
    pub first: u64,
}

/// What a volume is for life.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Identity {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Nanoseconds since 1970 at which it was made.
    pub created: u64,
    /// How its members are combined.
    pub arrangement: Arrangement,
    /// Its members: paths and bytes, by their numbers.
    pub members: Vec<(PathBuf, u64)>,
    /// The file of its index.
    pub index: PathBuf,
    /// Bytes of memory that the index takes; 0 if its file is gone.
    pub index_bytes: u64,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// How the volume is used. Goes through the whole map.
    ///
    /// # Errors
    /// Those of the region.
    pub fn info(&self) -> Result<Info> {
        let Layout { unit, segment, .. } = self.layout;
        let core = self.core.as_ref();
        let map = core.read(LOCK, |view| self.map.measure(view))?;
        Ok(Info {
            unit,
            segment,
            segments: self.count_segments()?,
            capacity: self.layout.capacity(),
            used: core.root(Word::Live),
            reserved: core.root(Word::Reserved),
            map,
            stream: Stream {
                open: packet_of(core.root(Word::End)).0,
                written: core.root(Word::Written),
                durable: core.root(Word::Durable),
                first: core.root(Word::RootPacket),
            },
            checkpoint: match core.root(Word::RootCheckpoint) {
                0 => 0,
                _ => core.root(Word::CheckpointUnits),
            },
            life: core.root(Word::Life),
            writers: core.root(Word::WriterNumber),
        })
    }

    fn count_segments(&self) -> Result<Segments> {
        let core = self.core.as_ref();
        let held = self.held_segments(core)?;
        let mut found = Segments { all: self.layout.segments, ..Segments::default() };
        for segment in 0..self.layout.segments {
            let count = match core.usage(segment).0 {
                _ if self.is_reusable(core, segment, &held) => &mut found.free,
                Use::Payload => &mut found.payload,
                Use::Stream => &mut found.stream,
                Use::Checkpoint => &mut found.checkpoint,
                Use::Anchor => &mut found.anchor,
                Use::Bad => &mut found.bad,
            };
            *count += 1;
        }
        Ok(found)
    }
}

impl Volume<Mapped, OsHost> {
    /// What the volume is; none for one that was not opened by paths.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        let opened = self.opened.as_ref()?;
        let Superblock { uuid, created, arrangement, .. } = opened.superblock;
        let blocks = std::fs::metadata(&opened.index).map_or(0, |found| found.blocks());
        Some(Identity {
            uuid,
            created,
            arrangement,
            members: opened
                .devices
                .iter()
                .map(|device| (device.name().to_owned(), device.len()))
                .collect(),
            index: opened.index.clone(),
            index_bytes: blocks * 512,
        })
    }
}
