//! A table of amounts that were not to be more than so much.

use super::{Text, effects};
use crate::experiment::Unit;
use crate::report::json::BoundEntry;
use crate::report::number;

/// Those that were found with one set of parameters.
pub(super) fn table(out: &mut String, bounds: &[&BoundEntry]) {
    let Some(first) = bounds.first() else { return };
    let heads =
        [("", "amount"), ("", "target"), ("number", "found"), ("number", "at most"), ("", "met")];
    effects::begin_table(out, "bounds", &first.parameters, &heads);
    for bound in bounds {
        let unit = Unit::named(&bound.unit).unwrap_or(Unit::Each);
        let of = |amount| number::rate(amount, unit);
        let [value, low, high] = [bound.found.value, bound.found.low, bound.found.high].map(of);
        put!(out, "<tr><th scope=\"row\">{}</th>", Text(&bound.phase));
        put!(out, "<td>{}</td>", Text(&bound.target));
        put!(out, "<td class=\"number\">{value} [{low}, {high}]</td>");
        put!(out, "<td class=\"number\">{}</td>", of(bound.most));
        put!(out, "<td>{}</td></tr>\n", if bound.met { "yes" } else { "no" });
    }
    out.push_str("</tbody></table></div>\n");
}
