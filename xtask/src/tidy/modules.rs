//! Every source file belongs to a crate: no file is left over.

use std::collections::BTreeSet;

use super::Violation;
use crate::tree::SourceFile;

/// Checks the whole workspace.
pub(super) fn check(files: &[SourceFile], found: &mut Vec<Violation>) {
    let rust: Vec<&SourceFile> = files.iter().filter(|file| file.is_rust()).collect();
    if rust.iter().any(|file| syn::parse_file(&file.text).is_err()) {
        // Told elsewhere, and whatever such a file leads to would seem lost.
        return;
    }
    let mut reached = BTreeSet::new();
    for file in &rust {
        if is_root(&file.path) {
            reach(file, directory(&file.path), &rust, &mut reached);
        }
    }
    for file in rust {
        if !reached.contains(&file.path) {
            found.push(Violation::new(file, 1, "orphan", "no `mod` leads to this file"));
        }
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Whether cargo compiles `path` by itself.
fn is_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let file = parts.next().unwrap_or("");
    let parent = parts.next().unwrap_or("");
    let grandparent = parts.next().unwrap_or("");
    let holds_roots = |name: &str| ["bin", "tests", "benches", "examples"].contains(&name);
    match (parent, file) {
        ("src", "lib.rs" | "main.rs") => true,
        (_, "build.rs") => parent != "src",
        (_, "main.rs") => holds_roots(grandparent),
        _ => holds_roots(parent),
    }
}

/// Adds `file`, whose modules are under `under`, and all files that its `mod` items lead to.
fn reach(file: &SourceFile, under: &str, files: &[&SourceFile], reached: &mut BTreeSet<String>) {
    if !reached.insert(file.path.clone()) {
        return;
    }
    if let Ok(syntax) = syn::parse_file(&file.text) {
        follow(&syntax.items, under, directory(&file.path), files, reached);
    }
}

fn follow(
    items: &[syn::Item],
    under: &str,
    here: &str,
    files: &[&SourceFile],
    reached: &mut BTreeSet<String>,
) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        let inner = format!("{under}/{}", module.ident);
        if let Some((_, items)) = &module.content {
            follow(items, &inner, here, files, reached);
            continue;
        }
        // What a file named by a path holds is beside it.
        let candidates = match named_path(&module.attrs).map(|path| join(here, &path)) {
            Some(path) => vec![(path.clone(), directory(&path).to_owned())],
            None => ["", "/mod"].map(|end| (format!("{inner}{end}.rs"), inner.clone())).to_vec(),
        };
        for (candidate, under) in candidates {
            if let Some(file) = files.iter().find(|file| file.path == candidate) {
                reach(file, &under, files, reached);
            }
        }
    }
}

/// `path`, which may begin with `..`, seen from the directory `here`.
fn join(mut here: &str, mut path: &str) -> String {
    while let Some(rest) = path.strip_prefix("../") {
        (here, path) = (directory(here), rest);
    }
    format!("{here}/{path}")
}

/// The path in `#[path = "..."]`.
fn named_path(attributes: &[syn::Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|a| a.path().is_ident("path"))?;
    let syn::Expr::Lit(literal) = &attribute.meta.require_name_value().ok()?.value else {
        return None;
    };
    match &literal.lit {
        syn::Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphans(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile { path: (*path).into(), text: (*text).into() })
            .collect();
        let mut found = Vec::new();
        check(&files, &mut found);
        found.into_iter().map(|violation| violation.file).collect()
    }

    #[test]
    fn files_without_a_mod_are_found() {
        let found = orphans(&[
            ("crates/a/src/lib.rs", "mod b;\nmod inline { mod e; }\n"),
            ("crates/a/src/b.rs", "mod c;\n#[path = \"other.rs\"]\nmod d;\n"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/other.rs", ""),
            ("crates/a/src/inline/e/mod.rs", ""),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/src/bin/two/main.rs", "#[path = \"../../bin/os/mod.rs\"]\nmod os;\n"),
            ("crates/a/src/bin/os/mod.rs", "mod child;\n"),
            ("crates/a/src/bin/os/child.rs", ""),
            ("crates/a/tests/t.rs", "mod common;\n"),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/build.rs", ""),
            ("crates/a/src/c.rs", ""),
            ("crates/a/src/b/lost.rs", ""),
        ]);
        assert_eq!(found, ["crates/a/src/c.rs", "crates/a/src/b/lost.rs"]);
    }
}
