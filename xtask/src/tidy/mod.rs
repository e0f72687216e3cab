//! `cargo xtask tidy`: the house rules that a machine can check.
//!
//! Each rule is a function from files to violations and has a test that shows it can fail.

mod code;
mod constants;
mod links;
mod modules;
mod text;

use core::fmt;

use crate::tally::Tally;
use crate::tree::SourceFile;
use crate::{Failure, tree};

/// A place where a rule is broken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Violation {
    file: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl Violation {
    fn new(
        file: &SourceFile,
        line: usize,
        rule: &'static str,
        what: impl Into<String>,
    ) -> Violation {
        Violation { file: file.path.clone(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// All violations in `files`, which are the whole workspace.
fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        text::check(file, &mut found);
        if file.is_rust() {
            code::check(file, &mut found);
        }
        if file.is_markdown() {
            links::check(file, files, &mut found);
        }
    }
    modules::check(files, &mut found);
    constants::check(files, &mut found);
    found.sort();
    found
}

/// Runs `cargo xtask tidy`: counts files.
pub(crate) fn run() -> Result<Tally, Failure> {
    let files = tree::sources(&tree::root())?;
    let found = check(&files);
    for violation in &found {
        println!("{violation}");
    }
    let mut bad: Vec<&String> = found.iter().map(|violation| &violation.file).collect();
    bad.dedup();
    println!("{} violations in {} of {} files", found.len(), bad.len(), files.len());
    let failed = bad.len() as u64;
    Ok(Tally { passed: (files.len() as u64).saturating_sub(failed), failed })
}

/// The rules that `check` finds broken in a file `path` with `text`.
#[cfg(test)]
fn rules(check: impl Fn(&SourceFile, &mut Vec<Violation>), path: &str, text: &str) -> Vec<String> {
    let file = SourceFile { path: path.into(), text: text.into() };
    let mut found = Vec::new();
    check(&file, &mut found);
    found.iter().map(|violation| format!("{}:{}", violation.line, violation.rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let found = check(&tree::sources(&tree::root()).unwrap());
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
