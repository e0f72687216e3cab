//! Loading a region from its image on a volume, while processes work on it.
//!
//! Who comes to a page that is not resident loads its group, or what of it is not resident: it is
//! read to a buffer first, which may take long, and holds nobody up. Then, alone, by a lock of the
//! kernel that ends with its process, those pages are written that are still not resident, and
//! after that their bits are set. So a page is seen as a whole or not at all; who dies leaves pages
//! that nobody looks at; and no page is written that somebody may have changed.
//!
//! Pages are written through the file, not through the mapping: that may be for reading only, and
//! a lack of memory is an error then, and no signal.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as Cause;
use std::fmt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use conquest_format::geometry::STATE as STATE_PAGE;
use conquest_format::residency::{
    FILE_LEN, GROUP_WORDS, GroupPages, HEAD, INCARNATION, LOADED_CHUNKS, LOADED_GROUPS, STATE,
    pages_in, state,
};
use conquest_format::{GROUP, GROUP_PAGES, Geometry, Offset, PAGE, WORD};

use super::claim::{Bytes, Claim, claim};
use super::fork::Token;
use super::mapped::Mapped;
use super::medium::Medium;
use super::sigbus::Reason;
use super::signals::NoSignals;
use super::sys::failed;
use crate::{Error, Result};

/// Pages that need not be read, but lie between others: so few are read with them.
const GAP: u64 = 16;
/// Sleep between two looks whether somebody is done with a group.
const NAP: Duration = Duration::from_micros(50);

/// Why a page could not be read.
pub type FillError = Box<dyn Cause + Send + Sync>;

/// What reading a page returns.
type Filled = core::result::Result<(), FillError>;
/// What loading returns.
type Loaded<T> = core::result::Result<T, Refused>;

/// A step of loading a group that others can see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The group is about to be claimed.
    Claim,
    /// Pages are about to be written.
    Write,
    /// Bits are about to be set.
    Mark,
    /// The group is about to be let go.
    Release,
}

/// What a region is loaded from.
pub trait Fill: fmt::Debug + Send + Sync {
    /// Reads the bytes at `at`, of pages that nobody has changed since the region's incarnation
    /// number `incarnation` was begun, as they were then.
    ///
    /// # Errors
    /// If they can't be read, or another incarnation has been begun since.
    fn fill(&self, incarnation: u64, at: Offset, out: &mut [u8]) -> Filled;

    /// Opens what it reads from for the calling process, which is another one than before: number
    /// `life` of a line of forks.
    ///
    /// # Errors
    /// If that can't be opened.
    fn reopen(&self, life: u32) -> Filled {
        let _ = life;
        Ok(())
    }

    /// Told of each step of loading a group, before it is taken: a test may die there.
    fn at_step(&self, step: Step) {
        let _ = step;
    }
}

/// Where the pages of a region on `medium` are loaded from that are not resident.
#[derive(Clone, Debug)]
pub struct LoadFrom {
    /// The region's file, which has a residency table.
    pub medium: Arc<Medium>,
    /// The region's layout.
    pub geometry: Geometry,
    /// What its pages are read from.
    pub fill: Arc<dyn Fill>,
}

impl LoadFrom {
    /// Gives a new file, which is to be the region, a residency table: nothing is resident.
    ///
    /// # Errors
    /// [`Error::System`], for lack of space as well.
    pub fn make_table(&self) -> Result<()> {
        let head = self.geometry.residency().start;
        self.medium.back(core::slice::from_ref(&(head..head + HEAD)), self.end())
    }

    pub(super) fn end(&self) -> u64 {
        self.geometry.residency().end
    }

    pub(super) fn never_loaded(&self) -> Range<u64> {
        self.geometry.never_loaded()
    }
}

/// How far loading is, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Of pages that are resident.
    pub resident: u64,
    /// Of all pages that are loaded.
    pub total: u64,
}

