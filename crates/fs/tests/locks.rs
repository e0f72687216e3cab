//! Record locks side by side with the kernel's, and waiting for them.
//!
//! Needs root and mount namespaces; fails where they are missing.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store_support;

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use conquest_fs::locks::{Conflict, END, Mode, Owner, Record, Wait};
use conquest_fs::open::{How, OpenFile};
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::{Errno, Error};
use conquest_peers::machine::{self, Kind};
use conquest_peers::sys::{self, Outcome};
use conquest_testkit::Rng;
use store_support::{Files, open, root, store};

/// Owners of locks, each with descriptors of its own.
const OWNERS: u64 = 3;
/// Descriptors of each: to read and write, to read, to write.
const DESCRIPTORS: u64 = 3;
const OPERATIONS: u64 = 3000;

const MODES: [i32; DESCRIPTORS as usize] = [libc::O_RDWR, libc::O_RDONLY, libc::O_WRONLY];

/// What is asked of a descriptor.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Set {
        of_open: bool,
        offset: i64,
        len: i64,
        mode: Option<Mode>,
    },
    Test {
        of_open: bool,
        offset: i64,
        len: i64,
        mode: Mode,
    },
    Flock(Option<Mode>),
    /// Closes it and opens the file anew.
    Reopen,
}

fn ask(rng: &mut Rng) -> Ask {
    let mode = if rng.chance(1, 2) { Mode::Shared } else { Mode::Exclusive };
    let offset = rng.below(12) as i64 - i64::from(rng.chance(1, 20));
    let len = match rng.below(10) {
        0 => 0,
        1 => -(rng.below(4) as i64),
        2 => i64::MAX - rng.below(14) as i64,
        _ => rng.below(6) as i64,
    };
    let of_open = rng.chance(1, 3);
    match rng.below(12) {
        0..=5 => Ask::Set { of_open, offset, len, mode: rng.chance(3, 5).then_some(mode) },
        6..=8 => Ask::Test { of_open, offset, len, mode },
        9..=10 => Ask::Flock(rng.chance(2, 3).then_some(mode)),
        _ => Ask::Reopen,
    }
}

type Answer = Result<Option<Conflict>, i32>;

fn ask_ours(files: &Files, owner: u64, open_file: &mut OpenFile, flags: i32, ask: Ask) -> Answer {
    let owner = |of_open| if of_open { Owner::Open } else { Owner::Process(owner) };
    let number = |error: Error| error.errno().number();
    match ask {
        Ask::Set { of_open, offset, len, mode } => {
            let record = Record::new(offset, len, mode).map_err(|errno| errno.number())?;
            let set = files.set_record(open_file, owner(of_open), record, Wait::No);
            set.map(|()| None).map_err(number)
        }
        Ask::Test { of_open, offset, len, mode } => {
            let record = Record::new(offset, len, Some(mode)).map_err(|errno| errno.number())?;
            files.test_record(open_file, owner(of_open), record).map_err(number)
        }
        Ask::Flock(mode) => files.flock(open_file, mode, Wait::No).map(|()| None).map_err(number),
        Ask::Reopen => {
            files.release_records(open_file, owner(false)).unwrap();
            files.close(open_file).unwrap();
            *open_file = open(files, "a", flags | libc::O_CREAT);
            Ok(None)
        }
    }
}

fn kernel_mode(mode: Option<Mode>) -> i32 {
    match mode {
        Some(Mode::Shared) => libc::F_RDLCK,
        Some(Mode::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    }
}

fn ask_kernel(file: &mut File, flags: i32, ask: Ask) -> Answer {
    let record = |offset, len, mode| sys::Record { kind: kernel_mode(mode), offset, len };
    let answered: Outcome<Option<Conflict>> = match ask {
        Ask::Set { of_open, offset, len, mode } => {
            let command = if of_open { libc::F_OFD_SETLK } else { libc::F_SETLK };
            sys::record(file, command, record(offset, len, mode)).map(|_| None)
        }
        Ask::Test { of_open, offset, len, mode } => {
            let command = if of_open { libc::F_OFD_GETLK } else { libc::F_GETLK };
            sys::record(file, command, record(offset, len, Some(mode))).map(|found| {
                let (found, process) = found?;
                let last = if found.len == 0 { END } else { (found.offset + found.len - 1) as u64 };
                Some(Conflict {
                    first: found.offset as u64,
                    last,
                    mode: match found.kind {
                        libc::F_RDLCK => Mode::Shared,
                        _ => Mode::Exclusive,
                    },
                    process: u32::try_from(process).ok(),
                })
            })
        }
        Ask::Flock(mode) => {
            let operation = match mode {
                Some(Mode::Shared) => libc::LOCK_SH,
                Some(Mode::Exclusive) => libc::LOCK_EX,
                None => libc::LOCK_UN,
            };
            sys::flock(file, operation | libc::LOCK_NB).map(|()| None)
        }
        Ask::Reopen => {
            *file = sys::open(sys::HERE, c"a", flags, 0).unwrap();
            Ok(None)
        }
    };
    answered
}

/// A thread with descriptors of its own, which makes it an owner of locks to the kernel.
struct Worker {
    asks: Sender<(usize, Ask)>,
    answers: Receiver<Answer>,
}

impl Worker {
    fn new() -> Worker {
        let (asks, asked) = channel::<(usize, Ask)>();
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            sys::unshare_files();
            let flags = |index: usize| MODES[index];
            let mut files: Vec<File> = (0..DESCRIPTORS as usize)
                .map(|index| sys::open(sys::HERE, c"a", flags(index), 0).unwrap())
                .collect();
            for (index, ask) in asked {
                answer.send(ask_kernel(&mut files[index], flags(index), ask)).unwrap();
            }
        });
        Worker { asks, answers }
    }
}

