//! The disk: a file system with the file of a volume, of which it records what is done to it, and
//! a file to which programs write what they acknowledge.
//!
//! Invariants:
//! - events are in one order. A write is noted before its bytes can be read and noted as written
//!   before its caller knows that; a flush likewise. What is acknowledged is noted when it comes,
//!   after all that whoever says it has waited for;
//! - nothing of the volume is in the kernel's cache: all that is done to it comes here;
//! - it is served by a process of its own: who uses it can be killed, and it goes on.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conquest_fuse::wire::{
    Attributes, AttributesReply, Entry, InitFlags, Listing, Offer, Opened, OpenedFlags, Operation,
    Position, Read, Request, SetAttributes, Settings, StatFs, Write, Written,
};
use conquest_fuse::{Errno, Handler, Reply};
use conquest_testkit::flash::{Event, Medium};

use crate::record::Record;

/// The name of the volume's file.
pub(crate) const VOLUME: &str = "volume";
/// The name of the file that takes what is acknowledged, whole lines in each write.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged";

/// The nodes; the protocol says which is the root.
const DIRECTORY: u64 = 1;
const VOLUME_NODE: u64 = 2;
const ACKNOWLEDGED_NODE: u64 = 3;

/// Bytes of the longest read and write.
const TRANSFER: u32 = 1 << 20;
const PAGE: u32 = 4096;
/// Requests that the kernel may have under way for those who do not wait for each.
const UNDER_WAY: u16 = 64;
/// How long names and attributes are believed: they stay what they are.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Microseconds, at most, that a write takes, and a flush, so that others get between.
const WRITE_TIME: u64 = 300;
const FLUSH_TIME: u64 = 1000;

/// What is wanted of the kernel, where it offers it.
const WANTED: InitFlags = InitFlags::ASYNC_READ
    .with(InitFlags::BIG_WRITES)
    .with(InitFlags::ASYNC_DIO)
    .with(InitFlags::MAX_PAGES)
    .with(InitFlags::ABORT_ERROR)
    .with(InitFlags::INIT_EXT);

const OPENED: OpenedFlags =
    OpenedFlags::DIRECT_IO.with(OpenedFlags::PARALLEL_DIRECT_WRITES).with(OpenedFlags::NOFLUSH);

thread_local! {
    /// Memory for what is read.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; TRANSFER as usize]);
}

pub(crate) struct State {
    /// What the volume's file has now.
    pub(crate) medium: Medium,
    pub(crate) record: Record,
    pub(crate) is_recording: bool,
    /// How often the volume's file is open.
    pub(crate) openers: u64,
    /// Requests so far.
    requests: u64,
}

/// The disk, as the kernel sees it. Every request may come on any thread.
pub(crate) struct Disk {
    len: u64,
    state: Mutex<State>,
}

type Answer<T> = Result<T, Errno>;

impl Disk {
    /// A disk whose volume has `len` bytes, all zeros.
    pub(crate) fn new(len: u64) -> Disk {
        let (medium, record) = (Medium::new(len), Record::default());
        let state = State { medium, record, is_recording: false, openers: 0, requests: 0 };
        Disk { len, state: Mutex::new(state) }
    }

    /// What it holds and knows, which is consistent at every step.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `begin`; then, if it is recording, waits for a while, less than `time` microseconds,
    /// between the events of a request.
    fn between(
        &self,
        time: u64,
        begin: impl FnOnce(&mut State, u64) -> Event,
        end: impl FnOnce(u64) -> Event,
    ) {
        let request = {
            let mut state = self.state();
            state.requests += 1;
            let request = state.requests;
            let event = begin(&mut state, request);
            if !state.is_recording {
                return;
            }
            state.record.events.push(event);
            request
        };
        // Any even spread will do.
        let micros = request.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        std::thread::sleep(Duration::from_micros(micros % time));
        self.state().record.events.push(end(request));
    }

    fn write(&self, node: u64, write: &Write<'_>) -> Answer<u32> {
        if node == ACKNOWLEDGED_NODE {
            let mut state = self.state();
            for line in String::from_utf8_lossy(write.data).lines() {
                state.record.acknowledge(line);
            }
            return Ok(write.data.len() as u32);
        }
        let at = write.offset;
        if at.checked_add(write.data.len() as u64).is_none_or(|end| end > self.len) {
            return Err(Errno::FBIG);
        }
        let begin = |state: &mut State, request| {
            state.medium.write(at, write.data);
            let bytes = if state.is_recording { write.data.into() } else { [].into() };
            Event::Write { request, at, bytes }
        };
        self.between(WRITE_TIME, begin, |request| Event::Written { request });
        Ok(write.data.len() as u32)
    }

    fn flush(&self, node: u64) {
        if node == VOLUME_NODE {
            let begin = |_: &mut State, request| Event::Flush { request };
            self.between(FLUSH_TIME, begin, |request| Event::Flushed { request });
        }
    }

