//! What the test of opening shares: volumes on files, processes that write to them, what each has
//! done, and what may be there after that.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use conquest_flash::device::{Device, FileDevice};
use conquest_flash::{NewVolume, OpenOptions, Volume, create_at, open_device};
use conquest_format::volume::Arrangement;
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::Rng;

pub type TestVolume = Volume<Mapped, OsHost>;

pub const BLOCK: u64 = 512;
const LIMIT: Duration = Duration::from_secs(60);
static NEXT: AtomicU32 = AtomicU32::new(0);

pub fn new_volume() -> NewVolume {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&std::process::id().to_le_bytes());
    uuid[4..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    NewVolume { uuid, created: 1, arrangement: Arrangement::Striped, segment: Some(16) }
}

/// Files with a volume, and a directory for its index; gone when this is dropped.
pub struct Place {
    pub paths: Vec<PathBuf>,
    pub options: OpenOptions,
    files: PathBuf,
    memory: PathBuf,
}

impl Place {
    /// With so many members of `segments` segments of 64 KiB.
    pub fn new(members: u32, segments: u64) -> Place {
        let name =
            format!("volume-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let files = std::env::temp_dir().join(&name);
        std::fs::create_dir(&files).unwrap();
        let paths: Vec<_> = (0..members).map(|member| files.join(format!("{member}"))).collect();
        for path in &paths {
            FileDevice::create(path, (segments + 2) << 16, 0o600, &mut |_| {}).unwrap();
        }
        create_at(&paths, &new_volume(), false).unwrap();
        Place::of(paths, options(&name), files)
    }

    fn of(paths: Vec<PathBuf>, options: OpenOptions, files: PathBuf) -> Place {
        Place { paths, memory: options.directory.clone(), options, files }
    }

    /// The same volume, for those who have another place for its index.
    pub fn elsewhere(&self) -> Place {
        let name =
            format!("volume-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let files = std::env::temp_dir().join(&name);
        std::fs::create_dir(&files).unwrap();
        Place::of(self.paths.clone(), options(&name), files)
    }

    pub fn open(&self) -> conquest_flash::Result<TestVolume> {
        TestVolume::open(&self.paths, &self.options)
    }

    /// The files in the directory for indices.
    pub fn indices(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.options.directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.to_str().unwrap().contains("conquest-volume-")).collect()
    }

    /// What a child is told that does `what` with the volume.
    pub fn role(&self, what: &str) -> Vec<String> {
        let mut words = vec![what.to_owned(), self.options.directory.to_str().unwrap().to_owned()];
        words.push(self.paths.len().to_string());
        words.extend(self.paths.iter().map(|path| path.to_str().unwrap().to_owned()));
        words
    }
}

/// Whoever the children are, they can get at it.
fn options(name: &str) -> OpenOptions {
    use std::os::unix::fs::PermissionsExt;
    let directory = Path::new("/dev/shm").join(name);
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o1777)).unwrap();
    OpenOptions { directory, ..OpenOptions::default() }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.memory);
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

// --- children ------------------------------------------------------------------------------------

const ROLE: &str = "CONQUEST_TEST_ROLE";
const SEPARATOR: &str = "\u{1f}";

pub fn role() -> Option<Vec<String>> {
    let role = std::env::var(ROLE).ok()?;
    Some(role.split(SEPARATOR).map(str::to_owned).collect())
}

