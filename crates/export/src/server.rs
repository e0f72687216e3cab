//! From requests to answers.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use conquest_flash::Result;
use conquest_fuse::wire::{
    Attributes, InitFlags, Listing, Offer, Opened, OpenedFlags, Operation, Position, Read, Request,
    SetAttributes, Settings, StatFs, Write, Written,
};
use conquest_fuse::{Handler, Reply};
use rustix::io::Errno;

use crate::space::{Space, number};
use crate::stat::{self, DIRECTORY, FILE, NAME, Owner};

/// What is wanted of the kernel, where it offers it.
const WANTED: InitFlags = InitFlags::ASYNC_READ
    .with(InitFlags::BIG_WRITES)
    .with(InitFlags::ASYNC_DIO)
    .with(InitFlags::PARALLEL_DIROPS)
    .with(InitFlags::MAX_PAGES)
    .with(InitFlags::ABORT_ERROR)
    .with(InitFlags::INIT_EXT)
    .with(InitFlags::DIRECT_IO_ALLOW_MMAP);

/// Past the page cache, so that whoever has one above the file (a file system on a loop device)
/// does not keep everything twice; and writes that do not wait for each other.
const OPENED: OpenedFlags =
    OpenedFlags::DIRECT_IO.with(OpenedFlags::PARALLEL_DIRECT_WRITES).with(OpenedFlags::NOFLUSH);

/// Bytes of the longest read and write.
const TRANSFER: u32 = 1 << 20;
/// Bytes of a page of the kernel.
const PAGE: u32 = 4096;
/// Requests that the kernel may have under way for those who do not wait for each: as many as a
/// loop device takes.
const UNDER_WAY: u16 = 128;
/// Flags of an open file with which a write is durable when it returns.
const SYNCHRONOUS: u32 = (libc::O_SYNC | libc::O_DSYNC) as u32;

thread_local! {
    /// Memory for what is read, of as many bytes as were ever wanted at once.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How a space is exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Nothing can be changed through the file.
    pub read_only: bool,
    /// Whose the file is.
    pub uid: u32,
    /// Whose group's it is.
    pub gid: u32,
    /// When the volume was made, in nanoseconds since 1970: until something is changed through the
    /// file, that is its time.
    pub created: u64,
}

/// Who is told of what goes wrong: errors of the devices, damage, and that there is no space left.
pub type Reporter = Box<dyn Fn(&conquest_flash::Error) + Send + Sync>;

/// A space as the kernel sees it. Every request may come on any thread.
pub struct Server {
    space: Space,
    owner: Owner,
    created: u64,
    /// When something was changed through the file, in nanoseconds since 1970.
    changed: AtomicU64,
    reporter: Reporter,
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// The outcome of a request: an answer, or the error number that is one.
type Answer<T> = core::result::Result<T, Errno>;

impl Handler for Server {
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
        match request.operation {
            // What was looked up stays: there is nothing to count.
            Operation::Forget { .. } | Operation::BatchForget(_) => {}
            Operation::Read(read) => self.read(&read, reply),
            Operation::Readdir(read) => list(&read, reply),
            Operation::Write(write) => match self.write(&write) {
                Ok(size) => reply.body(&Written { size }),
                Err(errno) => reply.error(errno),
            },
            Operation::Lookup { name } => match self.lookup(request.node, name) {
                Ok(attributes) => reply.entry(&stat::entry(attributes)),
                Err(errno) => reply.error(errno),
            },
            Operation::Getattr { .. } => attributes(reply, self.attributes(request.node)),
            Operation::Setattr(set) => attributes(reply, self.set_attributes(request.node, &set)),
            Operation::Open { flags, .. } => opened(reply, self.open(request.node, flags), OPENED),
            Operation::Opendir { .. } => opened(reply, Ok(()), OpenedFlags::NONE),
            Operation::Lseek { offset, whence, .. } => match self.seek(offset, whence) {
                Ok(offset) => reply.body(&Position { offset }),
                Err(errno) => reply.error(errno),
            },
            Operation::Statfs => reply.statfs(&self.statfs()),
            Operation::Fsync { .. } => done(reply, self.told(self.space.flush())),
            Operation::Fallocate { offset, length, mode, .. } => {
                done(reply, self.allocate(offset, length, mode));
                // Nobody waits for this: who has answered goes on with what he has begun.
                let _told = self.told(self.space.settle());
            }
            Operation::Release { .. }
            | Operation::Releasedir { .. }
            | Operation::Fsyncdir { .. } => {
                reply.empty();
            }
            Operation::Create(_)
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. } => reply.error(Errno::PERM),
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

impl Server {
    /// A server of `space`.
    #[must_use]
    pub fn new(space: Space, options: Options, reporter: Reporter) -> Server {
        let Options { read_only, uid, gid, created } = options;
        let owner = Owner { uid, gid, is_read_only: read_only };
        Server { space, owner, created, changed: AtomicU64::new(created), reporter }
    }

    /// The outcome as an answer; whoever runs the export is told of an error.
    fn told<T>(&self, outcome: Result<T>) -> Answer<T> {
        outcome.map_err(|error| {
            (self.reporter)(&error);
            number(&error)
        })
    }

    fn check_writable(&self) -> Answer<()> {
        if self.owner.is_read_only { Err(Errno::ROFS) } else { Ok(()) }
    }

    fn note_change(&self) {
        self.changed.store(stat::now(), Relaxed);
    }

