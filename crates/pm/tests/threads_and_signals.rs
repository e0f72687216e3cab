//! Threads, signals, `fork`, `exec` and death, in real processes.
//!
//! Each scenario runs in a process of its own: this program again, told by a variable which
//! scenario it is. A scenario that hangs is killed.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod media_support;
mod region_support;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use conquest_format::geometry::Shape;
use conquest_pm::host::Host;
use conquest_pm::media::Source;
use conquest_pm::{Access, Error, Holder, Mode, Options, Region, Result};
use media_support::*;
use region_support::*;

/// How many operations each of 16 threads has done on 2 lanes, in 2 seconds.
fn turns() -> Vec<u64> {
    let file = region(2);
    let core = open(&file.0);
    let done: Vec<u64> = std::thread::scope(|scope| {
        let work = |number: u32| {
            let core = &core;
            move || {
                let (since, mut count) = (Instant::now(), 0);
                while since.elapsed() < Duration::from_secs(2) {
                    step(core, number % 8).unwrap();
                    count += 1;
                }
                count
            }
        };
        let threads: Vec<_> = (0..16).map(|number| scope.spawn(work(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let total: u64 = (0..8).map(|number| root_of(&core, number)).sum();
    assert_eq!(total, done.iter().sum::<u64>());
    assert_clean(&core);
    done
}

/// What a busy machine keeps from a thread is not ours: so one run of several is to be fair.
#[test]
fn more_threads_than_lanes_all_get_their_turns() {
    alone("more_threads_than_lanes_all_get_their_turns", || {
        let is_fair = |_: &u32| {
            let done = turns();
            let (least, most) = (*done.iter().min().unwrap(), *done.iter().max().unwrap());
            println!("measured: 16 threads on 2 lanes: {least} to {most} operations each");
            assert!(least > 0, "{done:?}");
            most / least <= 10
        };
        assert!((0..5).any(|time| is_fair(&time)));
    });
}

static CORE: OnceLock<Arc<Region>> = OnceLock::new();
static MAIN: AtomicI32 = AtomicI32::new(0);
static INSIDE: AtomicBool = AtomicBool::new(false);
static ALARMS: AtomicU64 = AtomicU64::new(0);
static NESTED: AtomicU64 = AtomicU64::new(0);
static OWN: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Enters the library, whatever the thread was doing.
extern "C" fn enter_library(signal: libc::c_int) {
    let main = MAIN.load(Ordering::SeqCst);
    if thread_id() != main {
        // SAFETY: no memory is passed; to a thread of this process.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), main, signal) };
        return;
    }
    let Some(core) = CORE.get() else { return };
    let inside = INSIDE.load(Ordering::SeqCst);
    let number = (ALARMS.fetch_add(1, Ordering::SeqCst) % 2) as u32;
    match step(core, number) {
        Ok(()) if inside => NESTED.fetch_add(1, Ordering::SeqCst),
        Ok(()) => 0,
        Err(Error::OwnLock { lock: 0 }) if inside => OWN.fetch_add(1, Ordering::SeqCst),
        Err(_) => WRONG.fetch_add(1, Ordering::SeqCst),
    };
}

#[test]
fn a_signal_handler_nests_or_is_refused_at_once() {
    alone("a_signal_handler_nests_or_is_refused_at_once", || {
        let file = region(4);
        let core = CORE.get_or_init(|| open(&file.0));
        MAIN.store(thread_id(), Ordering::SeqCst);
        step(core, 0).unwrap();
        handle(libc::SIGUSR1, enter_library);
        let ends = AtomicBool::new(false);
        let main = thread_id();
        std::thread::scope(|scope| {
            let contend = |number| {
                let (core, ends) = (&core, &ends);
                scope.spawn(move || {
                    while !ends.load(Ordering::SeqCst) {
                        step(core, number).unwrap();
                        std::thread::sleep(Duration::from_micros(50));
                    }
                })
            };
            contend(0);
            contend(1);
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_micros(150));
                    // SAFETY: no memory is passed; to a thread of this process.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), main, libc::SIGUSR1) };
                }
            });
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(2) {
                let mut tx = core.begin().unwrap();
                INSIDE.store(true, Ordering::SeqCst);
                tx.lock(0, Mode::Exclusive).unwrap();
                let value = tx.get(root(0));
                tx.set(root(0), value + 1).unwrap();
                tx.commit().unwrap();
                INSIDE.store(false, Ordering::SeqCst);
            }
            ends.store(true, Ordering::SeqCst);
        });
        let counts = [&ALARMS, &NESTED, &OWN, &WRONG].map(|count| count.load(Ordering::SeqCst));
        println!("measured: signals, nested, refused, wrong: {counts:?}");
        assert!(counts[1] > 0 && counts[2] > 0 && counts[3] == 0, "{counts:?}");
        handle(libc::SIGUSR1, ignore);
        assert_clean(core);
    });
}

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut libc::c_void) -> !;
}
unsafe extern "C" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