pub fn child(role: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "as_child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role.join(SEPARATOR));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A child that is not to fail: it can be seen why if it does.
pub fn start(role: &[String]) -> Child {
    child(role).stderr(Stdio::inherit()).spawn().unwrap()
}

pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits for a child, at most a minute: whether it succeeded.
pub fn ends_well(mut child: Child) -> bool {
    let limit = Instant::now() + LIMIT;
    while Instant::now() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(child);
    panic!("a child has not ended in a minute");
}

/// What a child does.
pub fn run(words: &[String]) {
    let [what, directory, count, rest @ ..] = words else { panic!("{words:?}") };
    let (paths, rest) = rest.split_at(count.parse().unwrap());
    let options = OpenOptions { directory: directory.into(), ..OpenOptions::default() };
    let open = || TestVolume::open(paths, &options).unwrap();
    if what == "crowd" {
        // In a process that starts no others: those would have its locks for a moment.
        (0..20).for_each(|_| close_at_once((0..4).map(|_| open()).collect()));
        return;
    }
    let volume = open();
    match what.as_str() {
        "touch" => volume.close().unwrap(),
        "leave" => drop(volume),
        "storm" => {
            let number = |index: usize| rest[index].parse().unwrap();
            write_until_stopped(volume, Path::new(directory), number(0), number(1));
        }
        other => panic!("{other}"),
    }
}

fn close_at_once(volumes: Vec<TestVolume>) {
    let index = volumes[0].index().unwrap().to_owned();
    std::thread::scope(|scope| {
        for volume in volumes {
            scope.spawn(|| volume.close().unwrap());
        }
    });
    assert!(!index.exists());
}

// --- what was done -------------------------------------------------------------------------------

/// Blocks that are written, in halves: the first is shared, of the second each process has a part.
const SPACE: u64 = 4096;
const PARTS: u64 = 8;
const OWN: u64 = SPACE / 2 / PARTS;

/// The bytes of a block that was written as number `number`, which is not 0.
pub fn block_of(block: u64, number: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    let mut rng = Rng::new(block << 40 ^ number);
    for (index, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = if index == 0 { number } else { rng.word() }.to_le_bytes();
    }
    bytes
}

/// The number of what is in block `block`: 0 for a hole.
fn number_of(block: u64, bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let is_right = bytes == block_of(block, number) || bytes.iter().all(|&byte| byte == 0);
    assert!(is_right, "block {block} is neither a hole nor what was written as {number:#x}");
    number
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Kind {
    Write,
    Trim,
    Flush,
    Done,
}

/// Appends a line of what is done; whatever happens to the process then, it is there.
fn note(log: &mut File, kind: Kind, block: u64, count: u64, number: u64) {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let time = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let words = [kind as u64, block, count, number, time];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    log.write_all(&bytes).unwrap();
}

fn write_until_stopped(volume: TestVolume, directory: &Path, who: u64, part: u64) {
    let log = directory.join(format!("log-{who}"));
    let mut log = File::options().create_new(true).append(true).open(log).unwrap();
    let limit = Instant::now() + LIMIT;
    let mut rng = Rng::new(who);
    for number in 1.. {
        if Instant::now() > limit || directory.join(format!("stop-{who}")).exists() {
            break;
        }
        let number = who << 32 | number;
        let (first, space) = match rng.below(2) {
            0 => (0, SPACE / 2),
            _ => (SPACE / 2 + part * OWN, OWN),
        };
        let block = rng.below(space);
        let most = if rng.below(8) == 0 { 200 } else { 20 };
        let count = (1 + rng.below(most)).min(space - block);
        let block = first + block;
        match rng.below(20) {
            0 => {
                note(&mut log, Kind::Flush, 0, 0, number);
                volume.flush().unwrap();
            }
            1 => {
                note(&mut log, Kind::Trim, block, count, number);
                volume.trim(block, count).unwrap();
            }
            2..5 => {
                let mut bytes = vec![0; (count * BLOCK) as usize];
                volume.read(block, &mut bytes).unwrap();
                for (block, bytes) in (block..).zip(bytes.chunks(BLOCK as usize)) {
                    number_of(block, bytes);
                }
                continue;
            }
            _ => {
                let bytes: Vec<u8> =
                    (block..block + count).flat_map(|block| block_of(block, number)).collect();
                note(&mut log, Kind::Write, block, count, number);
                volume.write(block, &bytes).unwrap();
            }
        }
        note(&mut log, Kind::Done, 0, 0, number);
    }
    volume.close().unwrap();
}

/// Something that was done to a range.
#[derive(Clone, Copy, Debug)]
struct Deed {
    block: u64,
    count: u64,
    /// 0 if it was a trim.
    number: u64,
    begin: u64,
    /// When it can't happen any more.
    end: u64,
    is_done: bool,
}

/// What processes have done.
#[derive(Default)]
struct History {
    deeds: Vec<Deed>,
    /// When each flush began that has succeeded.
    flushes: Vec<u64>,
}

impl History {
    /// Adds what a process has logged that was gone at `gone`.
    fn read(&mut self, log: &Path, gone: u64) {
        // It may have been killed before it wrote anything.
        let bytes = std::fs::read(log).unwrap_or_default();
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|&w| u64::from_le_bytes(w)).collect();
        let mut begun = None;
        for &[kind, block, count, number, time] in words.as_chunks().0 {
            if kind != Kind::Done as u64 {
                begun = Some((
                    kind,
                    Deed { block, count, number, begin: time, end: gone, is_done: false },
                ));
                continue;
            }
            let (kind, deed) = begun.take().unwrap();
            self.add(kind, Deed { end: time, is_done: true, ..deed });
        }
        if let Some((kind, deed)) = begun {
            self.add(kind, deed);
        }
    }

    fn add(&mut self, kind: u64, deed: Deed) {
        match kind {
            kind if kind == Kind::Flush as u64 => {
                self.flushes.extend(deed.is_done.then_some(deed.begin))
            }
            kind if kind == Kind::Trim as u64 => self.deeds.push(Deed { number: 0, ..deed }),
            _ => self.deeds.push(deed),
        }
    }

    /// Checks what is in `volume`: of each block what was done last. With `flushed`, what was done
    /// after the last flush need not be there.
    fn check(&self, volume: &TestVolume, flushed: bool) {
        let mut of_block: BTreeMap<u64, Vec<Deed>> = BTreeMap::new();
        for deed in &self.deeds {
            for block in deed.block..deed.block + deed.count {
                of_block.entry(block).or_default().push(*deed);
            }
        }
        let is_sure = |deed: &Deed| {
            deed.is_done && (!flushed || self.flushes.iter().any(|&begin| begin > deed.end))
        };
        let never = Deed { block: 0, count: 0, number: 0, begin: 0, end: 0, is_done: true };
        for block in 0..SPACE {
            let mut bytes = [0; BLOCK as usize];
            volume.read(block, &mut bytes).unwrap();
            let number = number_of(block, &bytes);
            let deeds = of_block.remove(&block).unwrap_or_default();
            let latest = deeds.iter().filter(|deed| is_sure(deed)).map(|deed| deed.begin).max();
            let may_be = deeds
                .iter()
                .chain([&never])
                .any(|deed| deed.number == number && latest.is_none_or(|begin| begin <= deed.end));
            assert!(may_be, "block {block} has {number:#x} of {deeds:#?}, flushed: {flushed}");
        }
    }
}

/// How long a storm may go on.
const STORM_MAX: Duration = Duration::from_secs(60);

/// Processes that write, of which one after the other is killed.
pub struct Storm {
    place: Place,
    processes: u64,
    rng: Rng,
    next: u64,
    running: Vec<(u64, u64, Child)>,
    history: History,
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.running.drain(..).for_each(|(_, _, child)| kill(child));
    }
}

