//! What is not a region, or not a healthy one, through the door that programs use: each case has an
//! error of its own that names the file, what was expected and found, and what to do.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conquest_format::checksum;
use conquest_format::geometry::{STATE_ROOTS, SUPERBLOCKS, Shape};
use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_format::superblock::{FORMAT_VERSION, LIVE_PROTOCOL, RawSuperblock, SIZE};
use conquest_pm::attach::NewRegion;
use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::media::{Medium, OsHost, Source};

use conquest_pm::{Access, Error, Mode, Options, Region, Result};
use media_support::*;

const SHAPE: Shape = Shape { max_groups: 4, lanes: 2, slots: 2, locks: 8, chunks: 4, log: 0 };

fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    kinds[1] = KindSpec::object(200).unwrap();
    kinds[2] = KindSpec::RUN;
    kinds
}

fn make(path: &Path) -> Result<()> {
    let new = NewRegion { shape: SHAPE, kinds: kinds(), uuid: [1; 16], created: 2, groups: 1 };
    Region::create(Source::from(path), 0o600, &new)
}

fn open_with(path: &Path, kinds: &KindTable, patience: Duration) -> Result<Arc<Region>> {
    let options = Options { attach_patience: patience, growth_groups: 1, ..Options::default() };
    Region::open(Source::from(path), kinds, Access::default(), options)
}

fn open(path: &Path) -> Result<Arc<Region>> {
    open_with(path, &kinds(), LIMIT)
}

/// A region on shared RAM.
fn region() -> Temporary {
    let file = Temporary::shm();
    make(&file.0).unwrap();
    file
}

/// The error of `result`, whose message must hold all of `texts` and the file's name.
fn refused<T>(result: Result<T>, path: &Path, texts: &[&str]) -> Error {
    let error = match result {
        Ok(_) => panic!("{} was taken", path.display()),
        Err(error) => error,
    };
    let message = error.to_string();
    for text in texts.iter().chain([&path.to_str().unwrap()]) {
        assert!(message.contains(text), "no {text:?} in {message:?}");
    }
    error
}

/// Changes bytes of the superblock copies `copies`, with a checksum that is right, if `valid`.
fn patch(path: &Path, copies: &[usize], at: usize, new: &[u8], valid: bool) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    for &copy in copies {
        let mut bytes = [0; SIZE];
        let offset = SUPERBLOCKS[copy].bytes();
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes[at..at + new.len()].copy_from_slice(new);
        if valid {
            let sum = checksum(0, &bytes[..SIZE - 8]);
            bytes[SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&bytes, offset).unwrap();
    }
}

/// Steps root 0.
fn step(core: &Region) -> Result<u64> {
    core.run(|tx| {
        tx.lock(0, Mode::Exclusive)?;
        let value = tx.get(STATE_ROOTS) + 1;
        tx.set(STATE_ROOTS, value)?;
        Ok(value)
    })
}

#[test]
fn files_that_are_no_regions() {
    let file = Temporary::shm();
    std::fs::write(&file.0, "all work and no play ".repeat(1000)).unwrap();
    let error =
        refused(open(&file.0), &file.0, &["CONQCORE", "offset 0x0", "616c6c20", "make one"]);
    assert!(matches!(error, Error::NotARegion { .. }), "{error}");
    for short in ["", "CONQCORE", "x"] {
        std::fs::write(&file.0, short).unwrap();
        let found = format!("has {}", short.len());
        let error = refused(open(&file.0), &file.0, &["truncated", "needs", &found, "restore"]);
        assert!(matches!(error, Error::Truncated { .. }), "{error}");
    }
    let missing = Temporary::shm();
    let error = refused(open(&missing.0), &missing.0, &["open the region's file", "No such file"]);
    assert!(matches!(error, Error::System { .. }), "{error}");
}

#[test]
fn regions_of_others() {
    let file = region();
    patch(&file.0, &[0, 1], 8, &7_u32.to_le_bytes(), true);
    let error = refused(
        open(&file.0),
        &file.0,
        &["offset 0x8", "expected 2", "found 7", "use the release"],
    );
    assert!(matches!(error, Error::Version { found: 7, .. }), "{error}");
    patch(&file.0, &[0, 1], 8, &FORMAT_VERSION.to_be_bytes(), true);
    let error = refused(open(&file.0), &file.0, &["big-endian", "offset 0x8", "little-endian"]);
    assert!(matches!(error, Error::Endianness { .. }), "{error}");
    patch(&file.0, &[0, 1], 8, &FORMAT_VERSION.to_le_bytes(), true);
    patch(&file.0, &[0, 1], 32, &[4], true);
    let error = refused(open(&file.0), &file.0, &["features 0x4", "offset 0x20", "newer release"]);
    assert!(matches!(error, Error::Features { found: 4, .. }), "{error}");
    patch(&file.0, &[0, 1], 32, &[0], true);
    step(&open(&file.0).unwrap()).unwrap();
    let mut other = kinds();
    other[1] = KindSpec::object(300).unwrap();
    let wrong = open_with(&file.0, &other, LIMIT);
    let error = refused(wrong, &file.0, &["kind 1", "320 bytes", "found 256", "another program"]);
    assert!(matches!(error, Error::Kind { kind: 1, .. }), "{error}");
}

