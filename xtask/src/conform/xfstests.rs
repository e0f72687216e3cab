//! `conform xfstests`: those generic tests of xfstests that make sense without a block device.
//!
//! They are not in the clone and not in a registry: `--xfstests` names a built tree.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::options::Options;
use super::room::Room;
use super::target::{Kind, Target};
use super::{data, ended, step, watch};
use crate::packages::Need;
use crate::tally::Tally;
use crate::{Failure, child};

/// Commands that the tests use. Those that build xfstests are named in `docs/TESTING.md`.
pub(super) const NEEDED: [Need; 12] = [
    ("xfs_io", "xfsprogs"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("quota", "quota"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("gawk", "gawk"),
    ("fio", "fio"),
    ("dbench", "dbench"),
    ("getcap", "libcap2-bin"),
    ("killall", "psmisc"),
    ("blkid", "util-linux"),
];
/// Longest time for one test.
const LIMIT: Duration = Duration::from_secs(900);
/// The tests, a line each.
const LIST: &str = "xfstests-generic.txt";
/// Those that a kind of file system is known not to pass: lines `KIND TEST REASON`.
const KNOWN: &str = "xfstests-known.txt";

/// What came of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    /// The test says itself that it can't run here, and why.
    NotRun(String),
    Failed(String),
}

/// Runs it: a case is a test.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    let usage = |what: &str| Failure::Usage(format!("conform xfstests: {what}"));
    let tree = options.xfstests.as_deref().ok_or_else(|| {
        usage("--xfstests has to name a built tree; docs/TESTING.md says how to get one")
    })?;
    if !tree.join("ltp/fsstress").is_file() {
        let what = format!("{}: no built tree of xfstests; run make there", tree.display());
        return Err(Failure::Broken(what));
    }
    if options.on == Kind::ConquestUnprivileged {
        return Err(usage("the tests mount as root; there is nothing to run for others"));
    }
    let mut test = options.on.target(room, options, "test")?;
    let mut scratch = options.on.target(room, options, "scratch")?;
    test.make()?;
    scratch.make()?;
    if options.on.is_conquest() {
        add_helper(room)?;
    }
    // A test looks there for the lock of a file that several processes share.
    room.mount(&["--bind", &room.directory.join("proc/locks").to_string_lossy(), "/proc/locks"])?;
    let config = room.directory.join("xfstests.config");
    let text = configuration(room, options, test.as_ref(), scratch.as_ref());
    std::fs::write(&config, text).map_err(|e| Failure::system("can't write", &config, &e))?;
    let known = read(&data(KNOWN))?;
    let mut tally = Tally::default();
    for name in read(&data(LIST))?.lines().filter(|name| options.wants(name)) {
        let start = Instant::now();
        let outcome = one(tree, &config, room, name)?;
        println!("{name}: {}, {:.1} s", words(&outcome), start.elapsed().as_secs_f64());
        tally += judge(&outcome, is_known(&known, options.on, name));
    }
    // xfstests wipe a scratch device that is a device, after each test.
    if !options.on.is_on_device() {
        tally += ended(scratch.as_mut());
    }
    tally += ended(test.as_mut());
    Ok(tally)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| Failure::system("can't read", path, &e))
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".into(),
        Outcome::NotRun(why) => format!("not run: {why}"),
        Outcome::Failed(what) => format!("FAILED: {what}"),
    }
}

/// A test that is not run counts as failed; one that is known not to pass, for nothing.
fn judge(outcome: &Outcome, is_known: bool) -> Tally {
    if is_known { Tally::default() } else { Tally::one(*outcome == Outcome::Passed) }
}

fn is_known(list: &str, kind: Kind, name: &str) -> bool {
    list.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(kind.name()) && words.next() == Some(name) && words.next().is_some()
    })
}

/// What xfstests are told.
fn configuration(room: &Room, asked: &Options, test: &dyn Target, scratch: &dyn Target) -> String {
    let kind = asked.on;
    let (name, options) = match kind {
        // They take a gigabyte, unless told otherwise.
        Kind::Tmpfs => ("tmpfs", "-osize=6G".to_owned()),
        Kind::Ext4 | Kind::Volume | Kind::Space => ("ext4", String::new()),
        Kind::VolumeExt3 => ("ext3", String::new()),
        Kind::VolumeXfs => ("xfs", String::new()),
        Kind::Conquest | Kind::ConquestUnprivileged => {
            let words = ["-oallow_other", "suid", "dev"].into_iter();
            let all: Vec<&str> = words.chain(asked.mount.iter().map(String::as_str)).collect();
            ("fuse", all.join(","))
        }
    };
    let mut text = format!(
        "export FSTYP={name}\nexport RESULT_BASE={}\n\
         export TEST_DEV={}\nexport TEST_DIR={}\nexport SCRATCH_DEV={}\nexport SCRATCH_MNT={}\n\
         export MOUNT_OPTIONS='{options}'\nexport TEST_FS_MOUNT_OPTS='{options}'\n",
        room.logs.display(),
        test.source(),
        test.directory().display(),
        scratch.source(),
        scratch.directory().display(),
    );
    if kind.is_conquest() {
        let df = room.directory.join("bin/df");
        text.push_str(&format!(
            "export FUSE_SUBTYP=.conquest\nexport DF_PROG='{} -T -P'\n",
            df.display()
        ));
    }
    text
}

