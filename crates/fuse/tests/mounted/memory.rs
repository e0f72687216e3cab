//! A small file system in memory, as a handler.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use conquest_fuse::wire::{
    Attributes, AttributesReply, Created, Entry, Forgets, Listing, LockType, Opened, Read,
    SetAttributes, StatFs,
};
use conquest_fuse::{Errno, Handler, InitFlags, Offer, Operation, Reply, Request, Settings};

pub(crate) const DIRECTORY: u32 = 0o40_000;
pub(crate) const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// What the tests need of the kernel.
const NEEDED: InitFlags = InitFlags::MAX_PAGES
    .with(InitFlags::BIG_WRITES)
    .with(InitFlags::FLOCK_LOCKS)
    .with(InitFlags::PARALLEL_DIROPS)
    .with(InitFlags::DO_READDIRPLUS);
/// What is asked of it; one test needs the rest.
pub(crate) const FLAGS: InitFlags = NEEDED.with(InitFlags::HAS_RESEND);

#[derive(Default)]
struct Inode {
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    bytes: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
}

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Who has the lock of a node.
    locks: HashMap<u64, u64>,
    /// Who waits for one: node, owner.
    waiting: Vec<(u64, u64, Reply)>,
}

/// The file system. Modes are checked by the kernel, if at all.
pub(crate) struct Memory {
    state: Mutex<State>,
    lifetime: Duration,
    pub(crate) interrupted: AtomicU32,
    pub(crate) destroyed: AtomicU32,
    pub(crate) forgotten: AtomicU64,
    pub(crate) listed_plus: AtomicU64,
    /// Whether reads give more than was asked for.
    pub(crate) overflows: AtomicBool,
}

type Answer<T> = Result<T, Errno>;

impl Memory {
    /// An empty one, whose root is of type `root`, and of which the kernel may believe everything
    /// for `lifetime`.
    pub(crate) fn new(root: u32, lifetime: Duration) -> Memory {
        let mut state = State { next: 2, ..State::default() };
        let inode = Inode { mode: root | 0o777, nlink: 1, ..Inode::default() };
        state.inodes.insert(1, inode);
        Memory {
            state: Mutex::new(state),
            lifetime,
            interrupted: AtomicU32::new(0),
            destroyed: AtomicU32::new(0),
            forgotten: AtomicU64::new(0),
            listed_plus: AtomicU64::new(0),
            overflows: AtomicBool::new(false),
        }
    }

    /// Makes files in the root that nobody has asked for.
    pub(crate) fn fill(&self, names: impl Iterator<Item = Vec<u8>>) {
        let mut state = self.state.lock().unwrap();
        for name in names {
            let node = state.next;
            state.next += 1;
            let inode = Inode { mode: REGULAR | 0o644, nlink: 1, ..Inode::default() };
            state.inodes.insert(node, inode);
            state.inodes.get_mut(&1).unwrap().names.insert(name, node);
        }
    }

    /// The node of a name in the root.
    pub(crate) fn node(&self, name: &[u8]) -> u64 {
        self.state.lock().unwrap().inodes[&1].names[name]
    }

    /// Changes a file's bytes behind the kernel's back.
    pub(crate) fn put(&self, node: u64, bytes: &[u8]) {
        self.state.lock().unwrap().inodes.get_mut(&node).unwrap().bytes = bytes.to_vec();
    }

    /// Removes a name of the root behind the kernel's back.
    pub(crate) fn take(&self, name: &[u8]) {
        self.state.lock().unwrap().inodes.get_mut(&1).unwrap().names.remove(name);
    }

    /// How many wait for locks.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting.len()
    }
}

impl State {
    fn inode(&mut self, node: u64) -> Answer<&mut Inode> {
        self.inodes.get_mut(&node).ok_or(Errno::NOENT)
    }

    fn child(&mut self, parent: u64, name: &[u8]) -> Answer<u64> {
        self.inode(parent)?.names.get(name).copied().ok_or(Errno::NOENT)
    }

    fn make(&mut self, request: &Request<'_>, mode: u32) -> u64 {
        let node = self.next;
        self.next += 1;
        let (uid, gid) = (request.uid, request.gid);
        self.inodes.insert(node, Inode { mode, uid, gid, ..Inode::default() });
        node
    }

