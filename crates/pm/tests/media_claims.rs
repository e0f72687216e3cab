//! Claims: locks that live exactly as long as a process's memory.

#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

mod media_support;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use conquest_pm::host::Host;
use conquest_pm::media::{Medium, Source};
use media_support::*;

/// Runs `test` on shared RAM, on a memfd and on a disk file.
fn on_each_medium(test: impl Fn(&Arc<Medium>)) {
    let (shm, disk) = (Temporary::shm(), Temporary::disk());
    for source in
        [Source::from(shm.0.as_path()), Source::from(memfd(0)), Source::from(disk.0.as_path())]
    {
        let medium = create(source);
        medium.back(&geometry().space(0, 1), geometry().len_at(1)).unwrap();
        test(&medium);
    }
}

#[test]
fn a_claim_excludes_others_and_ends_with_its_value() {
    on_each_medium(|medium| {
        let host = host(medium);
        assert!(!host.is_anyone_attached().unwrap());
        let claim = host.claim(3).unwrap().unwrap();
        assert!(host.claim(3).unwrap().is_none());
        assert!(host.is_claimed(3).unwrap());
        assert!(!host.is_claimed(2).unwrap() && !host.is_claimed(4).unwrap());
        assert!(host.is_anyone_attached().unwrap());
        drop(claim);
        assert!(!host.is_claimed(3).unwrap());
        assert!(!host.is_anyone_attached().unwrap());
    });
}

#[test]
fn attaching_is_claimed_apart_from_slots() {
    on_each_medium(|medium| {
        let host = host(medium);
        let attach = host.claim_attach().unwrap().unwrap();
        assert!(host.claim_attach().unwrap().is_none());
        assert!(!host.is_anyone_attached().unwrap());
        assert!(host.claim(0).unwrap().is_some());
        drop(attach);
        assert!(host.claim_attach().unwrap().is_some());
    });
}

#[test]
fn a_claim_dies_with_its_process_even_if_a_child_of_it_lives() {
    on_each_medium(|medium| {
        let host = host(medium);
        let mut owner = fork(|parent| {
            conquest_pm::host::Host::adopt(&host).unwrap();
            let _claim = host.claim(1).unwrap().unwrap();
            // SAFETY: the child only waits.
            let grandchild = unsafe { libc::fork() };
            if grandchild == 0 {
                sleep_for_ever();
            }
            parent.say(&format!("{grandchild:>10}"));
            sleep_for_ever();
        });
        let grandchild: i32 = owner.hear(10).trim().parse().unwrap();
        assert!(host.is_claimed(1).unwrap());
        owner.signal(libc::SIGKILL);
        until("the claim is released", || !host.is_claimed(1).unwrap());
        // SAFETY: no memory is passed.
        let lives = unsafe { libc::kill(grandchild, 0) == 0 };
        // SAFETY: as above; the grandchild was made by this test.
        unsafe { libc::kill(grandchild, libc::SIGKILL) };
        assert!(lives, "the grandchild was to outlive the claim");
        owner.wait();
    });
}

#[test]
fn a_claim_survives_being_stopped_and_losing_every_descriptor() {
    on_each_medium(|medium| {
        let host = host(medium);
        let mut owner = fork(|parent| {
            let _claim = host.claim(1).unwrap().unwrap();
            let keep = 3;
            parent.say("x");
            // SAFETY: no memory is passed. Everything from 3 up is lost, on purpose.
            unsafe { libc::syscall(libc::SYS_close_range, keep, u32::MAX, 0) };
            sleep_for_ever();
        });
        owner.hear(1);
        until("its descriptors are closed", || {
            std::fs::read_dir(format!("/proc/{}/fd", owner.pid)).unwrap().count() <= 3
        });
        assert!(host.is_claimed(1).unwrap());
        owner.signal(libc::SIGSTOP);
        until("it is stopped", || {
            let namespace = host.identity().namespace;
            host.process_state(owner.pid as u32, namespace) == Some('T')
        });
        assert!(host.is_claimed(1).unwrap());
        assert!(host.claim(1).unwrap().is_none());
        owner.signal(libc::SIGKILL);
        until("the claim is released", || !host.is_claimed(1).unwrap());
    });
}

