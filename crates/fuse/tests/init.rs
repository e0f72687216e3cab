//! INIT: what both sides want is agreed on, and old kernels get what they expect.

mod support;

use conquest_fuse::wire::{
    Agreed, Body, InitFlags, InitReply, Offer, Operation, Request, Settings,
};
use support::{Bytes, request};

fn wanted() -> Settings {
    Settings {
        flags: InitFlags::KNOWN,
        max_readahead: 1 << 20,
        max_background: 64,
        congestion_threshold: 48,
        max_write: 1 << 20,
        max_pages: 256,
        time_granularity: 1,
        max_stack_depth: 2,
        request_timeout: 60,
        map_alignment: 12,
    }
}

fn offer(minor: u32, flags: InitFlags) -> Offer {
    Offer { major: 7, minor, max_readahead: 1 << 17, flags }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(support::at(bytes, at))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(support::at(bytes, at))
}

#[test]
fn every_field_is_where_the_kernel_looks() {
    let (reply, agreed) = offer(45, InitFlags::KNOWN).accept(&wanted()).unwrap();
    let bytes = reply.encode();
    assert_eq!(bytes.len(), 64);
    let words = [0, 4, 8, 12, 20, 24, 32, 36].map(|at| u32_at(&bytes, at));
    assert_eq!(words, [7, 45, 1 << 17, 0x7FFF_FFFF, 1 << 20, 1, 0x7FF, 2]);
    let halves = [16, 18, 28, 30, 40].map(|at| u16_at(&bytes, at));
    assert_eq!(halves, [64, 48, 256, 12, 60]);
    assert!(bytes[42..].iter().all(|&byte| byte == 0));
    assert_eq!(agreed, Agreed { minor: 45, flags: InitFlags::KNOWN });
}

#[test]
fn only_what_both_want_is_agreed_on() {
    let offered = InitFlags::INIT_EXT | InitFlags::HAS_RESEND | InitFlags::POSIX_LOCKS;
    let mut settings = wanted();
    settings.flags = InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS;
    let (reply, agreed) = offer(45, offered).accept(&settings).unwrap();
    assert_eq!(agreed.flags, InitFlags::POSIX_LOCKS);
    let bytes = reply.encode();
    assert_eq!((u32_at(&bytes, 12), u32_at(&bytes, 32)), (2, 0));
    // The high word is announced by whoever uses it.
    settings.flags = InitFlags::HAS_RESEND;
    let (reply, agreed) = offer(45, offered).accept(&settings).unwrap();
    assert_eq!(agreed.flags, InitFlags::HAS_RESEND | InitFlags::INIT_EXT);
    let bytes = reply.encode();
    assert_eq!((u32_at(&bytes, 12), u32_at(&bytes, 32)), (1 << 30, 1 << 7));
}

#[test]
fn an_old_kernel_gets_what_it_knows() {
    let body = Bytes::new().u32(7).u32(31).u32(4096).u32((1 << 26) - 1);
    let bytes = request(26, &body, &Bytes::new());
    let parsed = Request::parse(&bytes, &Agreed::default()).unwrap();
    let Operation::Init(offer) = parsed.operation else {
        panic!("{parsed:?}");
    };
    let (reply, agreed) = offer.accept(&wanted()).unwrap();
    assert_eq!((agreed.minor, agreed.flags.bits()), (31, (1 << 26) - 1));
    let bytes = reply.encode();
    let words = [4, 8, 12, 32, 36].map(|at| u32_at(&bytes, at));
    assert_eq!(words, [31, 4096, (1 << 26) - 1, 0, 0]);
    assert_eq!([28, 30, 40].map(|at| u16_at(&bytes, at)), [256, 0, 0]);
}

#[test]
fn a_newer_kernel_gets_our_version() {
    let (reply, agreed) = offer(46, InitFlags::from_bits(u64::MAX)).accept(&wanted()).unwrap();
    assert_eq!((agreed.minor, u32_at(&reply.encode(), 4)), (45, 45));
    assert_eq!(agreed.flags, InitFlags::KNOWN);
    let newer = Offer { major: 8, ..offer(0, InitFlags::NONE) };
    assert!(newer.is_newer_major() && !offer(99, InitFlags::NONE).is_newer_major());
    let bytes = InitReply::major_only().encode();
    assert_eq!([0, 4, 8, 12].map(|at| u32_at(&bytes, at)), [7, 45, 0, 0]);
}

#[test]
fn a_kernel_that_is_too_old_is_named() {
    for (major, minor) in [(7, 30), (6, 45), (7, 0), (8, 45)] {
        let old = Offer { major, ..offer(minor, InitFlags::NONE) };
        let error = old.accept(&wanted()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!("version {major}.{minor} of FUSE")), "{message}");
        assert!(message.ends_with("at least 7.31 is needed: use Linux 5.4 or newer"), "{message}");
    }
}

#[test]
fn no_limit_of_pages_is_none() {
    // The kernel takes 0 for one page.
    let settings = Settings { max_pages: 0, ..wanted() };
    let (_, agreed) = offer(45, InitFlags::KNOWN).accept(&settings).unwrap();
    assert_eq!(agreed.flags, InitFlags::KNOWN.without(InitFlags::MAX_PAGES));
}

#[test]
fn a_second_word_of_flags_has_to_be_there() {
    let body = Bytes::new().u32(7).u32(45).u32(4096).u32(1 << 30);
    let bytes = request(26, &body, &Bytes::new());
    assert!(Request::parse(&bytes, &Agreed::default()).is_err());
    // INIT comes before extensions are agreed on.
    let mut bytes = request(26, &body.u32(1).zeros(44), &Bytes::new());
    bytes[36] = 1;
    let parsed = Request::parse(&bytes, &Agreed::default()).unwrap();
    let Operation::Init(offer) = parsed.operation else {
        panic!("{parsed:?}");
    };
    assert_eq!(offer.flags, InitFlags::INIT_EXT | InitFlags::SECURITY_CTX);
}