    fn name(&mut self, parent: u64, name: &[u8], node: u64) -> Answer<()> {
        if self.child(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        self.inode(parent)?.names.insert(name.to_vec(), node);
        self.inode(node)?.nlink += 1;
        Ok(())
    }

    fn unname(&mut self, parent: u64, name: &[u8]) -> Answer<()> {
        let node = self.child(parent, name)?;
        if !self.inode(node)?.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.inode(parent)?.names.remove(name);
        self.inode(node)?.nlink -= 1;
        Ok(())
    }

    fn attributes(&mut self, node: u64) -> Answer<Attributes> {
        let inode = self.inode(node)?;
        Ok(Attributes {
            number: node,
            size: inode.bytes.len() as u64,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            block_size: 4096,
            ..Attributes::default()
        })
    }

    fn set(&mut self, node: u64, set: &SetAttributes) -> Answer<()> {
        let inode = self.inode(node)?;
        if let Some(size) = set.size {
            inode.bytes.resize(size as usize, 0);
        }
        if let Some(mode) = set.mode {
            inode.mode = mode;
        }
        Ok(())
    }

    fn read(&mut self, node: u64, read: &Read) -> Answer<&[u8]> {
        let bytes = &self.inode(node)?.bytes;
        let from = bytes.len().min(read.offset as usize);
        let to = bytes.len().min(from + read.size as usize);
        Ok(&bytes[from..to])
    }

    fn write(&mut self, node: u64, offset: u64, data: &[u8]) -> Answer<()> {
        let bytes = &mut self.inode(node)?.bytes;
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
        Ok(())
    }

    /// Takes, waits for, or gives up the lock of a node.
    fn lock(&mut self, node: u64, owner: u64, kind: LockType, reply: Reply, waits: bool) {
        if kind == LockType::Unlock {
            self.unlock(node, owner);
            return reply.empty();
        }
        let holder = *self.locks.entry(node).or_insert(owner);
        if holder == owner {
            return reply.empty();
        }
        if !waits {
            return reply.error(Errno::AGAIN);
        }
        let unique = reply.unique();
        self.waiting.push((node, owner, reply));
        if self.waiting.last().unwrap().2.was_interrupted() {
            self.interrupt(unique);
        }
    }

    fn unlock(&mut self, node: u64, owner: u64) {
        if self.locks.get(&node) != Some(&owner) {
            return;
        }
        self.locks.remove(&node);
        if let Some(next) = self.waiting.iter().position(|(other, _, _)| *other == node) {
            let (node, owner, reply) = self.waiting.remove(next);
            self.locks.insert(node, owner);
            reply.empty();
        }
    }

    fn interrupt(&mut self, unique: u64) -> bool {
        let at = self.waiting.iter().position(|(_, _, reply)| reply.unique() == unique);
        at.inspect(|at| self.waiting.remove(*at).2.error(Errno::INTR)).is_some()
    }
}

impl Memory {
    fn entry(&self, state: &mut State, node: u64) -> Answer<Entry> {
        Ok(Entry {
            node,
            generation: 0,
            name_lifetime: self.lifetime,
            attributes_lifetime: self.lifetime,
            attributes: state.attributes(node)?,
        })
    }

    /// Makes something and gives it a name: an answer with an entry.
    fn make(&self, request: &Request<'_>, name: &[u8], mode: u32, bytes: &[u8]) -> Answer<Entry> {
        let state = &mut *self.state.lock().unwrap();
        let node = state.make(request, mode);
        state.name(request.node, name, node)?;
        state.inode(node)?.bytes = bytes.to_vec();
        self.entry(state, node)
    }

    fn list(&self, node: u64, read: &Read, is_plus: bool, buffer: &mut [u8]) -> Answer<usize> {
        let state = &mut *self.state.lock().unwrap();
        let names = state.inode(node)?.names.clone();
        let dots = [(b".".to_vec(), node), (b"..".to_vec(), node)];
        let mut listing = Listing::new(buffer);
        for (at, (name, node)) in
            dots.into_iter().chain(names).enumerate().skip(read.offset as usize)
        {
            let kind = (state.inode(node)?.mode >> 12) as u8;
            let next = at as u64 + 1;
            let is_in = if is_plus {
                let entry = self.entry(state, node)?;
                listing.push_plus(&entry, node, next, kind, &name)
            } else {
                listing.push(node, next, kind, &name)
            };
            if !is_in {
                break;
            }
            self.listed_plus.fetch_add(is_plus.into(), Ordering::Relaxed);
        }
        Ok(listing.bytes().len())
    }

    fn names(&self, request: &Request<'_>) -> Option<Answer<()>> {
        let mut state = self.state.lock().unwrap();
        Some(match request.operation {
            Operation::Unlink { name } | Operation::Rmdir { name } => {
                state.unname(request.node, name)
            }
            Operation::Rename { name, new_parent, new_name, .. } => (|| {
                let node = state.child(request.node, name)?;
                let (Ok(()) | Err(_)) = state.unname(new_parent, new_name);
                state.inode(request.node)?.names.remove(name);
                state.inode(node)?.nlink -= 1;
                state.name(new_parent, new_name, node)
            })(),
            Operation::Flush { .. }
            | Operation::Fsync { .. }
            | Operation::Fsyncdir { .. }
            | Operation::Releasedir { .. } => Ok(()),
            Operation::Release { flock_owner, .. } => {
                if let Some(owner) = flock_owner {
                    state.unlock(request.node, owner);
                }
                Ok(())
            }
            _ => return None,
        })
    }

