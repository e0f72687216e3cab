//! The mapping as memory: bytes, bounds, sleeping, and files that shrink beneath it.

#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

mod media_support;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use conquest_format::{GROUP, Offset, PAGE};
use conquest_pm::Error;
use conquest_pm::media::{MapOptions, Mapped, Medium, Shrink, Source};
use conquest_pm::memory::{Memory, Wake};
use conquest_pm::persist::{Request, WriteBack};
use media_support::*;

const LEN: u64 = 4 * GROUP;

fn at(bytes: u64) -> Offset {
    Offset::new(bytes)
}

/// A medium with space for all of [`LEN`], and its mapping.
fn mapped(options: &MapOptions) -> (Arc<Medium>, Mapped) {
    let medium = create(memfd(0));
    let whole = 0..LEN;
    medium.back(core::slice::from_ref(&whole), LEN).unwrap();
    let memory = Mapped::map(&medium, LEN, options).unwrap();
    (medium, memory)
}

fn plain() -> (Arc<Medium>, Mapped) {
    mapped(&MapOptions::default())
}

#[test]
fn words_are_stored_in_every_order_without_a_panic() {
    let (_medium, memory) = plain();
    assert_eq!(memory.address() as u64 % GROUP, 0);
    for (n, order) in [Relaxed, Acquire, Release, AcqRel, SeqCst].into_iter().enumerate() {
        let value = n as u64 + 1;
        memory.store(at(64), value, order);
        assert_eq!(memory.load(at(64), order), value);
        memory.put(at(72), value, order);
        assert_eq!(memory.load(at(72), order), value);
        assert_eq!(memory.compare_exchange(at(64), 99, 5, order, order), Err(value));
        assert_eq!(memory.compare_exchange(at(64), value, 0, order, order), Ok(value));
    }
    memory.put(at(80), 0b1100, Relaxed);
    memory.put_or(at(80), 0b0011);
    memory.put_and_not(at(80), 0b0101);
    assert_eq!(memory.load(at(80), Relaxed), 0b1010);
    memory.full_fence();
    memory.load_fence();
    memory.write_back(at(0), LEN);
    memory.fence();
    assert!(!memory.needs_write_back());
    assert_eq!(memory.failed(), None);
}

#[test]
fn out_of_bounds_loads_are_zero_stores_do_nothing_and_the_region_has_failed() {
    for bad in [LEN, LEN + 8, u64::MAX, u64::MAX - 7, 4, 1, LEN - 4, 1 << 63] {
        let (_medium, memory) = plain();
        memory.put(at(0), 7, Relaxed);
        assert_eq!(memory.load(at(bad), Relaxed), 0);
        assert!(memory.failed().unwrap().contains("out of bounds"));
        memory.store(at(bad), 1, Relaxed);
        memory.put(at(bad), 1, Relaxed);
        memory.put_or(at(bad), 1);
        memory.put_and_not(at(bad), 1);
        assert_eq!(memory.compare_exchange(at(bad), 1, 2, AcqRel, Acquire), Err(0));
        assert_eq!(memory.wait(at(bad), 0, LIMIT), Wake::Woken);
        memory.wake(at(bad), 1);
        assert_eq!(memory.load(at(0), Relaxed), 7);
    }
    for (start, len) in [(LEN - 3, 4), (LEN, 1), (u64::MAX, 2), (8, u64::MAX)] {
        let (_medium, memory) = plain();
        memory.write_back(at(start), len);
        assert_eq!(memory.failed(), None, "nothing to write back");
        memory.put_zeros(at(start), len);
        assert!(memory.failed().is_some());
        if len < 9 {
            let mut out = [9; 8];
            memory.put_bytes(at(start), &[1; 8][..len as usize]);
            memory.read(at(start), &mut out[..len as usize]);
            assert!(out[..len as usize].iter().all(|byte| *byte == 0));
        }
    }
    let (_medium, memory) = plain();
    memory.read(at(LEN), &mut []);
    memory.put_bytes(at(LEN - 1), &[5]);
    assert_eq!(memory.failed(), None);
}