/// What xfstests call as df(1): they take every FUSE file system for one of the type `fuse`.
const DF: &str = "#!/bin/bash\nset -o pipefail\ndf \"$@\" | sed 's/ fuse\\.conquest / fuse /'\n";

/// Lets mount(8) and umount(8) find our program: by a layer over the directory where they look,
/// that is seen in the room only. And lets xfstests see the type that they expect.
fn add_helper(room: &Room) -> Result<(), Failure> {
    let place = std::fs::canonicalize("/sbin")
        .map_err(|e| Failure::system("can't find", Path::new("/sbin"), &e))?;
    let (upper, work) = (room.make("sbin")?, room.make("sbin.work")?);
    let helper = read(&data("mount-helper.sh"))?;
    let first = format!("#!/bin/sh\nROOM='{}'\n", room.directory.display());
    let helper = format!("{first}{helper}");
    let programs = [
        (upper.join("mount.fuse.conquest"), helper.as_str()),
        (upper.join("umount.fuse.conquest"), helper.as_str()),
        (room.make("bin")?.join("df"), DF),
    ];
    for (path, text) in programs {
        std::fs::write(&path, text)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o755)))
            .map_err(|e| Failure::system("can't write", &path, &e))?;
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        place.display(),
        upper.display(),
        work.display()
    );
    room.mount(&["-t", "overlay", "overlay", "-o", &layers, &place.to_string_lossy()])
}

/// Runs the test `name`, by itself: so one that hangs does not take the others with it.
fn one(tree: &Path, config: &Path, room: &Room, name: &str) -> Result<Outcome, Failure> {
    let log = room.logs.join(format!("{}.log", name.replace('/', "-")));
    let mut command = Command::new("./check");
    command.arg(name).current_dir(tree).env("HOST_OPTIONS", config).env("USER", "root");
    let ended = watch::run_logged(&mut command, LIMIT, &log)?;
    if ended == child::Ended::TimedOut {
        return Ok(Outcome::Failed(format!("not done after {} s", LIMIT.as_secs())));
    }
    let text = std::fs::read(&log).unwrap_or_default();
    Ok(outcome(name, &String::from_utf8_lossy(&text)))
}

/// What `check` says of one test. Its exit code is 0 also if the test was not run.
fn outcome(name: &str, text: &str) -> Outcome {
    let of = |what: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(what));
        lines.any(|rest| rest.split_whitespace().any(|word| word == name))
    };
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    if of("Not run:") {
        let why = line.and_then(|line| line.split_once("[not run]")).map_or("", |(_, why)| why);
        return Outcome::NotRun(why.trim().to_owned());
    }
    if of("Ran:") && !of("Failures:") {
        return Outcome::Passed;
    }
    let differences = text.lines().filter(|line| {
        let line = line.trim_start();
        (line.starts_with('+') || line.starts_with('-'))
            && !line.starts_with("++")
            && !line.starts_with("--")
    });
    let shown: Vec<&str> = differences.take(6).collect();
    if shown.is_empty() {
        return Outcome::Failed(step::tail(text, 4));
    }
    Outcome::Failed(step::tail(&shown.join("\n"), 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_check_says_is_understood() {
        let passed = "generic/001 4s ...  3s\nRan: generic/001\nPassed all 1 tests\n";
        assert_eq!(outcome("generic/001", passed), Outcome::Passed);
        let missing =
            "generic/004       [not run] no flag\nRan: generic/004\nNot run: generic/004\n";
        assert_eq!(outcome("generic/004", missing), Outcome::NotRun("no flag".into()));
        let failed = "generic/005 - output mismatch (see x)\n    --- a\n    +++ b\n    -good\n    \
                      +bad\nRan: generic/005\nFailures: generic/005\n";
        assert_eq!(outcome("generic/005", failed), Outcome::Failed("-good; +bad".into()));
        let broken = outcome("generic/005", "check: can't mount\n");
        assert_eq!(broken, Outcome::Failed("check: can't mount".into()));
    }

    #[test]
    fn only_what_is_listed_may_fail() {
        let list = "# a comment\ntmpfs generic/001 not there\next4 generic/002\n";
        assert!(is_known(list, Kind::Tmpfs, "generic/001"));
        assert!(!is_known(list, Kind::Ext4, "generic/001"));
        assert!(!is_known(list, Kind::Ext4, "generic/002"), "no reason");
        let missing = Outcome::NotRun("why".into());
        assert_eq!(judge(&missing, false), Tally::one(false));
        assert_eq!(judge(&missing, true), Tally::default());
        assert_eq!(judge(&Outcome::Passed, false), Tally::one(true));
    }
}
