//! What is changed all the time is read all the same, and never half.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use std::io::IoSliceMut;

use conquest_fs::content::WriteAt;
use conquest_fs::open::OpenFile;
use conquest_testkit::files::root_user;
use libc::O_RDONLY;
use store::Store;

/// So long that somebody writes before it is read.
const LEN: usize = 200_000;
/// What is in a reader's memory before.
const MARKER: u8 = 0xEE;
/// Writes while it is read.
const WRITES: u64 = 20_000;

fn is_right(bytes: &[u8]) -> bool {
    bytes.len() == LEN && bytes.iter().all(|byte| (1..=100).contains(byte))
}

/// The bytes of `open`, read in several ways.
fn reads(store: &Store, open: &OpenFile) -> [Vec<u8>; 3] {
    let mut all = [0; 3].map(|_| vec![MARKER; LEN]);
    let [whole, at, parts] = &mut all;
    let mut lens = [store.read_file(open.file, 0, whole), store.read_at(open, 0, at), Ok(0)];
    let (first, second) = parts.split_at_mut(LEN / 2);
    let mut slices = [first, second].map(IoSliceMut::new);
    lens[2] = store.read_vector(open, Some(0), &mut slices, 0);
    for (bytes, len) in all.iter_mut().zip(lens) {
        bytes.truncate(len.unwrap_or(0));
    }
    all
}

#[test]
fn a_busy_file_is_read_by_all_ways() {
    let store = Store::new(4);
    let file = store.file("f", &vec![1; LEN]);
    let open = store.open_path(&root_user(), "f", O_RDONLY).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..WRITES {
                let (at, byte) = (round * 4099 % LEN as u64, [1 + (round % 100) as u8]);
                store.write(&root_user(), file, WriteAt::Offset(at), &byte).unwrap();
            }
        });
        while !writer.is_finished() {
            assert!(reads(&store, &open).iter().all(|bytes| is_right(bytes)));
        }
    });
    store.close(&open).unwrap();
    store.examine();
}
