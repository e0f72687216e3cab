//! Bytes as the kernel sends them, written down field by field.

// Each test uses a part of this.
#![allow(dead_code)]

use conquest_fuse::wire::{
    Agreed, CopyRange, Create, FileLock, InitFlags, Ioctl, IoctlFlags, Lock, LockKind, LockType,
    Offer, Opcode, Operation, Read, SetAttributes, SetTime, Statx, Time, Write,
};

/// Bytes that grow by fields.
#[derive(Clone, Default, Debug)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    pub(crate) fn new() -> Bytes {
        Bytes::default()
    }

    pub(crate) fn u16(self, value: u16) -> Bytes {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Bytes {
        self.raw(&value.to_ne_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Bytes {
        self.raw(&value.to_ne_bytes())
    }

    /// A text with its NUL.
    pub(crate) fn text(self, text: &[u8]) -> Bytes {
        self.raw(text).raw(&[0])
    }

    pub(crate) fn zeros(self, count: usize) -> Bytes {
        self.raw(&vec![0; count])
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Zeros up to the next multiple of eight.
    pub(crate) fn padded(self) -> Bytes {
        let missing = self.0.len().next_multiple_of(8) - self.0.len();
        self.zeros(missing)
    }
}

/// The number of every test's request.
pub(crate) const UNIQUE: u64 = 0x1234_5678;
/// The node that every test's request is about.
pub(crate) const NODE: u64 = 77;

/// A request with `body` and `extensions`.
pub(crate) fn request(opcode: u32, body: &Bytes, extensions: &Bytes) -> Vec<u8> {
    let len = 40 + body.0.len() + extensions.0.len();
    let header = Bytes::new().u32(len as u32).u32(opcode).u64(UNIQUE).u64(NODE);
    let header = header.u32(1000).u32(100).u32(4711).u16((extensions.0.len() / 8) as u16).u16(0);
    header.raw(&body.0).raw(&extensions.0).0
}

/// `request` with a length in its header that is right.
pub(crate) fn with_length(mut request: Vec<u8>) -> Vec<u8> {
    let len = (request.len() as u32).to_ne_bytes();
    request.iter_mut().zip(len).for_each(|(to, from)| *to = from);
    request
}

/// The bytes of a number at `at`.
pub(crate) fn at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|index| bytes[at + index])
}

/// What a new kernel and a file system agree on that wants everything.
pub(crate) fn everything() -> Agreed {
    Agreed { minor: 45, flags: InitFlags::KNOWN }
}

/// A request and what it means.
pub(crate) struct Case {
    pub(crate) opcode: Opcode,
    pub(crate) body: Bytes,
    pub(crate) meaning: Operation<'static>,
}

fn case(opcode: Opcode, body: Bytes, meaning: Operation<'static>) -> Case {
    Case { opcode, body, meaning }
}

/// Requests of all operations but BATCH_FORGET and REMOVEMAPPING, as [`everything`] has them.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = names();
    cases.extend(attributes());
    cases.extend(open_files());
    cases.extend(bytes());
    cases.extend(locks());
    cases.extend(ranges());
    cases.extend(connection());
    cases
}

