//! Requests of the kernel are read, served and answered without memory from the heap.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod counting;

use std::cell::Cell;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conquest_fuse::wire::{AttributesReply, Created, Entry, Opcode, StatFs};
use conquest_fuse::{
    Device, Errno, Handler, Offer, Operation, Reply, Request, Session, SessionOptions, Settings,
};
use counting::ASKED;

thread_local! {
    /// What this thread had asked for when it was done with its last request.
    static BEFORE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Answers in every way, and counts.
#[derive(Default)]
struct Answering {
    /// How often memory was asked for while a request was answered.
    serving: AtomicU64,
    /// How often between two requests.
    between: AtomicU64,
}

fn answer(request: &Request<'_>, reply: Reply) {
    match request.operation {
        Operation::Lookup { name: b"wrong" } => reply.error(Errno::NOENT),
        Operation::Lookup { name: b"dropped" } => drop(reply),
        Operation::Lookup { .. } => reply.entry(&Entry::default()),
        Operation::Getattr { .. } => reply.attributes(&AttributesReply::default()),
        Operation::Readlink => reply.data(&[7; 4000]),
        Operation::Statfs => reply.statfs(&StatFs::default()),
        Operation::Unlink { .. } => reply.empty(),
        Operation::Tmpfile { .. } => reply.created(&Created::default()),
        Operation::Mkdir { .. } => reply.pieces(&[IoSlice::new(b"piece"); 60]),
        _ => reply.error(Errno::NOSYS),
    }
}

impl Handler for Answering {
    fn init(&self, offer: &Offer) -> Settings {
        Settings {
            flags: offer.flags,
            max_readahead: 0,
            max_background: 0,
            congestion_threshold: 0,
            max_write: 4096,
            max_pages: 0,
            time_granularity: 1,
            max_stack_depth: 0,
            request_timeout: 0,
            map_alignment: 0,
        }
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        let begun = ASKED.get();
        if let Some(before) = BEFORE.get() {
            self.between.fetch_add(begun - before, Ordering::SeqCst);
        }
        answer(request, reply);
        self.serving.fetch_add(ASKED.get() - begun, Ordering::SeqCst);
        BEFORE.set(Some(ASKED.get()));
    }

    fn interrupt(&self, _unique: u64) -> bool {
        false
    }

    fn destroy(&self) {}
}

fn request(opcode: Opcode, unique: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((40 + body.len() as u32).to_ne_bytes());
    bytes.extend((opcode as u32).to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend([0; 24]);
    bytes.extend(body);
    bytes
}

#[test]
fn requests_are_answered_without_memory_from_the_heap() {
    let (kernel, device) = UnixDatagram::pair().unwrap();
    let end = device.try_clone().unwrap();
    kernel.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let handler = Arc::new(Answering::default());
    // One thread: further ones take memory when they begin.
    let options = SessionOptions { threads_max: 1, ..SessionOptions::default() };
    let session = Session::new(Device::from(OwnedFd::from(device)), Arc::clone(&handler), options);
    let running = std::thread::spawn(move || session.run());
    let mut init = Vec::new();
    for word in [7_u32, 45, 0, 0] {
        init.extend(word.to_ne_bytes());
    }
    init.resize(64, 0);
    let requests = [
        (Opcode::Lookup, &b"x\0"[..]),
        (Opcode::Lookup, b"wrong\0"),
        (Opcode::Lookup, b"dropped\0"),
        (Opcode::Getattr, &[0; 16]),
        (Opcode::Readlink, b""),
        (Opcode::Statfs, b""),
        (Opcode::Unlink, b"x\0"),
        (Opcode::Tmpfile, b"0123456789abcdef/\0"),
        (Opcode::Mkdir, b"01234567x\0"),
        (Opcode::Syncfs, &[0; 8]),
    ];
    let ask = |opcode, unique, body: &[u8]| {
        kernel.send(&request(opcode, unique, body)).unwrap();
        let mut answer = [0; 8192];
        kernel.recv(&mut answer).unwrap();
        assert_eq!(answer[8..16], unique.to_ne_bytes(), "{opcode}");
    };
    ask(Opcode::Init, 2, &init);
    for round in 0..3 {
        for (number, (opcode, body)) in (0..).zip(requests) {
            let unique = 4 + 100 * round + 2 * number;
            // One that is remembered until the request is answered.
            kernel.send(&request(Opcode::Interrupt, unique + 1, &unique.to_ne_bytes())).unwrap();
            ask(opcode, unique, body);
        }
    }
    end.shutdown(std::net::Shutdown::Read).unwrap();
    running.join().unwrap().unwrap();
    let counts = [&handler.serving, &handler.between].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [0, 0], "asked for memory while serving, and between");
}
