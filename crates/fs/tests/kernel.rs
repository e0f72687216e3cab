//! Random operations on paths side by side with the kernel's ext4: results, errors, and the whole
//! tree after every one of them.
//!
//! Needs root, mount namespaces, a loop device and `mkfs.ext4`; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod kernel_support;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use conquest_access::{Acl, Entry, IdRange, Qualifier};
use conquest_fs::xattr::Setting;
use conquest_peers::machine::{self, Kind};
use conquest_peers::sys::Privileges;
use conquest_testkit::Rng;
use kernel_support::caller::{Caller, USERS, enter_namespace, is_in_namespace};
use kernel_support::handles::OnOpen;
use kernel_support::operation::{Known, Node, Operation};
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
        // Even of root, in a namespace that does not know the owner.
        if is_link && is_in_namespace() {
            continue;
        }
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

/// The user namespace of the second test: what is root there is nobody in particular outside, and
/// two users have other numbers.
const RANGES: [IdRange; 2] = [
    IdRange { inside: 0, outside: 7000, count: 1 },
    IdRange { inside: 1001, outside: 2001, count: 2 },
];
/// Runs of it, and one more in this many of the first test's.
const NAMESPACE_RUNS: u64 = 10;

/// Makes some files that belong to users and groups of whom the namespace knows all, one or none.
fn prepare(side: &impl Side) {
    let root = Caller::new(0);
    let done = |operation| side.perform(&root, &operation).unwrap();
    done(Operation::Chown(String::from("/"), Some(7000), Some(7000), true));
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        // Those of the run before, if it left any.
        let removal = Operation::RemoveAttribute(String::from("/"), String::from(name));
        let _ = side.perform(&root, &removal);
    }
    let ids = [7000, 2001, 2002, 0, 5000];
    for (number, (uid, gid)) in ids.iter().flat_map(|uid| ids.map(|gid| (*uid, gid))).enumerate() {
        let mode = [0o644, 0o4755, 0o2755, 0o2666, 0o666][number % 5];
        let name = ["a", "b", "c", "d", "ee"][number / 5];
        let directory = format!("{name}{name}");
        if number % 5 == 0 {
            done(Operation::Mkdir(directory.clone(), 0o777));
        }
        let path = format!("{directory}/{}", ["a", "b", "c", "d", "ee"][number % 5]);
        done(Operation::Mknod(path.clone(), Node::Regular, mode));
        if number % 3 == 0 {
            let list = Acl::from_mode(0o664);
            let entries = list.entries().iter().copied();
            let named = [
                Entry { qualifier: Qualifier::User(2001), permissions: 6 },
                Entry { qualifier: Qualifier::User(5000), permissions: 6 },
            ];
            let mask = Entry { qualifier: Qualifier::Mask, permissions: 6 };
            let mut all: Vec<Entry> = entries.collect();
            all.splice(1..1, named);
            all.insert(all.len() - 1, mask);
            let value = Acl::new(all).unwrap().to_xattr();
            let attribute = String::from("system.posix_acl_access");
            done(Operation::SetAttribute(path.clone(), attribute, value, Setting::Any));
        }
        done(Operation::Chown(path.clone(), Some(uid), Some(gid), false));
        done(Operation::Chmod(path, mode));
        if number % 5 == 4 {
            done(Operation::Chown(directory, Some(uid), Some(uid), false));
        }
    }
}

/// One run in a process that is in a namespace; the file system to compare with is at `at`.
fn run_inside(seed: u64, ours: &Ours, proc: &File, at: &Path) -> String {
    // A forked process opens the region's file once more, by `/proc`.
    ours.check();
    machine::unshare_mounts();
    let mut kernel = Kernel::enter(&File::open(at).unwrap(), Privileges::take());
    prepare(ours);
    prepare(&kernel);
    let map = RANGES.map(|range| format!("{} {} {}\n", range.inside, range.outside, range.count));
    machine::enter_user_namespace(proc, &map.concat(), &map.concat());
    enter_namespace(&RANGES);
    kernel.privileges = Privileges::take();
    kernel.privileges.become_user(&Caller::new(0).own());
    let mut counts = Counts::new();
    if let Err(difference) = run(seed, ours, &kernel, &mut counts) {
        panic!("{difference}");
    }
    ours.close_all();
    format!("{counts:?}")
}

#[test]
fn in_a_user_namespace_too() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let runs = NAMESPACE_RUNS.max(runs() / 4);
    let limit = machine::LIMIT.max(RUN_MAX * runs as u32);
    let said = machine::run(Kind::Ext4, directory, limit, |root| {
        let proc = File::open("/proc").unwrap();
        let at = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).unwrap();
        let ours = Ours::new();
        let mut said = String::new();
        for seed in 0..runs {
            said = machine::in_child(limit, || run_inside(1000 + seed, &ours, &proc, &at));
            ours.check();
            ours.clear();
        }
        format!("{} operations compared; the last: {said}", runs * OPERATIONS)
    });
    println!("{said}");
}

#[test]
fn names_are_those_of_ext4() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
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
