//! A map made at once, of all that it is to hold.

use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Result};

use super::extent::Extent;
use super::node::SLOTS;
use super::shape::make;
use super::tree::Tree;

/// Slots that are filled of each node: some are left for what comes.
const FILLED: usize = SLOTS * 3 / 4;

impl Tree {
    /// Makes the map of `extents`, which are in order and do not overlap. There is none yet, and
    /// nobody else looks for one. What was made before a failure is lost to the region.
    ///
    /// # Errors
    /// [`conquest_pm::Error::NoSpace`], and others of the region.
    pub fn load<M: Memory, H: Host>(
        &self,
        core: &Core<M, H>,
        extents: impl IntoIterator<Item = Extent>,
    ) -> Result<()> {
        let slots = extents.into_iter().map(|extent| extent.pack());
        let (mut nodes, mut level) = (load_level(core, 0, slots)?, 1);
        while nodes.len() > 1 {
            nodes = load_level(core, level, nodes)?;
            level += 1;
        }
        let root = nodes.first().map_or(0, |[_, root]| *root);
        core.run(|tx| tx.set(self.root, root))
    }
}

/// Nodes that are made by one record: it may take a new slab for each.
const AT_ONCE: usize = 16;

/// Makes the nodes of `level` that hold `slots`: the slots that lead to them.
fn load_level<M: Memory, H: Host>(
    core: &Core<M, H>,
    level: u64,
    slots: impl IntoIterator<Item = [u64; 2]>,
) -> Result<Vec<[u64; 2]>> {
    let mut slots = slots.into_iter();
    let (mut above, mut some) = (Vec::new(), Vec::with_capacity(AT_ONCE * FILLED));
    loop {
        some.clear();
        some.extend(slots.by_ref().take(AT_ONCE * FILLED));
        if some.is_empty() {
            return Ok(above);
        }
        // A transaction that is repeated makes all of them again.
        let made = core.run(|tx| {
            let nodes = some.chunks(FILLED).map(|node| {
                let lowest = node.first().map_or(0, |[unit, _]| *unit);
                Ok([lowest, make(tx, level, node.iter().copied())?.word()])
            });
            nodes.collect::<Result<Vec<_>>>()
        })?;
        above.extend(made);
    }
}
