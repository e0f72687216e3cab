//! Notices: every field is where the kernel looks for it.

mod support;

use conquest_fuse::wire::Notice;
use support::Bytes;

/// A header with `code`, and `body`.
fn message(code: u32, body: Bytes) -> Vec<u8> {
    let header = Bytes::new().u32(16 + body.0.len() as u32).u32(code).u64(0);
    header.raw(&body.0).0
}

#[test]
fn notices_are_encoded() {
    let new = Bytes::new();
    let name = &b"n\xFF"[..];
    let nodes = [1, u64::MAX];
    let expected = [
        (Notice::Poll { kernel_handle: 5 }, message(1, new.clone().u64(5))),
        (
            Notice::InvalidateInode { node: 5, offset: -1, length: 0 },
            message(2, new.clone().u64(5).u64(u64::MAX).u64(0)),
        ),
        (
            Notice::InvalidateEntry { parent: 5, name, expired: false },
            message(3, new.clone().u64(5).u32(2).u32(0).text(name)),
        ),
        (
            Notice::InvalidateEntry { parent: 5, name, expired: true },
            message(3, new.clone().u64(5).u32(2).u32(1).text(name)),
        ),
        (
            Notice::Store { node: 5, offset: 4096, data: b"bytes" },
            message(4, new.clone().u64(5).u64(4096).u32(5).u32(0).raw(b"bytes")),
        ),
        (
            Notice::Retrieve { unique: 9, node: 5, offset: 4096, size: 512 },
            message(5, new.clone().u64(9).u64(5).u64(4096).u32(512).u32(0)),
        ),
        (
            Notice::Delete { parent: 5, child: 6, name },
            message(6, new.clone().u64(5).u64(6).u32(2).u32(0).text(name)),
        ),
        (Notice::Resend, message(7, new.clone())),
        (Notice::IncrementEpoch, message(8, new.clone())),
        (
            Notice::Prune { nodes: &nodes },
            message(9, new.clone().u32(2).u32(0).u64(0).u64(1).u64(u64::MAX)),
        ),
        (Notice::Prune { nodes: &[] }, message(9, new.zeros(16))),
    ];
    for (notice, bytes) in expected {
        assert_eq!(notice.encode().pieces().concat(), bytes, "{notice:?}");
    }
}

#[test]
fn data_is_not_copied() {
    let data = [7; 100];
    let encoded = Notice::Store { node: 1, offset: 0, data: &data }.encode();
    assert!(encoded.pieces().iter().any(|piece| piece.as_ptr() == data.as_ptr()));
}
