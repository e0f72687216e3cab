//! A mount from its beginning to its end, in the process that serves it.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use conquest::Errno;
use rustix::fs::Mode;

use super::background::Parent;
use super::failure::Failure;
use super::notify::Manager;
use super::signals::Signals;
use super::users::Users;
use super::{End, MountRequest, Serve, table};
use crate::log::{Cause, Kind, Level, Log, Named, Piece, Place, Program};
use crate::reason::{Reason, Result};

/// How long users are waited for when the server is asked to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to unmount.
const NAP: Duration = Duration::from_millis(200);
/// Between two looks at what the log has left out.
const TICK: Duration = Duration::from_secs(2);

static MOUNTED: Kind = Kind::new(Level::Info, "mounted");
static ASKED: Kind = Kind::new(Level::Info, "asked to end");
static BUSY: Kind = Kind::new(Level::Warn, "busy");
static BUSY_PROCESS: Kind = Kind::new(Level::Warn, "busy by a process");
static BUSY_MOUNT: Kind = Kind::new(Level::Warn, "busy by a mount");
static BUSY_LOOP: Kind = Kind::new(Level::Warn, "busy by a loop device");
static LEFT: Kind = Kind::new(Level::Warn, "unmounted lazily");
static STUCK: Kind = Kind::new(Level::Error, "not unmounted");
static ABORTED: Kind = Kind::new(Level::Warn, "ended at once");
static ENDED: Kind = Kind::new(Level::Info, "ended");
static MANAGER: Kind = Kind::new(Level::Warn, "service manager");

/// Mounts by `server`, tells `parent` if there is one, and serves until it is unmounted. Signals
/// ask for that: the first one waits for users, and leaves those that stay what they have; the
/// second one ends it at once.
///
/// # Errors
/// Why it was not mounted, or could not be served. The parent has been told.
pub(crate) fn serve(
    server: &mut dyn Serve,
    request: &MountRequest,
    parent: Option<Parent>,
) -> core::result::Result<(), Failure> {
    // What is created here is created with the modes that it is to have.
    rustix::process::umask(Mode::empty());
    let begun = Signals::listen().and_then(|signals| Ok((signals, server.mount(request)?)));
    let (signals, end) = match begun {
        Ok(begun) => begun,
        Err(reason) => return Err(tell_failure(Failure::Failed(reason), parent)),
    };
    let log = request.log.as_ref();
    let manager = Manager::of_environment().unwrap_or_else(|error| {
        log.tell(&MANAGER, &[&"the service manager can't be told anything: ", &error]);
        Manager::none()
    });
    let told = parent.map_or(Ok(()), Parent::ready);
    if told.is_ok() {
        let (source, point) = (Place(request.source.as_ref()), Place(&request.point));
        let how = if request.options.read_only { " for reading only" } else { "" };
        log.tell(&MOUNTED, &[&source, &" is mounted at ", &point, &how]);
        let pid = std::process::id();
        say(&manager, log, &format!("READY=1\nMAINPID={pid}\nSTATUS=mounted"));
    } else {
        // Nobody knows of it, so nobody uses it; if it is not unmounted, it ends all the same.
        let _ = end.unmount(true).or_else(|_| end.abort());
    }
    let done = AtomicBool::new(false);
    let watch = Watch { request, end, signals: &signals, manager: &manager, done: &done };
    let served = std::thread::scope(|scope| {
        scope.spawn(move || watch.until_done());
        let _over = Over { signals: &signals, done: &done };
        server.run()
    });
    match &served {
        Ok(()) => log.tell(&ENDED, &[&Place(&request.point), &" is unmounted"]),
        Err(reason) => log.tell(&STUCK, &[&"serving has failed: ", &Cause(reason)]),
    }
    log.flush();
    told.and(served).map_err(Failure::Failed)
}

/// Tells `parent` why nothing is mounted, if there is one; the failure to report otherwise.
pub(crate) fn tell_failure(failure: Failure, parent: Option<Parent>) -> Failure {
    if let Some(parent) = parent {
        parent.failed(&failure);
    }
    failure
}

fn say(manager: &Manager, log: &Log, lines: &str) {
    if let Err(error) = manager.tell(lines) {
        log.tell(&MANAGER, &[&"the service manager does not listen: ", &error]);
    }
}

/// Ends the watch when it goes, also if serving panics.
struct Over<'r> {
    signals: &'r Signals,
    done: &'r AtomicBool,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
        self.signals.wake();
    }
}

/// What ends a mount on request.
struct Watch<'r> {
    request: &'r MountRequest,
    end: Box<dyn End>,
    signals: &'r Signals,
    manager: &'r Manager,
    /// Set when there is nothing more to end.
    done: &'r AtomicBool,
}