/// How a mapping loads what is not resident.
#[derive(Debug)]
pub(super) struct Loading {
    from: LoadFrom,
    /// The pages that are loaded.
    ranges: Vec<Range<u64>>,
    process: Token,
    /// That of a line of forks for which the source is open.
    life: AtomicU32,
    /// All is resident.
    is_complete: AtomicBool,
    /// There is no table any more.
    is_gone: AtomicBool,
}

/// Why something could not be loaded.
struct Refused {
    reason: Reason,
    cause: String,
}

impl Refused {
    fn no_room(error: &std::io::Error) -> Refused {
        let reason = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM) => Reason::NoRoom,
            _ => Reason::Unreadable,
        };
        Refused { reason, cause: format!("the core: {error}") }
    }
}

impl Loading {
    /// Of the region that `memory` has mapped, with its residency table.
    pub(super) fn begin(from: LoadFrom, memory: &Mapped) -> Result<Loading> {
        let geometry = &from.geometry;
        let path = from.medium.path();
        let process = Token::get().map_err(failed(path, "prepare for forks"))?;
        let word = |word| {
            let at = geometry.residency().start + word;
            memory.table_word(Offset::new(at)).map_or(0, |word| word.load(Ordering::Acquire))
        };
        let shape = geometry.shape();
        let (groups, chunks) = match word(STATE) {
            state::NEW => (shape.max_groups, shape.chunks.into()),
            state::LOADING | state::WHOLE => (word(LOADED_GROUPS), word(LOADED_CHUNKS)),
            found => return Err(corrupt(geometry, STATE, "a possible state", found)),
        };
        if groups > shape.max_groups || chunks > u64::from(shape.chunks) {
            return Err(corrupt(geometry, LOADED_GROUPS, "no more than the shape has", groups));
        }
        Ok(Loading {
            ranges: geometry.loaded(groups, chunks as u32),
            from,
            process,
            life: AtomicU32::new(0),
            is_complete: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        })
    }

    fn head(&self, word: u64) -> Offset {
        Offset::new(self.from.geometry.residency().start + word)
    }

    /// The groups that have pages which are loaded.
    fn groups(&self) -> BTreeSet<u64> {
        let groups = |range: &Range<u64>| range.start / GROUP..range.end.div_ceil(GROUP);
        self.ranges.iter().flat_map(groups).collect()
    }
}

fn corrupt(geometry: &Geometry, word: u64, expected: &'static str, found: u64) -> Error {
    let offset = Offset::new(geometry.residency().start + word);
    Error::Corrupt { what: "residency table", offset, expected, found }
}

