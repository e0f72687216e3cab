//! Open file descriptions that processes share, beside the kernel's: what is passed on by forks,
//! and what is left when processes end or are killed.
//!
//! Needs root and mount namespaces; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store_support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path as HostPath;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use conquest_fs::feed::{NoticeKind, Told};
use conquest_fs::locks::{self, Mode, Owner, Record, Wait};
use conquest_fs::names::Removal;
use conquest_fs::open::share::Status;
use conquest_fs::open::{OpenFile, Whence, bury};
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::{Errno, Error};
use conquest_peers::child::fork;
use conquest_peers::machine::{self, Kind};
use conquest_peers::process::{self, Line, Process};
use conquest_peers::sys;
use conquest_pm::Tx;
use conquest_pm::media::{Carried, Source};
use conquest_testkit::Rng;

use store_support::{Files, open, region, root, store, store_at};

const NAMES: [&str; 2] = ["a", "b"];
const FLAGS: [i32; 4] =
    [libc::O_RDWR, libc::O_RDONLY, libc::O_WRONLY | libc::O_APPEND, libc::O_RDWR | libc::O_APPEND];
/// Processes that there are in a run, one after the other, and how many at a time.
const PROCESSES: usize = 24;
const TOGETHER: usize = 4;
const OPERATIONS: u64 = 600;
const LONG: Duration = Duration::from_secs(20);
/// Descriptors of a process.
const DESCRIPTORS: usize = 4;

/// What a worker is asked: a seed for an operation, or one of these.
const FORK: u64 = 1 << 63;
const END: u64 = 1 << 62;

type Answer = Result<Vec<u8>, i32>;

/// A file that is open, ours and the kernel's.
struct Both {
    ours: OpenFile,
    kernels: File,
}

/// A process that has descriptors of both, and does the same with both.
struct Worker<'w> {
    files: &'w Files,
    lines: &'w [Line],
    opened: Vec<Both>,
}

fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.below(among.len() as u64) as usize]
}

fn number(error: Error) -> i32 {
    error.errno().number()
}

fn kernel_mode(mode: Option<Mode>) -> (i32, i32) {
    match mode {
        Some(Mode::Shared) => (libc::F_RDLCK, libc::LOCK_SH),
        Some(Mode::Exclusive) => (libc::F_WRLCK, libc::LOCK_EX),
        None => (libc::F_UNLCK, libc::LOCK_UN),
    }
}

