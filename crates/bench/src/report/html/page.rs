//! The page.

use std::collections::BTreeSet;

use super::{Text, bars, bounds, chart, effects, operations, pairs};
use crate::parameters::{Parameters, quantity};
use crate::report::json::{Document, ResultEntry};
use crate::runner::Follow;

const STYLE: &str = include_str!("style.css");
/// How it was measured, whatever it was.
const METHOD: &str = "Each experiment was done on all targets in turn, in random order, again and \
    again; each time on a new, empty target, by new processes. The first round does not count, nor \
    does what warms up at the beginning of a phase. Medians have an interval of at least 90 % \
    confidence. Targets are compared by the ratios of the samples of each round; they are called \
    different if the interval of the ratio lies at least 1 % away from 1. Targets that survive \
    different things are of different classes. An operation is a file or transaction, or a call \
    that reads or writes where bytes are counted. System calls, fences, lines and bytes of the \
    library were counted in runs of their own; shared lines are those of 64 bytes that are stored \
    into and that other processes read, without the bytes of files. Instructions and misses are \
    those of a simulated processor (callgrind). CPU elsewhere is that of servers, of threads \
    of the kernel, and of all other programs that ran.";

/// `document` as a page.
#[must_use]
pub fn page(document: &Document) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    put!(&mut out, "<title>conquest bench: {}</title>", Text(&document.experiment));
    put!(&mut out, "<style>{STYLE}</style></head><body>\n<header>");
    put!(&mut out, "<h1>conquest bench: {}</h1>", Text(&document.experiment));
    out.push_str("</header>\n");
    let names = experiments(document);
    out.push_str("<nav aria-label=\"Contents\"><ul>");
    for name in names.iter().copied().chain(["targets", "machine", "method"]) {
        put!(&mut out, "<li><a href=\"#{0}\">{0}</a></li>", Text(name));
    }
    out.push_str("</ul></nav>\n<main>\n");
    listed(&mut out, "What failed", &document.failures);
    for name in names {
        experiment(&mut out, document, name);
    }
    targets(&mut out, document);
    listed(&mut out, "What was left out", &document.left_out);
    machine(&mut out, document);
    method(&mut out, document);
    out.push_str("</main></body></html>\n");
    out
}

/// Names of experiments, in order.
fn experiments(document: &Document) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for result in &document.results {
        if !names.contains(&result.experiment.as_str()) {
            names.push(&result.experiment);
        }
    }
    names
}

/// A section of sentences, if there are any.
fn listed(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    put!(out, "<section><h2>{title}</h2><ul>");
    for line in lines {
        put!(out, "<li>{}</li>", Text(line));
    }
    out.push_str("</ul></section>\n");
}

fn experiment(out: &mut String, document: &Document, name: &str) {
    let own: Vec<&ResultEntry> =
        document.results.iter().filter(|result| result.experiment == name).collect();
    put!(out, "<section id=\"{0}\"><h2>{0}</h2>\n", Text(name));
    if let Some(known) = crate::experiment::find(name) {
        let about = known.about();
        let (first, rest) = about.split_at_checked(1).unwrap_or((about, ""));
        put!(out, "<p>{}{}.</p>\n", first.to_uppercase(), Text(rest));
    }
    effects::words(out, name);
    let mut points: Vec<&Parameters> = Vec::new();
    let mut phases: Vec<&str> = Vec::new();
    for result in &own {
        if !points.contains(&&result.parameters) {
            points.push(&result.parameters);
        }
        if !phases.contains(&result.phase.as_str()) {
            phases.push(&result.phase);
        }
    }
    if let Some(varied) = varied(&points) {
        out.push_str("<div class=\"charts\">\n");
        for phase in &phases {
            let rows: Vec<&ResultEntry> =
                own.iter().copied().filter(|result| result.phase == *phase).collect();
            chart::chart(out, &rows, &varied, &document.machine.steps);
        }
        out.push_str("</div>\n");
    }
    for parameters in points {
        put!(out, "<h3>{}</h3>\n", Text(parameters));
        let shown: Vec<_> = document
            .effects
            .iter()
            .filter(|one| one.experiment == name && one.parameters == *parameters)
            .collect();
        effects::table(out, &shown);
        let paired: Vec<_> = document
            .pairs
            .iter()
            .filter(|one| one.experiment == name && one.parameters == *parameters)
            .collect();
        pairs::table(out, &paired);
        let bounded: Vec<_> = document
            .bounds
            .iter()
            .filter(|one| one.experiment == name && one.parameters == *parameters)
            .collect();
        bounds::table(out, &bounded);
        for phase in &phases {
            let is_here =
                |result: &&ResultEntry| result.phase == *phase && result.parameters == *parameters;
            let rows: Vec<&ResultEntry> = own.iter().copied().filter(is_here).collect();
            let compared: Vec<_> = document
                .comparisons
                .iter()
                .filter(|one| one.experiment == name && one.phase == *phase)
                .filter(|one| one.parameters == *parameters)
                .collect();
            bars::table(out, &rows, &compared);
        }
        let is_here = |result: &&ResultEntry| result.parameters == *parameters;
        let rows: Vec<&ResultEntry> = own.iter().copied().filter(is_here).collect();
        operations::table(out, &rows);
    }
    out.push_str("</section>\n");
}

