//! A table for the terminal, one for each experiment and set of parameters.

use std::fmt::Write;

use super::{number, operation};
use crate::results::{Bounded, Found, Paired, Row, Shown};
use crate::statistics::Interval;

/// Intervals wider than this share of the median are marked.
pub const WIDE: f64 = 0.2;

/// Letters between a target's name and its rate.
const HEAD: usize = 22;

/// What was found with one set of parameters, as text.
#[must_use]
pub fn table(found: &[Found]) -> String {
    let mut out = String::new();
    let Some(first) = found.first() else {
        return out;
    };
    // Writing to a string can't fail.
    let _ = writeln!(out, "{}: {}", first.experiment, first.parameters);
    let longest = first.rows.iter().map(|row| row.target.chars().count()).max().unwrap_or(0);
    // Wide enough for the heads too.
    let heads = found.iter().map(|found| head(found).chars().count().saturating_sub(HEAD));
    let width = longest.max(8).max(heads.max().unwrap_or(0));
    let base = first.rows.first().map_or("", |row| row.target.as_str());
    for found in found {
        let is_compared = found.rows.len() > 1 && found.is_compared();
        let against = if is_compared { format!("x {base}") } else { String::new() };
        let _ = writeln!(
            out,
            "{:<w$}{:>10}{:>10}  {against}",
            head(found),
            "median",
            "+- 90 %",
            w = width + HEAD
        );
        for row in &found.rows {
            let _ = writeln!(out, "    {:<width$}  {}", row.target, line(found, row));
            if let Some(words) = operation::words(found, row) {
                let _ = writeln!(out, "      per operation: {words}");
            }
        }
    }
    effects(&mut out, &Shown::all(found), width);
    pairs(&mut out, &Paired::all(found), width);
    bounds(&mut out, &Bounded::all(found), width);
    out
}

/// Effects: how much two phases differ with one thing wrong, and corrected.
fn effects(out: &mut String, shown: &[Shown], width: usize) {
    let mut last = "";
    for one in shown {
        if one.effect.id != last {
            last = one.effect.id;
            let _ = writeln!(out, "  {last}: {}", one.effect.about);
        }
        let target = &one.target;
        let [original, corrected, change] = [&one.original, &one.corrected, &one.change].map(three);
        let verdict = if one.is_present() { "present" } else { "absent" };
        let mended = if one.is_mended() { "" } else { ", no nearer to 1" };
        let _ = writeln!(
            out,
            "    {target:<width$}  {original}; corrected {corrected}{mended}; {verdict}: {change}"
        );
    }
}

/// Pairs: how two phases compare, and whether that is what was aimed at.
fn pairs(out: &mut String, paired: &[Paired], width: usize) {
    let mut last = "";
    for one in paired {
        if one.pair.id != last {
            last = one.pair.id;
            let [phase, other] = one.pair.phases;
            let _ = writeln!(out, "  {last}: {phase} against {other}");
        }
        let (target, ratio) = (&one.target, three(&one.ratio));
        let aim = one.aim().zip(one.is_reached()).map_or(String::new(), |(aim, is_reached)| {
            let verdict = if is_reached { "reached" } else { "missed" };
            format!("; aim {}: {verdict}", number::three(aim))
        });
        let _ = writeln!(out, "    {target:<width$}  {ratio}{aim}");
    }
}

/// Amounts that were not to be more than so much, and whether they are.
fn bounds(out: &mut String, bounded: &[Bounded], width: usize) {
    let mut last = None;
    for one in bounded {
        let of = |amount| number::rate(amount, one.unit);
        if last != Some(one.bound) {
            last = Some(one.bound);
            let _ = writeln!(out, "  {}: at most {}", one.bound.phase, of(one.bound.most));
        }
        let (target, found) =
            (&one.target, [one.found.value, one.found.low, one.found.high].map(of));
        let [value, low, high] = found;
        let verdict = if one.is_met() { "met" } else { "not met" };
        let _ = writeln!(out, "    {target:<width$}  {value} [{low}, {high}]: {verdict}");
    }
}

/// A ratio with its interval.
fn three(ratio: &Interval) -> String {
    let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(number::three);
    format!("x {value} [{low}, {high}]")
}

fn head(found: &Found) -> String {
    format!("  {} ({})", found.phase.id, found.phase.unit.name())
}

fn line(found: &Found, row: &Row) -> String {
    let mut out = String::new();
    let (median, interval) = row.median();
    let spread = interval.map_or("-".to_owned(), |interval| {
        let wide = if interval.width() > WIDE { "!" } else { "" };
        format!("{wide}{:.1} %", interval.width() / 2.0 * 100.0)
    });
    let rate = match median.is_nan() {
        true => "no sample".to_owned(),
        false => number::rate(median, found.phase.unit),
    };
    let _ = write!(out, "{:<16}{rate:>10}{spread:>10}", row.survives.words());
    let base = found.rows.first();
    if let Some(base) = base
        && !std::ptr::eq(base, row)
        && let Some((ratio, verdict)) = found.compared(row, base)
    {
        let three = number::three;
        let (low, high) = (three(ratio.low), three(ratio.high));
        let unlike = if base.survives == row.survives { "" } else { ", of another class" };
        let _ = write!(out, "  {} [{low}, {high}] {verdict}{unlike}", three(ratio.value));
    }
    if let Some(reason) = row.reason() {
        let (marked, of) = (row.marked(), row.rates().len());
        let _ = write!(out, "  ({marked} of {of} disturbed: {reason})");
    }
    out.trim_end().to_owned()
}
