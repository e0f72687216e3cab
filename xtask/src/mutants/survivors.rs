//! The accepted survivors of a crate: mutants that no test can notice, each with the reason.
//!
//! They stand in `docs/mutants/CRATE.survivors`, as entries of five lines and an empty one; lines
//! that begin with `#` are comments:
//!
//! ```text
//! file: crates/pm/src/lock.rs
//! in: Lock::unlock
//! what: swap #1
//! text: memory.wake(at, 1); <-> self.note();
//! reason: The two are independent.
//! ```

use core::fmt;
use std::collections::BTreeMap;
use std::path::Path;

use super::operators::Mutant;
use crate::Failure;

/// An accepted survivor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    file: String,
    function: String,
    what: String,
    text: String,
    /// Why no test notices it.
    pub(super) reason: String,
}

impl Accepted {
    /// Whether this entry means `mutant`.
    pub(super) fn is_for(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file
            && self.function == mutant.function
            && self.what == format!("{} #{}", mutant.operator, mutant.occurrence)
            && self.text == mutant.text
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in {}: {}", self.file, self.what, self.function, self.text)
    }
}

/// The accepted survivors of crate `package`; none if there is no list.
pub(super) fn read(root: &Path, package: &str) -> Result<Vec<Accepted>, Failure> {
    let path = root.join(format!("docs/mutants/{package}.survivors"));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|e| Failure::system("can't read", &path, &e))?;
    parse(&text).map_err(|what| Failure::Broken(format!("{}: {what}", path.display())))
}

/// The entries in `text`.
pub(super) fn parse(text: &str) -> Result<Vec<Accepted>, String> {
    let is_comment = |line: &&str| line.starts_with('#');
    let lines: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
    let mut entries = Vec::new();
    for block in lines.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        let mut fields = BTreeMap::new();
        for line in block {
            let (name, value) = line.split_once(':').ok_or(format!("no field: {line:?}"))?;
            fields.insert(name.trim(), value.trim());
        }
        let mut field = |name: &str| match fields.remove(name) {
            Some(value) if !value.is_empty() => Ok(value.to_owned()),
            _ => Err(format!("no {name:?} in the entry {}", block.join(" / "))),
        };
        entries.push(Accepted {
            file: field("file")?,
            function: field("in")?,
            what: field("what")?,
            text: field("text")?,
            reason: field("reason")?,
        });
        if let Some(name) = fields.keys().next() {
            return Err(format!("unknown field {name:?}"));
        }
    }
    Ok(entries)
}
