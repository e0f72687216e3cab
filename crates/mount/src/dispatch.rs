//! From requests to answers.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use conquest::FileType;
use conquest_fs::names::{LISTED_MAX, New, Removal};
use conquest_fs::{Errno, Error, Result};
use conquest_fuse::wire::{
    Body, InitFlags, IoctlReply, Listing, Offer, Operation, Position, RangeCopied, Read, Request,
    Settings, Written, XattrSize,
};
use conquest_fuse::{Handler, Reply};

use crate::caller::Caller;
use crate::server::Server;
use crate::stat;

/// What has the server keep locks.
const LOCKS: InitFlags = InitFlags::POSIX_LOCKS.with(InitFlags::FLOCK_LOCKS);
/// What is wanted of the kernel, where it offers it.
const WANTED: InitFlags = InitFlags::ASYNC_READ
    .with(LOCKS)
    .with(InitFlags::ATOMIC_O_TRUNC)
    .with(InitFlags::EXPORT_SUPPORT)
    .with(InitFlags::BIG_WRITES)
    .with(InitFlags::DONT_MASK)
    .with(InitFlags::POSIX_ACL)
    .with(InitFlags::HAS_IOCTL_DIR)
    .with(InitFlags::AUTO_INVAL_DATA)
    .with(InitFlags::DO_READDIRPLUS)
    .with(InitFlags::READDIRPLUS_AUTO)
    .with(InitFlags::ASYNC_DIO)
    .with(InitFlags::PARALLEL_DIROPS)
    .with(InitFlags::MAX_PAGES)
    .with(InitFlags::ABORT_ERROR)
    .with(InitFlags::HANDLE_KILLPRIV_V2)
    .with(InitFlags::SETXATTR_EXT)
    .with(InitFlags::INIT_EXT)
    .with(InitFlags::DIRECT_IO_ALLOW_MMAP)
    .with(InitFlags::ALLOW_IDMAP);

/// Bytes of the longest read, write and listing.
const TRANSFER: u32 = 1 << 20;
/// Bytes of a page of the kernel.
const PAGE: u32 = 4096;

thread_local! {
    /// Memory for what is told, of as many bytes as were ever wanted at once.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Does `work` with memory of `len` bytes, whose content does not matter.
fn with_room<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    ROOM.with_borrow_mut(|room| {
        if room.len() < len {
            room.resize(len, 0);
        }
        work(room.get_mut(..len).unwrap_or_default())
    })
}

impl Handler for Server {
    fn init(&self, offer: &Offer) -> Settings {
        let maps_direct = offer.flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP);
        self.maps_direct.store(maps_direct, Relaxed);
        Settings {
            flags: offer.flags.and(WANTED).without(LOCKS.when(self.options.local_locks)),
            max_readahead: offer.max_readahead,
            max_write: TRANSFER,
            max_pages: (TRANSFER / PAGE) as u16,
            time_granularity: 1,
            // The kernel knows better.
            max_background: 0,
            congestion_threshold: 0,
            max_stack_depth: 0,
            request_timeout: 0,
            map_alignment: 0,
        }
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        let caller = self.caller(request);
        let node = request.node;
        match request.operation {
            Operation::Forget { lookups } => self.forget(node, lookups),
            Operation::BatchForget(forgets) => {
                forgets.iter().for_each(|forget| self.forget(forget.node, forget.lookups));
            }
            Operation::Setlkw(lock) => match self.wish(&lock) {
                Ok(wish) => self.queue.wait(request.unique, wish, reply),
                Err(error) => reply.error(self.errno(&error)),
            },
            Operation::Read(_)
            | Operation::Readdir(_)
            | Operation::Readdirplus(_)
            | Operation::Readlink
            | Operation::Getxattr { .. }
            | Operation::Listxattr { .. }
            | Operation::Ioctl(_) => self.bytes_of(caller, request, reply),
            Operation::Create(_)
            | Operation::Tmpfile { .. }
            | Operation::Open { .. }
            | Operation::Opendir { .. } => self.open_files(caller, request, reply),
            Operation::Lookup { .. }
            | Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Link { .. } => self.entries(caller, request, reply),
            Operation::Getattr { .. } | Operation::Statx(_) | Operation::Setattr(_) => {
                self.attributes_of(caller, request, reply);
            }
            Operation::Write(write) => {
                let written = self.write(caller, &write);
                self.answer(reply, written.map(|size| Written { size }));
            }
            Operation::CopyFileRange(copy) => {
                let copied = self.copy(caller, &copy);
                // What is more than can be told was not asked for.
                self.answer(reply, copied.map(|len| Written { size: len as u32 }));
            }
            Operation::CopyFileRange64(copy) => {
                let copied = self.copy(caller, &copy);
                self.answer(reply, copied.map(|bytes| RangeCopied { bytes }));
            }
            Operation::Lseek { handle, offset, whence } => {
                let found = self.looked(self.seek(handle, offset, whence));
                self.answer(reply, found.map(|offset| Position { offset }));
            }
            Operation::Getlk(lock) => self.answer(reply, self.test_lock(&lock)),
            Operation::Statfs => reply.body(&self.statfs()),
            Operation::Fsync { handle, .. } | Operation::Fsyncdir { handle, .. } => {
                self.synced(reply, self.sync(handle));
            }
            Operation::Syncfs => self.synced(reply, self.sync_all()),
            _ => match self.change(caller, request) {
                Some(done) => self.done(reply, done),
                // Others are never sent, or the kernel goes on without.
                None => reply.error(rustix::io::Errno::NOSYS),
            },
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.queue.interrupt(unique)
    }

