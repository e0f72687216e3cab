//! A file system of FUSE that says that it is Conquest's. It is a directory in which every name is
//! that of one other directory.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Mounts it at `point`, says so by making the file `ready`, and serves it until it is unmounted.
pub fn serve(point: &Path, ready: &Path) {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = device.unwrap_or_else(|error| panic!("this test needs /dev/fuse: {error}"));
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = CString::new(data).unwrap();
    rustix::mount::mount("test", point, "fuse.conquest", MountFlags::empty(), &*data).unwrap();
    let mut request = vec![0; 1 << 20];
    loop {
        match rustix::io::read(&device, &mut request[..]) {
            Ok(_) => {}
            Err(Errno::NODEV) => return,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(error) => panic!("/dev/fuse: {error}"),
        }
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let opcode = word(4);
        if matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT) {
            continue;
        }
        let (error, body) = answer(opcode);
        let mut reply = (16 + body.len() as u32).to_le_bytes().to_vec();
        reply.extend(error.to_le_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        match rustix::io::write(&device, &reply) {
            // Whoever asked is gone.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => panic!("/dev/fuse: {error}"),
        }
        if opcode == INIT {
            std::fs::write(ready, "").unwrap();
        }
    }
}

/// The error and the body of an answer.
fn answer(opcode: u32) -> (i32, Vec<u8>) {
    match opcode {
        INIT => {
            let mut words = [0_u32; 16];
            // Version 7.31; bytes of a write.
            (words[0], words[1], words[5]) = (7, 31, 4096);
            (0, words.into_iter().flat_map(u32::to_le_bytes).collect())
        }
        GETATTR => (0, [0; 16].into_iter().chain(directory(1)).collect()),
        LOOKUP => {
            let node = [2].into_iter().chain([0; 39]);
            (0, node.chain(directory(2)).collect())
        }
        OPENDIR => (0, vec![0; 16]),
        _ => (-Errno::NOSYS.raw_os_error(), Vec::new()),
    }
}

/// Attributes of the directory `inode`.
fn directory(inode: u32) -> Vec<u8> {
    let mut words = [0_u32; 22];
    // The inode; the mode; links.
    (words[0], words[15], words[16]) = (inode, 0o40755, 2);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
