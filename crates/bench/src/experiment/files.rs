//! What experiments on many files share: names, and looking at what was read.

use std::ffi::CString;
use std::hint::black_box;

use crate::calls::{self, CallError, Calls};

/// Names of files in directories `a/b`, so that each path has three components.
pub(super) struct Tree {
    /// Directories, those above first.
    pub(super) directories: Vec<CString>,
    /// Directories that have files, with how many each has.
    pub(super) leaves: Vec<(CString, u64)>,
    /// Files, in the order of their directories.
    pub(super) files: Vec<CString>,
}

/// Directories that one of the first level has.
const FAN_OUT: u64 = 16;

impl Tree {
    /// Of so many files, shared out evenly among so many directories of the second level.
    pub(super) fn new(files: u64, directories: u64) -> Tree {
        let directories = directories.clamp(1, files.max(1));
        let top = (0..directories.div_ceil(FAN_OUT)).map(|at| calls::path(&format!("d{at:03}")));
        let below = (0..directories).map(|at| calls::path(&place(at)));
        // File `f` is in directory `f * directories / files`.
        let first = |directory: u64| {
            (u128::from(directory) * u128::from(files)).div_ceil(u128::from(directories)) as u64
        };
        let count = |directory: u64| first(directory + 1) - first(directory);
        let of =
            |file: u64| (u128::from(file) * u128::from(directories) / u128::from(files)) as u64;
        Tree {
            directories: top.chain(below).collect(),
            leaves: (0..directories).map(|at| (calls::path(&place(at)), count(at))).collect(),
            files: (0..files)
                .map(|file| calls::path(&format!("{}/f{file:07}", place(of(file)))))
                .collect(),
        }
    }

    /// Makes the directories.
    pub(super) fn make(&self, calls: &mut dyn Calls) -> Result<(), CallError> {
        self.directories.iter().try_for_each(|directory| calls.mkdir(directory))
    }
}

fn place(directory: u64) -> String {
    format!("d{:03}/e{directory:05}", directory / FAN_OUT)
}

/// Looks at each line of `bytes`, so that no target gets away with bytes that it has not fetched.
#[inline]
pub(super) fn consume(bytes: &[u8]) {
    let sum = bytes.iter().step_by(64).fold(0_u64, |sum, byte| sum.wrapping_add((*byte).into()));
    black_box(sum);
}

/// A buffer that begins with a page. Wherever else the allocator puts it, a copy may take longer:
/// one to an address that lies a few bytes behind that of its source, within their pages, waits for
/// its own stores.
pub(super) struct Buffer {
    room: Vec<u8>,
    begin: usize,
}

/// Bytes of a page.
const PAGE: usize = 4096;

impl Buffer {
    /// With these bytes in it.
    pub(super) fn of(content: &[u8]) -> Buffer {
        let mut room = vec![0; content.len() + PAGE];
        let begin = room.as_ptr().align_offset(PAGE).min(PAGE);
        if let Some(bytes) = room.get_mut(begin..begin + content.len()) {
            bytes.copy_from_slice(content);
        }
        room.truncate(begin + content.len());
        Buffer { room, begin }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.room.get_mut(self.begin..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_with_a_page() {
        for count in [0, 1, 100, 5000] {
            let content = vec![7; count];
            let mut buffer = Buffer::of(&content);
            assert_eq!(buffer.bytes(), content);
            assert_eq!(buffer.bytes().as_ptr().align_offset(PAGE), 0);
        }
    }

    #[test]
    fn files_are_shared_out() {
        let tree = Tree::new(100, 20);
        assert_eq!((tree.directories.len(), tree.files.len()), (22, 100));
        assert_eq!(tree.files[0].to_str().unwrap(), "d000/e00000/f0000000");
        assert_eq!(tree.files[99].to_str().unwrap(), "d001/e00019/f0000099");
        let of =
            |name: &str| tree.files.iter().filter(|f| f.to_str().unwrap().contains(name)).count();
        assert_eq!((of("e00000"), of("e00019")), (5, 5));
        for (files, directories) in [(100, 20), (7, 3), (1000, 7), (5, 5)] {
            let tree = Tree::new(files, directories);
            for (place, count) in &tree.leaves {
                let is_in = |file: &&CString| file.to_bytes().starts_with(place.to_bytes());
                assert_eq!(tree.files.iter().filter(is_in).count() as u64, *count);
            }
        }
        assert_eq!(Tree::new(3, 100).directories.len(), 4);
        assert_eq!(Tree::new(0, 100).files.len(), 0);
    }
}
