//! Rules about Rust code: stores, fences, `unsafe`, and the length of functions.
//!
//! Stores, fences and `unsafe` are looked for in tokens, so that macros hide nothing.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Violation;
use crate::tree::SourceFile;

/// Lines in a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// The functions of `Memory` that store or order stores, and how many arguments each has. The
/// number tells them from functions of the same name elsewhere.
const STORES: [(&str, usize); 9] = [
    ("put", 3),
    ("put_or", 2),
    ("put_and_not", 2),
    ("put_bytes", 2),
    ("put_zeros", 2),
    ("write_back", 2),
    ("fence", 0),
    ("store", 3),
    ("compare_exchange", 5),
];
/// Where they may be called; the memory of a measured floor is no region.
const STORE_PLACES: [&str; 4] = [
    "crates/bench/src/calls/leader.rs",
    "crates/conquest/src/store/bytes.rs",
    "crates/pm/src/",
    "crates/testkit/",
];

/// Names that write through raw pointers: alone, or after `ptr::`.
const RAW_WRITES: [&str; 11] = [
    "from_ptr",
    "copy_nonoverlapping",
    "copy_to_nonoverlapping",
    "copy_from_nonoverlapping",
    "write_volatile",
    "write_unaligned",
    "write_bytes",
    "volatile_write",
    "asm",
    "global_asm",
    "naked_asm",
];
const RAW_WRITES_OF_PTR: [&str; 4] = ["write", "copy", "replace", "swap"];
/// Where raw writes and fences may stand.
const MEDIA_PLACES: [&str; 2] = ["crates/pm/src/media/", "crates/pm/src/persist.rs"];

/// Instructions and intrinsics that order or write back; instructions stand in assembly.
const FENCES: [&str; 12] = [
    "sfence",
    "mfence",
    "lfence",
    "clwb",
    "clflush",
    "clflushopt",
    "dsb",
    "_mm_sfence",
    "_mm_mfence",
    "_mm_lfence",
    "_mm_clflush",
    "compiler_fence",
];

/// Where `unsafe` may stand.
const UNSAFE_PLACES: [&str; 10] = [
    "crates/fuse/src/sys.rs",
    "crates/peers/src/",
    "crates/pm/src/media/",
    "crates/pm/src/persist.rs",
    "crates/pm/src/bin/",
    "crates/pm/tests/",
    "crates/testkit/src/bin/",
    "crates/testkit/tests/",
    "crates/testkit/benches/",
    "crates/uring/src/",
];

/// Checks one Rust file.
pub(super) fn check(file: &SourceFile, found: &mut Vec<Violation>) {
    let parsed = syn::parse_file(&file.text);
    let syntax = match parsed {
        Ok(syntax) => syntax,
        Err(error) => {
            let line = error.span().start().line;
            found.push(Violation::new(file, line, "parse", error.to_string()));
            return;
        }
    };
    let mut tokens = Vec::new();
    if let Ok(stream) = file.text.parse::<TokenStream>() {
        flatten(stream, &mut tokens);
    }
    stores(file, &tokens, found);
    raw_writes(file, &tokens, found);
    fences(file, &tokens, found);
    unsafe_places(file, &tokens, found);
    let mut visitor = Functions { file, lines: file.text.lines().collect(), statement: 0, found };
    visitor.visit_file(&syntax);
}

struct Token {
    text: String,
    line: usize,
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let token = |text: &str, line| Token { text: text.into(), line };
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(token(open, line));
                flatten(group.stream(), tokens);
                tokens.push(token(close, group.span_close().start().line));
            }
            other => tokens.push(token(&other.to_string(), line)),
        }
    }
}

fn is_in(file: &SourceFile, places: &[&str]) -> bool {
    places.iter().any(|place| file.path.starts_with(place))
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

/// Whether `before` stands directly before the token at `at`.
fn follows(tokens: &[Token], at: usize, before: &[&str]) -> bool {
    at >= before.len()
        && before
            .iter()
            .enumerate()
            .all(|(nth, expected)| text(tokens, at - before.len() + nth) == *expected)
}

/// Arguments in the parentheses that open at `open`.
fn arguments(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    let mut count = 0;
    let mut is_empty = true;
    for token in tokens.iter().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => {
                is_empty &= depth == 0;
                depth += 1;
            }
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            "," if depth == 1 => {
                count += 1;
                is_empty = true;
            }
            _ => is_empty = false,
        }
    }
    if is_empty { count } else { count + 1 }
}

