//! A volume's space in memory, for large files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conquest_access::Errno;
use conquest_format::PAGE;
use conquest_format::volume::BLOCK;
use conquest_fs::VolumeError;
use conquest_fs::large::{Answer, Room, Seen, Space};

/// Blocks of a page.
const PER: u64 = PAGE / BLOCK;

/// A page of the space.
#[derive(Clone)]
struct Page {
    bytes: Box<[u8; PAGE as usize]>,
    /// Another one each time that it is written.
    number: u64,
}

/// What all who have the space share.
#[derive(Default)]
struct Shared {
    pages: Mutex<BTreeMap<u64, Page>>,
    /// Pages that there is space for; 0 if that has no end.
    capacity: AtomicU64,
    /// Requests until all fail; 0 if none does.
    failing_in: AtomicU64,
    /// How often a page was written.
    written: AtomicU64,
    /// What a power cut takes away, in the order in which it was done; none if it takes nothing.
    unsettled: Mutex<Option<Vec<Undo>>>,
}

/// What pages were before a request; none if they were not there.
type Undo = Vec<(u64, Option<Page>)>;

/// A space in memory. Copies are the same space.
#[derive(Clone, Default)]
pub struct RamSpace(Arc<Shared>);

impl RamSpace {
    /// Lets it have space for `pages` pages and no more.
    pub fn limit(&self, pages: u64) {
        self.0.capacity.store(pages, Ordering::Relaxed);
    }

    /// Lets all requests fail after the next `count`; none, if that is none.
    pub fn fail_after(&self, count: Option<u64>) {
        self.0.failing_in.store(count.map_or(0, |count| count + 1), Ordering::Relaxed);
    }

    /// Whether requests fail now.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.0.failing_in.load(Ordering::Relaxed) == 1
    }

    /// Another space with the same in it.
    #[must_use]
    pub fn copy(&self) -> RamSpace {
        let pages = self.0.pages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let written = AtomicU64::new(self.0.written.load(Ordering::Relaxed));
        RamSpace(Arc::new(Shared { pages: Mutex::new(pages), written, ..Shared::default() }))
    }

    /// Another space with the same in it, and of which a power cut takes away what was not
    /// settled.
    #[must_use]
    pub fn losing(&self) -> RamSpace {
        let copy = self.copy();
        *copy.0.unsettled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        copy
    }

    /// Requests that a power cut may take away.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let unsettled = self.0.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        unsettled.as_ref().map_or(0, Vec::len)
    }

    /// Cuts the power: of what was not settled, the first `kept` requests stay.
    pub fn cut(&self, kept: usize) {
        let mut pages = self.0.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unsettled = self.0.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(requests) = unsettled.as_mut() else { return };
        for (page, was) in requests.split_off(kept.min(requests.len())).into_iter().rev().flatten()
        {
            match was {
                Some(was) => drop(pages.insert(page, was)),
                None => drop(pages.remove(&page)),
            }
        }
        requests.clear();
    }

    /// Notes what `range` of `pages` is before a request changes it.
    fn note(&self, pages: &BTreeMap<u64, Page>, range: core::ops::Range<u64>, is_trim: bool) {
        let mut unsettled = self.0.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(requests) = unsettled.as_mut() else { return };
        if range.is_empty() {
            return;
        }
        let there = pages.range(range.clone()).map(|(page, was)| (*page, Some(was.clone())));
        requests.push(match is_trim {
            true => there.collect(),
            false => range.map(|page| (page, pages.get(&page).cloned())).collect(),
        });
    }

    /// Pages in use.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<u64, Page>) -> Answer<T>) -> Answer<T> {
        let mut pages = self.0.pages.lock().unwrap_or_else(PoisonError::into_inner);
        match self.0.failing_in.load(Ordering::Relaxed) {
            0 => {}
            1 => return Err(VolumeError { errno: Errno::EIO, reason: "it fails".to_owned() }),
            left => self.0.failing_in.store(left - 1, Ordering::Relaxed),
        }
        work(&mut pages)
    }
}

impl core::fmt::Debug for RamSpace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RamSpace").field("pages", &self.pages()).finish()
    }
}

/// The parts of the `len` bytes from block `block` on, by pages: the page, where in it, where in
/// the bytes, and how many.
fn parts(block: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let at = u128::from(block) * u128::from(BLOCK) + done as u128;
        let within = (at % u128::from(PAGE)) as usize;
        let part = (PAGE as usize - within).min(len - done);
        let found = ((at / u128::from(PAGE)) as u64, within, done, part);
        done += part;
        (part > 0).then_some(found)
    })
}