#[test]
fn bytes_go_in_and_out_at_every_alignment_and_length() {
    for request in [Request::ByMedium, Request::Always] {
        let options = MapOptions { write_back: request, ..MapOptions::default() };
        let (_medium, memory) = mapped(&options);
        assert_eq!(memory.needs_write_back(), request == Request::Always);
        let source: Vec<u8> = (0..10_000_u32).map(|n| (n * 7 + n / 251) as u8 | 1).collect();
        let lens = (0..40).chain([63, 64, 255, 256, 257, 271, 4095, 4096, 4097, 9000]);
        for len in lens {
            for to in 0..9_u64 {
                let from = (len + to as usize * 3) % 11;
                let bytes = &source[from..from + len];
                memory.put_zeros(at(0), 10_000);
                memory.put_bytes(at(100 + to), bytes);
                memory.write_back(at(100 + to), len as u64);
                memory.fence();
                let mut expected = vec![0; 10_000];
                expected[100 + to as usize..][..len].copy_from_slice(bytes);
                let mut all = vec![9; 10_000];
                memory.read(at(0), &mut all);
                assert!(all == expected, "len {len} at {to}");
                let mut part = vec![9; len];
                memory.read(at(100 + to), &mut part);
                assert!(part == bytes, "len {len} at {to}");
                memory.put_zeros(at(100 + to), len as u64);
                memory.read(at(0), &mut all);
                assert!(all.iter().all(|byte| *byte == 0), "len {len} at {to}");
            }
        }
        assert_eq!(memory.failed(), None);
    }
}

#[test]
fn zeros_leave_the_neighbours_alone() {
    let (_medium, memory) = plain();
    memory.put_bytes(at(0), &[0xff; 600]);
    memory.put_zeros(at(13), 501);
    let mut all = [0; 600];
    memory.read(at(0), &mut all);
    for (n, byte) in all.iter().enumerate() {
        assert_eq!(*byte, if (13..514).contains(&n) { 0 } else { 0xff }, "byte {n}");
    }
}

#[test]
fn a_copy_never_tears_a_word() {
    let (medium, memory) = plain();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let other = Mapped::map(&medium, LEN, &MapOptions::default()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (ones, zeros) = ([0xff; PAGE as usize], [0; PAGE as usize]);
            while !stop.load(Relaxed) {
                other.put_bytes(at(PAGE), &ones);
                other.put_bytes(at(PAGE), &zeros);
            }
        });
        let mut page = [0; PAGE as usize];
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            memory.read(at(PAGE), &mut page);
            let whole = page.chunks(8).all(|word| word == [0; 8] || word == [0xff; 8]);
            assert!(
                whole || {
                    stop.store(true, Relaxed);
                    false
                }
            );
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn for_reading_only_nothing_but_the_volatile_part_is_stored_to() {
    let medium = create(memfd(0));
    let whole = 0..LEN;
    medium.back(core::slice::from_ref(&whole), LEN).unwrap();
    let writer = Mapped::map(&medium, LEN, &MapOptions::default()).unwrap();
    writer.put(at(0), 7, Relaxed);
    let volatile = 3 * PAGE..5 * PAGE;
    let options = MapOptions { read_only: Some(volatile.clone()), ..MapOptions::default() };
    let reader = Mapped::map(&medium, LEN, &options).unwrap();
    assert!(reader.is_read_only() && !writer.is_read_only());
    assert_eq!(reader.load(at(0), Acquire), 7);
    reader.store(at(volatile.start), 8, Release);
    reader.store(at(volatile.end - 8), 9, Release);
    assert_eq!(reader.compare_exchange(at(volatile.start), 8, 10, AcqRel, Acquire), Ok(8));
    assert_eq!(writer.load(at(volatile.start), Acquire), 10);
    assert_eq!(writer.load(at(volatile.end - 8), Acquire), 9);
    assert_eq!(reader.failed(), None);
    type Attempt = fn(&Mapped);
    let attempts: [Attempt; 8] = [
        |memory| memory.put(at(0), 1, Relaxed),
        |memory| memory.put_or(at(0), 1),
        |memory| memory.put_and_not(at(0), 1),
        |memory| memory.put_bytes(at(0), &[1; 9]),
        |memory| memory.put_zeros(at(0), 4096),
        |memory| memory.store(at(5 * PAGE), 1, Relaxed),
        |memory| memory.store(at(3 * PAGE - 8), 1, Relaxed),
        |memory| {
            let _ = memory.compare_exchange(at(0), 7, 1, AcqRel, Acquire);
        },
    ];
    for attempt in attempts {
        let reader = Mapped::map(&medium, LEN, &options).unwrap();
        attempt(&reader);
        assert!(reader.failed().unwrap().contains("for reading only"));
        assert_eq!(writer.load(at(0), Acquire), 7);
    }
}

