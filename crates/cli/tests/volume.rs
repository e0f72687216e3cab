//! `conquest volume`: volumes on files, whole and damaged.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use conquest_flash::{OpenOptions, Volume};
use conquest_pm::media::{Mapped, OsHost};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use support::{USER, command, conquest, conquest_as, need_root, printed, refused, text, wait};

const UNIT: usize = 4096;

/// A directory on a disk, where devices of volumes can be, that is gone at the end.
struct Disk(PathBuf);

impl Disk {
    fn new() -> Disk {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conquest-volume-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Disk(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The unit that is written as number `number`.
fn unit(number: u64) -> Vec<u8> {
    let words = (0..UNIT as u64 / 8).map(|index| number << 32 | index | 0x5A << 56);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Writes `count` units to the volume on `paths`, a few at once and many at once.
fn fill(paths: &[&str], count: u64) {
    let volume = Volume::<Mapped, OsHost>::open(paths, &OpenOptions::default()).unwrap();
    volume.write(0, &unit(0)).unwrap();
    let bytes: Vec<u8> = (1..count).flat_map(unit).collect();
    volume.write(8, &bytes).unwrap();
    volume.close().unwrap();
}

/// Where unit `number` stands in the file at `path`.
fn place_of(path: &str, number: u64) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let wanted = unit(number);
    let found = bytes.chunks(UNIT).position(|chunk| chunk == wanted).unwrap();
    (found * UNIT) as u64
}

fn spoil(path: &str, at: u64, len: usize) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&vec![0xEE; len], at).unwrap();
    file.sync_all().unwrap();
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn ends(code: i32, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    text(&output.stdout)
}

#[test]
fn volumes_are_made_and_described() {
    let disk = Disk::new();
    let [one, two] = [disk.path("one"), disk.path("two")];
    let said = printed(["volume", "create", "--size", "8M", "--segment", "128K", &one]);
    for words in ["single, life 2", "of 128K", "0 used", "0 extents", &one] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(std::fs::metadata(&one).unwrap().len(), 8 << 20);
    fill(&[&one], 100);
    let found: Value = serde_json::from_str(&printed(["volume", "info", "--json", &one])).unwrap();
    assert_eq!(found["used_bytes"], 100 * UNIT);
    assert_eq!(found["segment_bytes"], 128 << 10);
    assert_eq!(found["arrangement"], "single");
    assert_eq!(found["segments"]["bad"], 0);
    assert!(found["map"]["extents"].as_u64().unwrap() >= 2);
    let segments = found["segments"].as_object().unwrap();
    let all: u64 = segments.iter().map(|(_, count)| count.as_u64().unwrap()).sum();
    assert_eq!(found["segments"]["all"].as_u64().unwrap() * 2, all);
    // Made anew only if that is said, and then all is gone.
    let said = refused(1, ["volume", "create", &one]);
    assert!(said.contains("not empty") && said.contains("--force"), "{said}");
    let said = printed(["volume", "create", "--force", "--stripe", "--size", "8M", &one, &two]);
    assert!(said.contains("striped") && said.contains("0 used"), "{said}");
    let said = refused(1, ["volume", "info", &one]);
    assert!(said.contains(&one) && said.contains("missing"), "{said}");
    printed(["volume", "info", &two, &one]);
    // Nothing is left of an index.
    let left = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
    let uuid = found["uuid"].as_str().unwrap().replace('-', "");
    assert!(!left.into_iter().any(|name| name.to_str().unwrap().contains(&uuid)));
}

#[test]
fn what_makes_no_volume_is_told_and_leaves_nothing() {
    let disk = Disk::new();
    let [one, two] = [disk.path("one"), disk.path("two")];
    let cases: [(&[&str], &str); 6] = [
        (&[&one], "--size"),
        (&["--size", "5000", &one], "4096"),
        (&["--size", "64K", &one], "too small"),
        (&["--size", "8M", &one, &two], "--mirror or --stripe"),
        (&["--size", "8M", "--mirror", &one], "two devices"),
        (&["--size", "8M", "--segment", "5000", &one], "4096"),
    ];
    for (args, words) in cases {
        let output = conquest(["volume", "create"].iter().chain(args));
        ends(1, &output);
        assert!(text(&output.stderr).contains(words), "{words}: {output:?}");
        assert!(!Path::new(&one).exists() && !Path::new(&two).exists(), "{args:?}");
    }
    refused(2, ["volume", "create", "--size", "8X", &one]);
    refused(2, ["volume", "info"]);
    refused(16, ["volume", "check"]);
    refused(16, ["volume", "scrub", "--wrong", &one]);
    let said = refused(8, ["volume", "check", &one]);
    assert!(said.contains(&one) && said.contains("No such file"), "{said}");
    let said = refused(8, ["volume", "scrub", "/dev/null"]);
    assert!(said.contains("neither a file nor a block device"), "{said}");
    std::fs::write(&two, vec![7; 1 << 20]).unwrap();
    let said = refused(1, ["volume", "info", &two]);
    assert!(said.contains(&two), "{said}");
}

#[test]
fn damage_is_found() {
    let disk = Disk::new();
    let one = disk.path("one");
    printed(["volume", "create", "--size", "8M", &one]);
    fill(&[&one], 100);
    assert!(printed(["volume", "check", &one]).contains("as it should be"));
    let at = place_of(&one, 50);
    spoil(&one, at, 2 * UNIT);
    let output = conquest(["volume", "check", &one]);
    assert!(ends(4, &output).contains("1 damages, 1 of them left"), "{output:?}");
    let said = text(&output.stderr);
    for words in [format!("{one}: byte {at}: blocks 400 to 415 "), "no copy is right".into()] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    // Repairing does not make up what is lost.
    let output = conquest(["volume", "scrub", "--json", &one]);
    ends(4, &output);
    let found = answer(&output);
    assert_eq!(found["sound"], false);
    assert_eq!(found["units"], 100);
    assert_eq!(found["repaired"], 0);
    let damage = &found["damages"][0];
    assert_eq!((&damage["block"], &damage["blocks"]), (&400.into(), &16.into()));
    assert_eq!((&damage["readable"], &damage["repaired"]), (&false.into(), &false.into()));
    // Both superblocks count, though one does.
    let len = std::fs::metadata(&one).unwrap().len();
    spoil(&one, len - UNIT as u64, UNIT);
    let output = conquest(["volume", "check", &one]);
    assert!(text(&output.stderr).contains("superblock"), "{output:?}");
    assert!(ends(4, &output).contains("2 damages"));
}

#[test]
fn a_superblock_is_repaired_from_the_other_one() {
    let disk = Disk::new();
    let one = disk.path("one");
    printed(["volume", "create", "--size", "8M", &one]);
    fill(&[&one], 20);
    let len = std::fs::metadata(&one).unwrap().len();
    for at in [0, len - UNIT as u64] {
        spoil(&one, at, UNIT);
        let output = conquest(["volume", "check", &one]);
        assert!(ends(4, &output).contains("1 damages"), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&format!("byte {at}: this copy of the superblock")), "{said}");
        assert!(said.contains("the other one is right"), "{said}");
        let output = conquest(["volume", "scrub", &one]);
        assert!(ends(1, &output).contains("1 damages, all repaired"), "{output:?}");
        assert!(printed(["volume", "check", &one]).contains("as it should be"));
    }
}

#[test]
fn what_a_mirror_has_is_repaired() {
    let disk = Disk::new();
    let [one, two] = [disk.path("one"), disk.path("two")];
    printed(["volume", "create", "--size", "8M", "--mirror", &one, &two]);
    fill(&[&one, &two], 300);
    let at = place_of(&two, 200);
    spoil(&two, at, UNIT);
    spoil(&one, place_of(&one, 0), UNIT);
    let output = conquest(["volume", "check", &one, &two]);
    assert!(ends(4, &output).contains("600 copies read"), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(&format!("{two}: byte {at}: blocks 1600 to 1607")), "{said}");
    assert!(said.contains("another copy is right"), "{said}");
    let output = conquest(["volume", "scrub", &two, &one]);
    assert!(ends(1, &output).contains("2 damages, all repaired"), "{output:?}");
    assert!(printed(["volume", "scrub", &one, &two]).contains("as it should be"));
    let volume = Volume::<Mapped, OsHost>::open(&[&one, &two], &OpenOptions::default()).unwrap();
    let mut bytes = vec![0; 300 * UNIT];
    volume.read(0, &mut bytes).unwrap();
    assert!(bytes == (0..300).flat_map(unit).collect::<Vec<u8>>());
    volume.close().unwrap();
}

#[test]
fn an_ordinary_user_has_volumes_too() {
    need_root();
    let disk = Disk::new();
    let one = disk.path("one");
    std::os::unix::fs::chown(&disk.0, Some(USER), Some(USER)).unwrap();
    let made = conquest_as(Some(USER), ["volume", "create", "--size", "8M", &one]);
    support::assert_quiet(&made);
    support::assert_quiet(&conquest_as(Some(USER), ["volume", "check", &one]));
    printed(["volume", "info", &one]);
    std::os::unix::fs::chown(&one, Some(0), Some(0)).unwrap();
    let output = conquest_as(Some(USER), ["volume", "info", &one]);
    ends(1, &output);
    assert!(text(&output.stderr).contains("can't be written"), "{output:?}");
}

/// What is written to a new terminal, which is told by what it gets.
fn on_terminal(work: impl FnOnce(OwnedFd)) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let theirs = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    let reader = std::thread::spawn(move || {
        let mut shown = Vec::new();
        // It ends with an error when nobody has the terminal any more.
        let _ = File::from(ours).read_to_end(&mut shown);
        text(&shown)
    });
    work(theirs);
    reader.join().unwrap()
}