impl Worker<'_> {
    fn open(&mut self, rng: &mut Rng) {
        let (name, flags) = (pick(rng, &NAMES), pick(rng, &FLAGS));
        let ours = open(self.files, name, flags | libc::O_CREAT);
        let path = std::ffi::CString::new(name).unwrap();
        let kernels = sys::open(sys::HERE, &path, flags | libc::O_CREAT, 0o666).unwrap();
        self.opened.push(Both { ours, kernels });
    }

    fn close(&mut self, index: usize) {
        let both = self.opened.swap_remove(index);
        // Closing any descriptor of a file gives up the process's locks on it.
        self.files.release_records(&both.ours, Owner::Process(0)).unwrap();
        self.files.close(&both.ours).unwrap();
    }

    /// One operation, on both sides: what it was, and what came of it.
    fn operate(&mut self, seed: u64) -> String {
        let mut rng = Rng::new(seed);
        if self.opened.is_empty() || self.opened.len() < DESCRIPTORS && rng.chance(1, 8) {
            self.open(&mut rng);
            return "open".to_owned();
        }
        let index = rng.below(self.opened.len() as u64) as usize;
        if rng.chance(1, 20) {
            self.close(index);
            return "close".to_owned();
        }
        let (name, ours, kernels) = self.ask(index, &mut rng);
        let verdict = if ours == kernels { "same" } else { "DIFFERENT" };
        format!("{verdict} {name} on {index}: {ours:?}, kernel {kernels:?}")
    }

    fn ask(&self, index: usize, rng: &mut Rng) -> (&'static str, Answer, Answer) {
        let files = self.files;
        let Both { ours, kernels } = &self.opened[index];
        let mode = pick(rng, &[Some(Mode::Shared), Some(Mode::Exclusive), None]);
        let flock = kernel_mode(mode).1;
        let nothing = |()| Vec::new();
        match rng.below(19) {
            0..=3 => {
                let (mut mine, mut theirs) = (vec![0; 7], vec![0; 7]);
                let read = files.read_next(ours, &mut mine).map_err(number);
                let found = sys::read(kernels, &mut theirs);
                (
                    "read",
                    read.map(|len| mine[..len].to_vec()),
                    found.map(|len| theirs[..len as usize].to_vec()),
                )
            }
            4..=7 => {
                let bytes = [rng.below(256) as u8; 3];
                let wrote = files.write_next(&root(), ours, &bytes).map_err(number);
                let written = sys::write_all(kernels, &bytes);
                ("write", wrote.map(|len| vec![len as u8]), written.map(|len| vec![len as u8]))
            }
            8 | 9 => {
                let (whence, code) = pick(
                    rng,
                    &[
                        (Whence::Start, libc::SEEK_SET),
                        (Whence::Current, libc::SEEK_CUR),
                        (Whence::End, libc::SEEK_END),
                    ],
                );
                let offset = rng.below(20) as i64 - 4;
                let sought = files.seek_to(ours, offset, whence).map_err(number);
                let text = |position: u64| position.to_le_bytes().to_vec();
                ("seek", sought.map(text), sys::seek(kernels, offset, code).map(text))
            }
            10 | 11 => {
                let status = Status {
                    append: rng.chance(1, 2),
                    no_access_time: rng.chance(1, 2),
                    direct: rng.chance(1, 2),
                };
                let append = if status.append { libc::O_APPEND } else { 0 };
                let skip = if status.no_access_time { libc::O_NOATIME } else { 0 };
                let set = files.set_status(&root(), ours, status).map_err(number);
                ("fcntl", set.map(nothing), sys::set_status(kernels, append | skip).map(nothing))
            }
            12 | 13 => {
                let set = files.flock(ours, mode, Wait::No).map_err(number);
                let answer = sys::flock(kernels, flock | libc::LOCK_NB).map(nothing);
                ("flock", set.map(nothing), answer)
            }
            14 => {
                let gone = pick(rng, &NAMES);
                let base = &Base::new(files.root(), files.root());
                let path = Path { base, bytes: gone.as_bytes() };
                let removed = files.remove_at(&root(), path, Removal::File).map_err(number);
                let name = std::ffi::CString::new(gone).unwrap();
                let answer = sys::remove(sys::HERE, &name, false);
                ("unlink", removed.map(nothing), answer.map(nothing))
            }
            _ => self.ask_record(index, rng, mode),
        }
    }

    fn ask_record(
        &self,
        index: usize,
        rng: &mut Rng,
        mode: Option<Mode>,
    ) -> (&'static str, Answer, Answer) {
        let Both { ours, kernels } = &self.opened[index];
        let nothing = |()| Vec::new();
        let of_open = rng.chance(1, 2);
        let (offset, len) = (rng.below(8) as i64, rng.below(4) as i64);
        let owner = if of_open { Owner::Open } else { Owner::Process(0) };
        let record = Record::new(offset, len, mode).unwrap();
        let set = self.files.set_record(ours, owner, record, Wait::No).map_err(number);
        let command = if of_open { libc::F_OFD_SETLK } else { libc::F_SETLK };
        let record = sys::Record { kind: kernel_mode(mode).0, offset, len };
        let answer = sys::record(kernels, command, record).map(|_| Vec::new());
        (if of_open { "lock of description" } else { "lock" }, set.map(nothing), answer)
    }

    /// Forks a process that has all that this one has, and answers on line `line`: its number.
    fn fork(&mut self, line: usize) -> u32 {
        let files = self.files;
        let core = files.core();
        let parcel = core.parcel().unwrap();
        let packed: Vec<u32> =
            self.opened.iter().map(|both| files.pack(&parcel, &both.ours).unwrap()).collect();
        let slot = parcel.slot();
        let carried = OwnedFd::from(parcel.into_carried());
        let inherited = &mut self.opened;
        let lines = self.lines;
        let child = fork(move || {
            let again = carried.try_clone().unwrap();
            let parcel = core.receive(slot, Carried::from(carried)).unwrap();
            assert!(core.receive(slot, Carried::from(again)).is_err(), "it was received twice");
            let mut inside = files.unpack(parcel).unwrap();
            let inherited = core::mem::take(inherited).into_iter();
            let opened = packed.iter().zip(inherited).map(|(number, both)| {
                let at = inside.iter().position(|(inside, _)| inside == number).unwrap();
                let ours = inside.swap_remove(at).1;
                // The child does not have what its parent has.
                assert_eq!(files.close(&both.ours).unwrap_err().errno(), Errno::EBADF);
                Both { ours, ..both }
            });
            let opened = opened.collect();
            Worker { files, lines, opened }.serve(line);
        });
        child.number()
    }

    fn serve(&mut self, line: usize) {
        let line = &self.lines[line];
        line.serve(|what| {
            if what & FORK != 0 {
                self.fork((what & !FORK) as usize).to_string()
            } else if what == END {
                while !self.opened.is_empty() {
                    self.close(0);
                }
                self.files.core().detach().unwrap();
                "ended".to_owned()
            } else {
                self.operate(what)
            }
        });
    }
}

