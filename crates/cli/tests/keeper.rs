//! The keeper of a store with a volume: what it makes durable, when it comes, and when it goes.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use conquest::{Attach, KeeperProgram, Store};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use support::{
    LIMIT, assert_quiet, command, conquest, finish, mounted, need_root, printed, refused, text,
};

/// Says to a child of these tests which store to write to.
const ROLE: &str = "CONQUEST_TEST_WRITER";

/// A directory on the disk with a store that has a volume; both are gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str, options: &[&str]) -> Place {
        let path = PathBuf::from(format!("/var/tmp/conquest-keeper-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let place = Place(path);
        let mut all = vec!["mkfs", "-q", "--size-max", "32M", "--volume", "128M"];
        all.extend(options);
        let store = place.store();
        all.push(&store);
        assert_quiet(&conquest(all));
        place
    }

    fn directory(&self) -> PathBuf {
        self.0.join("store")
    }

    fn store(&self) -> String {
        self.directory().to_str().unwrap().to_owned()
    }

    fn info(&self) -> serde_json::Value {
        serde_json::from_str(&printed(["info", "--json", &self.store()])).unwrap()
    }

    /// The keeper, once it has said who it is.
    fn keeper(&self) -> Pid {
        let path = self.directory().join("keeper.lock");
        let mut found = None;
        until("a keeper", || {
            let number = std::fs::read_to_string(&path).unwrap_or_default().trim().parse().ok();
            found = number.and_then(Pid::from_raw).filter(|pid| test_kill_process(*pid).is_ok());
            found.is_some()
        });
        found.unwrap()
    }

    /// Takes away what is in RAM, as a power failure does.
    fn power_cut(&self) {
        let core = std::fs::read_link(self.directory().join("core")).unwrap();
        std::fs::remove_file(core).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let has_store = self.directory().exists();
        let destroyed = conquest(["destroy", "--yes", &self.store()]);
        let _ = std::fs::remove_dir_all(&self.0);
        // Or its memory would stay.
        assert!(!has_store || destroyed.status.success() || std::thread::panicking());
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
}

/// A child that has written the file `name`, and waits for its end without any other sign of life.
fn writer(place: &Place, name: &str) -> Child {
    let sign = place.0.join(format!("{name}.sign"));
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "as_child", "--nocapture", "--test-threads=1"]);
    child.env(ROLE, format!("{}\n{name}\n{}", place.store(), sign.display()));
    child.env("CONQUEST_PROGRAM", env!("CARGO_BIN_EXE_conquest"));
    let child = child.stdout(Stdio::null()).spawn().unwrap();
    until("a sign", || sign.exists());
    child
}

#[test]
fn as_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [store, name, sign] = role.lines().collect::<Vec<_>>().try_into().unwrap();
    let store = Store::attach(Path::new(store), &Attach::default()).unwrap();
    store.files().unwrap().write(format!("/{name}"), name).unwrap();
    std::fs::write(sign, b"").unwrap();
    std::thread::sleep(LIMIT);
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_nobody_waits_for_is_durable_after_the_interval_also_if_its_writer_is_dead() {
    let place = Place::new("interval", &["--sync", "interval=100ms"]);
    let child = writer(&place, "first");
    let keeper = place.keeper();
    end(child);
    // It goes when it has nothing to do any more, and all is durable.
    until("the keeper's end", || is_gone(keeper));
    place.power_cut();
    assert_eq!(printed(["cat", &format!("{}:/first", place.store())]), "first");
    let child = writer(&place, "second");
    let keeper = place.keeper();
    // Nobody syncs but the keeper: seen without becoming one who does.
    let looking = Attach { keeper: KeeperProgram::None, ..Attach::default() };
    let store = Store::attach(&place.directory(), &looking).unwrap();
    until("durability", || {
        let stands = store.info().volume.unwrap();
        stands.durable == stands.committed
    });
    drop(store);
    // Both at once.
    kill_process(keeper, Signal::KILL).unwrap();
    end(child);
    place.power_cut();
    assert_eq!(printed(["cat", &format!("{}:/second", place.store())]), "second");
}

