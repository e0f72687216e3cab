//! Bundles: what their operations do is what they do one by one, error by error.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use conquest::{
    Capabilities, Capability, CorePlace, Credentials, Done, Files, NewStore, OpenOptions,
    Operation, OwnNamespace, Removal, Renaming, Resolve, SetTime, Store,
};
use conquest_fs::names::New;
use conquest_testkit::Rng;
use support::{Temporary, attach, small};

/// A new store in `place`.
fn store(place: &Path, name: &str) -> Store {
    let directory = place.join(name);
    let core = CorePlace::Path(place.join(format!("{name}-core")));
    Store::make(&directory, &NewStore { core, ..small() }).unwrap();
    attach(&directory)
}

/// An ordinary user.
fn somebody() -> Credentials {
    Credentials {
        fsuid: 7,
        fsgid: 7,
        groups: Vec::new(),
        capabilities: Capabilities::NONE,
        umask: 0o022,
        namespace: OwnNamespace::default(),
    }
}

/// What came of an operation, in the words of errors, without what differs between stores.
fn show(done: &conquest::Result<Done>, out: &[u8]) -> String {
    match done {
        Ok(Done::Metadata(found)) => {
            let stat = found.stat();
            format!("{:o} {} {} {}", stat.mode, stat.links, stat.size, stat.uid)
        }
        Ok(Done::File(file)) => {
            let refused = file.read_at(&mut [0; 1], u64::MAX).unwrap_err();
            format!("{:?}: {refused}", file.file_type())
        }
        Ok(Done::Bytes(len)) => format!("{len} {:?}", out.get(..*len)),
        Ok(done) => format!("{done:?}"),
        Err(error) => format!("{error} ({})", error.raw_os_error()),
    }
}

/// What an operation is, with what it owns.
#[derive(Clone, Debug)]
struct Plan {
    kind: u64,
    paths: [PathBuf; 2],
    number: u64,
    out: Vec<u8>,
}

const KINDS: u64 = 16;

impl Plan {
    /// One at random, mostly about files in one of `places`, and about these themselves.
    fn random(rng: &mut Rng, places: &[String]) -> Plan {
        let mut path = || {
            let place = &places[rng.below(places.len() as u64) as usize];
            let name = ["a", "b", "c", "l"][rng.below(4) as usize];
            PathBuf::from(match rng.below(12) {
                0..6 => format!("{place}/{name}"),
                6 => format!("{place}/"),
                7 => format!("{place}/{name}/"),
                8 => name.to_owned(),
                9 => format!("{place}/.."),
                _ => place.clone(),
            })
        };
        let mut paths = [path(), path()];
        if rng.below(2) == 0 {
            // Two names in a directory.
            paths[1] = paths[0].with_file_name(["a", "b", "l"][rng.below(3) as usize]);
        }
        Plan { kind: rng.below(KINDS), paths, number: rng.below(1 << 20), out: vec![0; 40] }
    }

    fn operation<'o>(&'o mut self, options: &'o OpenOptions) -> Operation<'o> {
        let Plan { kind, paths: [path, other], number, out } = self;
        let (path, other, number) = (path.as_path(), other.as_path(), *number);
        match *kind {
            0 => Operation::Metadata { path, follow: number % 2 == 0 },
            1 => Operation::Open { path, options },
            2 => Operation::Read { path, offset: number % 4, out },
            3 | 4 => {
                out.fill(number as u8);
                Operation::Write { path, options, offset: number % 30, bytes: out }
            }
            5 => Operation::ReadLink { path },
            6 | 7 => Operation::Make { path, what: New::Directory, mode: 0o777 },
            8 => {
                let target = [&b".."[..], b"../a", b"/a", b".", b"b", b"a/b/.."];
                let what = New::Symlink(target[number as usize % target.len()]);
                Operation::Make { path, what, mode: 0o777 }
            }
            9 => Operation::Link { old: path, new: other },
            10 => {
                let how = [Renaming::Replace, Renaming::NoReplace, Renaming::Exchange];
                Operation::Rename { old: path, new: other, how: how[number as usize % how.len()] }
            }
            11 => Operation::Remove { path, how: Removal::File },
            12 => Operation::Remove { path, how: Removal::Directory },
            13 => Operation::Truncate { path, size: number % 50 },
            14 => {
                let mode = [0o777, 0o700, 0o777, 0o644, 0o000, 0o555][number as usize % 6];
                Operation::SetPermissions { path, mode }
            }
            _ => match number % 2 {
                0 => {
                    let uid = [7, 0][number as usize / 2 % 2];
                    Operation::SetOwner { path, uid: Some(uid), gid: Some(uid) }
                }
                _ => Operation::SetTimes { path, accessed: SetTime::Omit, modified: SetTime::Now },
            },
        }
    }
}

