//! The file system that processes die on.

use conquest_format::fs;
use conquest_format::geometry::Shape;
use conquest_fs::FileSystem;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost};
use conquest_pm::{Access, Region};
use conquest_testkit::files::{clock, files_options, new_file_system};
use conquest_testkit::{DyingMemory, Fate};

use crate::kill::region::{Copy, Template};

/// A process's view of the file system.
pub(crate) type Files = FileSystem<DyingMemory<Mapped>, OsHost>;

/// So many locks that operations on different files have different ones.
pub(crate) const SHAPE: Shape =
    Shape { max_groups: 8, lanes: 4, slots: 16, locks: 4096, chunks: 4, log: 0 };

/// A file system of `shape` that `prepare` has prepared, to make many from.
pub(crate) fn template(
    shape: Shape,
    prepare: impl FnOnce(&FileSystem<Mapped, OsHost>) -> Result<(), String>,
) -> Result<Template, String> {
    Template::new(shape, |source| {
        let text = |error: conquest_pm::Error| error.to_string();
        let new = NewRegion { shape, kinds: fs::kinds(), uuid: [4; 16], created: 4, groups: 1 };
        Region::create(source()?, 0o600, &new).map_err(text)?;
        let region = Region::open(source()?, &fs::kinds(), Access::default(), files_options());
        let region = region.map_err(text)?;
        let text = |error: conquest_fs::Error| error.to_string();
        FileSystem::make(&region, &new_file_system(), &clock()).map_err(text)?;
        let files = FileSystem::open(region, clock()).map_err(text)?;
        prepare(&files)?;
        files.core().detach().map_err(|error| error.to_string())
    })
}

/// Attaches, in the calling process, with `fate` before store number `store` from the first store
/// of attaching on.
pub(crate) fn attach(region: &Copy, store: u64, fate: Fate) -> Result<Files, String> {
    let core = region.attach(store, fate, &fs::kinds(), files_options())?;
    FileSystem::open(core, clock()).map_err(|error| error.to_string())
}

/// Attaches and lives.
pub(crate) fn attach_safely(region: &Copy) -> Result<Files, String> {
    attach(region, 0, Fate::Live)
}
