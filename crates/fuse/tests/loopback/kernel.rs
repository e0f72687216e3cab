//! The kernel's side of a session.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use conquest_fuse::wire::Opcode;
use conquest_fuse::{Device, Result, Session, SessionOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::scripted::Scripted;
use crate::support::{Bytes, at, request};

/// Longest wait for what has to come.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// How long is waited for what must not come.
pub(crate) const MOMENT: Duration = Duration::from_millis(60);

/// Options for a socket in place of the device.
pub(crate) fn options() -> SessionOptions {
    // It can't be cloned.
    SessionOptions { clone_device: false, ..SessionOptions::default() }
}

/// A reply as the kernel gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) unique: u64,
    /// Positive, as error numbers are.
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn error(unique: u64, error: i32) -> Answer {
        Answer { unique, error, body: Vec::new() }
    }
}

/// A session, and the end of it that the kernel has.
pub(crate) struct Kernel {
    socket: OwnedFd,
    pub(crate) handler: Arc<Scripted>,
    reports: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<Result>,
}

impl Kernel {
    /// A session that waits for INIT.
    pub(crate) fn new(options: SessionOptions) -> Kernel {
        Kernel::with(options, |session| session)
    }

    /// A session that was changed.
    pub(crate) fn with(
        options: SessionOptions,
        change: impl FnOnce(Session<Arc<Scripted>>) -> Session<Arc<Scripted>>,
    ) -> Kernel {
        let (socket, device) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let handler = Arc::new(Scripted::default());
        let reports = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&reports);
        let options =
            options.report(move |incident| told.lock().unwrap().push(incident.to_string()));
        let session = Session::new(Device::from(device), Arc::clone(&handler), options);
        let session = change(session);
        let thread = std::thread::spawn(move || session.run());
        Kernel { socket, handler, reports, thread }
    }

    /// A session after INIT.
    pub(crate) fn started(options: SessionOptions) -> Kernel {
        let kernel = Kernel::new(options);
        kernel.init(7, 45);
        let answer = kernel.answer();
        assert_eq!((answer.unique, answer.error, answer.body.len()), (2, 0, 64));
        kernel
    }

    /// Sends INIT.
    pub(crate) fn init(&self, major: u32, minor: u32) {
        let body = Bytes::new().u32(major).u32(minor).u32(1 << 17).u32(1 << 10).zeros(48);
        self.ask(Opcode::Init, 2, &body);
    }

    /// Sends a request.
    pub(crate) fn ask(&self, opcode: Opcode, unique: u64, body: &Bytes) {
        self.send(&with_unique(request(opcode as u32, body, &Bytes::new()), unique));
    }

    /// Sends LOOKUP of a name, which says what the handler does.
    pub(crate) fn look_up(&self, unique: u64, name: &str) {
        self.ask(Opcode::Lookup, unique, &Bytes::new().text(name.as_bytes()));
    }

    /// Sends INTERRUPT.
    pub(crate) fn interrupt(&self, unique: u64) {
        self.ask(Opcode::Interrupt, unique | 1, &Bytes::new().u64(unique));
    }

    /// Sends any bytes.
    pub(crate) fn send(&self, bytes: &[u8]) {
        rustix::io::write(&self.socket, bytes).unwrap();
    }

    /// The next reply.
    pub(crate) fn answer(&self) -> Answer {
        assert!(self.can_read(LIMIT), "no answer");
        let mut bytes = vec![0; 1 << 17];
        let len = rustix::io::read(&self.socket, &mut *bytes).unwrap();
        bytes.truncate(len);
        assert_eq!(u32::from_ne_bytes(at(&bytes, 0)) as usize, len);
        let error = -i32::from_ne_bytes(at(&bytes, 4));
        Answer { unique: u64::from_ne_bytes(at(&bytes, 8)), error, body: bytes[16..].to_vec() }
    }

    fn can_read(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::try_from(limit).unwrap())).unwrap() == 1
    }

    /// Nothing comes.
    pub(crate) fn is_silent(&self) {
        assert!(!self.can_read(MOMENT), "a message that nobody has asked for: {:?}", self.answer());
    }

    /// Ends the connection: what the session says, and what was reported.
    pub(crate) fn unmount(self) -> (Result, Vec<String>) {
        rustix::net::shutdown(self.socket.as_fd(), rustix::net::Shutdown::Write).unwrap();
        let result = self.thread.join().unwrap();
        assert_eq!(self.handler.destroyed(), 1);
        (result, self.reports.lock().unwrap().clone())
    }
}

/// `request` with another number.
pub(crate) fn with_unique(mut request: Vec<u8>, unique: u64) -> Vec<u8> {
    request[8..16].copy_from_slice(&unique.to_ne_bytes());
    request
}