extern "C-unwind" fn exits(_: *mut libc::c_void) -> *mut libc::c_void {
    leave_open(CORE.get().unwrap(), 1);
    // SAFETY: nothing on this thread's stack needs to be dropped.
    unsafe { pthread_exit(core::ptr::null_mut()) }
}

/// Runs `start` in a thread that the standard library knows nothing of.
fn foreign_thread(start: extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void) {
    let mut thread = 0;
    let null = core::ptr::null_mut();
    // SAFETY: the thread's number is ours; the function takes no argument; joined once.
    unsafe {
        assert_eq!(pthread_create(&raw mut thread, core::ptr::null(), start, null), 0);
        assert_eq!(libc::pthread_join(thread, core::ptr::null_mut()), 0);
    }
}

#[test]
fn a_thread_that_ends_leaves_nothing_behind() {
    alone("a_thread_that_ends_leaves_nothing_behind", || {
        let (file, other) = (region(2), region(2));
        let core = CORE.get_or_init(|| open(&file.0));
        let second = open(&other.0);
        // It returns, with an operation open on each of two regions.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                leave_open(core, 0);
                leave_open(&second, 0);
            });
            thread.join().unwrap();
        });
        let quick = |what: &str, core: &Region, number| {
            // It was settled when the thread ended: nobody had to meet it.
            assert_clean(core);
            let since = Instant::now();
            step(core, number).unwrap();
            println!("measured: after {what}: {:?}", since.elapsed());
        };
        quick("a return", core, 0);
        quick("a return, second region", &second, 0);
        // Operations of other threads are none of its business.
        let mut other = core.begin().unwrap();
        other.lock(3, Mode::Exclusive).unwrap();
        std::thread::scope(|scope| scope.spawn(|| leave_open(core, 0)).join().unwrap());
        let refused = core.detach();
        assert!(matches!(refused, Err(Error::InUse { lanes: 1, .. })), "{refused:?}");
        drop(other);
        // It panics, and its operation is dropped.
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut tx = core.begin().unwrap();
                tx.lock(2, Mode::Exclusive).unwrap();
                panic!("on purpose");
            });
            thread.join()
        });
        assert!(panicked.is_err());
        quick("a panic", core, 2);
        foreign_thread(exits);
        quick("pthread_exit", core, 1);
        // The region is gone before the thread is.
        let third = region(2);
        let core3 = open(&third.0);
        let (go, gone) = mpsc::channel::<()>();
        let thread = {
            let core3 = Arc::clone(&core3);
            std::thread::spawn(move || {
                leave_open(&core3, 0);
                drop(core3);
                gone.recv().unwrap();
            })
        };
        until("the thread is inside", || Arc::strong_count(&core3) == 1);
        drop(core3);
        go.send(()).unwrap();
        thread.join().unwrap();
        assert_clean(&open(&third.0));
        assert_clean(core);
        assert_clean(&second);
        assert_eq!((root_of(core, 0), root_of(core, 1), root_of(core, 2)), (1, 1, 1));
    });
}

