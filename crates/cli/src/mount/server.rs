//! What serves mounts: the store through FUSE.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conquest::{Attach, Store};
use conquest_fuse::{self as fuse, Handler, Session, SessionOptions, Stopper};
use conquest_mount::{Event, Server};

use super::options::{AccessTimes, MountOptions};
use super::{End, MountRequest, Serve, privileges};
use crate::log::{Cause, Kind, Level, Log};
use crate::place;
use crate::reason::{Reason, Result};

/// Threads that serve, at most, if nothing else is asked for. They are made when all others are
/// busy: many of them only if many wait, perhaps for a process that was stopped while it held a
/// lock.
const THREADS: usize = 32;

static DAMAGE: Kind = Kind::new(Level::Error, "damage");
static READ_ONLY: Kind = Kind::new(Level::Error, "read-only");
static INCIDENT: Kind = Kind::new(Level::Error, "protocol");
static SLOW: Kind = Kind::new(Level::Warn, "waiting for a process");

/// A store that is mounted, or is to be.
struct Fuse {
    /// The store's directory.
    store: PathBuf,
    served: Option<Served>,
}

/// What there is once it is mounted.
struct Served {
    session: Session<Arc<Server>>,
    store: Arc<Store>,
}

/// The server of the store in the directory `store`.
///
/// # Errors
/// None so far.
pub(crate) fn server(store: PathBuf) -> Result<Box<dyn Serve>> {
    Ok(Box::new(Fuse { store, served: None }))
}

impl Serve for Fuse {
    fn mount(&mut self, request: &MountRequest) -> Result<Box<dyn End>> {
        let store = Arc::new(attach(&self.store, &request.log)?);
        check_trust(&store, &request.options)?;
        let options = conquest_mount::Options {
            no_access_time: request.options.read_only
                || request.options.access_times == AccessTimes::Never,
            no_directory_access_time: !request.options.directory_access_times,
            local_locks: request.options.local_locks,
            ..conquest_mount::Options::default()
        };
        let server = Server::new(Arc::clone(&store), options, Box::new(reporter(&request.log)))?;
        let (session, end) = mounted(Arc::new(server), request)?;
        self.served = Some(Served { session, store });
        Ok(end)
    }

    fn run(&mut self) -> Result<()> {
        let Some(Served { session, store }) = self.served.take() else {
            return Err(Reason::rule("nothing is mounted"));
        };
        session.run()?;
        match Arc::try_unwrap(store) {
            Ok(store) => Ok(store.detach()?),
            // Somebody of this process has it still: it is detached with that.
            Err(_) => Ok(()),
        }
    }
}

/// Mounts what `handler` serves, as `request` says: a session that is to be run, and what ends it.
pub(super) fn mounted<H: Handler>(
    handler: H,
    request: &MountRequest,
) -> Result<(Session<H>, Box<dyn End>)> {
    let log = Arc::clone(&request.log);
    let threads = request.options.threads.map_or(THREADS, |threads| threads.get() as usize);
    let report = move |incident: &fuse::Incident| {
        log.tell(&INCIDENT, &[&Cause(&Reason::rule(incident.to_string()))]);
    };
    let report = Box::new(report);
    let how = SessionOptions { threads_max: threads, report, ..SessionOptions::default() };
    let (device, mounted) = fuse::mount(&request.point, &mount_options(request))?;
    let session = Session::new(device, handler, how);
    let stopper = session.stopper(&mounted);
    privileges::drop_needless(&request.log);
    Ok((session, Box::new(Ending { mounted, stopper })))
}

/// What ends a mount.
struct Ending {
    mounted: fuse::Mounted,
    stopper: Stopper,
}

impl End for Ending {
    fn unmount(&self, is_lazy: bool) -> Result<()> {
        match self.mounted.unmount(is_lazy) {
            // Somebody else was quicker.
            Ok(()) | Err(fuse::Error::NotMounted { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn abort(&self) -> Result<()> {
        Ok(self.stopper.abort()?)
    }
}

/// The store in `directory`; whoever it has to wait for is named in `log`.
fn attach(directory: &Path, log: &Arc<Log>) -> Result<Store> {
    let log = Arc::clone(log);
    let on_slow = move |holder: conquest::Holder| {
        let words: &'static str = if holder.state == Some('T') { ", which is stopped" } else { "" };
        log.tell(
            &SLOW,
            &[&"waiting for process ", &holder.process, &words, &", for ", &holder.waited],
        );
    };
    let how = Attach { on_slow: Some(Arc::new(on_slow)), ..Attach::default() };
    Ok(Store::attach(directory, &how)?)
}

/// Refuses what would let files of the mount count for others, where a stranger can make them what
/// he likes.
fn check_trust(store: &Store, options: &MountOptions) -> Result<()> {
    let wanted =
        [(options.suid, "suid"), (options.dev, "dev"), (options.allow_other, "allow_other")];
    let Some((_, option)) = wanted.into_iter().find(|(is_wanted, _)| *is_wanted) else {
        return Ok(());
    };
    let label = place::host_label(store.core());
    match conquest_mount::stranger(store.core()) {
        Ok(None) => Ok(()),
        Ok(Some(stranger)) => Err(Reason::Rule(format!(
            "option {option} is refused: {label}: {stranger}, and so make files of any owner and \
             mode (let only root and the one who mounts write it, or mount without {option})"
        ))),
        Err(error) => Err(Reason::Rule(format!("{label}: {}", crate::reason::words(&error)))),
    }
}

fn reporter(log: &Arc<Log>) -> impl Fn(Event<'_>) + Send + Sync + use<> {
    let log = Arc::clone(log);
    move |event| match event {
        Event::Damage(error) => {
            log.tell(&DAMAGE, &[&Cause(&Reason::rule(error.to_string()))]);
        }
        Event::ReadOnly(error) => {
            let reason = Reason::rule(error.to_string());
            log.tell(
                &READ_ONLY,
                &[&"nothing can be changed any more, only read: ", &Cause(&reason)],
            );
        }
    }
}

fn mount_options(request: &MountRequest) -> fuse::MountOptions {
    let options = &request.options;
    let mut mount = fuse::MountOptions::new("conquest", &request.source);
    mount.default_permissions = true;
    mount.allow_other = options.allow_other;
    mount.read_only = options.read_only;
    mount.suid = options.suid;
    mount.dev = options.dev;
    mount.exec = options.exec;
    mount.access_times = match options.access_times {
        AccessTimes::Relative => fuse::AccessTimes::Relative,
        AccessTimes::Strict => fuse::AccessTimes::Strict,
        AccessTimes::Never => fuse::AccessTimes::Never,
    };
    mount.directory_access_times = options.directory_access_times;
    mount.synchronous = options.sync;
    mount.synchronous_directories = options.dirsync;
    mount
}
