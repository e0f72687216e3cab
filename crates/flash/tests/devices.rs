//! Files and block devices. The latter are loop devices, which need root and losetup(8).
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use conquest_flash::device::{Access, Device, FileDevice, WRITERS};
use conquest_testkit::Rng;
use rustix::fs::{MemfdFlags, OFlags, SealFlags, SeekFrom};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
/// What files in tests are for.
const MODE: u32 = 0o600;

/// The name of a file on the disk, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("conquest-flash-{name}-{}", std::process::id());
        Place(Path::new("/var/tmp").join(name))
    }

    fn create(&self, len: u64) -> FileDevice {
        FileDevice::create(&self.0, len, MODE, &mut |_| {}).unwrap()
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(&self.0, Access::Write).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a program that has to succeed; what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let made = Command::new(program).args(arguments).output();
    let made = made.unwrap_or_else(|error| panic!("can't run {program}: {error}"));
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{program} {arguments:?}: {}", said.trim());
    String::from_utf8_lossy(&made.stdout).trim().to_owned()
}

/// A loop device, detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path, options: &[&str]) -> Loop {
        let control = Path::new("/dev/loop-control");
        assert!(control.exists(), "there is no /dev/loop-control (load the kernel module loop)");
        let file = file.to_str().unwrap();
        Loop(run("losetup", &[&["--find", "--show"], options, &[file]].concat()).into())
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(&self.0, Access::Write).unwrap()
    }

    fn number(&self) -> u64 {
        let found = rustix::fs::stat(&self.0).unwrap().st_rdev;
        rustix::fs::minor(found).into()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A file of `len` bytes, and a loop device of it.
fn looped(name: &str, len: u64, options: &[&str]) -> (Loop, Place) {
    let place = Place::new(name);
    File::create_new(&place.0).unwrap().set_len(len).unwrap();
    (Loop::new(&place.0, options), place)
}

/// Waits for what may take a moment: a child that another test has forked has everything that is
/// open, until it executes its program.
fn soon(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "it never comes true");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> Option<i32> {
    outcome.unwrap_err().raw_os_error()
}

fn random(rng: &mut Rng, bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = rng.word() as u8);
}

/// Random transfers at all alignments of memory, compared with a model.
fn is_like_a_model(device: &dyn Device, mut model: Vec<u8>, seed: u64) {
    let mut rng = Rng::new(seed);
    let block = u64::from(device.limits().block);
    let blocks = device.len() / block;
    assert_eq!(model.len() as u64, device.len());
    for _ in 0..400 {
        let at = rng.below(blocks + 1) * block;
        let most = if rng.chance(1, 20) { blocks } else { 40 };
        let len = (rng.below(most + 1) * block).min(device.len() - at) as usize;
        let shift = rng.below(64) as usize;
        let mut memory = vec![0; len + shift];
        let ours = &mut memory[shift..];
        let expected = &mut model[at as usize..at as usize + len];
        if rng.chance(1, 2) {
            random(&mut rng, ours);
            device.write(at, ours).unwrap();
            expected.copy_from_slice(ours);
        } else {
            device.read(at, ours).unwrap();
            assert!(ours == expected, "{len} at {at}");
        }
    }
    device.flush().unwrap();
    let mut all = vec![0; model.len()];
    device.read(0, &mut all).unwrap();
    assert!(all == model);
}

/// What no device takes.
fn keeps_to_limits(device: &dyn Device) {
    let block = device.limits().block as usize;
    let (len, mut memory) = (device.len(), vec![0; 3 * block]);
    for (at, count) in [
        (1, block),
        (0, block - 1),
        (len, block),
        (len - block as u64, 2 * block),
        (u64::MAX - block as u64 + 1, block),
        (u64::MAX - block as u64 + 1, 2 * block),
    ] {
        assert_eq!(errno(device.read(at, &mut memory[..count])), Some(libc::EINVAL));
        assert_eq!(errno(device.write(at, &memory[..count])), Some(libc::EINVAL));
        assert_eq!(errno(device.discard(at, count as u64)), Some(libc::EINVAL));
        assert_eq!(errno(device.is_written(at, count as u64)), Some(libc::EINVAL));
    }
    assert_eq!(errno(device.read_copy(1, 0, &mut memory[..block])), Some(libc::EINVAL));
    device.read(len, &mut []).unwrap();
    device.write(len, &[]).unwrap();
    for outcome in [device.enter(WRITERS), device.is_entered(WRITERS), device.enter(u64::MAX)] {
        assert_eq!(errno(outcome), Some(libc::EINVAL));
    }
}

