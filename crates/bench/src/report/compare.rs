//! Two reports beside each other.

use std::fmt::Write;

use super::json::{Document, ResultEntry};
use super::number;
use crate::experiment::Unit;
use crate::statistics::{Verdict, of_unpaired_ratio};

/// How `after` compares with `before`, as text: what both have measured, with the ratio of their
/// rates.
#[must_use]
pub fn compare(before: &Document, after: &Document) -> String {
    let mut out = String::new();
    for difference in differences(before, after) {
        // Writing to a string can't fail.
        let _ = writeln!(out, "note: {difference}");
    }
    let mut last = String::new();
    for entry in &after.results {
        let Some(other) = before.results.iter().find(|other| is_same(other, entry)) else {
            continue;
        };
        let head = format!("{}: {}", entry.experiment, entry.parameters);
        if head != last {
            let _ = writeln!(out, "{head}");
            last = head;
        }
        let _ = writeln!(out, "  {:<18}{:<14}{}", entry.phase, entry.target, line(other, entry));
    }
    if last.is_empty() {
        out.push_str("the two reports have nothing in common\n");
    }
    out
}

fn line(before: &ResultEntry, after: &ResultEntry) -> String {
    let rates = |entry: &ResultEntry| entry.samples.iter().flatten().copied().collect::<Vec<f64>>();
    let unit = Unit::named(&after.unit).unwrap_or(Unit::Files);
    let rate = |entry: &ResultEntry| match entry.median {
        Some(median) => number::rate(median, unit),
        None => "no sample".to_owned(),
    };
    let mut out = format!("{:>9} -> {:>9}", rate(before), rate(after));
    if let Some(ratio) = of_unpaired_ratio(&rates(after), &rates(before)) {
        let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(number::three);
        // Writing to a string can't fail.
        let verdict = Verdict::of(&ratio).in_unit(unit);
        let _ = write!(out, "  x {value} [{low}, {high}] {verdict}");
    }
    out
}

fn is_same(one: &ResultEntry, other: &ResultEntry) -> bool {
    (&one.experiment, &one.phase, &one.target, &one.parameters, &one.metric)
        == (&other.experiment, &other.phase, &other.target, &other.parameters, &other.metric)
}

/// What is not the same of the two, so that the reader does not take it for the doing of a change.
fn differences(before: &Document, after: &Document) -> Vec<String> {
    let mut all =
        vec!["the two were not measured in one run: the machine may have changed".to_owned()];
    let mut tell = |what: &str, before: String, after: String| {
        if before != after {
            all.push(format!("{what}: {before}, then {after}"));
        }
    };
    let (one, other) = (&before.machine, &after.machine);
    tell("processor", one.processor.clone(), other.processor.clone());
    tell("processors", one.processors.to_string(), other.processors.to_string());
    tell("kernel", one.kernel.clone(), other.kernel.clone());
    tell("MiB of memory", (one.memory >> 20).to_string(), (other.memory >> 20).to_string());
    let way = |document: &Document| {
        let method = &document.method;
        let by = if method.by_a_user { "by a user" } else { "by root" };
        let (swept, follow, processor) = (method.sweep, method.follow, method.processor);
        format!("by {follow:?}, {swept} bytes swept, {by}, processor {processor:?}").to_lowercase()
    };
    tell("method", way(before), way(after));
    all
}
