//! Regions on real media.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_format::geometry::{STATE_GROUPS, SUPERBLOCKS};
use conquest_format::kind::{Kind, KindTable};
use conquest_format::superblock::{LOADING, SIZE, Superblock};
use conquest_format::{Geometry, WORD};

use crate::attach::{NewRegion, checked_geometry, make};
use crate::core::{Core, Options};
use crate::counting::Counting;
use crate::media::{Fill, LoadFrom, MapOptions, Mapped, Medium, OsHost, Source};
use crate::memory::Memory;
use crate::persist::Request;
use crate::{Error, Result, superblock};

/// Threads that load what is not resident of a region that nobody uses meanwhile.
const LOADERS: usize = 4;

/// How a process works on a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// How stores are made durable.
    pub write_back: Request,
    /// Whether stores outside of operations fault: protection against stray pointers of the
    /// program, at about two microseconds an operation.
    pub shield: bool,
}

/// A region on a real medium.
pub type Region = Core<Mapped, OsHost>;

/// A region on a real medium that counts what is done to it.
pub type CountedRegion = Core<Counting<Mapped>, OsHost>;

impl Region {
    /// Makes a region on `source`, for its owner only, unless `mode` says otherwise. A file that
    /// could not be made into a region is removed again.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Shape`], [`Error::Unsharable`], and what the system refuses.
    pub fn create(source: Source, mode: u32, new: &NewRegion) -> Result<()> {
        let named = match &source {
            Source::Path(path) if !path.exists() => Some(path.clone()),
            _ => None,
        };
        let made = Region::create_on(source, mode, new);
        if let (Err(_), Some(path)) = (&made, named) {
            // The error to report is the first one.
            let _removed = std::fs::remove_file(path);
        }
        made
    }

    fn create_on(source: Source, mode: u32, new: &NewRegion) -> Result<()> {
        let medium = Arc::new(Medium::create(source, mode)?);
        let geometry = checked_geometry(medium.path(), new)?;
        refuse_existing(&medium)?;
        let path = medium.path().to_owned();
        let host = OsHost::new(Arc::clone(&medium), &geometry)?;
        let memory = Mapped::map(&medium, geometry.len(), &MapOptions::default())?;
        make(&memory, &host, &path, new)
    }

    /// Attaches the region on `source`.
    ///
    /// # Errors
    /// What is wrong with the file or the region, or who is in the way.
    pub fn open(
        source: Source,
        kinds: &KindTable,
        access: Access,
        options: Options<Mapped, OsHost>,
    ) -> Result<Arc<Region>> {
        open(source, kinds, access, options, |memory, _| memory)
    }
}

impl CountedRegion {
    /// Attaches the region on `source`, to count from then on. Kinds that `is_content` are for
    /// content: see [`crate::counting`].
    ///
    /// # Errors
    /// As [`Region::open`].
    pub fn open(
        source: Source,
        kinds: &KindTable,
        access: Access,
        options: Options<Counting<Mapped>, OsHost>,
        is_content: fn(Kind) -> bool,
    ) -> Result<Arc<CountedRegion>> {
        open(source, kinds, access, options, |memory, geometry| {
            Counting::new(memory, geometry, is_content)
        })
    }
}