#[test]
fn progress_is_shown_on_a_terminal() {
    let disk = Disk::new();
    let one = disk.path("one");
    let run = |args: &[&str]| {
        on_terminal(|terminal| {
            let mut program = command(None);
            program.args(["volume"]).args(args).stdout(Stdio::null()).stderr(terminal);
            let mut child = program.env("TERM", "xterm").spawn().unwrap();
            drop(program);
            assert!(wait(&mut child).success());
        })
    };
    let shown = run(&["create", "--size", "64M", &one]);
    assert!(shown.contains("making [") && shown.contains("64"), "{shown:?}");
    fill(&[&one], 4000);
    let shown = run(&["check", &one]);
    assert!(shown.contains("checking [") && shown.contains('%'), "{shown:?}");
}

#[test]
fn a_mirror_goes_on_without_a_member() {
    let disk = Disk::new();
    let [one, two] = [disk.path("one"), disk.path("two")];
    printed(["volume", "create", "--size", "8M", "--mirror", &one, &two]);
    fill(&[&one, &two], 300);
    let info = |first: &str| -> Value {
        serde_json::from_str(&printed(["volume", "info", "--json", first, &two])).unwrap()
    };
    let found = info(&one);
    assert_eq!(found["members"][1]["state"], "good");
    assert_eq!(found["failed_since_ns"], Value::Null);
    let said = refused(1, ["volume", "info", &two]);
    assert!(said.contains("member 0 of its mirror, of 2, is missing"), "{said}");
    assert!(said.contains("--degraded"), "{said}");
    let found = info("--degraded");
    assert_eq!(found["members"][0]["state"], "missing");
    assert_eq!(found["members"][0]["path"], Value::Null);
    assert_eq!(found["members"][1]["state"], "good");
    let said = printed(["volume", "info", "--degraded", &two]);
    assert!(said.contains("(missing), failed since"), "{said}");
    let output = conquest(["volume", "check", "--degraded", &two]);
    assert!(ends(4, &output).contains("300 copies read: 1 damages"), "{output:?}");
    assert!(text(&output.stderr).contains("member 0 has failed"), "{output:?}");
    // It is back, and not trusted.
    let found = info(&one);
    assert_eq!(found["members"][0]["state"], "failed");
    assert!(found["failed_since_ns"].as_u64().unwrap() > 1_700_000_000 * 1_000_000_000);
    let said = printed(["volume", "info", &one, &two]);
    assert!(said.contains(&format!("{one}: 8.0M, failed since")), "{said}");
    // Now each has what the other one lacks.
    printed(["volume", "info", "--degraded", &one]);
    let said = refused(1, ["volume", "info", &one, &two]);
    assert!(said.contains("used without each other"), "{said}");
}

