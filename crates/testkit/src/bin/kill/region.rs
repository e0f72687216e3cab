//! Regions to die on: copies of a prepared one, on memory files that are gone when the last process
//! is.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use conquest_format::geometry::Shape;
use conquest_format::kind::KindTable;
use conquest_format::{Geometry, PAGE};
use conquest_pm::media::{MapOptions, Mapped, Medium, OsHost, Source};
use conquest_pm::{Core, Options};
use conquest_testkit::{DyingMemory, Fate};

use crate::os::memory::memory_file;

/// A process's view of the region.
pub(crate) type View = Arc<Core<DyingMemory<Mapped>, OsHost>>;

/// A prepared region, to make many from: making one takes longer than a process lives here.
pub(crate) struct Template {
    geometry: Geometry,
    len: u64,
    /// Its pages that are not zero, each with its offset.
    pages: Vec<(u64, Vec<u8>)>,
}

impl Template {
    /// The region of shape `shape` that `prepare` makes.
    pub(crate) fn new(
        shape: Shape,
        prepare: impl FnOnce(&dyn Fn() -> Result<Source, String>) -> Result<(), String>,
    ) -> Result<Template, String> {
        let text = |error: std::io::Error| error.to_string();
        let file = memory_file(c"template")?;
        prepare(&|| Ok(Source::from(file.try_clone().map_err(text)?)))?;
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
        Ok(Template { geometry: Geometry::new(shape).ok_or("impossible shape")?, len, pages })
    }

    /// A copy. It has holes where the region has zeros: what is never touched costs nothing.
    pub(crate) fn copy(&self) -> Result<Copy, String> {
        let text = |error: std::io::Error| error.to_string();
        let file = File::from(memory_file(c"arena")?);
        file.set_len(self.len).map_err(text)?;
        for (at, page) in &self.pages {
            file.write_all_at(page, *at).map_err(text)?;
        }
        Ok(Copy { file: file.into(), geometry: self.geometry.clone() })
    }
}

/// A copy of a prepared region.
pub(crate) struct Copy {
    file: OwnedFd,
    geometry: Geometry,
}

impl Copy {
    /// Attaches, in the calling process, with `fate` before store number `store` from the first
    /// store of attaching on.
    pub(crate) fn attach(
        &self,
        store: u64,
        fate: Fate,
        kinds: &KindTable,
        options: Options<DyingMemory<Mapped>, OsHost>,
    ) -> Result<View, String> {
        let text = |error: conquest_pm::Error| error.to_string();
        let file = self.file.try_clone().map_err(|error| error.to_string())?;
        let medium = Arc::new(Medium::open(Source::from(file)).map_err(text)?);
        let host = OsHost::new(Arc::clone(&medium), &self.geometry).map_err(text)?;
        let map = MapOptions::default();
        let memory = Mapped::map(&medium, self.geometry.len(), &map).map_err(text)?;
        let memory = DyingMemory::new(memory, store, fate);
        Core::attach(memory, host, Path::new("arena"), kinds, options).map_err(text)
    }
}