#[test]
fn a_keeper_that_was_killed_is_followed_by_another_one() {
    let place = Place::new("followed", &[]);
    let child = writer(&place, "file");
    let first = place.keeper();
    let info = place.info();
    assert_eq!(info["volume"]["keeper"], first.as_raw_nonzero().get());
    assert_eq!(info["volume"]["sync"], "interval=1s");
    let keepers = |info: &serde_json::Value| {
        let attached = info["attached"].as_array().unwrap().iter();
        attached.filter(|it| it["is_keeper"] == true).count()
    };
    until("it attaches", || keepers(&place.info()) == 1);
    kill_process(first, Signal::KILL).unwrap();
    until("its end", || is_gone(first));
    let second = {
        place.info();
        place.keeper()
    };
    assert_ne!(first, second);
    // There is one, however many ask for it.
    let mut all: Vec<Child> = (0..8)
        .map(|_| {
            command(None)
                .args(["ls", &format!("{}:/", place.store())])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in &mut all {
        assert!(support::wait(child).success());
    }
    assert_eq!(place.keeper(), second);
    assert_eq!(keepers(&place.info()), 1);
    end(child);
    until("the keeper's end", || is_gone(second));
}

#[test]
fn a_store_whose_volume_is_not_there_is_for_reading_only() {
    let place = Place::new("away", &[]);
    let file = format!("{}:/file", place.store());
    end(writer(&place, "file"));
    until("the keeper's end", || conquest::keeper_of(&place.directory()).is_none());
    let (volume, away) = (place.directory().join("volume"), place.0.join("away"));
    std::fs::rename(&volume, &away).unwrap();
    // Nobody syncs: the keeper that everybody starts finds out.
    let mut count = 0;
    let mut made = || {
        count += 1;
        conquest(["mkdir", &format!("{}:/{count}", place.store())]).status.success()
    };
    until("a refusal", || !made());
    let error = refused(1, ["mkdir", &format!("{}:/directory", place.store())]);
    assert!(error.contains("nothing can be changed: its volume is not there"), "{error}");
    assert_eq!(printed(["cat", &file]), "file");
    let notes = place.info()["notes"].to_string();
    assert!(notes.contains("nothing can be changed"), "{notes}");
    std::fs::rename(&away, &volume).unwrap();
    until("a change", made);
}

#[test]
fn whoever_goes_on_with_changes_sees_to_it_that_there_is_a_keeper() {
    let place = Place::new("changes", &["--sync", "interval=100ms"]);
    let program = KeeperProgram::Path(env!("CARGO_BIN_EXE_conquest").into());
    let store = Store::attach(&place.directory(), &Attach { keeper: program, ..Attach::default() });
    let store = store.unwrap();
    let first = place.keeper();
    kill_process(first, Signal::KILL).unwrap();
    until("its end", || is_gone(first));
    // Nobody attaches the store, nor syncs.
    assert_eq!(conquest::keeper_of(&place.directory()), None);
    let files = store.files().unwrap();
    until("a keeper", || {
        files.write("/file", "bytes").unwrap();
        conquest::keeper_of(&place.directory()).is_some()
    });
    until("durability", || {
        let stands = store.info().volume.unwrap();
        stands.durable == stands.committed
    });
}

#[test]
fn a_keeper_is_in_nobodys_way() {
    let place = Place::new("in-the-way", &[]);
    assert_quiet(&conquest(["mkdir", &format!("{}:/d", place.store())]));
    let keeper = place.keeper();
    let copy = place.0.join("copy");
    let begin = Instant::now();
    assert_quiet(&conquest(["save", &place.store(), copy.to_str().unwrap()]));
    until("the keeper's end", || is_gone(keeper));
    assert_eq!(printed(["ls", &format!("{}:/", place.store())]), "d\n");
    place.power_cut();
    // It is brought back for that.
    let said = printed(["fsck", "--no-changes", &place.store()]);
    assert!(said.contains("\nconsistent"), "{said}");
    assert_eq!(printed(["ls", &format!("{}:/", place.store())]), "d\n");
    let keeper = place.keeper();
    assert_quiet(&conquest(["destroy", "--yes", &place.store()]));
    assert!(begin.elapsed() < Duration::from_secs(60));
    until("the keeper's end", || is_gone(keeper));
    assert!(!place.directory().exists());
}

#[test]
fn without_a_keeper_it_is_said_what_that_means() {
    let place = Place::new("without", &["--sync", "fsync"]);
    let empty = place.0.join("empty");
    std::fs::write(&empty, b"no program").unwrap();
    let mut info = command(None);
    info.args(["info", &place.store()]).env("CONQUEST_PROGRAM", &empty);
    let output = finish(info.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_quiet(&output);
    let said = text(&output.stdout);
    assert!(said.contains("it has no keeper") && said.contains("fsync: all is durable"), "{said}");
    assert_quiet(&conquest(["wait", "--durable", &place.store()]));
    let said = refused(2, ["wait", &place.store()]);
    assert!(said.contains("--durable"), "{said}");
}

#[test]
fn a_volume_is_asked_for_by_its_size_or_its_devices() {
    let place = Place::new("asked", &[]);
    let disk = place.0.join("disk");
    std::fs::write(&disk, vec![0; 128 << 20]).unwrap();
    let store = place.0.join("other").to_str().unwrap().to_owned();
    let disk = disk.to_str().unwrap();
    let said = printed(["mkfs", "--size-max", "32M", "--volume", disk, &store]);
    assert!(said.contains("power failure"), "{said}");
    assert!(printed(["info", &store]).contains(disk));
    let said = refused(1, ["mkfs", "--force", "--volume", "128M", "--size-max", "1G", &store]);
    assert!(said.contains("bytes") && said.contains("volume"), "{said}");
    for (options, says) in [
        (["--volume", "128M", "--mirror", "--size-max", "32M"], "--mirror takes two"),
        (["--sync", "always", "--medium", "ram", "--force"], "--volume"),
        (["--volume", "128M", "--sync", "sometimes", "--force"], "interval=TIME"),
    ] {
        let output = conquest(["mkfs"].into_iter().chain(options).chain([store.as_str()]));
        assert!(text(&output.stderr).contains(says), "{options:?}: {output:?}");
        assert!(!output.status.success());
    }
    let _ = conquest(["destroy", "--yes", &store]);
}

#[test]
fn a_store_on_a_disk_has_a_volume_by_itself() {
    let place = Place::new("itself", &[]);
    let store = place.0.join("other").to_str().unwrap().to_owned();
    let volume = place.0.join("other/volume");
    let made = |options: &[&str]| {
        let output =
            conquest(["mkfs", "--size-max", "48M"].iter().chain(options).chain([&&*store]));
        assert_quiet(&output);
        let said = text(&output.stdout);
        let has_volume = printed(["info", &store]).contains("/other/volume");
        assert_eq!(has_volume, volume.exists(), "{options:?}");
        assert_eq!(said.contains("as of the last fsync"), has_volume, "{options:?}: {said}");
        let size = volume.metadata().map_or(0, |found| found.len());
        assert_quiet(&conquest(["destroy", "--yes", &store]));
        assert!(!volume.exists());
        size
    };
    assert_eq!(made(&[]), 192 << 20);
    assert_eq!(made(&["--sync", "fsync", "--chunk", "1G"]), 192 << 20);
    assert_eq!(made(&["--volume", "none"]), 0);
    assert_eq!(made(&["--medium", "ram"]), 0);
    assert_eq!(made(&["--medium", "battery"]), 0);
    let core = place.0.join("core");
    assert_eq!(made(&["--core", core.to_str().unwrap()]), 0);
    // More than there is.
    let said = refused(1, ["mkfs", "--size-max", "8T", &store]);
    assert!(said.contains("for the volume") && said.contains("--volume none"), "{said}");
    // In memory there is nothing to gain.
    let name = format!("conquest-itself-{}", std::process::id());
    let memory = std::path::Path::new("/dev/shm").join(name).to_str().unwrap().to_owned();
    assert!(!printed(["mkfs", "--size-max", "32M", &memory]).contains("power failure"));
    assert_quiet(&conquest(["destroy", "--yes", &memory]));
}

#[test]
fn programs_on_a_mount_wait_by_fsync_for_what_outlives_the_power() {
    need_root();
    let place = Place::new("mounted", &["--sync", "fsync"]);
    let (point, sign) = (place.0.join("point"), place.0.join("ready"));
    std::fs::create_dir(&point).unwrap();
    let (at, store) = (point.to_str().unwrap(), place.store());
    let script = format!(
        "{} mount {store} {at} && mkdir {at}/d && printf synced > {at}/d/file && \
         sync {at}/d/file && printf later >> {at}/d/file && touch {at}/lost && touch {} && \
         sleep 60",
        env!("CARGO_BIN_EXE_conquest"),
        sign.display()
    );
    let mut shell = Command::new("unshare").args(["-m", "sh", "-c", &script]).spawn().unwrap();
    until("the mount", || sign.exists());
    let (keeper, server) = (place.keeper(), mounted::server(at));
    for process in [keeper, server] {
        kill_process(process, Signal::KILL).unwrap();
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    until("the server's end", || is_gone(server));
    place.power_cut();
    assert_eq!(printed(["ls", &format!("{store}:/")]), "d\n");
    assert_eq!(printed(["cat", &format!("{store}:/d/file")]), "synced");
}

#[test]
fn a_core_on_a_battery_has_a_volume_for_its_large_files() {
    let place = Place::new("battery", &["--medium", "battery", "--threshold", "64K"]);
    let (store, file) = (place.store(), place.0.join("file"));
    std::fs::write(&file, vec![7; 300_000]).unwrap();
    let inside = format!("{store}:/file");
    printed(["cp", file.to_str().unwrap(), &inside]);
    printed(["wait", "--durable", &store]);
    let shown = printed(["stat", &inside]);
    assert!(shown.contains("large content; on the volume"), "{shown}");
    let info = place.info();
    assert_eq!(info["medium"], "battery");
    assert_eq!(
        (&info["volume"]["committed"], &info["volume"]["lag_bytes"]),
        (&0.into(), &0.into())
    );
    let shown = printed(["info", &store]);
    assert!(shown.contains("interval=1s: large files that are overwritten"), "{shown}");
    // It keeps such a store, too, and goes.
    let child = writer(&place, "other");
    let keeper = place.keeper();
    end(child);
    until("the keeper's end", || is_gone(keeper));
    assert!(printed(["fsck", "-n", &store]).ends_with("\nconsistent\n"));
}

/// Bytes of page `page` of a file.
fn page_of(file: u64, page: u64) -> Vec<u8> {
    (0..512).flat_map(|word| (file << 40 | page << 16 | word).to_le_bytes()).collect()
}

/// Pages of large files stay in the core when they are closed: the keeper pushes them, whether he
/// makes anything durable or not.
#[test]
fn what_is_closed_is_pushed_by_the_keeper() {
    const PAGES: u64 = 200;
    for sync in ["interval=300ms", "fsync"] {
        let place = Place::new(&format!("pushed-{sync}"), &["--threshold", "64K", "--sync", sync]);
        let program = KeeperProgram::Path(env!("CARGO_BIN_EXE_conquest").into());
        let how = Attach { keeper: program, ..Attach::default() };
        let store = Store::attach(&place.directory(), &how).unwrap();
        until("a keeper at work", || store.fs().core().has_keeper());
        let files = store.files().unwrap();
        // He may just be at it.
        let stays = (0..6).filter(|file| {
            let opened = files.create(format!("/{file}")).unwrap();
            for page in 0..PAGES {
                opened.write_all_at(&page_of(*file, page), page * 4096).unwrap();
            }
            drop(opened);
            store.fs().has_due().unwrap()
        });
        assert!(stays.count() > 2, "whoever writes has pushed");
        until("the end of pushing", || !store.fs().has_due().unwrap());
        store.sync().unwrap();
        drop(files);
        store.detach().unwrap();
        let keeper = place.keeper();
        until("the keeper's end", || is_gone(keeper));
        place.power_cut();
        let store = Store::attach(&place.directory(), &how).unwrap();
        let files = store.files().unwrap();
        for file in 0..6 {
            let expected: Vec<u8> = (0..PAGES).flat_map(|page| page_of(file, page)).collect();
            assert!(files.read(format!("/{file}")).unwrap() == expected, "{file}");
        }
        drop(files);
        store.detach().unwrap();
    }
}