#[test]
fn a_member_is_brought_up_to_date_or_replaced() {
    let disk = Disk::new();
    let [one, two, new] = [disk.path("one"), disk.path("two"), disk.path("new")];
    printed(["volume", "create", "--size", "8M", "--mirror", &one, &two]);
    fill(&[&one, &two], 300);
    let degraded = OpenOptions { degraded: true, ..OpenOptions::default() };
    let volume = Volume::<Mapped, OsHost>::open(&[&two], &degraded).unwrap();
    volume.write(0, &(0..300).flat_map(|number| unit(1000 + number)).collect::<Vec<_>>()).unwrap();
    volume.close().unwrap();
    let output = conquest(["volume", "check", "--json", &one, &two]);
    ends(4, &output);
    let damage = &answer(&output)["damages"][0];
    assert_eq!((&damage["kind"], &damage["repaired"]), (&"member".into(), &false.into()));
    let output = conquest(["volume", "scrub", &one, &two]);
    assert!(ends(1, &output).contains("1 damages, all repaired"), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(&format!("{one}: member 0 has failed")), "{said}");
    assert!(said.contains("brought up to date"), "{said}");
    assert!(printed(["volume", "check", &one, &two]).contains("600 copies read: as it should"));
    // The other one goes for good.
    File::create(&new).unwrap().set_len(4 << 20).unwrap();
    let said = refused(1, ["volume", "replace", "--by", &new, &one]);
    assert!(said.contains("smaller than what the other members"), "{said}");
    let said = refused(1, ["volume", "replace", "--by", &two, &one]);
    assert!(said.contains("part of a volume already"), "{said}");
    let said = refused(1, ["volume", "replace", "--by", &new, &one, &two]);
    assert!(said.contains("just one member"), "{said}");
    File::options().write(true).open(&new).unwrap().set_len(9 << 20).unwrap();
    let said = printed(["volume", "replace", "--by", &new, &one]);
    assert!(said.contains("has all that the others have"), "{said}");
    assert!(printed(["volume", "check", &one, &new]).contains("600 copies read: as it should"));
    // The old one is nobody's any more: not beside the new one, nor in its place.
    let said = refused(1, ["volume", "info", &one, &two, &new]);
    assert!(said.contains("same member"), "{said}");
    let volume = Volume::<Mapped, OsHost>::open(&[&one, &new], &OpenOptions::default()).unwrap();
    let said = refused(1, ["volume", "info", &one, &two]);
    assert!(said.contains("which was replaced"), "{said}");
    volume.close().unwrap();
    let found = printed(["volume", "info", "--json", &one, &two]);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["members"][1]["state"], "failed");
    let volume = Volume::<Mapped, OsHost>::open(&[&new], &degraded).unwrap();
    let mut bytes = vec![0; 300 * UNIT];
    volume.read(0, &mut bytes).unwrap();
    assert!(bytes == (0..300).flat_map(|number| unit(1000 + number)).collect::<Vec<u8>>());
    volume.close().unwrap();
}

