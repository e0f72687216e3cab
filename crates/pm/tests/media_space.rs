//! What files are, space behind them, huge pages and swap.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use conquest_format::{GROUP, Offset, PAGE};
use conquest_pm::Error;
use conquest_pm::host::Host;
use conquest_pm::media::{MapOptions, Mapped, Medium, MediumKind, Source, Swap};
use conquest_pm::memory::Memory;
use media_support::*;

fn open(path: &Path) -> Result<Medium, Error> {
    Medium::open(Source::from(path))
}

fn kind_of_unsharable(path: &Path) -> String {
    match open(path) {
        Err(Error::Unsharable { kind, .. }) => kind,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn files_are_told_apart() {
    let (shm, disk) = (Temporary::shm(), Temporary::disk());
    assert_eq!(*create(shm.0.as_path()).kind(), MediumKind::Tmpfs);
    assert_eq!(*create(memfd(0)).kind(), MediumKind::Memfd);
    let disk = create(disk.0.as_path());
    let MediumKind::Disk { fs } = disk.kind() else {
        panic!("the build's directory is on {}: these tests need a disk", disk.kind());
    };
    assert!(!fs.is_empty() && disk.kind().note().is_some());
}

#[test]
fn a_mount_with_huge_pages_is_recognised() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("tmpfs", "size=16m,huge=always", &mount.0);
        let medium = create(mount.0.join("core"));
        let expected = MediumKind::HugeTmpfs { option: "always".to_owned() };
        assert_eq!(*medium.kind(), expected);
    })
    .join();
}

#[test]
fn what_cannot_be_shared_is_refused_with_a_remedy() {
    assert_eq!(kind_of_unsharable(Path::new("/dev")), "directory");
    assert_eq!(kind_of_unsharable(Path::new("/dev/null")), "character device");
    assert_eq!(kind_of_unsharable(Path::new("/proc/self/mem")), "file on proc");
    let fifo = Temporary::disk();
    let name = std::ffi::CString::new(fifo.0.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert_eq!(kind_of_unsharable(&fifo.0), "FIFO");
    let socket = Temporary::disk();
    let _listener = std::os::unix::net::UnixListener::bind(&socket.0).unwrap();
    assert_eq!(kind_of_unsharable(&socket.0), "socket");
    let block = Temporary::disk();
    let name = std::ffi::CString::new(block.0.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte.
    let made = unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(7, 255)) };
    assert_eq!(made, 0, "needs to make a device node, as root");
    assert_eq!(kind_of_unsharable(&block.0), "block device");
    let text = open(&block.0).unwrap_err().to_string();
    assert!(text.contains("put the core on tmpfs"), "{text}");
    let (reader, _writer) = std::io::pipe().unwrap();
    let result = Medium::open(Source::from(OwnedFd::from(reader)));
    assert!(matches!(result, Err(Error::Unsharable { .. })));
    // A memfd of reserved huge pages must never be remapped, so it is not taken at all.
    let result = Medium::open(Source::from(memfd(libc::MFD_HUGETLB)));
    assert!(matches!(result, Err(Error::Unsharable { .. })));
}

#[test]
fn creating_needs_an_absent_or_empty_file() {
    let file = Temporary::shm();
    let medium = create(file.0.as_path());
    assert_eq!(std::fs::metadata(&file.0).unwrap().mode() & 0o777, 0o600);
    assert!(medium.is_empty().unwrap());
    create(file.0.as_path());
    std::fs::write(&file.0, "x").unwrap();
    let result = Medium::create(Source::from(file.0.as_path()), 0o600);
    assert!(matches!(result, Err(Error::Exists { .. })));
    let full = memfd(0);
    std::fs::File::from(full.try_clone().unwrap()).set_len(1).unwrap();
    let result = Medium::create(Source::from(full), 0o600);
    assert!(matches!(result, Err(Error::Exists { .. })));
    let missing = Temporary::shm();
    let error = open(&missing.0).unwrap_err().to_string();
    assert!(error.contains("open the region's file"), "{error}");
    // A link that leads nowhere is not followed to make something.
    std::os::unix::fs::symlink(missing.0.join("nowhere"), &missing.0).unwrap();
    assert!(Medium::create(Source::from(missing.0.as_path()), 0o600).is_err());
}

#[test]
fn the_first_bytes_can_be_looked_at_before_the_layout_is_known() {
    let file = Temporary::shm();
    std::fs::write(&file.0, "CONQCORE and more").unwrap();
    let medium = open(&file.0).unwrap();
    let mut magic = [0; 8];
    medium.peek(0, &mut magic).unwrap();
    assert_eq!(&magic, b"CONQCORE");
    let error = medium.peek(10, &mut magic).unwrap_err();
    assert!(matches!(error, Error::Truncated { expected: 18, found: 17, .. }));
}

