//! The keeper of a store with a volume: a process that makes durable what nobody waits for, writes
//! checkpoints, and cleans the volume.
//!
//! Whoever attaches the store, or waits for something to be durable, sees to it that there is one:
//! it holds a lock on a file, which ends with it. It leaves when nobody else has the store
//! attached, and when it is asked to, by who wants the store for himself; then all is durable.
//!
//! Of a core that was brought back of the volume it loads what is not there yet. It stays for that.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use conquest_fs::large::Unneeded;
use conquest_pm::log::Asked;

use super::attach::is_store;
use super::backing::Backing;
use super::directory::{KEEPER, SETTINGS};
use super::sync_mode::SyncMode;
use super::volume::{Image, Volume};
use super::{Attach, Store, loading};
use crate::error::failed;
use crate::{Error, Result};

/// Names the program that is to be the keeper, if it is not found otherwise.
const VARIABLE: &str = "CONQUEST_PROGRAM";
/// Its name.
const PROGRAM: &str = "conquest";
/// The command of the program.
pub(crate) const COMMAND: &str = "keeper";
/// How often it looks whether it is needed, if it has nothing else to do.
const LOOK: Duration = Duration::from_secs(1);
/// How often it has been seen that nobody needs it before it leaves: a build has moments without
/// any process.
const LOOKS: u32 = 2;
/// For how long others may be seen to look whether there is a keeper.
const LOOKED_AT: Duration = Duration::from_millis(200);
/// Bytes of the log with which a checkpoint is written.
const LOG_LONG: u64 = 32 << 20;

/// Which program keeps a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Program {
    /// The one that `CONQUEST_PROGRAM` names, `conquest` beside the running program, or in the
    /// directories of `PATH`.
    #[default]
    Search,
    /// This one.
    Path(PathBuf),
    /// None: what nobody waits for becomes durable when somebody does, or detaches.
    None,
    /// The one that attaches, by its first thread: see [`keep`].
    This,
}

impl Program {
    fn path(&self) -> Option<PathBuf> {
        match self {
            Program::None | Program::This => None,
            Program::Path(path) => Some(path.clone()),
            Program::Search => {
                let named = std::env::var_os(VARIABLE).map(PathBuf::from);
                let beside = std::env::current_exe().ok().map(|path| path.with_file_name(PROGRAM));
                let search = std::env::var_os("PATH").unwrap_or_default();
                let searched = std::env::split_paths(&search).map(|path| path.join(PROGRAM));
                named.into_iter().chain(beside).chain(searched).find(|path| path.is_file())
            }
        }
    }
}

/// The file that the keeper of the store in `directory` has locked.
fn open_lock(directory: &Path) -> Result<File> {
    let path = directory.join(KEEPER);
    let mode = std::fs::metadata(directory.join(SETTINGS)).map_or(0o600, |found| found.mode());
    let mut options = File::options();
    options.read(true).write(true).create(true).mode(mode & 0o777);
    let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
    opened.map_err(failed(&path, "open the keeper's lock"))
}

/// The process that keeps the store in `directory`, as it says; 0 if it did not. None if there is
/// no keeper.
#[must_use]
pub fn keeper_of(directory: &Path) -> Option<u32> {
    // Whatever has the name, nobody waits for it.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags).open(directory.join(KEEPER)).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(_) => {
            let mut text = String::new();
            let _read = file.take(20).read_to_string(&mut text);
            Some(text.trim().parse().unwrap_or(0))
        }
    }
}

