//! A device that keeps a totally ordered log of what is done to it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Limits, MemoryDevice};

use super::medium::{Medium, SECTOR};
use crate::lock;
use crate::rng::mix;

/// What happened to a device, or was remarked by who used it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A write was begun.
    Write {
        /// Which request.
        request: u64,
        /// From which byte on.
        at: u64,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A write returned.
    Written {
        /// Which request.
        request: u64,
    },
    /// A write that is durable by itself (FUA) returned.
    Durable {
        /// Which request.
        request: u64,
    },
    /// A write that has not returned is over: its process is gone. What it has come to is there
    /// like what other writes have, if it is there.
    Ceased {
        /// Which request.
        request: u64,
    },
    /// A flush was begun.
    Flush {
        /// Which request.
        request: u64,
    },
    /// A flush returned.
    Flushed {
        /// Which request.
        request: u64,
    },
    /// A remark.
    Mark(Mark),
}

/// A remark of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// An operation on the volume was begun.
    Begun(u32),
    /// It returned without an error.
    Done(u32),
    /// The volume is being opened from now on.
    Recovery,
    /// It is open.
    Recovered,
    /// Whoever uses the volume has trimmed something.
    Trimmed,
}

#[derive(Debug)]
struct State {
    medium: Medium,
    log: Option<Vec<Event>>,
    requests: u64,
}

/// What is done before each event, with the number of events that there were.
pub type Witness = Arc<dyn Fn(usize) + Send + Sync>;

#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Option<Witness>>>);

impl core::fmt::Debug for Watch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Watch")
    }
}

/// A device that keeps a log, by one of its openers; clones are the same opener.
#[derive(Clone, Debug)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
    len: u64,
    limits: Limits,
    /// Whether threads take turns at each event.
    is_shared: bool,
    watch: Watch,
    /// Knows who has entered; nothing is written to it.
    openers: MemoryDevice,
}

impl Recorder {
    /// A device that holds `medium`, whose log is kept if `is_kept`.
    ///
    /// # Errors
    /// `EINVAL` if the medium is no device.
    pub fn new(medium: Medium, is_kept: bool) -> io::Result<Recorder> {
        let len = medium.len();
        let limits = Limits { is_cached: true, ..Limits::of_blocks(512) };
        let log = is_kept.then(Vec::new);
        let openers = MemoryDevice::new("recorded", len, limits)?;
        let state = Arc::new(Mutex::new(State { medium, log, requests: 0 }));
        let watch = Watch::default();
        Ok(Recorder { state, len, limits, is_shared: false, watch, openers })
    }

    /// The same opener, of a device that has FUA, if `fua`.
    #[must_use]
    pub fn with_fua(self, fua: bool) -> Recorder {
        Recorder { limits: Limits { fua, ..self.limits }, ..self }
    }

    /// The same device as somebody else has it.
    #[must_use]
    pub fn as_other(&self) -> Recorder {
        Recorder { openers: self.openers.as_other(), ..self.clone() }
    }

    /// The same opener, when several threads use the device: each lets others go first between
    /// events.
    #[must_use]
    pub fn shared(&self) -> Recorder {
        Recorder { is_shared: true, ..self.clone() }
    }

    /// Writes a remark into the log.
    pub fn mark(&self, mark: Mark) {
        self.push(Event::Mark(mark));
    }

    /// Lets this be done before each event; nothing, if it is none.
    pub fn watch(&self, witness: Option<Witness>) {
        *lock(&self.watch.0) = witness;
    }

    fn tell_witness(&self) {
        if let Some(witness) = lock(&self.watch.0).clone() {
            let events = lock(&self.state).log.as_ref().map_or(0, Vec::len);
            witness(events);
        }
    }

    fn push(&self, event: Event) {
        self.tell_witness();
        if let Some(log) = &mut lock(&self.state).log {
            log.push(event);
        }
    }

    /// What is on the device now, caches included.
    #[must_use]
    pub fn medium(&self) -> Medium {
        lock(&self.state).medium.clone()
    }

    /// The log so far; it begins anew.
    #[must_use]
    pub fn take_log(&self) -> Vec<Event> {
        lock(&self.state).log.as_mut().map(core::mem::take).unwrap_or_default()
    }

    fn request(&self) -> u64 {
        let mut state = lock(&self.state);
        state.requests += 1;
        state.requests
    }

    fn pass(&self) {
        if self.is_shared {
            std::thread::yield_now();
        }
    }

    /// Writes; `end` is what happens when that returns.
    fn write_until(&self, at: u64, bytes: &[u8], end: fn(u64) -> Event) -> io::Result<()> {
        self.admit(at, bytes.len() as u64)?;
        self.pass();
        let request = self.request();
        self.tell_witness();
        {
            let mut state = lock(&self.state);
            state.medium.write(at, bytes);
            if let Some(log) = &mut state.log {
                log.push(Event::Write { request, at, bytes: bytes.into() });
            }
        }
        self.pass();
        self.push(end(request));
        self.pass();
        Ok(())
    }

