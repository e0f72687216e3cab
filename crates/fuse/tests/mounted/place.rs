//! A file system in memory, mounted where nobody else sees it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conquest_fuse::{MountOptions, Mounted, Notifier, Session, SessionOptions, Stopper, mount};
use conquest_peers::machine;
use rustix::mount::MountFlags;

use crate::memory::Memory;

/// How long a test may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Who is nobody in particular, and his group.
pub(crate) const NOBODY: (u32, u32) = (65_534, 65_534);
/// Where everything happens: a place that each machine has, and that the test covers.
const PLACE: &str = "/tmp";

/// Runs `work` in a process of its own, with mounts of its own, in an empty directory that
/// everybody may write to. Nothing is left of it.
pub(crate) fn in_place(work: impl FnOnce(&Path)) {
    machine::in_child(LIMIT, || {
        machine::unshare_mounts();
        rustix::mount::mount("tmpfs", PLACE, "tmpfs", MountFlags::empty(), c"mode=1777").unwrap();
        work(Path::new(PLACE));
        String::new()
    });
}

/// A new directory.
pub(crate) fn directory(place: &Path, name: &str) -> PathBuf {
    let directory = place.join(name);
    std::fs::create_dir(&directory).unwrap();
    directory
}

/// A mounted file system, served by threads of this process.
pub(crate) struct Served {
    pub(crate) memory: Arc<Memory>,
    pub(crate) mounted: Mounted,
    pub(crate) stopper: Stopper,
    pub(crate) notifier: Notifier,
    reports: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

/// The options of a mount that tests make.
pub(crate) fn plain() -> MountOptions {
    MountOptions::new("memory", "source")
}

/// Mounts `memory`, and serves it.
pub(crate) fn serve(directory: &Path, options: &MountOptions, memory: Memory) -> Served {
    let (device, mounted) = mount(directory, options).unwrap_or_else(|error| panic!("{error}"));
    let memory = Arc::new(memory);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reports);
    let options = SessionOptions::default()
        .report(move |incident| told.lock().unwrap().push(incident.to_string()));
    let session = Session::new(device, Arc::clone(&memory), options);
    let (stopper, notifier) = (session.stopper(&mounted), session.notifier());
    let thread = std::thread::spawn(move || session.run().unwrap());
    Served { memory, mounted, stopper, notifier, reports, thread }
}

impl Served {
    /// What was reported since this was last asked.
    pub(crate) fn reports(&self) -> Vec<String> {
        std::mem::take(&mut *self.reports.lock().unwrap())
    }

    /// Waits until the session has ended by itself, with nothing more to report.
    pub(crate) fn ends(self) {
        assert!(self.stopper.wait(Duration::from_secs(20)), "the session goes on");
        assert_eq!(self.reports(), Vec::<String>::new());
        self.thread.join().unwrap();
        assert_eq!(self.memory.destroyed.load(std::sync::atomic::Ordering::SeqCst), 1);
    }

    /// Unmounts, which nobody may hinder, and waits for the end.
    pub(crate) fn unmount(self) {
        self.mounted.unmount(false).unwrap();
        self.ends();
    }
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}: not so after 20 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}
