//! The constants in `docs/FORMAT.md` are those in the code.
//!
//! The document names a constant in the first cell of a table's row and gives its value in the
//! second. A name is as much of the path as is needed to tell it from others: `PAGE`,
//! `lane::SIZE`. Every public numeric constant of the format crate has a row, and every row a
//! constant.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::{BinOp, Expr, Lit, UnOp};

use super::Violation;
use crate::tree::SourceFile;

const DOCUMENT: &str = "docs/FORMAT.md";
const CODE: &str = "crates/format/src/";
/// Constants that refer to constants, at most so deep.
const DEPTH_MAX: u32 = 32;

/// Checks the whole workspace.
pub(super) fn check(files: &[SourceFile], found: &mut Vec<Violation>) {
    let mut constants = Constants::default();
    for file in files.iter().filter(|file| file.path.starts_with(CODE)) {
        constants.add_file(file);
    }
    if constants.all.is_empty() {
        return;
    }
    let mut documented = BTreeSet::new();
    if let Some(document) = files.iter().find(|file| file.path == DOCUMENT) {
        for (line, name, text) in rows(&document.text) {
            match check_row(&constants, &name, &text) {
                Ok(path) => _ = documented.insert(path),
                Err(what) => found.push(Violation::new(document, line, "format-constant", what)),
            }
        }
    }
    for (path, constant) in &constants.all {
        if constant.is_public && constant.is_numeric && !documented.contains(path) {
            found.push(Violation {
                file: constant.file.clone(),
                line: constant.line,
                rule: "format-constant",
                what: format!("{path} has no correct row in {DOCUMENT}"),
            });
        }
    }
}

/// The path of the constant that a row describes correctly.
fn check_row(constants: &Constants, name: &str, text: &str) -> Result<String, String> {
    let path = constants.find(name)?;
    let actual = constants.value_of(&path, 0).ok_or(format!("{path}: too hard to evaluate"))?;
    let expression = syn::parse_str::<Expr>(text)
        .or_else(|_| syn::parse_str::<Expr>(&format!("[{text}]")))
        .map_err(|_| format!("{name}: {text:?} is no value"))?;
    let stated =
        constants.evaluate(&expression, "", 0).ok_or(format!("{name}: {text:?} is no value"))?;
    if stated == actual {
        Ok(path)
    } else {
        Err(format!("{name}: {stated} here, {actual} in the code"))
    }
}

/// Rows that begin with a constant's name: line, name, value.
fn rows(text: &str) -> Vec<(usize, String, String)> {
    let mut rows = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut cells = line.split('|').map(str::trim);
        let (Some(""), Some(name), Some(value)) = (cells.next(), cells.next(), cells.next()) else {
            continue;
        };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else {
            continue;
        };
        let last = name.rsplit("::").next().unwrap_or("");
        let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if last.starts_with(|c: char| c.is_ascii_uppercase()) && last.chars().all(is_upper) {
            rows.push((at + 1, name.to_owned(), value.replace('`', "")));
        }
    }
    rows
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Value {
    Number(i128),
    Bytes(Vec<u8>),
    List(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::List(values) => {
                let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(f, "{}", texts.join(", "))
            }
        }
    }
}

struct Constant {
    file: String,
    line: usize,
    is_public: bool,
    is_numeric: bool,
    expression: Expr,
}

#[derive(Default)]
struct Constants {
    /// By path in the crate, such as `volatile::lane::SIZE`.
    all: BTreeMap<String, Constant>,
    /// What `use` items bring into a module: (module, name) to path.
    imports: BTreeMap<(String, String), String>,
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

impl Constants {
    fn add_file(&mut self, file: &SourceFile) {
        let Ok(syntax) = syn::parse_file(&file.text) else {
            return;
        };
        let path = file.path.trim_start_matches(CODE).trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod");
        let module = if path == "lib" { String::new() } else { path.replace('/', "::") };
        self.add_items(&syntax.items, &module, file);
    }

    fn add_items(&mut self, items: &[syn::Item], module: &str, file: &SourceFile) {
        for item in items {
            match item {
                syn::Item::Const(item) if item.ident != "_" => {
                    let constant = Constant {
                        file: file.path.clone(),
                        line: item.span().start().line,
                        is_public: matches!(item.vis, syn::Visibility::Public(_)),
                        is_numeric: is_numeric(&item.ty),
                        expression: (*item.expr).clone(),
                    };
                    self.all.insert(join(module, &item.ident.to_string()), constant);
                }
                syn::Item::Mod(item) => {
                    let inner = join(module, &item.ident.to_string());
                    if let Some((_, items)) = &item.content {
                        self.add_items(items, &inner, file);
                    }
                }
                syn::Item::Use(item) => self.add_use(&item.tree, module, ""),
                _ => {}
            }
        }
    }

