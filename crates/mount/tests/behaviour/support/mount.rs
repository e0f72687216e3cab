//! A store that is mounted, and the process that serves it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use conquest::{Attach, CorePlace, NewStore, Store};
use conquest_fsck::{Finding, Severity};
use conquest_fuse::{MountOptions, Session, SessionOptions};
use conquest_mount::{Options, Server};
use conquest_peers::child::{Child, end_with_parent, fork};
use conquest_peers::machine::{LIMIT, in_child, unshare_mounts};
use conquest_peers::mounts;
use conquest_peers::process::Process;

use super::SOON;

/// A store for tests.
pub(crate) fn small() -> NewStore {
    NewStore {
        size_max: 48 << 20,
        size: 4 << 20,
        lanes: 16,
        slots: 32,
        locks: 64,
        volume: None,
        ..NewStore::default()
    }
}

/// An empty directory, removed at the end.
struct Empty(PathBuf);

impl Empty {
    fn new() -> Empty {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mount-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Empty(path)
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        let (Ok(()) | Err(_)) = std::fs::remove_dir(&self.0);
    }
}

/// Does `work` in a process of its own, in the root of a store that is mounted: what it says.
pub(crate) fn mounted(work: impl FnOnce(&mut Mount) -> String) -> String {
    mounted_as(small(), work)
}

/// The same with a store as `new` says.
pub(crate) fn mounted_as(new: NewStore, work: impl FnOnce(&mut Mount) -> String) -> String {
    let place = Empty::new();
    in_child(LIMIT, || {
        unshare_mounts();
        mounts::mount_memory(&place.0, c"mode=755,size=256m").unwrap();
        let store = place.0.join("store");
        let core = CorePlace::Path(place.0.join("core"));
        Store::make(&store, &NewStore { core, ..new }).unwrap();
        let mut mount = Mount::new(&place.0, "mount");
        let said = work(&mut mount);
        mount.end();
        said
    })
}

/// A store that is mounted, and the process that serves it.
pub(crate) struct Mount {
    place: PathBuf,
    at: PathBuf,
    server: Option<(Child, Process)>,
    /// Whether nothing is expected of the store any more.
    is_lost: bool,
    /// Whether a server was killed.
    was_killed: bool,
}

impl Mount {
    /// Mounts the store in `place` at the directory `name` there, which is the working directory
    /// then.
    pub(crate) fn new(place: &Path, name: &str) -> Mount {
        let at = place.join(name);
        std::fs::create_dir_all(&at).unwrap();
        let mut mount =
            Mount { place: place.to_owned(), at, server: None, is_lost: false, was_killed: false };
        mount.start();
        mount
    }

    /// Where it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// The file system in memory in which all is.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// The store.
    pub(crate) fn store(&self) -> PathBuf {
        self.place.join("store")
    }

    /// The core.
    pub(crate) fn core(&self) -> PathBuf {
        self.place.join("core")
    }

    /// The server's process id.
    pub(crate) fn server(&self) -> u32 {
        self.server.as_ref().unwrap().0.number()
    }

    /// What the server has told, a line for each.
    pub(crate) fn events(&self) -> String {
        std::fs::read_to_string(self.events_path()).unwrap()
    }

    fn events_path(&self) -> PathBuf {
        self.at.with_extension("events")
    }

    /// Mounts it, and makes its root the working directory. Nothing of it may be in use.
    pub(crate) fn start(&mut self) {
        assert!(self.server.is_none(), "it is mounted");
        let (mut line, theirs) = UnixStream::pair().unwrap();
        line.set_read_timeout(Some(SOON)).unwrap();
        let events = File::create(self.events_path()).unwrap();
        let (store, at) = (self.store(), self.at.clone());
        std::env::set_current_dir("/").unwrap();
        let child = fork(|| {
            end_with_parent();
            serve(&store, &at, theirs, events);
        });
        let process = Process::find(child.number());
        self.server = Some((child, process));
        let ready = line.read_exact(&mut [0]);
        assert!(ready.is_ok(), "the server has not mounted: {ready:?} {}", self.events());
        std::env::set_current_dir(&self.at).unwrap();
    }

    /// Unmounts it, after which nothing of it is in use: the server ends well, and has told of
    /// nothing.
    pub(crate) fn stop(&mut self) {
        let told = self.stop_after_trouble();
        assert_eq!(told, "", "the server has told of this");
    }

    /// Unmounts it, which ends the server well: what it has told.
    pub(crate) fn stop_after_trouble(&mut self) -> String {
        std::env::set_current_dir("/").unwrap();
        let unmounted = mounts::unmount(&self.at, false);
        assert_eq!(unmounted, Ok(()), "unmount; the server has told: {}", self.events());
        // Who is dropped is killed, so this one stays until the server has ended.
        let (child, process) = self.server.take().unwrap();
        child.wait();
        drop(process);
        self.events()
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let (child, process) = self.server.take().unwrap();
        self.was_killed = true;
        process.kill();
        assert_eq!(child.end(), libc::SIGKILL);
    }

    /// Unmounts what has no server any more.
    pub(crate) fn clear(&self) {
        assert!(self.server.is_none(), "it has a server");
        std::env::set_current_dir("/").unwrap();
        assert_eq!(mounts::unmount(&self.at, false), Ok(()));
    }

    /// Checks the store, which nobody has attached.
    pub(crate) fn check(&self) {
        let core = std::fs::read(self.core()).unwrap();
        let options = conquest_fsck::Options::default();
        let report = conquest_fsck::check(core.as_slice(), &options).unwrap();
        // A note says what a death may leave behind.
        let counts = |finding: &&Finding| !self.was_killed || finding.severity() > Severity::Note;
        let findings: Vec<&Finding> = report.findings.iter().filter(counts).collect();
        assert!(findings.is_empty(), "fsck has found: {findings:?}");
    }

    /// Expects nothing of the store any more: the test has spoilt it.
    pub(crate) fn abandon(&mut self) {
        self.is_lost = true;
    }

    /// The end of a test.
    fn end(&mut self) {
        if self.server.is_some() {
            self.stop();
        }
        if !self.is_lost {
            self.check();
        }
    }
}

/// Serves the store at `at` until it is unmounted.
fn serve(store: &Path, at: &Path, mut ready: UnixStream, events: File) {
    let events = Arc::new(Mutex::new(events));
    let tell = |line: String| writeln!(events.lock().unwrap(), "{line}").unwrap();
    let told = Arc::clone(&events);
    let reporter = move |event: conquest_mount::Event<'_>| {
        writeln!(told.lock().unwrap(), "{event:?}").unwrap();
    };
    let told = Arc::clone(&events);
    let session_options = SessionOptions::default().report(move |incident| {
        writeln!(told.lock().unwrap(), "{incident}").unwrap();
    });
    let store = Arc::new(Store::attach(store, &Attach::default()).unwrap());
    let server = Server::new(Arc::clone(&store), Options::default(), Box::new(reporter)).unwrap();
    let mut options = MountOptions::new("conquest", store.directory());
    (options.allow_other, options.default_permissions) = (true, true);
    (options.suid, options.dev) = (true, true);
    let (device, _) = conquest_fuse::mount(at, &options).unwrap();
    let session = Session::new(device, server, session_options);
    ready.write_all(&[1]).unwrap();
    drop(ready);
    if let Err(error) = session.run() {
        tell(format!("{error}"));
    }
    match Arc::into_inner(store).unwrap().detach() {
        Ok(()) => {}
        Err(error) => tell(format!("{error}")),
    }
}
