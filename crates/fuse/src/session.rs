//! A session: from the first request to the last one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::channel::{Channel, Common, Report};
use crate::device::{self, Device};
use crate::error::{self, Error, Result};
use crate::handler::Handler;
use crate::incident::Incident;
use crate::interrupts::Interrupts;
use crate::mount::Mounted;
use crate::notifier::Notifier;
use crate::pool::Pool;
use crate::reply::Reply;
use crate::stopper::{Ended, Stopper};
use crate::wire::{Agreed, InitReply, Operation, Request};
use crate::workers::{self, Workers};

/// The least buffer that the kernel reads to before INIT: `FUSE_MIN_READ_BUFFER`.
const FIRST_BUFFER: usize = 8192;
/// Bytes of a request beside what it writes: headers, names, values of extended attributes.
const BESIDE_DATA: usize = 64 << 10;

/// How a session is run.
pub struct SessionOptions {
    /// Threads at most, at least one: as many requests are served at once, beside those whose
    /// replies are kept.
    pub threads_max: usize,
    /// Threads that wait for requests at most, at least one; others wait `idle_time`, and end.
    pub idle_max: usize,
    /// How long threads that are not needed stay.
    pub idle_time: Duration,
    /// Whether each thread has a descriptor and a queue of its own. Where that can't be, they share
    /// one.
    pub clone_device: bool,
    /// Whom to tell of what goes wrong.
    pub report: Report,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            threads_max: 10,
            idle_max: 3,
            idle_time: Duration::from_secs(5),
            clone_device: true,
            report: Box::new(|_| {}),
        }
    }
}

impl SessionOptions {
    /// These options, with a function to tell of what goes wrong.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&Incident) + Send + Sync + 'static) -> SessionOptions {
        self.report = Box::new(report);
        self
    }
}

/// A session between the kernel and a handler.
pub struct Session<H> {
    handler: H,
    channel: Arc<Channel>,
    ended: Arc<Ended>,
    threads: [usize; 2],
    idle_time: Duration,
    clone_device: bool,
    /// What was agreed on by an earlier process, and the longest write.
    resumed: Option<(Agreed, u32)>,
}

impl<H: Handler> Session<H> {
    /// A session on a device that was mounted.
    #[must_use]
    pub fn new(device: Device, handler: H, options: SessionOptions) -> Session<H> {
        let SessionOptions { threads_max, idle_max, idle_time, clone_device, report } = options;
        let common = Common { interrupts: Interrupts::new(threads_max), report };
        let channel = Arc::new(Channel { device, common: Arc::new(common) });
        let threads = [threads_max, idle_max];
        let (ended, resumed) = (Arc::default(), None);
        Session { handler, channel, ended, threads, idle_time, clone_device, resumed }
    }

    /// This session, for a connection that another process has served before, whose device was kept
    /// open: there, INIT was answered with what is `agreed`, and writes of at most `max_write`
    /// bytes. [`Notice::Resend`](crate::Notice::Resend) brings what was read and not answered, if
    /// that process had `HAS_RESEND` and no cloned descriptors: theirs fail with it.
    #[must_use]
    pub fn resumed(mut self, agreed: Agreed, max_write: u32) -> Session<H> {
        self.resumed = Some((agreed, max_write));
        self
    }

    /// What tells the kernel what it has not asked for. Nothing may be told before INIT.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.channel)
    }

    /// What ends the session on `mounted`, which is what its device was mounted as.
    #[must_use]
    pub fn stopper(&self, mounted: &Mounted) -> Stopper {
        Stopper::new(mounted, &self.ended)
    }

    /// Serves until the connection has ended: unmounted and used by nobody, or aborted. Then all
    /// threads have ended, and the handler was told.
    ///
    /// # Errors
    /// If the kernel and this crate don't understand each other, or reading fails.
    pub fn run(self) -> Result {
        let result = self.serve();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.handler.destroy())) {
            self.panicked(0, crate::wire::Opcode::Destroy, &*panic);
        }
        self.ended.set();
        result
    }

    fn panicked(
        &self,
        unique: u64,
        opcode: crate::wire::Opcode,
        panic: &(dyn std::any::Any + Send),
    ) {
        let (code, reason) = (opcode as u32, workers::reason(panic));
        (self.channel.common.report)(&Incident::Panicked { unique, code, reason });
    }

    fn serve(&self) -> Result {
        let failed = |source| error::system(device::PATH, "read requests", source, None);
        let agreed = match self.resumed {
            Some(agreed) => Some(agreed),
            None => self.shake_hands()?,
        };
        let Some((agreed, max_write)) = agreed else { return Ok(()) };
        let max_write = usize::try_from(max_write).unwrap_or(usize::MAX);
        let [threads_max, idle_max] = self.threads;
        let workers = Workers {
            handler: &self.handler,
            channel: &self.channel,
            agreed,
            buffer: max_write.saturating_add(BESIDE_DATA),
            pool: Pool::new(threads_max, idle_max, self.idle_time),
            joins: AtomicBool::new(self.clone_device),
            failure: Mutex::new(None),
        };
        workers.run().map_err(failed)
    }

    /// Agrees with the kernel on how to speak: on what, and how many bytes are written at most.
    /// None if the connection has ended before.
    fn shake_hands(&self) -> Result<Option<(Agreed, u32)>> {
        let failed = |source| error::system(device::PATH, "read the first request", source, None);
        let mut buffer = Buffer::new(FIRST_BUFFER).ok_or_else(|| failed(Errno::NOMEM))?;
        loop {
            let Some(len) = self.channel.device.receive(buffer.bytes()).map_err(failed)? else {
                return Ok(None);
            };
            let bytes = buffer.bytes().get(..len).unwrap_or_default();
            let refused = |reason: String| Error::Handshake { reason };
            let request = match Request::parse(bytes, &Agreed::default()) {
                Ok(request) => request,
                Err(malformed) => {
                    if let Some(unique) = malformed.unique {
                        Reply::new(unique, &self.channel).error(Errno::IO);
                    }
                    return Err(refused(malformed.to_string()));
                }
            };
            let reply = Reply::new(request.unique, &self.channel);
            let Operation::Init(offer) = request.operation else {
                reply.error(Errno::IO);
                let reason = "the first request is not INIT; is somebody else serving the mount?";
                return Err(refused(reason.into()));
            };
            if offer.is_newer_major() {
                reply.body(&InitReply::major_only());
                continue;
            }
            let settings = catch_unwind(AssertUnwindSafe(|| self.handler.init(&offer)));
            let settings = match settings {
                Ok(settings) => settings,
                Err(panic) => {
                    reply.error(Errno::IO);
                    let reason = workers::reason(&*panic);
                    return Err(refused(format!("the server panicked: {reason}; report it")));
                }
            };
            match offer.accept(&settings) {
                Ok((answer, agreed)) => {
                    reply.body(&answer);
                    return Ok(Some((agreed, settings.max_write)));
                }
                Err(unsupported) => {
                    reply.error(Errno::PROTO);
                    return Err(refused(unsupported.to_string()));
                }
            }
        }
    }
}
