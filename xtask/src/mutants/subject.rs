//! What is mutated: a crate, or parts of several crates that do one thing together.

use std::path::Path;

use super::slices;
use crate::tree::SourceFile;

/// A part of a crate: the crate, and what the names of its files begin with.
type Part = (&'static str, &'static str);

/// Parts that do one thing together: their name, and which they are. What a crate of its own is
/// called can't be such a name.
const TOGETHER: [(&str, &[Part]); 1] =
    [("store", &[("image", ""), ("pm", "log/"), ("fs", "large/")])];

/// What is mutated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Subject {
    /// What it is called: of a crate, as that.
    pub(super) name: String,
    /// Crates, and what the names of their files begin with.
    parts: Vec<(String, String)>,
}

impl Subject {
    /// The subject `name` of the workspace at `root`; none if it has neither such parts nor a
    /// library crate of that name.
    pub(super) fn find(root: &Path, name: &str) -> Option<Subject> {
        let together = TOGETHER.iter().find(|(of, _)| *of == name);
        let parts = match together {
            Some((_, parts)) => {
                parts.iter().map(|&(of, start)| (of.to_owned(), start.to_owned())).collect()
            }
            None if root.join(library(name)).is_file() => vec![(name.to_owned(), String::new())],
            None => return None,
        };
        Some(Subject { name: name.to_owned(), parts })
    }

    /// The crates of which something is mutated.
    pub(super) fn crates(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(of, _)| of.as_str())
    }

    /// Whether `file` is mutated; if `is_all`, those that are normally left out as well.
    pub(super) fn has(&self, file: &SourceFile, is_all: bool) -> bool {
        self.parts.iter().any(|(of, start)| {
            let name = file.path.strip_prefix(&format!("crates/{of}/src/"));
            name.is_some_and(|name| {
                file.is_rust()
                    && name.starts_with(start.as_str())
                    && !name.starts_with("bin/")
                    && name != "main.rs"
                    && (is_all || slices::is_mutated(of, name))
            })
        })
    }
}

/// The path of the library of crate `name`.
pub(super) fn library(name: &str) -> String {
    format!("crates/{name}/src/lib.rs")
}
