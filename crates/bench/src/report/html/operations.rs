//! A table of what operations cost besides time.

use super::Text;
use crate::operation::PerOperation;
use crate::report::json::ResultEntry;
use crate::report::operation::count;

/// A column: its head, and its number.
type Column = (&'static str, fn(&PerOperation) -> Option<f64>);

const COLUMNS: [Column; 12] = [
    ("system calls", |per| per.system_calls),
    ("page faults", |per| Some(per.page_faults)),
    ("fences, if not in RAM", |per| per.fences),
    ("lines written back, if not in RAM", |per| per.written_back),
    ("journal bytes", |per| per.journal_bytes),
    ("shared lines", |per| per.shared_lines),
    ("instructions", |per| per.instructions),
    ("misses, first cache", |per| per.first_misses),
    ("misses, last cache", |per| per.last_misses),
    ("waits", |per| Some(per.waits)),
    ("us of own CPU", |per| Some((per.user_ns + per.system_ns) / 1000.0)),
    ("us of CPU elsewhere", |per| Some(per.elsewhere_ns? / 1000.0)),
];

/// Of all phases with the same parameters: one row for each phase and target of which anything is
/// known.
pub(super) fn table(out: &mut String, rows: &[&ResultEntry]) {
    let known: Vec<(&ResultEntry, PerOperation)> =
        rows.iter().filter_map(|row| Some((*row, row.per_operation?))).collect();
    let Some((first, _)) = known.first() else { return };
    let label = format!("{}, per operation, {}", first.experiment, first.parameters);
    put!(out, r#"<div class="wide" role="region" tabindex="0" aria-label="{}">"#, Text(label));
    out.push_str("<table><caption>Per operation</caption><thead><tr>");
    out.push_str(r#"<th scope="col">phase</th><th scope="col">target</th>"#);
    for (head, _) in COLUMNS {
        put!(out, r#"<th scope="col" class="number">{head}</th>"#);
    }
    out.push_str("</tr></thead><tbody>\n");
    for (row, per) in known {
        let (phase, target) = (Text(&row.phase), Text(&row.target));
        put!(out, r#"<tr><th scope="row">{phase}</th><th scope="row">{target}</th>"#);
        for (_, number) in COLUMNS {
            let text = number(&per).map_or("-".to_owned(), count);
            put!(out, r#"<td class="number">{}</td>"#, Text(text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