#[test]
fn processes_that_work_together_in_another_way() {
    let file = region();
    let core = open(&file.0).unwrap();
    patch(&file.0, &[0, 1], 12, &9_u32.to_le_bytes(), true);
    let has = format!("has {LIVE_PROTOCOL}");
    let error =
        refused(open(&file.0), &file.0, &["live protocol 9", &has, "let them detach first"]);
    assert!(matches!(error, Error::LiveProtocol { found: 9, .. }), "{error}");
    step(&core).unwrap();
    drop(core);
    // Nobody is attached: the protocol is that of who comes first.
    assert_eq!(step(&open(&file.0).unwrap()).unwrap(), 2);
}

#[test]
fn files_that_lost_their_end() {
    let file = region();
    let len = std::fs::metadata(&file.0).unwrap().len();
    for rest in [len - 4096, len / 2, 5000, 1000, 1] {
        File::options().write(true).open(&file.0).unwrap().set_len(rest).unwrap();
        let found = format!("has {rest};");
        let error = refused(open(&file.0), &file.0, &["truncated", &found, "restore"]);
        assert!(matches!(error, Error::Truncated { .. }), "{error}");
    }
}

#[test]
fn a_file_cut_off_while_attached_fails_for_everybody_once_one_has_noticed() {
    use conquest_pm::memory::Memory;
    let file = region();
    let (first, second) = (open(&file.0).unwrap(), open(&file.0).unwrap());
    step(&first).unwrap();
    let len = std::fs::metadata(&file.0).unwrap().len();
    File::options().write(true).open(&file.0).unwrap().set_len(len - 4096).unwrap();
    step(&second).unwrap();
    let lost = conquest_format::Offset::new(len - 8);
    assert_eq!(first.memory().load(lost, std::sync::atomic::Ordering::Relaxed), 0);
    let error = first.begin().map(drop).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    // The second has not touched what is missing.
    let error = second.begin().map(drop).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn one_superblock_is_enough_and_makes_the_other_anew() {
    for copy in [0, 1] {
        let file = region();
        assert_eq!(step(&open(&file.0).unwrap()).unwrap(), 1);
        patch(&file.0, &[copy], 100, &[0xEE; 32], false);
        let core = open(&file.0).unwrap();
        assert_eq!(step(&core).unwrap(), 2);
        drop(core);
        let raw = File::open(&file.0).unwrap();
        for at in SUPERBLOCKS {
            let mut bytes = [0; SIZE];
            raw.read_exact_at(&mut bytes, at.bytes()).unwrap();
            RawSuperblock::from_bytes(&bytes).check().unwrap();
        }
        patch(&file.0, &[0, 1], 100, &[0xEE; 32], false);
        let wanted = ["both superblocks", "0x0 and 0x1000", "expected checksum", "found", "save"];
        let error = refused(open(&file.0), &file.0, &wanted);
        assert!(matches!(error, Error::Superblocks { .. }), "{error}");
    }
}

#[test]
fn an_impossible_number_of_groups_is_named() {
    let file = region();
    let raw = File::options().write(true).open(&file.0).unwrap();
    raw.write_all_at(&[0; 8], 8192).unwrap();
    let error = open(&file.0).map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Corrupt { what: "number of groups", .. }), "{text}");
    for part in ["offset 0x2000", "expected 1 to", "found 0x0", "check the store"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_region_is_not_made_over_another_or_of_impossible_numbers() {
    let file = region();
    let error = refused(make(&file.0), &file.0, &["already holds", "choose another"]);
    assert!(matches!(error, Error::Exists { .. }), "{error}");
    step(&open(&file.0).unwrap()).unwrap();
    let other = Temporary::shm();
    let shape = Shape { locks: 3, ..SHAPE };
    let new = NewRegion { shape, kinds: kinds(), uuid: [1; 16], created: 2, groups: 1 };
    let made = Region::create(Source::from(other.0.as_path()), 0o600, &new);
    let error = refused(made, &other.0, &["locks", "power of two", "3 is out of range 1 to"]);
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    assert!(!other.0.exists(), "nothing is left behind");
}

#[test]
fn what_cannot_be_mapped_by_several_processes() {
    let fifo = Temporary::shm();
    let name = std::ffi::CString::new(fifo.0.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let files = [(fifo.0.as_path(), "FIFO"), (Path::new("/dev"), "directory")];
    for (path, kind) in files.into_iter().chain([(Path::new("/proc/self/stat"), "proc")]) {
        let error = refused(open(path), path, &[kind, "can't be shared", "put the core on tmpfs"]);
        assert!(matches!(error, Error::Unsharable { .. }), "{error}");
    }
}

#[test]
fn a_user_without_permission_is_told() {
    let file = region();
    fork(|_| {
        // SAFETY: no memory is passed.
        let changed = unsafe { libc::setuid(65534) };
        assert_eq!(changed, 0, "this test needs to become another user, as root");
        let error =
            refused(open(&file.0), &file.0, &["open the region's file", "Permission denied"]);
        assert!(matches!(error, Error::System { .. }), "{error}");
    })
    .join();
}

/// Mounts the private mount at `at` again with `flags` and `options`.
fn mount_again(at: &Path, flags: libc::c_ulong, options: &str) {
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    let (at, options) = (text(at.to_str().unwrap()), text(options));
    let none = core::ptr::null();
    // SAFETY: the strings end with a zero byte and outlive the call.
    let result = unsafe {
        libc::mount(none, at.as_ptr(), none, libc::MS_REMOUNT | flags, options.as_ptr().cast())
    };
    assert_eq!(result, 0, "mount: {}", std::io::Error::last_os_error());
}

#[test]
fn a_file_system_for_reading_only() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("tmpfs", "size=16m", &mount.0);
        let path = mount.0.join("core");
        make(&path).unwrap();
        mount_again(&mount.0, libc::MS_RDONLY, "");
        let error = refused(open(&path), &path, &["Read-only file system"]);
        assert!(matches!(error, Error::System { .. }), "{error}");
        mount_again(&mount.0, 0, "");
        step(&open(&path).unwrap()).unwrap();
    })
    .join();
}