/// Does `plans` as one bundle: what came of each.
fn bundled(files: &Files, plans: &mut [Plan], options: &OpenOptions) -> Vec<String> {
    let done = files.bundle(plans.iter_mut().map(|plan| plan.operation(options)));
    done.iter().zip(plans.iter()).map(|(done, plan)| show(done, &plan.out)).collect()
}

/// Does `operation` by the method that is for it alone.
fn alone(files: &Files, operation: Operation<'_>) -> conquest::Result<Done> {
    let nothing = |()| Done::Nothing;
    match operation {
        Operation::Metadata { path, follow: true } => files.metadata(path).map(Done::Metadata),
        Operation::Metadata { path, follow: false } => {
            files.symlink_metadata(path).map(Done::Metadata)
        }
        Operation::Open { path, options } => files.open_with(path, options).map(Done::File),
        Operation::Read { path, offset, out } => {
            let file = files.open(path)?;
            file.read_at(out, offset).map(Done::Bytes)
        }
        Operation::Write { path, options, offset, bytes } => {
            let file = files.open_with(path, options)?;
            file.write_at(bytes, offset).map(Done::Bytes)
        }
        Operation::ReadOpen { file, at: Some(at), out } => file.read_at(out, at).map(Done::Bytes),
        Operation::ReadOpen { file, at: None, out } => file.read(out).map(Done::Bytes),
        Operation::WriteOpen { file, at: Some(at), bytes } => {
            file.write_at(bytes, at).map(Done::Bytes)
        }
        Operation::WriteOpen { file, at: None, bytes } => file.write(bytes).map(Done::Bytes),
        Operation::ReadLink { path } => files.read_link(path).map(Done::Target),
        Operation::Make { path, what, mode } => files.make_node(path, what, mode).map(nothing),
        Operation::Link { old, new } => files.hard_link(old, new).map(nothing),
        Operation::Rename { old, new, how } => files.rename_with(old, new, how).map(nothing),
        Operation::Remove { path, how: Removal::File } => files.remove_file(path).map(nothing),
        Operation::Remove { path, how: Removal::Directory } => files.remove_dir(path).map(nothing),
        Operation::Truncate { path, size } => files.truncate(path, size).map(nothing),
        Operation::SetPermissions { path, mode } => files.set_permissions(path, mode).map(nothing),
        Operation::SetOwner { path, uid, gid } => files.set_owner(path, uid, gid).map(nothing),
        Operation::SetTimes { path, accessed, modified } => {
            files.set_times(path, accessed, modified).map(nothing)
        }
    }
}

/// What the files are, without what differs between stores.
fn tree(store: &Store) -> Vec<String> {
    let found = support::tree(store.fs());
    found.iter().map(|(path, seen)| format!("{path} {:?} {:?}", seen.0, seen.3)).collect()
}

/// A path at random: of few names, so that it often leads somewhere, and of links and `..` too.
fn place(rng: &mut Rng) -> String {
    let mut text = String::from(["", "", "", "/", "./"][rng.below(5) as usize]);
    for depth in 0..=rng.below(2) {
        text += if depth > 0 { "/" } else { "" };
        text += ["a", "a", "b", "b", "l", "..", "."][rng.below(7) as usize];
    }
    text
}

