//! The region that processes die on, and what they report.

use std::sync::atomic::{AtomicU64, Ordering};

use conquest_format::geometry::Shape;
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Options, Region};
use conquest_testkit::Fate;
use conquest_testkit::shelf::{self, ACTORS, Contents, Op};

pub(crate) use crate::kill::region::View;
use crate::kill::region::{Copy, Template};
use crate::os::memory::Shared;

/// What all regions have.
const SHAPE: Shape = Shape { max_groups: 8, lanes: 4, slots: 16, locks: 8, chunks: 4, log: 0 };

/// A new region, to make many from; `groups` of at most 8 groups have space from the start.
pub(crate) fn template(groups: u64) -> Result<Template, String> {
    Template::new(SHAPE, |source| {
        let new =
            NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [3; 16], created: 3, groups };
        Region::create(source()?, 0o600, &new).map_err(|error| error.to_string())
    })
}

/// A region on a memory file, which is gone when the last process is.
pub(crate) struct Arena {
    region: Copy,
    /// Operations acknowledged, per actor: shared memory, not part of the region.
    acknowledged: Shared,
}

impl Arena {
    /// A new region.
    pub(crate) fn new(template: &Template) -> Result<Arena, String> {
        Ok(Arena { region: template.copy()?, acknowledged: Shared::new()? })
    }

    /// Attaches, in the calling process, with `fate` before store number `store` from the first
    /// store of attaching on.
    pub(crate) fn attach(&self, store: u64, fate: Fate) -> Result<View, String> {
        let intents = Some(Box::new(shelf::step) as _);
        let options = Options { intents, growth_groups: 1, ..Options::default() };
        self.region.attach(store, fate, &shelf::kinds(), options)
    }

    /// Attaches and lives.
    pub(crate) fn attach_safely(&self) -> Result<View, String> {
        self.attach(0, Fate::Live)
    }

    /// Does `op` as `actor` and reports it.
    pub(crate) fn perform<M: Memory, H: Host>(
        &self,
        core: &Core<M, H>,
        actor: u32,
        op: Op,
    ) -> Result<(), String> {
        shelf::perform(core, actor, op).map_err(|error| format!("{op:?}: {error}"))?;
        self.acknowledged(actor).fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Operations that `actor` has reported.
    pub(crate) fn acknowledged(&self, actor: u32) -> &AtomicU64 {
        &self.acknowledged[actor as usize % ACTORS as usize]
    }

    /// Examines the region at rest: nothing lost, leaked or half done; `in_doubt` actors may have
    /// done one operation that they could not report any more, which is settled here.
    pub(crate) fn examine<M: Memory, H: Host>(
        &self,
        core: &Core<M, H>,
        in_doubt: &[u32],
    ) -> Result<Contents, String> {
        core.recover().map_err(|error| format!("recovery: {error}"))?;
        let (contents, findings) = shelf::examine(core).map_err(|error| error.to_string())?;
        if let Some(finding) = findings.first() {
            return Err(format!("{finding} (and {} more)", findings.len() - 1));
        }
        for (actor, &done) in (0..).zip(&contents.done) {
            let acknowledged = self.acknowledged(actor).load(Ordering::SeqCst);
            let more = u64::from(in_doubt.contains(&actor));
            if done < acknowledged || done > acknowledged + more {
                return Err(format!("actor {actor}: {acknowledged} acknowledged, {done} happened"));
            }
            self.acknowledged(actor).store(done, Ordering::SeqCst);
        }
        Ok(contents)
    }
}
