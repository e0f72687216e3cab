//! What a volume is, and how it is used.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use conquest_format::volume::{Arrangement, Superblock};
use conquest_pm::host::Host;
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::memory::Memory;

use crate::Result;
use crate::build::LIFE_SHIFT;
use crate::device::Device;
use crate::index::{Count, LOCK, Noted, Of, Use, Word, Words, packet_of};
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
    /// Units that can have payload or be reserved: the same for the life of the volume.
    pub capacity: u64,
    /// Units fewer than that, because too many segments are bad.
    pub lost: u64,
    /// Units with payload.
    pub used: u64,
    /// Units that are reserved.
    pub reserved: u64,
    /// Units in use that cleaning could not read: scrubbing tells which.
    pub unreadable: u64,
    /// What was written since the index was made.
    pub written: Written,
    /// How often segments were begun since the volume was made.
    pub wear: Wear,
    /// Members of a mirror that have failed, a bit each.
    pub failed: u64,
    /// When the first of them did, in nanoseconds since 1970; 0 if none has.
    pub failed_since: u64,
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
    /// Could not be written, or erased, and are not begun any more.
    pub bad: u64,
    /// So many more may become so before there is less capacity.
    pub spare: u64,
}

/// Units that were written since the index was made; write amplification is the sum of all but
/// [`Self::asked`], divided by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Written {
    /// By users.
    pub asked: u64,
    /// Packets of the stream, with the payload in them.
    pub packets: u64,
    /// Payload of users that is no part of packets.
    pub placed: u64,
    /// Copies by cleaning.
    pub copied: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

impl Written {
    /// To the devices.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.packets + self.placed + self.copied + self.checkpoints
    }
}

/// How often segments were begun, but for those of roots and those out of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Wear {
    /// The one that was least often.
    pub least: u64,
    /// The one that was most often.
    pub most: u64,
    /// All together.
    pub sum: u64,
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

/// How much of a volume is in use, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// That can have payload or be reserved: the same for the life of the volume.
    pub capacity: u64,
    /// Fewer than that, because too many segments are bad.
    pub lost: u64,
    /// With payload; also what is being trimmed, until that is done.
    pub used: u64,
    /// That are reserved.
    pub reserved: u64,
}

/// A member of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Member {
    /// Where it is; none if it is not there.
    pub path: Option<PathBuf>,
    /// Bytes, 0 if it is not there.
    pub bytes: u64,
    /// Whether it lacks what others of its mirror have, and is not read.
    pub has_failed: bool,
    /// Whether it is being brought up to date.
    pub is_restored: bool,
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
    /// Its members, by their numbers.
    pub members: Vec<Member>,
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
            lost: self.layout.capacity() - self.capacity(core),
            used: core.root(Word::Live),
            reserved: core.root(Word::Reserved),
            unreadable: self.unreadable(),
            written: Written {
                asked: core.count(Count::Asked),
                packets: core.count(Count::Packets),
                placed: core.count(Count::Placed),
                copied: core.count(Count::Copied),
                checkpoints: core.count(Count::Checkpoints),
            },
            wear: self.wear(),
            failed: core.noted(Noted::Failed),
            failed_since: match core.noted(Noted::Failed) {
                0 => 0,
                _ => core.noted(Noted::Since),
            },
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
            life: core.root(Word::Life) & ((1 << LIFE_SHIFT) - 1),
            writers: core.root(Word::WriterNumber),
        })
    }

    fn unreadable(&self) -> u64 {
        let core = self.core.as_ref();
        let of = |segment| {
            let live = core.segment(segment, Of::Live);
            core.segment(segment, Of::Unreadable).min(live)
        };
        (0..self.layout.segments).map(of).sum()
    }

    fn wear(&self) -> Wear {
        let core = self.core.as_ref();
        let good = (0..self.layout.segments).filter(|&segment| core.segment(segment, Of::Bad) == 0);
        let worn = good.map(|segment| core.usage(segment)).filter(|(used, _)| *used != Use::Anchor);
        let begin = Wear { least: u64::MAX, ..Wear::default() };
        let all = worn.fold(begin, |Wear { least, most, sum }, (_, begun)| Wear {
            least: least.min(begun),
            most: most.max(begun),
            sum: sum + begun,
        });
        Wear { least: all.least.min(all.most), ..all }
    }

    /// How much of the volume is in use: a part of [`Volume::info`] that costs nothing.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            capacity: self.layout.capacity(),
            lost: self.layout.capacity() - self.capacity(self.core.as_ref()),
            used: self.root(Word::Live),
            reserved: self.root(Word::Reserved),
        }
    }

    fn count_segments(&self) -> Result<Segments> {
        let core = self.core.as_ref();
        let held = self.segments_held_now()?;
        let spare = self.layout.bad_most().saturating_sub(core.count(Count::Bad));
        let mut found = Segments { all: self.layout.segments, spare, ..Segments::default() };
        for segment in 0..self.layout.segments {
            let count = match core.usage(segment).0 {
                _ if self.is_reusable(core, segment, &held) => &mut found.free,
                _ if core.segment(segment, Of::Bad) > 0 => &mut found.bad,
                Use::Payload => &mut found.payload,
                Use::Stream => &mut found.stream,
                Use::Checkpoint => &mut found.checkpoint,
                Use::Anchor => &mut found.anchor,
            };
            *count += 1;
        }
        Ok(found)
    }
}

impl Volume<Mapped, OsHost> {
    /// Member `number`.
    fn member(&self, number: u32) -> Member {
        let devices = self.opened.iter().flat_map(|opened| &opened.devices);
        let device = devices.filter(|(found, _)| *found == number).map(|(_, device)| device).next();
        let has = |what| self.is_mirrored() && self.core.noted(what) >> number & 1 != 0;
        Member {
            path: device.map(|device| device.name().to_owned()),
            bytes: device.map_or(0, |device| device.len()),
            has_failed: has(Noted::Failed),
            is_restored: has(Noted::Restored),
        }
    }

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
            members: (0..opened.superblock.members).map(|number| self.member(number)).collect(),
            index: opened.index.clone(),
            index_bytes: blocks * 512,
        })
    }
}
