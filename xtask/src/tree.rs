//! The files of the workspace.

use std::path::{Path, PathBuf};

use crate::Failure;

/// A text file of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Path from the workspace's root, with `/`.
    pub(crate) path: String,
    /// Contents.
    pub(crate) text: String,
}

impl SourceFile {
    /// Whether this is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is Markdown.
    pub(crate) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map(Path::to_path_buf).unwrap_or(package)
}

/// The directory of the build's output.
pub(crate) fn output() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(set.unwrap_or_else(|| "target".into()))
}

/// Paths of all files under `root`, from `root`, sorted; without build output and version control.
pub(crate) fn paths(root: &Path) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    found.sort();
    Ok(found)
}

/// Directories that are no part of the sources.
const SKIPPED: [&str; 2] = ["target", ".git"];

fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) -> Result<(), Failure> {
    let system = |error: std::io::Error| Failure::system("can't list", directory, &error);
    for entry in std::fs::read_dir(directory).map_err(system)? {
        let entry = entry.map_err(system)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().map_err(system)?.is_dir() {
            walk(&entry.path(), &format!("{path}/"), found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// The text files of the workspace at `root`; files that are no UTF-8 are left out.
pub(crate) fn sources(root: &Path) -> Result<Vec<SourceFile>, Failure> {
    let mut files = Vec::new();
    for path in paths(root)? {
        let whole = root.join(&path);
        let bytes = std::fs::read(&whole).map_err(|e| Failure::system("can't read", &whole, &e))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}
