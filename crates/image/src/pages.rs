//! Pages of an epoch: which of them go to the image, and which are in its log.
//!
//! A range takes a record of the volume, and there are only so many in an atomic write. So long
//! runs of pages, which are most of the bytes, are written to their places; what is left goes into
//! the log, where it is one range, until a checkpoint writes it to the image.

use conquest_flash::RANGES_MAX;
use conquest_format::{Offset, PAGE};
use conquest_pm::log::Copied;

/// Runs of pages that are written to the image by one epoch at most: one range is the log, one the
/// root.
pub(crate) const RUNS_MAX: usize = RANGES_MAX - 2;
/// Bytes that are written to the image by one epoch at most.
const IMAGE_MAX: u64 = 32 << 20;

/// Pages beside each other: the offset of the first one, and their bytes.
pub(crate) type Run = (Offset, Vec<u8>);

/// How the pages of an epoch are written.
#[derive(Default)]
pub(crate) struct Plan {
    /// To the image.
    pub(crate) runs: Vec<Run>,
    /// In the log.
    pub(crate) logged: Copied,
}

/// Splits `pages`: as many as can be go to the image.
pub(crate) fn plan(mut pages: Copied) -> Plan {
    let places: Vec<u64> = pages.keys().map(|at| at.bytes() / PAGE).collect();
    let mut runs: Vec<&[u64]> = places.chunk_by(|page, next| page + 1 == *next).collect();
    // The longest first.
    runs.sort_by_key(|run| (core::cmp::Reverse(run.len()), run.first().copied()));
    let mut plan = Plan::default();
    let mut used = 0;
    for run in runs {
        let len = run.len() as u64 * PAGE;
        let Some(first) = run.first().filter(|_| used + len <= IMAGE_MAX) else {
            continue;
        };
        if plan.runs.len() == RUNS_MAX {
            break;
        }
        used += len;
        let mut bytes = Vec::with_capacity(len as usize);
        for page in run.iter().filter_map(|page| pages.remove(&Offset::new(page * PAGE))) {
            bytes.extend(&*page);
        }
        plan.runs.push((Offset::new(first * PAGE), bytes));
    }
    plan.logged = pages;
    plan
}

#[test]
fn the_longest_runs_go_to_the_image() {
    let page = |value: u8| Box::new([value; PAGE as usize]);
    let mut pages = Copied::new();
    // Runs of one page, of which there are too many, and one of three.
    for index in 0..RUNS_MAX as u64 + 9 {
        pages.insert(Offset::new(2 * index * PAGE), page(index as u8));
    }
    pages.insert(Offset::new(3 * PAGE), page(200));
    let all = pages.clone();
    let Plan { runs, logged } = plan(pages);
    assert_eq!((runs.len(), runs[0].0, runs[0].1.len()), (RUNS_MAX, Offset::new(2 * PAGE), 12288));
    let mut found = logged;
    for (at, bytes) in runs {
        for (index, page) in (0..).zip(bytes.as_chunks::<{ PAGE as usize }>().0) {
            found.insert(at.plus(index * PAGE), Box::new(*page));
        }
    }
    assert_eq!(found, all);
}
