//! Replies: every field is where the kernel looks for it.

mod support;

use std::time::Duration;

use conquest_fuse::wire::{
    AttributeFlags, Attributes, AttributesReply, Block, Body, Created, DeviceNumber, Entry,
    FileLock, IoctlFlags, IoctlReply, LockType, Opened, OpenedFlags, Polled, Position, RangeCopied,
    StatFs, StatxReply, Time, Written, XattrSize, header,
};
use support::Bytes;

fn attributes() -> Attributes {
    Attributes {
        number: 1,
        size: 2,
        blocks: 3,
        atime: Time { seconds: -4, nanoseconds: 5 },
        mtime: Time { seconds: i64::MAX, nanoseconds: 999_999_999 },
        ctime: Time { seconds: 6, nanoseconds: 7 },
        mode: 0o60640,
        nlink: 8,
        uid: 9,
        gid: 10,
        device: DeviceNumber { major: 8, minor: 17 },
        block_size: 4096,
        flags: AttributeFlags::SUBMOUNT | AttributeFlags::DAX,
    }
}

fn attributes_bytes() -> Vec<u8> {
    let times = Bytes::new().u64(1).u64(2).u64(3).u64(-4_i64 as u64).u64(i64::MAX as u64).u64(6);
    let rest = times.u32(5).u32(999_999_999).u32(7).u32(0o60640).u32(8).u32(9).u32(10);
    rest.u32(0x811).u32(4096).u32(3).0
}

fn entry() -> Entry {
    Entry {
        node: 11,
        generation: 12,
        name_lifetime: Duration::new(13, 14),
        attributes_lifetime: Duration::new(15, 16),
        attributes: attributes(),
    }
}

fn entry_bytes() -> Vec<u8> {
    Bytes::new().u64(11).u64(12).u64(13).u64(15).u32(14).u32(16).raw(&attributes_bytes()).0
}

#[test]
fn a_header_has_length_error_and_number() {
    let plain = Bytes::new().u32(116).u32(0).u64(9).0;
    assert_eq!(header(9, 0, 100).as_slice(), plain);
    let error = Bytes::new().u32(16).u32(-2_i32 as u32).u64(9).0;
    assert_eq!(header(9, 2, 0).as_slice(), error);
    // Nonsense makes nonsense, which the kernel refuses, and no panic.
    let nonsense = Bytes::new().u32(u32::MAX).u32(i32::MAX as u32).u64(9).0;
    assert_eq!(header(9, i32::MIN, usize::MAX).as_slice(), nonsense);
}

#[test]
fn inodes_are_encoded() {
    let reply = AttributesReply { attributes: attributes(), lifetime: Duration::new(20, 21) };
    let expected = Bytes::new().u64(20).u32(21).u32(0).raw(&attributes_bytes()).0;
    assert_eq!((reply.encode().as_slice(), expected.len()), (&expected[..], 104));
    assert_eq!((entry().encode().as_slice(), entry().encode().len()), (&entry_bytes()[..], 128));
    let flags = OpenedFlags::KEEP_CACHE | OpenedFlags::PASSTHROUGH;
    let opened = Opened { handle: 22, flags, backing: -1 };
    let opened_bytes = Bytes::new().u64(22).u32(0x82).u32(u32::MAX).0;
    assert_eq!(opened.encode().as_slice(), opened_bytes);
    let created = Created { entry: entry(), opened };
    assert_eq!(created.encode().as_slice(), [entry_bytes(), opened_bytes].concat());
}

#[test]
fn a_name_that_stands_for_nothing_has_a_lifetime_only() {
    let expected = Bytes::new().zeros(16).u64(3).u64(0).u32(4).zeros(92).0;
    let none = Entry::none(Duration::new(3, 4));
    assert_eq!(none.encode().as_slice(), expected);
    let remains = Entry { node: 0, name_lifetime: Duration::new(3, 4), ..entry() };
    assert_eq!(remains.encode().as_slice(), expected);
}

#[test]
fn statx_is_encoded() {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    let reply = StatxReply {
        lifetime: Duration::new(1, 2),
        mask: 0xFFF,
        block_size: 4096,
        attributes: 0x10,
        attributes_mask: 0x30,
        nlink: 3,
        uid: 4,
        gid: 5,
        mode: 0o100644,
        number: 6,
        size: 7,
        blocks: 8,
        atime: time(-9, 10),
        btime: time(11, 12),
        ctime: time(13, 14),
        mtime: time(15, 16),
        device: DeviceNumber { major: 17, minor: 18 },
    };
    let head = Bytes::new().u64(1).u32(2).u32(0).u64(0).u64(0).u32(0xFFF).u32(4096).u64(0x10);
    let owner = head.u32(3).u32(4).u32(5).u16(0o100644).u16(0).u64(6).u64(7).u64(8).u64(0x30);
    let times = owner.u64(-9_i64 as u64).u32(10).u32(0).u64(11).u32(12).u32(0);
    let times = times.u64(13).u32(14).u32(0).u64(15).u32(16).u32(0);
    let expected = times.u32(17).u32(18).u32(0).u32(0).zeros(14 * 8).0;
    assert_eq!((reply.encode().as_slice(), expected.len()), (&expected[..], 288));
}

#[test]
fn numbers_are_encoded() {
    let stat = StatFs {
        blocks: 1,
        blocks_free: 2,
        blocks_available: 3,
        files: 4,
        files_free: 5,
        block_size: 6,
        name_max: 7,
        fragment_size: 8,
    };
    let expected = Bytes::new().u64(1).u64(2).u64(3).u64(4).u64(5).u32(6).u32(7).u32(8).zeros(28).0;
    assert_eq!((stat.encode().as_slice(), expected.len()), (&expected[..], 80));
    let small = Bytes::new().u32(5).u32(0).0;
    assert_eq!(Written { size: 5 }.encode().as_slice(), small);
    assert_eq!(XattrSize { size: 5 }.encode().as_slice(), small);
    assert_eq!(Polled { events: 5 }.encode().as_slice(), small);
    let large = Bytes::new().u64(u64::MAX - 1).0;
    assert_eq!(RangeCopied { bytes: u64::MAX - 1 }.encode().as_slice(), large);
    assert_eq!(Block { block: u64::MAX - 1 }.encode().as_slice(), large);
    assert_eq!(Position { offset: u64::MAX - 1 }.encode().as_slice(), large);
    let ioctl = IoctlReply { result: -1, flags: IoctlFlags::RETRY, in_count: 2, out_count: 3 };
    let expected = Bytes::new().u32(u32::MAX).u32(4).u32(2).u32(3).0;
    assert_eq!(ioctl.encode().as_slice(), expected);
}

#[test]
fn locks_are_encoded() {
    for (lock_type, number) in [(LockType::Read, 0), (LockType::Write, 1), (LockType::Unlock, 2)] {
        let lock = FileLock { start: 1, end: i64::MAX as u64, lock_type, pid: 4711 };
        let expected = Bytes::new().u64(1).u64(i64::MAX as u64).u32(number).u32(4711).0;
        assert_eq!(lock.encode().as_slice(), expected);
    }
}
