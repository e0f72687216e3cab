//! Locks of files: whose they are, what they keep out, how they are waited for, when they go.
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::actor::Actor;
use crate::support::bench::Bench;
use crate::support::{both, done, eventually, mounted};
use conquest::{Attach, LockMode, LockOwner, OpenOptions, Store, Wait};
use conquest_peers::child::catch_signal;
use conquest_peers::sys::{self, HERE, Record};

/// What a lock that is refused says.
const BUSY: &str = "Resource temporarily unavailable (os error 11)";
const DEADLOCK: &str = "Resource deadlock avoided (os error 35)";
const INTERRUPTED: &str = "Interrupted system call (os error 4)";

fn open() -> File {
    sys::open(HERE, c"locked", libc::O_RDWR | libc::O_CREAT, 0o600).unwrap()
}

/// A process that opens the file "locked" and locks it, as told:
/// - `open N`, `copy N M`, `close N`: a descriptor in place N, or a copy of it;
/// - `posix N KIND FIRST LEN`, `ofd ...`: a lock of `fcntl`; with `-wait`, it is waited for, with
///   `-test`, it is asked who is in the way;
/// - `flock N KIND`, `flock-wait N KIND`: one of `flock`;
/// - `catch restarts`, `catch`: signals interrupt.
fn locker() -> Actor {
    let mut files: Vec<Option<File>> = (0..3).map(|_| None).collect();
    Actor::new(move |order| {
        let words: Vec<&str> = order.split(' ').collect();
        if words[0] == "catch" {
            catch_signal(words.len() > 1);
            return "done".into();
        }
        let place: usize = words[1].parse().unwrap();
        match words[0] {
            "open" => files[place] = Some(open()),
            "copy" => {
                let copy = files[place].as_ref().unwrap().try_clone().unwrap();
                files[words[2].parse::<usize>().unwrap()] = Some(copy);
            }
            "close" => files[place] = None,
            how => return lock(files[place].as_ref().unwrap(), how, &words[2..]),
        }
        "done".into()
    })
}

fn lock(file: &File, how: &str, words: &[&str]) -> String {
    let numbers: Vec<i64> = words[1..].iter().map(|word| word.parse().unwrap()).collect();
    let whole = match words[0] {
        "read" => libc::LOCK_SH,
        "write" => libc::LOCK_EX,
        _ => libc::LOCK_UN,
    };
    let command = match how {
        "flock" => return done(sys::flock(file, whole | libc::LOCK_NB)),
        "flock-wait" => return done(sys::flock(file, whole)),
        "posix" => libc::F_SETLK,
        "posix-wait" => libc::F_SETLKW,
        "posix-test" => libc::F_GETLK,
        "ofd" => libc::F_OFD_SETLK,
        "ofd-wait" => libc::F_OFD_SETLKW,
        "ofd-test" => libc::F_OFD_GETLK,
        other => panic!("{other}"),
    };
    let kind = match words[0] {
        "read" => libc::F_RDLCK,
        "write" => libc::F_WRLCK,
        _ => libc::F_UNLCK,
    };
    let found = sys::record(file, command, Record { kind, offset: numbers[0], len: numbers[1] });
    match found {
        Ok(Some((Record { kind, offset, len }, pid))) if how.ends_with("-test") => {
            format!("{kind} {offset} {len} of {pid}")
        }
        Ok(None) if how.ends_with("-test") => "free".into(),
        found => done(found),
    }
}

/// Two processes that have opened the file.
fn two() -> [Actor; 2] {
    [(); 2].map(|()| {
        let locker = locker();
        locker.ask("open 0");
        locker
    })
}

#[test]
fn locks_of_processes_keep_each_other_out() {
    both(|bench| {
        let [one, other] = two();
        for (who, order) in [
            (&one, "posix 0 write 10 10"),
            (&other, "posix 0 read 15 1"),
            (&other, "posix 0 read 20 5"),
            (&one, "posix 0 read 22 1"),
            (&one, "posix 0 write 22 1"),
            (&one, "posix 0 free 15 1"),
            (&other, "posix 0 write 15 1"),
            (&one, "posix 0 write 0 0"),
            (&other, "posix 0 write 100 0"),
            (&one, "posix 0 write 1000 1"),
        ] {
            bench.say(order, who.ask(order));
        }
        assert_eq!(one.ask("posix 0 write 15 1"), BUSY);
        let [me, you] = [one.number(), other.number()].map(|pid| format!(" of {pid}"));
        let found = other.ask("posix-test 0 write 0 0");
        assert_eq!(found, format!("{} 10 5{me}", libc::F_WRLCK));
        let found = one.ask("posix-test 0 read 15 0");
        assert_eq!(found, format!("{} 15 1{you}", libc::F_WRLCK));
        bench.say("own locks are in nobody's way", one.ask("posix-test 0 write 10 5"));
        bench.say("beyond", one.ask("posix-test 0 write 50 5"));
        // Any descriptor of the file takes all of a process's locks with it.
        one.ask("open 1");
        one.ask("close 1");
        bench.say("after another descriptor was closed", other.ask("posix 0 write 10 5"));
        drop(other);
        bench.say("after the owner's death", one.ask("posix 0 write 0 0"));
    });
}