impl Storm {
    pub fn new(members: u32, processes: u64, seed: u64) -> Storm {
        let place = Place::new(members, 128);
        let history = History::default();
        Storm { place, processes, rng: Rng::new(seed), next: 1, running: Vec::new(), history }
    }

    /// Lets it go on for some `time`, and longer where that was too short for what is to be seen.
    pub fn run(mut self, time: Duration) {
        let begin = Instant::now();
        let mut deaths = 0;
        let is_enough = |deaths, deeds| deaths > 10 && deeds > 500;
        while begin.elapsed() < time
            || !is_enough(deaths, self.history.deeds.len()) && begin.elapsed() < STORM_MAX
        {
            while (self.running.len() as u64) < self.processes {
                self.start();
            }
            std::thread::sleep(Duration::from_millis(5 + self.rng.below(80)));
            let victim = self.rng.below(self.running.len() as u64) as usize;
            // Sometimes nobody is left for a moment; sometimes the last one has closed it.
            match self.rng.below(12) {
                0 => (0..self.running.len()).for_each(|_| self.end(0, true)),
                1 => (0..self.running.len()).for_each(|_| self.end(0, false)),
                2 => self.end(victim, false),
                _ => self.end(victim, true),
            }
            deaths += 1;
        }
        while !self.running.is_empty() {
            self.end(0, true);
        }
        let deeds = self.history.deeds.len();
        assert!(is_enough(deaths, deeds), "{deaths} deaths, {deeds} deeds");
        let volume = self.place.open().unwrap();
        self.history.check(&volume, false);
        drop(volume);
        // As after a restart of the machine.
        self.place.indices().iter().for_each(|index| std::fs::remove_file(index).unwrap());
        let volume = self.place.open().unwrap();
        self.history.check(&volume, true);
        volume.close().unwrap();
        assert_eq!(self.place.indices().len(), 0);
    }

    fn start(&mut self) {
        let parts = self.running.iter().map(|&(_, part, _)| part).collect::<Vec<_>>();
        let part = (0..PARTS).find(|part| !parts.contains(part)).unwrap();
        let mut role = self.place.role("storm");
        role.extend([self.next.to_string(), part.to_string()]);
        self.running.push((self.next, part, start(&role)));
        self.next += 1;
    }

    /// Ends a process: kills it, or lets it close the volume.
    fn end(&mut self, index: usize, is_killed: bool) {
        let (who, _, mut running) = self.running.remove(index);
        let directory = self.place.options.directory.clone();
        if is_killed {
            assert!(running.try_wait().unwrap().is_none(), "process {who} has failed");
            kill(running);
        } else {
            File::create(directory.join(format!("stop-{who}"))).unwrap();
            assert!(ends_well(running), "process {who} has failed");
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        self.history.read(&directory.join(format!("log-{who}")), now);
    }
}

/// Has `device` for himself, if nobody else has. A child of another test has a part in each open
/// file until it runs its program: that is waited for.
#[track_caller]
pub fn claim(device: &FileDevice) -> impl Sized + use<> {
    let limit = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(alone) = device.claim_exclusively().unwrap() {
            return alone;
        }
        assert!(Instant::now() < limit, "{} is somebody's", device.name().display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether somebody has the device at `path` for himself.
pub fn is_locked(path: &Path) -> bool {
    open_device(path).unwrap().claim_exclusively().unwrap().is_none()
}

/// Does `what` in a thread, and sees that it has the device at `path` for itself from some moment
/// on, until it has ended or `seen` is done.
pub fn with_lock<T: Send>(path: &Path, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let doing = scope.spawn(what);
        let limit = Instant::now() + Duration::from_secs(20);
        while !is_locked(path) {
            assert!(!doing.is_finished() && Instant::now() < limit, "{}", path.display());
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(is_locked(path) || doing.is_finished(), "{} is not kept", path.display());
        doing.join().unwrap()
    })
}
