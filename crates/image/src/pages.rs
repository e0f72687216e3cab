//! Pages of an epoch: which of them go to the image, and which are in its log.
//!
//! A range takes a record of the volume, and there are only so many in an atomic write. So long
//! runs of pages, which are most of the bytes, are written to their places; what is left goes into
//! the log, where it is one range, until a checkpoint writes it to the image.

use std::borrow::Cow;
use std::sync::Mutex;

use conquest_flash::RANGES_MAX;
use conquest_format::{Offset, PAGE};
use conquest_pm::log::{Bytes, Copied};

/// Runs of pages that are written to the image by one epoch at most: one range is the log, one the
/// root.
pub(crate) const RUNS_MAX: usize = RANGES_MAX - 2;
/// Bytes that are written to the image by one epoch at most.
const IMAGE_MAX: u64 = 32 << 20;

/// Pages of an epoch for which memory is kept: as many as it writes to the image.
const KEPT_PAGES: usize = (IMAGE_MAX / PAGE) as usize;
/// How many times so many: two epochs are under way at most.
const KEPT: usize = 2;

/// Pages beside each other: the offset of the first one, and their bytes.
pub(crate) type Run<'c> = (Offset, Cow<'c, [u8]>);

/// How the pages of an epoch are written.
#[derive(Default)]
pub(crate) struct Plan<'c> {
    /// To the image.
    pub(crate) runs: Vec<Run<'c>>,
    /// In the log.
    pub(crate) logged: Vec<Offset>,
}

/// Splits `pages`: as many as can be go to the image.
pub(crate) fn plan(pages: &Copied) -> Plan<'_> {
    let places: Vec<Offset> = pages.places().collect();
    let mut runs: Vec<&[Offset]> = places.chunk_by(|page, next| page.plus(PAGE) == *next).collect();
    // The longest first.
    runs.sort_by_key(|run| (core::cmp::Reverse(run.len()), run.first().copied()));
    let mut plan = Plan::default();
    let mut used = 0;
    for run in runs {
        let len = run.len() as u64 * PAGE;
        match run.first() {
            Some(&first) if plan.runs.len() < RUNS_MAX && used + len <= IMAGE_MAX => {
                used += len;
                plan.runs.push((first, pages.run(first, run.len())));
            }
            _ => plan.logged.extend(run),
        }
    }
    plan.logged.sort_unstable();
    plan
}

/// Memory for pages of epochs that nobody uses.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<Vec<Bytes>>>);

impl Kept {
    /// For pages of an epoch: none, and memory for some, if there is any.
    pub(crate) fn take(&self) -> Copied {
        // It is not waited for: in a forked child another thread may have it for ever.
        let kept = self.0.try_lock().ok().and_then(|mut kept| kept.pop());
        kept.map_or_else(Copied::new, Copied::within)
    }

    /// Keeps the memory of `pages`, which nobody needs any more, but not more of it than most
    /// epochs need.
    pub(crate) fn give(&self, pages: Copied) {
        let mut memory = pages.into_memory();
        if let Ok(mut kept) = self.0.try_lock()
            && kept.len() < KEPT
        {
            memory.truncate(KEPT_PAGES);
            memory.shrink_to(KEPT_PAGES);
            kept.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pages: &mut Copied, page: u64, value: u8) {
        pages.add(Offset::new(page * PAGE), |bytes| *bytes = [value; PAGE as usize]);
    }

    #[test]
    fn the_longest_runs_go_to_the_image() {
        let mut pages = Copied::new();
        // Runs of one page, of which there are too many, and one of three.
        for index in 0..RUNS_MAX as u64 + 9 {
            add(&mut pages, 2 * index, index as u8);
        }
        add(&mut pages, 3, 200);
        let Plan { runs, logged } = plan(&pages);
        let first = (runs[0].0, runs[0].1.len());
        assert_eq!((runs.len(), first), (RUNS_MAX, (Offset::new(2 * PAGE), 12288)));
        let mut found = Copied::new();
        for at in logged {
            found.add(at, |bytes| *bytes = *pages.get(at).unwrap());
        }
        for (at, bytes) in runs {
            for (index, page) in (0..).zip(bytes.as_chunks::<{ PAGE as usize }>().0) {
                found.add(at.plus(index * PAGE), |bytes| *bytes = *page);
            }
        }
        assert_eq!(found, pages);
    }

    #[test]
    fn what_does_not_fit_to_the_image_is_logged() {
        let mut pages = Copied::new();
        (0..KEPT_PAGES as u64 + 1).for_each(|page| add(&mut pages, page, 1));
        add(&mut pages, KEPT_PAGES as u64 + 9, 1);
        let Plan { runs, logged } = plan(&pages);
        assert_eq!((runs.len(), runs[0].1.len()), (1, PAGE as usize));
        assert_eq!(logged.len(), KEPT_PAGES + 1);
        assert!(logged.is_sorted());
    }

    #[test]
    fn as_much_goes_to_the_image_as_may() {
        let mut pages = Copied::new();
        (0..KEPT_PAGES as u64).for_each(|page| add(&mut pages, page, 1));
        let Plan { runs, logged } = plan(&pages);
        assert_eq!((runs.len(), logged.len()), (1, 0));
    }

    #[test]
    fn what_is_logged_is_in_order() {
        let mut pages = Copied::new();
        // A run that leaves no room for two others, of which the longer one is behind.
        let most = KEPT_PAGES as u64 - 1;
        let runs = (0..most).chain(most + 1..most + 3).chain(most + 9..most + 12);
        runs.for_each(|page| add(&mut pages, page, 1));
        let Plan { runs, logged } = plan(&pages);
        assert_eq!((runs.len(), logged.len()), (1, 5));
        assert!(logged.is_sorted());
    }

    #[test]
    fn memory_of_most_epochs_is_kept() {
        let kept = Kept::default();
        assert_eq!(kept.take().into_memory().len(), 0);
        for count in [5, KEPT_PAGES + 10, 7] {
            let mut pages = Copied::new();
            (0..count as u64).for_each(|page| add(&mut pages, page, 1));
            kept.give(pages);
        }
        // The third one was one too many.
        let sizes = [(); 3].map(|()| {
            let pages = kept.take();
            assert!(pages.is_empty());
            let memory = pages.into_memory();
            assert!(memory.capacity() <= KEPT_PAGES);
            memory.len()
        });
        assert_eq!(sizes, [KEPT_PAGES, 5, 0]);
    }
}
