//! Listings: what is pushed is found by the kernel's rules, and never more than fits.

mod support;

use std::time::Duration;

use conquest_fuse::wire::{Attributes, Body, Entry, Listing};
use support::Bytes;

/// An entry as the kernel finds it.
#[derive(PartialEq, Debug)]
struct Found {
    number: u64,
    next: u64,
    file_type: u32,
    name: Vec<u8>,
}

/// Entries in `bytes`, each of which has `skip` bytes before it; padding has to be zeros.
fn entries(mut bytes: &[u8], skip: usize) -> Vec<Found> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let u64_at = |at| u64::from_ne_bytes(support::at(bytes, at));
        let u32_at = |at| u32::from_ne_bytes(support::at(bytes, at));
        let name_end = skip + 24 + u32_at(skip + 16) as usize;
        let end = name_end.next_multiple_of(8);
        found.push(Found {
            number: u64_at(skip),
            next: u64_at(skip + 8),
            file_type: u32_at(skip + 20),
            name: bytes[skip + 24..name_end].to_vec(),
        });
        assert!(bytes[name_end..end].iter().all(|&byte| byte == 0));
        bytes = &bytes[end..];
    }
    found
}

#[test]
fn entries_are_found_again() {
    let mut buffer = [0xFF; 4096];
    let mut listing = Listing::new(&mut buffer);
    assert!(listing.is_empty() && listing.bytes().is_empty());
    let mut expected = Vec::new();
    for len in 1..=17 {
        let name = vec![b'a'; len];
        let (number, next) = (len as u64 * 10, u64::MAX - len as u64);
        assert!(listing.push(number, next, 8, &name));
        expected.push(Found { number, next, file_type: 8, name });
    }
    assert!(!listing.is_empty());
    assert_eq!(entries(listing.bytes(), 0), expected);
}

#[test]
fn entries_with_attributes_are_found_again() {
    let entry = |node| Entry {
        node,
        generation: 1,
        name_lifetime: Duration::from_secs(1),
        attributes_lifetime: Duration::from_millis(1500),
        attributes: Attributes { number: node, mode: 0o100644, ..Attributes::default() },
    };
    let mut buffer = [0xFF; 4096];
    let mut listing = Listing::new(&mut buffer);
    for node in 5..20 {
        let name = vec![b'b'; node as usize];
        assert!(listing.push_plus(&entry(node), node, node + 1, 8, &name));
    }
    let bytes = listing.bytes();
    let found = entries(bytes, 128);
    assert_eq!(found.len(), 15);
    assert!(found.iter().all(|entry| entry.name.len() as u64 == entry.number));
    assert_eq!(bytes[..128], entry(5).encode());
}

#[test]
fn nothing_is_written_past_the_end() {
    // 24 bytes and a name of up to 8 are 32.
    for (name, size) in [(&b"a"[..], 32), (b"12345678", 32), (b"123456789", 40)] {
        for room in 0..100 {
            let mut buffer = [0xAA; 120];
            let mut listing = Listing::new(&mut buffer[..room]);
            let mut count = 0;
            while listing.push(1, 2, 3, name) {
                count += 1;
            }
            assert_eq!((count, listing.bytes().len()), (room / size, room / size * size));
            // What does not fit leaves no trace.
            let used = room / size * size;
            assert!(buffer[used..].iter().all(|&byte| byte == 0xAA), "{room}");
        }
    }
    let mut buffer = [0; 159];
    assert!(!Listing::new(&mut buffer).push_plus(&Entry::default(), 1, 2, 3, b"a"));
    let mut buffer = [0; 160];
    assert!(Listing::new(&mut buffer).push_plus(&Entry::default(), 1, 2, 3, b"a"));
}

#[test]
fn a_shorter_name_may_fit_where_a_longer_did_not() {
    let mut buffer = [0; 64];
    let mut listing = Listing::new(&mut buffer);
    assert!(listing.push(1, 1, 4, b"."));
    assert!(!listing.push(2, 2, 4, &[b'a'; 9]));
    assert!(listing.push(2, 2, 4, b".."));
    let expected = Bytes::new().u64(1).u64(1).u32(1).u32(4).raw(b".").padded();
    let expected = expected.u64(2).u64(2).u32(2).u32(4).raw(b"..").padded().0;
    assert_eq!(listing.bytes(), expected);
}