#[test]
fn a_thread_that_the_kernel_ends_is_found_dead() {
    alone("a_thread_that_the_kernel_ends_is_found_dead", || {
        let file = region(2);
        let core = open(&file.0);
        for number in 0..6 {
            let copy = Arc::clone(&core);
            let (say, hear) = mpsc::channel();
            let _never_joined = std::thread::spawn(move || {
                leave_open(&copy, number);
                say.send(thread_id()).unwrap();
                // SAFETY: ends this thread alone, without anything else; nobody joins it.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            });
            hear.recv_timeout(LIMIT).unwrap();
            let since = Instant::now();
            step(&core, number).unwrap();
            println!("measured: after SYS_exit: {:?}", since.elapsed());
            assert!(since.elapsed() < FOUND);
        }
        assert_clean(&core);
    });
}

#[test]
fn a_forked_child_has_a_slot_of_its_own_and_no_part_in_open_operations() {
    alone("a_forked_child_has_a_slot_of_its_own_and_no_part_in_open_operations", || {
        let file = region(4);
        let core = open(&file.0);
        let mut open_one = core.begin().unwrap();
        open_one.lock(3, Mode::Exclusive).unwrap();
        open_one.set(root(3), 7).unwrap();
        let mut open_one = Some(open_one);
        let mut child = fork(|parent| {
            let mut open_one = open_one.take().unwrap();
            // SAFETY: stops itself until told to go on.
            unsafe { libc::raise(libc::SIGSTOP) };
            let refused = open_one.set(root(3), 99);
            assert!(matches!(refused, Err(Error::ForkedInside)), "{refused:?}");
            let refused = open_one.commit();
            assert!(matches!(refused, Err(Error::ForkedInside)), "{refused:?}");
            parent.say("x");
            for _ in 0..2000 {
                step(&core, 0).unwrap();
            }
            assert!(core.host().is_claimed(0).unwrap() && core.host().is_claimed(1).unwrap());
            parent.say("y");
            sleep_for_ever();
        });
        // The child's copy of the operation knows nothing of this.
        open_one.as_mut().unwrap().set(root(4), 8).unwrap();
        child.await_stop();
        child.signal(libc::SIGCONT);
        child.hear(1);
        for _ in 0..2000 {
            step(&core, 0).unwrap();
        }
        child.hear(1);
        assert!(core.host().is_claimed(0).unwrap() && core.host().is_claimed(1).unwrap());
        assert!(!core.host().is_claimed(2).unwrap());
        assert_eq!((root_of(&core, 0), root_of(&core, 3)), (4000, 0));
        child.signal(libc::SIGKILL);
        child.wait();
        until("its slot is free", || !core.host().is_claimed(1).unwrap());
        open_one.take().unwrap().commit().unwrap();
        assert_eq!((root_of(&core, 3), root_of(&core, 4)), (7, 8));
        core.recover().unwrap();
        assert_clean(&core);
    });
}

#[test]
fn a_child_without_a_slot_is_refused_until_there_is_one() {
    alone("a_child_without_a_slot_is_refused_until_there_is_one", || {
        let file = region_of(4, 1);
        let core = open(&file.0);
        step(&core, 0).unwrap();
        let mut child = fork(|parent| {
            for _ in 0..3 {
                let refused = step(&core, 0);
                assert!(matches!(refused, Err(Error::Slots { slots: 1, .. })), "{refused:?}");
            }
            parent.say("x");
            until("the parent has left", || step(&core, 0).is_ok());
            core.detach().unwrap();
            parent.say("y");
        });
        child.hear(1);
        core.detach().unwrap();
        child.hear(1);
        child.wait();
        let core = open(&file.0);
        assert!(root_of(&core, 0) == 2);
        assert_clean(&core);
    });
}

#[test]
fn a_child_forked_while_something_is_made_durable_has_no_part_in_it() {
    alone("a_child_forked_while_something_is_made_durable_has_no_part_in_it", || {
        let shape = Shape { max_groups: 2, lanes: 4, slots: 8, locks: 64, chunks: 4, log: 16 };
        let file = region_with(shape);
        let is_made = Arc::new(AtomicBool::new(false));
        let made = Arc::clone(&is_made);
        let make_durable = move |core: &Region| {
            let child = fork(|_| {
                let refused = step(core, 1);
                assert!(matches!(refused, Err(Error::ForkedInside)), "{refused:?}");
            });
            child.join();
            made.store(true, Ordering::Relaxed);
            core.set_durable(core.next_sequence())
        };
        let options = Options { make_durable: Some(Box::new(make_durable)), ..Options::default() };
        let source = Source::from(file.0.as_path());
        let core = Region::open(source, &kinds(), Access::default(), options).unwrap();
        step(&core, 0).unwrap();
        core.make_durable().unwrap();
        assert!(is_made.load(Ordering::Relaxed));
        assert_eq!((root_of(&core, 0), root_of(&core, 1)), (1, 0));
        // Whoever is forked now has.
        fork(|_| step(&core, 1).unwrap()).join();
        assert_eq!(root_of(&core, 1), 1);
    });
}

#[test]
fn nobody_detaches_in_the_middle_of_an_operation() {
    alone("nobody_detaches_in_the_middle_of_an_operation", || {
        let file = region(2);
        let core = open(&file.0);
        let mut tx = core.begin().unwrap();
        tx.lock(0, Mode::Exclusive).unwrap();
        let refused = core.detach();
        assert!(matches!(refused, Err(Error::InUse { lanes: 1, .. })), "{refused:?}");
        tx.set(root(0), 5).unwrap();
        tx.commit().unwrap();
        // Still attached, in its slot: others see whose the lock is.
        let mut tx = core.begin().unwrap();
        tx.lock(0, Mode::Exclusive).unwrap();
        let (named, names) = mpsc::channel();
        let on_slow = Box::new(move |holder: Holder| named.send(holder.process).unwrap());
        let other = open_with(&file.0, Some(on_slow));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| step(&other, 0));
            assert_eq!(names.recv_timeout(LIMIT), Ok(std::process::id()));
            tx.commit().unwrap();
            waiter.join().unwrap().unwrap();
        });
        core.detach().unwrap();
        assert!(matches!(core.begin().map(drop), Err(Error::Failed { .. })));
        assert_eq!(root_of(&other, 0), 6);
        assert_clean(&other);
    });
}