    fn admit(&self, at: u64, len: u64) -> io::Result<()> {
        let is_whole = (at | len).is_multiple_of(self.limits.block.into());
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        (is_whole && is_inside)
            .then_some(())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }
}

impl Device for Recorder {
    fn name(&self) -> &Path {
        self.openers.name()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.admit(at, into.len() as u64)?;
        // Pages are shared, so this is short.
        lock(&self.state).medium.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_until(at, bytes, |request| Event::Written { request })
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.limits.fua {
            return self.write_until(at, bytes, |request| Event::Durable { request });
        }
        self.write(at, bytes)?;
        self.flush()
    }

    fn flush(&self) -> io::Result<()> {
        self.pass();
        let request = self.request();
        self.push(Event::Flush { request });
        self.pass();
        self.push(Event::Flushed { request });
        self.pass();
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        // Sectors keep what they had, or are zeros.
        self.write(at, &vec![0; len as usize])
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.openers.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.openers.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.openers.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.openers.is_anyone_entered()
    }
}

/// A write that need not be on the medium yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Which request.
    pub request: u64,
    /// From which byte on.
    pub at: u64,
    /// What.
    pub bytes: Arc<[u8]>,
    /// Whether it has returned.
    pub is_done: bool,
}

impl Pending {
    /// Its sectors, each as a write.
    fn sectors(&self) -> impl Iterator<Item = Pending> {
        let places = (self.at..).step_by(SECTOR as usize);
        places.zip(self.bytes.chunks(SECTOR as usize)).map(|(at, bytes)| Pending {
            at,
            bytes: bytes.into(),
            ..self.clone()
        })
    }
}

/// A point of a log: what is on the medium for sure, and what may be.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// With all that was written before a flush that has returned, or is durable by itself.
    pub durable: Medium,
    /// Other writes, in the order in which they were begun.
    pub pending: Vec<Pending>,
    /// Flushes under way, and the writes that had returned when each was begun.
    flushes: BTreeMap<u64, Vec<u64>>,
}

impl Sweep {
    /// The beginning of a log of a device that held `medium`.
    #[must_use]
    pub const fn new(medium: Medium) -> Sweep {
        Sweep { durable: medium, pending: Vec::new(), flushes: BTreeMap::new() }
    }

    /// Passes `event`; whether that changed what may be on the medium.
    pub fn pass(&mut self, event: &Event) -> bool {
        match event {
            Event::Write { request, at, bytes } => {
                let bytes = Arc::clone(bytes);
                let (request, at) = (*request, *at);
                self.pending.push(Pending { request, at, bytes, is_done: false });
                true
            }
            Event::Written { request } => {
                let found = self.pending.iter_mut().find(|pending| pending.request == *request);
                if let Some(pending) = found {
                    pending.is_done = true;
                }
                true
            }
            Event::Durable { request } => {
                self.make_durable(*request);
                true
            }
            Event::Ceased { request } => {
                self.cease(*request);
                true
            }
            Event::Flush { request } => {
                let done = self.pending.iter().filter(|pending| pending.is_done);
                self.flushes.insert(*request, done.map(|pending| pending.request).collect());
                false
            }
            Event::Flushed { request } => {
                let covered = self.flushes.remove(request).unwrap_or_default();
                let durable = &mut self.durable;
                self.pending.retain(|pending| {
                    let is_covered = covered.contains(&pending.request);
                    if is_covered {
                        durable.write(pending.at, &pending.bytes);
                    }
                    !is_covered
                });
                true
            }
            Event::Mark(_) => false,
        }
    }

    /// A write is on the medium; what was written to its sectors before it, and has returned, never
    /// comes to be there any more.
    fn make_durable(&mut self, request: u64) {
        let is_it = |pending: &Pending| pending.request == request && !pending.is_done;
        let Some(index) = self.pending.iter().position(is_it) else {
            return;
        };
        let Pending { at, bytes, .. } = self.pending.remove(index);
        self.durable.write(at, &bytes);
        let written = at..at + bytes.len() as u64;
        let later = self.pending.split_off(index);
        for earlier in std::mem::take(&mut self.pending) {
            let end = earlier.at + earlier.bytes.len() as u64;
            if !earlier.is_done || end <= written.start || written.end <= earlier.at {
                self.pending.push(earlier);
                continue;
            }
            self.pending.extend(earlier.sectors().filter(|other| !written.contains(&other.at)));
        }
        self.pending.extend(later);
    }

    /// Leaves of a write that has not returned what follows from its number: nothing, all, or some
    /// sectors.
    fn cease(&mut self, request: u64) {
        let is_it = |pending: &Pending| pending.request == request && !pending.is_done;
        let Some(index) = self.pending.iter().position(is_it) else {
            return;
        };
        let cut = self.pending.remove(index);
        let fate = mix(request);
        let is_there = |sector: &Pending| match fate % 4 {
            0 => false,
            1 => true,
            _ => mix(fate ^ sector.at).is_multiple_of(2),
        };
        let kept = cut.sectors().filter(is_there).map(|sector| Pending { is_done: true, ..sector });
        self.pending.splice(index..index, kept.collect::<Vec<Pending>>());
    }
}