/// The parameter in which the points differ, if it is one only and there are at least three of
/// them.
fn varied(points: &[&Parameters]) -> Option<String> {
    let first = points.first()?;
    let mut differing = BTreeSet::new();
    for point in points {
        for (name, number) in point.iter() {
            if first.get(name) != number {
                differing.insert(name.to_owned());
            }
        }
    }
    match (points.len() >= 3, differing.len()) {
        (true, 1) => differing.pop_first(),
        _ => None,
    }
}

fn targets(out: &mut String, document: &Document) {
    out.push_str("<section id=\"targets\"><h2>Targets</h2><dl>");
    for target in &document.targets {
        put!(out, "<dt>{}</dt>", Text(&target.target));
        put!(out, "<dd>survives {}</dd>", target.survives.words());
        for option in &target.options {
            put!(out, "<dd>{}</dd>", Text(option));
        }
    }
    out.push_str("</dl></section>\n");
}

fn machine(out: &mut String, document: &Document) {
    let machine = &document.machine;
    out.push_str("<section id=\"machine\"><h2>Machine</h2><dl>");
    let mut tell = |what: &str, text: String| {
        put!(out, "<dt>{what}</dt><dd>{}</dd>", Text(text));
    };
    let place = if machine.is_virtual { ", virtual" } else { "" };
    tell("processor", format!("{} x {}{place}", machine.processors, machine.processor));
    tell("memory", format!("{} MiB", machine.memory >> 20));
    let caches: Vec<String> = machine
        .caches
        .iter()
        .map(|cache| format!("level {}: {}B", cache.level, quantity(cache.bytes)))
        .collect();
    tell("caches, as the system has them", caches.join("; "));
    let steps: Vec<String> =
        machine.steps.iter().map(|step| format!("{}B", quantity(*step))).collect();
    tell("loads cost more above", steps.join("; "));
    tell("kernel", machine.kernel.clone());
    tell(
        "huge pages",
        format!("{}; of shared memory: {}", machine.huge_pages, machine.shared_huge_pages),
    );
    tell("reclaims idle pages", if machine.reclaims_idle { "yes" } else { "no" }.to_owned());
    tell("load when it began", format!("{:.2}", machine.load));
    tell("not visible", machine.not_visible.join("; "));
    out.push_str("</dl>\n<div class=\"wide\" role=\"region\" tabindex=\"0\"");
    out.push_str(" aria-label=\"Cost of a load\"><table><caption>cost of a load</caption>");
    out.push_str("<thead><tr><th scope=\"col\" class=\"number\">from</th>");
    out.push_str("<th scope=\"col\" class=\"number\">nanoseconds</th></tr></thead><tbody>");
    for latency in &machine.latencies {
        put!(
            out,
            "<tr><td class=\"number\">{}B</td><td class=\"number\">{:.1}</td></tr>",
            quantity(latency.bytes),
            latency.nanoseconds
        );
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn method(out: &mut String, document: &Document) {
    let method = &document.method;
    put!(out, "<section id=\"method\"><h2>Method</h2>\n<p>{METHOD}</p><dl>");
    let mut tell = |what: &str, text: String| {
        put!(out, "<dt>{what}</dt><dd>{}</dd>", Text(text));
    };
    tell("rounds", method.rounds.to_string());
    let follow = match method.follow {
        Follow::Turns => "those in memory take turns of some milliseconds, others by whole runs",
        Follow::Runs => "by whole runs",
    };
    tell("targets follow each other", follow.to_owned());
    tell("seed", method.seed.to_string());
    let caches = match method.sweep {
        0 => "as the phase before has left them".to_owned(),
        bytes => format!("clean: {}B were walked through before each phase", quantity(bytes)),
    };
    tell("caches", caches);
    tell(
        "calls made by",
        if method.by_a_user { "an ordinary user" } else { "who measured" }.to_owned(),
    );
    let processor = method.processor.map_or("any".to_owned(), |processor| processor.to_string());
    tell("on processor", processor);
    tell("program", format!("commit {}", document.commit));
    out.push_str("</dl></section>\n");
}
