//! A tree with everything that trees can have.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    self, AtFlags, FileType, Gid, IFlags, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};

/// A directory that things are made in, without paths: they may get too long.
struct At(OwnedFd);

impl At {
    fn make(&self, name: &[u8]) -> At {
        fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755)).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        At(fs::openat(&self.0, name, flags, Mode::empty()).unwrap())
    }

    fn file(&self, name: &[u8], pieces: &[(u64, &[u8])], size: u64) {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644)).unwrap();
        for (at, bytes) in pieces {
            let mut done = 0;
            while done < bytes.len() {
                done += rustix::io::pwrite(&file, &bytes[done..], at + done as u64).unwrap();
            }
        }
        fs::ftruncate(&file, size).unwrap();
    }

    fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd())
    }

    fn mode(&self, name: &[u8], mode: u32) {
        fs::chmodat(&self.0, name, Mode::from_raw_mode(mode), AtFlags::empty()).unwrap();
    }

    fn own(&self, name: &[u8], uid: u32, gid: u32) {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        fs::chownat(&self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn times(&self, name: &[u8], atime: (i64, i64), mtime: (i64, i64)) {
        let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
        fs::utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn attribute(&self, name: &str, key: &str, value: &[u8]) {
        fs::lsetxattr(self.path(name), key, value, XattrFlags::empty()).unwrap();
    }

    fn flags(&self, name: &[u8], flags: IFlags) {
        let open = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, open, Mode::empty()).unwrap();
        fs::ioctl_setflags(&file, flags).unwrap();
    }
}

/// An access list as the kernel takes it: tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NONE: u32 = u32::MAX;

/// Makes the tree at `root`, all of it `user`'s, if one is given: then without what only root can
/// make or read.
pub fn make(root: &Path, user: Option<u32>) {
    std::fs::create_dir(root).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = At(fs::open(root, flags, Mode::empty()).unwrap());
    let everything = files(&top);
    names(&top);
    links(&top);
    deep(&top);
    top.make(b"empty");
    for (name, kind) in [(&b"fifo"[..], FileType::Fifo), (b"socket", FileType::Socket)] {
        fs::mknodat(&top.0, name, kind, Mode::from_raw_mode(0o640), 0).unwrap();
    }
    if let Some(user) = user {
        give(root, user);
    } else {
        for (name, kind, device) in [
            (&b"null"[..], FileType::CharacterDevice, fs::makedev(1, 3)),
            (b"whiteout", FileType::CharacterDevice, 0),
            (b"disk", FileType::BlockDevice, fs::makedev(259, 70_000)),
        ] {
            fs::mknodat(&top.0, name, kind, Mode::from_raw_mode(0o600), device).unwrap();
        }
        top.own(b"small", 12_345, 54_321);
        top.own(b"link-relative", 77, 88);
        top.own(b"empty", 1000, 1000);
    }
    modes(&top, user.is_none());
    attributes(&top, user.is_none());
    for (nth, name) in everything.iter().enumerate() {
        let nth = nth as i64;
        top.times(name, (1_000_000_000 + nth, 7), (1_234_567_890 + nth, 123_456_789));
    }
    top.times(b"small", (-2, 500_000_000), (-86_400, 999_999_999));
    top.times(b"page", (4_102_444_800, 1), (4_102_444_800, 2));
    top.times(b"link-relative", (5, 5), (6, 6));
    top.times(b"fifo", (5, 7), (6, 8));
    if user.is_none() {
        top.flags(b"immutable", IFlags::IMMUTABLE);
        top.flags(b"append", IFlags::APPEND);
        top.flags(b"fixed-directory", IFlags::IMMUTABLE | IFlags::NODUMP);
    }
    top.flags(b"no-dump", IFlags::NODUMP);
    top.times(b"empty", (9, 9), (10, 11));
}

/// A file to make: its name, its bytes and where they are, and its size.
type Made<'a> = (&'a [u8], &'a [(u64, &'a [u8])], u64);

/// Regular files of all sizes, with and without holes; their names.
fn files(top: &At) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = (0..3_500_000_u32).map(|nth| (nth.wrapping_mul(31) >> 5) as u8).collect();
    let some = |len: usize| &bytes[..len];
    let big = 1_u64 << 30;
    let files: [Made<'_>; 17] = [
        (b"nothing", &[], 0),
        (b"small", &[(0, b"x")], 1),
        (b"packed", &[(0, some(2048))], 2048),
        (b"past-packed", &[(0, some(2049))], 2049),
        (b"page", &[(0, some(4096))], 4096),
        (b"extent", &[(0, some(100_000))], 100_000),
        (b"tree", &[(0, some(3_500_000))], 3_500_000),
        (b"hole", &[], 1_000_000),
        (b"hole-first", &[(1 << 20, some(5000))], (1 << 20) + 5000),
        (b"hole-last", &[(0, some(5000))], 3_000_000),
        (b"sparse", &[(0, some(10)), (big / 2, some(4097)), (big - 5, some(5))], big),
        (b"unreadable", &[(0, some(20))], 20),
        (b"set-user-id", &[(0, some(30))], 30),
        (b"set-group-id", &[(0, some(30))], 30),
        (b"immutable", &[(0, some(40))], 40),
        (b"append", &[(0, some(50))], 50),
        (b"no-dump", &[(0, some(60))], 60),
    ];
    for (name, pieces, size) in files {
        top.file(name, pieces, size);
    }
    files.iter().map(|(name, ..)| name.to_vec()).collect()
}

