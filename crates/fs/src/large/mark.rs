//! By what a region whose records are durable at once, and its volume, know each other.
//!
//! Both have a *mark*, another one for each time in which they are used. So a copy of one of them
//! that is older than the other one is found out.

use conquest_format::fs::root;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Mode};

use crate::Result;
use crate::file_system::{lists_lock, root_word};

/// The marks that the volume of a region may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// The last one that it was seen to have.
    pub seen: u64,
    /// The one that it is given: the same, unless the one who did that has died.
    pub next: u64,
}

/// The marks of the volume of `core`.
///
/// # Errors
/// Those of the region.
pub fn marks<M: Memory, H: Host>(core: &Core<M, H>) -> Result<Marks> {
    Ok(core.read(lists_lock(core), |view| {
        let word = |index| view.word(root_word(index));
        Ok(Marks { seen: word(root::MARK), next: word(root::NEXT_MARK) })
    })?)
}

/// Lets the marks of the volume of `core` be `marks`: durable when this returns, if the region's
/// records are.
///
/// # Errors
/// Those of the region.
pub fn set_marks<M: Memory, H: Host>(core: &Core<M, H>, marks: Marks) -> Result<()> {
    Ok(core.run(|tx| {
        tx.lock(lists_lock(tx.core()), Mode::Exclusive)?;
        tx.set(root_word(root::MARK), marks.seen)?;
        tx.set(root_word(root::NEXT_MARK), marks.next)
    })?)
}
