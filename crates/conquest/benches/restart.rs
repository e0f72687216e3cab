//! What a restart of the machine costs: how long it takes, after a power cut, to attach a store
//! whose core is in RAM and on a volume, to ask for the first file, to read a file, and until all
//! of the core is there.
//!
//! `cargo bench -p conquest --bench restart -- [--size BYTES] [--files COUNT] [--cuts COUNT]
//! [PLACE]`
//!
//! The store is made in PLACE, a directory on a disk, `/var/tmp` if none is named, and removed. It
//! has files of `size / files` bytes, in directories of 1,000. Before each cut the kernel is asked
//! to forget what it has of the volume. Beside it stands what reading as many bytes of the volume's
//! file takes, one after the other: the device's bandwidth.
// It fails as tests do.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use conquest::{Attach, KeeperProgram, NewStore, Placement, Store, VolumePlace};
use conquest_testkit::Rng;
use rustix::fs::{Advice, fadvise};

/// Files in a directory.
const TOGETHER: u64 = 1000;
/// The role of a process that is the store's keeper.
const KEEP: &str = "keep";

struct Plan {
    size: u64,
    files: u64,
    cuts: u64,
    place: PathBuf,
}

fn plan() -> Plan {
    let place = PathBuf::from("/var/tmp");
    let mut plan = Plan { size: 32 << 20, files: 4000, cuts: 3, place };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().unwrap().parse().unwrap();
        match word.as_str() {
            "--size" => plan.size = number(),
            "--files" => plan.files = number(),
            "--cuts" => plan.cuts = number(),
            // What cargo says.
            "--bench" => {}
            path => plan.place = PathBuf::from(path),
        }
    }
    plan
}

fn name(number: u64) -> String {
    format!("/{}/{number}", number / TOGETHER)
}

fn attach(directory: &Path) -> Store {
    let how = Attach {
        keeper: KeeperProgram::None,
        keep_from_swap: false,
        patience: Duration::from_secs(600),
        ..Attach::default()
    };
    Store::attach(directory, &how).unwrap()
}

fn make(directory: &Path, plan: &Plan) -> u64 {
    // What does not share a page with others takes pages.
    let each = (plan.size / plan.files.max(1)).next_multiple_of(4096) + 1024;
    let core = plan.files * each + (32 << 20);
    let new = NewStore {
        size_max: core + core / 4,
        volume: Some(VolumePlace::Size(core * 2 + (128 << 20))),
        placement: Placement { threshold: 1 << 30, ..Placement::default() },
        ..NewStore::default()
    };
    Store::make(directory, &new).unwrap();
    let store = attach(directory);
    let mut keeper = keeper(directory);
    let (files, len) = (store.files().unwrap(), plan.size / plan.files.max(1));
    let bytes = vec![7; len as usize];
    for number in 0..plan.files {
        if number.is_multiple_of(TOGETHER) {
            files.create_dir(format!("/{}", number / TOGETHER)).unwrap();
        }
        files.write(name(number), &bytes).unwrap();
    }
    drop(files);
    store.detach().unwrap();
    keeper.wait().unwrap();
    len
}

/// Takes away what is in RAM, and what the kernel has of the volume.
fn cut(directory: &Path) {
    let settings = std::fs::read_to_string(directory.join("store.toml")).unwrap();
    let uuid = settings.split("[volume]").nth(1).and_then(|text| text.split('"').nth(1));
    let uuid = uuid.unwrap().replace('-', "");
    std::fs::remove_file(std::fs::canonicalize(directory.join("core")).unwrap()).unwrap();
    for entry in std::fs::read_dir("/dev/shm").unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(&uuid) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let volume = File::open(directory.join("volume")).unwrap();
    volume.sync_all().unwrap();
    fadvise(&volume, 0, None, Advice::DontNeed).unwrap();
}

/// A process that is the keeper.
fn keeper(directory: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    Command::new(program).arg0("keeper").arg(KEEP).arg(directory).spawn().unwrap()
}

/// How long it takes to read `len` bytes of the volume's file, which the kernel does not have.
fn reading(directory: &Path, len: u64) -> Duration {
    let volume = File::open(directory.join("volume")).unwrap();
    fadvise(&volume, 0, None, Advice::DontNeed).unwrap();
    let mut buffer = vec![0; 2 << 20];
    let since = Instant::now();
    let mut at = 0;
    while at < len {
        let read = volume.read_at(&mut buffer, at).unwrap() as u64;
        at += if read == 0 { len } else { read };
    }
    since.elapsed()
}

/// One cut, and what it costs.
fn measure(directory: &Path, plan: &Plan, len: u64, rng: &mut Rng) {
    let mut random = || name(rng.below(plan.files));
    cut(directory);
    let since = Instant::now();
    let store = attach(directory);
    let attached = since.elapsed();
    let files = store.files().unwrap();
    assert_eq!(files.metadata(random()).unwrap().len(), len);
    let first_stat = since.elapsed();
    assert_eq!(files.read(random()).unwrap().len() as u64, len);
    let first_read = since.elapsed();
    let progress = store.info().volume.unwrap().loading;
    let total = progress.map_or(0, |progress| progress.total);
    let resident = progress.map_or(0, |progress| progress.resident);
    let begun = Instant::now();
    let mut keeper = keeper(directory);
    while store.fs().core().memory().progress().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let whole = begun.elapsed();
    drop(files);
    store.detach().unwrap();
    keeper.wait().unwrap();
    let bare = reading(directory, total - resident);
    println!(
        "attached {attached:.1?}, first stat {first_stat:.1?}, first read {first_read:.1?}; then \
         {} of {} MiB in {whole:.1?}; reading as much of the file {bare:.1?}",
        (total - resident) >> 20,
        total >> 20
    );
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == KEEP) {
        conquest::keep(Path::new(&words[2])).unwrap();
        return;
    }
    let plan = plan();
    let directory = plan.place.join(format!("conquest-restart-{}", std::process::id()));
    let since = Instant::now();
    let len = make(&directory, &plan);
    println!("{} files of {len} bytes, made in {:.1?}", plan.files, since.elapsed());
    let mut rng = Rng::new(1);
    for _ in 0..plan.cuts {
        measure(&directory, &plan, len, &mut rng);
    }
    Store::destroy(&directory, Duration::from_secs(60)).unwrap();
}
