//! A volume that this process has open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Place};

use crate::buffers::{Buffers, Lent};
use crate::cache::Cache;
use crate::device::{Device, Standing};
use crate::index::{Count, RING, VERSION, Word, Words};
use crate::keep::Keeping;
use crate::layout::Layout;
use crate::looked::Looked;
use crate::map::Tree;
use crate::members::Body;
use crate::naming::Naming;
use crate::open::Opened;
use crate::order::Order;
use crate::stand_in::Standstill;
use crate::turn::Turn;
use crate::under_way::UnderWay;
use crate::writer::Writing;
use crate::{Error, Result};

/// A volume that this process has open. Its operations can be called by several threads at once.
pub struct Volume<M: Memory, H: Host> {
    pub(crate) core: Arc<Core<M, H>>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) layout: Layout,
    pub(crate) map: Tree,
    pub(crate) writing: Writing,
    /// How far segments are written, where that is to be in order.
    pub(crate) order: Order,
    /// Memory for transfers.
    pub(crate) buffers: Buffers,
    /// Queues of the devices' files that nobody uses.
    pub(crate) queues: Mutex<Vec<conquest_uring::Queue>>,
    /// Where packets are in the region, as far as somebody has looked.
    pub(crate) packets: [OnceLock<Place>; RING as usize],
    /// Told of when a flush that a thread of this process has made is over.
    pub(crate) flushes: (Mutex<()>, Condvar),
    /// Which process of a line of descent has opened it: what it holds is not its children's.
    pub(crate) life: Option<u32>,
    /// What has been read, for who reads it again.
    pub(crate) cache: Cache,
    pub(crate) looked: Looked,
    /// How members of a mirror stand, as the device was told last.
    pub(crate) standing: Mutex<Standing>,
    /// The thread that works in the background.
    pub(crate) keeping: Keeping,
    /// The thread that helps who makes space.
    pub(crate) naming: Naming,
    /// Segments that were free when this process looked last.
    pub(crate) known_free: Mutex<Vec<u64>>,
    /// Whether packets get written.
    pub(crate) standstill: Mutex<Standstill>,
    /// Packets that threads of this process are writing.
    pub(crate) under_way: UnderWay,
    /// Told of when packets were written.
    pub(crate) packets_written: (Mutex<()>, Condvar),
    /// Of the thread that makes space or writes a checkpoint.
    pub(crate) space: Turn,
    /// Its files, if it was opened by paths.
    pub(crate) opened: Option<Opened>,
}

impl<M: Memory, H: Host> Volume<M, H> {
    /// Makes the index of the volume on `body` in `core`, which is new, and begins a life of the
    /// volume: its index was lost, as it is whenever the machine is started.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::InUse`], those of the devices.
    pub fn recover(core: Arc<Core<M, H>>, body: &Body) -> Result<Volume<M, H>> {
        let mut volume = Volume::over(core, Arc::clone(&body.device), body.layout());
        let anyone = volume.device.is_anyone_entered();
        if anyone.map_err(|source| volume.device_error("ask who writes to", 0, 0, source))? {
            let what = "they have another index of the volume, or requests under way";
            return Err(Error::InUse { device: volume.name(), what });
        }
        volume.build()?;
        volume.check_stamps(&body.stamps)?;
        volume.become_writer()?;
        volume.make_space_if_short()?;
        volume.core.run(|tx| tx.set(Word::Version.at(), VERSION))?;
        Ok(volume)
    }

    /// Joins those who have the volume on `body` open, with its index in `core`.
    ///
    /// # Errors
    /// [`Error::Failed`], those of the devices.
    pub fn join(core: Arc<Core<M, H>>, body: &Body) -> Result<Volume<M, H>> {
        let mut volume = Volume::over(core, Arc::clone(&body.device), body.layout());
        if volume.root(Word::Version) != VERSION {
            let what = "their index of the volume is that of another release";
            return Err(Error::InUse { device: volume.name(), what });
        }
        volume.refuse_others()?;
        volume.check_stamps(&body.stamps)?;
        volume.tell_missing()?;
        volume.become_writer()?;
        volume.close_open_segments()?;
        Ok(volume)
    }

    /// The device, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.device.name()
    }

    /// Its device, or the first of several.
    pub fn name(&self) -> PathBuf {
        self.path().to_owned()
    }

    /// Memory for a transfer.
    pub(crate) fn lend(&self, bytes: usize) -> Result<Lent<'_>> {
        let lent = self.buffers.lend(bytes);
        lent.map_err(|source| self.device_error("get memory for", 0, bytes as u64, source))
    }

    /// Bytes of a unit: what maps, checksums and allocation are in. Writes of whole units need no
    /// reading.
    pub fn unit(&self) -> u64 {
        self.layout.unit
    }

    /// Bytes of the index that are in use now.
    pub fn memory_in_use(&self) -> u64 {
        self.core.pages_used() * conquest_format::PAGE
    }

    /// The present value of a word of the volume.
    pub(crate) fn root(&self, word: Word) -> u64 {
        self.core.root(word)
    }

    /// Refuses to go on once the volume has failed.
    pub(crate) fn check_health(&self) -> Result<()> {
        if self.core.life() != self.life {
            let what = "a forked child has to open the volume itself";
            return Err(Error::InUse { device: self.name(), what });
        }
        match self.root(Word::Failed) {
            0 => Ok(()),
            _ => Err(self.failed()),
        }
    }

    /// Units that can have payload or be reserved now: fewer if too many segments are bad.
    pub(crate) fn capacity(&self, words: &impl Words) -> u64 {
        self.layout.capacity_without(words.count(Count::Bad))
    }

    /// The error for a volume that is full.
    pub(crate) fn no_space(&self) -> Error {
        let core = self.core.as_ref();
        let used = core.root(Word::Live) + core.root(Word::Reserved);
        let (bad, all) = (core.count(Count::Bad), self.layout.segments);
        Error::NoSpace { device: self.name(), used, most: self.capacity(core), bad, all }
    }

    pub(crate) fn failed(&self) -> Error {
        let reason = "a device could not write or flush what was to be durable";
        Error::Failed { device: self.name(), reason }
    }
}
