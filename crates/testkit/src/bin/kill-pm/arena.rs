//! The region that processes die on, and what they report.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conquest_format::geometry::Shape;
use conquest_format::{Geometry, PAGE};
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Options, Region};
use conquest_testkit::shelf::{self, ACTORS, Contents, Op};
use conquest_testkit::{DyingMemory, Fate};

use crate::os::child::signal_self;
use crate::os::memory::{Shared, memory_file};

/// A process's view of the region.
pub(crate) type View = Arc<Core<DyingMemory<Mapped>, OsHost>>;

/// What all regions have.
const SHAPE: Shape = Shape { max_groups: 8, lanes: 4, slots: 16, locks: 8 };

/// A new region, to make many from: making one takes longer than a process lives here.
pub(crate) struct Template {
    geometry: Geometry,
    len: u64,
    /// Its pages that are not zero, each with its offset.
    pages: Vec<(u64, Vec<u8>)>,
}

impl Template {
    /// A new region; `groups` of at most 8 groups have space from the start.
    pub(crate) fn new(groups: u64) -> Result<Template, String> {
        let text = |error: std::io::Error| error.to_string();
        let file = memory_file(c"template")?;
        let copy = Source::from(file.try_clone().map_err(text)?);
        let new =
            NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [3; 16], created: 3, groups };
        Region::create(copy, 0o600, &new).map_err(|error| error.to_string())?;
        let file = File::from(file);
        let len = file.metadata().map_err(text)?.len();
        let mut pages = Vec::new();
        for at in (0..len).step_by(PAGE as usize) {
            let mut page = vec![0; PAGE as usize];
            file.read_exact_at(&mut page, at).map_err(text)?;
            if page.iter().any(|byte| *byte != 0) {
                pages.push((at, page));
            }
        }
        Ok(Template { geometry: Geometry::new(SHAPE).ok_or("impossible shape")?, len, pages })
    }

    /// A memory file with a copy. It has holes where the region has zeros: what is never touched
    /// costs nothing.
    fn copy(&self) -> Result<OwnedFd, String> {
        let text = |error: std::io::Error| error.to_string();
        let file = File::from(memory_file(c"arena")?);
        file.set_len(self.len).map_err(text)?;
        for (at, page) in &self.pages {
            file.write_all_at(page, *at).map_err(text)?;
        }
        Ok(file.into())
    }
}

/// A region on a memory file, which is gone when the last process is.
pub(crate) struct Arena {
    file: OwnedFd,
    geometry: Geometry,
    /// Operations acknowledged, per actor: shared memory, not part of the region.
    acknowledged: Shared,
}

impl Arena {
    /// A new region.
    pub(crate) fn new(template: &Template) -> Result<Arena, String> {
        let (file, geometry) = (template.copy()?, template.geometry.clone());
        Ok(Arena { file, geometry, acknowledged: Shared::new()? })
    }

    fn source(&self) -> Result<Source, String> {
        let copy = self.file.try_clone().map_err(|error| error.to_string())?;
        Ok(Source::from(copy))
    }

    /// Attaches, in the calling process, with `fate` before store number `store` from the first
    /// store of attaching on.
    pub(crate) fn attach(&self, store: u64, fate: Fate) -> Result<View, String> {
        let text = |error: conquest_pm::Error| error.to_string();
        let medium = Arc::new(Medium::open(self.source()?).map_err(text)?);
        let host = OsHost::new(Arc::clone(&medium), &self.geometry).map_err(text)?;
        let map = MapOptions::default();
        let memory = Mapped::map(&medium, self.geometry.len(), &map).map_err(text)?;
        let memory = DyingMemory::new(memory, store, fate);
        let options = Options {
            intents: Some(Box::new(shelf::step)),
            growth_groups: 1,
            ..Options::default()
        };
        Core::attach(memory, host, Path::new("arena"), &shelf::kinds(), options).map_err(text)
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

/// Death before the n-th store.
pub(crate) fn death() -> Fate {
    Fate::Call(Box::new(|| signal_self(libc::SIGKILL)))
}

/// A stop before the n-th store.
pub(crate) fn stop() -> Fate {
    Fate::Call(Box::new(|| signal_self(libc::SIGSTOP)))
}
