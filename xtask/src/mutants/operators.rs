//! Where a source file can be broken, and how.
//!
//! All breakages of a file, its mutants, are built into one text: each stands behind a test of its
//! number at run time, so that the crate compiles once. Which operators there are depends on what a
//! crate is about. Those of code that works on words that others see at once:
//!
//! - *drop*: a call statement with an effect is left out;
//! - *swap*: such a statement changes places with its neighbour, unless both start write-backs or
//!   one only assigns a value of this thread, which nobody else can see sooner or later;
//! - *weaken*: a memory ordering becomes `Relaxed`;
//! - *true*, *false*: a condition about versions, tags, owners and the like is forced;
//! - *flip*: a comparison about such things is turned (`==` to `!=`, `<` to `<=`).
//!
//! Those of code above it are in `rules.rs` and `checks.rs`.

use core::ops::Range;
use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

use super::effects::{MEMORY_EFFECTS, effect, has_effect, is_movable, is_private, is_write_back};
use super::rewrite::{Edit, Part};
use super::rules::is_call;
use crate::tree::SourceFile;

/// What a condition is about if it is worth forcing, in lower case.
const SUBJECTS: [&str; 13] = [
    "version",
    "generation",
    "tag",
    "current(",
    "sequence",
    "claimed",
    "dead",
    "alive",
    "owner",
    "checksum",
    "armed",
    "retired",
    "orphan",
];
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// What makes words right that other processes, and crashes, see: order, durability, locks.
    Words,
    /// What is decided and computed: `rules.rs`.
    Rules,
    /// That, and what is looked at before something is done: `checks.rs`.
    Checks,
}

impl Aim {
    /// What is broken of the crate or the parts `name`.
    pub(super) fn of(name: &str) -> Aim {
        match name {
            "pm" => Aim::Words,
            "flash" | "store" => Aim::Checks,
            _ => Aim::Rules,
        }
    }
}

/// One breakage.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// Its number in the crate, from 1.
    pub(super) number: u32,
    /// The file.
    pub(super) file: String,
    /// Line and column, from 1.
    pub(super) at: (usize, usize),
    /// The function, with its type.
    pub(super) function: String,
    /// The operator.
    pub(super) operator: &'static str,
    /// The source text, in one line.
    pub(super) text: String,
    /// How many mutants of the same function, operator and text came before, plus one.
    pub(super) occurrence: u32,
}

impl Mutant {
    /// The mutant in one line.
    pub(super) fn describe(&self) -> String {
        format!(
            "{}:{}:{}: {} in {}: {}",
            self.file, self.at.0, self.at.1, self.operator, self.function, self.text
        )
    }
}

/// The mutants of `file` that `aim` means, numbered after `last`, and the edits that build them in,
/// except those of the numbers in `disabled`.
pub(super) fn find(
    file: &SourceFile,
    aim: Aim,
    last: u32,
    disabled: &BTreeSet<u32>,
) -> Result<(Vec<Mutant>, Vec<Edit>), syn::Error> {
    let syntax = syn::parse_file(&file.text)?;
    let mut finder = Finder {
        file,
        aim,
        disabled,
        last,
        functions: Vec::new(),
        types: Vec::new(),
        about: false,
        parts: Vec::new(),
        mutants: Vec::new(),
        edits: Vec::new(),
    };
    finder.visit_file(&syntax);
    Ok((finder.mutants, finder.edits))
}

/// A search under way.
pub(super) struct Finder<'a> {
    file: &'a SourceFile,
    pub(super) aim: Aim,
    disabled: &'a BTreeSet<u32>,
    last: u32,
    functions: Vec<String>,
    types: Vec<String>,
    /// Whether we are inside a condition about one of the [`SUBJECTS`].
    about: bool,
    /// Parts of what `&&` and `||` connect.
    pub(super) parts: Vec<Range<usize>>,
    mutants: Vec<Mutant>,
    edits: Vec<Edit>,
}

/// The call in generated code that asks whether mutant `number` is on.
pub(super) fn is_on(number: u32) -> String {
    format!("crate::{}::is({number})", super::MODULE)
}

