//! Power cuts while a file system of the kernel is used on an export: what was synced on it is
//! there, and it needs no repair.
//!
//! The volume is on a device that keeps a log of what is done to it, served by a process of the
//! test's, in a mount namespace of its own. At random points of the log the power is cut: of
//! what was not flushed, each block is as before or as after. What is left is exported in turn.
//!
//! `CONQUEST_CUTS=100` makes it long, `CONQUEST_SEED` another one. Needs root, mount namespaces,
//! FUSE, loop devices, and `mkfs.ext4`; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conquest_export::{NAME, Options, Server, Space, Volume};
use conquest_flash::{NewVolume, assemble, create};
use conquest_format::volume::Arrangement;
use conquest_fuse::{MountOptions, Mounted, Session, SessionOptions, mount};
use conquest_peers::child::{end_with_parent, fork};
use conquest_peers::machine::{in_child, unshare_mounts};
use conquest_peers::process::{Line, Process};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::{Access, Region};
use conquest_testkit::Rng;
use conquest_testkit::flash::crash::{Choice, crash};
use conquest_testkit::flash::{Event, Mark, Medium, Recorder, Sweep};

/// Bytes of the device.
const SIZE: u64 = 96 << 20;
/// Files that are written and synced.
const FILES: u32 = 150;
/// Bytes of each.
const FILE: usize = 20_000;
/// Power cuts, unless `CONQUEST_CUTS` says otherwise.
const CUTS: u64 = 12;
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(100);

/// A volume whose space this process shows at a mount point.
struct Shown {
    volume: Arc<Volume>,
    mounted: Mounted,
    serving: JoinHandle<()>,
}

impl Shown {
    fn new(device: &Recorder, point: &Path) -> Shown {
        let body = assemble(vec![Arc::new(device.as_other())]).unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let index = rustix::fs::memfd_create("index", flags).unwrap();
        let source = || Source::Descriptor(index.try_clone().unwrap());
        let (shape, kinds, uuid) = (body.shape(4), body.kinds(), body.uuid());
        let new = NewRegion { shape, kinds, uuid, created: 1, groups: 1 };
        Region::create(source(), 0o600, &new).unwrap();
        let region = Region::open(source(), &kinds, Access::default(), Default::default()).unwrap();
        let volume = Arc::new(Volume::recover(region, &body).unwrap());
        let size = volume.usage().capacity * volume.unit();
        let space = Space::new(Arc::clone(&volume), size);
        let options = Options { read_only: false, uid: 0, gid: 0, created: 0 };
        // What goes wrong is an error of the file system, too.
        let server = Server::new(space, options, Box::new(|error| eprintln!("told: {error}")));
        let (device, mounted) = mount(point, &MountOptions::new("conquest", "test")).unwrap();
        let session = Session::new(device, server, SessionOptions::default());
        let serving = std::thread::spawn(move || session.run().unwrap());
        Shown { volume, mounted, serving }
    }