#[test]
fn locks_of_open_files_last_until_the_last_descriptor_is_closed() {
    both(|bench| {
        let [one, other] = two();
        for (who, order) in [
            (&one, "ofd 0 write 0 10"),
            (&other, "ofd 0 read 5 1"),
            (&other, "posix 0 read 5 1"),
            // Whose it is, is not compared for `posix-test`: the kernel does not tell a server that
            // a lock is an open file's, so that names the process that has set it.
            (&other, "ofd-test 0 write 5 1"),
            (&one, "open 1"),
            (&one, "ofd 1 read 5 1"),
            (&one, "close 1"),
            (&other, "ofd 0 read 5 1"),
            (&one, "copy 0 2"),
            (&one, "close 0"),
            (&other, "ofd 0 read 5 1"),
        ] {
            bench.say(order, who.ask(order));
        }
        assert_eq!(other.ask("ofd 0 read 5 1"), BUSY);
        one.ask("close 2");
        eventually("the lock goes with the last descriptor", || {
            other.ask("ofd 0 read 5 1") == "done"
        });
        bench.say("its own", other.ask("posix 0 read 5 1"));
    });
}

#[test]
fn flock_is_shared_over_fork() {
    both(|bench| {
        let mut file = Some(open());
        sys::flock(file.as_ref().unwrap(), libc::LOCK_EX).unwrap();
        let heir = Actor::new(|_| String::new());
        let other = locker();
        other.ask("open 0");
        // The file that it inherited goes.
        bench.say("held", other.ask("flock 0 read"));
        file = None;
        assert!(file.is_none());
        bench.say("held by the child and by the other one's copy", other.ask("flock 0 read"));
        heir.kill();
        other.kill();
        let [one, other] = two();
        eventually("free", || one.ask("flock 0 read") == "done");
        for (who, order) in [
            (&other, "flock 0 read"),
            (&other, "flock 0 write"),
            (&one, "open 1"),
            (&one, "flock 1 write"),
            (&one, "flock 0 free"),
            (&one, "flock 1 read"),
            (&one, "close 1"),
        ] {
            bench.say(order, who.ask(order));
        }
        eventually("alone", || other.ask("flock 0 write") == "done");
        bench.say("kept out", one.ask("flock 0 read"));
        bench.say("other kinds of locks are others", one.ask("posix 0 write 0 0"));
    });
}

/// Says how a lock of some kind is ordered: how to get it, and which.
type Order<'o> = &'o dyn Fn(&str, &str) -> String;

