//! Checkpoints: pages that records have changed go to the image, and the log begins anew.
//!
//! Of several that are written at the same time one comes to its end; the others give up. For a
//! repeated record counts as long as the epoch is in the log that has it, also if others have
//! changed the same words since: these are in the log, too, behind where it begins. If another
//! checkpoint that was begun later let it begin behind these, and before that epoch, the older
//! record would undo them. One that is begun later than the other one's end lets the log begin
//! behind that epoch.

use std::collections::BTreeSet;

use conquest_format::geometry::STATE;
use conquest_format::image::{LOG, Root};
use conquest_format::log::{Fragments, Item, Items};
use conquest_format::{Offset, PAGE};
use conquest_pm::Core;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::epoch::Start;
use crate::pages::RUNS_MAX;
use crate::sync::take_lead;
use crate::{Image, Result};

/// Runs of pages that one epoch of a checkpoint writes, and pages: they go to the image, if what
/// comes with them is not more. Whoever syncs waits while they are copied and written.
const RUNS: usize = RUNS_MAX / 2;
const PAGES: usize = 512;

/// What the log has of before a checkpoint.
struct Before {
    /// Pages that it has changed.
    pages: BTreeSet<Offset>,
    /// Fragments that are needed all the same.
    repeated: Vec<u8>,
    /// Where the first epoch begins that has what is needed, or the next one will.
    log_start: u64,
}

/// `pages` in parts, each for an epoch.
fn in_parts(pages: &BTreeSet<Offset>) -> Vec<Vec<Offset>> {
    let (mut parts, mut part) = (Vec::new(), Vec::new());
    let (mut runs, mut before) = (0, None);
    for &at in pages {
        let begins_run = before != Some(at);
        if part.len() == PAGES || begins_run && runs == RUNS {
            parts.push(std::mem::take(&mut part));
            runs = 0;
        }
        runs += usize::from(begins_run || part.is_empty());
        part.push(at);
        before = Some(at.plus(PAGE));
    }
    parts.push(part);
    parts
}

impl<M: Memory, H: Host> Image<M, H> {
    /// Writes what the log has changed of the region to the image, and gives the log's space back,
    /// but for what has come since this began.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn checkpoint<N: Memory, I: Host>(&self, core: &Core<N, I>) -> Result<()> {
        self.checkpoint_beside(core, || ())
    }

    /// [`Self::checkpoint`], which takes its time; `other` work, which may wait for something to be
    /// durable, is done each few milliseconds meanwhile.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn checkpoint_beside<N: Memory, I: Host>(
        &self,
        core: &Core<N, I>,
        mut other: impl FnMut(),
    ) -> Result<()> {
        let follows = self.root()?.log_start;
        let begun = core.begin_checkpoint()?;
        self.sync(core)?;
        let root = self.root()?;
        let before = match self.before(&root, begun.sequence, &begun.unapplied, &mut other) {
            // Somebody else has done it meanwhile, and given the log back.
            _ if self.root()?.log_start != follows => return Ok(()),
            before => before?,
        };
        if before.log_start == follows {
            // There was nothing in it.
            return Ok(());
        }
        let parts = in_parts(&before.pages);
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            let checkpoint = begun.sequence.min(root.cut);
            let start = Start { follows, log_start: before.log_start, checkpoint };
            let repeated = if is_last { &before.repeated[..] } else { &[] };
            self.write_pages(core, part, repeated, is_last.then_some(start))?;
            other();
        }
        self.volume.flush()?;
        self.trim_log()
    }

    /// What of the log of `root` comes before record `sequence`, of which the log will begin. After
    /// each epoch `other` work is done.
    fn before(
        &self,
        root: &Root,
        sequence: u64,
        unapplied: &BTreeSet<u64>,
        mut other: impl FnMut(),
    ) -> Result<Before> {
        // No record says how many groups there are.
        let pages = BTreeSet::from([STATE]);
        let mut before = Before { pages, repeated: Vec::new(), log_start: root.log_end };
        self.epochs(root, |at, epoch| {
            if epoch.header.cut > sequence {
                before.log_start = before.log_start.min(at);
            }
            before.pages.extend(epoch.places());
            for (number, _, fragment) in Fragments::of(epoch.fragments) {
                if unapplied.contains(&number) {
                    before.repeated.extend(fragment);
                }
                before.pages.extend(Items::of(fragment).flat_map(Item::changed_pages));
            }
            other();
            Ok(())
        })?;
        Ok(before)
    }

    /// Writes the `pages` as they are by an epoch, with fragments that are `repeated`; unless the
    /// log has begun anew meanwhile, and this is to `start` it.
    fn write_pages<N: Memory, I: Host>(
        &self,
        core: &Core<N, I>,
        pages: &[Offset],
        repeated: &[u8],
        start: Option<Start>,
    ) -> Result<()> {
        loop {
            let Some(mut lead) = take_lead(core, || false) else {
                continue;
            };
            let (root, seen) = self.look_for(core)?;
            if start.is_some_and(|start| start.follows != root.log_start) {
                return Ok(());
            }
            let mut copied = self.kept.take();
            pages.iter().for_each(|&at| core.copy_page(at, &mut copied));
            let mut sealed = match core.seal(root.cut, copied) {
                Ok(Some(sealed)) => sealed,
                Ok(None) | Err(conquest_pm::Error::Again) => continue,
                Err(error) => return Err(error.into()),
            };
            sealed.fragments.extend(repeated);
            if let Some(root) = self.write_epoch(&root, seen, sealed, start)? {
                // It is durable, too, when the next one is.
                if root.cut > core.durable() {
                    self.volume.flush_telling(|| lead.hand_on())?;
                    core.set_durable(root.cut)?;
                }
                return Ok(());
            }
        }
    }

    /// Gives back what the log does not need any more.
    fn trim_log(&self) -> Result<()> {
        let root = self.root()?;
        if let Some((first, _)) = self.volume.allocated(LOG)?
            && first < LOG + root.log_start
        {
            self.volume.trim(LOG, root.log_start)?;
        }
        Ok(())
    }
}

#[test]
fn parts_have_no_more_runs_and_pages_than_an_epoch_takes() {
    let page = |number: u64| Offset::new(number * PAGE);
    // A long run, of which a part begins with the rest, a page; runs of one, two and three pages;
    // and one more.
    let runs = (0..400).flat_map(|run| (0..=run % 3).map(move |index| 6000 + run * 4 + index));
    let pages: BTreeSet<Offset> =
        (0..9 * PAGES as u64 + 1).chain(runs).chain(8000..8000 + 9000).map(page).collect();
    let parts = in_parts(&pages);
    assert_eq!(parts.concat(), pages.iter().copied().collect::<Vec<_>>());
    for (index, part) in parts.iter().enumerate() {
        let runs = part.chunk_by(|at, next| at.plus(PAGE) == *next).count();
        assert!(runs <= RUNS && part.len() <= PAGES);
        let is_full = runs == RUNS || part.len() == PAGES;
        assert!(is_full || index + 1 == parts.len(), "part {index}: {runs} of {}", part.len());
        // A run is torn only where the part has all the pages that it may.
        let next = parts.get(index + 1).and_then(|next| next.first());
        let is_torn = part.last().map(|at| at.plus(PAGE)).as_ref() == next;
        assert!(!is_torn || part.len() == PAGES, "part {index}");
    }
    assert_eq!(in_parts(&BTreeSet::new()), [vec![]]);
}
