//! A handler that does what the names say that are looked up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use conquest_fuse::wire::{Entry, IoctlReply};
use conquest_fuse::{Errno, Handler, Offer, Operation, Reply, Request, Settings};

use crate::kernel::LIMIT;

/// The node of every entry.
pub(crate) const NODE: u64 = 5;
/// A request whose interruption makes the handler panic.
pub(crate) const BAD: u64 = 1 << 40;
/// The longest WRITE.
pub(crate) const MAX_WRITE: u32 = 64 << 10;

#[derive(Default)]
pub(crate) struct Scripted {
    kept: Mutex<HashMap<u64, Reply>>,
    /// How many may go through the gate.
    permits: Mutex<usize>,
    opened: Condvar,
    /// How many are, or were, at the gate.
    arrived: AtomicUsize,
    forgets: AtomicUsize,
    destroys: AtomicUsize,
    threads: Arc<AtomicUsize>,
}

/// A thread that has served something, counted until it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

thread_local! {
    static COUNTED: RefCell<Option<Counted>> = const { RefCell::new(None) };
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LIMIT, "{what}: not so in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn entry() -> Entry {
    Entry { node: NODE, ..Entry::default() }
}

impl Scripted {
    /// Keeps a reply as handlers are to.
    fn keep(&self, reply: Reply) {
        let mut kept = self.kept.lock().unwrap();
        let unique = reply.unique();
        let reply = kept.entry(unique).insert_entry(reply);
        if reply.get().was_interrupted() {
            reply.remove().error(Errno::INTR);
        }
    }

    fn pass_gate(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let permits = self.permits.lock().unwrap();
        let (mut permits, waited) =
            self.opened.wait_timeout_while(permits, LIMIT, |permits| *permits == 0).unwrap();
        assert!(!waited.timed_out(), "the gate stayed closed");
        *permits -= 1;
    }

    /// Lets `count` through the gate.
    pub(crate) fn open_gate(&self, count: usize) {
        *self.permits.lock().unwrap() += count;
        self.opened.notify_all();
    }

    /// Waits until `count` have come to the gate.
    pub(crate) fn wait_for(&self, count: usize) {
        wait_until("requests are at the gate", || self.arrived.load(Ordering::SeqCst) == count);
    }

    /// Waits until `count` replies are kept.
    pub(crate) fn wait_kept(&self, count: usize) {
        wait_until("replies are kept", || self.kept.lock().unwrap().len() == count);
    }

    /// Answers what is kept.
    pub(crate) fn answer_kept(&self) {
        for (_, reply) in self.kept.lock().unwrap().drain() {
            reply.empty();
        }
    }

    pub(crate) fn forgets(&self) -> usize {
        self.forgets.load(Ordering::SeqCst)
    }

    pub(crate) fn destroyed(&self) -> usize {
        self.destroys.load(Ordering::SeqCst)
    }

    /// Threads that have served something and have not ended.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    fn count_thread(&self) {
        COUNTED.with_borrow_mut(|counted| {
            counted.get_or_insert_with(|| {
                self.threads.fetch_add(1, Ordering::SeqCst);
                Counted(Arc::clone(&self.threads))
            });
        });
    }

    fn look_up(&self, name: &[u8], reply: Reply) {
        match name {
            b"now" => reply.entry(&entry()),
            b"drop" => drop(reply),
            b"panic" => panic!("as it was asked to"),
            b"answer and panic" => {
                reply.entry(&entry());
                panic!("too late");
            }
            b"keep" => self.keep(reply),
            b"gate" => {
                self.pass_gate();
                reply.entry(&entry());
            }
            b"gate, keep" => {
                self.pass_gate();
                self.keep(reply);
            }
            b"elsewhere" => {
                drop(std::thread::spawn(move || reply.entry(&entry())));
            }
            b"too long" => reply.data(&vec![0; 4 << 20]),
            b"pieces" => {
                let bytes: Vec<u8> = (0..200).collect();
                let pieces: Vec<_> = bytes.chunks(1).map(std::io::IoSlice::new).collect();
                reply.pieces(&pieces);
            }
            b"63 pieces" => reply.pieces(&[std::io::IoSlice::new(b"x"); 63]),
            b"64 pieces" => reply.pieces(&[std::io::IoSlice::new(b"x"); 64]),
            b"ioctl" => reply.ioctl(&IoctlReply { result: 7, ..IoctlReply::default() }, b"out"),
            _ => reply.error(Errno::NOENT),
        }
    }
}

impl Handler for Scripted {
    fn init(&self, offer: &Offer) -> Settings {
        assert_ne!(offer.minor, 33, "not this one");
        Settings {
            flags: offer.flags,
            max_readahead: 0,
            max_background: 0,
            congestion_threshold: 0,
            max_write: MAX_WRITE,
            max_pages: 0,
            time_granularity: 1,
            max_stack_depth: 0,
            request_timeout: 0,
            map_alignment: 0,
        }
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        self.count_thread();
        match request.operation {
            Operation::Lookup { name } => self.look_up(name, reply),
            Operation::Forget { .. } => {
                self.forgets.fetch_add(1, Ordering::SeqCst);
                // Nobody takes it.
                reply.error(Errno::IO);
            }
            Operation::Write(write) => reply.written(write.data.len() as u32),
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        assert_ne!(unique, BAD, "not that one");
        match self.kept.lock().unwrap().remove(&unique) {
            Some(reply) => {
                reply.error(Errno::INTR);
                true
            }
            None => false,
        }
    }

    fn destroy(&self) {
        self.destroys.fetch_add(1, Ordering::SeqCst);
        self.kept.lock().unwrap().clear();
    }
}
