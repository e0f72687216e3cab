//! Random operations on paths side by side with the kernel's ext4: results, errors, and the whole
//! tree after every one of them.
//!
//! Needs root, mount namespaces, a loop device and `mkfs.ext4`; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod kernel_support;

use std::collections::BTreeMap;
use std::time::Duration;

use conquest_peers::machine::{self, Kind};
use conquest_peers::sys::Privileges;
use conquest_testkit::Rng;
use kernel_support::caller::{Caller, USERS};
use kernel_support::handles::OnOpen;
use kernel_support::operation::{Known, Operation};
use kernel_support::sides::{Kernel, Ours, Side};
use kernel_support::tree::{Tree, differences, touched};

/// Operations of one run; the tree is begun anew for each run.
const OPERATIONS: u64 = 400;
/// Bytes that are compared of each regular file in the end: more than are ever written.
const WHOLE: u64 = 1 << 20;
/// One in so many operations waits for the clock to go on, so that it is seen whose times it sets.
const WAITS: u64 = 16;
/// Longer than a tick of the kernel's clock for times of files.
const TICK: Duration = Duration::from_millis(11);

/// A run takes no longer, if there are many.
const RUN_MAX: Duration = Duration::from_secs(1);
/// Runs, unless `CONQUEST_RUNS` says otherwise.
const RUNS: u64 = 40;

fn runs() -> u64 {
    std::env::var("CONQUEST_RUNS").map_or(RUNS, |runs| runs.parse().unwrap())
}

type Counts = BTreeMap<&'static str, [u64; 2]>;

fn known(tree: &Tree) -> Known {
    let mut known = Known::default();
    for (path, seen) in tree {
        let path = String::from_utf8(path.clone()).unwrap();
        if seen.stat[0] & u64::from(libc::S_IFMT) == u64::from(libc::S_IFDIR) {
            known.directories.push(path.clone());
        }
        if seen.stat[0] & u64::from(libc::S_IFMT) == u64::from(libc::S_IFREG) {
            known.regular.push(path.clone());
        }
        known.files.push(path);
    }
    known
}

/// One run, on empty file systems: how they differ first, if they do.
fn run(seed: u64, ours: &Ours, kernel: &Kernel, counts: &mut Counts) -> Result<(), String> {
    let rng = &mut Rng::stream(1, seed);
    let mut last: [Tree; 2] = [ours.tree(), kernel.tree()];
    for number in 0..OPERATIONS {
        let operation = Operation::random(rng, &known(&last[0]));
        // The kernel may be set to refuse links to what others own.
        let is_link =
            matches!(operation, Operation::Link(..) | Operation::Handle(_, OnOpen::Link(_)));
        let user = if is_link { 0 } else { rng.below(USERS) as usize };
        let waits = rng.below(WAITS) == 0;
        if waits {
            std::thread::sleep(TICK);
        }
        let caller = Caller::new(user);
        let results = [ours.perform(&caller, &operation), kernel.perform(&caller, &operation)];
        let trees = [ours.tree(), kernel.tree()];
        let tell = |what: &str| {
            let [ours, kernel] = &results;
            format!(
                "seed {seed}, operation {number}: {operation:?} by user {user}\n  ours   \
                 {ours:?}\n  kernel {kernel:?}\n{what}"
            )
        };
        if results[0] != results[1] {
            return Err(tell(""));
        }
        let found = differences(&trees);
        if !found.is_empty() {
            return Err(tell(&found));
        }
        // What fails changes nothing of ours; ext4 takes back a whiteout by two changes.
        if results[0].is_err() {
            let touched = touched(&last[0], &trees[0]);
            if !touched.is_empty() {
                return Err(tell(&format!("  times of ours {touched:?}\n")));
            }
        } else if waits {
            let [ours, kernel] = [0, 1].map(|side| touched(&last[side], &trees[side]));
            if ours != kernel {
                return Err(tell(&format!("  times of ours {ours:?}\n  kernel's {kernel:?}\n")));
            }
        }
        counts.entry(operation.name()).or_default()[usize::from(results[0].is_ok())] += 1;
        last = trees;
    }
    for path in known(&last[0]).regular {
        let whole = Operation::Read(path, 0, WHOLE);
        let root = Caller::new(0);
        if ours.perform(&root, &whole) != kernel.perform(&root, &whole) {
            return Err(format!("seed {seed}: {whole:?} differs in the end"));
        }
    }
    Ok(())
}

#[test]
fn names_are_those_of_ext4() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let limit = machine::LIMIT.max(RUN_MAX * runs() as u32);
    let said = machine::run(Kind::Ext4, directory, limit, |root| {
        let privileges = Privileges::take();
        let ours = Ours::new();
        let kernel = Kernel::enter(root, privileges);
        let mut counts = Counts::new();
        for seed in 0..runs() {
            if let Err(difference) = run(seed, &ours, &kernel, &mut counts) {
                panic!("{difference}");
            }
            ours.check();
            ours.clear();
            kernel.clear();
        }
        let all: u64 = counts.values().flatten().sum();
        // A few runs need not come to everything.
        for (name, [failed, succeeded]) in counts.iter().filter(|_| runs() >= RUNS) {
            assert!(*failed > 0 && *succeeded > 0, "{name}: {failed} failed, {succeeded} did not");
        }
        format!("{all} operations compared: {counts:?}")
    });
    println!("{said}");
}
