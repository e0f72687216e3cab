//! What could not be kept of files although they were copied: said once for each kind, at the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// One kind of note.
#[derive(Clone, Serialize)]
pub(crate) struct Note {
    /// What it is about.
    what: &'static str,
    /// Files concerned.
    files: u64,
    /// The first of them.
    first: String,
    /// Why.
    reason: String,
}

/// The notes of a job.
#[derive(Default)]
pub(super) struct Notes(Mutex<BTreeMap<&'static str, Note>>);

impl Notes {
    /// `what` happened to the file called `label`.
    pub(super) fn add(&self, what: &'static str, label: impl FnOnce() -> String, reason: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let note =
            notes.entry(what).or_insert_with(|| Note { what, files: 0, first: label(), reason });
        note.files += 1;
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Note> {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.values().cloned().collect()
    }
}

impl core::fmt::Display for Note {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let files = if self.files == 1 { "file" } else { "files" };
        write!(f, "{}: {} {files}, first {}: {}", self.what, self.files, self.first, self.reason)
    }
}