/// A blank device in `disk`, as large as a volume of a store has to be.
fn blank(disk: &Disk, name: &str) -> String {
    let path = disk.path(name);
    File::create(&path).unwrap().set_len(96 << 20).unwrap();
    path
}

#[test]
fn what_a_volume_has_of_a_lost_store_is_rescued() {
    let disk = Disk::new();
    let [one, two] = ["one", "two"].map(|name| blank(&disk, name));
    let [store, found, files, copy] = ["store", "found", "files", "copy"].map(|it| disk.path(it));
    let large: Vec<u8> = (0..200).flat_map(unit).collect();
    std::fs::write(disk.path("large"), &large).unwrap();
    let made = ["mkfs", "-q", "--size-max", "16M", "--threshold", "64K", "--volume"];
    support::assert_quiet(&conquest(made.iter().copied().chain([one.as_str(), &store])));
    printed(["cp", &disk.path("large"), &format!("{store}:/large")]);
    printed(["cp", &disk.path("large"), &format!("{store}:/large too")]);
    let inode = printed(["ls", "-i", &format!("{store}:/large")]);
    let inode = inode.split_whitespace().next().unwrap().to_owned();
    printed(["save", &store, &copy]);
    // Not while it is used: by a process that has read from the volume, and waits for its reader.
    let mut reads = command(None);
    reads.args(["cat", &format!("{store}:/large")]).stdout(Stdio::piped());
    let mut child = reads.spawn().unwrap();
    let mut rest = child.stdout.take().unwrap();
    rest.read_exact(&mut [0; 10]).unwrap();
    let said = refused(1, ["volume", "rescue", "--to", &found, &one]);
    assert!(said.contains("have the volume open") && said.contains(&one), "{said}");
    let mut read = Vec::new();
    assert!(rest.read_to_end(&mut read).is_ok() && read == large[10..]);
    assert!(wait(&mut child).success());
    // As it was on the volume.
    printed(["destroy", "--yes", &store]);
    refused(2, ["volume", "rescue", &one]);
    let said = printed(["volume", "rescue", "--to", &found, &one]);
    assert!(said.contains(&format!("in {found}\n")) && said.contains(&one), "{said}");
    assert!(conquest(["cat", &format!("{found}:/large")]).stdout == large);
    let said = refused(1, ["volume", "rescue", "--to", &found, &one]);
    assert!(said.contains("not empty") && said.contains("new or an empty"), "{said}");
    printed(["destroy", "--yes", &found]);

    // Of one on a battery, large files, by their numbers.
    printed(["restore", "--medium", "battery", "--volume", &two, &copy, &store]);
    printed(["destroy", "--yes", &store]);
    let said = printed(["volume", "rescue", "--to", &files, &two]);
    assert!(said.contains("rescued 2 large files of 1.6M"), "{said}");
    let row = said.lines().find(|line| line.ends_with(&format!(" {inode}"))).unwrap();
    assert!(row.trim_start().starts_with("819200 "), "{row}");
    assert!(std::fs::read(Path::new(&files).join(&inode)).unwrap() == large);
    // What is damaged is told, and the rest is there.
    spoil(&two, place_of(&two, 50), UNIT);
    let output = conquest(["volume", "rescue", "--to", &disk.path("again"), &two]);
    let said = ends(1, &output);
    assert!(said.contains("rescued 2 large files"), "{said}");
    let said = text(&output.stderr);
    assert!(said.contains("4,096 bytes can't be read; there are zeros"), "{said}");
    let output = conquest(["volume", "rescue", "--json", "--to", &disk.path("json"), &two]);
    ends(1, &output);
    let found = answer(&output);
    assert_eq!(found["whole"], false);
    let lost = found["files"].as_array().unwrap().iter().map(|file| &file["lost_bytes"]);
    assert_eq!(lost.map(|lost| lost.as_u64().unwrap()).sum::<u64>(), UNIT as u64);
    // Chunks of nobody are told by their numbers.
    let volume = Volume::<Mapped, OsHost>::open(&[&two], &OpenOptions::default()).unwrap();
    volume.write(70 << 35, &unit(1)).unwrap();
    volume.close().unwrap();
    let output = conquest(["volume", "rescue", "--json", "--to", &disk.path("chunk"), &two]);
    ends(1, &output);
    assert_eq!(answer(&output)["unlabelled_chunks"], Value::from(vec![70]));
    assert!(text(&output.stderr).contains("1 chunks have something"), "{output:?}");
    // Of a volume that is nobody's, nothing.
    let said = refused(1, ["volume", "rescue", "--to", &disk.path("none"), &blank(&disk, "blank")]);
    assert!(said.contains("blank"), "{said}");
    assert!(!Path::new(&disk.path("none")).exists());
}
