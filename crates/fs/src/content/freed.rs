//! Pages that a transaction frees.

use conquest_format::fs::DATA;
use conquest_format::{GROUP_PAGES, Offset, PAGE};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::Result;

/// Collects pages of data that stand in a row, so that they are freed together.
#[derive(Default)]
pub(super) struct Freed {
    /// First page and pages of what is still to be staged.
    run: Option<(Offset, u64)>,
    /// Pages added.
    pages: u64,
}

impl Freed {
    /// Adds `pages` pages at `at`, of one group.
    pub(super) fn add<M: Memory, H: Host>(
        &mut self,
        tx: &mut Tx<'_, M, H>,
        at: Offset,
        pages: u64,
    ) -> Result<()> {
        self.pages += pages;
        self.run = match self.run {
            Some((first, len)) if continues(tx, first, len, at) => Some((first, len + pages)),
            run => {
                free(tx, run)?;
                Some((at, pages))
            }
        };
        Ok(())
    }

    /// Stages what is left; how many pages were freed in all.
    pub(super) fn finish<M: Memory, H: Host>(self, tx: &mut Tx<'_, M, H>) -> Result<u64> {
        free(tx, self.run)?;
        Ok(self.pages)
    }
}

/// Whether the page at `at` comes after the `len` pages from `first` on, in the same group.
fn continues<M: Memory, H: Host>(tx: &Tx<'_, M, H>, first: Offset, len: u64, at: Offset) -> bool {
    let group = |at| tx.core().geometry().page_of(at).map(|page| page / GROUP_PAGES);
    first.plus(len * PAGE) == at && group(first) == group(at)
}

fn free<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, run: Option<(Offset, u64)>) -> Result<()> {
    if let Some((first, len)) = run {
        tx.free_run(first, len, DATA)?;
    }
    Ok(())
}
