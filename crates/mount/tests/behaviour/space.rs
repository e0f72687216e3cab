//! A store that is full, and what users of the mount cost its server.

use std::fs::File;
use std::os::unix::fs::FileExt;

use conquest::NewStore;
use conquest_peers::sys::{self, HERE};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::support::mount::{Mount, mounted_as, small};
use crate::support::{ALICE, as_user, eventually};

/// Bytes of a write that fills.
const PIECE: usize = 64 << 10;
/// Percentage that is reserved.
const RESERVE: u64 = 10;

fn tight() -> NewStore {
    NewStore { size_max: 8 << 20, size: 8 << 20, reserve: RESERVE, ..small() }
}

/// Writes to a file until there is no space: how many bytes it has.
fn fill(name: &str) -> u64 {
    let file = File::options().append(true).create(true).open(name).unwrap();
    for piece in [PIECE, 4096, 1] {
        loop {
            match sys::write_all(&file, &vec![b'f'; piece]) {
                Ok(_) => {}
                Err(libc::ENOSPC) => break,
                Err(error) => panic!("error {error}"),
            }
        }
    }
    file.metadata().unwrap().len()
}

/// Whether this process has `CAP_SYS_RESOURCE`.
fn may_use_reserve() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() & 1 << 24 != 0
}

#[test]
fn users_leave_the_reserve_to_root() {
    mounted_as(tight(), |_| {
        sys::chmod(c".", 0o777, 0).unwrap();
        let whole = rustix::fs::statvfs(".").unwrap();
        assert!(whole.f_bavail < whole.f_bfree && whole.f_bfree <= whole.f_blocks);
        let len: u64 = as_user(ALICE, &[ALICE], || fill("file").to_string()).parse().unwrap();
        let users = rustix::fs::statvfs(".").unwrap();
        assert_eq!(users.f_bavail, 0);
        let kept = users.f_blocks * RESERVE / 100;
        assert!(users.f_bfree.abs_diff(kept) < 16, "{} of {kept} pages", users.f_bfree);
        let used = (whole.f_bfree - users.f_bfree) * users.f_frsize;
        assert!(used >= len && used < len + len / 50, "{used} bytes used for {len}");
        let refused = as_user(ALICE, &[ALICE], || {
            let made = std::fs::write("more", vec![0; PIECE]).unwrap_err();
            // Overwriting needs nothing.
            let file = File::options().write(true).open("file").unwrap();
            for at in (0..len).step_by(PIECE) {
                let piece = (len - at).min(PIECE as u64) as usize;
                file.write_all_at(&vec![b'o'; piece], at).unwrap();
            }
            format!("{:?}", made.kind())
        });
        assert_eq!(refused, "StorageFull");
        assert!(std::fs::read("file").unwrap().iter().all(|byte| *byte == b'o'));
        // Root goes on, to the end, if the machine lets him have the capability.
        let more = fill("of root");
        let full = rustix::fs::statvfs(".").unwrap();
        if may_use_reserve() {
            assert!(more > users.f_bfree * users.f_frsize * 9 / 10, "{more} bytes");
            assert_eq!((full.f_bfree, full.f_bavail), (0, 0));
        } else {
            assert_eq!((more, full.f_bfree), (0, users.f_bfree));
        }
        let file = File::options().write(true).open("file").unwrap();
        file.write_all_at(&[b'x'; PIECE], 1000).unwrap();
        // Removing works on a full store, and frees.
        std::fs::remove_file("of root").unwrap();
        let freed = || rustix::fs::statvfs(".").unwrap().f_bfree;
        eventually("space is freed", || freed() + 16 > users.f_bfree);
        std::fs::remove_file("file").unwrap();
        assert!(freed() + 16 > users.f_bfree && freed() < whole.f_bfree, "it is open");
        let mut bytes = [0];
        assert_eq!(sys::write(&file), Ok(()));
        assert_eq!(sys::read_at(&file, 999, &mut bytes), Err(libc::EBADF));
        drop(file);
        eventually("space of what was open is freed", || freed() + 16 > whole.f_bfree);
        String::new()
    });
}

#[test]
fn full_stores_are_changed_by_what_needs_no_space() {
    mounted_as(tight(), |_| {
        sys::make_directory(HERE, c"directory", 0o700).unwrap();
        std::fs::write("kept", vec![1; 100_000]).unwrap();
        fill("file");
        assert_eq!(sys::chmod(c"kept", 0o600, 0), Ok(()));
        assert_eq!(sys::truncate(c"kept", 50_000), Ok(()));
        assert_eq!(sys::rename(c"kept", HERE, c"renamed", 0), Ok(()));
        assert_eq!(std::fs::read("renamed").unwrap(), vec![1; 50_000]);
        assert_eq!(sys::remove(HERE, c"directory", true), Ok(()));
        assert_eq!(sys::remove(HERE, c"file", false), Ok(()));
        eventually("space is freed", || std::fs::write("new", vec![2; 1 << 20]).is_ok());
        String::new()
    });
}

/// How many descriptors the server has.
fn descriptors(mount: &Mount) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", mount.server())).unwrap().count()
}

#[test]
fn open_files_take_no_descriptors_of_the_server() {
    mounted_as(small(), |mount| {
        const FILES: usize = 3000;
        let limit = Some(2 * FILES as u64);
        setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
        std::fs::create_dir("directory").unwrap();
        let before = descriptors(mount);
        let files: Vec<File> =
            (0..FILES).map(|number| File::create(format!("directory/{number}")).unwrap()).collect();
        let after = descriptors(mount);
        // Threads that are started have one each.
        assert!(after <= before + 10, "{after} after {before}");
        for (number, file) in files.iter().enumerate() {
            file.write_all_at(&number.to_ne_bytes(), 0).unwrap();
        }
        assert_eq!(std::fs::read("directory/2999").unwrap(), 2999_usize.to_ne_bytes());
        drop(files);
        assert!(descriptors(mount) <= before + 10);
        String::new()
    });
}

/// The server's own memory, in bytes; the core's is not.
fn memory(mount: &Mount) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", mount.server())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn what_is_forgotten_takes_no_memory() {
    mounted_as(NewStore { size_max: 96 << 20, ..small() }, |mount| {
        const NAMES: usize = 15_000;
        let mut sizes = Vec::new();
        for round in 0..4 {
            let directory = std::ffi::CString::new(format!("{round}")).unwrap();
            sys::make_directory(HERE, &directory, 0o700).unwrap();
            // Each is one more that the kernel knows.
            for number in 0..NAMES {
                let name = std::ffi::CString::new(format!("{round}/{number}")).unwrap();
                sys::make_node(HERE, &name, libc::S_IFREG | 0o600, 0).unwrap();
            }
            // It forgets names that nobody uses.
            std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            sizes.push(memory(mount));
        }
        // A thread that begins to work takes a megabyte; what is known of 45,000 files, five.
        let grown = sizes[3].saturating_sub(sizes[0]);
        assert!(grown < 3 << 20, "grew from lookups: {sizes:?}");
        String::new()
    });
}