    fn add_use(&mut self, tree: &syn::UseTree, module: &str, prefix: &str) {
        match tree {
            syn::UseTree::Path(path) => {
                let prefix = join(prefix, &path.ident.to_string());
                self.add_use(&path.tree, module, &prefix);
            }
            syn::UseTree::Name(name) => {
                let name = name.ident.to_string();
                let path = join(prefix, &name);
                self.imports.insert((module.to_owned(), name), path);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, module, prefix);
                }
            }
            syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
        }
    }

    /// The path of the one constant that `name` can mean in the document.
    fn find(&self, name: &str) -> Result<String, String> {
        if self.all.contains_key(name) {
            return Ok(name.to_owned());
        }
        let end = format!("::{name}");
        let mut paths = self.all.keys().filter(|path| path.ends_with(&end));
        match (paths.next(), paths.next()) {
            (Some(path), None) => Ok(path.clone()),
            (Some(first), Some(second)) => Err(format!("{name}: is it {first} or {second}?")),
            (None, _) => Err(format!("{name}: no such constant in {CODE}")),
        }
    }

    fn value_of(&self, path: &str, depth: u32) -> Option<Value> {
        let constant = self.all.get(path)?;
        let module = path.rsplit_once("::").map_or("", |(module, _)| module);
        if depth > DEPTH_MAX {
            return None;
        }
        self.evaluate(&constant.expression, module, depth + 1)
    }

    /// The value of the constant that `path` names in `module`.
    fn resolve(&self, path: &str, module: &str, depth: u32) -> Option<Value> {
        let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
        match path {
            "u8::MAX" => return Some(Value::Number(u8::MAX.into())),
            "u16::MAX" => return Some(Value::Number(u16::MAX.into())),
            "u32::MAX" => return Some(Value::Number(u32::MAX.into())),
            "u64::MAX" => return Some(Value::Number(u64::MAX.into())),
            _ => {}
        }
        if let Some(rest) = path.strip_prefix("crate::") {
            return self.value_of(rest, depth);
        }
        if let Some(rest) = path.strip_prefix("super::") {
            return self.resolve(rest, parent, depth);
        }
        let path = path.strip_prefix("self::").unwrap_or(path);
        let local = join(module, path);
        if self.all.contains_key(&local) {
            return self.value_of(&local, depth);
        }
        let (first, rest) = path.split_once("::").map_or((path, None), |(a, b)| (a, Some(b)));
        if let Some(import) = self.imports.get(&(module.to_owned(), first.to_owned())) {
            let whole = rest.map_or_else(|| import.clone(), |rest| format!("{import}::{rest}"));
            if whole != path && depth < DEPTH_MAX {
                return self.resolve(&whole, module, depth + 1);
            }
        }
        self.value_of(path, depth)
    }

    fn evaluate(&self, expression: &Expr, module: &str, depth: u32) -> Option<Value> {
        let number = |expression: &Expr| match self.evaluate(expression, module, depth)? {
            Value::Number(number) => Some(number),
            _ => None,
        };
        match expression {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(int) => int.base10_parse().ok().map(Value::Number),
                Lit::Byte(byte) => Some(Value::Number(byte.value().into())),
                Lit::ByteStr(bytes) => Some(Value::Bytes(bytes.value())),
                Lit::Str(text) => Some(Value::Bytes(text.value().into_bytes())),
                _ => None,
            },
            Expr::Paren(inner) => self.evaluate(&inner.expr, module, depth),
            Expr::Group(inner) => self.evaluate(&inner.expr, module, depth),
            Expr::Cast(inner) => self.evaluate(&inner.expr, module, depth),
            Expr::Unary(unary) => match unary.op {
                UnOp::Deref(_) => self.evaluate(&unary.expr, module, depth),
                UnOp::Neg(_) => Some(Value::Number(number(&unary.expr)?.checked_neg()?)),
                _ => None,
            },
            Expr::Binary(binary) => {
                let (left, right) = (number(&binary.left)?, number(&binary.right)?);
                operate(&binary.op, left, right).map(Value::Number)
            }
            Expr::Array(array) => {
                let values = array.elems.iter().map(|e| self.evaluate(e, module, depth));
                values.collect::<Option<_>>().map(Value::List)
            }
            // A newtype's constructor, such as `Offset::new(8)`.
            Expr::Call(call) if call.args.len() == 1 => {
                self.evaluate(call.args.first()?, module, depth)
            }
            Expr::Path(path) => {
                let names: Vec<String> =
                    path.path.segments.iter().map(|s| s.ident.to_string()).collect();
                self.resolve(&names.join("::"), module, depth)
            }
            _ => None,
        }
    }
}

