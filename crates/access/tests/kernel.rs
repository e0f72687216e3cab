//! The rules side by side with the kernel: random files, random callers, random operations; the
//! kernel's result, and everything that is seen afterwards, has to be what the rules say.
//!
//! Needs root, mount namespaces, a loop device and `mkfs.ext4`; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod kernel_support;

use std::collections::BTreeMap;
use std::fs::File;

use conquest_access::Credentials;
use conquest_peers::machine::{self, Kind};
use conquest_peers::sys::{self, Outcome, Privileges};
use conquest_testkit::Rng;
use kernel_support::operation::Operation;
use kernel_support::predict::{Settings, predict};
use kernel_support::world::{IDS, World, random_capabilities};

/// Cases on each file system.
const CASES: u64 = 30_000;

fn settings(kind: Kind) -> Settings {
    let protects = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap();
    Settings { kind, protects_links: protects.trim() != "0" }
}

/// What a call returned, in an order that does not depend on the kernel's mood.
fn sorted(operation: &Operation, outcome: Outcome<Vec<u8>>) -> Outcome<Vec<u8>> {
    if *operation != Operation::List {
        return outcome;
    }
    outcome.map(|names| {
        let mut names: Vec<&[u8]> = names.split_inclusive(|&byte| byte == 0).collect();
        names.sort();
        names.concat()
    })
}

/// One case; which operation it was, and whether it succeeded; or how rules and kernel differ.
fn case(
    root: &File,
    settings: Settings,
    privileges: &Privileges,
    seed: u64,
) -> Result<(&'static str, bool), String> {
    let rng = &mut Rng::stream(settings.kind as u64, seed);
    let operation = Operation::random(rng, settings.kind);
    let exists = operation.wants(rng);
    let world = World::make(root, settings.kind, rng, exists);
    let groups: Vec<u32> = IDS.into_iter().filter(|_| rng.chance(1, 3)).collect();
    let mut id = || IDS[rng.below(4) as usize];
    let (fsuid, fsgid) = (id(), id());
    let capabilities = random_capabilities(rng);
    let umask = rng.below(0o1000) as u32;
    let who = Credentials { fsuid, fsgid, groups: &groups, capabilities, umask, namespace: None };

    let before = world.snapshot();
    let is_open = operation.needs_open() && before.source().is(libc::S_IFREG);
    let can_mark = matches!(operation, Operation::SetFlags(_))
        && (before.source().is(libc::S_IFREG) || before.source().is(libc::S_IFDIR));
    let open = match (is_open, can_mark) {
        (true, _) => Some(world.open_source()),
        (_, true) => Some(world.look_at_source()),
        _ => None,
    };
    if open.is_none() && (operation.needs_open() || matches!(operation, Operation::SetFlags(_))) {
        world.remove();
        return Ok(("not possible", false));
    }
    let mut expected = before.clone();
    let predicted = predict(settings, &who, &operation, &mut expected);
    sys::enter(&world.directories[0]);
    privileges.become_user(&who);
    let outcome = sorted(&operation, operation.perform(&world, open.as_ref()));
    privileges.become_root();
    let mut after = world.snapshot();
    if let (Some(new), Some(old)) = (&mut after.files[1], &expected.files[1])
        && old.number == 0
    {
        new.number = 0;
    }
    world.remove();
    let name = |error: &i32| std::io::Error::from_raw_os_error(*error).to_string();
    let [predicted, outcome] = [&predicted, &outcome].map(|outcome| outcome.as_ref().map_err(name));
    if predicted == outcome && expected == after {
        return Ok((operation.name(), outcome.is_ok()));
    }
    let mut text = format!("case {seed}: {operation:?} by {who:?}\n  before {before:?}\n");
    text += &format!("  rules  {predicted:?}\n  kernel {outcome:?}\n");
    if expected != after {
        text += &format!("  rules  {expected:?}\n  kernel {after:?}\n");
    }
    Err(text)
}

/// Compares so many cases on a file system; says what they were.
fn compare(kind: Kind) {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let said = machine::run(kind, directory, machine::LIMIT, |root| {
        let settings = settings(kind);
        let privileges = Privileges::take();
        let mut differences = Vec::new();
        let mut counts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for seed in 0..CASES {
            match case(root, settings, &privileges, seed) {
                Ok((name, succeeded)) => {
                    counts.entry(name).or_default()[usize::from(succeeded)] += 1;
                }
                Err(difference) => differences.push(difference),
            }
        }
        let shown = differences.iter().take(10).map(String::as_str).collect::<String>();
        assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
        let impossible = counts.remove("not possible").map_or(0, |counts| counts[0]);
        let compared = CASES - impossible;
        assert!(compared >= 20_000, "only {compared} cases were compared");
        for (name, [failed, succeeded]) in &counts {
            assert!(*succeeded >= 30, "{name} succeeded {succeeded} times only");
            let can_fail = kind == Kind::Ext4 || *name != "write";
            assert!(*failed >= 30 || !can_fail, "{name} failed {failed} times only");
        }
        format!("{kind:?}: {compared} cases compared: {counts:?}")
    });
    println!("{said}");
}

#[test]
fn the_rules_are_those_of_tmpfs() {
    compare(Kind::Tmpfs);
}

#[test]
fn the_rules_are_those_of_ext4() {
    compare(Kind::Ext4);
}
