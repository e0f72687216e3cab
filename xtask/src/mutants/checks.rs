//! Breakages of code that looks before it does something: whether a place may be used again,
//! whether what was read is still so, whether somebody has come first.
//!
//! All of `rules.rs`, but for what connects conditions, and:
//!
//! - *part*: one of the conditions that `&&` or `||` connect does not count;
//! - *skip*: what ends a function, or a turn of a loop, early does not;
//! - *let go*: what is only held (`let _name = ...`) is given up at once.

use syn::spanned::Spanned;
use syn::{BinOp, Expr, Stmt};

use super::operators::{Aim, Finder, has_let, is_on};

impl Finder<'_> {
    /// Lets each of the two conditions that `binary` connects not count, unless it binds something.
    pub(super) fn ignore_parts(&mut self, binary: &syn::ExprBinary) {
        if self.aim != Aim::Checks {
            return;
        }
        let neutral = if matches!(binary.op, BinOp::And(_)) { "true" } else { "false" };
        for part in [&binary.left, &binary.right] {
            // What is connected itself is looked at part by part.
            let is_connected = match &**part {
                Expr::Binary(inner) => {
                    core::mem::discriminant(&inner.op) == core::mem::discriminant(&binary.op)
                }
                _ => false,
            };
            if has_let(part) || is_connected {
                continue;
            }
            let range = part.span().byte_range();
            let text = self.source(&range).to_owned();
            if let Some(number) = self.register("part", part.span(), &text) {
                let before = format!("(if {} {{ {neutral} }} else {{ ", is_on(number));
                self.wrap(number, range, before, " })");
            }
        }
    }

    /// Lets `expression` not end anything early.
    pub(super) fn skip_end(&mut self, expression: &syn::ExprIf) {
        if self.aim != Aim::Checks || expression.else_branch.is_some() {
            return;
        }
        let block = &expression.then_branch;
        let ends = matches!(
            block.stmts.last(),
            Some(Stmt::Expr(Expr::Return(_) | Expr::Continue(_) | Expr::Break(_), _))
        );
        let text = self.source(&expression.span().byte_range()).to_owned();
        if ends && let Some(number) = self.register("skip", expression.span(), &text) {
            let before = format!("{{ if !{} ", is_on(number));
            self.wrap(number, block.span().byte_range(), before, " }");
        }
    }

    /// Lets what `local` only holds go at once.
    pub(super) fn let_go(&mut self, local: &syn::Local) {
        let is_held =
            matches!(&local.pat, syn::Pat::Ident(name) if name.ident.to_string().starts_with('_'));
        let Some(init) = local.init.as_ref().filter(|init| init.diverge.is_none()) else {
            return;
        };
        if self.aim != Aim::Checks || !is_held {
            return;
        }
        let text = self.source(&local.span().byte_range()).to_owned();
        if let Some(number) = self.register("let go", local.span(), &text) {
            let after = format!(").filter(|_| !{})", is_on(number));
            self.wrap(number, init.expr.span().byte_range(), "Some(".into(), &after);
        }
    }
}
