//! Which statements have an effect that can be left out, and which can change places.

use syn::visit::Visit;
use syn::{BinOp, Expr, Stmt};

/// Functions of `Memory` with an effect and without a result.
pub(super) const MEMORY_EFFECTS: [&str; 11] = [
    "write_back",
    "fence",
    "full_fence",
    "load_fence",
    "wake",
    "put",
    "put_or",
    "put_and_not",
    "put_bytes",
    "put_zeros",
    "store",
];
/// Other functions with an effect. A `*` at the end stands for any ending.
const VERBS: [&str; 43] = [
    "adopt*",
    "apply*",
    "arm*",
    "begin*",
    "bump*",
    "classify*",
    "clear*",
    "commit*",
    "compare_exchange*",
    "drain*",
    "end_*",
    "fail*",
    "finish*",
    "forget*",
    "give_*",
    "grant*",
    "journal*",
    "keep*",
    "leave_*",
    "let_go",
    "lock*",
    "mark*",
    "note*",
    "orphan_*",
    "publish*",
    "push_*",
    "recover*",
    "release*",
    "repair*",
    "reset*",
    "retire*",
    "ring*",
    "set_*",
    "settle_*",
    "stage*",
    "step_*",
    "store_*",
    "tell_*",
    "unlease*",
    "unlock*",
    "unmark*",
    "wake_*",
    "write_back_*",
];

/// Whether `statement` can change places with a neighbour.
pub(super) fn is_movable(statement: &Stmt, is_last: bool) -> bool {
    match statement {
        Stmt::Expr(Expr::Return(_) | Expr::Break(_) | Expr::Continue(_), _) => false,
        Stmt::Expr(Expr::Loop(_), _) => false,
        Stmt::Expr(_, Some(_)) => true,
        Stmt::Expr(_, None) => !is_last,
        _ => false,
    }
}

/// Whether `call` stores to a field that is an atomic of its own: the region is stored to through a
/// field named `memory`.
fn is_store_of_process(call: &syn::ExprMethodCall) -> bool {
    let Expr::Field(field) = &*call.receiver else {
        return false;
    };
    let is_memory = matches!(&field.member, syn::Member::Named(name) if name == "memory");
    call.method == "store" && !is_memory
}

/// Whether `statement` assigns something that no call computes, to a place of this thread or to an
/// atomic of this process: not to the region, so no other process and no crash can tell when.
pub(super) fn is_private(statement: &Stmt) -> bool {
    struct Calls(bool);
    impl Visit<'_> for Calls {
        fn visit_expr_call(&mut self, _: &syn::ExprCall) {
            self.0 = true;
        }
        fn visit_expr_method_call(&mut self, _: &syn::ExprMethodCall) {
            self.0 = true;
        }
    }
    let is_assignment = match statement {
        Stmt::Expr(Expr::Assign(_), Some(_)) => true,
        Stmt::Expr(Expr::Binary(binary), Some(_)) => matches!(
            binary.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
        ),
        Stmt::Expr(Expr::MethodCall(call), Some(_)) => return is_store_of_process(call),
        _ => false,
    };
    let mut calls = Calls(false);
    calls.visit_stmt(statement);
    is_assignment && !calls.0
}

/// Whether `statement` only starts a write-back. Two of them in a row are unordered on any medium,
/// and change nothing that anybody could see, so to swap them is to change nothing.
pub(super) fn is_write_back(statement: &Stmt) -> bool {
    let call = match statement {
        Stmt::Expr(expression, Some(_)) => effect(expression),
        _ => None,
    };
    call.is_some_and(|name| name.starts_with("write_back"))
}

/// Whether `statement` is a call whose effect can be left out.
pub(super) fn has_effect(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expression, Some(_)) => effect(expression).is_some(),
        Stmt::Local(local) if matches!(local.pat, syn::Pat::Wild(_)) => {
            let value = local.init.as_ref().filter(|init| init.diverge.is_none());
            value.is_some_and(|init| effect(&init.expr).is_some())
        }
        _ => false,
    }
}

/// The name of the function with an effect that `expression` calls, if it is such a call.
pub(super) fn effect(expression: &Expr) -> Option<String> {
    let name = match expression {
        Expr::Try(inner) => return effect(&inner.expr),
        Expr::Paren(inner) => return effect(&inner.expr),
        Expr::Assign(unused) if matches!(*unused.left, Expr::Infer(_)) => {
            return effect(&unused.right);
        }
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            if ["map_err", "ok", "unwrap_or", "unwrap_or_default", "err"].contains(&name.as_str()) {
                return effect(&call.receiver);
            }
            name
        }
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last()?.ident.to_string(),
            _ => return None,
        },
        _ => return None,
    };
    let is_verb = |verb: &&str| match verb.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == **verb,
    };
    let known = MEMORY_EFFECTS.iter().chain(&VERBS).any(is_verb);
    known.then_some(name)
}
