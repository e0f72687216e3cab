//! A table with a bar and a whisker in each row.

use super::Text;
use crate::experiment::Unit;
use crate::report::json::{Comparison, ResultEntry};
use crate::report::number;
use crate::report::table::WIDE;
use crate::target::Survives;

/// Width and height of a bar's drawing, in its own units.
const ROOM: (f64, f64) = (1000.0, 24.0);

/// One phase: its rows, and how they compare with the first one.
pub(super) fn table(out: &mut String, rows: &[&ResultEntry], comparisons: &[&Comparison]) {
    let Some(first) = rows.first() else { return };
    let unit = unit(first);
    // Parts of a page that can be scrolled have names of their own.
    let label = format!("{}, {}, {}", first.experiment, first.phase, first.parameters);
    put!(out, r#"<div class="wide" role="region" tabindex="0" aria-label="{}">"#, Text(label));
    let (phase, count, target) = (Text(&first.phase), Text(&first.unit), Text(&first.target));
    put!(out, r#"<table><caption>{phase} <span class="unit">{count}</span></caption>"#);
    out.push_str(r#"<thead><tr><th scope="col">target</th><th scope="col" class="bar">rate</th>"#);
    out.push_str(r#"<th scope="col" class="number">median</th>"#);
    out.push_str(r#"<th scope="col" class="number">90 % interval</th>"#);
    put!(out, r#"<th scope="col">compared with {target}</th><th scope="col">survives</th>"#);
    out.push_str("</tr></thead><tbody>\n");
    let scale = scale(rows);
    for row in rows {
        put!(out, "<tr><th scope=\"row\">{}</th>", Text(&row.target));
        out.push_str("<td class=\"bar\">");
        bar(out, row, scale);
        let median = row.median.map_or("no sample".to_owned(), |rate| number::rate(rate, unit));
        put!(out, "</td><td class=\"number\">{median}</td>");
        put!(out, "<td class=\"number\">{}</td>", interval(row, unit));
        let compared = comparisons.iter().find(|one| one.target == row.target);
        put!(out, "<td class=\"words\">{}</td>", compared.map_or(String::new(), |one| words(one)));
        put!(out, "<td class=\"words\">{}</td></tr>\n", row.survives.words());
    }
    out.push_str("</tbody></table></div>\n");
}

/// What the rate of `entry` counts.
pub(super) fn unit(entry: &ResultEntry) -> Unit {
    Unit::named(&entry.unit).unwrap_or(Unit::Files)
}

/// The greatest rate that has to fit. Floors may be longer: their bars are cut off.
fn scale(rows: &[&ResultEntry]) -> f64 {
    let greatest = |floors: bool| {
        let counted = rows.iter().filter(|row| floors || row.survives != Survives::Nothing);
        let ends = counted.filter_map(|row| row.ci90.map(|[_, high]| high).or(row.median));
        ends.fold(0.0, f64::max)
    };
    let real = greatest(false);
    if real > 0.0 { real } else { greatest(true).max(f64::MIN_POSITIVE) }
}

fn bar(out: &mut String, row: &ResultEntry, scale: f64) {
    let Some(median) = row.median else { return };
    let (width, height) = ROOM;
    let at = |rate: f64| (rate / scale).clamp(0.0, 1.0) * width;
    put!(out, r#"<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none""#);
    out.push_str(r#" aria-hidden="true" focusable="false">"#);
    put!(out, r#"<rect class="rate" y="4" width="{:.1}" height="16"/>"#, at(median));
    if median > scale {
        // It goes on.
        out.push_str(r#"<path class="cut" d="M960 0L940 24M980 0L960 24"/>"#);
    } else if let Some([low, high]) = row.ci90 {
        let (low, high) = (at(low), at(high));
        let way = format!("M{low:.1} 12H{high:.1}M{low:.1} 6V18M{high:.1} 6V18");
        put!(out, r#"<path class="whisker" d="{way}"/>"#);
    }
    out.push_str("</svg>");
}

fn interval(row: &ResultEntry, unit: Unit) -> String {
    let (Some([low, high]), Some(median)) = (row.ci90, row.median) else {
        return "-".to_owned();
    };
    let mut text = format!("{} to {}", number::rate(low, unit), number::rate(high, unit));
    if (high - low) / median > WIDE {
        text.push_str(" (wide)");
    }
    if row.disturbed > 0 {
        text.push_str(&format!(" ({} of {} disturbed)", row.disturbed, row.samples.len()));
    }
    text
}

fn words(compared: &Comparison) -> String {
    let three = number::three;
    let [low, high] = compared.ci90;
    let class = if compared.same_class { "" } else { ", of another class" };
    format!(
        "x {} [{}, {}] {}{class}",
        three(compared.ratio),
        three(low),
        three(high),
        compared.verdict
    )
}