/// Loads all that is not resident of the region on `medium`, of the layout `geometry`, from `fill`.
/// The caller has the lock for attaching, and nobody is attached: so the region has no residency
/// table then.
///
/// # Errors
/// [`Error::NotLoaded`], and what the system refuses.
pub fn load_held(medium: &Arc<Medium>, geometry: &Geometry, fill: Arc<dyn Fill>) -> Result<()> {
    let from = LoadFrom { medium: Arc::clone(medium), geometry: geometry.clone(), fill };
    let map = MapOptions { load_from: Some(from), ..MapOptions::default() };
    let memory = Mapped::map(medium, geometry.len(), &map)?;
    memory.load_groups(&memory.groups_to_load(), LOADERS, &AtomicBool::new(false))?;
    let failed = |reason| Err(Error::Failed { reason });
    if let Some(reason) = memory.failed() {
        return failed(reason);
    }
    if !memory.complete_loading() {
        return failed("its residency table is damaged");
    }
    let found = superblock::choose(medium.path(), &superblock::read(&memory))?;
    let sequence = superblock::next_sequence(&found)?;
    let features_incompatible = found.features_incompatible & !LOADING;
    superblock::write(&memory, &Superblock { sequence, features_incompatible, ..found });
    let groups = memory.load(STATE_GROUPS, Ordering::Relaxed).min(geometry.shape().max_groups);
    Memory::drop_table(&memory, geometry.len_at(groups))
}

/// Attaches the region on `source` by what `wrap` makes of its mapping.
fn open<M: Memory>(
    source: Source,
    kinds: &KindTable,
    access: Access,
    options: Options<M, OsHost>,
    wrap: impl FnOnce(Mapped, &Geometry) -> M,
) -> Result<Arc<Core<M, OsHost>>> {
    let medium = Arc::new(Medium::open(source)?);
    let path = medium.path().to_owned();
    let (mut geometry, mut is_loading) = look(&medium, &path)?;
    let memory = loop {
        let load_from = match (is_loading, &options.fill) {
            (false, _) => None,
            (true, Some(fill)) => {
                let (medium, fill) = (Arc::clone(&medium), Arc::clone(fill));
                Some(LoadFrom { medium, geometry: geometry.clone(), fill })
            }
            (true, None) => return Err(Error::Loading { path }),
        };
        let map = MapOptions {
            write_back: access.write_back,
            shield: access.shield.then(|| geometry.volatile()),
            load_from,
            ..MapOptions::default()
        };
        let memory = Mapped::map(&medium, geometry.len(), &map);
        if !is_loading {
            break memory?;
        }
        // The table that was to be mapped may be gone.
        (geometry, is_loading) = look(&medium, &path)?;
        if is_loading {
            break memory?;
        }
    };
    let host = OsHost::new(Arc::clone(&medium), &geometry)?;
    Core::attach(wrap(memory, &geometry), host, &path, kinds, options)
}

/// A device is never made, so it may hold a region already.
fn refuse_existing(medium: &Medium) -> Result<()> {
    if medium.is_empty()? {
        return Ok(());
    }
    match superblock::choose(medium.path(), &peek_superblocks(medium)?) {
        Err(Error::NotARegion { .. }) => Ok(()),
        _ => Err(Error::Exists { path: medium.path().to_owned() }),
    }
}

/// Looks at a file before mapping it: what it is, whether all of it is there, and whether it has a
/// residency table.
fn look(medium: &Medium, path: &Path) -> Result<(Geometry, bool)> {
    let superblock = superblock::choose(path, &peek_superblocks(medium)?)?;
    let geometry = Geometry::new(superblock.shape).ok_or(Error::Corrupt {
        what: "superblock",
        offset: SUPERBLOCKS[0],
        expected: "a valid shape",
        found: superblock.shape.max_groups,
    })?;
    let mut word = [0; WORD as usize];
    medium.peek(STATE_GROUPS.bytes(), &mut word)?;
    let groups = u64::from_le_bytes(word).clamp(1, superblock.shape.max_groups);
    let (expected, found) = (geometry.len_at(groups), medium.len()?);
    if found < expected {
        return Err(Error::Truncated { path: path.to_owned(), expected, found });
    }
    Ok((geometry, superblock.features_incompatible & LOADING != 0))
}

fn peek_superblocks(medium: &Medium) -> Result<[[u8; SIZE]; 2]> {
    let mut copies = [[0; SIZE]; 2];
    for (at, copy) in SUPERBLOCKS.into_iter().zip(&mut copies) {
        medium.peek(at.bytes(), copy)?;
    }
    Ok(copies)
}
