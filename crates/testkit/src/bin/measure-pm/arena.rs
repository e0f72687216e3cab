//! Regions to measure, on memory files, and the kinds they hold.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use conquest_format::geometry::{STATE_GROUPS, STATE_ROOTS, Shape};
use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_format::{Geometry, LINE, Offset};
use conquest_pm::attach::NewRegion;
use conquest_pm::log::Copied;
use conquest_pm::media::Source;
use conquest_pm::persist::Request;
use conquest_pm::{Access, CountedRegion, Object, Options, Region};

use crate::os::memory::memory_file;
use crate::os::system;

/// Locks of every region measured.
const LOCKS: u32 = 1024;
/// Locks and roots of different actors are so far apart that they share no line.
const APART: u32 = 16;

const fn kind(number: u8) -> Kind {
    match Kind::new(number) {
        Some(kind) => kind,
        None => kind(0),
    }
}

/// The kind of page runs.
pub(crate) const PAGES: Kind = kind(4);

/// Objects of three sizes.
pub(crate) struct Small;
/// See [`Small`].
pub(crate) struct Middle;
/// See [`Small`].
pub(crate) struct Large;

impl Object for Small {
    const KIND: Kind = kind(1);
}
impl Object for Middle {
    const KIND: Kind = kind(2);
}
impl Object for Large {
    const KIND: Kind = kind(3);
}

/// The kinds of every region measured.
pub(crate) fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    for (kind, bytes) in [(Small::KIND, 64), (Middle::KIND, 128), (Large::KIND, 192)] {
        if let Some(spec) = kinds.get_mut(usize::from(kind.number())) {
            *spec = KindSpec::object(bytes).unwrap_or_default();
        }
    }
    if let Some(spec) = kinds.get_mut(usize::from(PAGES.number())) {
        *spec = KindSpec::RUN;
    }
    kinds
}

/// Root word `index` of `actor`, in a line that no other actor of 0 to 3 uses.
pub(crate) fn root(actor: u32, index: u64) -> Offset {
    STATE_ROOTS.plus(u64::from(actor % 4) * 2 * LINE + index * 8)
}

/// Lock `index` of `actor`.
pub(crate) fn lock(actor: u32, index: u32) -> u32 {
    actor * APART + index
}

/// A region on a memory file, which is gone when the last process is.
pub(crate) struct Arena {
    file: OwnedFd,
    geometry: Geometry,
}

impl Arena {
    /// A region of at most `max_groups` groups, `groups` of which have space.
    pub(crate) fn new(max_groups: u64, groups: u64) -> Result<Arena, String> {
        Arena::with_log(max_groups, groups, 0)
    }

    /// The same, with so many chunks of a log.
    pub(crate) fn with_log(max_groups: u64, groups: u64, log: u32) -> Result<Arena, String> {
        let shape = Shape { max_groups, lanes: 64, slots: 64, locks: LOCKS, chunks: 4, log };
        let geometry = Geometry::new(shape).ok_or("impossible shape")?;
        let file = memory_file(c"measured")?;
        let new = NewRegion { shape, kinds: kinds(), uuid: [5; 16], created: 5, groups };
        let arena = Arena { file, geometry };
        Region::create(arena.source()?, 0o600, &new).map_err(text)?;
        Ok(arena)
    }

    /// Gives all groups to the region without space behind them: a file with holes, which read as
    /// zeros. For regions larger than the memory at hand.
    pub(crate) fn grow_sparsely(&self) -> Result<(), String> {
        let groups = self.geometry.shape().max_groups;
        let word = groups.to_le_bytes();
        let raw = self.file.as_raw_fd();
        let at = STATE_GROUPS.bytes() as libc::off_t;
        // SAFETY: our own descriptor and bytes.
        let done = unsafe {
            libc::ftruncate(raw, self.geometry.len() as libc::off_t) == 0
                && libc::pwrite(raw, word.as_ptr().cast(), word.len(), at) == 8
        };
        if done { Ok(()) } else { Err(system("grow a memory file")) }
    }

    fn source(&self) -> Result<Source, String> {
        let copy = self.file.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        Ok(Source::from(copy))
    }

    /// Attaches.
    pub(crate) fn attach(&self, write_back: Request) -> Result<Arc<Region>, String> {
        let access = Access { write_back, ..Access::default() };
        Region::open(self.source()?, &kinds(), access, Options::default()).map_err(text)
    }

    /// Attaches; what is in its log is taken for durable when it is getting full.
    pub(crate) fn attach_logged(&self) -> Result<Arc<Region>, String> {
        let seal = |core: &Region| match core.seal(core.durable(), Copied::new()) {
            Ok(Some(sealed)) => core.set_durable(sealed.cut),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let options = Options { make_durable: Some(Box::new(seal)), ..Options::default() };
        Region::open(self.source()?, &kinds(), Access::default(), options).map_err(text)
    }

    /// Attaches, counting.
    pub(crate) fn attach_counted(&self, write_back: Request) -> Result<Arc<CountedRegion>, String> {
        let access = Access { write_back, ..Access::default() };
        CountedRegion::open(self.source()?, &kinds(), access, Options::default(), |_| false)
            .map_err(text)
    }
}

/// An error of the region as text.
pub(crate) fn text(error: conquest_pm::Error) -> String {
    error.to_string()
}
