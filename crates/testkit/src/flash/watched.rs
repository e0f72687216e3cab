//! A device by which tests see what it is asked to do, and let something happen first.
//!
//! Every request comes to [`Watched`] before it takes effect. Then it is counted, then what watches
//! all of them is called, if anything does, then what waits for a request like this one. Any of
//! these may do what it likes meanwhile: note it, stop the thread ([`stop`](crate::stop::stop)),
//! use the device itself, or another volume. If one fails, so does the request, and the device is
//! not asked. No lock is held meanwhile, so other requests pass.
//!
//! Which processes are writers, and where files have what, goes to the device unseen: requests of
//! queues that have the device's files are not seen.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Limits, Work};

use crate::lock;

/// What a device is asked to do.
#[derive(Clone, Copy, Debug)]
pub enum Request<'b> {
    /// To read so many bytes from this one on.
    Read(u64, usize),
    /// To write these from this one on.
    Write(u64, &'b [u8]),
    /// The same, so that it is durable by itself.
    WriteDurable(u64, &'b [u8]),
    /// To flush.
    Flush,
    /// To discard so many bytes from this one on.
    Discard(u64, u64),
    /// To let this writer in.
    Enter(u64),
    /// To say whether so many bytes from this one on were ever written.
    IsWritten(u64, u64),
}

impl<'b> Request<'b> {
    /// The kind of work that it is, if it is one of those.
    #[must_use]
    pub const fn work(&self) -> Option<Work> {
        match self {
            Request::Read(..) => Some(Work::Read),
            Request::Write(..) | Request::WriteDurable(..) => Some(Work::Write),
            Request::Flush => Some(Work::Flush),
            Request::Discard(..) => Some(Work::Discard),
            Request::Enter(_) | Request::IsWritten(..) => None,
        }
    }

    /// What is to be written, and from which byte on.
    #[must_use]
    pub const fn written(&self) -> Option<(u64, &'b [u8])> {
        match *self {
            Request::Write(at, bytes) | Request::WriteDurable(at, bytes) => Some((at, bytes)),
            _ => None,
        }
    }
}

type Watch = Box<dyn Fn(Request<'_>) -> io::Result<()> + Send + Sync>;

/// What happens once.
struct Due {
    is_it: Box<dyn FnMut(Request<'_>) -> bool + Send>,
    what: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

/// A device of which all requests are seen.
pub struct Watched {
    device: Arc<dyn Device>,
    watch: Watch,
    due: Mutex<Vec<Due>>,
    /// Requests so far, of each kind of work.
    made: [AtomicU64; 4],
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

impl Watched {
    /// `device`, as somebody has it by whom something is to happen.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Arc<Watched> {
        Watched::each(device, |_| Ok(()))
    }

    /// The same, where `watch` is called with each request: that fails if this does.
    #[must_use]
    pub fn each(
        device: Arc<dyn Device>,
        watch: impl Fn(Request<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Arc<Watched> {
        let (due, made) = Default::default();
        Arc::new(Watched { device, watch: Box::new(watch), due, made })
    }

    /// Lets `what` happen in the first request that `is_it`: that fails if this does. Requests by
    /// this value wait while `is_it` looks.
    pub fn when(
        &self,
        is_it: impl FnMut(Request<'_>) -> bool + Send + 'static,
        what: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) {
        lock(&self.due).push(Due { is_it: Box::new(is_it), what: Box::new(what) });
    }

    /// Lets `what` happen in the next request of this kind if `nth` is 0, or the one behind it.
    pub fn in_next(&self, work: Work, nth: u64, what: impl FnOnce() + Send + 'static) {
        let mut left = nth;
        let is_it = move |request: Request<'_>| {
            let is_one = request.work() == Some(work);
            let is_now = is_one && left == 0;
            left -= u64::from(is_one && !is_now);
            is_now
        };
        self.when(is_it, || {
            what();
            Ok(())
        });
    }

    /// Whether all that was to happen has happened, or has begun to.
    #[must_use]
    pub fn is_done(&self) -> bool {
        lock(&self.due).is_empty()
    }

    /// How many requests of this kind were made, failed ones too.
    #[must_use]
    pub fn made(&self, work: Work) -> u64 {
        self.made.get(work as usize).map_or(0, |made| made.load(Ordering::SeqCst))
    }

    fn meet(&self, request: Request<'_>) -> io::Result<()> {
        if let Some(made) = request.work().and_then(|work| self.made.get(work as usize)) {
            made.fetch_add(1, Ordering::SeqCst);
        }
        (self.watch)(request)?;
        let now: Vec<Due> = lock(&self.due).extract_if(.., |due| (due.is_it)(request)).collect();
        now.into_iter().try_for_each(|due| (due.what)())
    }
}

impl Device for Watched {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.meet(Request::Read(at, into.len()))?;
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.meet(Request::Write(at, bytes))?;
        self.device.write(at, bytes)
    }

    fn write_durable(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.meet(Request::WriteDurable(at, bytes))?;
        self.device.write_durable(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.meet(Request::Flush)?;
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.meet(Request::Discard(at, len))?;
        self.device.discard(at, len)
    }

    fn next(&self, at: u64) -> io::Result<u64> {
        self.device.next(at)
    }

    fn is_blank(&self, at: u64, len: u64) -> io::Result<bool> {
        self.device.is_blank(at, len)
    }

    fn is_written(&self, at: u64, len: u64) -> io::Result<bool> {
        self.meet(Request::IsWritten(at, len))?;
        self.device.is_written(at, len)
    }

    fn files(&self) -> io::Result<Vec<File>> {
        self.device.files()
    }

    fn file_count(&self) -> usize {
        self.device.file_count()
    }

    fn route(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.device.route(at, len)
    }

    fn route_write(&self, at: u64, len: u64) -> Option<(usize, u64)> {
        self.device.route_write(at, len)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.meet(Request::Enter(writer))?;
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}
