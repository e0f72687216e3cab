//! Handles by which files are opened without a name.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;

use conquest_peers::handles::{Handle, handle, open_handle};
use conquest_peers::sys::{self, HERE};

use crate::support::{both, done, eventually, mounted, name, told};

const STALE: &str = "Stale file handle (os error 116)";

fn root() -> File {
    sys::open(HERE, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap()
}

fn of(name: &CStr) -> Handle {
    handle(HERE, name, 0).unwrap()
}

/// What is read by a handle.
fn read(root: &File, handle: &Handle) -> String {
    match open_handle(root, handle, libc::O_RDONLY) {
        Ok(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        }
        Err(error) => name(error),
    }
}

#[test]
fn a_handle_opens_its_file_until_it_is_removed() {
    both(|bench| {
        std::fs::create_dir_all("directory/inner").unwrap();
        std::fs::write("directory/file", "content").unwrap();
        sys::make_link(c"file", HERE, c"link").unwrap();
        let root = root();
        let file = of(c"directory/file");
        bench.say("read", read(&root, &file));
        std::fs::rename("directory/file", "directory/inner/renamed").unwrap();
        bench.say("renamed", read(&root, &file));
        assert_eq!(of(c"directory/inner/renamed"), file);
        let directory = of(c"directory/inner");
        let opened = open_handle(&root, &directory, libc::O_RDONLY | libc::O_DIRECTORY);
        let found = opened.and_then(|opened| {
            use std::os::fd::AsRawFd;
            let up = sys::stat(opened.as_raw_fd(), c"../../link", libc::AT_SYMLINK_NOFOLLOW)?;
            let down = sys::stat(opened.as_raw_fd(), c"renamed", 0)?;
            Ok((up.st_mode, down.st_size))
        });
        bench.say("from a directory", told(found));
        bench.say("written", done(open_handle(&root, &file, libc::O_WRONLY)));
        let is_directory = libc::O_RDONLY | libc::O_DIRECTORY;
        bench.say("a file as a directory", done(open_handle(&root, &file, is_directory)));
        bench.say("a link", done(open_handle(&root, &of(c"link"), libc::O_RDONLY)));
        bench.say("its path", done(open_handle(&root, &of(c"link"), libc::O_PATH)));
        let open = open_handle(&root, &file, libc::O_RDONLY).unwrap();
        std::fs::remove_file("directory/inner/renamed").unwrap();
        drop(open);
        // The server is told of the last close, and does not keep who closes waiting.
        eventually("a removed file is stale", || read(&root, &file) == STALE);
        std::fs::remove_dir("directory/inner").unwrap();
        eventually("a removed directory is stale", || read(&root, &directory) == STALE);
        // What has its inode now is another file.
        for number in 0..50 {
            std::fs::write(format!("{number}"), "other").unwrap();
        }
        bench.say("still removed", read(&root, &file));
        bench.say("and the directory", done(open_handle(&root, &directory, libc::O_RDONLY)));
    });
}

#[test]
fn handles_outlive_the_mount() {
    mounted(|mount| {
        std::fs::create_dir("directory").unwrap();
        for name in ["kept", "directory/kept", "removed"] {
            std::fs::write(name, name).unwrap();
        }
        let [kept, inner, removed, directory, top] =
            [c"kept", c"directory/kept", c"removed", c"directory", c"."].map(of);
        mount.stop();
        mount.start();
        let root_directory = root();
        assert_eq!(read(&root_directory, &kept), "kept");
        // Before the directory is known, and after.
        assert_eq!(read(&root_directory, &inner), "directory/kept");
        let listed = open_handle(&root_directory, &directory, libc::O_DIRECTORY).unwrap();
        {
            use std::os::fd::AsRawFd;
            let up = sys::stat(listed.as_raw_fd(), c"../kept", 0).unwrap();
            assert_eq!(up.st_size, 4);
        }
        drop(listed);
        assert_eq!(done(open_handle(&root_directory, &top, libc::O_DIRECTORY)), "done");
        std::fs::remove_file("removed").unwrap();
        drop(root_directory);
        mount.stop();
        mount.start();
        assert_eq!(read(&root(), &removed), STALE);
        String::new()
    });
}

#[test]
fn what_is_no_handle_is_stale() {
    mounted(|mount| {
        std::fs::write("file", "content").unwrap();
        let good = of(c"file");
        mount.stop();
        mount.start();
        let root = root();
        let stale = Err(libc::ESTALE);
        let numbers = [0, 1, 2, 7, 64, 4096, 1 << 20, 1 << 40, u64::MAX, u64::MAX / 64];
        for number in numbers {
            for generation in [0, 1, u32::MAX] {
                // As the kernel writes it: the node, high half first, and the generation.
                let words = [(number >> 32) as u32, number as u32, generation];
                let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let bad = Handle { bytes, ..good.clone() };
                let opened = open_handle(&root, &bad, libc::O_RDONLY).map(drop);
                // That one is the root's.
                let expected = if (number, generation) == (1, 0) { Ok(()) } else { stale };
                assert_eq!(opened, expected, "{number:#x} {generation}");
            }
        }
        for at in 0..good.bytes.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad.bytes[at] ^= 1 << bit;
                let opened = open_handle(&root, &bad, libc::O_RDONLY);
                assert_eq!(opened.map(drop), stale, "bit {bit} of byte {at}");
            }
        }
        assert_eq!(read(&root, &good), "content");
        String::new()
    });
}
