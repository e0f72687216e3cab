//! What is on a device, as values that can be kept: pages are shared until they change.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// Bytes that a device may lose or keep by itself, at least.
pub const SECTOR: u64 = 512;

const PAGE: u64 = 4096;

type Page = Arc<[u8; PAGE as usize]>;

/// The bytes of a device, and what of them can't be read.
#[derive(Clone, Debug)]
pub struct Medium {
    pages: Vec<Page>,
    /// Numbers of sectors that can't be read until they are written.
    bad: BTreeSet<u64>,
}

impl Medium {
    /// `len` zeros, whole pages of 4 KiB.
    #[must_use]
    pub fn new(len: u64) -> Medium {
        let zeros = Arc::new([0; PAGE as usize]);
        Medium { pages: vec![zeros; len.div_ceil(PAGE) as usize], bad: BTreeSet::new() }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Reads all of `into` from byte `at` on.
    ///
    /// # Errors
    /// `EIO` where something can't be read, `EINVAL` behind the end.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = at + into.len() as u64;
        if self.bad.range(at / SECTOR..end.div_ceil(SECTOR)).next().is_some() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let page = self.pages.get((at / PAGE) as usize).ok_or(io::ErrorKind::InvalidInput)?;
            let skip = (at % PAGE) as usize;
            let count = rest.len().min(PAGE as usize - skip);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(page.get(skip..skip + count).unwrap_or_default());
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes `bytes` from byte `at` on, as far as there is room.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        if !self.bad.is_empty() {
            self.bad.retain(|sector| !(at / SECTOR..end.div_ceil(SECTOR)).contains(sector));
        }
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let skip = (at % PAGE) as usize;
            let count = rest.len().min(PAGE as usize - skip);
            let (now, later) = rest.split_at(count);
            let page = self.pages.get_mut((at / PAGE) as usize).map(Arc::make_mut);
            if let Some(into) = page.and_then(|page| page.get_mut(skip..skip + count)) {
                into.copy_from_slice(now);
            }
            at += count as u64;
            rest = later;
        }
    }

    /// Makes the sectors of `len` bytes at `at` fail to be read.
    pub fn spoil(&mut self, at: u64, len: u64) {
        self.bad.extend(at / SECTOR..(at + len).div_ceil(SECTOR));
    }
}
