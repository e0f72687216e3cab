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
        let mut slots: Vec<[u64; 2]> = extents.into_iter().map(|extent| extent.pack()).collect();
        let mut level = 0;
        while level == 0 || slots.len() > 1 {
            slots = load_level(core, level, &slots)?;
            level += 1;
        }
        let root = slots.first().map_or(0, |[_, root]| *root);
        core.run(|tx| tx.set(self.root, root))
    }
}

/// Nodes that are made by one record: it may take a new slab for each.
const AT_ONCE: usize = 16;

/// Makes the nodes of `level` that hold `slots`: the slots that lead to them.
fn load_level<M: Memory, H: Host>(
    core: &Core<M, H>,
    level: u64,
    slots: &[[u64; 2]],
) -> Result<Vec<[u64; 2]>> {
    let mut above = Vec::with_capacity(slots.len().div_ceil(FILLED));
    let mut nodes = slots.chunks(FILLED);
    while nodes.len() > 0 {
        // A transaction that is repeated begins again here.
        let (rest, made) = core.run(|tx| {
            let mut made = Vec::new();
            let mut rest = nodes.clone();
            for node in rest.by_ref().take(AT_ONCE) {
                let lowest = node.first().map_or(0, |[unit, _]| *unit);
                made.push([lowest, make(tx, level, node.iter().copied())?.word()]);
            }
            Ok((rest, made))
        })?;
        nodes = rest;
        above.extend(made);
    }
    Ok(above)
}