fn names() -> Vec<Case> {
    let (name, new_name) = (&b"name"[..], &b"n\xFFw"[..]);
    let new = Bytes::new();
    let renamed = |flags| Operation::Rename { name, new_parent: 9, new_name, flags };
    let mknod = Operation::Mknod { name, mode: 0o60644, umask: 0o22, device: 0x801 };
    vec![
        case(Opcode::Lookup, new.clone().text(name), Operation::Lookup { name }),
        case(
            Opcode::Symlink,
            new.clone().text(name).text(b"../to"),
            Operation::Symlink { name, target: b"../to" },
        ),
        case(Opcode::Mknod, new.clone().u32(0o60644).u32(0x801).u32(0o22).u32(0).text(name), mknod),
        case(
            Opcode::Mkdir,
            new.clone().u32(0o40755).u32(0o27).text(name),
            Operation::Mkdir { name, mode: 0o40755, umask: 0o27 },
        ),
        case(Opcode::Unlink, new.clone().text(name), Operation::Unlink { name }),
        case(Opcode::Rmdir, new.clone().text(name), Operation::Rmdir { name }),
        case(Opcode::Rename, new.clone().u64(9).text(name).text(new_name), renamed(0)),
        case(
            Opcode::Rename2,
            new.clone().u64(9).u32(2).u32(0).text(name).text(new_name),
            renamed(2),
        ),
        case(Opcode::Link, new.clone().u64(5).text(name), Operation::Link { node: 5, name }),
        case(
            Opcode::Create,
            new.clone().u32(0o102).u32(0o100600).u32(0o77).u32(1).text(name),
            Operation::Create(Create {
                name,
                mode: 0o100600,
                umask: 0o77,
                flags: 0o102,
                kill_suidgid: true,
            }),
        ),
        case(
            Opcode::Tmpfile,
            new.u32(0o2).u32(0o100600).u32(0).u32(0).text(b"/"),
            Operation::Tmpfile { mode: 0o100600, umask: 0, flags: 2, kill_suidgid: false },
        ),
    ]
}

/// Fields of SETATTR, with `valid` and the nanoseconds of its three times.
pub(crate) fn setattr(valid: u32, nanoseconds: [u32; 3]) -> Bytes {
    let [atime, mtime, ctime] = nanoseconds;
    let fields = Bytes::new().u32(valid).u32(0).u64(3).u64(1 << 40).u64(0xABC);
    let fields = fields.u64(-5_i64 as u64).u64(6).u64(7).u32(atime).u32(mtime).u32(ctime);
    fields.u32(0o644).u32(0).u32(501).u32(502).u32(0)
}

fn attributes() -> Vec<Case> {
    let new = Bytes::new();
    let at = |seconds, nanoseconds| SetTime::At(Time { seconds, nanoseconds });
    let all = SetAttributes {
        handle: Some(3),
        size: Some(1 << 40),
        mode: Some(0o644),
        uid: Some(501),
        gid: Some(502),
        atime: Some(at(-5, 999_999_999)),
        mtime: Some(at(6, 2)),
        ctime: Some(Time { seconds: 7, nanoseconds: 3 }),
        lock_owner: Some(0xABC),
        kill_suidgid: true,
    };
    let now = SetAttributes { atime: Some(SetTime::Now), ..SetAttributes::default() };
    let now = SetAttributes { mtime: Some(SetTime::Now), ..now };
    let setattr = |valid, meaning| {
        case(Opcode::Setattr, setattr(valid, [999_999_999, 2, 3]), Operation::Setattr(meaning))
    };
    let getattr = |flags, handle| {
        case(Opcode::Getattr, Bytes::new().u32(flags).u32(0).u64(3), Operation::Getattr { handle })
    };
    let statx = |flags, handle| {
        let meaning = Operation::Statx(Statx { handle, flags: 0x2000, mask: 0xFFF });
        case(Opcode::Statx, Bytes::new().u32(flags).u32(0).u64(3).u32(0x2000).u32(0xFFF), meaning)
    };
    vec![
        getattr(0, None),
        getattr(1, Some(3)),
        statx(0, None),
        statx(1, Some(3)),
        setattr(0, SetAttributes::default()),
        setattr(0xE7F, all),
        setattr(1 << 4 | 1 << 5 | 1 << 7 | 1 << 8, now),
        case(Opcode::Readlink, new.clone(), Operation::Readlink),
        case(Opcode::Statfs, new.clone(), Operation::Statfs),
        case(
            Opcode::Setxattr,
            new.clone().u32(3).u32(2).u32(1).u32(0).text(b"user.a").raw(b"\0bc"),
            Operation::Setxattr { name: b"user.a", value: b"\0bc", flags: 2, acl_kill_sgid: true },
        ),
        case(
            Opcode::Getxattr,
            new.clone().u32(64).u32(0).text(b"user.a"),
            Operation::Getxattr { name: b"user.a", size: 64 },
        ),
        case(Opcode::Listxattr, new.clone().u32(0).u32(0), Operation::Listxattr { size: 0 }),
        case(
            Opcode::Removexattr,
            new.clone().text(b"user.a"),
            Operation::Removexattr { name: b"user.a" },
        ),
        case(Opcode::Access, new.u32(5).u32(0), Operation::Access { mask: 5 }),
    ]
}