/// [`keeper_of`], or who has just been started to be it.
pub(crate) fn keeper_soon(directory: &Path) -> Option<u32> {
    let since = Instant::now();
    loop {
        let found = keeper_of(directory);
        // Who has the lock for a moment is one who looks, or has not said who he is.
        if found.is_some_and(|process| process > 0) || since.elapsed() > LOOKED_AT {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sees to it that the store in `directory` has a keeper, which is `program`; whether it will have
/// one. Waits until it has been started, not until it is at work.
pub(crate) fn ensure(directory: &Path, program: &Program) -> bool {
    if keeper_of(directory).is_some() {
        return true;
    }
    let Some(path) = program.path() else {
        return false;
    };
    // It starts the keeper, and ends: so the keeper is nobody's child.
    let mut command = Command::new(path);
    command.arg0(PROGRAM).arg(COMMAND).arg("--start").arg("--").arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).status().is_ok_and(|status| status.success())
}

/// Keeps the store in `directory`, until nobody else has it attached, or another keeper is there.
/// The calling thread is the process's first one.
///
/// # Errors
/// Those of attaching the store; those of its volume, which others then meet as well.
pub fn keep(directory: &Path) -> Result<()> {
    // Or what was just destroyed would have a file again.
    is_store(directory)?;
    let lock = open_lock(directory)?;
    if !lock_alone(directory, &lock)? {
        return Ok(());
    }
    let how = Attach { keeper: Program::This, keep_from_swap: false, ..Attach::default() };
    let store = Store::attach(directory, &how)?;
    let core = Arc::clone(store.fs().core());
    let Some(backing) = store.attachment().backing.clone() else {
        let what = "it has no volume, so there is nothing to keep";
        return Err(Error::VolumeRule { directory: directory.to_owned(), what });
    };
    let (volume, image) = (backing.volume(&core)?, backing.image(&core)?);
    // Who has attached before may have been told that nothing can be changed, and can now.
    backing.check(&core)?;
    let keeper = Keeper {
        store: &store,
        backing: &backing,
        volume: &volume,
        image,
        is_loading: AtomicBool::new(true),
    };
    let stop = AtomicBool::new(false);
    let keep = || {
        while keeper.work()? {
            // Who comes now finds no keeper, or is found.
            lock.unlock().map_err(failed(&directory.join(KEEPER), "unlock it"))?;
            if !core.is_anyone_else_at_work()? || !lock_alone(directory, &lock)? {
                break;
            }
        }
        Ok(())
    };
    let kept = std::thread::scope(|scope| {
        scope.spawn(|| keeper.load(&stop));
        let kept = volume.with_keeper(keep);
        stop.store(true, Ordering::Relaxed);
        kept
    });
    drop(keeper);
    drop(volume);
    // What could not be made durable is told, and the lock ends last.
    kept.and(store.detach())
}

/// Locks the keeper's lock, which others have for a moment when they look whether there is a
/// keeper; false if another one has it.
fn lock_alone(directory: &Path, mut lock: &File) -> Result<bool> {
    let since = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if since.elapsed() < LOOKED_AT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => {
                return Err(failed(&directory.join(KEEPER), "lock it")(error));
            }
        }
    }
    // For messages only.
    let text = format!("{}\n", std::process::id());
    let _signed = lock.set_len(0).and_then(|()| lock.rewind());
    let _signed = lock.write_all(text.as_bytes());
    Ok(true)
}

/// Pages of large files in the core with which a second thread helps.
const MUCH: u64 = 1024;
/// So many are left to the next time: an epoch has few others.
const FEW: u64 = 256;
/// For how long pages are pushed before something else has its turn.
const PUSHING: Duration = Duration::from_millis(100);
/// The same between two parts of a checkpoint.
const BETWEEN: Duration = Duration::from_millis(10);
/// Pages of the core that are free, while it is being filled: 32 MiB.
const PAGES_AHEAD: u64 = 8192;
/// Bytes of a volume's file that are written ahead of those who use them.
const ZEROS_AHEAD: u64 = 64 << 20;

struct Keeper<'s> {
    store: &'s Store,
    backing: &'s Backing,
    volume: &'s Volume,
    /// The core's, if it is made durable there.
    image: Option<Arc<Image>>,
    /// Whether what is not there of the core is being loaded.
    is_loading: AtomicBool,
}

