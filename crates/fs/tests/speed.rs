//! What an insertion, a look-up and a listing cost in a large directory. Slow machines don't fail.

mod support;

use std::ops::ControlFlow;
use std::time::Instant;

use conquest_pm::check::Reachable;
use support::*;

const ENTRIES: u64 = 100_000;

fn name(number: u64) -> String {
    format!("file-{number}.txt")
}

#[test]
fn a_large_directory() {
    let file = Temporary::region(128);
    let (core, dir) = (file.open(), directory(u64::MAX));
    let each = |begin: Instant, count: u64| begin.elapsed().as_nanos() as u64 / count;
    let names: Vec<String> = (0..2 * ENTRIES).map(name).collect();
    let begin = Instant::now();
    for (name, number) in names.iter().zip(0..ENTRIES) {
        insert(&core, &dir, name.as_bytes(), inode(number));
    }
    println!("{ENTRIES} insertions: {} ns each", each(begin, ENTRIES));
    for (what, first) in [("found", 0), ("missed", ENTRIES)] {
        let begin = Instant::now();
        for number in first..first + ENTRIES {
            // In another order than they were inserted.
            let name = &names[(number * 7919 % ENTRIES + first) as usize];
            let name = dir.name(name.as_bytes()).unwrap();
            let found = core.read(LOCK, |view| dir.find(view, &name)).unwrap();
            assert_eq!(found.is_some(), first == 0);
        }
        println!("{ENTRIES} names {what}: {} ns each", each(begin, ENTRIES));
    }
    let begin = Instant::now();
    let mut listed = 0;
    core.read(LOCK, |view| {
        listed = 0;
        dir.list(view, None, |_, _| {
            listed += 1;
            ControlFlow::Continue(())
        })
    })
    .unwrap();
    assert_eq!(listed, ENTRIES);
    println!("{ENTRIES} entries listed: {} ns each", each(begin, ENTRIES));
    let census = core.read(LOCK, |view| dir.check(view, &mut Reachable::default(), |_, _| {}));
    println!("{:?}", census.unwrap());
    let begin = Instant::now();
    for name in names.iter().take(ENTRIES as usize) {
        let op = Op::Remove(name.clone().into_bytes());
        assert!(perform(&core, &dir, &op, None).unwrap().is_some());
    }
    println!("{ENTRIES} removals: {} ns each", each(begin, ENTRIES));
    assert_eq!(core.check(&Reachable::default()).unwrap(), []);
}