fn random(place_of_stores: &Path, seed: u64, rounds: u64) -> usize {
    let mut rng = Rng::new(seed);
    let [ours, theirs] =
        ["together", "alone"].map(|name| store(place_of_stores, &format!("{name}{seed}")));
    for store in [&ours, &theirs] {
        let files = store.files().unwrap();
        files.set_permissions("/", 0o777).unwrap();
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    let mut succeeded = 0;
    for round in 0..rounds {
        let resolve = match rng.below(8) {
            0 => Resolve { beneath: true, ..Resolve::default() },
            1 => Resolve { no_symlinks: true, ..Resolve::default() },
            2 => Resolve { in_root: true, ..Resolve::default() },
            _ => Resolve::default(),
        };
        let is_root = rng.below(3) == 0;
        let [one_by_one, together] = [&theirs, &ours].map(|store| {
            let files = store.files().unwrap();
            let files = if is_root { files } else { files.acting_as(somebody()) };
            files.resolving(resolve).unwrap()
        });
        let places: Vec<String> = (0..2).map(|_| place(&mut rng)).collect();
        let plans = (0..=rng.below(16)).map(|_| Plan::random(&mut rng, &places));
        let mut plans: Vec<Plan> = plans.collect();
        let mut again = plans.clone();
        let one = bundled(&together, &mut plans, options);
        let each = again.iter_mut().map(|plan| {
            let done = alone(&one_by_one, plan.operation(options));
            show(&done, &plan.out)
        });
        let each: Vec<String> = each.collect();
        assert_eq!(one, each, "seed {seed}, round {round}: {plans:#?}");
        succeeded += one.iter().filter(|shown| !shown.contains("(")).count();
        if round % 64 == 0 {
            assert_eq!(tree(&ours), tree(&theirs), "seed {seed}, round {round}");
        }
    }
    assert_eq!(tree(&ours), tree(&theirs), "seed {seed}");
    for store in [ours, theirs] {
        support::check(store.fs());
        store.detach().unwrap();
    }
    succeeded
}

#[test]
fn operations_of_a_bundle_are_what_they_are_alone() {
    let place = Temporary::on_disk("bundles");
    let succeeded: usize = (0..8).map(|seed| random(place.path(), seed, 1500)).sum();
    assert!(succeeded > 5000, "{succeeded}");
}

/// What a bundle itself does to the way to a directory holds for what comes behind it.
#[test]
fn what_leads_a_path_elsewhere_is_followed() {
    let place = Temporary::on_disk("bundled-elsewhere");
    let stores = ["together", "one by one"].map(|name| store(place.path(), name));
    let stat = |path| Operation::Metadata { path: Path::new(path), follow: true };
    let rmdir = |path| Operation::Remove { path: Path::new(path), how: Removal::Directory };
    let mkdir = |path| Operation::Make { path: Path::new(path), what: New::Directory, mode: 0o755 };
    let set_mode = |path, mode| Operation::SetPermissions { path: Path::new(path), mode };
    let give = |path| Operation::SetOwner { path: Path::new(path), uid: Some(0), gid: None };
    // Each with how many of its operations are refused.
    let cases: [(usize, &dyn Fn() -> Vec<Operation<'static>>); 4] = [
        (1, &|| vec![stat("a/b/x"), set_mode("a/b/up", 0o600), stat("a/b/x")]),
        (1, &|| vec![stat("a/b/x"), give("a/b/up"), stat("a/b/x")]),
        (1, &|| vec![stat("a/c/x"), rmdir("a/c/"), mkdir("a/c/"), mkdir("a/c/x")]),
        (1, &|| vec![stat("a/c/../b"), rmdir("a/c/../c"), stat("a/c/../b")]),
    ];
    // May give files away, and no more.
    let giver =
        Credentials { capabilities: Capabilities::NONE.with(Capability::Chown), ..somebody() };
    for (case, (refused, operations)) in cases.iter().enumerate() {
        let [ours, theirs] = [0, 1].map(|at| {
            let files = stores[at].files().unwrap();
            let home = format!("{case}");
            files.create_dir(&home).unwrap();
            files.set_owner(&home, Some(7), Some(7)).unwrap();
            let files = files.acting_as(giver.clone()).open_dir(&home).unwrap().files().clone();
            ["a", "a/b", "a/c"].iter().for_each(|path| files.create_dir(path).unwrap());
            files.set_permissions("a", 0o700).unwrap();
            files.write("a/b/x", b"x").unwrap();
            files.symlink("..", "a/b/up").unwrap();
            files
        });
        let together: Vec<_> =
            ours.bundle(operations()).iter().map(|done| show(done, &[])).collect();
        let one_by_one: Vec<_> =
            operations().into_iter().map(|one| show(&alone(&theirs, one), &[])).collect();
        assert_eq!(together, one_by_one, "case {case}");
        let errors = together.iter().filter(|shown| shown.contains('(')).count();
        assert_eq!(errors, *refused, "case {case}: {together:?}");
    }
    stores.into_iter().for_each(|store| store.detach().unwrap());
}

/// Bytes of open files and of closed ones, large ones too.
#[test]
fn bytes_go_where_they_would_alone() {
    let place = Temporary::on_disk("bundled-bytes");
    let store = store(place.path(), "store");
    let files = store.files().unwrap();
    let large: Vec<u8> = (0..600_000).map(|at| (at % 251) as u8).collect();
    files.create_dir("d").unwrap();
    files.write("d/large", &large).unwrap();
    files.write("d/small", b"small").unwrap();
    let mut options = OpenOptions::new();
    let file = files.open_with("d/small", options.read(true).write(true)).unwrap();
    let [mut all, mut some] = [vec![0; 700_000], vec![0; 3]];
    let (mut first, mut next) = ([0; 2], [0; 10]);
    let path = Path::new("d/large");
    let done = files.bundle([
        Operation::Read { path, offset: 0, out: &mut all },
        Operation::Read { path, offset: 599_999, out: &mut some },
        Operation::ReadOpen { file: &file, at: None, out: &mut first },
        Operation::WriteOpen { file: &file, at: None, bytes: b"ALL" },
        Operation::WriteOpen { file: &file, at: Some(5), bytes: b" and more" },
        Operation::ReadOpen { file: &file, at: Some(1), out: &mut next },
    ]);
    let counts: Vec<_> = done
        .into_iter()
        .map(|one| match one.unwrap() {
            Done::Bytes(count) => count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [600_000, 1, 2, 3, 9, 10]);
    assert_eq!((&all[..600_000], some[0]), (&large[..], large[599_999]));
    assert_eq!((&first, &next), (b"sm", b"mALL and m"));
    assert_eq!(file.position().unwrap(), 5);
    drop(file);
    drop(files);
    store.detach().unwrap();
}

/// A directory that was looked for stays the one that was found, as an open one does, whatever
/// others do meanwhile.
#[test]
fn a_directory_is_looked_for_once() {
    let place = Temporary::on_disk("bundled-once");
    let store = store(place.path(), "store");
    let files = store.files().unwrap();
    files.create_dir("d").unwrap();
    files.write("d/one", b"1").unwrap();
    files.write("d/two", b"22").unwrap();
    let names = ["d/one", "d/two", "e/two", "d/two"];
    let operations = names.iter().enumerate().map(|(at, name)| {
        if at == 1 {
            files.rename("d", "e").unwrap();
        }
        Operation::Metadata { path: Path::new(name), follow: true }
    });
    let lens = files.bundle(operations).into_iter().map(|done| match done {
        Ok(Done::Metadata(found)) => Ok(found.len()),
        other => Err(other.unwrap_err().to_string()),
    });
    let gone = "d/two: No such file or directory".to_owned();
    assert_eq!(lens.collect::<Vec<_>>(), [Ok(1), Ok(2), Ok(2), Err(gone)]);
    drop(files);
    store.detach().unwrap();
}