#[test]
fn no_space_loses_nothing_and_ends_when_there_is_space() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("tmpfs", "size=1m", &mount.0);
        let path = mount.0.join("core");
        let error = refused(make(&path), &path, &["back it with space", "No space left"]);
        assert!(matches!(error, Error::System { .. }), "{error}");
        assert!(!path.exists(), "nothing is left behind");
        mount_again(&mount.0, 0, "size=3m");
        make(&path).unwrap();
        let core = open(&path).unwrap();
        let run = Kind::new(2).unwrap();
        let take = || {
            core.run(|tx| {
                let run = tx.alloc_run(run, 256, None)?;
                Ok(tx.finish_run(run))
            })
        };
        let mut reached = Reachable::default();
        for _ in 0..2 {
            reached.run(take().unwrap(), 256);
        }
        let error = take().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NoSpace { wanted: 256, .. }), "{text}");
        assert!(text.contains("256 pages wanted, 0 of 2048 free"), "{text}");
        assert_eq!(step(&core).unwrap(), 1);
        assert_eq!(core.check(&reached).unwrap(), []);
        mount_again(&mount.0, 0, "size=16m");
        reached.run(take().unwrap(), 256);
        assert_eq!(core.check(&reached).unwrap(), []);
        drop(core);
        let core = open(&path).unwrap();
        assert_eq!(core.check(&reached).unwrap(), []);
        assert_eq!(step(&core).unwrap(), 2);
    })
    .join();
}

#[test]
fn slots_run_out_and_those_of_the_dead_are_taken() {
    let file = region();
    let one = open(&file.0).unwrap();
    let mut other = fork(|parent| {
        let _two = open(&file.0).unwrap();
        parent.say("x");
        sleep_for_ever();
    });
    other.hear(1);
    let error = refused(open(&file.0), &file.0, &["all 2 process slots", "detach a process"]);
    assert!(matches!(error, Error::Slots { slots: 2, .. }), "{error}");
    other.signal(libc::SIGKILL);
    other.wait();
    let three = open(&file.0).unwrap();
    step(&one).unwrap();
    step(&three).unwrap();
    assert_eq!(three.check(&Reachable::default()).unwrap(), []);
}

#[test]
fn whoever_waits_to_attach_is_told_that_somebody_is_in_the_way() {
    let file = region();
    let mut other = fork(|_| {
        let medium = Arc::new(Medium::open(Source::from(file.0.as_path())).unwrap());
        let geometry = conquest_format::Geometry::new(SHAPE).unwrap();
        let host = OsHost::new(medium, &geometry).unwrap();
        let _attaching = host.claim_attach().unwrap().unwrap();
        // SAFETY: stops itself.
        unsafe { libc::raise(libc::SIGSTOP) };
    });
    let stat = format!("/proc/{}/stat", other.pid);
    until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    let busy = open_with(&file.0, &kinds(), Duration::from_millis(300));
    let error = refused(busy, &file.0, &["another process has been attaching", "stopped"]);
    let Error::AttachBusy { waited, .. } = error else { panic!("{error}") };
    assert!(waited >= Duration::from_millis(300) && waited < LIMIT / 4, "{waited:?}");
    other.signal(libc::SIGCONT);
    step(&open(&file.0).unwrap()).unwrap();
    other.wait();
}

#[test]
fn a_detached_region_takes_no_more_operations() {
    let file = region();
    let core = open(&file.0).unwrap();
    step(&core).unwrap();
    core.detach().unwrap();
    let text = step(&core).unwrap_err().to_string();
    assert!(text.contains("it was detached"), "{text}");
    assert_eq!(step(&open(&file.0).unwrap()).unwrap(), 2);
}