// --- files ---------------------------------------------------------------------------------------

#[test]
fn a_file_has_all_its_space_written() {
    let place = Place::new("create");
    let len = 2 * MIB + 4096;
    let mut told = Vec::new();
    let device = FileDevice::create(&place.0, len, 0o640, &mut |done| told.push(done)).unwrap();
    assert_eq!(told, [MIB, 2 * MIB, len]);
    assert_eq!(device.len(), len);
    assert_eq!(device.name(), place.0);
    let found = std::fs::metadata(&place.0).unwrap();
    assert_eq!((found.len(), found.permissions().mode() & 0o777), (len, 0o640));
    // Space that is only reserved counts as a hole here, as long as no cache has the zeros.
    assert!(device.is_direct(), "{} is on no disk", place.0.display());
    let file = File::open(&place.0).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap(), len);
    let mut all = vec![1; len as usize];
    device.read(0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 0));
}

#[test]
fn what_can_not_be_made_leaves_nothing() {
    let place = Place::new("refused");
    let mut told = |_| panic!("nothing is done");
    for len in [0, 4095, 512, MIB + 1] {
        let refused = FileDevice::create(&place.0, len, MODE, &mut told);
        assert_eq!(errno(refused), Some(libc::EINVAL), "{len}");
    }
    let refused = errno(FileDevice::create(&place.0, 1 << 50, MODE, &mut told)).unwrap();
    assert!([libc::ENOSPC, libc::EFBIG].contains(&refused));
    assert!(!place.0.exists());
    std::fs::write(&place.0, "somebody's").unwrap();
    // What can't be made anywhere is refused for that.
    for (len, why) in [(MIB, libc::EEXIST), (0, libc::EINVAL), (4095, libc::EINVAL)] {
        let refused = FileDevice::create(&place.0, len, MODE, &mut told);
        assert_eq!(errno(refused), Some(why), "{len}");
    }
    assert_eq!(std::fs::read(&place.0).unwrap(), b"somebody's");
    let nowhere = place.0.join("below");
    assert_eq!(errno(FileDevice::create(&nowhere, MIB, MODE, &mut told)), Some(libc::ENOTDIR));
}

#[test]
fn a_file_keeps_what_is_written() {
    let place = Place::new("model");
    let device = place.create(4 * MIB);
    let limits = device.limits();
    assert!(limits.block >= 512 && limits.physical >= 4096.min(limits.block));
    assert!(limits.is_cached && !limits.discards && limits.erase.is_none());
    keeps_to_limits(&device);
    is_like_a_model(&device, vec![0; 4 * MIB as usize], 1);
    // A part of a block is not used; nothing is discarded.
    drop(device);
    let file = OpenOptions::new().append(true).open(&place.0).unwrap();
    (&file).write_all(&[1; 100]).unwrap();
    let device = place.open();
    assert_eq!(device.len(), 4 * MIB);
    let mut found = vec![0; MIB as usize];
    device.write(0, &vec![7; MIB as usize]).unwrap();
    device.discard(0, MIB).unwrap();
    device.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
}

#[test]
fn only_files_and_block_devices() {
    for path in ["/dev/null", "/var/tmp"] {
        let refused = FileDevice::open(Path::new(path), Access::Read);
        assert_eq!(errno(refused), Some(libc::EINVAL), "{path}");
    }
    let place = Place::new("pipe");
    let path = place.0.to_str().unwrap();
    run("mkfifo", &[path]);
    assert_eq!(errno(FileDevice::open(&place.0, Access::Read)), Some(libc::EINVAL));
    let missing = FileDevice::open(Path::new("/var/tmp/conquest-flash-none"), Access::Read);
    assert_eq!(errno(missing), Some(libc::ENOENT));
}

#[test]
fn who_only_reads_changes_nothing() {
    let place = Place::new("reader");
    let writer = place.create(MIB);
    writer.write(4096, &[5; 4096]).unwrap();
    let reader = FileDevice::open(&place.0, Access::Read).unwrap();
    let mut found = [0; 4096];
    reader.read(4096, &mut found).unwrap();
    assert_eq!(found, [5; 4096]);
    assert_eq!(errno(reader.write(0, &found)), Some(libc::EROFS));
    assert_eq!(errno(reader.discard(0, 4096)), Some(libc::EROFS));
    assert_eq!(errno(reader.enter(0)), Some(libc::EROFS));
    reader.flush().unwrap();
    // But it sees who writes.
    assert!(writer.enter(3).unwrap());
    assert!(reader.is_entered(3).unwrap() && !reader.is_entered(4).unwrap());
    assert!(reader.is_anyone_entered().unwrap());
}

