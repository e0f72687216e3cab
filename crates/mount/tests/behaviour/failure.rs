//! The store fails while it is mounted.

use std::fs::File;
use std::os::unix::fs::FileExt;

use conquest_peers::sys::{self, HERE};

use crate::support::mounted;

#[test]
fn a_store_that_fails_is_read_only_and_its_server_lives() {
    // All but the first bytes is gone, or the end, with contents.
    for (kept, len) in [(1 << 20, 1 << 20), (7 << 20, 2 << 20)] {
        fail(kept, len);
    }
}

/// Cuts the core to `kept` bytes while a file of `len` bytes is open.
fn fail(kept: u64, len: usize) {
    mounted(|mount| {
        std::fs::write("file", vec![7; len]).unwrap();
        std::fs::create_dir("directory").unwrap();
        let open = File::options().read(true).write(true).open("file").unwrap();
        let core = File::options().write(true).open(mount.core()).unwrap();
        assert!(core.metadata().unwrap().len() > kept);
        core.set_len(kept).unwrap();
        drop(core);
        // What can still be read is what was there.
        for at in (0..len as u64).step_by(100_000) {
            let mut bytes = [1; 100];
            match open.read_at(&mut bytes, at) {
                Ok(_) => assert_eq!(bytes, [7; 100], "at {at}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "at {at}"),
            }
        }
        let refused = |outcome: Result<(), i32>| {
            assert!(matches!(outcome, Err(libc::EROFS | libc::EIO)), "{outcome:?}");
        };
        for _ in 0..3 {
            refused(sys::write(&open));
            refused(sys::make_directory(HERE, c"new", 0o700));
            refused(sys::remove(HERE, c"file", false));
            refused(sys::truncate_open(&open, 5));
        }
        // There is an answer, whichever it is.
        let (Ok(_) | Err(_)) = std::fs::read_dir(".").map(Iterator::count);
        rustix::fs::fstatvfs(&open).unwrap();
        drop(open);
        let told = mount.stop_after_trouble();
        let times = told.lines().filter(|line| line.starts_with("ReadOnly")).count();
        assert_eq!(times, 1, "told: {told}");
        assert!(!told.contains("panic"), "told: {told}");
        mount.abandon();
        String::new()
    });
}