#[test]
fn impossible_shapes_are_refused() {
    let medium = create(memfd(0));
    let map = |len, read_only| {
        let options = MapOptions { read_only, ..MapOptions::default() };
        Mapped::map(&medium, len, &options)
    };
    for (len, read_only) in [
        (0, None),
        (100, None),
        (u64::MAX, None),
        (1 << 60, None),
        (LEN, Some(8..PAGE)),
        (LEN, Some(PAGE..LEN + PAGE)),
        (LEN, Some(Range { start: 2 * PAGE, end: PAGE })),
    ] {
        assert!(matches!(map(len, read_only), Err(Error::Shape { .. })));
    }
    assert!(map(LEN, Some(PAGE..PAGE)).is_ok());
    // The largest region there can be, on a file without a byte.
    assert!(map(1 << 44, None).is_ok());
}

#[test]
fn a_sleeper_in_another_process_is_woken() {
    let (_medium, memory) = plain();
    let word = at(8 * 100);
    memory.store(word, 7 << 32 | 1, Relaxed);
    let begun = Instant::now();
    let short = Duration::from_millis(30);
    assert_eq!(memory.wait(word, 1, short), Wake::TimedOut);
    assert!(begun.elapsed() >= short);
    assert_eq!(memory.wait(word, 2, LIMIT), Wake::Woken);
    let mut sleeper = fork(|parent| {
        parent.say("x");
        assert_eq!(memory.wait(word, 1, LIMIT), Wake::Woken);
        assert_eq!(memory.load(word, Acquire), 7 << 32 | 2);
    });
    sleeper.hear(1);
    until("it sleeps", || {
        let text = std::fs::read_to_string(format!("/proc/{}/wchan", sleeper.pid));
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.pid)).unwrap();
        text.is_ok_and(|text| text.contains("futex")) || stat.contains(") S ")
    });
    memory.store(word, 7 << 32 | 2, Release);
    memory.wake(word, 1);
    sleeper.join();
}

#[test]
fn a_signal_interrupts_a_sleep() {
    extern "C" fn nothing(_: libc::c_int) {}
    let (_medium, memory) = plain();
    fork(|_| {
        // SAFETY: zeros are a valid structure; the handler does nothing; both are complete.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = nothing;
            action.sa_sigaction = handler as usize;
            libc::sigaction(libc::SIGALRM, &raw const action, core::ptr::null_mut());
            libc::alarm(1);
        }
        assert_eq!(memory.wait(at(8), 0, LIMIT), Wake::Interrupted);
    })
    .join();
}