    fn destroy(&self) {
        self.forget_all();
    }
}

impl Server {
    /// Requests that are answered with bytes.
    fn bytes_of(&self, caller: Caller<'_>, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation {
            Operation::Read(read) => with_room(read.size as usize, |room| {
                let len = self.read(&read, room);
                self.bytes(reply, len.map(|len| room.get(..len).unwrap_or_default()));
            }),
            Operation::Readdir(read) => {
                self.listing(reply, &read, |room, listing| self.list(&read, room, listing))
            }
            Operation::Readdirplus(read) => self.listing(reply, &read, |room, listing| {
                self.list_entries(caller, &read, room, listing)
            }),
            Operation::Readlink => with_room(PAGE as usize, |room| {
                let len = self.read_link(node, room);
                self.bytes(reply, len.map(|len| room.get(..len).unwrap_or_default()));
            }),
            Operation::Getxattr { name, size } => {
                self.sized(reply, size, |room| self.attribute(caller, node, name, room));
            }
            Operation::Listxattr { size } => {
                self.sized(reply, size, |room| self.attributes(caller, node, room));
            }
            Operation::Ioctl(ioctl) => match self.control(caller, node, &ioctl) {
                Ok((told, len)) => {
                    let told = told.get(..len.min(ioctl.out_size as usize));
                    reply.ioctl(&IoctlReply::default(), told.unwrap_or_default());
                }
                Err(error) => reply.error(self.errno(&error)),
            },
            _ => reply.error(rustix::io::Errno::INVAL),
        }
    }

    /// Requests that are answered with an open file.
    fn open_files(&self, caller: Caller<'_>, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        match request.operation {
            Operation::Create(create) => self.answer(reply, self.create(caller, node, &create)),
            Operation::Tmpfile { mode, umask, flags, kill_suidgid } => {
                let caller = caller.masked(umask).dropping(kill_suidgid);
                self.answer(reply, self.create_temporary(caller, node, mode, flags));
            }
            Operation::Open { flags, kill_suidgid } => {
                let caller = caller.dropping(kill_suidgid);
                self.answer(reply, self.open(caller, node, flags, FileType::Regular));
            }
            Operation::Opendir { flags, .. } => {
                let flags = flags | libc::O_DIRECTORY as u32;
                self.answer(reply, self.open(caller, node, flags, FileType::Directory));
            }
            _ => reply.error(rustix::io::Errno::INVAL),
        }
    }

    /// Requests that are answered with an entry.
    fn entries(&self, caller: Caller<'_>, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        let entry = match request.operation {
            Operation::Lookup { name } => self.looked(self.lookup(caller, node, name)),
            Operation::Symlink { name, target } => {
                self.make(caller, node, name, New::Symlink(target), 0o777)
            }
            Operation::Mknod { name, mode, umask, device } => {
                self.make_node(caller.masked(umask), node, name, mode, device)
            }
            Operation::Mkdir { name, mode, umask } => {
                self.make(caller.masked(umask), node, name, New::Directory, mode)
            }
            Operation::Link { node: file, name } => self.link(caller, file, node, name),
            _ => Err(Errno::EINVAL.into()),
        };
        self.answer(reply, entry);
    }

    /// Requests that are answered with attributes.
    fn attributes_of(&self, caller: Caller<'_>, request: &Request<'_>, reply: Reply) {
        let node = request.node;
        let set = match request.operation {
            Operation::Setattr(set) => self.set_attributes(caller, node, &set),
            _ => Ok(()),
        };
        let stat = set.and_then(|()| self.looked(self.fs().stat(self.file(node)?)));
        let stat = stat.map(|stat| stat.seen_by(&caller.credentials()));
        let lifetime = self.options.lifetime;
        match request.operation {
            Operation::Statx(_) => {
                self.answer(reply, stat.map(|stat| stat::statx_reply(&stat, lifetime)));
            }
            _ => self.answer(reply, stat.map(|stat| stat::attributes_reply(&stat, lifetime))),
        }
    }

    /// Requests that are answered with nothing; none for what is no such request.
    fn change(&self, caller: Caller<'_>, request: &Request<'_>) -> Option<Result<()>> {
        let node = request.node;
        Some(match request.operation {
            Operation::Unlink { name } => self.remove(caller, node, name, Removal::File),
            Operation::Rmdir { name } => self.remove(caller, node, name, Removal::Directory),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(caller, (node, name), (new_parent, new_name), flags)
            }
            Operation::Release { handle, .. } | Operation::Releasedir { handle, .. } => {
                self.release(handle)
            }
            Operation::Flush { handle, lock_owner } => self.flush(handle, lock_owner),
            Operation::Setlk(lock) => self.set_lock(&lock),
            Operation::Setxattr { name, value, flags, acl_kill_sgid } => {
                self.set_attribute(caller, node, (name, value), flags, acl_kill_sgid)
            }
            Operation::Removexattr { name } => self.remove_attribute(caller, node, name),
            Operation::Fallocate { handle, offset, length, mode } => {
                self.allocate(caller, handle, (offset, length), mode)
            }
            _ => return None,
        })
    }

    fn answer<B: Body>(&self, reply: Reply, body: Result<B>) {
        match body {
            Ok(body) => reply.body(&body),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn done(&self, reply: Reply, done: Result<()>) {
        match done {
            Ok(()) => reply.empty(),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    /// Answers whether something is durable: here a failure is one of the medium.
    fn synced(&self, reply: Reply, done: Result<()>) {
        match done {
            Err(error @ Error::Core(_)) => {
                self.errno(&error);
                reply.error(rustix::io::Errno::IO);
            }
            done => self.done(reply, done),
        }
    }

    fn bytes(&self, reply: Reply, bytes: Result<&[u8]>) {
        match self.looked(bytes) {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    /// Answers with bytes, or how many there are if there is no room.
    fn sized(&self, reply: Reply, size: u32, fill: impl FnOnce(&mut [u8]) -> Result<usize>) {
        with_room(size as usize, |room| match fill(room) {
            Ok(len) if size == 0 => reply.body(&XattrSize { size: len as u32 }),
            filled => self.bytes(reply, filled.map(|len| room.get(..len).unwrap_or_default())),
        });
    }

    /// Answers with entries of a directory.
    fn listing(
        &self,
        reply: Reply,
        read: &Read,
        fill: impl FnOnce(&mut [u8], &mut Listing<'_>) -> Result<()>,
    ) {
        let size = read.size.min(TRANSFER) as usize;
        with_room(size + size.max(LISTED_MAX), |memory| {
            let (out, room) = memory.split_at_mut(size);
            let mut listing = Listing::new(out);
            let filled = fill(room, &mut listing);
            self.bytes(reply, filled.map(|()| listing.bytes()));
        });
    }
}
