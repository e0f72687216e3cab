//! The server dies: who uses the mount is told, and all that was acknowledged is there afterwards.

use std::fs::File;
use std::os::unix::fs::FileExt;

use conquest_peers::sys::{self, HERE};

use crate::support::actor::Actor;
use crate::support::{eventually, mounted, name};

fn not_connected<T: std::fmt::Debug>(outcome: std::io::Result<T>) {
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn what_was_acknowledged_outlives_the_server() {
    mounted(|mount| {
        std::fs::create_dir("directory").unwrap();
        std::fs::write("directory/file", vec![7; 100_000]).unwrap();
        std::fs::write("small", "content").unwrap();
        let open = File::options().read(true).write(true).open("small").unwrap();
        open.write_all_at(b"C", 0).unwrap();
        let removed = File::create("removed").unwrap();
        removed.write_all_at(&[1; 500_000], 0).unwrap();
        std::fs::remove_file("removed").unwrap();
        sys::flock(&open, libc::LOCK_EX).unwrap();
        let mut file = None;
        let waiter = Actor::new(|order| {
            let new = || sys::open(HERE, c"small", libc::O_RDWR, 0).unwrap();
            let file = file.get_or_insert_with(new);
            let how = if order == "open" { libc::LOCK_UN } else { libc::LOCK_EX };
            sys::flock(file, how).map_or_else(name, |()| "done".into())
        });
        assert_eq!(waiter.ask("open"), "done");
        waiter.begin_waiting("lock");
        mount.kill();
        // ECONNABORTED is for those whose request was under way.
        let told = waiter.answer();
        assert!(
            told.ends_with("(os error 103)") || told.ends_with("(os error 107)"),
            "a waiter is told: {told}"
        );
        not_connected(std::fs::metadata("small"));
        not_connected(open.read_at(&mut [0], 0));
        not_connected(std::fs::read_dir("."));
        not_connected(std::fs::write("new", ""));
        drop((open, removed, waiter));
        mount.clear();
        mount.start();
        assert_eq!(std::fs::read("directory/file").unwrap(), vec![7; 100_000]);
        assert_eq!(std::fs::read("small").unwrap(), b"Content");
        assert!(!std::fs::exists("removed").unwrap());
        let free = File::open("small").unwrap();
        assert_eq!(sys::flock(&free, libc::LOCK_EX | libc::LOCK_NB), Ok(()), "its locks are gone");
        String::new()
    });
}

#[test]
fn a_server_that_is_killed_at_work_leaves_whole_changes() {
    mounted(|mount| {
        for round in 0..5 {
            let worker = Actor::new(move |_| {
                let mut made = 0;
                loop {
                    let name = format!("{round}-{made}");
                    let bytes = name.repeat(1 + made * 37 % 3000);
                    if std::fs::write(&name, bytes).is_err() {
                        return made.to_string();
                    }
                    made += 1;
                    if made % 3 == 0 && std::fs::remove_file(&name).is_err() {
                        // Removed or not: nobody was told.
                        return (made - 1).to_string();
                    }
                }
            });
            worker.begin("work");
            eventually("some files are there", || std::fs::exists(format!("{round}-9")).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(7 * round));
            mount.kill();
            let made: usize = worker.answer().parse().unwrap();
            assert!(made >= 9, "{made} files");
            drop(worker);
            mount.clear();
            mount.start();
            for number in 0..made {
                let name = format!("{round}-{number}");
                if number % 3 == 2 {
                    assert!(!std::fs::exists(&name).unwrap(), "{name} was removed");
                } else {
                    let bytes = name.repeat(1 + number * 37 % 3000);
                    assert_eq!(std::fs::read(&name).unwrap(), bytes.as_bytes(), "{name}");
                }
            }
            for entry in std::fs::read_dir(".").unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
            mount.stop();
            mount.check();
            mount.start();
        }
        String::new()
    });
}
