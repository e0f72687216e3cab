//! Breakages of code that decides: what is refused, how much, where from, where to.
//!
//! Nothing that such code stages is seen before its transaction commits, so neither the order of
//! its statements nor that of memory is broken. Instead:
//!
//! - *drop*: a call whose value nobody uses, or the assignment of a field, is left out;
//! - *bound*: a comparison of order takes in its bound, or leaves it out (`<` to `<=`);
//! - *connect*: `&&` becomes `||`, and the other way round;
//! - *negate*: any other condition, or comparison for equality, means its opposite; its parts are
//!   left alone, because who tells `&&` from `||` tells them from their opposites;
//! - *shift*: a literal that is added or taken away is not;
//! - *errno*: another error number is given.

use core::ops::Range;

use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{BinOp, Expr, Stmt, UnOp};

use super::operators::{Aim, Finder, has_let, is_on};

/// The error number that takes the place of others, and the one that takes its own place.
const ERRNOS: [&str; 2] = ["EIO", "EXDEV"];

impl Finder<'_> {
    pub(super) fn drop_effects(&mut self, block: &syn::Block) {
        for statement in &block.stmts {
            if is_effect(statement) {
                self.drop_statement(statement.span(), "", " }");
            }
        }
    }

    /// Breaks a condition that binds nothing.
    pub(super) fn break_condition(&mut self, condition: &Expr) {
        let is_broken_inside = match plain(condition) {
            Expr::Binary(binary) => !matches!(binary.op, BinOp::BitAnd(_) | BinOp::BitOr(_)),
            _ => false,
        };
        if !is_broken_inside {
            self.negate(condition);
        }
        self.visit_expr(condition);
    }

    /// Lets `expression` mean its opposite.
    fn negate(&mut self, expression: &Expr) {
        let range = expression.span().byte_range();
        let text = self.source(&range).to_owned();
        if let Some(number) = self.register("negate", expression.span(), &text) {
            self.wrap(number, range, "((".into(), &format!(") != {})", is_on(number)));
        }
    }

    pub(super) fn break_binary(&mut self, binary: &syn::ExprBinary) {
        let whole = Expr::Binary(binary.clone());
        match binary.op {
            BinOp::Lt(_) => self.other_operator("bound", binary, "<="),
            BinOp::Le(_) => self.other_operator("bound", binary, "<"),
            BinOp::Gt(_) => self.other_operator("bound", binary, ">="),
            BinOp::Ge(_) => self.other_operator("bound", binary, ">"),
            BinOp::Eq(_) | BinOp::Ne(_) if !self.parts.contains(&whole.span().byte_range()) => {
                self.negate(&whole);
            }
            BinOp::And(_) | BinOp::Or(_) if has_let(&whole) => {}
            BinOp::And(_) | BinOp::Or(_) => {
                for part in [&binary.left, &binary.right] {
                    self.parts.push(plain(part).span().byte_range());
                }
                if self.aim == Aim::Checks {
                    return self.ignore_parts(binary);
                }
                let is_and = matches!(binary.op, BinOp::And(_));
                self.other_operator("connect", binary, if is_and { "||" } else { "&&" });
            }
            BinOp::Add(_) | BinOp::Sub(_) if is_literal(&binary.right) => {
                self.other("shift", binary, &self.source_of(&binary.left));
            }
            _ => {}
        }
    }

    pub(super) fn break_path(&mut self, path: &syn::ExprPath) {
        let names: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let [of, name] = names.as_slice() else {
            return;
        };
        if of != "Errno" {
            return;
        }
        let other = if name == ERRNOS[0] { ERRNOS[1] } else { ERRNOS[0] };
        let range = path.span().byte_range();
        let text = self.source(&range).to_owned();
        if let Some(number) = self.register("errno", path.span(), &text) {
            let before = format!("(if {} {{ Errno::{other} }} else {{ ", is_on(number));
            self.wrap(number, range, before, " })");
        }
    }

    fn source_of(&self, expression: &Expr) -> String {
        self.source(&expression.span().byte_range()).to_owned()
    }

    fn other_operator(&mut self, name: &'static str, binary: &syn::ExprBinary, operator: &str) {
        let [left, right] = [&binary.left, &binary.right].map(|side| self.source_of(side));
        self.other(name, binary, &format!("({left}) {operator} ({right})"));
    }

    fn other(&mut self, name: &'static str, binary: &syn::ExprBinary, other: &str) {
        let range: Range<usize> = binary.span().byte_range();
        let text = self.source(&range).to_owned();
        if let Some(number) = self.register(name, binary.span(), &text) {
            let before = format!("(if {} {{ {other} }} else {{ ", is_on(number));
            self.wrap(number, range, before, " })");
        }
    }
}

/// Whether `statement` does something, and nobody uses what it returns.
fn is_effect(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expression, Some(_)) => is_call(expression) || is_field_set(expression),
        Stmt::Local(local) if matches!(local.pat, syn::Pat::Wild(_)) => {
            let value = local.init.as_ref().filter(|init| init.diverge.is_none());
            value.is_some_and(|init| is_call(&init.expr))
        }
        _ => false,
    }
}

pub(super) fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::Try(inner) => is_call(&inner.expr),
        Expr::Paren(inner) => is_call(&inner.expr),
        Expr::Assign(unused) => matches!(*unused.left, Expr::Infer(_)) && is_call(&unused.right),
        Expr::MethodCall(_) => true,
        // To end a borrow early is no effect.
        Expr::Call(call) => !matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop")),
        _ => false,
    }
}

/// Whether `expression` assigns a field, or what a reference leads to. Without the assignment of a
/// plain variable most loops would only go on for ever.
fn is_field_set(expression: &Expr) -> bool {
    let place = match expression {
        Expr::Assign(assignment) => &assignment.left,
        Expr::Binary(binary) => match binary.op {
            BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitAndAssign(_) => &binary.left,
            _ => return false,
        },
        _ => return false,
    };
    match &**place {
        Expr::Field(_) => true,
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)),
        _ => false,
    }
}

/// What is in parentheses, or negated.
fn plain(expression: &Expr) -> &Expr {
    match expression {
        Expr::Paren(inner) => plain(&inner.expr),
        Expr::Unary(inner) if matches!(inner.op, UnOp::Not(_)) => plain(&inner.expr),
        other => other,
    }
}

fn is_literal(expression: &Expr) -> bool {
    let Expr::Lit(literal) = expression else {
        return false;
    };
    matches!(literal.lit, syn::Lit::Int(_))
}