/// One run: processes come, share, and go.
fn run(files: &Files, rng: &mut Rng) -> u64 {
    let lines: Vec<Line> = (0..PROCESSES).map(|_| Line::new()).collect();
    let mut next = 0;
    let mut living: Vec<(usize, Process)> = Vec::new();
    let mut same = 0;
    let mut history = Vec::new();
    for _ in 0..OPERATIONS {
        if living.is_empty() {
            if next == PROCESSES {
                break;
            }
            let worker = || Worker { files, lines: &lines, opened: Vec::new() }.serve(next);
            living.push((next, Process::find(fork(worker).number())));
            next += 1;
        }
        let which = rng.below(living.len() as u64) as usize;
        let line = &lines[living[which].0];
        match rng.below(60) {
            0 | 1 if next < PROCESSES && living.len() < TOGETHER => {
                let pid = line.ask(FORK | next as u64).unwrap();
                history.push(format!("{} forks {next}", living[which].0));
                living.push((next, Process::find(pid.parse().unwrap())));
                next += 1;
            }
            2 => {
                let (number, process) = living.swap_remove(which);
                let is_killed = rng.chance(1, 2);
                if !is_killed {
                    line.ask(END).unwrap();
                }
                process.kill();
                history.push(format!("{number} ends, killed: {is_killed}"));
            }
            _ => {
                let said = line.ask(rng.word() >> 8).unwrap_or_else(|| "ended".to_owned());
                history.push(format!("{}: {said}", living[which].0));
                let is_wrong = said.starts_with("DIFFERENT") || said == "ended";
                assert!(!is_wrong, "{}", history.join("\n"));
                same += 1;
            }
        }
    }
    for (number, process) in living {
        lines[number].ask(END);
        process.kill();
    }
    process::reap();
    same
}

#[test]
fn descriptions_are_shared_as_the_kernels_are() {
    let directory = HostPath::new(env!("CARGO_TARGET_TMPDIR"));
    let said = machine::run(Kind::Tmpfs, directory, machine::LIMIT, |peer| {
        sys::enter(peer);
        let files = store(2, locks::END);
        let mut same = 0;
        for seed in 0..12 {
            same += run(&files, &mut Rng::new(seed));
            files.core().recover().unwrap();
            let core = files.core();
            assert_eq!(core.orphans().count(), 0, "orphans are left in run {seed}");
            let holdings = (0..).map_while(|number| core.holding(number));
            let left: Vec<_> = holdings.filter_map(|holding| core.look_at(holding)).collect();
            assert!(left.is_empty(), "orphans are not, but {left:?} in run {seed}");
        }
        format!("{same} operations compared")
    });
    println!("{said}");
}