/// A file that has become shorter takes nothing, gives nothing that was not written, and can't be
/// flushed any more.
#[test]
fn a_file_that_has_become_shorter_fails() {
    let place = Place::new("shorter");
    let device = place.create(MIB);
    device.write(0, &vec![1; MIB as usize]).unwrap();
    let other = OpenOptions::new().write(true).open(&place.0).unwrap();
    let block = device.limits().block as usize;
    for len in [MIB / 2, MIB / 2 + 100] {
        other.set_len(len).unwrap();
        let at = MIB / 2 - block as u64;
        for (at, count) in [(at, 2 * block), (MIB / 2, block), (MIB - block as u64, block)] {
            let refused = device.read(at, &mut vec![0; count]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof, "{count} at {at}");
            let refused = device.write(at, &vec![2; count]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof, "{count} at {at}");
        }
        assert_eq!(std::fs::metadata(&place.0).unwrap().len(), len);
    }
    let mut found = vec![0; block];
    device.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
    assert_eq!(device.flush().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    other.set_len(MIB).unwrap();
    assert_eq!(errno(device.flush()), Some(libc::EIO));
    place.open().flush().unwrap();
}

const DIRECTORY: &str = "CONQUEST_FLASH_DIRECTORY";

/// Runs the test `child` in a mount namespace of its own, in which mount(8) with `options` has made
/// a directory of another file system. It has to say that it has come to its end.
fn mounted(options: &str, child: &str) {
    let directory = Place::new(child);
    std::fs::create_dir(&directory.0).unwrap();
    // Who writes more than he may is not to be killed.
    let script = format!(
        "trap '' XFSZ && mount {options} \"$1\" && exec \"$0\" --exact {child} --nocapture"
    );
    let said = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .args([std::env::current_exe().unwrap(), directory.0.clone()])
        .env(DIRECTORY, &directory.0)
        .output()
        .unwrap();
    std::fs::remove_dir(&directory.0).unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("as expected"), "{said:?}");
}

/// A new file where this process, a child, is to have one.
fn file_in_directory() -> Option<FileDevice> {
    let path = Path::new(&std::env::var_os(DIRECTORY)?).join("file");
    Some(FileDevice::create(&path, 4 * MIB, MODE, &mut |_| {}).unwrap())
}

/// A block device that discards nothing keeps what it is told not to be needed.
fn keeps_what_is_discarded(device: &FileDevice) {
    assert!(!device.limits().discards);
    device.write(0, &vec![1; MIB as usize]).unwrap();
    device.discard(0, MIB).unwrap();
    let mut found = vec![0; MIB as usize];
    device.read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
}

/// The child, where nothing goes past the cache.
#[test]
fn as_who_has_only_the_cache() {
    let Some(device) = file_in_directory() else { return };
    assert!(!device.is_direct());
    let limits = device.limits();
    assert!((limits.block, limits.is_cached) == (512, true) && limits.physical >= 4096);
    keeps_to_limits(&device);
    is_like_a_model(&device, vec![0; 4 * MIB as usize], 2);
    // No holes can be made in a file of it.
    keeps_what_is_discarded(&Loop::new(device.name(), &[]).open());
    // What the system takes a part of a block of is an error.
    let len = Some(4096 + 100);
    let limit = rustix::process::Rlimit { current: len, maximum: len };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    assert_eq!(errno(device.write(0, &[1; 8192])), Some(libc::EIO));
    println!("as expected");
}

/// A ramfs takes no `O_DIRECT`.
#[test]
fn a_file_that_can_not_go_past_the_cache_goes_through_it() {
    mounted("-t ramfs none", "as_who_has_only_the_cache");
}

/// The child, whose file is on a device without a cache.
#[test]
fn as_who_needs_no_cache() {
    let Some(device) = file_in_directory() else { return };
    let limits = device.limits();
    assert!(device.is_direct() && limits.is_cached && !limits.discards, "{limits:?}");
    assert_eq!((limits.block, limits.physical), (4096, 4096));
    keeps_to_limits(&device);
    println!("as expected");
}

