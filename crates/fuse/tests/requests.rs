//! Requests: every operation, as the kernel sends it, means what it should.

mod support;

use conquest_fuse::wire::{
    Agreed, Extensions, Fault, Forget, InitFlags, Mapping, Opcode, Operation, Request,
    SecurityContext,
};
use support::{Bytes, NODE, UNIQUE, cases, everything, request};

const NONE: Bytes = Bytes(Vec::new());

#[test]
fn every_operation_is_understood() {
    for case in cases() {
        let bytes = request(case.opcode as u32, &case.body, &NONE);
        let request = Request::parse(&bytes, &everything()).unwrap();
        assert_eq!(request.operation, case.meaning, "{}", case.opcode);
        let caller = (request.uid, request.gid, request.pid);
        assert_eq!((request.unique, request.node, caller), (UNIQUE, NODE, (1000, 100, 4711)));
        assert_eq!((request.resent, request.extensions), (false, Extensions::default()));
    }
}

#[test]
fn every_operation_is_tested() {
    let cases = cases();
    let is_tested = |opcode: &Opcode| {
        let elsewhere = [Opcode::BatchForget, Opcode::Removemapping];
        elsewhere.contains(opcode) || cases.iter().any(|case| case.opcode == *opcode)
    };
    let missing: Vec<&Opcode> = Opcode::ALL.iter().filter(|opcode| !is_tested(opcode)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn an_unaligned_request_is_understood() {
    for case in cases() {
        let mut bytes = vec![0];
        bytes.extend(request(case.opcode as u32, &case.body, &NONE));
        let request = Request::parse(&bytes[1..], &everything()).unwrap();
        assert_eq!(request.operation, case.meaning, "{}", case.opcode);
    }
}

#[test]
fn nodes_are_forgotten_in_batches() {
    let body = Bytes::new().u32(2).u32(0).u64(5).u64(1).u64(6).u64(u64::MAX);
    let bytes = request(42, &body, &NONE);
    let request = Request::parse(&bytes, &everything()).unwrap();
    let Operation::BatchForget(forgets) = request.operation else {
        panic!("{request:?}");
    };
    let all: Vec<Forget> = forgets.iter().collect();
    let expected = [Forget { node: 5, lookups: 1 }, Forget { node: 6, lookups: u64::MAX }];
    assert_eq!((all.as_slice(), forgets.len(), forgets.is_empty()), (&expected[..], 2, false));
}

#[test]
fn mappings_are_removed() {
    let body = Bytes::new().u32(2).u64(1 << 21).u64(4096).u64(0).u64(8192);
    let bytes = request(49, &body, &NONE);
    let request = Request::parse(&bytes, &everything()).unwrap();
    let Operation::Removemapping(mappings) = request.operation else {
        panic!("{request:?}");
    };
    let expected = [
        Mapping { memory_offset: 1 << 21, length: 4096 },
        Mapping { memory_offset: 0, length: 8192 },
    ];
    assert_eq!(mappings.iter().collect::<Vec<Mapping>>(), expected);
}

#[test]
fn an_operation_of_the_future_is_unknown() {
    for opcode in [0, 7, 19, 54, 4096, u32::MAX] {
        let bytes = request(opcode, &Bytes::new().raw(b"whatever"), &NONE);
        let request = Request::parse(&bytes, &everything()).unwrap();
        assert_eq!(request.operation, Operation::Unknown { opcode, body: b"whatever" });
    }
}

#[test]
fn a_value_has_the_short_head_where_no_other_was_agreed_on() {
    let body = Bytes::new().u32(3).u32(1).text(b"user.a").raw(b"abc");
    let bytes = request(21, &body, &NONE);
    let agreed = Agreed { minor: 45, flags: InitFlags::KNOWN.without(InitFlags::SETXATTR_EXT) };
    let request = Request::parse(&bytes, &agreed).unwrap();
    let expected =
        Operation::Setxattr { name: b"user.a", value: b"abc", flags: 1, acl_kill_sgid: false };
    assert_eq!(request.operation, expected);
}

#[test]
fn a_request_that_comes_again_is_marked() {
    let mut bytes = request(5, &Bytes::new(), &NONE);
    bytes[8..16].copy_from_slice(&(1_u64 << 63 | 6).to_ne_bytes());
    let again = Request::parse(&bytes, &everything()).unwrap();
    assert_eq!((again.unique, again.resent), (1 << 63 | 6, true));
    let unmarked = Request::parse(&bytes, &Agreed::default()).unwrap();
    assert!(!unmarked.resent);
}

/// An extension of security contexts.
fn contexts(all: &[(&[u8], &[u8])]) -> Bytes {
    let mut body = Bytes::new();
    for (name, value) in all {
        body = body.u32(value.len() as u32).u32(0).text(name).raw(value).padded();
    }
    Bytes::new().u32(body.0.len() as u32 + 8).u32(all.len() as u32).raw(&body.0)
}

/// An extension of groups.
fn groups(all: &[u32]) -> Bytes {
    let mut body = Bytes::new().u32(all.len() as u32);
    for group in all {
        body = body.u32(*group);
    }
    let size = (body.0.len() as u32 + 8).next_multiple_of(8);
    Bytes::new().u32(size).u32(32).raw(&body.0).padded()
}

#[test]
fn extensions_come_with_what_creates() {
    let body = Bytes::new().u32(0o40755).u32(0).text(b"dir");
    let first = (&b"security.selinux"[..], &b"a:b:c\0"[..]);
    let second = (&b"security.SMACK64"[..], &b"_"[..]);
    let unknown = Bytes::new().u32(16).u32(1000).zeros(8);
    let extensions = contexts(&[first, second]).raw(&unknown.0).raw(&groups(&[27, 28]).0);
    let bytes = request(9, &body, &extensions);
    let request = Request::parse(&bytes, &everything()).unwrap();
    assert_eq!(request.operation, Operation::Mkdir { name: b"dir", mode: 0o40755, umask: 0 });
    let found: Vec<SecurityContext<'_>> = request.extensions.security_contexts().collect();
    let expected = [first, second].map(|(name, value)| SecurityContext { name, value });
    assert_eq!(found, expected);
    assert_eq!(request.extensions.groups().collect::<Vec<u32>>(), [27, 28]);
}

#[test]
fn groups_may_come_alone() {
    let bytes = request(6, &Bytes::new().text(b"name").text(b"target"), &groups(&[27]));
    // The first version that counts extensions.
    let agreed = Agreed { minor: 38, flags: InitFlags::CREATE_SUPP_GROUP };
    let request = Request::parse(&bytes, &agreed).unwrap();
    assert_eq!(request.operation, Operation::Symlink { name: b"name", target: b"target" });
    assert_eq!(request.extensions.groups().collect::<Vec<u32>>(), [27]);
    assert_eq!(request.extensions.security_contexts().count(), 0);
}

#[test]
fn a_security_context_may_be_none() {
    let extensions = contexts(&[]);
    let bytes = request(6, &Bytes::new().text(b"name").text(b"target"), &extensions);
    let request = Request::parse(&bytes, &everything()).unwrap();
    assert_eq!(request.extensions.security_contexts().count(), 0);
}

#[test]
fn older_kernels_do_not_count_security_contexts() {
    let context = (&b"security.selinux"[..], &b"a:b:c\0"[..]);
    let fields = Bytes::new().u32(0o40755).u32(0).text(b"dir");
    let bytes = request(9, &fields.raw(&contexts(&[context]).0), &NONE);
    let old = Agreed { minor: 37, flags: InitFlags::SECURITY_CTX };
    let parsed = Request::parse(&bytes, &old).unwrap();
    let found: Vec<SecurityContext<'_>> = parsed.extensions.security_contexts().collect();
    assert_eq!(found, [SecurityContext { name: context.0, value: context.1 }]);
    // Only with what creates, and only if it was agreed on.
    let unlink = request(10, &Bytes::new().text(b"a").raw(&contexts(&[context]).0), &NONE);
    let plain = Agreed { minor: 37, flags: InitFlags::NONE };
    for (bytes, agreed) in [(&unlink, &old), (&bytes, &plain)] {
        let fault = Request::parse(bytes, agreed).unwrap_err().fault;
        assert!(matches!(fault, Fault::Trailing { .. }), "{fault}");
    }
}

#[test]
fn extensions_that_contradict_themselves_are_refused() {
    let body = Bytes::new().u32(0o40755).u32(0).text(b"dir");
    let context = (&b"security.selinux"[..], &b"a:b:c\0"[..]);
    let bad = [
        // Less than a header.
        Bytes::new().u32(0).u32(32),
        Bytes::new().u32(7).u32(32),
        // More than there is.
        Bytes::new().u32(24).u32(32).u32(1).u32(5),
        Bytes::new().u32(u32::MAX).u32(32),
        // More groups, or contexts, than fit.
        Bytes::new().u32(16).u32(32).u32(2).u32(5),
        Bytes::new().u32(8).u32(1),
        // A context that does not end, is too long, or is followed by more.
        Bytes::new().u32(24).u32(1).u32(1).u32(0).raw(b"security"),
        Bytes::new().u32(24).u32(1).u32(9).u32(0).text(b"a").zeros(6),
        Bytes::new().u32(24).u32(1).u32(1).u32(0).text(b"").zeros(7),
        Bytes::new().u32(16).u32(0).zeros(8),
        contexts(&[context]).raw(&[0; 4]),
    ];
    for extensions in bad {
        let bytes = request(9, &body, &extensions.padded());
        let malformed = Request::parse(&bytes, &everything()).unwrap_err();
        assert_eq!((malformed.unique, malformed.opcode), (Some(UNIQUE), Some(9)));
    }
    let longer = Bytes::new().u32(16).u32(1).u32(0).u32(0).padded();
    let mut bytes = request(38, &Bytes::new(), &longer);
    bytes[36..38].copy_from_slice(&3_u16.to_ne_bytes());
    let fault = Request::parse(&bytes, &everything()).unwrap_err().fault;
    assert_eq!(fault, Fault::Short { wanted: 24, found: 16 });
}