/// How far the end of a mount has come.
#[derive(Clone, Copy)]
enum Stage {
    /// Nobody has asked.
    Serving,
    /// Asked at this time; users are waited for.
    Leaving(Instant),
    /// Unmounted: it ends by itself, when its last users do.
    Left,
    /// Ended at once.
    Aborted,
}

impl Watch<'_> {
    fn until_done(&self) {
        let mut stage = Stage::Serving;
        loop {
            let limit = if matches!(stage, Stage::Leaving(_)) { NAP } else { TICK };
            let asked = self.signals.wait(limit).unwrap_or_else(|_| {
                // Without signals there are only the looks.
                std::thread::sleep(limit);
                false
            });
            if self.done.load(Ordering::Acquire) {
                return;
            }
            self.request.log.flush();
            stage = match (stage, asked) {
                (Stage::Serving, false) => Stage::Serving,
                (Stage::Serving, true) => self.begin(),
                (Stage::Leaving(since), false) => self.leave(since),
                (Stage::Leaving(_) | Stage::Left | Stage::Aborted, true) => self.abort(),
                (Stage::Left | Stage::Aborted, false) => stage,
            };
        }
    }

    fn tell(&self, kind: &'static Kind, pieces: &[&dyn Piece]) {
        self.request.log.tell(kind, pieces);
    }

    /// The first request.
    fn begin(&self) -> Stage {
        self.tell(&ASKED, &[&"asked to end: unmounting ", &Place(&self.request.point)]);
        say(self.manager, &self.request.log, "STOPPING=1\nSTATUS=unmounting");
        let since = Instant::now();
        match self.end.unmount(false) {
            Ok(()) => Stage::Left,
            Err(reason) if reason.is(Errno::EBUSY) => {
                let seconds = PATIENCE.as_secs();
                self.tell(&BUSY, &[&"in use; waiting ", &seconds, &" s for those who use it"]);
                self.name_users();
                Stage::Leaving(since)
            }
            Err(reason) => {
                self.tell(&STUCK, &[&"not unmounted: ", &Cause(&reason)]);
                Stage::Leaving(since)
            }
        }
    }

    /// Tries again; in the end, lazily.
    fn leave(&self, since: Instant) -> Stage {
        if self.end.unmount(false).is_ok() {
            return Stage::Left;
        }
        if since.elapsed() < PATIENCE {
            return Stage::Leaving(since);
        }
        match self.end.unmount(true) {
            Ok(()) => {
                self.tell(
                    &LEFT,
                    &[&"unmounted; those who use it keep it until they end (ask \
                                     again to end it at once)"],
                );
                say(self.manager, &self.request.log, "STATUS=waiting for the last users");
                Stage::Left
            }
            Err(reason) => {
                self.tell(&STUCK, &[&"not even unmounted lazily: ", &Cause(&reason)]);
                self.abort()
            }
        }
    }

    /// At once.
    fn abort(&self) -> Stage {
        self.tell(&ABORTED, &[&"ended at once; those who use it get errors"]);
        // What is aborted is mounted still, and useless.
        let _ = self.end.unmount(true);
        if let Err(reason) = self.end.abort() {
            self.tell(&STUCK, &[&"not ended: ", &Cause(&reason)]);
        }
        Stage::Aborted
    }

    /// Names those who keep the mount busy.
    fn name_users(&self) {
        let users = match users_at(self.request) {
            Ok(users) => users,
            Err(reason) => {
                self.tell(&BUSY, &[&"it can't be found out who uses it: ", &Cause(&reason)]);
                return;
            }
        };
        for user in &users.processes {
            let (name, owner) = (Program(&user.name), Program(&user.owner));
            for (how, path) in &user.uses {
                let file = Named(path.as_os_str().as_bytes());
                let how = how.words();
                self.tell(
                    &BUSY_PROCESS,
                    &[
                        &"in use by process ",
                        &user.process,
                        &" (",
                        &name,
                        &", of ",
                        &owner,
                        &"): ",
                        &how,
                        &" ",
                        &file,
                    ],
                );
            }
        }
        for mount in &users.mounts {
            self.tell(&BUSY_MOUNT, &[&"in use by a mount beneath it: ", &Place(mount)]);
        }
        for device in &users.loops {
            self.tell(&BUSY_LOOP, &[&"in use by a loop device on it: ", &Place(device)]);
        }
    }
}

fn users_at(request: &MountRequest) -> Result<Users> {
    let id = table::id_at(&request.point)?;
    let mounts = table::read()?;
    let mount = mounts.iter().find(|mount| mount.id == id);
    Users::of(mount.ok_or_else(|| Reason::rule("the mount is gone"))?)
}

#[cfg(test)]
mod tests;
