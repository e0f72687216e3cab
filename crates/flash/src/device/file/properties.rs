//! What the system says about a file or a block device.

use std::fs::File;
use std::io;

use conquest_uring::Buffer;
use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, Stat, StatxFlags};

use crate::device::{Limits, invalid};

/// What a page of the kernel's cache has at least, and what is taken for the physical block where
/// the system doesn't tell.
const PAGE: u32 = 4096;
/// Larger blocks are not taken for physical ones: file systems of networks tell their favourite
/// length of transfers.
const PHYSICAL_MAX: u32 = 65_536;

#[derive(Debug)]
pub(super) struct Properties {
    pub(super) is_regular: bool,
    /// Bytes.
    pub(super) len: u64,
    pub(super) limits: Limits,
    /// Bytes of which the address of memory has to be a multiple; none if transfers use the
    /// kernel's cache.
    pub(super) memory: Option<u32>,
    /// Bytes that the medium discards at once.
    pub(super) granularity: u64,
}

/// Alignment of transfers past the kernel's cache.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    memory: u32,
    offset: u32,
}

/// Whether it is a regular file; `EINVAL` if it is no block device either.
pub(super) fn is_regular(stat: &Stat) -> io::Result<bool> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(true),
        FileType::BlockDevice => Ok(false),
        _ => Err(invalid()),
    }
}

impl Properties {
    /// Asks about `file`, and sets it to transfer past the kernel's cache if it can.
    pub(super) fn of(file: &File) -> io::Result<Properties> {
        let stat = rustix::fs::fstat(file)?;
        let is_regular = is_regular(&stat)?;
        let logical = if is_regular { 512 } else { rustix::fs::ioctl_blksszget(file)? };
        let direct = go_direct(file, logical)?;
        let block = direct.map_or(logical, |found| found.offset);
        let len = rustix::fs::seek(file, SeekFrom::End(0))?;
        let queue = Queue::of(if is_regular { stat.st_dev } else { stat.st_rdev });
        let known = if is_regular {
            queue.number("physical_block_size").unwrap_or(PAGE.into())
        } else {
            rustix::fs::ioctl_blkpbszget(file)?.into()
        };
        let known = u32::try_from(known).unwrap_or(PHYSICAL_MAX);
        // Through the cache, whole pages and blocks of the file system are written.
        let least = match direct {
            Some(_) => block,
            None => block.max(PAGE).max(if is_regular { fragment(file)? } else { 0 }),
        };
        let physical = known.min(PHYSICAL_MAX).next_power_of_two().max(least);
        let is_through = queue.text("write_cache").is_some_and(|text| text == "write through");
        let discarded = queue.number("discard_max_bytes").unwrap_or(0);
        Ok(Properties {
            is_regular,
            len: len - len % u64::from(block),
            limits: Limits {
                block,
                physical,
                erase: None,
                // Where the system keeps a file's metadata, flushes are needed in any case.
                is_cached: is_regular || direct.is_none() || !is_through,
                discards: !is_regular && discarded > 0,
                // Through the cache, and on a block device as such, the kernel flushes behind a
                // synchronous write that is to be durable.
                fua: is_regular && direct.is_some() && queue.number("fua") == Some(1),
            },
            memory: direct.map(|found| found.memory),
            granularity: queue.number("discard_granularity").unwrap_or(0).max(block.into()),
        })
    }
}

/// Bytes of a block of the file system of `file`, if they are plausible.
fn fragment(file: &File) -> io::Result<u32> {
    let found = rustix::fs::fstatvfs(file)?.f_frsize;
    let plausible = u32::try_from(found).ok().filter(|found| found.is_power_of_two());
    Ok(plausible.unwrap_or(PAGE).min(PHYSICAL_MAX))
}

/// Sets `file` to transfer past the kernel's cache, and tells what alignment that wants; none if it
/// can't. `logical` is the least possible alignment.
fn go_direct(file: &File, logical: u32) -> io::Result<Option<Alignment>> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => {}
        Err(rustix::io::Errno::INVAL) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    for alignment in candidates(file, logical)? {
        if works(file, alignment)? {
            return Ok(Some(alignment));
        }
    }
    rustix::fs::fcntl_setfl(file, flags)?;
    Ok(None)
}

/// What may be the alignment of `file`: what the kernel says, or guesses in rising order.
fn candidates(file: &File, logical: u32) -> io::Result<Vec<Alignment>> {
    let said = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let said = said.ok().filter(|said| said.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let least = logical.max(512);
    if let Some(said) = said {
        if said.stx_dio_offset_align == 0 {
            return Ok(Vec::new());
        }
        let memory = said.stx_dio_mem_align.max(1).next_power_of_two();
        let offset = said.stx_dio_offset_align.next_power_of_two().max(least);
        return Ok(vec![Alignment { memory, offset }]);
    }
    let guesses = [least, least.max(PAGE)];
    Ok(guesses.map(|align| Alignment { memory: align, offset: align }).to_vec())
}

/// Whether transfers of this alignment are taken. (Of a file that has no second block, nobody can
/// tell: the first one is at a place that is aligned in all ways.)
fn works(file: &File, alignment: Alignment) -> io::Result<bool> {
    let mut buffer = Buffer::new(alignment.offset as usize)?;
    match rustix::io::pread(file, &mut buffer[..], alignment.offset.into()) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// What the system says about the queue of a block device; nothing if it is none.
struct Queue {
    places: [String; 2],
}

impl Queue {
    fn of(device: u64) -> Queue {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let device = format!("/sys/dev/block/{major}:{minor}");
        // A partition has none; its parent has.
        Queue { places: [format!("{device}/queue"), format!("{device}/../queue")] }
    }

    fn text(&self, attribute: &str) -> Option<String> {
        let read = |place| std::fs::read_to_string(format!("{place}/{attribute}")).ok();
        self.places.iter().find_map(read).map(|text| text.trim().to_owned())
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        self.text(attribute)?.parse().ok()
    }
}