/// The runs of the pages of a group that are in `pages`, and how long they are; two runs with up to
/// `gap` pages between them are one.
fn runs(pages: &GroupPages, gap: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for page in 0..GROUP_PAGES {
        let word = pages.get((page / 64) as usize).copied().unwrap_or(0);
        if word >> (page % 64) & 1 == 0 {
            continue;
        }
        match runs.last_mut() {
            Some(last) if page - last.end <= gap => last.end = page + 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// The pages of both.
fn both(one: &GroupPages, other: &GroupPages) -> GroupPages {
    core::array::from_fn(|index| one[index] & other[index])
}

impl Mapped {
    /// Sees to it that the pages of `range`, which is inside the region, are resident.
    pub(super) fn make_resident(&self, range: Range<u64>) -> core::result::Result<(), Reason> {
        let Some(loading) = self.loading() else {
            return Ok(());
        };
        // Superblocks are never loaded: they say whether there is a table.
        if range.end <= STATE_PAGE.bytes() || loading.is_complete.load(Ordering::Acquire) {
            return Ok(());
        }
        // What the child of a fork does that was inside an operation reaches nobody; zeros that it
        // took for something would reach its caller.
        if self.is_cut() {
            return Err(Reason::Inherited);
        }
        if self.look_whether_complete(loading) {
            return Ok(());
        }
        let mut page = range.start / PAGE;
        while page < range.end.div_ceil(PAGE) {
            if !self.is_resident(page) {
                let group = page / GROUP_PAGES;
                let missing = self.missing(loading, group);
                let bit = missing.get((page % GROUP_PAGES / 64) as usize).map_or(0, |it| *it);
                if bit >> (page % 64) & 1 == 1 {
                    self.load(loading, group, &missing).map_err(|refused| refused.reason)?;
                }
            }
            page += 1;
        }
        Ok(())
    }

    /// Whether all is resident; then this mapping need not ask any more.
    fn look_whether_complete(&self, loading: &Loading) -> bool {
        let found = self.table_word(loading.head(STATE));
        let is_complete = found.is_some_and(|word| word.load(Ordering::Acquire) == state::WHOLE);
        if is_complete {
            loading.is_complete.store(true, Ordering::Release);
            self.open_windows();
        }
        is_complete
    }

    /// Whether the bit of page `page`, counted from the region's start, is set.
    fn is_resident(&self, page: u64) -> bool {
        let Some(loading) = self.loading() else {
            return true;
        };
        let line = loading.from.geometry.residency_line(page / GROUP_PAGES);
        let word = self.table_word(line.plus(page % GROUP_PAGES / 64 * WORD));
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (page % 64) & 1 == 1)
    }

    /// The pages of group `group`, counted from the region's start, that are to be loaded.
    fn missing(&self, loading: &Loading, group: u64) -> GroupPages {
        let line = loading.from.geometry.residency_line(group);
        let mut pages = pages_in(&loading.ranges, group);
        for (index, word) in (0..).zip(&mut pages) {
            let set = self.table_word(line.plus(index * WORD));
            *word &= !set.map_or(0, |set| set.load(Ordering::Acquire));
        }
        pages
    }

    /// Loads those `wanted` pages of group `group` that are not resident.
    fn load(&self, loading: &Loading, group: u64, wanted: &GroupPages) -> Loaded<()> {
        let Loading { from, .. } = loading;
        let incarnation = self.table_word(loading.head(INCARNATION));
        let incarnation = incarnation.map_or(0, |word| word.load(Ordering::Acquire));
        let first = group * GROUP_PAGES;
        let mut read = Vec::new();
        for run in runs(wanted, GAP) {
            let mut bytes = vec![0; ((run.end - run.start) * PAGE) as usize];
            let at = Offset::new((first + run.start) * PAGE);
            from.fill.fill(incarnation, at, &mut bytes).map_err(|cause| Refused {
                reason: Reason::Unreadable,
                cause: cause.to_string(),
            })?;
            read.push((run, bytes));
        }
        loop {
            // Whoever has it claimed is about to be done. A handler must not wait for the thread
            // that it has interrupted.
            let signals = NoSignals::begin();
            from.fill.at_step(Step::Claim);
            if let Some(claim) = self.claim_group(loading, group)? {
                let written = self.write(loading, group, wanted, &read);
                from.fill.at_step(Step::Release);
                drop(claim);
                return written;
            }
            drop(signals);
            std::thread::sleep(NAP);
            if both(&self.missing(loading, group), wanted) == [0; GROUP_WORDS] {
                return Ok(());
            }
        }
    }

    fn claim_group(&self, loading: &Loading, group: u64) -> Loaded<Option<Claim>> {
        let start = loading.from.geometry.residency_line(group).bytes();
        claim(&loading.from.medium, Bytes { start, len: 1 }, loading.process)
            .map_err(|error| Refused { reason: Reason::Unreadable, cause: error.to_string() })
    }

    /// Writes what was `read` of group `group`, which is claimed, as far as it is `wanted` and not
    /// resident yet.
    fn write(
        &self,
        loading: &Loading,
        group: u64,
        wanted: &GroupPages,
        read: &[(Range<u64>, Vec<u8>)],
    ) -> Loaded<()> {
        let Loading { from, .. } = loading;
        let missing = both(&self.missing(loading, group), wanted);
        if missing == [0; GROUP_WORDS] {
            return Ok(());
        }
        let file = from.medium.reopen();
        let file =
            file.map_err(|error| Refused { reason: Reason::Unreadable, cause: error.to_string() })?;
        for run in runs(&missing, 0) {
            let within =
                |(had, _): &&(Range<u64>, Vec<u8>)| had.start <= run.start && run.end <= had.end;
            let bytes = read.iter().find(within).and_then(|(had, bytes)| {
                let start = ((run.start - had.start) * PAGE) as usize;
                bytes.get(start..start + ((run.end - run.start) * PAGE) as usize)
            });
            from.fill.at_step(Step::Write);
            let at = (group * GROUP_PAGES + run.start) * PAGE;
            file.write_all_at(bytes.unwrap_or_default(), at)
                .map_err(|error| Refused::no_room(&error))?;
        }
        let line = from.geometry.residency_line(group);
        for (index, bits) in (0..).zip(missing) {
            if bits != 0
                && let Some(word) = self.table_word(line.plus(index * WORD))
            {
                from.fill.at_step(Step::Mark);
                word.fetch_or(bits, Ordering::Release);
            }
        }
        Ok(())
    }

    /// How far loading is; none if all is resident.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        let loading = self.loading().filter(|it| !it.is_complete.load(Ordering::Acquire))?;
        if self.is_cut() || self.look_whether_complete(loading) {
            return None;
        }
        let mut progress = Progress { resident: 0, total: 0 };
        let count = |pages: &GroupPages| pages.iter().map(|it| u64::from(it.count_ones())).sum();
        for group in loading.groups() {
            let all: u64 = count(&pages_in(&loading.ranges, group));
            let missing: u64 = count(&self.missing(loading, group));
            progress.total += all * PAGE;
            progress.resident += (all - missing) * PAGE;
        }
        Some(progress)
    }

    /// Groups with pages that are not resident, counted from the region's start.
    #[must_use]
    pub fn groups_to_load(&self) -> Vec<u64> {
        let Some(loading) = self.loading() else {
            return Vec::new();
        };
        if self.progress().is_none() {
            return Vec::new();
        }
        let is_to_load = |group: &u64| self.missing(loading, *group) != [0; GROUP_WORDS];
        loading.groups().into_iter().filter(is_to_load).collect()
    }

    /// Loads `groups`, counted from the region's start, in their order, by several `threads` at
    /// once, until `stop` is set.
    ///
    /// # Errors
    /// [`Error::NotLoaded`].
    pub fn load_groups(&self, groups: &[u64], threads: usize, stop: &AtomicBool) -> Result<()> {
        let Some(loading) = self.loading() else {
            return Ok(());
        };
        let all = |group: u64| (group, self.missing(loading, group));
        self.load_in_threads(loading, groups.len(), threads, stop, |index| {
            groups.get(index).map(|&group| all(group))
        })
    }

    /// Loads `pages`, which nobody else does, by several `threads` at once.
    ///
    /// # Errors
    /// [`Error::NotLoaded`].
    pub fn load_pages(&self, pages: &BTreeSet<Offset>, threads: usize) -> Result<()> {
        let Some(loading) = self.loading() else {
            return Ok(());
        };
        let mut wanted: BTreeMap<u64, GroupPages> = BTreeMap::new();
        for at in pages {
            let page = at.bytes() / PAGE;
            let group = wanted.entry(page / GROUP_PAGES).or_default();
            if let Some(word) = group.get_mut((page % GROUP_PAGES / 64) as usize) {
                *word |= 1 << (page % 64);
            }
        }
        let wanted: Vec<(u64, GroupPages)> = wanted.into_iter().collect();
        let never = AtomicBool::new(false);
        self.load_in_threads(loading, wanted.len(), threads, &never, |index| {
            let (group, pages) = wanted.get(index)?;
            Some((*group, both(pages, &self.missing(loading, *group))))
        })
    }

    fn load_in_threads(
        &self,
        loading: &Loading,
        count: usize,
        threads: usize,
        stop: &AtomicBool,
        nth: impl Fn(usize) -> Option<(u64, GroupPages)> + Sync,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || {
            while !stop.load(Ordering::Relaxed)
                && let Some((group, pages)) = nth(next.fetch_add(1, Ordering::Relaxed))
            {
                if pages != [0; GROUP_WORDS]
                    && let Err(Refused { cause, .. }) = self.load(loading, group, &pages)
                {
                    let path = self.path().to_owned();
                    return Err(Error::NotLoaded { path, reason: cause });
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for worker in workers {
                done = done.and(worker.join().unwrap_or(Ok(())));
            }
            done
        })
    }

    /// Says that all is resident, if it is; whether it is.
    pub fn complete_loading(&self) -> bool {
        let Some(loading) = self.loading() else {
            return true;
        };
        let Some(Progress { resident, total }) = self.progress() else {
            return true;
        };
        if resident < total {
            return false;
        }
        if let Some(word) = self.table_word(loading.head(STATE)) {
            // Only what is being loaded is complete: who makes the region anew has a word to say.
            let (order, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let _was = word.compare_exchange(state::LOADING, state::WHOLE, order, failure);
        }
        self.look_whether_complete(loading)
    }

    /// Begins to make the region anew, as its incarnation number `incarnation`: from now on pages
    /// that are not resident are loaded.
    pub fn begin_loading(&self, incarnation: u64) {
        if let Some(loading) = self.loading()
            && let Some(word) = self.table_word(loading.head(INCARNATION))
        {
            word.store(incarnation, Ordering::Release);
        }
    }

    /// Ends making the region anew: it has `groups` groups and `chunks` chunks of holdings, of
    /// which everything that is not resident is to be loaded.
    pub fn made_anew(&self, groups: u64, chunks: u64) {
        let Some(loading) = self.loading() else {
            return;
        };
        let len = loading.from.geometry.len_at(groups);
        let words = [(LOADED_GROUPS, groups), (LOADED_CHUNKS, chunks), (FILE_LEN, len)];
        for (word, value) in words.into_iter().chain([(STATE, state::LOADING)]) {
            if let Some(word) = self.table_word(loading.head(word)) {
                word.store(value, Ordering::Release);
            }
        }
    }

    /// Bytes that the file would have without a residency table, if it has one.
    #[must_use]
    pub fn len_without_table(&self) -> Option<u64> {
        let loading = self.loading().filter(|it| !it.is_gone.load(Ordering::Acquire))?;
        self.table_word(loading.head(FILE_LEN)).map(|word| word.load(Ordering::Acquire))
    }

    /// Notes that the file would have at least `len` bytes without a residency table, if there is
    /// one.
    pub fn note_len(&self, len: u64) {
        if let Some(loading) = self.loading().filter(|it| !it.is_gone.load(Ordering::Acquire))
            && let Some(word) = self.table_word(loading.head(FILE_LEN))
        {
            word.fetch_max(len, Ordering::AcqRel);
        }
    }

    /// Whether there is a residency table, and process number `life` of a line of forks is to use
    /// it: what it loads from is open from then on.
    pub(super) fn found_table(&self, is_there: bool, life: u32) -> Result<()> {
        let Some(loading) = self.loading() else {
            let path = self.path().to_owned();
            return if is_there { Err(Error::Loading { path }) } else { Ok(()) };
        };
        if !is_there {
            loading.is_gone.store(true, Ordering::Release);
            loading.is_complete.store(true, Ordering::Release);
            self.open_windows();
        } else if loading.life.load(Ordering::Relaxed) != life {
            loading.from.fill.reopen(life).map_err(|cause| Error::NotLoaded {
                path: self.path().to_owned(),
                reason: cause.to_string(),
            })?;
            loading.life.store(life, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the residency table away, which no superblock names any more: nobody is attached.
    pub(super) fn drop_table(&self, len: u64) -> Result<()> {
        let noted = self.len_without_table();
        self.found_table(false, 0)?;
        match (self.loading(), noted) {
            (Some(loading), Some(noted)) => loading.from.medium.shorten(len.max(noted)),
            _ => Ok(()),
        }
    }
}
