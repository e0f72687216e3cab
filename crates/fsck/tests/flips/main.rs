//! Damage at random: the checker always ends with a report or an error; and a bit that the format
//! says is checked never changes unnoticed.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

#[path = "../support/mod.rs"]
mod support;
mod unchecked;

use std::time::{Duration, Instant};

use conquest_format::superblock::FORMAT_VERSION;
use conquest_format::{Offset, WORD};
use conquest_fsck::{Error, Options, check};
use conquest_testkit::Rng;
use support::*;
use unchecked::unchecked;

/// How long one check may take, of six megabytes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Bits that are tried of each word that is checked.
const BITS: usize = 3;

/// Whether anything is said of the bytes: a finding, or that they can't be checked.
fn is_noticed(bytes: &[u8]) -> bool {
    let begin = Instant::now();
    let checked = check(bytes, &Options::default());
    assert!(begin.elapsed() < LIMIT, "a check of {:?}", begin.elapsed());
    checked.map_or(true, |report| report.codes().next().is_some())
}

/// A random bit of those set in `mask`.
fn one_of(rng: &mut Rng, mask: u64) -> u64 {
    let bits: Vec<u64> = (0..64).filter(|bit| mask >> bit & 1 == 1).collect();
    1 << bits[rng.below(bits.len() as u64) as usize]
}

#[test]
fn no_checked_bit_changes_unnoticed() {
    let (_, _, mut store) = everything();
    let unchecked = unchecked(&store);
    let mut rng = Rng::new(5);
    let mut flips = 0;
    let mut missed = Vec::new();
    let words = (0..).step_by(WORD as usize).map(Offset::new).zip(&unchecked.bits);
    let checked: Vec<_> = words.filter(|(_, mask)| **mask != u64::MAX).collect();
    for (at, mask) in checked.repeat(BITS) {
        let old = store.load(at);
        store.put(at, old ^ one_of(&mut rng, !mask));
        flips += 1;
        if !is_noticed(&store.bytes) {
            missed.push(format!("{at}: {old:#x} changed to {:#x}", store.load(at)));
        }
        store.put(at, old);
    }
    println!("{flips} bits changed; of {} words nothing is checked", unchecked.words());
    assert!(checked.len() > 7000, "{}", checked.len());
    assert!(missed.is_empty(), "{} of {flips} unnoticed: {missed:#?}", missed.len());
}

#[test]
fn bits_that_are_not_checked_are_what_the_format_leaves_free() {
    let (_, _, mut store) = everything();
    let unchecked = unchecked(&store);
    let mut rng = Rng::new(6);
    for (what, ranges) in &unchecked.parts {
        let mut tried = 0;
        while tried < 20 {
            let range = &ranges[rng.below(ranges.len() as u64) as usize];
            let len = range.end - range.start;
            let at = Offset::new((range.start + rng.below(len)) / WORD * WORD);
            let mask = unchecked.bits[(at.bytes() / WORD) as usize];
            let old = store.load(at);
            tried += 1;
            if mask == 0 {
                continue;
            }
            store.put(at, old ^ one_of(&mut rng, mask));
            // A target may come to have a byte of 0, a file to be larger than there can be, and an
            // inode to be younger than its lane's last record.
            let may = ["targets", "file-max", "lanes"].contains(what);
            assert!(may || !is_noticed(&store.bytes), "{what} at {at}");
            store.put(at, old);
        }
    }
}

#[test]
fn whatever_is_changed_the_check_ends() {
    let (_, _, store) = everything();
    let used = used_words(&store);
    let mut noticed = 0;
    const CASES: u64 = 1500;
    for case in 0..CASES {
        let mut rng = Rng::stream(7, case);
        let mut damaged = store.clone();
        for _ in 0..1 + rng.below(12) {
            let pick = |rng: &mut Rng| used[rng.below(used.len() as u64) as usize];
            let at = pick(&mut rng);
            let value = match rng.below(5) {
                0 => rng.word(),
                1 => damaged.load(at) ^ 1 << rng.below(64),
                2 => 0,
                // Words from elsewhere, whose check bits are right.
                _ => damaged.load(pick(&mut rng)),
            };
            damaged.put(at, value);
        }
        for name in store.files.keys() {
            damaged.sum_inode(name);
        }
        noticed += u64::from(is_noticed(&damaged.bytes));
    }
    println!("{noticed} of {CASES} damages noticed");
    assert!(noticed > CASES / 2);
}

/// Words that are not 0: those in which anything can be changed to some effect.
fn used_words(store: &Store) -> Vec<Offset> {
    let volatile = geometry().volatile();
    let all = (0..store.bytes.len() as u64).step_by(WORD as usize).map(Offset::new);
    let is_used = |at: &Offset| !volatile.contains(&at.bytes()) && store.load(*at) != 0;
    // Bytes of files have this pattern; there are many of them.
    all.filter(|at| is_used(at) && store.load(*at) != 0x0707_0505_0303_0101).collect()
}

#[test]
fn what_is_cut_off_or_no_region_is_told() {
    let (_, _, store) = everything();
    let told = |bytes: &[u8]| check(bytes, &Options::default()).unwrap_err();
    assert_eq!(told(&[]), Error::NotARegion { found: [0; 8] });
    assert_eq!(told(b"something else"), Error::NotARegion { found: *b"somethin" });
    for len in [1024, 4096, 9000, 1 << 20, store.bytes.len() - 1] {
        let error = told(&store.bytes[..len]);
        let Error::Truncated { found, expected, .. } = error else { panic!("{len}: {error}") };
        assert!(found == len as u64 && expected > found);
    }
    let change = |offset: u64, value: u64| {
        let mut damaged = store.clone();
        for copy in [0, 4096] {
            let at = Offset::new(copy + offset);
            damaged.put(at, value);
        }
        told(&damaged.bytes)
    };
    assert!(matches!(change(8, u64::from(FORMAT_VERSION.swap_bytes())), Error::Endianness { .. }));
    assert!(matches!(change(8, 1), Error::Version { found: 1, expected: FORMAT_VERSION, .. }));
    assert!(matches!(change(96, 7), Error::Superblocks { .. }));
    let mut features = store.clone();
    for at in [0, 4096_u64] {
        features.put(Offset::new(at + 32), 4);
        let start = at as usize;
        let sum = conquest_format::checksum(0, &features.bytes[start..start + 1016]);
        features.put(Offset::new(at + 1016), sum);
    }
    assert!(matches!(told(&features.bytes), Error::Features { found: 4, .. }));
    let mut version = store.clone();
    version.put(conquest_format::geometry::STATE_ROOTS, 2);
    assert!(matches!(told(&version.bytes), Error::FileSystemVersion { found: 2, .. }));
}