fn names(top: &At) {
    let odd = top.make(b"odd names");
    let long = [b'n'; 255];
    let names: [&[u8]; 12] = [
        b"new\nline",
        b"\xFF\xFE not UTF-8",
        b"-r",
        b"--help",
        b"it's \"quoted\" $HOME `x` \\",
        b" ",
        b"...",
        b"a:",
        b"\x1b[31mred",
        b"\x01",
        &long,
        "\u{e9}\u{4e2d}".as_bytes(),
    ];
    for (nth, name) in names.into_iter().enumerate() {
        odd.file(name, &[(0, &[nth as u8 + 1])], 1);
    }
}

fn links(top: &At) {
    let long = vec![b'l'; 4000];
    for (name, target) in [
        (&b"link-relative"[..], &b"small"[..]),
        (b"link-absolute", b"/etc/passwd"),
        (b"link-dangling", b"no/such/file"),
        (b"link-directory", b"odd names"),
        (b"link-long", &long),
        (b"link-odd", b"\xFF\n"),
    ] {
        fs::symlinkat(target, &top.0, name).unwrap();
    }
    let first = top.make(b"hard links");
    first.file(b"0", &[(0, b"one file, 300 names")], 19);
    let second = top.make(b"more hard links");
    for nth in 1..300 {
        let to = if nth % 2 == 0 { &first } else { &second };
        let name = nth.to_string();
        fs::linkat(&first.0, "0", &to.0, name, AtFlags::empty()).unwrap();
    }
    fs::linkat(&top.0, "fifo-link", &first.0, "x", AtFlags::empty()).unwrap_err();
    fs::linkat(&top.0, "link-odd", &second.0, "linked link", AtFlags::empty()).unwrap();
}

/// A path of 4,000 bytes and more.
fn deep(top: &At) {
    let name = [b'd'; 200];
    let mut at = top.make(b"deep");
    for _ in 0..20 {
        at = at.make(&name);
    }
    at.file(b"at the bottom", &[(0, b"found")], 5);
    let mut at = top.make(b"narrow");
    for _ in 0..400 {
        at = at.make(b"n");
    }
    at.file(b"f", &[], 0);
}

/// Gives everything in `root` to `user`.
fn give(root: &Path, user: u32) {
    let owner = format!("{user}:{user}");
    let done = std::process::Command::new("chown").arg("-Rh").arg(owner).arg(root).output();
    assert!(done.unwrap().status.success());
}

fn modes(top: &At, is_root: bool) {
    top.mode(b"set-user-id", 0o4755);
    top.mode(b"set-group-id", 0o2711);
    top.mode(b"empty", 0o1777);
    top.mode(b"odd names", 0o2775);
    top.mode(b"hard links", 0o500);
    let closed = top.make(b"fixed-directory");
    closed.file(b"inside", &[(0, b"y")], 1);
    if is_root {
        top.mode(b"unreadable", 0);
        top.mode(b"fixed-directory", 0);
    } else {
        top.own(b"fixed-directory", super::USER, super::USER);
        closed.own(b"inside", super::USER, super::USER);
    }
}

fn attributes(top: &At, is_root: bool) {
    top.attribute("small", "user.empty", b"");
    top.attribute("small", "user.text", b"value \xFF\x00\n");
    top.attribute("packed", "user.large", &[7; 30_000]);
    for nth in 0..20 {
        top.attribute("empty", &format!("user.number-{nth}"), &[nth; 10]);
    }
    let access =
        [(1, 6, NONE), (2, 4, 1001), (4, 4, NONE), (8, 5, 2002), (16, 5, NONE), (32, 0, NONE)];
    top.attribute("page", "system.posix_acl_access", &list(&access));
    top.attribute("empty", "system.posix_acl_access", &list(&access));
    // What is made in there has an own list unless it is told otherwise.
    let default = [(1, 7, NONE), (2, 7, 1001), (4, 5, NONE), (16, 7, NONE), (32, 1, NONE)];
    for name in ["odd names", "deep", "empty"] {
        top.attribute(name, "system.posix_acl_default", &list(&default));
    }
    if is_root {
        top.attribute("small", "trusted.secret", b"for root");
        top.attribute("link-relative", "trusted.of-a-link", b"!");
        top.attribute("fifo", "trusted.of-a-fifo", b"!");
    }
}