fn stores(file: &SourceFile, tokens: &[Token], found: &mut Vec<Violation>) {
    if is_in(file, &STORE_PLACES) || file.path.contains("/tests/") {
        return;
    }
    for (at, token) in tokens.iter().enumerate() {
        let Some((name, count)) = STORES.iter().find(|(name, _)| *name == token.text) else {
            continue;
        };
        if text(tokens, at + 1) != "(" {
            continue;
        }
        let given = arguments(tokens, at + 1);
        let is_method = follows(tokens, at, &["."]) && given == *count;
        let is_path = follows(tokens, at, &["Memory", ":", ":"]) && given == count + 1;
        if is_method || is_path {
            let what = format!("{name}: only crates/pm stores into a region");
            found.push(Violation::new(file, token.line, "store", what));
        }
    }
}

fn raw_writes(file: &SourceFile, tokens: &[Token], found: &mut Vec<Violation>) {
    if !file.path.starts_with("crates/pm/src/") || is_in(file, &MEDIA_PLACES) {
        return;
    }
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.as_str();
        let of_ptr = RAW_WRITES_OF_PTR.contains(&name) && follows(tokens, at, &["ptr", ":", ":"]);
        if RAW_WRITES.contains(&name) || of_ptr {
            let what = format!("{name}: only media and persist.rs write through raw pointers");
            found.push(Violation::new(file, token.line, "raw-write", what));
        }
    }
}

fn fences(file: &SourceFile, tokens: &[Token], found: &mut Vec<Violation>) {
    if is_in(file, &MEDIA_PLACES) || file.path.contains("/tests/") {
        return;
    }
    let mut complain = |line: usize, name: &str| {
        let what = format!("{name}: fences only in media and persist.rs");
        found.push(Violation::new(file, line, "fence", what));
    };
    let mut assembly = 0;
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.as_str();
        if follows(tokens, at, &["asm", "!", "("]) {
            let end = tokens.iter().skip(at).position(|token| token.text == ")");
            assembly = at + end.unwrap_or(0);
        }
        if at < assembly && name.starts_with('"') {
            let words = name.split(|c: char| !c.is_ascii_alphanumeric());
            for word in words.filter(|word| FENCES.contains(word)) {
                complain(token.line, word);
            }
        } else if FENCES.contains(&name) {
            complain(token.line, name);
        } else if name == "fence" {
            let of_atomic = follows(tokens, at, &["atomic", ":", ":"]);
            let is_free = !follows(tokens, at, &["."]) && !follows(tokens, at, &["fn"]);
            let order = ["Ordering", "Acquire", "Release", "AcqRel", "SeqCst"];
            let is_call = text(tokens, at + 1) == "(" && order.contains(&text(tokens, at + 2));
            if of_atomic || is_free && is_call {
                complain(token.line, "fence");
            }
        }
    }
}

fn unsafe_places(file: &SourceFile, tokens: &[Token], found: &mut Vec<Violation>) {
    if is_in(file, &UNSAFE_PLACES) {
        return;
    }
    for token in tokens.iter().filter(|token| token.text == "unsafe") {
        let what = format!("allowed only in {}", UNSAFE_PLACES.join(", "));
        found.push(Violation::new(file, token.line, "unsafe-place", what));
    }
}

/// Visits functions and unsafe blocks.
struct Functions<'a> {
    file: &'a SourceFile,
    lines: Vec<&'a str>,
    /// Line on which the innermost statement starts.
    statement: usize,
    found: &'a mut Vec<Violation>,
}