#[test]
fn locks_are_those_of_the_kernel() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let said = machine::run(Kind::Tmpfs, directory, machine::LIMIT, |root| {
        let ours = store(2, END);
        sys::enter(root);
        drop(sys::open(sys::HERE, c"a", libc::O_RDWR | libc::O_CREAT, 0o666).unwrap());
        let workers: Vec<Worker> = (0..OWNERS).map(|_| Worker::new()).collect();
        let mut opened: Vec<Vec<OpenFile>> = (0..OWNERS)
            .map(|_| MODES.iter().map(|&flags| open(&ours, "a", flags | libc::O_CREAT)).collect())
            .collect();
        let rng = &mut Rng::new(3);
        let mut granted = 0;
        for number in 0..OPERATIONS {
            let (owner, index) = (rng.below(OWNERS), rng.below(DESCRIPTORS) as usize);
            let ask = ask(rng);
            let flags = MODES[index];
            let file = &mut opened[owner as usize][index];
            let mine = ask_ours(&ours, owner, file, flags, ask);
            let worker = &workers[owner as usize];
            worker.asks.send((index, ask)).unwrap();
            let kernels = worker.answers.recv().unwrap();
            // The kernel tells of any lock that is in the way.
            let alike = match (&mine, &kernels) {
                (Ok(Some(_)), Ok(Some(found))) => is_there(&ours, &opened, found),
                (mine, kernels) => mine == kernels,
            };
            assert!(alike, "{number}: {ask:?} by {owner}.{index}: {mine:?}, kernel {kernels:?}");
            granted += u64::from(mine == Ok(None));
        }
        format!("{OPERATIONS} operations compared, {granted} granted")
    });
    println!("{said}");
}

/// Whether ours has the lock `found`: somebody who wants all of that part is told of one there.
fn is_there(files: &Files, opened: &[Vec<OpenFile>], found: &Conflict) -> bool {
    let record = Record { first: found.first, last: found.last, mode: Some(Mode::Exclusive) };
    let stranger = files.test_record(&opened[0][0], Owner::Process(99), record).unwrap();
    stranger.is_some()
}