fn open_files() -> Vec<Case> {
    let new = Bytes::new();
    let fsync =
        |opcode, flags, meaning| case(opcode, Bytes::new().u64(3).u32(flags).u32(0), meaning);
    let release = |flags, flush, flock_owner| {
        case(
            Opcode::Release,
            Bytes::new().u64(3).u32(2).u32(flags).u64(0xABC),
            Operation::Release { handle: 3, flags: 2, flush, flock_owner },
        )
    };
    vec![
        case(
            Opcode::Open,
            new.clone().u32(0o1001).u32(1),
            Operation::Open { flags: 0o1001, kill_suidgid: true },
        ),
        case(
            Opcode::Opendir,
            new.clone().u32(0o200000).u32(0),
            Operation::Opendir { flags: 0o200000, kill_suidgid: false },
        ),
        release(0, false, None),
        release(1, true, None),
        release(2, false, Some(0xABC)),
        case(
            Opcode::Releasedir,
            new.clone().u64(3).u32(2).u32(0).u64(0),
            Operation::Releasedir { handle: 3, flags: 2 },
        ),
        case(
            Opcode::Flush,
            new.u64(3).u32(0).u32(0).u64(0xABC),
            Operation::Flush { handle: 3, lock_owner: 0xABC },
        ),
        fsync(Opcode::Fsync, 0, Operation::Fsync { handle: 3, data_only: false }),
        fsync(Opcode::Fsync, 1, Operation::Fsync { handle: 3, data_only: true }),
        fsync(Opcode::Fsyncdir, 1, Operation::Fsyncdir { handle: 3, data_only: true }),
    ]
}

fn bytes() -> Vec<Case> {
    let read =
        |flags| Bytes::new().u64(3).u64(1 << 33).u32(4096).u32(flags).u64(0xABC).u32(0o2000).u32(0);
    let meaning =
        |lock_owner| Read { handle: 3, offset: 1 << 33, size: 4096, lock_owner, flags: 0o2000 };
    let write = |flags: u32| {
        let fields = Bytes::new().u64(3).u64(1 << 33).u32(5).u32(flags).u64(0xABC);
        fields.u32(1).u32(0).raw(b"bytes")
    };
    let written = Write {
        handle: 3,
        offset: 1 << 33,
        data: b"bytes",
        cached: false,
        kill_suidgid: false,
        lock_owner: None,
        flags: 1,
    };
    let kills = Write { kill_suidgid: true, ..written };
    let all = Write { cached: true, lock_owner: Some(0xABC), ..kills };
    vec![
        case(Opcode::Read, read(0), Operation::Read(meaning(None))),
        case(Opcode::Read, read(2), Operation::Read(meaning(Some(0xABC)))),
        case(Opcode::Readdir, read(0), Operation::Readdir(meaning(None))),
        case(Opcode::Readdirplus, read(0), Operation::Readdirplus(meaning(None))),
        case(Opcode::Write, write(0), Operation::Write(written)),
        case(Opcode::Write, write(4), Operation::Write(kills)),
        case(Opcode::Write, write(7), Operation::Write(all)),
        case(
            Opcode::NotifyReply,
            Bytes::new().u64(0).u64(512).u32(3).u32(0).u64(0).u64(0).raw(b"abc"),
            Operation::NotifyReply { offset: 512, data: b"abc" },
        ),
    ]
}

/// Fields of a request about a lock of type `lock_type`.
pub(crate) fn lock(lock_type: u32, flags: u32) -> Bytes {
    let fields = Bytes::new().u64(3).u64(0xABC).u64(10).u64(i64::MAX as u64);
    fields.u32(lock_type).u32(4711).u32(flags).u32(0)
}

