//! Space for a region before anybody uses it: a store must never find that there is none.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use conquest_format::PAGE;

use super::huge::Gathering;
use super::sys::checked;

/// Extends `file` to `len` bytes and allocates `ranges`, in huge pages if `gathering` is given and
/// there are any. Never shortens it, also not on failure: somebody else may have extended it
/// further meanwhile.
pub(super) fn back(
    file: &File,
    ranges: &[Range<u64>],
    len: u64,
    gathering: Option<&Gathering>,
) -> io::Result<()> {
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        if let Some(gathering) = gathering {
            gathering.gather(file, range);
        }
        match allocate(file, range.clone(), |file, start, len| {
            // SAFETY: no memory is passed.
            checked(unsafe { libc::fallocate(file.as_raw_fd(), 0, start, len) }).map(drop)
        }) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                write_zeros(file, range.clone())?;
            }
            result => result?,
        }
    }
    Ok(())
}

/// Calls `step` for `range`, in smaller and smaller pieces when signals interrupt it: an
/// interrupted call undoes itself, so that the whole might never get done.
fn allocate(
    file: &File,
    range: Range<u64>,
    mut step: impl FnMut(&File, i64, i64) -> io::Result<()>,
) -> io::Result<()> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let mut piece = range.end - range.start;
    let mut start = range.start;
    while start < range.end {
        let len = piece.min(range.end - start);
        let (from, bytes) =
            (i64::try_from(start).map_err(invalid)?, i64::try_from(len).map_err(invalid)?);
        match step(file, from, bytes) {
            Ok(()) => start += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                piece = (piece / 2).next_multiple_of(PAGE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Allocates by writing, where the file system can't otherwise. A page that holds anything has
/// space already and is left alone; zeros over zeros change nothing.
fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    let zeros = [0; PAGE as usize];
    let mut page = [0; PAGE as usize];
    let mut at = range.start;
    while at < range.end {
        let len = (PAGE - at % PAGE).min(range.end - at) as usize;
        file.read_exact_at(&mut page[..len], at)?;
        if page[..len] == zeros[..len] {
            file.write_all_at(&zeros[..len], at)?;
        }
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("conquest-{name}-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        file.unwrap()
    }

    #[test]
    fn interrupted_calls_go_on_in_smaller_pieces() {
        let mut calls = Vec::new();
        allocate(&temporary("pieces"), 4096..4096 * 10, |_, start, len| {
            calls.push((start / 4096, len / 4096));
            if len > 3 * 4096 {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(calls, [(1, 9), (1, 5), (1, 3), (4, 3), (7, 3)]);
    }

    #[test]
    fn writing_zeros_leaves_data_alone() {
        use std::os::unix::fs::MetadataExt;
        let file = temporary("zeros");
        file.set_len(8 * PAGE).unwrap();
        file.write_all_at(b"data", 3 * PAGE + 5).unwrap();
        write_zeros(&file, 1..8 * PAGE - 1).unwrap();
        let mut found = [0; 4];
        file.read_exact_at(&mut found, 3 * PAGE + 5).unwrap();
        assert_eq!(&found, b"data");
        file.sync_all().unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= 8 * PAGE);
    }
}