/// A lock of a description does not let go for a moment when the process dies that has set it, as
/// long as others have the description, whoever is at burying the dead.
#[test]
fn a_lock_of_a_shared_description_outlives_its_setter() {
    let memory = sys::memory_file(c"store").unwrap();
    let [one, two, three] = [0; 3].map(|_| Source::from(memory.try_clone().unwrap()));
    let files = store_at([one, two], 2, locks::END);
    let [shared, other] = [0, 1].map(|_| open(&files, "a", libc::O_RDWR | libc::O_CREAT));
    let line = Line::new();
    let parcel = files.core().parcel().unwrap();
    files.pack(&parcel, &shared).unwrap();
    let child = fork(|| {
        let mut parcel = Some(parcel);
        line.serve(|_| {
            let parcel = parcel.take().unwrap();
            let parcel = files.core().receive(parcel.slot(), parcel.into_carried()).unwrap();
            let inside = files.unpack(parcel).unwrap();
            files.flock(&inside[0].1, Some(Mode::Exclusive), Wait::No).unwrap();
            "locked".to_owned()
        });
    });
    let child = Process::find(child.number());
    assert_eq!(line.ask(0).unwrap(), "locked");
    child.kill();
    // Somebody is at burying the child's, and gets no farther.
    let (begins, has_begun) = channel();
    let (goes_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let wait = move || {
        let _told = begins.send(());
        // Until the other end is dropped.
        let _waited = may_go_on.lock().unwrap().recv();
    };
    let slow = Box::new(move |tx: &mut Tx<'_, _, _>, held, orphan| {
        wait();
        bury(tx, held, orphan)
    });
    // Whoever attaches does that.
    let burying = std::thread::spawn(move || drop(region(three, slow)));
    has_begun.recv_timeout(LONG).unwrap();
    let refused = files.flock(&other, Some(Mode::Shared), Wait::No);
    assert_eq!(refused.unwrap_err().errno(), Errno::EAGAIN);
    drop(goes_on);
    burying.join().unwrap();
    files.close(&shared).unwrap();
    files.flock(&other, Some(Mode::Exclusive), Wait::No).unwrap();
    process::reap();
}

/// Bytes of a record of the log that two processes write.
const RECORD: usize = 16;

/// Two processes write a log through one description, and one of them is killed: the log has
/// records only, all that were acknowledged, and no gap.
#[test]
fn a_writer_who_is_killed_leaves_no_gap() {
    let files = store(4, locks::END);
    for round in 0..40 {
        let log = open(&files, "log", libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC);
        let parcel = files.core().parcel().unwrap();
        files.pack(&parcel, &log).unwrap();
        // A byte for each record that was acknowledged.
        let (mut told, mut tell) = std::io::pipe().unwrap();
        let child = fork(|| {
            let parcel = files.core().receive(parcel.slot(), parcel.into_carried()).unwrap();
            let inside = files.unpack(parcel).unwrap();
            loop {
                let written = files.write_next(&root(), &inside[0].1, &[b'c'; RECORD]);
                assert_eq!(written.unwrap(), RECORD);
                tell.write_all(&[1]).unwrap();
            }
        });
        let child = Process::find(child.number());
        drop(tell);
        let mut ours = 0;
        let mut first = [0];
        told.read_exact(&mut first).unwrap();
        let begin = Instant::now();
        let write = || files.write_next(&root(), &log, &[b'p'; RECORD]).unwrap();
        while begin.elapsed() < Duration::from_micros(200 + 17 * round) {
            ours += write() / RECORD;
        }
        child.kill();
        ours += (0..3).map(|_| write() / RECORD).sum::<usize>();
        let mut bytes = vec![0; files.stat(log.file).unwrap().size as usize + 1];
        let len = files.read_file(log.file, 0, &mut bytes).unwrap();
        let records = bytes[..len].chunks(RECORD);
        let of = |byte: u8| records.clone().filter(|record| *record == [byte; RECORD]).count();
        let mut rest = Vec::new();
        told.read_to_end(&mut rest).unwrap();
        let childs = 1 + rest.len();
        assert_eq!(of(b'p'), ours, "round {round}");
        assert!((childs..=childs + 1).contains(&of(b'c')), "round {round}");
        assert_eq!(of(b'p') + of(b'c'), records.len(), "round {round}");
        assert_eq!(files.position(&log), len as u64, "round {round}");
        files.close(&log).unwrap();
        process::reap();
    }
}