impl Finder<'_> {
    pub(super) fn source(&self, range: &Range<usize>) -> &str {
        self.file.text.get(range.clone()).unwrap_or("")
    }

    /// Registers a mutant; its number, if it is to be built.
    pub(super) fn register(
        &mut self,
        operator: &'static str,
        span: proc_macro2::Span,
        text: &str,
    ) -> Option<u32> {
        self.last += 1;
        let mut function = self.types.last().map_or(String::new(), |ty| format!("{ty}::"));
        function.push_str(self.functions.last().map_or("", String::as_str));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_same = |other: &&Mutant| {
            other.operator == operator && other.function == function && other.text == text
        };
        let occurrence = self.mutants.iter().filter(is_same).count() as u32 + 1;
        let start = span.start();
        self.mutants.push(Mutant {
            number: self.last,
            file: self.file.path.clone(),
            at: (start.line, start.column + 1),
            function,
            operator,
            text,
            occurrence,
        });
        (!self.disabled.contains(&self.last)).then_some(self.last)
    }

    /// Builds in that `range` reads `before`, itself, `after` for mutant `number`.
    pub(super) fn wrap(&mut self, number: u32, range: Range<usize>, before: String, after: &str) {
        let parts = vec![
            Part::Begin(number),
            Part::Text(before),
            Part::Source(range.clone()),
            Part::Text(after.into()),
            Part::End(number),
        ];
        self.edits.push(Edit { range, parts });
    }

    pub(super) fn drop_statement(&mut self, span: proc_macro2::Span, before: &str, after: &str) {
        let range = span.byte_range();
        let text = self.source(&range).to_owned();
        if let Some(number) = self.register("drop", span, &text) {
            let before = format!("{before}if !{} {{ ", is_on(number));
            self.wrap(number, range, before, after);
        }
    }

    /// Swaps within the statements `run`, of which each changes places with the next if `pairs`
    /// says so.
    fn swaps(&mut self, run: &[&Stmt], pairs: &[bool]) {
        let ranges: Vec<Range<usize>> = run.iter().map(|s| s.span().byte_range()).collect();
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return;
        };
        let whole = first.start..last.end;
        let mut parts = Vec::new();
        for (at, pair) in ranges.windows(2).enumerate() {
            let ([here, next], Some(true)) = (pair, pairs.get(at)) else {
                continue;
            };
            let text = format!("{} <-> {}", self.source(here), self.source(next));
            let Some(statement) = run.get(at) else {
                continue;
            };
            let Some(number) = self.register("swap", statement.span(), &text) else {
                continue;
            };
            let mut swapped = format!("if {} {{", is_on(number));
            let mut order = ranges.clone();
            order.swap(at, at + 1);
            for range in &order {
                swapped.push('\n');
                swapped.push_str(self.source(range));
            }
            swapped.push_str("\n} else ");
            parts.extend([Part::Begin(number), Part::Text(swapped), Part::End(number)]);
        }
        if parts.is_empty() {
            return;
        }
        parts.push(Part::Text("{ ".into()));
        parts.push(Part::Source(whole.clone()));
        parts.push(Part::Text(" }".into()));
        self.edits.push(Edit { range: whole, parts });
    }

    fn statements(&mut self, block: &syn::Block) {
        if self.aim != Aim::Words {
            return self.drop_effects(block);
        }
        let count = block.stmts.len();
        let is_movable = |(at, statement): (usize, &Stmt)| is_movable(statement, at + 1 == count);
        let movable: Vec<bool> = block.stmts.iter().enumerate().map(is_movable).collect();
        let is_pair = |at: usize| {
            let both = || Some((block.stmts.get(at)?, block.stmts.get(at + 1)?));
            movable.get(at) == Some(&true)
                && movable.get(at + 1) == Some(&true)
                && both().is_some_and(|(a, b)| {
                    (has_effect(a) || has_effect(b))
                        && !(is_write_back(a) && is_write_back(b))
                        && !is_private(a)
                        && !is_private(b)
                })
        };
        let mut at = 0;
        while at < count {
            let length = (at..count).take_while(|at| is_pair(*at)).count();
            if length > 0 {
                let run: Vec<&Stmt> = block.stmts.iter().skip(at).take(length + 1).collect();
                self.swaps(&run, &vec![true; length]);
            }
            at += length + 1;
        }
        for statement in &block.stmts {
            if has_effect(statement) {
                self.drop_statement(statement.span(), "", " }");
            }
        }
    }

    /// Forces the plain parts of a condition and looks for comparisons in it.
    fn condition(&mut self, condition: &Expr) {
        if has_let(condition) {
            if let Expr::Binary(binary) = condition {
                self.ignore_parts(binary);
                self.condition(&binary.left);
                self.condition(&binary.right);
            } else if let Expr::Let(binding) = condition {
                self.visit_expr(&binding.expr);
            }
            return;
        }
        if self.aim != Aim::Words {
            return self.break_condition(condition);
        }
        let range = condition.span().byte_range();
        let text = self.source(&range).to_owned();
        if !is_about(&text) {
            self.visit_expr(condition);
            return;
        }
        let forced = ["true", "false"].map(|to| self.register(to, condition.span(), &text));
        let mut parts = vec![Part::Text("(".into())];
        parts.extend(forced.iter().flatten().map(|number| Part::Begin(*number)));
        if let Some(number) = forced[0] {
            parts.push(Part::Text(format!("{} || ", is_on(number))));
        }
        if let Some(number) = forced[1] {
            parts.push(Part::Text(format!("!{} && ", is_on(number))));
        }
        parts.push(Part::Text("(".into()));
        parts.push(Part::Source(range.clone()));
        parts.push(Part::Text("))".into()));
        parts.extend(forced.iter().flatten().map(|number| Part::End(*number)));
        self.edits.push(Edit { range, parts });
        let outer = core::mem::replace(&mut self.about, true);
        self.visit_expr(condition);
        self.about = outer;
    }

    fn flip(&mut self, binary: &syn::ExprBinary) {
        let range = binary.span().byte_range();
        let text = self.source(&range).to_owned();
        let turned = match binary.op {
            BinOp::Eq(_) | BinOp::Ne(_) => None,
            BinOp::Lt(_) => Some("<="),
            BinOp::Le(_) => Some("<"),
            BinOp::Gt(_) => Some(">="),
            BinOp::Ge(_) => Some(">"),
            _ => return,
        };
        if !self.about && !is_about(&text) {
            return;
        }
        let Some(number) = self.register("flip", binary.span(), &text) else {
            return;
        };
        let on = is_on(number);
        if let Some(operator) = turned {
            let left = self.source(&binary.left.span().byte_range());
            let right = self.source(&binary.right.span().byte_range());
            let before = format!("(if {on} {{ ({left}) {operator} ({right}) }} else {{ ");
            self.wrap(number, range, before, " })");
        } else {
            self.wrap(number, range, "((".into(), &format!(") != {on})"));
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        self.functions.push(signature.ident.to_string());
        if let (syn::ReturnType::Default, Some(Stmt::Expr(tail, None))) =
            (&signature.output, block.stmts.last())
            && (effect(tail).is_some() || self.aim != Aim::Words && is_call(tail))
        {
            self.drop_statement(tail.span(), "", " }");
        }
        self.visit_block(block);
        self.functions.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) && item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) && item.sig.constness.is_none() {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) && item.sig.constness.is_none() {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default
            && item.sig.constness.is_none()
        {
            self.function(&item.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        self.types.push(name.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.types.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.types.pop();
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        self.let_go(local);
        visit::visit_local(self, local);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.statements(block);
        let outer = core::mem::replace(&mut self.about, false);
        visit::visit_block(self, block);
        self.about = outer;
    }

    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        self.condition(&expression.cond);
        self.skip_end(expression);
        self.visit_block(&expression.then_branch);
        if let Some((_, otherwise)) = &expression.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_while(&mut self, expression: &'ast syn::ExprWhile) {
        self.condition(&expression.cond);
        self.visit_block(&expression.body);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        if self.aim == Aim::Words
            && effect(&arm.body).is_some_and(|name| MEMORY_EFFECTS.contains(&name.as_str()))
        {
            self.drop_statement(arm.body.span(), "{ ", " } }");
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        match self.aim {
            Aim::Words => self.flip(binary),
            Aim::Rules | Aim::Checks => self.break_binary(binary),
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        if let Expr::Path(path) = expression
            && self.aim != Aim::Words
        {
            self.break_path(path);
        } else if let Expr::Path(path) = expression {
            let mut names = path.path.segments.iter().rev().map(|s| s.ident.to_string());
            let is_ordering = names.next().is_some_and(|name| ORDERINGS.contains(&name.as_str()))
                && names.next().is_none_or(|of| of == "Ordering");
            if is_ordering {
                let range = expression.span().byte_range();
                let text = self.source(&range).to_owned();
                if let Some(number) = self.register("weaken", expression.span(), &text) {
                    let before = format!("crate::{}::order({number}, ", super::MODULE);
                    self.wrap(number, range, before, ")");
                }
            }
        }
        visit::visit_expr(self, expression);
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    // What is evaluated by the compiler can't ask at run time; patterns and types neither.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Whether these attributes leave an item out of the library proper.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = || {
            let argument = attribute.parse_args::<syn::Path>();
            argument.is_ok_and(|argument| argument.is_ident("test"))
        };
        attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && is_cfg_test()
    })
}

fn is_about(text: &str) -> bool {
    let text = text.to_lowercase();
    SUBJECTS.iter().any(|subject| text.contains(subject))
}

/// Whether a `let` binds something in this condition itself.
pub(super) fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}