#[test]
fn a_file_truncated_under_its_mapping_fails_the_region_not_the_process() {
    let file = Temporary::shm();
    let medium = create(file.0.as_path());
    let whole = 0..LEN;
    medium.back(core::slice::from_ref(&whole), LEN).unwrap();
    assert!(matches!(medium.shrink(), Shrink::Possible { .. }));
    let memory = Mapped::map(&medium, LEN, &MapOptions::default()).unwrap();
    let other = Mapped::map(&medium, LEN, &MapOptions::default()).unwrap();
    memory.put_bytes(at(0), &[5; 2 * PAGE as usize]);
    memory.put(at(3 * GROUP), 6, Relaxed);
    let handle = std::fs::File::options().write(true).open(&file.0).unwrap();
    handle.set_len(PAGE).unwrap();
    assert_eq!(memory.load(at(8), Relaxed), 0x0505_0505_0505_0505);
    assert_eq!(memory.failed(), None);
    assert_eq!(memory.load(at(3 * GROUP), Relaxed), 0);
    assert!(memory.failed().unwrap().contains("truncated"));
    // What was there before the fault stays shared; other mappings haven't touched anything.
    assert_eq!(memory.load(at(8), Relaxed), 0x0505_0505_0505_0505);
    assert_eq!(other.failed(), None);
    // Stores, copies and sleeps go through as well.
    memory.put(at(3 * GROUP + 64), 1, Relaxed);
    memory.put_bytes(at(GROUP - 100), &[1; 200]);
    let mut bytes = [9; 8192];
    memory.read(at(2 * GROUP - 4096), &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(memory.wait(at(GROUP * 2 + 8), 0, Duration::from_millis(1)), Wake::TimedOut);
    assert_eq!(other.failed(), None);
    other.put_zeros(at(PAGE), PAGE);
    assert!(other.failed().is_some());
}

#[test]
fn a_fault_elsewhere_still_kills() {
    let (_medium, memory) = plain();
    memory.put(at(0), 1, Relaxed);
    let mut child = fork(|_| {
        let file = memfd(0);
        // SAFETY: a page of a file without a byte, at an address of the kernel's choice: touching
        // it raises the signal, on purpose.
        unsafe {
            use std::os::fd::AsRawFd;
            let (how, kind) = (libc::PROT_READ, libc::MAP_SHARED);
            let page = libc::mmap(core::ptr::null_mut(), 4096, how, kind, file.as_raw_fd(), 0);
            core::ptr::read_volatile(page.cast::<u8>());
        }
    });
    let status = child.wait();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
    // And one that somebody sends: the standard library's handler, which ours found, takes the
    // first and restores the default.
    let mut child = fork(|parent| {
        parent.say("x");
        sleep_for_ever();
    });
    child.hear(1);
    child.signal(libc::SIGBUS);
    until("the default is restored", || {
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.pid)).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        caught & 1 << (libc::SIGBUS - 1) == 0
    });
    child.signal(libc::SIGBUS);
    let status = child.wait();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
}

#[test]
fn the_handler_found_is_called_for_faults_elsewhere() {
    extern "C" fn leave(_: libc::c_int) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(42) };
    }
    // A process of its own, in which nothing has been mapped before.
    if std::env::var_os("CONQUEST_TEST_CHAIN").is_none() {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "the_handler_found_is_called_for_faults_elsewhere";
        program.args([test, "--exact", "--nocapture"]);
        let result = program.env("CONQUEST_TEST_CHAIN", "1").output().unwrap();
        assert_eq!(result.status.code(), Some(42));
        return;
    }
    // SAFETY: zeros are a valid structure; the handler is of the type without SA_SIGINFO.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = leave;
        action.sa_sigaction = handler as usize;
        libc::sigaction(libc::SIGBUS, &raw const action, core::ptr::null_mut());
    }
    let medium = create(memfd(0));
    let memory = Mapped::map(&medium, LEN, &MapOptions::default()).unwrap();
    assert_eq!(memory.load(at(0), Relaxed), 0);
    assert!(memory.failed().is_some(), "the file has no byte");
    // SAFETY: no memory is passed; the handler above ends the process.
    unsafe { libc::raise(libc::SIGBUS) };
}

#[test]
fn memfds_are_sealed_against_shrinking_where_allowed() {
    let open = create(memfd(libc::MFD_ALLOW_SEALING));
    assert_eq!(open.shrink(), Shrink::Sealed);
    open.back(&[], LEN).unwrap();
    assert_eq!(open.len().unwrap(), LEN);
    let again = Medium::open(Source::from(std::path::Path::new("/dev/null")));
    assert!(again.is_err());
    let closed = create(memfd(0));
    let Shrink::Possible { why } = closed.shrink() else {
        panic!("sealed without permission");
    };
    assert!(why.contains("MFD_ALLOW_SEALING"));
}

#[test]
fn write_back_can_be_forced_and_is_off_on_shared_ram() {
    let (medium, memory) = plain();
    assert_eq!(memory.policy(), WriteBack::None);
    let options = MapOptions { write_back: Request::Always, ..MapOptions::default() };
    let forced = Mapped::map(&medium, LEN, &options).unwrap();
    assert!(forced.needs_write_back());
    forced.put(at(0), 3, Relaxed);
    forced.write_back(at(0), LEN);
    forced.fence();
    assert_eq!(memory.load(at(0), Relaxed), 3);
}
