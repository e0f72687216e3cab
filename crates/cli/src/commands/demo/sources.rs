//! A real tree of files, of which a part is taken if it is large.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::reason::{Reason, Result};
use crate::size::grouped;
use crate::stop;
use crate::tree::{Host, Tree};

/// Most files that are taken by default: so that it all takes about a minute.
const FILES_MAX: u64 = 30_000;
/// Most bytes that are taken by default.
const BYTES_MAX: u64 = 400 << 20;
/// Files below which a tree says little.
const FILES_MIN: u64 = 300;

/// What is brought in.
pub(super) struct Source {
    /// The tree.
    pub(super) root: PathBuf,
    /// The parts of it that are taken.
    pub(super) parts: Vec<PathBuf>,
    /// Files of all types in these.
    pub(super) files: u64,
    /// Bytes of regular ones.
    pub(super) bytes: u64,
}

impl Source {
    /// The tree that was asked for, or one that is likely to be there.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn choose(asked: Option<&Path>) -> Result<Source> {
        if let Some(root) = asked {
            let named = |reason| {
                let label = crate::place::host_label(root);
                Reason::rule(format!("{label}: {reason}"))
            };
            let root = std::fs::canonicalize(root).map_err(|error| named(error.into()))?;
            let (files, bytes) = count(&root, u64::MAX, u64::MAX).map_err(named)?;
            return Ok(Source { parts: vec![root.clone()], root, files, bytes });
        }
        for root in candidates() {
            let Ok(found) = bounded(&root) else {
                stop::check()?;
                continue;
            };
            if found.files >= FILES_MIN {
                return Ok(found);
            }
        }
        Err(Reason::rule("no tree of files was found (name one by --tree)"))
    }

    /// What of the tree it is.
    pub(super) fn what(&self) -> String {
        let is_whole = self.parts.first() == Some(&self.root);
        let part = if is_whole { "all" } else { "a part" };
        format!("{part}, {} files,", grouped(self.files))
    }
}

/// Trees that are likely to be there, the better ones first.
fn candidates() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let cargo = cargo.or(home.as_ref().map(|home| home.join(".cargo")));
    let rustup = rustup.or(home.map(|home| home.join(".rustup")));
    let mut found = Vec::new();
    let toolchains = rustup.map(|it| it.join("toolchains"));
    for toolchain in toolchains.into_iter().flat_map(list) {
        found.push(toolchain.join("lib/rustlib/src"));
    }
    found.extend(cargo.map(|it| it.join("registry/src")));
    found.extend(["/usr/share", "/usr/include", "/etc"].map(PathBuf::from));
    found.into_iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect()
}

/// What is in a directory, sorted; nothing if that can't be told.
fn list(directory: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// As much of `root` as is taken by default: all of it, or directories of it, or of these.
fn bounded(root: &Path) -> Result<Source> {
    let mut source = Source { root: root.to_owned(), parts: Vec::new(), files: 0, bytes: 0 };
    let mut left = vec![root.to_owned()];
    let mut names = std::collections::BTreeSet::new();
    while let Some(path) = left.pop() {
        stop::check()?;
        let (files_left, bytes_left) = (FILES_MAX - source.files, BYTES_MAX - source.bytes);
        match count(&path, files_left, bytes_left) {
            Ok((files, bytes)) if files <= files_left && bytes <= bytes_left => {
                // Two of one name would get into each other's way.
                let is_first = names.insert(path.file_name().map(std::ffi::OsStr::to_owned));
                let taken = Some(path).filter(|_| is_first);
                if taken.is_some() {
                    source.files += files;
                    source.bytes += bytes;
                }
                source.parts.extend(taken);
            }
            // Too large: parts of it, as long as there is room for something.
            Ok(_) if source.files < FILES_MAX / 2 => {
                let below = list(path).into_iter().rev();
                left.extend(below.filter(|path| path.is_dir() && !path.is_symlink()));
            }
            // What can't be read is not taken.
            _ => {}
        }
    }
    Ok(source)
}

/// Files and bytes below `root`, counted until there are more than these.
fn count(root: &Path, files_max: u64, bytes_max: u64) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        stop::check()?;
        let directory = Host.find(path.as_os_str().as_encoded_bytes(), true)?;
        for name in Host.names(&directory)? {
            let node = Host.child(&directory, &name)?;
            let meta = Host.meta(&node)?;
            files += 1;
            if meta.is_directory() {
                left.push(path.join(std::ffi::OsStr::from_bytes(&name)));
            } else if meta.is_regular() {
                Host.open(&node)?;
                bytes += meta.size;
            }
            if files > files_max || bytes > bytes_max {
                return Ok((files, bytes));
            }
        }
    }
    Ok((files, bytes))
}
