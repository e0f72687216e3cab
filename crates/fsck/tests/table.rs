//! The table of codes in `docs/FSCK.md` is that of the code.

#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::collections::BTreeSet;

use conquest_fsck::Code;

/// The row that a code should have.
fn row(code: Code) -> String {
    let (name, severity) = (code.name(), code.severity().name());
    format!("| `{name}` | {severity} | {} | {} |", code.meaning(), code.repair())
}

#[test]
fn the_table_in_the_document_has_a_row_for_each_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FSCK.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let wanted: Vec<String> = Code::ALL.iter().map(|code| row(*code)).collect();
    assert_eq!(rows, wanted);
}

#[test]
fn names_are_different_words_and_hyphens() {
    let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), Code::ALL.len());
    let is_fit = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    assert!(names.iter().all(is_fit), "{names:?}");
}
