//! Waits in real processes: for the dead, the stopped, and the living.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;
mod region_support;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use conquest_pm::{Error, Holder, Mode, Region};
use media_support::*;
use region_support::*;

/// Waits for lock 0 while `end` ends its holder; how long the wait went on after that.
fn wait_out(core: &Region, end: impl FnOnce()) -> Duration {
    let begun = Mutex::new(Instant::now());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            step(core, 0).unwrap();
            begun.lock().unwrap().elapsed()
        });
        std::thread::sleep(Duration::from_millis(150));
        *begun.lock().unwrap() = Instant::now();
        end();
        waiter.join().unwrap()
    })
}

#[test]
fn a_process_that_dies_or_runs_another_program_is_recovered() {
    alone("a_process_that_dies_or_runs_another_program_is_recovered", || {
        let file = region(2);
        let core = open(&file.0);
        for round in 0..5 {
            let mut holder = fork(|parent| {
                leave_open(&open(&file.0), 0);
                parent.say("x");
                sleep_for_ever();
            });
            holder.hear(1);
            let waited = wait_out(&core, || holder.signal(libc::SIGKILL));
            println!("measured: after death number {round}: {waited:?}");
            assert!(waited < FOUND, "{waited:?}");
            holder.wait();
        }
        // Another thread of it calls exec while one is inside.
        let mut holder = fork(|parent| {
            let core = open(&file.0);
            let (say, hear) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                leave_open(&core, 0);
                say.send(()).unwrap();
                sleep_for_ever();
            });
            hear.recv_timeout(LIMIT).unwrap();
            parent.say("x");
            // SAFETY: stops itself until told to go on.
            unsafe { libc::raise(libc::SIGSTOP) };
            let error = Command::new("sleep").arg("20").exec();
            drop(thread);
            panic!("exec: {error}");
        });
        holder.hear(1);
        let waited = wait_out(&core, || holder.signal(libc::SIGCONT));
        println!("measured: after exec: {waited:?}");
        assert!(waited < 2 * FOUND, "{waited:?}");
        holder.signal(libc::SIGKILL);
        holder.wait();
        assert_clean(&core);
    });
}

#[test]
fn death_is_seen_across_pid_namespaces() {
    alone("death_is_seen_across_pid_namespaces", || {
        let file = region(2);
        let core = open(&file.0);
        let mut outer = fork(|parent| {
            // SAFETY: no memory is passed.
            let made = unsafe { libc::unshare(libc::CLONE_NEWPID) };
            let error = std::io::Error::last_os_error();
            assert_eq!(made, 0, "needs a pid namespace, as root; refused: {error}");
            let mut inner = fork(|inner| {
                assert_eq!(std::process::id(), 1);
                leave_open(&open(&file.0), 0);
                inner.say("x");
                sleep_for_ever();
            });
            inner.hear(1);
            parent.say("x");
            // SAFETY: stops itself until told to go on.
            unsafe { libc::raise(libc::SIGSTOP) };
            inner.signal(libc::SIGKILL);
            inner.wait();
        });
        outer.hear(1);
        let waited = wait_out(&core, || outer.signal(libc::SIGCONT));
        println!("measured: after death in another pid namespace: {waited:?}");
        assert!(waited < FOUND, "{waited:?}");
        outer.join();
        assert_clean(&core);
    });
}

#[test]
fn a_stopped_holder_is_named_and_not_recovered() {
    alone("a_stopped_holder_is_named_and_not_recovered", || {
        let file = region(3);
        let named: Arc<Mutex<Vec<Holder>>> = Arc::default();
        let list = Arc::clone(&named);
        let core = open_with(
            &file.0,
            Some(Box::new(move |holder| {
                list.lock().unwrap().push(holder);
            })),
        );
        let mut holder = fork(|parent| {
            let core = open(&file.0);
            let mut tx = core.begin().unwrap();
            tx.lock(0, Mode::Exclusive).unwrap();
            parent.say("x");
            // SAFETY: stops itself until told to go on.
            unsafe { libc::raise(libc::SIGSTOP) };
            tx.set(root(0), 41).unwrap();
            tx.commit().unwrap();
        });
        holder.hear(1);
        let since = Instant::now();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| step(&core, 0).unwrap());
            until("the holder is named", || !named.lock().unwrap().is_empty());
            assert!(since.elapsed() >= Duration::from_secs(1), "{:?}", since.elapsed());
            assert!(!waiter.is_finished());
            step(&core, 1).unwrap();
            holder.signal(libc::SIGCONT);
            waiter.join().unwrap();
        });
        let first = named.lock().unwrap()[0];
        println!("measured: {first:?}");
        assert_eq!((first.process as i32, first.state), (holder.pid, Some('T')));
        assert_eq!(first.thread as i32, holder.pid);
        assert!(first.waited < Duration::from_millis(1500), "{first:?}");
        holder.join();
        assert_eq!(root_of(&core, 0), 42);
        assert_clean(&core);
    });
}

#[test]
fn an_interruptible_wait_ends_by_a_signal() {
    alone("an_interruptible_wait_ends_by_a_signal", || {
        let file = region(3);
        let core = open(&file.0);
        handle(libc::SIGUSR2, ignore);
        for mode in [Mode::Exclusive, Mode::Shared] {
            let mut tx = core.begin().unwrap();
            tx.lock(0, mode).unwrap();
            let ends = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (say, hear) = mpsc::channel();
                let waiter = scope.spawn(|| {
                    let say = say;
                    say.send(thread_id()).unwrap();
                    let mut tx = core.begin_interruptible().unwrap();
                    let waited = tx.lock(0, Mode::Exclusive);
                    ends.store(true, Ordering::SeqCst);
                    waited
                });
                let thread = hear.recv_timeout(LIMIT).unwrap();
                until("the wait ends", || {
                    let (process, signal) = (std::process::id(), libc::SIGUSR2);
                    // SAFETY: no memory is passed; to a thread of this process.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
                    ends.load(Ordering::SeqCst)
                });
                assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
                // Who gave up holds nobody up who may share.
                if mode == Mode::Shared {
                    let mut other = core.begin().unwrap();
                    other.lock(0, Mode::Shared).unwrap();
                }
            });
            tx.commit().unwrap();
            assert_clean(&core);
        }
    });
}

#[test]
fn who_waits_for_the_living_opens_no_file() {
    alone("who_waits_for_the_living_opens_no_file", || {
        let file = region(2);
        let core = open(&file.0);
        let mut tx = core.begin().unwrap();
        tx.lock(0, Mode::Exclusive).unwrap();
        let mut waiter = fork(|parent| {
            let core = open(&file.0);
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the limit outlives the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
            assert!(std::fs::File::open("/dev/null").is_err());
            parent.say("x");
            step(&core, 0).unwrap();
        });
        waiter.hear(1);
        // Time enough to ask several times whether the holder lives.
        std::thread::sleep(Duration::from_millis(300));
        tx.commit().unwrap();
        waiter.join();
        assert_eq!(root_of(&core, 0), 1);
        assert_clean(&core);
    });
}
