//! The stores that a command works on, each attached once.

use std::path::{Path, PathBuf};

use conquest::{Attach, Store};

use crate::reason::Result;
use crate::tree::Inner;

/// An attached store.
struct Open {
    /// Its directory, by which it is known again.
    key: PathBuf,
    store: Store,
    files: Inner,
}

/// Attached stores.
#[derive(Default)]
pub(crate) struct Session {
    stores: Vec<Open>,
}

impl Session {
    /// The store in `directory`, attached now unless it is already: its place among the others.
    ///
    /// # Errors
    /// Why it can't be attached, with its name.
    pub(crate) fn open(&mut self, directory: &Path) -> Result<usize> {
        let key = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        if let Some(at) = self.stores.iter().position(|open| open.key == key) {
            return Ok(at);
        }
        let store = attach(directory)?;
        let files = Inner::new(&store)?;
        self.stores.push(Open { key, store, files });
        Ok(self.stores.len() - 1)
    }

    /// The files of the store at `place`, which [`Session::open`] gave.
    pub(crate) fn files(&self, place: usize) -> Option<Inner> {
        self.stores.get(place).map(|open| open.files.clone())
    }

    /// Up to how many bytes files stay in the core of the store at `place`, whatever they are.
    pub(crate) fn threshold(&self, place: usize) -> u64 {
        self.stores.get(place).map_or(0, |open| open.store.placement().threshold)
    }

    /// Detaches all of them.
    ///
    /// # Errors
    /// The first one's reason.
    pub(crate) fn close(self) -> Result<()> {
        let mut first = Ok(());
        for open in self.stores {
            let closed = open.store.detach();
            if first.is_ok() {
                first = closed;
            }
        }
        Ok(first?)
    }
}

/// Attaches the store in `directory`.
///
/// # Errors
/// Why it can't be attached, with its name.
pub(crate) fn attach(directory: &Path) -> Result<Store> {
    let how = Attach { on_slow: Some(std::sync::Arc::new(slow)), ..Attach::default() };
    Ok(Store::attach(directory, &how)?)
}

/// Says whom this process is waiting for.
fn slow(holder: conquest::Holder) {
    let stopped = if holder.state == Some('T') { " (stopped)" } else { "" };
    eprintln!(
        "conquest: waiting for process {}, thread {}{stopped}, for {:.0} s",
        holder.process,
        holder.thread,
        holder.waited.as_secs_f64()
    );
}