/// What is buried for one who died is nobody's doing, whoever is told of it.
#[test]
fn what_goes_with_the_dead_is_nobodys_doing() {
    let files = store(2, locks::END);
    let line = Line::new();
    let child = fork(|| {
        line.serve(|_| {
            open(&files, "gone", libc::O_RDWR | libc::O_CREAT);
            let base = &Base::new(files.root(), files.root());
            let path = Path { base, bytes: b"gone" };
            files.remove_at(&root(), path, Removal::File).unwrap();
            "removed".to_owned()
        });
    });
    let child = Process::find(child.number());
    let mut follower = files.follow();
    assert_eq!(line.ask(0).unwrap(), "removed");
    child.kill();
    files.core().recover().unwrap();
    assert_eq!(files.core().orphans().count(), 0);
    let mut name = [0; 255];
    let mut told = Vec::new();
    while let Some(next) = follower.next(&mut name).unwrap() {
        let Told::Notice(notice) = next else { panic!("{next:?}") };
        told.push((notice.kind, follower.is_own(&notice), notice.slot.is_some()));
    }
    let expected = [NoticeKind::Created, NoticeKind::Removed].map(|kind| (kind, false, true));
    assert_eq!(told[..2], expected);
    assert_eq!(told[2..], [(NoticeKind::Gone, false, false)]);
    process::reap();
}

/// Who wants a lock notices at once that the last one who had it has died, though another process
/// had opened the file.
#[test]
fn a_lock_goes_with_the_last_who_is_killed() {
    let files = store(2, locks::END);
    for _ in 0..5 {
        let [shared, other] = [0, 1].map(|_| open(&files, "a", libc::O_RDWR | libc::O_CREAT));
        files.flock(&shared, Some(Mode::Exclusive), Wait::No).unwrap();
        let line = Line::new();
        let parcel = files.core().parcel().unwrap();
        files.pack(&parcel, &shared).unwrap();
        let mut parcel = Some(parcel);
        let child = fork(|| {
            line.serve(|_| {
                let parcel = parcel.take().unwrap();
                let parcel = files.core().receive(parcel.slot(), parcel.into_carried()).unwrap();
                files.unpack(parcel).unwrap().len().to_string()
            });
        });
        drop(parcel);
        let child = Process::find(child.number());
        assert_eq!(line.ask(0).unwrap(), "1");
        files.close(&shared).unwrap();
        let refused = files.flock(&other, Some(Mode::Exclusive), Wait::No);
        assert_eq!(refused.unwrap_err().errno(), Errno::EAGAIN);
        child.kill();
        files.flock(&other, Some(Mode::Exclusive), Wait::No).unwrap();
        files.close(&other).unwrap();
        process::reap();
    }
}

/// A child has nothing of what its parent had opened, though it has the parent's place, and with it
/// the same holdings, once that one is dead.
#[test]
fn what_the_dead_had_open_is_not_its_childs() {
    let files = store(2, locks::END);
    let lines = [Line::new(), Line::new()];
    let parent = fork(|| {
        let inherited = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
        lines[0].serve(|_| {
            let child = fork(|| {
                lines[1].serve(|_| {
                    let own = open(&files, "b", libc::O_RDWR | libc::O_CREAT);
                    let refused = files.close(&inherited).unwrap_err().errno();
                    files.close(&own).unwrap();
                    refused.number().to_string()
                });
            });
            child.number().to_string()
        });
    });
    let parent = Process::find(parent.number());
    let child = Process::find(lines[0].ask(0).unwrap().parse().unwrap());
    parent.kill();
    assert_eq!(lines[1].ask(0).unwrap(), Errno::EBADF.number().to_string());
    child.kill();
    process::reap();
}