/// Runs `work`, which is to wait, in a thread; what it returns, if it does in time.
fn waits<T: Send + 'static>(
    files: &Arc<Files>,
    work: impl FnOnce(&Files) -> T + Send + 'static,
) -> Receiver<T> {
    let (done, result) = channel();
    let files = Arc::clone(files);
    std::thread::spawn(move || done.send(work(&files)));
    result
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(60);

fn part(first: u64, last: u64) -> Record {
    Record { first, last, mode: Some(Mode::Exclusive) }
}

#[test]
fn who_waits_gets_the_lock_when_it_is_given_up() {
    let files = Arc::new(store(2, END));
    let [first, second] = [0, 1].map(|_| open(&files, "a", libc::O_RDWR | libc::O_CREAT));
    files.set_record(&first, Owner::Process(1), part(0, 9), Wait::No).unwrap();
    let waiting = waits(&files, move |files| {
        files.set_record(&second, Owner::Process(2), part(5, 6), Wait::Forever)
    });
    assert!(waiting.recv_timeout(SHORT).is_err());
    let begin = Instant::now();
    files
        .set_record(&first, Owner::Process(1), Record { mode: None, ..part(5, 9) }, Wait::No)
        .unwrap();
    waiting.recv_timeout(LONG).unwrap().unwrap();
    println!("got it after {:?}", begin.elapsed());
    let refused = files.set_record(&first, Owner::Process(1), part(6, 6), Wait::No);
    assert_eq!(refused.unwrap_err().errno(), Errno::EAGAIN);
    // And so with `flock`, by closing.
    files.flock(&first, Some(Mode::Exclusive), Wait::No).unwrap();
    let waiting =
        waits(&files, move |files| files.flock(&second, Some(Mode::Shared), Wait::Forever));
    assert!(waiting.recv_timeout(SHORT).is_err());
    files.close(&first).unwrap();
    waiting.recv_timeout(LONG).unwrap().unwrap();
}

#[test]
fn a_server_waits_for_many_without_sleeping() {
    let files = store(2, END);
    let [first, second] = [0, 1].map(|_| open(&files, "a", libc::O_RDWR | libc::O_CREAT));
    let client = |number| Owner::Client { number, process: 100 + number as u32 };
    assert!(files.begin_record(&first, client(1), part(0, 9)).unwrap().is_none());
    let found = files.test_record(&second, client(2), part(3, 3)).unwrap();
    assert_eq!(found.and_then(|conflict| conflict.process), Some(101));
    let waiting = files.begin_record(&second, client(2), part(3, 3)).unwrap().unwrap();
    assert!(!files.is_called(&waiting));
    // Others know of the wait: it closes a circle.
    assert!(files.begin_record(&second, client(2), part(20, 20)).unwrap().is_none());
    let refused = files.begin_record(&first, client(1), part(20, 20));
    assert_eq!(refused.unwrap_err().errno(), Errno::EDEADLK);
    files.release_records(&first, client(1)).unwrap();
    assert!(files.is_called(&waiting));
    files.end_wait(waiting).unwrap();
    assert!(files.begin_record(&second, client(2), part(3, 3)).unwrap().is_none());
    // And so with `flock`; whoever gives up waiting leaves nothing behind.
    assert!(files.begin_flock(&first, Some(Mode::Exclusive)).unwrap().is_none());
    let waiting = files.begin_flock(&second, Some(Mode::Shared)).unwrap().unwrap();
    files.end_wait(waiting).unwrap();
    files.flock(&first, None, Wait::No).unwrap();
    assert!(files.begin_flock(&first, Some(Mode::Exclusive)).unwrap().is_none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let files = store(2, END);
    let open_file = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    let named = {
        let how = How::from_open(libc::O_PATH as u32, 0).unwrap();
        let base = &Base::new(files.root(), files.root());
        files.open_at(&root(), Path { base, bytes: b"a" }, &how).unwrap()
    };
    let errno = |error: Error| error.errno();
    for mode in [Some(Mode::Shared), Some(Mode::Exclusive), None] {
        let record = Record { mode, ..part(0, 1) };
        for owner in [Owner::Open, Owner::Process(0)] {
            let set = files.set_record(&named, owner, record, Wait::No).map_err(errno);
            assert_eq!(set, Err(Errno::EBADF));
            let tested = files.test_record(&named, owner, record).map_err(errno);
            assert_eq!(tested, Err(Errno::EBADF));
        }
        assert_eq!(files.flock(&named, mode, Wait::No).map_err(errno), Err(Errno::EBADF));
    }
    let unlock = Record { mode: None, ..part(0, 1) };
    let tested = files.test_record(&open_file, Owner::Process(0), unlock).map_err(errno);
    assert_eq!(tested, Err(Errno::EINVAL));
    // To give up what nobody can have is no error.
    files.release_records(&named, Owner::Process(0)).unwrap();
    for (offset, len, expected) in [
        (-1, 1, Err(Errno::EINVAL)),
        (0, -1, Err(Errno::EINVAL)),
        (5, -6, Err(Errno::EINVAL)),
        (5, -5, Ok((0, 4))),
        (i64::MIN, -1, Err(Errno::EINVAL)),
        (1, i64::MAX, Ok((1, END))),
        (2, i64::MAX, Err(Errno::EOVERFLOW)),
        (7, 0, Ok((7, END))),
        (7, 1, Ok((7, 7))),
    ] {
        let record = Record::new(offset, len, None).map(|record| (record.first, record.last));
        assert_eq!(record, expected, "{offset} {len}");
    }
}

#[test]
fn the_first_lock_in_the_way_is_told() {
    let files = store(2, END);
    let open_file = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    let process = Some(std::process::id());
    for (owner, first) in [(1, 50), (2, 10), (3, 30)] {
        files
            .set_record(&open_file, Owner::Process(owner), part(first, first + 5), Wait::No)
            .unwrap();
    }
    let told =
        |first, last| files.test_record(&open_file, Owner::Process(9), part(first, last)).unwrap();
    let conflict =
        |first, process| Conflict { first, last: first + 5, mode: Mode::Exclusive, process };
    assert_eq!(told(0, END), Some(conflict(10, process)));
    assert_eq!(told(16, END), Some(conflict(30, process)));
    assert_eq!(told(55, 60), Some(conflict(50, process)));
    assert_eq!(told(56, 60), None);
    // A description's is nobody's.
    files.set_record(&open_file, Owner::Open, part(0, 5), Wait::No).unwrap();
    assert_eq!(told(0, END), Some(conflict(0, None)));
    files.close(&open_file).unwrap();
}

#[test]
fn without_room_for_locks_nothing_is_changed() {
    let files = store(2, END);
    let holder = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    files.set_record(&holder, Owner::Process(1), part(0, 9), Wait::No).unwrap();
    let mut opened = Vec::new();
    let base = &Base::new(files.root(), files.root());
    let how = How::from_open(libc::O_RDWR as u32, 0).unwrap();
    let fill = |opened: &mut Vec<OpenFile>| {
        let before = opened.len();
        let error = loop {
            match files.open_at(&root(), Path { base, bytes: b"a" }, &how) {
                Ok(open) => opened.push(open),
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno(), Errno::ENFILE);
        opened.len() - before
    };
    fill(&mut opened);
    // Room for one lock, where three are to take the place of one.
    files.close(&opened.pop().unwrap()).unwrap();
    let inner = Record { mode: Some(Mode::Shared), ..part(3, 5) };
    let refused = files.set_record(&holder, Owner::Process(1), inner, Wait::No);
    assert_eq!(refused.unwrap_err().errno(), Errno::ENOLCK);
    let there = files.test_record(&holder, Owner::Process(2), part(0, END)).unwrap().unwrap();
    assert_eq!((there.first, there.last, there.mode), (0, 9, Mode::Exclusive));
    assert_eq!(fill(&mut opened), 1);
    let waits = files.set_record(&holder, Owner::Process(2), part(0, 0), Wait::Forever);
    assert_eq!(waits.unwrap_err().errno(), Errno::ENOLCK);
    for open in &opened {
        files.close(open).unwrap();
    }
}

#[test]
fn waiting_leaves_nothing_behind() {
    const ROUNDS: u64 = 5000;
    let files = Arc::new(store(2, END));
    let opened = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    let take = move |files: &Files, owner: u64| {
        for _ in 0..ROUNDS {
            files.set_record(&opened, Owner::Process(owner), part(0, 0), Wait::Forever).unwrap();
            std::thread::yield_now();
            let given_up = Record { mode: None, ..part(0, 0) };
            files.set_record(&opened, Owner::Process(owner), given_up, Wait::No).unwrap();
        }
    };
    let other = waits(&files, move |files| take(files, 1));
    take(&files, 2);
    other.recv_timeout(LONG).unwrap();
    files.close(&opened).unwrap();
    let still = open(&files, "a", libc::O_RDWR | libc::O_CREAT);
    assert_eq!(files.test_record(&still, Owner::Process(3), part(0, END)).unwrap(), None);
}

#[test]
fn who_would_wait_for_ever_is_refused() {
    let files = Arc::new(store(2, END));
    let names = ["a", "b", "c"];
    let opened = names.map(|name| open(&files, name, libc::O_RDWR | libc::O_CREAT));
    for (owner, file) in (1..).zip(&opened) {
        files.set_record(file, Owner::Process(owner), part(0, 0), Wait::No).unwrap();
    }
    // 1 waits for 2, 2 for 3; then 3 must not wait for 1.
    let mut waiting = Vec::new();
    for (owner, file) in [(1, opened[1]), (2, opened[2])] {
        waiting.push(waits(&files, move |files| {
            files.set_record(&file, Owner::Process(owner), part(0, 0), Wait::Forever)
        }));
        assert!(waiting[waiting.len() - 1].recv_timeout(SHORT).is_err());
    }
    let refused = files.set_record(&opened[0], Owner::Process(3), part(0, 0), Wait::Forever);
    assert_eq!(refused.unwrap_err().errno(), Errno::EDEADLK);
    // He gives up what he has: one after the other gets his.
    files.release_records(&opened[2], Owner::Process(3)).unwrap();
    waiting[1].recv_timeout(LONG).unwrap().unwrap();
    files.release_records(&opened[1], Owner::Process(2)).unwrap();
    waiting[0].recv_timeout(LONG).unwrap().unwrap();
}