/// The numbers of the pages that are the `count` blocks from block `block` on; none if that are no
/// pages, or not all of them are there.
fn numbers(pages: &BTreeMap<u64, Page>, block: u64, count: u64) -> Option<Vec<u64>> {
    let is_whole = block.is_multiple_of(PER) && count.is_multiple_of(PER);
    let one = |page: u64| pages.get(&page).map(|page| page.number);
    (block / PER..block / PER + count / PER).map(one).collect::<Option<_>>().filter(|_| is_whole)
}

impl Space for RamSpace {
    fn read(&self, block: u64, into: &mut [u8]) -> Answer<()> {
        self.with(|pages| {
            for (page, within, at, len) in parts(block, into.len()) {
                let Some(out) = into.get_mut(at..at + len) else { continue };
                let found = pages.get(&page).and_then(|page| page.bytes.get(within..within + len));
                match found {
                    Some(bytes) => out.copy_from_slice(bytes),
                    None => out.fill(0),
                }
            }
            Ok(())
        })
    }

    fn write(&self, block: u64, bytes: &[u8]) -> Answer<()> {
        let capacity = self.0.capacity.load(Ordering::Relaxed) as usize;
        self.with(|pages| {
            let end = block + (bytes.len() as u64).div_ceil(BLOCK);
            self.note(pages, block / PER..end.div_ceil(PER), false);
            for (page, within, at, len) in parts(block, bytes.len()) {
                if capacity != 0 && !pages.contains_key(&page) && pages.len() >= capacity {
                    let reason = "there is no space".to_owned();
                    return Err(VolumeError { errno: Errno::ENOSPC, reason });
                }
                let zeros = || Page { bytes: Box::new([0; PAGE as usize]), number: 0 };
                let place = pages.entry(page).or_insert_with(zeros);
                place.number = self.0.written.fetch_add(1, Ordering::Relaxed);
                if let Some((to, from)) =
                    place.bytes.get_mut(within..within + len).zip(bytes.get(at..at + len))
                {
                    to.copy_from_slice(from);
                }
            }
            Ok(())
        })
    }

    fn look(&self, block: u64, count: u64) -> Answer<Option<Seen>> {
        self.with(|pages| Ok(numbers(pages, block, count).map(Seen::new)))
    }

    fn write_over(&self, block: u64, bytes: &[u8], seen: &Seen, _is_kept: bool) -> Answer<bool> {
        self.with(|pages| {
            let now = numbers(pages, block, bytes.len() as u64 / BLOCK);
            if now.is_none() || now.as_ref() != seen.get() {
                return Ok(false);
            }
            self.note(pages, block / PER..block / PER + bytes.len() as u64 / PAGE, false);
            for ((_, page), new) in pages.range_mut(block / PER..).zip(bytes.chunks(PAGE as usize))
            {
                page.bytes.copy_from_slice(new);
                page.number = self.0.written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(true)
        })
    }

    fn trim(&self, block: u64, count: u64) -> Answer<()> {
        let per = PER;
        self.with(|pages| {
            // Only whole pages are trimmed here, as no other range is.
            let range = block.div_ceil(per)..(block + count) / per;
            self.note(pages, range.clone(), true);
            pages.retain(|page, _| !range.contains(page));
            Ok(())
        })
    }

    fn settle(&self) -> Answer<()> {
        self.with(|_| {
            let mut unsettled = self.0.unsettled.lock().unwrap_or_else(PoisonError::into_inner);
            unsettled.iter_mut().for_each(Vec::clear);
            Ok(())
        })
    }

    fn is_labelled(&self) -> bool {
        self.0.unsettled.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn room(&self) -> Answer<Room> {
        let per = PER;
        let used = self.pages() as u64 * per;
        let blocks = (self.0.capacity.load(Ordering::Relaxed) * per).max(used);
        Ok(Room { blocks, free: blocks - used })
    }

    fn allocated(&self, block: u64, count: u64) -> Answer<Option<(u64, u64)>> {
        let per = PER;
        self.with(|pages| {
            let mut run: Option<(u64, u64)> = None;
            for (&page, _) in pages.range(block / per..) {
                match &mut run {
                    None => run = Some((page, page + 1)),
                    Some((_, end)) if *end == page && page * per < block.saturating_add(count) => {
                        *end += 1;
                    }
                    Some(_) => break,
                }
            }
            Ok(run.map(|(first, end)| {
                let first = (first * per).max(block);
                (first, end * per - first)
            }))
        })
    }
}