#[test]
fn space_is_allocated_where_asked_and_the_file_never_shrinks() {
    let (shm, disk) = (Temporary::shm(), Temporary::disk());
    for file in [&shm, &disk] {
        let medium = create(file.0.as_path());
        let host = host(&medium);
        host.back(&[0..PAGE, GROUP..2 * GROUP], 3 * GROUP).unwrap();
        let found = std::fs::metadata(&file.0).unwrap();
        assert_eq!(found.len(), 3 * GROUP);
        let blocks = found.blocks() * 512;
        assert!((GROUP + PAGE..2 * GROUP).contains(&blocks), "{blocks}");
        host.back(&[], GROUP).unwrap();
        assert_eq!(medium.len().unwrap(), 3 * GROUP);
        assert!(host.back(core::slice::from_ref(&(0..9)), 8).is_err());
    }
}

#[test]
fn too_little_space_is_an_error_never_a_fault() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("tmpfs", "size=4m", &mount.0);
        let medium = create(mount.0.join("core"));
        let host = host(&medium);
        let len = 8 * GROUP;
        host.back(core::slice::from_ref(&(0..GROUP)), GROUP).unwrap();
        let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
        memory.put(Offset::new(8), 7, Relaxed);
        match host.back(&[GROUP..GROUP + PAGE, GROUP..8 * GROUP], len) {
            Err(Error::System { source, .. }) => {
                assert_eq!(source.raw_os_error(), Some(libc::ENOSPC));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(memory.load(Offset::new(8), Relaxed), 7);
        memory.put_zeros(Offset::new(PAGE), GROUP - PAGE);
        assert_eq!(memory.failed(), None);
        // And going on with less works.
        host.back(core::slice::from_ref(&(GROUP..GROUP + PAGE)), len).unwrap();
        memory.put(Offset::new(GROUP), 8, Relaxed);
        assert_eq!(memory.failed(), None);
    })
    .join();
}

#[test]
fn a_file_system_that_cannot_allocate_gets_zeros_written() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("ramfs", "", &mount.0);
        let medium = create(mount.0.join("core"));
        assert_eq!(*medium.kind(), MediumKind::Ramfs);
        std::fs::write(mount.0.join("core"), "data").unwrap();
        medium.back(core::slice::from_ref(&(0..GROUP)), 2 * GROUP).unwrap();
        let mut data = [0; 4];
        medium.peek(0, &mut data).unwrap();
        assert_eq!(&data, b"data");
        let memory = Mapped::map(&medium, 2 * GROUP, &MapOptions::default()).unwrap();
        assert_eq!(memory.keep_from_swap(), Swap::Never);
        memory.put_zeros(Offset::new(PAGE), GROUP - PAGE);
        assert_eq!(memory.failed(), None);
    })
    .join();
}

#[test]
fn an_ordinary_user_without_permission_is_told_so() {
    let file = Temporary::shm();
    let medium = create(file.0.as_path());
    medium.back(&[], GROUP).unwrap();
    fork(|_| {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::setuid(65534) };
        let error = std::io::Error::last_os_error();
        assert_eq!(result, 0, "needs to become another user, as root: {error}");
        match open(&file.0) {
            Err(Error::System { source, .. }) => {
                assert_eq!(source.raw_os_error(), Some(libc::EACCES));
            }
            other => panic!("{other:?}"),
        }
    })
    .join();
    std::fs::set_permissions(&file.0, PermissionsExt::from_mode(0o666)).unwrap();
    fork(|_| {
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::setuid(65534) }, 0);
        let memory = Mapped::map(&open(&file.0).unwrap(), GROUP, &MapOptions::default()).unwrap();
        assert_eq!(memory.load(Offset::new(0), Relaxed), 0);
        // Far more than an ordinary user may lock.
        let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        // SAFETY: the kernel only reads the structure, which is ours.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
        assert_eq!(set, 0);
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
        match memory.keep_from_swap() {
            Swap::NoneConfigured => assert_eq!(swaps.lines().count(), 1),
            Swap::CanSwap { why } => {
                assert!(swaps.lines().count() > 1 && why.contains("ulimit -l"));
            }
            other => panic!("{other}"),
        }
    })
    .join();
}

#[test]
fn locking_touches_no_page() {
    let medium = create(memfd(0));
    let len = 1 << 36;
    medium.back(core::slice::from_ref(&(0..PAGE)), len).unwrap();
    let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
    let swap = memory.keep_from_swap();
    assert!(matches!(swap, Swap::Locked | Swap::NoneConfigured), "{swap}");
    assert_eq!(memory.huge_pages().mapped_bytes, 0);
    memory.put(Offset::new(0), 1, Relaxed);
    assert!(memory.huge_pages().mapped_bytes <= GROUP);
    let disk = Temporary::disk();
    let medium = create(disk.0.as_path());
    let memory = Mapped::map(&medium, GROUP, &MapOptions::default()).unwrap();
    assert_eq!(memory.keep_from_swap(), Swap::WrittenBack);
}

