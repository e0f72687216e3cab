//! Processes, as `/proc` shows them.

use std::fs;
use std::path::PathBuf;

/// The number of a process that could be seen a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// All that can be seen.
    pub(crate) fn all() -> impl Iterator<Item = Process> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Process))
    }

    /// The file `name` that `/proc` has of it.
    pub(crate) fn file(self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.0).into()
    }

    /// What it calls itself; none if it is gone.
    pub(crate) fn name(self) -> Option<String> {
        let text = fs::read(self.file("comm")).ok()?;
        Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned())
    }

    /// The numbers of its descriptors; none if they may not be seen.
    pub(crate) fn descriptors(self) -> Option<Vec<u32>> {
        let entries = fs::read_dir(self.file("fd")).ok()?.flatten();
        Some(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// What the kernel tells of descriptor `number`.
    pub(crate) fn descriptor(self, number: u32) -> Option<String> {
        fs::read_to_string(self.file(&format!("fdinfo/{number}"))).ok()
    }
}