/// What is written to a file is durable with its metadata only.
#[test]
fn a_file_has_to_be_flushed_even_if_its_device_has_not() {
    let (device, _place) = looped("through", 32 * MIB, &["--sector-size", "4096"]);
    let name = device.0.to_str().unwrap();
    run("mkfs.ext4", &["-q", name]);
    let cache = format!("/sys/dev/block/7:{}/queue/write_cache", device.number());
    std::fs::write(&cache, "write through").unwrap();
    let is_cached = device.open().limits().is_cached;
    let outcome = std::panic::catch_unwind(|| mounted(name, "as_who_needs_no_cache"));
    std::fs::write(&cache, "write back").unwrap();
    outcome.unwrap();
    assert!(!is_cached);
}

/// The child, where the system takes what is to go past the cache, and lets it go through it.
#[test]
fn as_who_is_told_that_nothing_goes_past_the_cache() {
    let Some(device) = file_in_directory() else { return };
    let flags = rustix::fs::fcntl_getfl(&device).unwrap();
    assert!(!device.is_direct() && !flags.contains(OFlags::DIRECT));
    assert_eq!((device.limits().block, device.limits().physical), (512, 4096));
    is_like_a_model(&device, vec![0; 4 * MIB as usize], 4);
    println!("as expected");
}

/// An ext4 whose journal has all data tells so.
#[test]
fn a_file_goes_through_the_cache_where_the_system_says_so() {
    let (device, _place) = looped("journal", 32 * MIB, &[]);
    let name = device.0.to_str().unwrap();
    run("mkfs.ext4", &["-q", name]);
    let options = format!("-o data=journal {name}");
    mounted(&options, "as_who_is_told_that_nothing_goes_past_the_cache");
}

// --- block devices -------------------------------------------------------------------------------

#[test]
fn a_block_device_keeps_what_is_written() {
    for (options, block) in [(&["--sector-size", "512"], 512), (&["--sector-size", "4096"], 4096)] {
        let (device, _place) = looped("block", 4 * MIB, options);
        let opened = device.open();
        assert_eq!((opened.len(), opened.limits().block), (4 * MIB, block));
        assert!(opened.limits().physical >= block && opened.is_direct());
        keeps_to_limits(&opened);
        is_like_a_model(&opened, vec![0; 4 * MIB as usize], 3);
    }
}

/// The kernel's switch between write-back and write-through is what tells of a cache. What is set
/// stays set when the device is another file's.
#[test]
fn a_block_device_tells_of_its_cache_and_of_discarding() {
    let (device, _place) = looped("cache", 4 * MIB, &[]);
    let queue = PathBuf::from(format!("/sys/dev/block/7:{}/queue", device.number()));
    let found = ["write through", "write back"].map(|text| {
        std::fs::write(queue.join("write_cache"), text).unwrap();
        device.open().limits().is_cached
    });
    assert_eq!(found, [false, true]);
    assert!(device.open().limits().discards, "the file system of /var/tmp makes no holes");
}

/// What is said of a disk holds for its partitions, too.
#[test]
fn a_partition_is_like_its_disk() {
    let (device, _place) = looped("partition", 8 * MIB, &["--partscan"]);
    let queue = format!("/sys/dev/block/7:{}/queue/write_cache", device.number());
    // Sectors from the 2048th on.
    run("addpart", &[device.0.to_str().unwrap(), "1", "2048", "8192"]);
    let name = PathBuf::from(format!("{}p1", device.0.display()));
    soon(|| name.exists());
    let found = ["write through", "write back"].map(|text| {
        std::fs::write(&queue, text).unwrap();
        let part = FileDevice::open(&name, Access::Write).unwrap();
        (part.len(), part.limits().is_cached, part.limits().discards)
    });
    assert_eq!(found, [(4 * MIB, false, true), (4 * MIB, true, true)]);
}

/// Blocks of a file that are allocated.
fn allocated(path: &Path) -> u64 {
    rustix::fs::stat(path).unwrap().st_blocks as u64 * 512
}

#[test]
fn what_is_discarded_takes_no_space() {
    let (device, place) = looped("discard", 4 * MIB, &[]);
    let opened = device.open();
    opened.write(0, &vec![1; 4 * MIB as usize]).unwrap();
    opened.flush().unwrap();
    assert_eq!(allocated(&place.0), 4 * MIB);
    // Of the blocks at the ends, only a part.
    opened.discard(MIB + 512, 2 * MIB - 1024).unwrap();
    opened.flush().unwrap();
    assert_eq!(allocated(&place.0), 2 * MIB + 8192);
    // Nothing whole: nothing is done.
    opened.discard(512, 4096).unwrap();
    for (at, len) in [(0, MIB + 4096), (3 * MIB - 4096, MIB + 4096)] {
        let mut found = vec![0; len as usize];
        opened.read(at, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 1));
    }
}