    /// Ends it as soon as the loop device is gone; the map has to be as it should.
    fn end(self) {
        let begin = Instant::now();
        while let Err(error) = self.mounted.unmount(false) {
            assert!(begin.elapsed() < LIMIT, "{error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.serving.join().unwrap();
        let found = self.volume.check().unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}

#[track_caller]
fn run(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.unwrap_or_else(|error| panic!("this test needs {}: {error}", words[0]));
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A loop device on what is shown at `point`, which goes when it is neither open nor mounted.
fn attach(point: &Path) -> (String, File) {
    let file = point.join(NAME);
    let words = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", "4096"];
    let path = run(&[&words[..], &[file.to_str().unwrap()]].concat()).trim().to_owned();
    let open = File::open(&path).unwrap();
    run(&["losetup", "--detach", &path]);
    (path, open)
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.word().to_le_bytes()).take(len).collect()
}

/// Where a test works.
struct Place {
    point: PathBuf,
    /// Where the file system is mounted.
    directory: PathBuf,
}

impl Place {
    fn mount(&self, device: &str) {
        let directory = self.directory.to_str().unwrap();
        run(&["mount", "-t", "ext4", "-o", "discard", device, directory]);
    }

    fn unmount(&self) {
        run(&["umount", self.directory.to_str().unwrap()]);
    }
}

/// What the process that serves is asked for.
const BEGIN: u64 = 1 << 32;
const END: u64 = 2 << 32;
const CUT: u64 = 3 << 32;
const HIDE: u64 = 4 << 32;

/// The process that serves: whoever uses a mount must not be who serves it, or neither can end
/// when something fails. It marks files as synced, keeps the log, and cuts.
struct Keeper {
    point: PathBuf,
    device: Recorder,
    shown: Option<Shown>,
    rng: Rng,
    cuts: u64,
    log: Vec<Event>,
    /// Events of the log that are cut behind, in their order.
    points: Vec<usize>,
    sweep: Sweep,
    /// Events that the sweep has passed.
    passed: usize,
    done: u32,
}

impl Keeper {
    fn new(point: &Path, cuts: u64, seed: u64) -> Keeper {
        let new = NewVolume {
            uuid: [7; 16],
            created: 1,
            arrangement: Arrangement::Striped,
            segment: None,
        };
        let device = Recorder::new(Medium::new(SIZE), true).unwrap();
        create(&[Arc::new(device.as_other())], &new).unwrap();
        Keeper {
            point: point.to_owned(),
            shown: Some(Shown::new(&device, point)),
            device,
            rng: Rng::new(seed),
            cuts,
            log: Vec::new(),
            points: Vec::new(),
            sweep: Sweep::new(Medium::new(SIZE)),
            passed: 0,
            done: 0,
        }
    }

    fn answer(&mut self, what: u64) -> String {
        match what {
            BEGIN => {
                // What the file system has written so far is flushed.
                let _before = self.device.take_log();
                self.sweep = Sweep::new(self.device.medium());
            }
            END => {
                self.log = self.device.take_log();
                let (len, rng) = (self.log.len() as u64, &mut self.rng);
                self.points = (0..self.cuts).map(|_| rng.below(len) as usize).collect();
                self.points.sort_unstable();
                self.points.reverse();
            }
            CUT => return self.cut(),
            HIDE => self.shown.take().unwrap().end(),
            number => self.device.mark(Mark::Done(number as u32)),
        }
        String::new()
    }

    /// Cuts at the next point, and shows what is left: how many files were synced, and what was
    /// done; nothing if there are no more points.
    fn cut(&mut self) -> String {
        let Some(point) = self.points.pop() else {
            assert!(self.done > 0, "nothing was cut off");
            return String::new();
        };
        while self.passed <= point {
            let event = &self.log[self.passed];
            self.sweep.pass(event);
            if let Event::Mark(Mark::Done(number)) = event {
                self.done = number + 1;
            }
            self.passed += 1;
        }
        let choice = Choice::random(&mut self.rng);
        let medium = crash(&self.sweep, 512, choice, &mut self.rng);
        self.shown = Some(Shown::new(&Recorder::new(medium, false).unwrap(), &self.point));
        let (of, waiting) = (self.log.len(), self.sweep.pending.len());
        format!("{} event {point} of {of}, {waiting} writes not flushed, {choice}", self.done)
    }
}

/// Writes and syncs files, and says so to `keeper`, while somebody else makes the volume clean and
/// trim.
fn work(place: &Place, keeper: &Line) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                let path = place.directory.join(format!("other {}", round % 3));
                let written = std::fs::write(&path, bytes(round, 9 << 20));
                if is_over.load(Ordering::Relaxed) || written.is_err() {
                    return;
                }
                if round % 3 == 2 {
                    std::fs::remove_file(&path).unwrap();
                }
            }
        });
        for number in 0..FILES {
            let made = File::create(place.directory.join(number.to_string()));
            let synced = made.and_then(|mut file| {
                file.write_all(&bytes(number.into(), FILE))?;
                file.sync_all()
            });
            if synced.is_err() || keeper.ask(number.into()).is_none() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Looks at what a power cut has left, after which `done` files had been synced.
fn judge(place: &Place, done: u32, what: &str) {
    let (device, _open) = attach(&place.point);
    place.mount(&device);
    for number in 0..done {
        let found = std::fs::read(place.directory.join(number.to_string()));
        let is_right = found.as_ref().is_ok_and(|found| *found == bytes(number.into(), FILE));
        assert!(is_right, "{what}: file {number} of {done}: {:?}", found.map(|found| found.len()));
    }
    place.unmount();
    run(&["e2fsck", "-fn", &device]);
}

fn all(place: &Place, cuts: u64, seed: u64) -> String {
    let line = Line::new();
    let keeper = fork(|| {
        end_with_parent();
        let mut keeper = Keeper::new(&place.point, cuts, seed);
        line.serve(|what| keeper.answer(what));
    });
    // It ends with this, however that ends.
    let _end = Process::find(keeper.number());
    let ask = |what: u64| line.ask(what).unwrap_or_else(|| panic!("the keeper has ended"));
    let begin = Instant::now();
    while !place.point.join(NAME).exists() {
        assert!(begin.elapsed() < LIMIT, "nothing is shown");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (path, open) = attach(&place.point);
    run(&["mkfs.ext4", "-q", &path]);
    place.mount(&path);
    run(&["sync", "-f", place.directory.to_str().unwrap()]);
    ask(BEGIN);
    work(place, &line);
    ask(END);
    place.unmount();
    drop(open);
    ask(HIDE);
    let mut said = String::new();
    loop {
        let cut = ask(CUT);
        let Some((done, what)) = cut.split_once(' ') else {
            return said;
        };
        judge(place, done.parse().unwrap(), &format!("seed {seed}: {what}"));
        said.push_str(&format!("{cut}\n"));
        ask(HIDE);
    }
}

/// The number that the variable `name` of the environment has.
fn number_in(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn what_was_synced_on_a_file_system_survives_power_cuts() {
    let name = format!("conquest-power-cuts-{}", std::process::id());
    let root = std::env::temp_dir().join(name);
    let place = Place { point: root.join("mnt"), directory: root.join("fs") };
    for directory in [&place.point, &place.directory] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let (cuts, seed) = (number_in("CONQUEST_CUTS"), number_in("CONQUEST_SEED"));
    let (cuts, seed) = (cuts.unwrap_or(CUTS), seed.unwrap_or(1));
    let outcome = std::panic::catch_unwind(|| {
        in_child(LIMIT, || {
            unshare_mounts();
            all(&place, cuts, seed)
        })
    });
    std::fs::remove_dir_all(&root).unwrap();
    match outcome {
        Ok(said) => print!("{said}"),
        Err(reason) => std::panic::resume_unwind(reason),
    }
}