    fn lookup(&self, node: u64, name: &[u8]) -> Answer<Attributes> {
        match (node, name) {
            (DIRECTORY, name) if name == NAME.as_bytes() => self.attributes(FILE),
            _ => Err(Errno::NOENT),
        }
    }

    fn attributes(&self, node: u64) -> Answer<Attributes> {
        match node {
            DIRECTORY => Ok(self.owner.directory(stat::time(self.created))),
            FILE => {
                let used = self.told(self.space.used())?;
                let time = stat::time(self.changed.load(Relaxed));
                Ok(self.owner.file(self.space.size(), used, time))
            }
            _ => Err(Errno::STALE),
        }
    }

    /// Attributes are what they are: only the size may be set, to what it is.
    fn set_attributes(&self, node: u64, set: &SetAttributes) -> Answer<Attributes> {
        let is_kept = set.size.is_none_or(|size| node == FILE && size == self.space.size());
        let others = [set.mode, set.uid, set.gid].iter().any(Option::is_some);
        let times = [set.atime, set.mtime].iter().any(Option::is_some);
        // With a size, the kernel sets the times as well.
        if !is_kept || others || times && set.size.is_none() {
            return Err(Errno::PERM);
        }
        self.attributes(node)
    }

    fn open(&self, node: u64, flags: u32) -> Answer<()> {
        let writes = flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
        match node {
            FILE if writes => self.check_writable(),
            FILE => Ok(()),
            _ => Err(Errno::STALE),
        }
    }

    fn read(&self, read: &Read, reply: Reply) {
        let len = read.size.min(TRANSFER) as usize;
        ROOM.with_borrow_mut(|room| {
            let bytes = self.space.room(read.offset, len);
            if room.len() < bytes {
                room.resize(bytes, 0);
            }
            let room = room.get_mut(..bytes).unwrap_or_default();
            match self.told(self.space.read(read.offset, len, room)) {
                Ok(bytes) => reply.data(bytes),
                Err(errno) => reply.error(errno),
            }
        });
    }

    /// Writes: how many bytes, fewer only at the end, behind which nothing can be written.
    fn write(&self, write: &Write<'_>) -> Answer<u32> {
        self.check_writable()?;
        if write.offset >= self.space.size() && !write.data.is_empty() {
            return Err(Errno::FBIG);
        }
        let written = self.told(self.space.write(write.offset, write.data))?;
        self.note_change();
        // Where there is no page cache, the kernel leaves that to who writes.
        if write.flags & SYNCHRONOUS != 0 && !write.cached {
            self.told(self.space.flush())?;
        }
        Ok(written as u32)
    }

    /// Gives back space. That there be space can't be asked for yet.
    fn allocate(&self, offset: u64, len: u64, mode: u32) -> Answer<()> {
        const KEEP: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        self.check_writable()?;
        let end = offset.saturating_add(len);
        match mode {
            ZERO if end > self.space.size() => return Err(Errno::FBIG),
            _ if mode == HOLE | KEEP || mode & !KEEP == ZERO => {}
            _ => return Err(Errno::OPNOTSUPP),
        }
        self.told(self.space.clear(offset, len))?;
        self.note_change();
        Ok(())
    }

    /// The next data or hole, as lseek(2).
    fn seek(&self, offset: u64, whence: u32) -> Answer<u64> {
        if offset >= self.space.size() {
            return Err(Errno::NXIO);
        }
        match whence.cast_signed() {
            libc::SEEK_DATA => self.told(self.space.data(offset))?.ok_or(Errno::NXIO),
            libc::SEEK_HOLE => self.told(self.space.hole(offset)),
            _ => Err(Errno::INVAL),
        }
    }

    /// The space of the volume, whatever of it this file can take.
    fn statfs(&self) -> StatFs {
        let volume = self.space.volume();
        let usage = volume.usage();
        let capacity = usage.capacity.saturating_sub(usage.lost);
        let free = capacity.saturating_sub(usage.used).saturating_sub(usage.reserved);
        let unit = u32::try_from(volume.unit()).unwrap_or(PAGE);
        StatFs {
            blocks: usage.capacity,
            blocks_free: free,
            blocks_available: free,
            files: 1,
            files_free: 0,
            block_size: unit,
            name_max: NAME.len() as u32,
            fragment_size: unit,
        }
    }
}

/// Answers with the names that there are.
fn list(read: &Read, reply: Reply) {
    let mut room = [0; 256];
    let size = room.len().min(read.size as usize);
    let mut listing = Listing::new(room.get_mut(..size).unwrap_or_default());
    let names = [(DIRECTORY, "."), (DIRECTORY, ".."), (FILE, NAME)];
    for (next, (node, name)) in (1..).zip(names).skip(read.offset.min(3) as usize) {
        let kind = if node == FILE { libc::DT_REG } else { libc::DT_DIR };
        if !listing.push(node, next, kind, name.as_bytes()) {
            break;
        }
    }
    reply.listing(&listing);
}

fn attributes(reply: Reply, found: Answer<Attributes>) {
    match found {
        Ok(attributes) => reply.attributes(&stat::reply(attributes)),
        Err(errno) => reply.error(errno),
    }
}

fn opened(reply: Reply, outcome: Answer<()>, flags: OpenedFlags) {
    match outcome {
        Ok(()) => reply.opened(&Opened { flags, ..Opened::default() }),
        Err(errno) => reply.error(errno),
    }
}

fn done(reply: Reply, outcome: Answer<()>) {
    match outcome {
        Ok(()) => reply.empty(),
        Err(errno) => reply.error(errno),
    }
}
