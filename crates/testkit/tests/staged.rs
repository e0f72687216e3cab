//! What a transaction sees of its own before it commits.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::path::Path;
use std::sync::Arc;

use conquest_format::geometry::{ROOTS, STATE_ROOTS, Shape};
use conquest_format::kind::{KINDS, KindSpec};
use conquest_format::{Offset, WORD};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::tx::STAGED_MAX;
use conquest_pm::{Access, Mode, Options, Region};
use conquest_testkit::Rng;

/// A region in memory that nobody else can find.
fn region() -> Arc<Region> {
    let path = format!("/dev/shm/conquest-staged-{}", std::process::id());
    let path = Path::new(&path);
    let shape = Shape { max_groups: 4, lanes: 4, slots: 4, locks: 8, chunks: 4, log: 0 };
    let kinds = [KindSpec::UNUSED; KINDS];
    let new = NewRegion { shape, kinds, uuid: [1; 16], created: 2, groups: 1 };
    Region::create(Source::from(path), 0o600, &new).unwrap();
    let region = Region::open(Source::from(path), &kinds, Access::default(), Options::default());
    std::fs::remove_file(path).unwrap();
    region.unwrap()
}

fn root(index: u64) -> Offset {
    STATE_ROOTS.plus(index * WORD)
}

#[test]
fn it_is_what_was_set_last_word_by_word_and_at_once() {
    let region = region();
    let mut rng = Rng::new(1);
    let mut committed = [0; ROOTS as usize];
    for round in 0..300 {
        let mut tx = region.begin().unwrap();
        tx.lock(1, Mode::Exclusive).unwrap();
        let mut seen = committed;
        let mut kept = None;
        for step in 0..rng.below(STAGED_MAX) {
            let index = rng.below(ROOTS);
            let value = rng.word();
            tx.set(root(index), value).unwrap();
            seen[index as usize] = value;
            match rng.below(20) {
                0 => kept = Some((tx.staged(), seen)),
                1 => {
                    if let Some((staged, then)) = kept.take() {
                        tx.unstage(&staged);
                        seen = then;
                    }
                }
                2 => {
                    tx.commit_part().unwrap();
                    (committed, kept) = (seen, None);
                }
                _ => {}
            }
            let index = rng.below(ROOTS);
            assert_eq!(tx.get(root(index)), seen[index as usize], "round {round}, step {step}");
            let first = rng.below(ROOTS);
            let count = 1 + rng.below(ROOTS - first);
            let mut bytes = vec![0; (count * WORD) as usize];
            tx.bytes(root(first), &mut bytes);
            let expected = &seen[first as usize..(first + count) as usize];
            let expected: Vec<u8> = expected.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(bytes, expected, "round {round}, step {step}");
        }
        if rng.chance(1, 2) {
            tx.commit().unwrap();
            committed = seen;
        }
    }
}