    fn entries(&self, request: &Request<'_>) -> Option<Answer<Entry>> {
        Some(match request.operation {
            Operation::Lookup { name } => {
                let state = &mut *self.state.lock().unwrap();
                match state.child(request.node, name) {
                    Ok(node) => self.entry(state, node),
                    Err(_) => Ok(Entry::none(self.lifetime)),
                }
            }
            Operation::Mkdir { name, mode, .. } => self.make(request, name, DIRECTORY | mode, &[]),
            Operation::Mknod { name, mode, .. } => self.make(request, name, mode, &[]),
            Operation::Symlink { name, target } => self.make(request, name, LINK | 0o777, target),
            Operation::Link { node, name } => {
                let state = &mut *self.state.lock().unwrap();
                state.name(request.node, name, node).and_then(|()| self.entry(state, node))
            }
            _ => return None,
        })
    }

    fn others(&self, request: &Request<'_>, reply: Reply) -> Result<(), (Errno, Reply)> {
        let mut state = self.state.lock().unwrap();
        let (lifetime, node) = (self.lifetime, request.node);
        let give = |answer: Answer<Attributes>, reply: Reply| match answer {
            Ok(attributes) => {
                reply.attributes(&AttributesReply { attributes, lifetime });
                Ok(())
            }
            Err(error) => Err((error, reply)),
        };
        match request.operation {
            Operation::Getattr { .. } => return give(state.attributes(node), reply),
            Operation::Setattr(set) => {
                let set = state.set(node, &set);
                return give(set.and_then(|()| state.attributes(node)), reply);
            }
            Operation::Open { .. } | Operation::Opendir { .. } => reply.opened(&Opened::default()),
            Operation::Read(read) if self.overflows.load(Ordering::SeqCst) => {
                reply.data(&vec![0; read.size as usize + 1]);
            }
            Operation::Read(read) => match state.read(node, &read) {
                Ok(bytes) => reply.data(bytes),
                Err(error) => return Err((error, reply)),
            },
            Operation::Readlink => match state.inode(node) {
                Ok(inode) => reply.data(&inode.bytes),
                Err(error) => return Err((error, reply)),
            },
            Operation::Write(write) => match state.write(node, write.offset, write.data) {
                Ok(()) => reply.written(write.data.len() as u32),
                Err(error) => return Err((error, reply)),
            },
            Operation::Tmpfile { mode, .. } => {
                let node = state.make(request, mode);
                match self.entry(&mut state, node) {
                    Ok(entry) => reply.created(&Created { entry, opened: Opened::default() }),
                    Err(error) => return Err((error, reply)),
                }
            }
            Operation::Statfs => {
                reply.statfs(&StatFs { blocks: 123, name_max: 255, ..StatFs::default() });
            }
            Operation::Setlk(lock) => {
                state.lock(node, lock.owner, lock.lock.lock_type, reply, false);
            }
            Operation::Setlkw(lock) => {
                state.lock(node, lock.owner, lock.lock.lock_type, reply, true);
            }
            _ => return Err((Errno::NOSYS, reply)),
        }
        Ok(())
    }

    fn forget(&self, forgets: &Forgets<'_>) {
        self.forgotten.fetch_add(forgets.len() as u64, Ordering::Relaxed);
    }
}

impl Handler for Memory {
    fn init(&self, offer: &Offer) -> Settings {
        assert!(offer.flags.contains(NEEDED), "the kernel offers {} only", offer.flags);
        Settings {
            flags: FLAGS,
            max_readahead: 128 << 10,
            max_background: 0,
            congestion_threshold: 0,
            max_write: 256 << 10,
            max_pages: 64,
            time_granularity: 1,
            max_stack_depth: 0,
            request_timeout: 0,
            map_alignment: 0,
        }
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        match request.operation {
            Operation::BatchForget(forgets) => return self.forget(&forgets),
            Operation::Forget { .. } => {
                self.forgotten.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Operation::Readdir(read) | Operation::Readdirplus(read) => {
                let is_plus = matches!(request.operation, Operation::Readdirplus(_));
                let mut buffer = vec![0; read.size as usize];
                return match self.list(request.node, &read, is_plus, &mut buffer) {
                    Ok(len) => reply.data(&buffer[..len]),
                    Err(error) => reply.error(error),
                };
            }
            Operation::Create(create) => {
                let mode = REGULAR | create.mode;
                return match self.make(request, create.name, mode, &[]) {
                    Ok(entry) => reply.created(&Created { entry, opened: Opened::default() }),
                    Err(error) => reply.error(error),
                };
            }
            _ => {}
        }
        if let Some(answer) = self.names(request) {
            return match answer {
                Ok(()) => reply.empty(),
                Err(error) => reply.error(error),
            };
        }
        if let Some(answer) = self.entries(request) {
            return match answer {
                Ok(entry) => reply.entry(&entry),
                Err(error) => reply.error(error),
            };
        }
        if let Err((error, reply)) = self.others(request, reply) {
            reply.error(error);
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        let was_known = self.state.lock().unwrap().interrupt(unique);
        self.interrupted.fetch_add(was_known.into(), Ordering::SeqCst);
        was_known
    }

    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::SeqCst);
        self.state.lock().unwrap().waiting.clear();
    }
}
