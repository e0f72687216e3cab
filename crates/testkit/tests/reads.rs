//! Operations that only look: they take no memory from the heap and make no system call.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod counting;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use conquest_access::{Access, Acl, Entry, Qualifier};
use conquest_format::fs;
use conquest_format::geometry::Shape;
use conquest_fs::FileSystem;
use conquest_fs::content::{Seek, WriteAt};
use conquest_fs::names::New;
use conquest_fs::open::{How, Whence};
use conquest_fs::paths::Path as FilePath;
use conquest_fs::walk::{Base, PATH_MAX};
use conquest_fs::xattr::Setting;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access as Mapping, Region};
use conquest_testkit::files::{clock, files_options, new_file_system, root_user};

use counting::ASKED;

type Files = FileSystem<Mapped, OsHost>;

/// A store in memory that nobody else can find.
fn store() -> Files {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = format!("/dev/shm/conquest-reads-{}-{number}", std::process::id());
    let path = Path::new(&path);
    let shape = Shape { max_groups: 4, lanes: 8, slots: 8, locks: 64, chunks: 16, log: 0 };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    Region::create(Source::from(path), 0o600, &new).unwrap();
    let region =
        Region::open(Source::from(path), &fs::kinds(), Mapping::default(), files_options());
    std::fs::remove_file(path).unwrap();
    let region = region.unwrap();
    FileSystem::make(&region, &new_file_system(), &clock()).unwrap();
    FileSystem::open(region, clock()).unwrap()
}

fn list() -> Vec<u8> {
    let entry = |qualifier| Entry { qualifier, permissions: 7 };
    let all = [Qualifier::Owner, Qualifier::User(7), Qualifier::OwningGroup, Qualifier::Mask];
    Acl::new(all.into_iter().chain([Qualifier::Other]).map(entry)).unwrap().to_xattr()
}

/// Fills a store: `d/small`, `d/large`, `d/link`, and 300 names more, with access lists.
fn fill(files: &Files) {
    let (who, root) = (&root_user(), files.root());
    let directory = files.create(who, root, b"d", New::Directory, 0o755).unwrap();
    let small = files.create(who, directory, b"small", New::Regular, 0o644).unwrap();
    let large = files.create(who, directory, b"large", New::Regular, 0o644).unwrap();
    files.create(who, directory, b"link", New::Symlink(b"../d/./small"), 0o777).unwrap();
    files.write(who, small, WriteAt::End, &[1; 100]).unwrap();
    files.write(who, large, WriteAt::Offset(1 << 22), &[2; 100_000]).unwrap();
    for number in 0..300 {
        let name = format!("name-{number}");
        files.create(who, directory, name.as_bytes(), New::Regular, 0o644).unwrap();
    }
    for file in [directory, small, large] {
        for (name, value) in [("system.posix_acl_access", list()), ("user.some", vec![7; 3000])] {
            files.set_attribute(who, file, name.as_bytes(), &value, Setting::Any).unwrap();
        }
    }
}

/// Looks at everything, in every way. What is looked at has been looked at before.
fn look(files: &Files) {
    let who = &conquest_fs::Credentials {
        fsuid: 7,
        capabilities: conquest_access::Capabilities::NONE,
        ..root_user()
    };
    let base = &Base::new(files.root(), files.root());
    let at = |bytes| FilePath { base, bytes };
    let mut room = [0; 5000];
    let stat = files.stat_at(who, at(b"/d/link"), true).unwrap();
    assert_eq!(stat.size, 100);
    let directory = files.find(who, at(b"d"), true).unwrap();
    let link = files.find(who, at(b"d/link"), false).unwrap();
    assert_eq!(files.read_link(link, &mut room[..PATH_MAX]).unwrap(), 12);
    files.may(who, stat.file, Access::WRITE).unwrap();
    assert_eq!(files.attribute(who, stat.file, b"user.some", &mut room).unwrap(), 3000);
    assert_eq!(files.attribute(who, directory, b"system.posix_acl_access", &mut []).unwrap(), 44);
    assert_eq!(files.attributes(who, stat.file, &mut room).unwrap(), 34);
    let (mut cookie, mut count) = (0, 0);
    loop {
        let mut listing = files.list(directory, cookie, &mut room).unwrap().peekable();
        if listing.peek().is_none() {
            break;
        }
        for entry in listing {
            cookie = entry.cookie;
            count += 1;
        }
    }
    assert_eq!(count, 305);
    for (path, flags) in [(&b"d/link"[..], libc::O_RDONLY), (b"d/large", libc::O_RDWR)] {
        let how = How::from_open(flags as u32, 0).unwrap();
        let open = files.open_at(who, at(path), &how).unwrap();
        let from = files.seek_to(&open, 0, Whence::Data).unwrap();
        assert_eq!(files.read_next(&open, &mut room[..100]).unwrap(), 100);
        assert_eq!(files.position(&open), from + 100);
        files.read_at(&open, from, &mut room).unwrap();
        files.seek(open.file, Seek::Hole, from).unwrap();
        files.close(&open).unwrap();
    }
    assert!(files.find(who, at(b"d/none"), true).is_err());
}

#[test]
fn who_looks_takes_no_memory() {
    let files = store();
    fill(&files);
    look(&files);
    let before = ASKED.get();
    look(&files);
    assert_eq!(ASKED.get() - before, 0);
    drop(vec![1]);
    assert_eq!(ASKED.get() - before, 1, "nothing was counted");
}

/// What becomes of a child that does `before`, and then may do nothing any more but read, write and
/// exit, and does `work`: its status, as of `waitpid`.
fn confined(before: impl FnOnce(), work: impl FnOnce()) -> i32 {
    // SAFETY: the child has the one thread that called; the allocator's locks are handled by libc.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        before();
        // SAFETY: no memory is passed.
        let refused = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        work();
        // SAFETY: ends the child, by a call that is left to it.
        unsafe { libc::syscall(libc::SYS_exit, refused) };
    }
    let mut status = 0;
    // SAFETY: a number of our own, and our own child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status
}

#[test]
fn who_looks_makes_no_system_call() {
    assert_eq!(confined(|| (), || ()), 0);
    // SAFETY: no memory is passed.
    let call = || _ = unsafe { libc::getppid() };
    assert_eq!(confined(|| (), call), libc::SIGKILL, "nothing is refused");
    let files = store();
    fill(&files);
    // A forked child begins with calls: it takes a slot of its own.
    let status = confined(|| look(&files), || look(&files));
    assert_eq!(status, 0, "it was killed at a call, or failed");
}