static FORKED: AtomicI32 = AtomicI32::new(0);

/// Forks, whatever the thread was doing. The child goes on with that, as the parent does.
extern "C" fn fork_here(_: libc::c_int) {
    if thread_id() == MAIN.load(Ordering::SeqCst) && FORKED.load(Ordering::SeqCst) == 0 {
        // SAFETY: both go on with what this handler interrupted, which is what is tested.
        FORKED.store(unsafe { libc::fork() }, Ordering::SeqCst);
    }
}

/// What a child does that was forked inside an operation, once that has returned.
fn end_as_child(core: &Region, interrupted: &Result<()>) -> ! {
    // SAFETY: sets a timer of this process, which ends it if it hangs.
    unsafe { libc::alarm(LIMIT.as_secs() as u32) };
    let code = match (interrupted, step(core, 1)) {
        (Ok(()) | Err(Error::ForkedInside), Ok(())) => i32::from(interrupted.is_ok()),
        (first, second) => {
            eprintln!("child: {first:?}, then {second:?}");
            9
        }
    };
    // SAFETY: ends the child without running what belongs to the parent.
    unsafe { libc::_exit(code) }
}

#[test]
fn a_child_forked_inside_an_operation_stores_nothing_of_it() {
    alone("a_child_forked_inside_an_operation_stores_nothing_of_it", || {
        let file = region(4);
        let core = CORE.get_or_init(|| open(&file.0));
        let main = thread_id();
        step(core, 0).unwrap();
        MAIN.store(main, Ordering::SeqCst);
        handle(libc::SIGUSR1, fork_here);
        let ends = AtomicBool::new(false);
        let (mut steps, mut ended, mut children) = (1, [0_u64; 10], 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_micros(700));
                    // SAFETY: no memory is passed; to a thread of this process.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), main, libc::SIGUSR1) };
                }
            });
            let since = Instant::now();
            while children < 300 && since.elapsed() < LIMIT / 2 {
                let stepped = core.run(|tx| {
                    tx.lock(0, Mode::Exclusive)?;
                    // A child that was forked before this began does it in its own right.
                    let at = root(if thread_id() == main { 0 } else { 2 });
                    let value = tx.get(at);
                    tx.set(at, value + 1)
                });
                if thread_id() != main {
                    end_as_child(core, &stepped);
                }
                stepped.unwrap();
                steps += 1;
                let child = FORKED.load(Ordering::SeqCst);
                if child > 0 {
                    let mut status = 0;
                    // SAFETY: a number of our own.
                    unsafe { libc::waitpid(child, &raw mut status, 0) };
                    assert!(libc::WIFEXITED(status), "{status:#x}");
                    ended[usize::try_from(libc::WEXITSTATUS(status)).unwrap()] += 1;
                    children += 1;
                    FORKED.store(0, Ordering::SeqCst);
                }
            }
            handle(libc::SIGUSR1, ignore);
            if thread_id() != main {
                // SAFETY: a child forked since the last look ends here.
                unsafe { libc::_exit(0) };
            }
            let last = FORKED.load(Ordering::SeqCst);
            if last > 0 {
                // SAFETY: a child of ours.
                unsafe { libc::waitpid(last, core::ptr::null_mut(), 0) };
            }
            ends.store(true, Ordering::SeqCst);
        });
        println!("measured: of {children} children {} were forked inside", ended[0]);
        assert!(ended[0] > 0 && ended[9] == 0, "{ended:?}");
        assert_eq!((root_of(core, 0), root_of(core, 1)), (steps, children));
        core.recover().unwrap();
        assert_clean(core);
    });
}
