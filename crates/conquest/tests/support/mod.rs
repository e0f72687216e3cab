//! What the tests of stores share: places of their own, stores, files in them.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

pub mod host;
pub mod large;
pub mod roles;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conquest::{Attach, Fs, NewStore, RestoreOptions, Store};
use conquest_access::{Capabilities, Removal};
use conquest_fs::content::WriteAt;
use conquest_fs::dir::FileType;
use conquest_fs::names::{LISTED_MAX, New};
use conquest_fs::walk::PATH_MAX;
use conquest_fs::{Credentials, FileId};
use conquest_testkit::Rng;

/// Places of this process's tests that are there.
static PLACES: Mutex<u32> = Mutex::new(0);

/// A directory that is gone at the end, with the cores of the stores in it.
pub struct Temporary(PathBuf);

impl Temporary {
    fn new(parent: &Path, name: &str) -> Temporary {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conquest-test-{name}-{}-{number}", std::process::id());
        let path = parent.join(name);
        *PLACES.lock().unwrap() += 1;
        std::fs::create_dir(&path).unwrap();
        Temporary(path)
    }

    /// One on the disk.
    pub fn on_disk(name: &str) -> Temporary {
        let made = Temporary::new(Path::new("/var/tmp"), name);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_tmpfs = |at: &str| {
            let mut lines = mounts.lines().filter(|line| line.split(' ').nth(4) == Some(at));
            lines.any(|line| line.contains(" - tmpfs "))
        };
        assert!(!is_tmpfs("/var/tmp") && !is_tmpfs("/var"), "/var/tmp must be on a disk");
        made
    }

    /// One in shared memory.
    pub fn in_memory(name: &str) -> Temporary {
        Temporary::new(Path::new("/dev/shm"), name)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            // Cores that are elsewhere go too, and what is left of them.
            if let Ok(core) = std::fs::read_link(entry.path().join("core")) {
                let _ = std::fs::remove_file(core.with_extension("partial"));
                let _ = std::fs::remove_file(core);
            }
            for index in indexes(&entry.path()) {
                let _ = std::fs::remove_file(index);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
        // A test that has failed must not make others fail here.
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        *places -= 1;
        if *places == 0 {
            // Only when it is empty, so that nothing else loses its core.
            let _ = std::fs::remove_dir(private());
        }
    }
}

/// Where the cores of this user's stores are.
pub fn private() -> PathBuf {
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    Path::new("/dev/shm").join(format!("conquest-{user}"))
}

/// The indexes that the volume of the store in `directory` has in memory.
pub fn indexes(directory: &Path) -> Vec<PathBuf> {
    let settings = std::fs::read_to_string(directory.join("store.toml")).unwrap_or_default();
    let Some(uuid) = settings.split("[volume]").nth(1).and_then(|text| text.split('"').nth(1))
    else {
        return Vec::new();
    };
    let uuid = uuid.replace('-', "");
    let all = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_string_lossy().contains(&uuid)).collect()
}

/// A small store.
pub fn small() -> NewStore {
    NewStore {
        size_max: 32 << 20,
        size: 2 << 20,
        lanes: 4,
        slots: 16,
        locks: 64,
        volume: None,
        ..NewStore::default()
    }
}

/// Somebody who may do everything.
pub fn who() -> Credentials<'static> {
    Credentials {
        fsuid: 0,
        fsgid: 0,
        groups: &[],
        capabilities: Capabilities::ALL,
        umask: 0,
        namespace: None,
    }
}

/// Makes a file in the root directory.
pub fn write_file(fs: &Fs, name: &str, bytes: &[u8]) {
    write_in(fs, fs.root(), name, bytes);
}

/// Makes a file in `directory`, or writes to the one that is there.
pub fn write_in(fs: &Fs, directory: FileId, name: &str, bytes: &[u8]) {
    let file = match fs.lookup(&who(), directory, name.as_bytes()).unwrap() {
        Some((file, _)) => file,
        None => fs.create(&who(), directory, name.as_bytes(), New::Regular, 0o644).unwrap(),
    };
    let (_, written) = fs.write(&who(), file, WriteAt::Offset(0), bytes).unwrap();
    assert_eq!(written, bytes.len() as u64);
}

/// The names in the root directory.
pub fn names(fs: &Fs) -> Vec<String> {
    tree(fs).into_keys().filter(|path| !path.contains('/')).collect()
}

/// What is seen of a file: mode, links, owner, size, times, generation and content.
pub type Seen = ([u64; 5], [i64; 4], u64, Vec<u8>);

