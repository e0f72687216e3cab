//! The region that processes die on, and what they report.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conquest_format::Geometry;
use conquest_format::geometry::Shape;
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Options, Region};
use conquest_testkit::shelf::{self, ACTORS, Contents, Op};
use conquest_testkit::{DyingMemory, Fate};

use crate::process::signal_self;

/// A process's view of the region.
pub(crate) type View = Arc<Core<DyingMemory<Mapped>, OsHost>>;

/// A region on a memfd, which is gone when the last process is.
pub(crate) struct Arena {
    file: OwnedFd,
    geometry: Geometry,
    /// Operations acknowledged, per actor: shared memory, not part of the region.
    acknowledged: &'static [AtomicU64; ACTORS as usize],
}

impl Arena {
    /// A new region; `groups` of at most 8 groups have space from the start.
    pub(crate) fn new(groups: u64) -> Result<Arena, String> {
        let shape = Shape { max_groups: 8, lanes: 4, slots: 16, locks: 8 };
        let geometry = Geometry::new(shape).ok_or("impossible shape")?;
        // SAFETY: a constant name; the descriptor is new and ours.
        let file = unsafe {
            let file = libc::memfd_create(c"arena".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 {
                return Err(format!("memfd: {}", std::io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(file)
        };
        let new = NewRegion { shape, kinds: shelf::kinds(), uuid: [3; 16], created: 3, groups };
        let arena = Arena { file, geometry, acknowledged: shared_words()? };
        Region::create(arena.source()?, 0o600, &new).map_err(|error| error.to_string())?;
        Ok(arena)
    }

    fn source(&self) -> Result<Source, String> {
        let copy = self.file.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
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

/// Words shared with forked children, for good.
fn shared_words() -> Result<&'static [AtomicU64; ACTORS as usize], String> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(format!("mmap: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: zeroed, page-aligned, large enough, never unmapped, and used as atomics only.
    Ok(unsafe { &*page.cast() })
}