#[test]
fn a_claim_does_not_survive_exec() {
    on_each_medium(|medium| {
        let host = host(medium);
        let mut owner = fork(|parent| {
            let _claim = host.claim(1).unwrap().unwrap();
            parent.say("x");
            // SAFETY: waits for the signal by which the test goes on, then runs a program that
            // sleeps; all strings end with a zero byte and the list with a null pointer.
            unsafe {
                libc::raise(libc::SIGSTOP);
                let end = core::ptr::null::<libc::c_char>();
                libc::execl(c"/bin/sleep".as_ptr(), c"sleep".as_ptr(), c"20".as_ptr(), end);
            }
        });
        owner.hear(1);
        assert!(host.is_claimed(1).unwrap());
        until("it is stopped", || {
            let namespace = host.identity().namespace;
            host.process_state(owner.pid as u32, namespace) == Some('T')
        });
        owner.signal(libc::SIGCONT);
        until("the claim is released", || !host.is_claimed(1).unwrap());
        let program = std::fs::read_link(format!("/proc/{}/exe", owner.pid)).unwrap();
        assert_ne!(program, std::env::current_exe().unwrap());
    });
}

#[test]
fn a_forked_child_has_no_part_in_a_claim_and_can_make_its_own() {
    on_each_medium(|medium| {
        let host = host(medium);
        let mut claim = host.claim(1).unwrap();
        assert!(claim.is_some());
        let here = host.identity();
        fork(|_| {
            assert!(host.is_forked());
            let who = host.identity();
            assert_eq!(who.process, std::process::id());
            assert_eq!(who.thread, who.process);
            assert_ne!(who.process, here.process);
            assert!(host.is_forked(), "asking who it is makes no child the owner");
            conquest_pm::host::Host::adopt(&host).unwrap();
            assert!(!host.is_forked());
            assert!(host.claim(1).unwrap().is_none());
            let own = host.claim(2).unwrap();
            assert!(own.is_some());
            drop(claim.take());
            assert!(host.is_claimed(1).unwrap(), "the parent's claim is the parent's");
            drop(own);
            assert!(!host.is_claimed(2).unwrap());
        })
        .join();
        assert!(!host.is_forked());
        assert_eq!(host.identity(), here);
        assert!(host.is_claimed(1).unwrap());
        drop(claim);
        assert!(!host.is_claimed(1).unwrap());
    });
}

#[test]
fn claims_hold_while_another_thread_forks() {
    let shm = Temporary::shm();
    let medium = create(shm.0.as_path());
    let host = host(&medium);
    let forks = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while forks.load(Relaxed) < 200 {
                let mut child = fork(|_| sleep_for_ever());
                std::thread::sleep(Duration::from_millis(2));
                child.signal(libc::SIGKILL);
                child.wait();
                forks.fetch_add(1, Relaxed);
            }
        });
        let mut kept = 0;
        until("the other thread has forked enough", || {
            let claim = host.claim(5).unwrap().unwrap();
            drop(claim);
            // A child that had got a part in it would keep it until it is killed.
            if host.is_claimed(5).unwrap() {
                kept += 1;
                until("it is released", || !host.is_claimed(5).unwrap());
            }
            forks.load(Relaxed) >= 200
        });
        assert_eq!(kept, 0);
    });
}

#[test]
fn threads_of_one_process_exclude_each_other() {
    let shm = Temporary::shm();
    let medium = create(shm.0.as_path());
    let host = host(&medium);
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut taken = 0;
                until("the claim was had fifty times", || {
                    if let Some(claim) = host.claim(0).unwrap() {
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                        drop(claim);
                        taken += 1;
                    }
                    taken >= 50
                });
            });
        }
    });
}

