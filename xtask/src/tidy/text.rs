//! Rules about lines, without understanding the language.

use super::Violation;
use crate::tree::SourceFile;

/// Columns in a line of code.
const COLUMNS_MAX: usize = 100;
/// Lines in a file of code.
const LINES_MAX: usize = 700;

/// Texts that must not stand in code, and why. Split so that they don't stand in this file.
const BANNED: [(&str, &str); 4] = [
    (concat!("to", "do!"), "unfinished"),
    (concat!("unimple", "mented!"), "unfinished"),
    (concat!("db", "g!"), "left over from debugging"),
    (concat!("#[ig", "nore"), "a test that does not run"),
];
/// Words that must not stand in code: a plan belongs into an issue.
const BANNED_WORDS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Directories of one machine.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Checks one file of any kind.
pub(super) fn check(file: &SourceFile, found: &mut Vec<Violation>) {
    machine_paths(file, found);
    let is_ours = [".rs", ".md", ".toml", ".ci/run"];
    if !is_ours.iter().any(|end| file.path.ends_with(end)) {
        return;
    }
    whitespace(file, found);
    if !file.is_rust() {
        return;
    }
    banned(file, found);
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let what = format!("{lines} lines, at most {LINES_MAX}");
        found.push(Violation::new(file, lines, "file-length", what));
    }
    for (number, line) in numbered(file) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !is_table_row(line) {
            let what = format!("{columns} columns, at most {COLUMNS_MAX}");
            found.push(Violation::new(file, number, "line-length", what));
        }
        if let Some(other) = line.chars().find(|c| !c.is_ascii()) {
            let what = format!("{other:?} (U+{:04X}) is not ASCII", other as u32);
            found.push(Violation::new(file, number, "ascii", what));
        }
    }
    if !file.text.starts_with("//! ") {
        found.push(Violation::new(file, 1, "file-doc", "does not start with a `//!` comment"));
    }
}

fn numbered(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

/// Whether `line` is a row of a table in a doc comment: such rows can't be broken.
fn is_table_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//! | ") || line.starts_with("/// | ")
}

fn whitespace(file: &SourceFile, found: &mut Vec<Violation>) {
    for (number, line) in numbered(file) {
        if line.contains('\t') {
            found.push(Violation::new(file, number, "tab", "a tab"));
        }
        if line.ends_with([' ', '\r', '\t']) {
            found.push(Violation::new(file, number, "trailing-blank", "blanks at the end"));
        }
    }
    let lines = file.text.lines().count();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        found.push(Violation::new(file, lines, "final-newline", "no newline at the end"));
    }
    if file.text.ends_with("\n\n") {
        found.push(Violation::new(file, lines, "final-newline", "empty lines at the end"));
    }
}

fn banned(file: &SourceFile, found: &mut Vec<Violation>) {
    for (number, line) in numbered(file) {
        for (text, why) in BANNED {
            if line.contains(text) {
                found.push(Violation::new(file, number, "banned", format!("{text}: {why}")));
            }
        }
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| BANNED_WORDS.contains(word)) {
            found.push(Violation::new(file, number, "banned", format!("{word}: unfinished")));
        }
    }
}

fn machine_paths(file: &SourceFile, found: &mut Vec<Violation>) {
    for (number, line) in numbered(file) {
        for path in MACHINE_PATHS {
            let is_absolute = |at: usize| {
                let before = line.get(..at).and_then(|text| text.chars().next_back());
                before.is_none_or(|c| !c.is_alphanumeric() && !"._-/".contains(c))
            };
            if line.match_indices(path).any(|(at, _)| is_absolute(at)) {
                let what = format!("{path}: a path of one machine");
                found.push(Violation::new(file, number, "machine-path", what));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules;

    fn rust(text: &str) -> Vec<String> {
        rules(check, "a.rs", &format!("//! Doc.\n{text}"))
    }

    #[test]
    fn good_lines_pass() {
        assert!(rust("fn f() {}\n").is_empty());
        let row = format!("//! | {} |\n", "a".repeat(120));
        assert!(rust(&row).is_empty());
        assert!(rust("// XXH3 is not a banned word\n").is_empty());
        assert!(rust("// crates/pm/work/ and network/root/ are no machine's paths\n").is_empty());
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let long = format!("// {}\n", "a".repeat(98));
        assert_eq!(rust(&long), ["2:line-length"]);
        assert_eq!(rust("// caf\u{e9}\n"), ["2:ascii"]);
        assert_eq!(rust("\tfn f() {}\n"), ["2:tab"]);
        assert_eq!(rust("fn f() {} \n"), ["2:trailing-blank"]);
        assert_eq!(rust("fn f() {}"), ["2:final-newline"]);
        assert_eq!(rust("fn f() {}\n\n"), ["3:final-newline"]);
        assert_eq!(rust(&"\n// a".repeat(700)), ["702:final-newline", "702:file-length"]);
        assert_eq!(rules(check, "a.rs", "fn f() {}\n"), ["1:file-doc"]);
        for (text, _) in BANNED {
            assert_eq!(rust(&format!("{text}\n")), ["2:banned"]);
        }
        for word in BANNED_WORDS {
            assert_eq!(rust(&format!("// {word}: later\n")), ["2:banned"]);
        }
        for path in MACHINE_PATHS {
            let line = format!("see `{path}a`\n");
            assert_eq!(rules(check, "a.md", &line), ["1:machine-path"]);
            assert_eq!(rules(check, "Cargo.lock", &line), ["1:machine-path"]);
        }
        assert_eq!(rules(check, "a.md", "a  \n"), ["1:trailing-blank"]);
    }
}