/// Does `work` with each kind of lock, which the first one of two processes has for writing.
fn with_each_kind(bench: &Bench, work: impl Fn([Actor; 2], Order<'_>)) {
    for kind in ["posix", "ofd", "flock"] {
        let range = if kind == "flock" { "" } else { " 5 5" };
        let order = |how: &str, mode: &str| format!("{kind}{how} 0 {mode}{range}");
        let lockers = two();
        bench.say("first", lockers[0].ask(&order("", "write")));
        work(lockers, &order);
    }
}

#[test]
fn who_waits_gets_it() {
    both(|bench| {
        with_each_kind(bench, |[one, other], order| {
            other.begin_waiting(&order("-wait", "read"));
            bench.say("given up", one.ask(&order("", "free")));
            bench.say("got", other.answer());
            one.begin_waiting(&order("-wait", "write"));
            other.ask("close 0");
            bench.say("got from who has closed it", one.answer());
            other.ask("open 0");
            other.begin_waiting(&order("-wait", "write"));
            one.kill();
            bench.say("got from a dead one", other.answer());
        });
    });
}

#[test]
fn a_signal_ends_a_wait_unless_it_is_restarted() {
    both(|bench| {
        with_each_kind(bench, |[one, other], order| {
            other.ask("catch");
            other.begin_waiting(&order("-wait", "write"));
            other.signal(libc::SIGUSR1);
            assert_eq!(other.answer(), INTERRUPTED, "{}", order("", ""));
            other.ask("catch restarts");
            other.begin_waiting(&order("-wait", "write"));
            other.signal(libc::SIGUSR1);
            assert!(other.is_waiting(), "it is restarted: {}", other.answer());
            one.ask(&order("", "free"));
            bench.say("got", other.answer());
        });
    });
}

#[test]
fn a_killed_waiter_leaves_no_wait_behind() {
    both(|bench| {
        with_each_kind(bench, |[one, other], order| {
            other.begin_waiting(&order("-wait", "write"));
            other.kill();
            one.ask(&order("", "free"));
            let third = locker();
            third.ask("open 0");
            std::thread::sleep(Duration::from_millis(200));
            bench.say("nobody has it", third.ask(&order("", "write")));
        });
    });
}

#[test]
fn who_would_wait_for_ever_is_told() {
    both(|bench| {
        let [one, other] = two();
        one.ask("posix 0 write 0 1");
        other.ask("posix 0 write 1 1");
        one.begin_waiting("posix-wait 0 write 1 1");
        let refused = other.ask("posix-wait 0 write 0 1");
        assert_eq!(refused, DEADLOCK);
        other.ask("posix 0 free 1 1");
        bench.say("the first one got it", one.answer());
        // A wait that was given up is in nobody's way.
        other.ask("catch");
        other.begin_waiting("posix-wait 0 write 0 1");
        other.signal(libc::SIGUSR1);
        assert_eq!(other.answer(), INTERRUPTED);
        bench.say("other bytes", other.ask("posix 0 write 7 1"));
        one.begin_waiting("posix-wait 0 write 7 1");
        other.kill();
        bench.say("got", one.answer());
    });
}

#[test]
fn a_hundred_who_wait_keep_nobody_from_being_served() {
    mounted(|mount| {
        let first = locker();
        first.ask("open 0");
        assert_eq!(first.ask("posix 0 write 0 1"), "done");
        let waiting: Vec<Actor> = (0..100).map(|_| locker()).collect();
        for waiter in &waiting {
            waiter.ask("open 0");
            waiter.begin("posix-wait 0 write 0 1");
        }
        assert!(waiting.iter().rev().take(3).all(Actor::is_waiting));
        let slowest = (0..50).map(|_| {
            let since = Instant::now();
            std::fs::metadata("locked").unwrap();
            since.elapsed()
        });
        let slowest = slowest.max().unwrap();
        let threads = std::fs::read_dir(format!("/proc/{}/task", mount.server())).unwrap().count();
        assert!(threads <= 20, "{threads} threads");
        assert!(slowest < Duration::from_secs(2), "stat took {slowest:?}");
        // One after the other, each of those who wait gets it.
        drop(first);
        let mut left = waiting;
        while !left.is_empty() {
            let mut got = None;
            eventually("somebody gets the lock", || {
                got = left.iter().position(|waiter| waiter.has_answer());
                got.is_some()
            });
            let waiter = left.swap_remove(got.unwrap());
            assert_eq!(waiter.answer(), "done");
            assert!(!left.iter().any(Actor::has_answer), "two have it");
            waiter.ask("close 0");
        }
        String::new()
    });
}

/// A process that has the store attached, and locks the file "locked" there: `lock`, `unlock`,
/// `range`.
fn library(store: &Path) -> Actor {
    let mut opened = None;
    Actor::new(move |order| {
        let (_, file) = opened.get_or_insert_with(|| {
            let store = Store::attach(store, &Attach::default()).unwrap();
            let files = store.files().unwrap();
            let how = OpenOptions::new().read(true).write(true).clone();
            let file = files.open_with("locked", &how).unwrap();
            (store, file)
        });
        let mine = LockOwner::Process(0);
        let outcome = match order {
            "lock" => file.try_lock(),
            "wait" => file.lock(),
            "unlock" => file.unlock(),
            "range" => file.lock_range(mine, 10..20, LockMode::Exclusive, Wait::No),
            "wait range" => file.lock_range(mine, 10..20, LockMode::Exclusive, Wait::Forever),
            "test" => {
                let found = file.test_range(mine, .., LockMode::Exclusive).unwrap();
                return format!("{:?}", found.map(|found| found.process));
            }
            other => panic!("{other}"),
        };
        outcome.map_or_else(|error| format!("{:?}", error.kind()), |()| "done".to_owned())
    })
}

#[test]
fn locks_of_the_mount_and_of_the_library_exclude_each_other() {
    mounted(|mount| {
        let inside = locker();
        inside.ask("open 0");
        let outside = library(&mount.store());
        for (mine, theirs, lock, free) in [
            ("flock 0 write", "flock-wait 0 write", "lock", "flock 0 free"),
            ("posix 0 write 15 1", "posix-wait 0 write 15 1", "range", "posix 0 free 15 1"),
        ] {
            assert_eq!(inside.ask(mine), "done");
            assert_eq!(outside.ask(lock), "WouldBlock");
            let waits = if lock == "lock" { "wait" } else { "wait range" };
            outside.begin_waiting(waits);
            assert_eq!(inside.ask(free), "done");
            assert_eq!(outside.answer(), "done");
            assert_eq!(inside.ask(mine), BUSY);
            inside.begin_waiting(theirs);
            if lock == "lock" {
                assert_eq!(outside.ask("unlock"), "done");
                assert_eq!(inside.answer(), "done");
                assert_eq!(inside.ask(free), "done");
            }
        }
        // The last wait is still on: who has the lock outside dies.
        let since = Instant::now();
        outside.kill();
        assert_eq!(inside.answer(), "done");
        assert!(since.elapsed() < Duration::from_secs(1), "after {:?}", since.elapsed());
        let other = library(&mount.store());
        assert_eq!(other.ask("test"), format!("Some(Some({}))", inside.number()));
        String::new()
    });
}