    fn read(&self, node: u64, read: &Read, reply: Reply) {
        if node != VOLUME_NODE {
            return reply.data(&[]);
        }
        let len = u64::from(read.size.min(TRANSFER)).min(self.len.saturating_sub(read.offset));
        ROOM.with_borrow_mut(|room| {
            let room = room.get_mut(..len as usize).unwrap_or_default();
            match self.state().medium.read(read.offset, room) {
                Ok(()) => reply.data(room),
                Err(_) => reply.error(Errno::IO),
            }
        });
    }

    fn attributes(&self, node: u64) -> Answer<Attributes> {
        let (mode, size) = match node {
            DIRECTORY => (libc::S_IFDIR | 0o755, 0),
            VOLUME_NODE => (libc::S_IFREG | 0o600, self.len),
            ACKNOWLEDGED_NODE => (libc::S_IFREG | 0o622, 0),
            _ => return Err(Errno::STALE),
        };
        let (blocks, block_size) = (size / 512, TRANSFER);
        Ok(Attributes {
            number: node,
            mode,
            size,
            blocks,
            block_size,
            nlink: 1,
            ..Default::default()
        })
    }

    /// A file to which output is redirected is cut first: that it may be.
    fn set_attributes(&self, node: u64, set: &SetAttributes) -> Answer<Attributes> {
        if node == ACKNOWLEDGED_NODE || set.size == Some(self.len) {
            self.attributes(node)
        } else {
            Err(Errno::PERM)
        }
    }

    fn lookup(&self, node: u64, name: &[u8]) -> Answer<Entry> {
        let found = [(VOLUME, VOLUME_NODE), (ACKNOWLEDGED, ACKNOWLEDGED_NODE)];
        let found = found.iter().find(|(known, _)| node == DIRECTORY && known.as_bytes() == name);
        let &(_, node) = found.ok_or(Errno::NOENT)?;
        Ok(Entry {
            node,
            generation: 0,
            name_lifetime: LIFETIME,
            attributes_lifetime: LIFETIME,
            attributes: self.attributes(node)?,
        })
    }

    /// Counts who opens the volume's file and who closes it.
    fn count(&self, node: u64, change: i64) {
        if node == VOLUME_NODE {
            let mut state = self.state();
            state.openers = state.openers.saturating_add_signed(change);
        }
    }
}

impl Handler for Disk {
    fn init(&self, offer: &Offer) -> Settings {
        Settings {
            flags: offer.flags.and(WANTED),
            max_readahead: offer.max_readahead,
            max_background: UNDER_WAY,
            congestion_threshold: UNDER_WAY,
            max_write: TRANSFER,
            max_pages: (TRANSFER / PAGE) as u16,
            time_granularity: 1,
            max_stack_depth: 0,
            request_timeout: 0,
            map_alignment: 0,
        }
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation {
            Operation::Forget { .. } | Operation::BatchForget(_) => {}
            Operation::Read(read) => self.read(node, &read, reply),
            Operation::Write(write) => match self.write(node, &write) {
                Ok(size) => reply.body(&Written { size }),
                Err(errno) => reply.error(errno),
            },
            Operation::Fsync { .. } => {
                self.flush(node);
                reply.empty();
            }
            Operation::Lookup { name } => match self.lookup(node, name) {
                Ok(entry) => reply.entry(&entry),
                Err(errno) => reply.error(errno),
            },
            Operation::Getattr { .. } => answer(reply, self.attributes(node)),
            Operation::Setattr(set) => answer(reply, self.set_attributes(node, &set)),
            Operation::Open { .. } => {
                self.count(node, 1);
                reply.opened(&Opened { flags: OPENED, ..Opened::default() });
            }
            Operation::Opendir { .. } => reply.opened(&Opened::default()),
            Operation::Readdir(read) => list(&read, reply),
            Operation::Lseek { .. } => reply.body(&Position { offset: self.len }),
            Operation::Statfs => reply.statfs(&StatFs {
                block_size: PAGE,
                fragment_size: PAGE,
                blocks: self.len / u64::from(PAGE),
                ..StatFs::default()
            }),
            Operation::Release { .. } => {
                self.count(node, -1);
                reply.empty();
            }
            Operation::Releasedir { .. } | Operation::Fsyncdir { .. } => reply.empty(),
            // The kernel goes on without.
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, _unique: u64) -> bool {
        // No reply is kept.
        false
    }

    fn destroy(&self) {}
}

fn answer(reply: Reply, found: Answer<Attributes>) {
    match found {
        Ok(attributes) => {
            reply.attributes(&AttributesReply { attributes, lifetime: LIFETIME });
        }
        Err(errno) => reply.error(errno),
    }
}

fn list(read: &Read, reply: Reply) {
    let mut room = [0; 256];
    let size = room.len().min(read.size as usize);
    let mut listing = Listing::new(room.get_mut(..size).unwrap_or_default());
    let names = [(VOLUME_NODE, VOLUME), (ACKNOWLEDGED_NODE, ACKNOWLEDGED)];
    for (next, (node, name)) in (1..).zip(names).skip(read.offset.min(2) as usize) {
        if !listing.push(node, next, libc::DT_REG, name.as_bytes()) {
            break;
        }
    }
    reply.listing(&listing);
}