#[test]
fn claims_are_seen_across_pid_namespaces() {
    let shm = Temporary::shm();
    let medium = create(shm.0.as_path());
    let host = host(&medium);
    let here = host.identity();
    let _claim = host.claim(7).unwrap().unwrap();
    let mut owner = fork(|parent| {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::unshare(libc::CLONE_NEWPID) };
        let error = std::io::Error::last_os_error();
        assert_eq!(result, 0, "needs a pid namespace, as root; refused: {error}");
        let mut first = fork(|inner| {
            conquest_pm::host::Host::adopt(&host).unwrap();
            let who = host.identity();
            assert_eq!((who.process, who.thread), (1, 1));
            assert_ne!(who.namespace, here.namespace);
            assert_eq!(host.process_state(1, here.namespace), None);
            assert_eq!(host.process_state(1, who.namespace), None, "/proc is another's");
            let _claim = host.claim(6).unwrap().unwrap();
            assert!(host.is_claimed(7).unwrap(), "the outer claim is seen inside");
            inner.say("x");
            sleep_for_ever();
        });
        first.hear(1);
        parent.say("x");
        // Until told to let it die.
        // SAFETY: stops itself.
        unsafe { libc::raise(libc::SIGSTOP) };
        first.signal(libc::SIGKILL);
        first.wait();
    });
    owner.hear(1);
    assert!(host.is_claimed(6).unwrap());
    assert!(host.claim(6).unwrap().is_none());
    until("it is stopped", || host.process_state(owner.pid as u32, here.namespace) == Some('T'));
    owner.signal(libc::SIGCONT);
    until("the claim is released", || !host.is_claimed(6).unwrap());
    owner.join();
}

#[test]
fn closed_and_replaced_descriptors_do_not_fool_the_host() {
    let shm = Temporary::shm();
    let medium = create(shm.0.as_path());
    let host = host(&medium);
    let _claim = host.claim(1).unwrap().unwrap();
    fork(|_| {
        let other = std::fs::File::open("/dev/null").unwrap();
        for raw in 3..1024 {
            if raw != other.as_raw_fd() {
                // SAFETY: no memory is passed; puts another file under every number, on purpose.
                unsafe { libc::dup3(other.as_raw_fd(), raw, libc::O_CLOEXEC) };
            }
        }
        conquest_pm::host::Host::adopt(&host).unwrap();
        assert!(host.is_claimed(1).unwrap());
        assert!(!host.is_claimed(2).unwrap());
        assert!(host.claim(2).unwrap().is_some());
        assert_eq!(medium.len().unwrap(), 0);
        std::fs::remove_file(&shm.0).unwrap();
        let error = host.is_claimed(1).unwrap_err().to_string();
        assert!(error.contains("descriptor was closed"), "{error}");
    })
    .join();
}

#[test]
fn a_childs_copy_of_a_claim_leaves_alone_what_is_at_its_address() {
    let shm = Temporary::shm();
    let medium = create(shm.0.as_path());
    let host = host(&medium);
    let mut claim = host.claim(1).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let name = shm.0.to_str().unwrap();
    let line = maps.lines().find(|line| line.ends_with(name)).unwrap();
    let address = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    fork(|_| {
        let at = core::ptr::with_exposed_provenance_mut::<libc::c_void>(address);
        let how = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing: the call fails if the address is in use.
        let other = unsafe { libc::mmap(at, 4096, how, kind, -1, 0) };
        assert_eq!(other, at, "the child was to have no part in the claim's page");
        drop(claim.take());
        conquest_pm::host::Host::adopt(&host).unwrap();
        // SAFETY: replaces nothing, as above.
        let again = unsafe { libc::mmap(at, 4096, how, kind, -1, 0) };
        assert_eq!(again, libc::MAP_FAILED, "the child's own page was unmapped");
    })
    .join();
    assert!(host.is_claimed(1).unwrap());
}
