//! `cargo xtask lines CRATE`: lines of code, module by module.
//!
//! A line counts if code stands on it: neither empty lines nor comments do, nor what is compiled
//! for tests only. Tokens are counted, so that no comment in a string misleads.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tally::Tally;
use crate::{Failure, tree};

/// A module, and its lines in two file systems; none where there is no such module.
type Row = (&'static str, Option<u32>, Option<u32>);

/// The table of Figure 6 of *DFS: A File System for Virtualized Flash Storage* (2010): lines of
/// code in DFS and in ext3.
const FIGURE_6: [Row; 10] = [
    ("headers", Some(392), Some(1583)),
    ("kernel interface", Some(1625), Some(2973)),
    ("logging", Some(0), Some(7128)),
    ("block allocator", Some(0), Some(1909)),
    ("i-nodes", Some(250), Some(6544)),
    ("files", Some(286), Some(283)),
    ("directories", Some(561), Some(670)),
    ("ACLs, extended attributes", None, Some(2420)),
    ("resizing", None, Some(1085)),
    ("miscellaneous", Some(175), Some(113)),
];

/// Runs `cargo xtask lines`: counts files.
pub(crate) fn run(arguments: &[String]) -> Result<Tally, Failure> {
    let [name] = arguments else {
        return Err(Failure::Usage("lines: of which crate? One, as flash".into()));
    };
    let prefix = format!("crates/{name}/src/");
    let mut modules: BTreeMap<String, usize> = BTreeMap::new();
    let mut tally = Tally::default();
    for file in tree::sources(&tree::root())?.iter().filter(|file| file.is_rust()) {
        let Some(path) = file.path.strip_prefix(&prefix) else {
            continue;
        };
        // Modules that are compiled for tests only have a file of that name.
        if path.split('/').any(|part| part == "tests.rs") {
            continue;
        }
        let module = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        let counted = count(&file.text);
        tally += Tally::one(counted.is_some());
        *modules.entry(module.to_owned()).or_default() += counted.unwrap_or(0);
    }
    if modules.is_empty() {
        return Err(Failure::Usage(format!("lines: there is no {prefix}")));
    }
    println!("{:<28}{:>8}", format!("crates/{name}"), "lines");
    for (module, lines) in &modules {
        println!("{module:<28}{lines:>8}");
    }
    println!("{:<28}{:>8}", "total", modules.values().sum::<usize>());
    if name == "flash" {
        println!("\n{}", figure_6());
    }
    Ok(tally)
}

/// The table of DFS, beside which a flash layer of one's own can be seen.
fn figure_6() -> String {
    let row = |name: &str, dfs: &str, ext3: &str| format!("{name:<28}{dfs:>8}{ext3:>8}\n");
    let number = |lines: Option<u32>| lines.map_or("-".to_owned(), |lines| lines.to_string());
    let mut text = row("DFS (2010), Figure 6", "DFS", "ext3");
    for (name, dfs, ext3) in FIGURE_6 {
        text.push_str(&row(name, &number(dfs), &number(ext3)));
    }
    let sum =
        |lines: fn(&Row) -> Option<u32>| FIGURE_6.iter().filter_map(lines).sum::<u32>().to_string();
    text.push_str(&row("total", &sum(|row| row.1), &sum(|row| row.2)));
    text + "(DFS: without the flash layer below it, which is what was counted above.)"
}

/// Lines of code in `text`; none if it can't be read.
fn count(text: &str) -> Option<usize> {
    let mut lines = BTreeSet::new();
    mark(text.parse().ok()?, &mut lines);
    Some(lines.len())
}

/// Adds the lines that the tokens of `stream` stand on, without documentation and tests.
fn mark(stream: TokenStream, lines: &mut BTreeSet<usize>) {
    let mut rest = stream.into_iter().peekable();
    while let Some(tree) = rest.next() {
        if is_punct(&tree, '#') {
            let inner = rest.next_if(|next| is_punct(next, '!'));
            let attribute = rest.next_if(|next| group(next).is_some());
            match attribute.as_ref().and_then(group).map(|group| group.stream().to_string()) {
                Some(text) if text.starts_with("doc ") || text.starts_with("doc=") => continue,
                Some(text) if text.replace(' ', "") == "cfg(test)" => {
                    // Up to the end of what it is of.
                    rest.find(|next| {
                        let brace = group(next).map(Group::delimiter) == Some(Delimiter::Brace);
                        brace || is_punct(next, ';')
                    });
                    continue;
                }
                _ => {}
            }
            for token in inner.into_iter().chain(attribute) {
                mark_tree(token, lines);
            }
        }
        mark_tree(tree, lines);
    }
}

fn mark_tree(tree: TokenTree, lines: &mut BTreeSet<usize>) {
    match tree {
        TokenTree::Group(group) => {
            lines.extend([group.span_open().start().line, group.span_close().start().line]);
            mark(group.stream(), lines);
        }
        // A string may have several lines.
        other => lines.extend(other.span().start().line..=other.span().end().line),
    }
}

fn is_punct(tree: &TokenTree, wanted: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn group(tree: &TokenTree) -> Option<&Group> {
    match tree {
        TokenTree::Group(group) => Some(group),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_counts() {
        let text = "//! Words.\n\n/// More.\n#[inline]\nfn f() {\n    // a comment\n    g(\n\
                    \"// two\nlines\",\n    );\n}\n\n#[cfg(test)]\nmod tests {\n    fn h() {}\n}\n\
                    #[cfg(test)]\nuse x::y;\n#![allow(a)]\nconst A: u8 = 1; /* b */\n";
        // The attribute; four lines of `f` and two of its string; the last two.
        assert_eq!(count(text), Some(9));
        assert_eq!(count("fn f() {"), None);
        assert_eq!(count("// none\n"), Some(0));
    }

    #[test]
    fn the_table_has_the_sums_that_the_paper_has() {
        let last = figure_6().lines().find(|line| line.starts_with("total")).unwrap().to_owned();
        assert_eq!(last.split_whitespace().collect::<Vec<_>>(), ["total", "3289", "24708"]);
    }
}