/// All files, by their paths.
pub fn tree(fs: &Fs) -> BTreeMap<String, Seen> {
    let mut found = BTreeMap::new();
    let mut left = vec![(fs.root(), String::new())];
    while let Some((directory, path)) = left.pop() {
        let mut cookie = 2;
        let mut room = [0; LISTED_MAX];
        while let Some(entry) = fs.list(directory, cookie, &mut room).unwrap().next() {
            cookie = entry.cookie;
            let (file, kind) = fs.lookup(&who(), directory, entry.name).unwrap().unwrap();
            let path = format!("{path}{}", std::str::from_utf8(entry.name).unwrap());
            let stat = fs.stat(file).unwrap();
            let mut content = Vec::new();
            match kind {
                FileType::Directory => left.push((file, format!("{path}/"))),
                FileType::Symlink => {
                    content.resize(PATH_MAX, 0);
                    let len = fs.read_link(file, &mut content).unwrap();
                    content.truncate(len);
                }
                FileType::Regular => {
                    content.resize(stat.size as usize, 0);
                    assert_eq!(fs.read_file(file, 0, &mut content).unwrap(), content.len());
                }
                _ => {}
            }
            let numbers = [stat.mode, stat.links, stat.uid, stat.gid].map(u64::from);
            let [mode, links, uid, gid] = numbers;
            let times = [stat.mtime, stat.ctime, stat.atime, stat.btime];
            let seen = ([mode, links, uid, gid, stat.size], times, file.generation, content);
            found.insert(path, seen);
        }
    }
    found
}

/// Puts files and directories of many sizes into the store, different ones for each `seed`.
pub fn populate(fs: &Fs, seed: u64, files: u64) {
    let mut rng = Rng::new(seed);
    let mut directory = fs.root();
    for number in 0..files {
        let name = format!("{seed}-{number}");
        match rng.below(8) {
            0 => {
                let made = fs.create(&who(), fs.root(), name.as_bytes(), New::Directory, 0o755);
                directory = made.unwrap();
            }
            1 => {
                let what = New::Symlink(b"a target");
                fs.create(&who(), directory, name.as_bytes(), what, 0o777).unwrap();
            }
            size => {
                let most = [10, 100, 3000, 20_000, 100_000, 300_000, 5000][size as usize - 1];
                let bytes: Vec<u8> = (0..rng.below(most)).map(|_| rng.below(256) as u8).collect();
                write_in(fs, directory, &name, &bytes);
            }
        }
    }
    // Holes, so that not all pages in a row are in use.
    for number in (0..files).step_by(3) {
        let name = format!("{seed}-{number}");
        let _ = fs.remove(&who(), fs.root(), name.as_bytes(), Removal::File);
    }
}

/// Checks every rule of the file system.
pub fn check(fs: &Fs) {
    assert_eq!(fs.check().unwrap().findings, []);
}

/// Attaches a store that must be all right.
pub fn attach(directory: &Path) -> Store {
    Store::attach(directory, &Attach::default()).unwrap()
}

/// Restores whatever is lost.
pub fn forced() -> RestoreOptions<'static> {
    RestoreOptions { force: true, ..RestoreOptions::default() }
}

// --- other processes -----------------------------------------------------------------------------

/// Says to a child what it is to do.
const ROLE: &str = "CONQUEST_TEST_ROLE";
/// What separates words of a role.
const SEPARATOR: &str = "\u{1f}";

/// The role of this process, if it is a child: its words.
pub fn role() -> Option<Vec<String>> {
    let role = std::env::var(ROLE).ok()?;
    Some(role.split(SEPARATOR).map(str::to_owned).collect())
}

/// A command that runs this test program as a child with a role; it has a test `as_child` for that.
pub fn child(role: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role.join(SEPARATOR));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits for a child, at most a minute: whether it succeeded.
pub fn ends_well(mut child: Child) -> bool {
    let limit = Instant::now() + Duration::from_secs(60);
    while Instant::now() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("a child has not ended in a minute");
}

/// Kills a child and waits for it.
pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits, at most a minute, until `path` is there.
pub fn await_file(path: &Path) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < limit, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A path as a word of a role.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Starts a child with a role.
pub fn start(role: &[&str]) -> Child {
    child(role).spawn().unwrap()
}

/// A store with files of a few megabytes, and what is in it.
pub fn filled(directory: &Path) -> BTreeMap<String, Seen> {
    Store::make(directory, &small()).unwrap();
    let store = attach(directory);
    populate(store.fs(), 7, 60);
    for number in 0..3 {
        write_file(store.fs(), &format!("large {number}"), &vec![number; 3 << 20]);
    }
    let found = tree(store.fs());
    store.detach().unwrap();
    found
}

/// Where the core of a store is that has it elsewhere.
pub fn core_of(directory: &Path) -> PathBuf {
    std::fs::read_link(directory.join("core")).unwrap()
}