/// What smaps says of the mapping: bytes in huge pages, found in another way than the report's.
fn huge_by_smaps(memory: &Mapped) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let heading = format!("{:x}-", memory.address());
    let start = text.find(&heading).unwrap();
    let lines = text[start..].lines().skip(1);
    let own = lines.take_while(|line| line.split(' ').next().unwrap().ends_with(':'));
    let huge =
        own.filter(|line| line.starts_with("ShmemPmdMapped") || line.starts_with("FilePmdMapped"));
    let sizes = huge.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    sizes.sum::<u64>() << 10
}

#[test]
fn huge_pages_are_obtained_on_a_mount_that_has_them() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("tmpfs", "size=64m,huge=always", &mount.0);
        let medium = create(mount.0.join("core"));
        let len = 4 * GROUP;
        medium.back(core::slice::from_ref(&(0..len)), len).unwrap();
        let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
        assert!(!memory.huge_pages().is_obtained());
        memory.populate(0..len).unwrap();
        let report = memory.huge_pages();
        assert_eq!(report.obtained_bytes, huge_by_smaps(&memory));
        assert_eq!((report.obtained_bytes, report.mapped_bytes), (len, len));
        assert!(report.wanted && report.is_obtained());
    })
    .join();
}

#[test]
fn the_report_says_so_when_there_are_none() {
    let mount = Temporary::disk();
    fork(|_| {
        mount_privately("tmpfs", "size=64m,huge=never", &mount.0);
        let medium = create(mount.0.join("core"));
        let len = 2 * GROUP;
        // No range has a whole group, which might be gathered into a huge page.
        let (first, second) = (0..GROUP - PAGE, GROUP - PAGE..len - PAGE);
        medium.back(&[first, second], len).unwrap();
        let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
        memory.populate(0..GROUP).unwrap();
        let report = memory.huge_pages();
        assert_eq!(report.obtained_bytes, huge_by_smaps(&memory));
        assert!(!report.is_obtained());
        assert_eq!(report.mapped_bytes, GROUP);
        assert!(report.to_string().contains("not obtained"));
    })
    .join();
}

#[test]
fn new_space_is_in_huge_pages_where_whole_groups_have_no_page_yet() {
    let file = Temporary::shm();
    let medium = create(file.0.as_path());
    let len = 6 * GROUP;
    let used = 4 * GROUP + 3 * PAGE;
    std::fs::write(&file.0, "data").unwrap();
    let opened = std::fs::File::options().write(true).open(&file.0).unwrap();
    opened.write_all_at(b"more", used).unwrap();
    medium.back(core::slice::from_ref(&(PAGE..len)), len).unwrap();
    let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
    for group in 0..len / GROUP {
        memory.put(Offset::new(group * GROUP + 8), 5, Relaxed);
    }
    let report = memory.huge_pages();
    assert_eq!(report.obtained_bytes, huge_by_smaps(&memory));
    // Of six groups one is not whole and one had a page. A kernel that has too few huge pages, or
    // is told to give none, makes this fail.
    assert_eq!(report.obtained_bytes, 4 * GROUP, "{report}");
    let mut found = [0; 4];
    memory.read(Offset::new(used), &mut found);
    assert_eq!(&found, b"more");
    assert_eq!(memory.load(Offset::new(GROUP), Relaxed), 0);
}

#[test]
fn small_pages_can_be_gathered_into_huge_ones() {
    let file = Temporary::shm();
    let medium = create(file.0.as_path());
    let len = 2 * GROUP;
    medium.back(core::slice::from_ref(&(0..len)), len).unwrap();
    let memory = Mapped::map(&medium, len, &MapOptions::default()).unwrap();
    memory.populate(0..len).unwrap();
    memory.put(Offset::new(GROUP + 8), 5, Relaxed);
    // The kernel may refuse; the report must be right in both cases.
    let result = memory.collapse(0..len);
    let report = memory.huge_pages();
    assert_eq!(report.obtained_bytes, huge_by_smaps(&memory), "{result:?}");
    assert_eq!(memory.load(Offset::new(GROUP + 8), Relaxed), 5);
    eprintln!("gathering: {result:?}; {report}");
}

#[test]
fn the_same_file_is_found_again_after_its_descriptor_was_replaced() {
    let file = Temporary::shm();
    let medium = create(file.0.as_path());
    fork(|_| {
        let null = std::fs::File::open("/dev/null").unwrap();
        for raw in 3..1024 {
            if raw != null.as_raw_fd() {
                // SAFETY: no memory is passed; closes everything else, on purpose.
                unsafe { libc::close(raw) };
            }
        }
        medium.back(core::slice::from_ref(&(0..PAGE)), PAGE).unwrap();
        assert_eq!(medium.len().unwrap(), PAGE);
        // Another file under the same name is not taken for it.
        std::fs::remove_file(&file.0).unwrap();
        std::fs::write(&file.0, "other").unwrap();
        let error = medium.back(&[], 2 * PAGE).unwrap_err().to_string();
        assert!(error.contains("stands for another file"), "{error}");
        assert_eq!(std::fs::read(&file.0).unwrap(), b"other");
    })
    .join();
}