#[test]
fn a_device_that_has_become_smaller_fails() {
    let (device, place) = looped("smaller", 4 * MIB, &[]);
    let opened = device.open();
    opened.write(0, &vec![1; 4 * MIB as usize]).unwrap();
    OpenOptions::new().write(true).open(&place.0).unwrap().set_len(MIB).unwrap();
    run("losetup", &["--set-capacity", device.0.to_str().unwrap()]);
    let mut found = vec![0; 8192];
    for at in [MIB, MIB - 4096, 4 * MIB - 8192] {
        assert_eq!(opened.read(at, &mut found).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        opened.write(at, &found).unwrap_err();
    }
    // Of what reaches over the end, the part before it may have been written.
    let found = &mut found[..4096];
    opened.read(MIB - 8192, found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
    // What is left of it can be used: unlike a file, it does not grow.
    opened.write(0, &[2; 8192]).unwrap();
    opened.flush().unwrap();
    opened.read(4096, found).unwrap();
    assert!(found.iter().all(|byte| *byte == 2));
}

/// The kernel tells an error of writing back once. What comes later knows nothing of it.
#[test]
fn a_failed_flush_is_remembered() {
    let memory = rustix::fs::memfd_create(c"conquest", MemfdFlags::ALLOW_SEALING).unwrap();
    let memory = File::from(memory);
    memory.set_len(MIB).unwrap();
    let path =
        format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&memory));
    let device = Loop::new(Path::new(&path), &[]);
    let opened = device.open();
    opened.write(0, &[1; 4096]).unwrap();
    opened.flush().unwrap();
    rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).unwrap();
    assert_eq!(errno(opened.write(0, &[2; 4096])), Some(libc::EIO), "past the cache");
    // Through the cache, it is seen only by the flush.
    let flags = rustix::fs::fcntl_getfl(&opened).unwrap();
    rustix::fs::fcntl_setfl(&opened, flags - OFlags::DIRECT).unwrap();
    opened.write(0, &[2; 4096]).unwrap();
    assert_eq!(errno(opened.flush()), Some(libc::EIO));
    rustix::fs::fdatasync(&opened).unwrap();
    for _ in 0..3 {
        assert_eq!(errno(opened.flush()), Some(libc::EIO));
    }
}

// --- who else is there ---------------------------------------------------------------------------

#[test]
fn one_has_it_exclusively() {
    let place = Place::new("exclusive");
    place.create(MIB);
    let (device, _place) = looped("exclusive-loop", 4 * MIB, &[]);
    for path in [&place.0, &device.0] {
        let devices = [(); 2].map(|()| FileDevice::open(path, Access::Write).unwrap());
        let [one, other] = devices;
        let claim = one.claim_exclusively().unwrap();
        assert!(claim.is_some());
        assert!(other.claim_exclusively().unwrap().is_none());
        assert!(one.claim_exclusively().unwrap().is_none());
        // Others may use it.
        other.write(0, &[1; 4096]).unwrap();
        FileDevice::open(path, Access::Write).unwrap();
        drop(claim);
        soon(|| other.claim_exclusively().unwrap().is_some());
    }
    // A device with a file system that is mounted counts as claimed: so does one that is opened so.
    let mut options = OpenOptions::new();
    let options = std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), libc::O_EXCL);
    let taken = options.open(&device.0).unwrap();
    assert!(device.open().claim_exclusively().unwrap().is_none());
    drop(taken);
    // Something else at its place is not it.
    let opened = place.open();
    std::fs::remove_file(&place.0).unwrap();
    place.create(4096);
    assert_eq!(errno(opened.claim_exclusively()), Some(libc::ESTALE));
}

