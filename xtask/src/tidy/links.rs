//! Documents name only files that exist.

use super::Violation;
use crate::tree::SourceFile;

/// Top directories: a backticked text that starts with one of them is a path.
const TOPS: [&str; 5] = ["crates/", "xtask/", "docs/", ".ci/", ".cargo/"];
/// Words that stand for a name in a path.
const PLACEHOLDERS: [&str; 3] = ["CRATE", "NAME", "TARGET"];

/// Checks one Markdown file.
pub(super) fn check(file: &SourceFile, files: &[SourceFile], found: &mut Vec<Violation>) {
    let exists = |path: &str| {
        let path = path.trim_end_matches('/');
        path.is_empty()
            || files.iter().any(|file| {
                let rest = file.path.strip_prefix(path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    };
    let mut in_block = false;
    for (at, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        for target in links(line) {
            let path = target.split('#').next().unwrap_or("");
            let resolved = resolve(&file.path, path);
            if !path.is_empty() && !resolved.is_some_and(|path| exists(&path)) {
                let what = format!("{target}: no such file");
                found.push(Violation::new(file, at + 1, "link", what));
            }
        }
        for text in line.split('`').skip(1).step_by(2) {
            let is_path = TOPS.iter().any(|top| text.starts_with(top))
                && !text.contains([' ', '*', '{', '<'])
                && !PLACEHOLDERS.iter().any(|word| text.contains(word));
            if is_path && !exists(text.split(':').next().unwrap_or(text)) {
                found.push(Violation::new(file, at + 1, "path", format!("{text}: no such file")));
            }
        }
    }
}

/// The relative targets of links in `line`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let code: Vec<bool> = line
        .bytes()
        .scan(false, |inside, byte| {
            *inside ^= byte == b'`';
            Some(*inside)
        })
        .collect();
    line.match_indices("](").filter_map(move |(at, _)| {
        let target = line.get(at + 2..)?.split(')').next()?;
        let is_code = code.get(at).copied().unwrap_or(false);
        let is_foreign = target.contains("://") || target.starts_with("mailto:");
        (!is_code && !is_foreign).then_some(target)
    })
}

/// `path` from the root, as named in file `from`; none if it leads out of the tree.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules;

    fn broken(text: &str) -> Vec<String> {
        let files = ["README.md", "docs/A.md", "crates/pm/src/lib.rs"]
            .map(|path| SourceFile { path: path.into(), text: String::new() });
        rules(|file, found| check(file, &files, found), "docs/B.md", text)
    }

    #[test]
    fn dead_links_and_paths_are_found() {
        assert!(
            broken("[a](A.md#part) [b](../README.md) [c](https://x.y/z) [d](#here)\n").is_empty()
        );
        assert!(
            broken("`crates/pm/src/lib.rs` `crates/pm` `docs/mutants/CRATE.x` `a/b`\n").is_empty()
        );
        assert!(broken("```\n[a](none.md)\n```\n`[a](none.md)`\n").is_empty());
        assert_eq!(broken("\n[a](none.md)\n"), ["2:link"]);
        assert_eq!(broken("[a](../../A.md)\n"), ["1:link"]);
        assert_eq!(broken("see `crates/pm/src/none.rs`\n"), ["1:path"]);
        assert_eq!(broken("see `crates/p`\n"), ["1:path"]);
    }
}
