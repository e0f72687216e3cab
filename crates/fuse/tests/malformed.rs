//! Bytes that are no request: an error says so, and nothing panics.

mod support;

use conquest_fuse::wire::{Agreed, Fault, InitFlags, Malformed, Opcode, Operation, Request};
use support::{Bytes, UNIQUE, cases, everything, lock, request, setattr, with_length};

const NONE: Bytes = Bytes(Vec::new());

fn fault(opcode: Opcode, body: &Bytes) -> Option<Fault> {
    let bytes = request(opcode as u32, body, &NONE);
    Request::parse(&bytes, &everything()).err().map(|malformed| malformed.fault)
}

#[test]
fn a_request_that_is_cut_off_is_refused() {
    for case in cases() {
        let whole = request(case.opcode as u32, &case.body, &NONE);
        for len in 0..whole.len() {
            let cut = Request::parse(&whole[..len], &everything());
            let malformed = cut.unwrap_err();
            let is_known = len >= 40;
            assert_eq!(malformed.unique, is_known.then_some(UNIQUE), "{} {len}", case.opcode);
            let told = Request::parse(&with_length(whole[..len].to_vec()), &everything()).is_ok();
            // INIT grows with the versions: two words of flags are enough.
            let is_enough = case.opcode == Opcode::Init && len >= 60;
            assert_eq!(told, is_enough, "{} {len}", case.opcode);
        }
    }
}

#[test]
fn a_request_with_too_much_is_refused() {
    for case in cases() {
        let whole = request(case.opcode as u32, &case.body.clone().zeros(1), &NONE);
        let parsed = Request::parse(&whole, &everything());
        if case.opcode == Opcode::Init {
            assert!(parsed.is_ok());
        } else {
            assert_eq!(parsed.unwrap_err().fault, Fault::Trailing { bytes: 1 }, "{}", case.opcode);
        }
    }
}

#[test]
fn what_is_wrong_is_told() {
    let new = Bytes::new();
    let long = Bytes::new().u32(3).u32(0).u64(1).u64(1).u64(2).u64(1);
    let many = Bytes::new().u32(u32::MAX).u64(1).u64(1);
    let write = Bytes::new().u64(3).u64(0).u32(u32::MAX).zeros(20).raw(b"abc");
    let nodes = "nodes to forget";
    let expected = [
        (Opcode::Lookup, new.clone(), Fault::Endless { what: "name" }),
        (Opcode::Lookup, new.clone().raw(b"name"), Fault::Endless { what: "name" }),
        (Opcode::Lookup, new.clone().text(b""), Fault::Empty { what: "name" }),
        (Opcode::Symlink, new.clone().text(b"a").text(b""), Fault::Empty { what: "target" }),
        (Opcode::Rename, new.u64(1).text(b"a").raw(b"b"), Fault::Endless { what: "new name" }),
        (Opcode::BatchForget, long, Fault::Count { what: nodes, count: 3, room: 2 }),
        (
            Opcode::Removemapping,
            many,
            Fault::Count { what: "mappings", count: u32::MAX.into(), room: 1 },
        ),
        (Opcode::Write, write, Fault::Short { wanted: u32::MAX as usize, found: 3 }),
        (Opcode::Setlk, lock(3, 0), Fault::Value { what: "type of lock", value: 3 }),
        (
            Opcode::Setattr,
            setattr(1 << 4, [1_000_000_000, 0, 0]),
            Fault::Value { what: "nanoseconds of atime", value: 1_000_000_000 },
        ),
        (
            Opcode::Setattr,
            setattr(1 << 5, [0, u32::MAX, 0]),
            Fault::Value { what: "nanoseconds of mtime", value: u32::MAX.into() },
        ),
        (
            Opcode::Setattr,
            setattr(1 << 10, [0, 0, 1_000_000_000]),
            Fault::Value { what: "nanoseconds of ctime", value: 1_000_000_000 },
        ),
    ];
    for (opcode, body, wrong) in expected {
        assert_eq!(fault(opcode, &body), Some(wrong), "{opcode}");
    }
    // What is not valid is not looked at.
    assert_eq!(fault(Opcode::Setattr, &setattr(1 << 8, [u32::MAX; 3])), None);
}

#[test]
fn messages_name_request_reason_and_remedy() {
    let bytes = request(Opcode::Lookup as u32, &Bytes::new().raw(b"name"), &NONE);
    let malformed = Request::parse(&bytes, &everything()).unwrap_err();
    let message = malformed.to_string();
    assert!(message.starts_with("request 0x12345678 (LOOKUP) can't be understood"), "{message}");
    assert!(message.contains("its name does not end; "), "{message}");
    assert!(message.ends_with("report it, with the kernel's version"), "{message}");
    let nothing = Request::parse(&[], &everything()).unwrap_err().to_string();
    assert!(nothing.contains("0 bytes where 40 are needed"), "{nothing}");
}

#[test]
fn those_who_wait_can_be_answered() {
    let malformed = |unique, opcode: Option<Opcode>| Malformed {
        unique,
        opcode: opcode.map(|opcode| opcode as u32),
        fault: Fault::Trailing { bytes: 1 },
    };
    assert!(malformed(Some(1), Some(Opcode::Read)).wants_answer());
    assert!(malformed(Some(1), None).wants_answer());
    assert!(!malformed(None, Some(Opcode::Read)).wants_answer());
    for opcode in [Opcode::Forget, Opcode::BatchForget, Opcode::NotifyReply] {
        assert!(!malformed(Some(1), Some(opcode)).wants_answer());
    }
}

/// Numbers that look random, always the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        // Small numbers and zeros are likelier to get far.
        (0..count).map(|_| if self.next() & 3 == 0 { self.next() as u8 } else { 0 }).collect()
    }
}

/// Looks at everything that a request has.
fn walk(request: &Request<'_>) -> u64 {
    let items = match request.operation {
        Operation::BatchForget(forgets) => forgets.iter().map(|forget| forget.node).sum(),
        Operation::Removemapping(mappings) => mappings.iter().count() as u64,
        _ => 0,
    };
    let contexts = request.extensions.security_contexts();
    let contexts: usize = contexts.map(|context| context.name.len() + context.value.len()).sum();
    let groups: u64 = request.extensions.groups().map(u64::from).sum();
    items.wrapping_add(contexts as u64).wrapping_add(groups)
}

#[test]
fn bytes_at_random_never_panic() {
    let mut random = Random(7);
    let mut understood = 0;
    for _ in 0..200_000 {
        let opcode =
            if random.below(16) == 0 { random.next() as u32 } else { random.below(56) as u32 };
        let (fields, extensions) = (random.below(100), random.below(4) * 8);
        let (fields, extensions) = (random.bytes(fields), random.bytes(extensions));
        let mut bytes = request(opcode, &Bytes(fields), &Bytes(extensions));
        if random.below(16) == 0 {
            bytes = random.bytes(bytes.len());
        }
        let agreed = Agreed {
            minor: 31 + random.below(15) as u32,
            flags: InitFlags::from_bits(random.next()),
        };
        if let Ok(request) = Request::parse(&bytes, &agreed) {
            walk(&request);
            understood += 1;
        }
    }
    assert!(understood > 10_000, "{understood} were understood: too few to say much");
}

#[test]
fn requests_with_bits_flipped_never_panic() {
    let mut random = Random(8);
    let cases = cases();
    for _ in 0..20_000 {
        let case = &cases[random.below(cases.len())];
        let mut bytes = request(case.opcode as u32, &case.body, &NONE);
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        if let Ok(request) = Request::parse(&bytes, &everything()) {
            walk(&request);
        }
    }
}