impl Keeper<'_> {
    /// Loads what is not there of the core, until `stop` is set.
    fn load(&self, stop: &AtomicBool) {
        // Who needs what it can't load meets the same error.
        let (Ok(_) | Err(_)) = loading::load_behind(self.store.fs().core(), stop);
        self.is_loading.store(false, Ordering::Relaxed);
    }

    /// Works until it is asked to leave, or nobody needs it, which is true.
    fn work(&self) -> Result<bool> {
        let core = self.store.fs().core();
        let interval = match self.store.sync_mode() {
            Some(SyncMode::Interval(interval)) => interval,
            _ => LOOK,
        };
        let is_usual = matches!(self.store.sync_mode(), Some(SyncMode::Interval(_)));
        let (mut looked, mut idle, mut is_asked) = (Instant::now(), 0, false);
        let mut synced = looked;
        while idle < LOOKS && !is_asked {
            let rest = interval.saturating_sub(synced.elapsed());
            let asked = core.await_asked(if is_usual { rest } else { LOOK }.min(LOOK));
            is_asked = asked == Asked::Leave;
            let is_look = looked.elapsed() >= LOOK;
            let is_time = is_usual && synced.elapsed() >= interval;
            let makes_durable = is_time || asked == Asked::Hurry;
            if asked == Asked::Hurry || asked == Asked::Push {
                self.grow_ahead();
            }
            if makes_durable || is_look || asked == Asked::Push {
                // What there is then goes with the core's image. Who only pushes keeps nothing else
                // waiting that is to be made durable after each interval.
                let from = if is_usual && !makes_durable { synced } else { Instant::now() };
                let limit = from + interval;
                self.push_until(limit)?;
            }
            if makes_durable {
                synced = Instant::now();
                self.sync_and_trim()?;
            }
            if is_look {
                looked = Instant::now();
                self.checkpoint_if_long()?;
                self.volume.write_zeros_ahead(ZEROS_AHEAD)?;
                let is_needed =
                    self.is_loading.load(Ordering::Relaxed) || core.is_anyone_else_at_work()?;
                idle = if is_needed { 0 } else { idle + 1 };
            }
        }
        self.store.fs().push_due(|| false)?;
        self.backing.sync(core)?;
        self.store.fs().trim_chunks()?;
        self.backing.sync(core)?;
        self.checkpoint_if_long()?;
        Ok(!is_asked)
    }

    /// Makes all durable that there is, and gives the volume back what is not needed any more then.
    /// What is removed meanwhile is left for the next time.
    fn sync_and_trim(&self) -> Result<()> {
        let (files, core) = (self.store.fs(), self.store.fs().core());
        loop {
            let unneeded = files.unneeded()?;
            let may_be_more = unneeded.may_be_more();
            self.backing.sync(core)?;
            if files.trim_unneeded(unneeded)? == 0 || !may_be_more {
                return Ok(());
            }
        }
    }

    /// Pushes what is due, not much longer than to `limit`, until little is left: pages that stay
    /// would be written once more, by the next epoch. A second thread helps with much of it: while
    /// one waits for a device, the other one copies.
    fn push_until(&self, limit: Instant) -> Result<()> {
        let files = self.store.fs();
        let limit = limit.min(Instant::now() + PUSHING);
        let push = || files.push_due(|| Instant::now() > limit);
        loop {
            let passing = files.core().passing_pages();
            if passing < MUCH {
                push()?;
            } else {
                std::thread::scope(|scope| {
                    // Without it the calling one does all.
                    let other = Builder::new().spawn_scoped(scope, || push().is_ok());
                    let pushed = push();
                    drop(other);
                    pushed.map(drop)
                })?;
            }
            let left = files.core().passing_pages();
            // Nobody can push what somebody is writing over and over again.
            if left < FEW || left >= passing || Instant::now() > limit {
                return Ok(());
            }
        }
    }

    /// Lets the core grow before those who work need that: they would wait until the host has given
    /// memory, and zeroed it.
    fn grow_ahead(&self) {
        // Who needs what can't be had meets the same error.
        let (Ok(_) | Err(_)) = self.store.fs().core().run(|tx| tx.provide(PAGES_AHEAD));
    }

    /// Writes a checkpoint, if the log is long. Meanwhile large files are pushed, and trimmed, so
    /// that neither the core nor the cache gets full.
    fn checkpoint_if_long(&self) -> Result<()> {
        let Some(image) = &self.image else {
            return Ok(());
        };
        let root = image.root()?;
        if (root.log_end - root.log_start) * 512 <= LOG_LONG {
            return Ok(());
        }
        let core = self.store.fs().core();
        let (mut found, mut outcome) = (None, Ok(()));
        image.checkpoint_beside(core, || {
            if outcome.is_ok() {
                outcome = self.push_and_trim(&mut found);
            }
        })?;
        outcome
    }

    /// Pushes, if there is much of it, and trims what was `found` before, if it is durable that
    /// nobody needs it; then there is more to be found.
    fn push_and_trim(&self, found: &mut Option<(Unneeded, u64)>) -> Result<()> {
        let (files, core) = (self.store.fs(), self.store.fs().core());
        if core.passing_pages() >= MUCH {
            self.push_until(Instant::now() + BETWEEN)?;
        }
        if let Some((unneeded, _)) = found.take_if(|(_, next)| core.durable() >= *next) {
            files.trim_unneeded(unneeded)?;
        }
        if found.is_none() {
            let unneeded = files.unneeded()?;
            *found = Some((unneeded, core.next_sequence()));
        }
        Ok(())
    }
}