fn locks() -> Vec<Case> {
    let meaning = |lock_type, kind| Lock {
        handle: 3,
        owner: 0xABC,
        kind,
        lock: FileLock { start: 10, end: i64::MAX as u64, lock_type, pid: 4711 },
    };
    let read = meaning(LockType::Read, LockKind::Posix);
    let write = meaning(LockType::Write, LockKind::Flock);
    let unlock = meaning(LockType::Unlock, LockKind::Posix);
    vec![
        case(Opcode::Getlk, lock(0, 0), Operation::Getlk(read)),
        case(Opcode::Setlk, lock(2, 0), Operation::Setlk(unlock)),
        case(Opcode::Setlkw, lock(1, 1), Operation::Setlkw(write)),
    ]
}

fn ranges() -> Vec<Case> {
    let copy = Bytes::new().u64(1).u64(2).u64(3).u64(4).u64(5).u64(6).u64(7);
    let range = CopyRange {
        handle_in: 1,
        offset_in: 2,
        node_out: 3,
        handle_out: 4,
        offset_out: 5,
        length: 6,
        flags: 7,
    };
    vec![
        case(
            Opcode::Fallocate,
            Bytes::new().u64(3).u64(4096).u64(8192).u32(3).u32(0),
            Operation::Fallocate { handle: 3, offset: 4096, length: 8192, mode: 3 },
        ),
        case(
            Opcode::Lseek,
            Bytes::new().u64(3).u64(4096).u32(4).u32(0),
            Operation::Lseek { handle: 3, offset: 4096, whence: 4 },
        ),
        case(Opcode::CopyFileRange, copy.clone(), Operation::CopyFileRange(range)),
        case(Opcode::CopyFileRange64, copy, Operation::CopyFileRange64(range)),
        case(
            Opcode::Bmap,
            Bytes::new().u64(12).u32(512).u32(0),
            Operation::Bmap { block: 12, block_size: 512 },
        ),
        case(
            Opcode::Setupmapping,
            Bytes::new().u64(3).u64(4096).u64(8192).u64(1).u64(1 << 21),
            Operation::Setupmapping {
                handle: 3,
                offset: 4096,
                length: 8192,
                flags: 1,
                memory_offset: 1 << 21,
            },
        ),
    ]
}

fn connection() -> Vec<Case> {
    let new = Bytes::new();
    let offer = Offer {
        major: 7,
        minor: 45,
        max_readahead: 1 << 17,
        flags: InitFlags::INIT_EXT | InitFlags::POSIX_LOCKS | InitFlags::REQUEST_TIMEOUT,
    };
    let init = new.clone().u32(7).u32(45).u32(1 << 17).u32(1 << 30 | 2).u32(1 << 10).zeros(44);
    vec![
        case(Opcode::Forget, new.clone().u64(2), Operation::Forget { lookups: 2 }),
        case(Opcode::Init, init, Operation::Init(offer)),
        case(
            Opcode::Interrupt,
            new.clone().u64(1 << 63 | 8),
            Operation::Interrupt { unique: 1 << 63 | 8 },
        ),
        case(Opcode::Destroy, new.clone(), Operation::Destroy),
        case(Opcode::Syncfs, new.clone().u64(0), Operation::Syncfs),
        case(
            Opcode::Ioctl,
            new.clone().u64(3).u32(1 << 4).u32(0x6601).u64(0x7FFF_0000).u32(2).u32(8).raw(b"in"),
            Operation::Ioctl(Ioctl {
                handle: 3,
                flags: IoctlFlags::DIR,
                command: 0x6601,
                argument: 0x7FFF_0000,
                data: b"in",
                out_size: 8,
            }),
        ),
        case(
            Opcode::Poll,
            new.u64(3).u64(99).u32(1).u32(5),
            Operation::Poll { handle: 3, kernel_handle: 99, events: 5, wants_notice: true },
        ),
    ]
}
