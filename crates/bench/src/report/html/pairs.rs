//! A table of phases that are compared with each other.

use super::{Text, effects};
use crate::report::json::PairEntry;
use crate::report::number;

/// Those that were compared with one set of parameters.
pub(super) fn table(out: &mut String, pairs: &[&PairEntry]) {
    let Some(first) = pairs.first() else { return };
    let heads =
        [("", "pair"), ("", "target"), ("number", "ratio"), ("number", "aim"), ("", "reached")];
    effects::begin_table(out, "pairs", &first.parameters, &heads);
    for pair in pairs {
        put!(out, "<tr><th scope=\"row\">{}</th>", Text(&pair.pair));
        put!(out, "<td>{}</td>", Text(&pair.target));
        put!(out, "<td class=\"number\">{}</td>", effects::ratio(&pair.ratio));
        let aim = pair.aim.map(number::three).unwrap_or_default();
        put!(out, "<td class=\"number\">{aim}</td>");
        let reached = pair.reached.map_or("", |is_reached| if is_reached { "yes" } else { "no" });
        put!(out, "<td>{reached}</td></tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