#[test]
fn writers_know_of_each_other() {
    let place = Place::new("writers");
    place.create(MIB);
    let (device, _place) = looped("writers-loop", 4 * MIB, &[]);
    for path in [&place.0, &device.0] {
        let devices = [(); 3].map(|()| FileDevice::open(path, Access::Write).unwrap());
        let [one, other, third] = devices;
        let last = WRITERS - 1;
        assert!(!one.is_anyone_entered().unwrap());
        for (enterer, writer) in [(&one, 0), (&one, 7), (&other, last)] {
            assert!(enterer.enter(writer).unwrap());
            assert!(enterer.enter(writer).unwrap(), "again");
        }
        assert!(!other.enter(0).unwrap() && !other.enter(7).unwrap() && !one.enter(last).unwrap());
        // Nobody is somebody else to himself.
        assert!(!one.is_entered(0).unwrap() && !one.is_entered(7).unwrap());
        assert!(one.is_entered(last).unwrap() && other.is_entered(0).unwrap());
        assert!(!third.is_entered(1).unwrap() && third.is_entered(7).unwrap());
        assert!(third.is_anyone_entered().unwrap());
        // Who leaves has left even if his files are in use; nobody leaves for another one.
        let files = one.files().unwrap();
        other.leave(7).unwrap();
        assert!(third.is_entered(7).unwrap());
        one.leave(7).unwrap();
        assert!(!third.is_entered(7).unwrap() && third.is_entered(0).unwrap());
        drop(files);
        drop(one);
        soon(|| !other.is_anyone_entered().unwrap());
        assert!(other.enter(0).unwrap());
        assert!(third.is_entered(0).unwrap() && !third.is_entered(7).unwrap());
        drop(other);
        soon(|| !third.is_anyone_entered().unwrap());
    }
}

/// Nodes of a device have locks of their own, and tell that they are not the same.
#[test]
fn another_node_of_a_device_is_another_place() {
    let (device, _place) = looped("nodes", 4 * MIB, &[]);
    let node = Place::new("node");
    let number = device.number().to_string();
    run("mknod", &[node.0.to_str().unwrap(), "b", "7", &number]);
    let (one, other) = (device.open(), node.open());
    assert!(one.enter(1).unwrap());
    assert_ne!(one.inode().unwrap(), other.inode().unwrap());
    assert!(!other.is_entered(1).unwrap(), "the kernel has got better: say so in the documents");
    assert_eq!(one.inode().unwrap(), device.open().inode().unwrap());
    // But it is one device.
    let claim = one.claim_exclusively().unwrap();
    assert!(other.claim_exclusively().unwrap().is_none());
    drop(claim);
}

const WRITER: &str = "CONQUEST_FLASH_WRITER";

/// The child: is writer 5, says so, and writes until it is killed.
#[test]
fn as_writer() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let device = FileDevice::open(Path::new(&path), Access::Write).unwrap();
    assert!(device.enter(5).unwrap());
    println!("entered");
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        device.write(0, &vec![1; MIB as usize]).unwrap();
    }
}

fn writer(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_writer", "--nocapture", "--test-threads=1"])
        .env(WRITER, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.map_while(Result::ok).any(|line| line.contains("entered")));
    child
}

#[test]
fn a_writer_that_is_killed_is_none_any_more() {
    let place = Place::new("killed");
    place.create(MIB);
    let (device, _place) = looped("killed-loop", 4 * MIB, &[]);
    for path in [&place.0, &device.0] {
        let opened = FileDevice::open(path, Access::Write).unwrap();
        let mut child = writer(path);
        assert!(opened.is_entered(5).unwrap() && opened.is_anyone_entered().unwrap());
        assert!(!opened.is_entered(4).unwrap() && !opened.enter(5).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        soon(|| !opened.is_entered(5).unwrap());
        assert!(!opened.is_anyone_entered().unwrap() && opened.enter(5).unwrap());
    }
}

/// What is done by a descriptor made of a device's is done by the same writer.
#[test]
fn a_copy_of_the_descriptor_is_the_same_writer() {
    let place = Place::new("copy");
    let device = place.create(MIB);
    assert!(device.enter(1).unwrap());
    let copy = File::from(rustix::io::fcntl_dupfd_cloexec(&device, 0).unwrap());
    drop(device);
    let other = place.open();
    assert!(other.is_entered(1).unwrap());
    copy.sync_data().unwrap();
    assert!(copy.read_at(&mut [], 0).is_ok());
    drop(copy);
    soon(|| !other.is_anyone_entered().unwrap());
}

#[test]
fn what_is_written_durably_is_written_without_fua_too() {
    let place = Place::new("durably");
    let device = place.create(MIB);
    assert!(!device.limits().fua);
    device.write_durable(8192, &[7; 4096]).unwrap();
    let mut found = [0; 4096];
    device.read(8192, &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
}