fn operate(operator: &BinOp, left: i128, right: i128) -> Option<i128> {
    match operator {
        BinOp::Add(_) => left.checked_add(right),
        BinOp::Sub(_) => left.checked_sub(right),
        BinOp::Mul(_) => left.checked_mul(right),
        BinOp::Div(_) => left.checked_div(right),
        BinOp::Rem(_) => left.checked_rem(right),
        BinOp::BitOr(_) => Some(left | right),
        BinOp::BitAnd(_) => Some(left & right),
        BinOp::Shl(_) => left.checked_shl(right.try_into().ok()?),
        BinOp::Shr(_) => left.checked_shr(right.try_into().ok()?),
        _ => None,
    }
}

fn is_numeric(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Array(array) => is_numeric(&array.elem),
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|segment| {
            let name = segment.ident.to_string();
            let is_integer = name.starts_with(['u', 'i']) && !name.contains('_');
            is_integer || name == "Offset"
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "pub const WORD: u64 = 8;\npub const PAGE: u64 = 1 << 12;\n";
    const LANE: &str = "use crate::{Offset, PAGE};\nconst HALF: u64 = PAGE / 2;\n\
        pub mod head {\n    pub const SIZE: u64 = crate::WORD * super::HALF;\n}\n\
        pub mod tail {\n    pub const SIZE: usize = super::head::SIZE as usize + 1;\n}\n\
        pub const MAGIC: [u8; 2] = *b\"CQ\";\n\
        pub const NOBODY: u32 = u32::MAX;\n\
        pub const BOTH: [Offset; 2] = [Offset::new(0), Offset::new(PAGE)];\n";
    const GOOD: &str = "| `WORD` | 8 | |\n| `PAGE` | 4096 | |\n| `head::SIZE` | 16384 |\n\
        | `tail::SIZE` | 0x4001 |\n| `MAGIC` | \"CQ\" |\n| `BOTH` | 0, 4096 |\n\
        | `NOBODY` | 0xFFFF_FFFF |\n";

    fn broken(document: &str) -> Vec<String> {
        let files: Vec<SourceFile> = [
            ("crates/format/src/lib.rs", LIB),
            ("crates/format/src/lane.rs", LANE),
            (DOCUMENT, document),
        ]
        .map(|(path, text)| SourceFile { path: path.into(), text: text.into() })
        .into();
        let mut found = Vec::new();
        check(&files, &mut found);
        found.into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn equal_constants_pass() {
        assert_eq!(broken(GOOD), Vec::<String>::new());
        let computed = GOOD.replace("16384", "`WORD * PAGE / 2`");
        assert_eq!(broken(&computed), Vec::<String>::new());
    }

    #[test]
    fn every_difference_is_found() {
        let wrong = GOOD.replace("| 4096 |", "| 4097 |");
        let found = broken(&wrong);
        assert_eq!(found[0], "PAGE: 4097 here, 4096 in the code");
        assert_eq!(found[1], "PAGE has no correct row in docs/FORMAT.md");
        let missing = GOOD.replace("| `MAGIC` | \"CQ\" |\n", "");
        assert_eq!(broken(&missing), ["lane::MAGIC has no correct row in docs/FORMAT.md"]);
        let surplus = format!("{GOOD}| `GONE` | 1 |\n");
        assert_eq!(broken(&surplus), ["GONE: no such constant in crates/format/src/"]);
        let vague = format!("{GOOD}| `SIZE` | 1 |\n");
        assert_eq!(broken(&vague), ["SIZE: is it lane::head::SIZE or lane::tail::SIZE?"]);
        let nonsense = GOOD.replace("| 8 |", "| eight |");
        assert_eq!(broken(&nonsense)[0], "WORD: \"eight\" is no value");
    }
}
