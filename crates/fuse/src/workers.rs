//! The threads that read requests and let the handler serve them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};

use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::channel::Channel;
use crate::handler::Handler;
use crate::incident::Incident;
use crate::pool::{Called, Next, Pool};
use crate::reply::Reply;
use crate::wire::{Agreed, Malformed, Operation, Request};

/// What the workers of a session share.
pub(crate) struct Workers<'s, H> {
    pub(crate) handler: &'s H,
    /// The channel of the first worker, and of those that can't have one of their own.
    pub(crate) channel: &'s Arc<Channel>,
    pub(crate) agreed: Agreed,
    /// Bytes of a worker's buffer.
    pub(crate) buffer: usize,
    pub(crate) pool: Pool,
    /// Whether further workers have descriptors of their own.
    pub(crate) joins: AtomicBool,
    /// Why reading failed.
    pub(crate) failure: Mutex<Option<Errno>>,
}

impl<H: Handler> Workers<'_, H> {
    /// Serves until the connection has ended, and all workers have.
    pub(crate) fn run(&self) -> Result<(), Errno> {
        std::thread::scope(|scope| self.work(scope, self.channel, true));
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), Err)
    }

    fn report(&self, incident: &Incident) {
        (self.channel.common.report)(incident);
    }

    /// A worker's life. The first one's thread is the session's, which has to wait for the others
    /// in any case, so it stays.
    fn work<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        channel: &Arc<Channel>,
        is_first: bool,
    ) {
        let Some(mut buffer) = Buffer::new(self.buffer) else {
            self.pool.cannot_come();
            self.report(&Incident::NoThread { source: Errno::NOMEM.into() });
            return;
        };
        self.pool.arrive();
        loop {
            let received = channel.device.receive(buffer.bytes());
            let Ok(Some(len)) = received else {
                if let Err(error) = received {
                    *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
                return self.pool.end();
            };
            if self.pool.leave() == Called::New {
                self.start_one(scope);
            }
            self.serve(buffer.bytes().get(..len).unwrap_or_default(), channel);
            if self.pool.next(is_first) == Next::End {
                return;
            }
        }
    }

    fn start_one<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let work = move || {
            let channel = self.own_channel();
            self.work(scope, &channel, false);
        };
        if let Err(source) = Builder::new().name("fuse".into()).spawn_scoped(scope, work) {
            self.pool.cannot_come();
            self.report(&Incident::NoThread { source });
        }
    }

    /// A channel with a descriptor of its own, if there can be one.
    fn own_channel(&self) -> Arc<Channel> {
        if self.joins.load(Ordering::Relaxed) {
            match self.channel.device.join() {
                Ok(device) => {
                    let common = Arc::clone(&self.channel.common);
                    return Arc::new(Channel { device, common });
                }
                Err(source) => {
                    if self.joins.swap(false, Ordering::Relaxed) {
                        self.report(&Incident::NotJoined { source: source.into() });
                    }
                }
            }
        }
        Arc::clone(self.channel)
    }

    /// Serves the request in `bytes`.
    fn serve(&self, bytes: &[u8], channel: &Arc<Channel>) {
        let request = match Request::parse(bytes, &self.agreed) {
            Ok(request) => request,
            Err(malformed) => return self.refuse(&malformed, channel),
        };
        let unique = request.unique;
        let reply = || Reply::new(unique, channel);
        let served = match request.operation {
            Operation::Interrupt { unique } => return self.interrupt(unique),
            // The handler is told at the end of the session, which comes next.
            Operation::Destroy => return reply().empty(),
            Operation::Init(_) => return reply().error(Errno::IO),
            Operation::Forget { .. }
            | Operation::BatchForget(_)
            | Operation::NotifyReply { .. } => self.guarded(&request, Reply::mute(unique)),
            _ => self.guarded(&request, reply()),
        };
        if let Err(panic) = served {
            let code = bytes.get(4..8).and_then(|code| code.try_into().ok());
            let code = u32::from_ne_bytes(code.unwrap_or_default());
            self.report(&Incident::Panicked { unique, code, reason: reason(&*panic) });
        }
    }

    /// Lets the handler serve a request. If it panics, the reply is dropped, which answers.
    fn guarded(&self, request: &Request<'_>, reply: Reply) -> std::thread::Result<()> {
        catch_unwind(AssertUnwindSafe(|| self.handler.handle(request, reply)))
    }

    fn refuse(&self, malformed: &Malformed, channel: &Arc<Channel>) {
        if let (Some(unique), true) = (malformed.unique, malformed.wants_answer()) {
            Reply::new(unique, channel).error(Errno::IO);
        }
        self.report(&Incident::Malformed(*malformed));
    }

    /// The caller of request `unique` was signalled. See [`crate::interrupts`] for the order.
    fn interrupt(&self, unique: u64) {
        let interrupts = &self.channel.common.interrupts;
        interrupts.remember(unique);
        match catch_unwind(AssertUnwindSafe(|| self.handler.interrupt(unique))) {
            Ok(true) => interrupts.forget(unique),
            Ok(false) => {}
            Err(panic) => {
                let code = crate::wire::Opcode::Interrupt as u32;
                self.report(&Incident::Panicked { unique, code, reason: reason(&*panic) });
            }
        }
    }
}

/// What a panic said.
pub(crate) fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("nothing").to_owned()
}