impl Functions<'_> {
    fn length(&mut self, name: &syn::Ident, start: usize, block: &syn::Block) {
        let end = block.brace_token.span.close().end().line;
        let lines = end + 1 - start;
        if lines > FUNCTION_LINES_MAX {
            let what = format!("{name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
            self.found.push(Violation::new(self.file, start, "function-length", what));
        }
    }

    /// Whether the comments directly above line `line`, or that line, say why it is safe.
    fn is_justified(&self, line: usize) -> bool {
        let word = concat!("SAFE", "TY");
        let at = |line: usize| self.lines.get(line.wrapping_sub(1)).map_or("", |l| l.trim_start());
        if at(line).split_once("//").is_some_and(|(_, comment)| comment.contains(word)) {
            return true;
        }
        let is_lead = |line: &usize| at(*line).starts_with("//") || at(*line).starts_with("#[");
        let mut lead = (1..line).rev().take_while(is_lead);
        lead.any(|line| at(line).contains(word))
    }

    fn unsafe_at(&mut self, line: usize) {
        if !self.is_justified(line) && !self.is_justified(self.statement) {
            let what = "no comment above it says why it is safe";
            self.found.push(Violation::new(self.file, line, "unsafe-comment", what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.length(&item.sig.ident, item.sig.span().start().line, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.length(&item.sig.ident, item.sig.span().start().line, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.length(&item.sig.ident, item.sig.span().start().line, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let outer = self.statement;
        self.statement = statement.span().start().line;
        visit::visit_stmt(self, statement);
        self.statement = outer;
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_at(block.unsafe_token.span.start().line);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = item.unsafety {
            self.statement = 0;
            self.unsafe_at(token.span.start().line);
        }
        visit::visit_item_impl(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules;

    const ELSEWHERE: &str = "crates/fs/src/a.rs";

    #[test]
    fn stores_only_in_pm() {
        for call in [
            "m.put(at, value, Ordering::Release)",
            "m.put_or(at, f(1, 2))",
            "m.put_and_not(at, bits)",
            "m.put_bytes(at, &[1, 2])",
            "m.put_zeros(at, 8)",
            "m.write_back(at, 8)",
            "m.fence()",
            "m.store(at, 1, Ordering::Relaxed)",
            "m.compare_exchange(at, 0, 1, Ordering::Acquire, Ordering::Relaxed,)",
            "Memory::put_or(m, at, bits)",
            "assert!(m.fence())",
        ] {
            let text = format!("fn f() {{\n{call};\n}}\n");
            assert_eq!(rules(check, ELSEWHERE, &text), ["2:store"], "{call}");
            assert!(rules(check, "crates/pm/src/a.rs", &text).is_empty());
            assert!(rules(check, "crates/fs/tests/a.rs", &text).is_empty());
        }
        for call in [
            "atomic.store(1, Ordering::Relaxed)",
            "atomic.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)",
            "map.put(key, value)",
        ] {
            assert!(rules(check, ELSEWHERE, &format!("fn f() {{ {call}; }}\n")).is_empty());
        }
    }

    #[test]
    fn raw_writes_only_in_media() {
        for call in [
            "core::ptr::write(p, 1)",
            "ptr::copy_nonoverlapping(a, b, 8)",
            "AtomicU64::from_ptr(p)",
            "p.write_volatile(1)",
            "core::arch::asm!(\"nop\")",
        ] {
            let text = format!("fn f() {{\n{call};\n}}\n");
            assert_eq!(rules(check, "crates/pm/src/a.rs", &text), ["2:raw-write"], "{call}");
            assert!(rules(check, "crates/pm/src/media/a.rs", &text).is_empty());
            assert!(rules(check, "crates/pm/src/persist.rs", &text).is_empty());
        }
    }

    #[test]
    fn fences_only_in_media() {
        for call in [
            "core::sync::atomic::fence(Ordering::SeqCst)",
            "fence(Ordering::SeqCst)",
            "fence(SeqCst)",
            "_mm_sfence()",
            "compiler_fence(Ordering::SeqCst)",
            "core::arch::asm!(\"clwb [{0}]\", in(reg) p)",
            "core::arch::asm!(\"dsb sy\")",
        ] {
            let text = format!("fn f() {{\n{call};\n}}\n");
            assert_eq!(rules(check, ELSEWHERE, &text), ["2:fence"], "{call}");
            assert!(rules(check, "crates/pm/src/media/a.rs", &text).is_empty());
            assert!(rules(check, "crates/pm/tests/loom.rs", &text).is_empty());
        }
        let text = "use core::sync::atomic::fence;\nfn fence(order: Ordering) {}\n";
        assert_eq!(rules(check, ELSEWHERE, text), ["1:fence"]);
    }

    #[test]
    fn unsafe_has_its_places_and_its_comments() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        let place = "crates/pm/src/media/a.rs";
        assert_eq!(rules(check, place, bare), ["2:unsafe-comment"]);
        assert_eq!(rules(check, ELSEWHERE, bare), ["2:unsafe-place", "2:unsafe-comment"]);
        let good =
            "fn f() {\n    // SAFETY: g asks nothing.\n    let x =\n        unsafe { g() };\n}\n";
        assert!(rules(check, place, good).is_empty());
        assert_eq!(rules(check, place, "unsafe impl Sync for A {}\n"), ["1:unsafe-comment"]);
        assert!(
            rules(check, place, "// SAFETY: no\n// state.\nunsafe impl Sync for A {}\n").is_empty()
        );
    }

    #[test]
    fn long_functions_are_found() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        assert!(rules(check, "a.rs", &function(70)).is_empty());
        assert_eq!(rules(check, "a.rs", &function(71)), ["1:function-length"]);
        let method = format!("impl A {{\n#[inline]\n{}}}\n", function(71));
        assert_eq!(rules(check, "a.rs", &method), ["3:function-length"]);
        assert_eq!(rules(check, "a.rs", "fn f( {}\n"), ["1:parse"]);
    }
}
