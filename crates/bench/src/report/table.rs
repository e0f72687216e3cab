//! A table for the terminal, one for each experiment and set of parameters.

use std::fmt::Write;

use super::{number, operation};
use crate::results::{Found, Row};

/// Intervals wider than this share of the median are marked.
pub const WIDE: f64 = 0.2;

/// What was found with one set of parameters, as text.
#[must_use]
pub fn table(found: &[Found]) -> String {
    let mut out = String::new();
    let Some(first) = found.first() else {
        return out;
    };
    // Writing to a string can't fail.
    let _ = writeln!(out, "{}: {}", first.experiment, first.parameters);
    let width = first.rows.iter().map(|row| row.target.chars().count()).max().unwrap_or(0).max(8);
    let base = first.rows.first().map_or("", |row| row.target.as_str());
    for found in found {
        let head = format!("  {} ({})", found.phase.id, found.phase.unit.name());
        let against = if found.rows.len() > 1 { format!("x {base}") } else { String::new() };
        let _ =
            writeln!(out, "{head:<w$}{:>10}{:>10}  {against}", "median", "+- 90 %", w = width + 22);
        for row in &found.rows {
            let _ = writeln!(out, "    {:<width$}  {}", row.target, line(found, row));
            if let Some(words) = operation::words(found, row) {
                let _ = writeln!(out, "      per operation: {words}");
            }
        }
    }
    out
}

fn line(found: &Found, row: &Row) -> String {
    let mut out = String::new();
    let (median, interval) = row.median();
    let spread = interval.map_or("-".to_owned(), |interval| {
        let wide = if interval.width() > WIDE { "!" } else { "" };
        format!("{wide}{:.1} %", interval.width() / 2.0 * 100.0)
    });
    let rate = match median.is_nan() {
        true => "failed".to_owned(),
        false => number::rate(median, found.phase.unit),
    };
    let _ = write!(out, "{:<16}{rate:>10}{spread:>10}", row.survives.words());
    let base = found.rows.first();
    if let Some(base) = base
        && !std::ptr::eq(base, row)
        && let Some((ratio, verdict)) = row.against(base)
    {
        let three = number::three;
        let (low, high) = (three(ratio.low), three(ratio.high));
        let unlike = if base.survives == row.survives { "" } else { ", of another class" };
        let _ = write!(out, "  {} [{low}, {high}] {verdict}{unlike}", three(ratio.value));
    }
    let marked = row.marked();
    if marked > 0 {
        let of = row.rates().len();
        let _ = write!(out, "  ({marked} of {of} disturbed)");
    }
    out.trim_end().to_owned()
}
