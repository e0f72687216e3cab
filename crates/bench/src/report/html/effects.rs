//! A table of effects, with what each is.

use super::Text;
use crate::experiment::{self, Effect};
use crate::parameters::Parameters;
use crate::report::json::EffectEntry;
use crate::report::number;
use crate::statistics::Interval;

/// Effects that were looked for with one set of parameters.
pub(super) fn table(out: &mut String, effects: &[&EffectEntry]) {
    let Some(first) = effects.first() else { return };
    let heads = [
        ("", "effect"),
        ("", "target"),
        ("number", "with one thing wrong"),
        ("number", "corrected"),
        ("", "nearer to 1"),
        ("number", "change"),
        ("", "there"),
    ];
    begin_table(out, "effects", &first.parameters, &heads);
    for effect in effects {
        let word = |is_so: bool, yes: &'static str, no: &'static str| if is_so { yes } else { no };
        put!(out, "<tr><th scope=\"row\">{}</th>", Text(&effect.effect));
        put!(out, "<td>{}</td>", Text(&effect.target));
        put!(out, "<td class=\"number\">{}</td>", ratio(&effect.original));
        put!(out, "<td class=\"number\">{}</td>", ratio(&effect.corrected));
        put!(out, "<td>{}</td>", word(effect.mended, "yes", "no"));
        put!(out, "<td class=\"number\">{}</td>", ratio(&effect.change));
        put!(out, "<td>{}</td></tr>\n", word(effect.present, "present", "absent"));
    }
    out.push_str("</tbody></table></div>\n");
}

/// Begins a table of what was found with `parameters`, to its first row. Heads have a class and
/// words.
pub(super) fn begin_table(
    out: &mut String,
    caption: &str,
    parameters: &Parameters,
    heads: &[(&str, &str)],
) {
    let label = format!("{caption}, {parameters}");
    put!(out, r#"<div class="wide" role="region" tabindex="0" aria-label="{}">"#, Text(label));
    put!(out, "<table><caption>{caption}</caption><thead><tr>");
    for (class, head) in heads {
        put!(out, r#"<th scope="col" class="{class}">{head}</th>"#);
    }
    out.push_str("</tr></thead><tbody>\n");
}

/// What the effects of an experiment are.
pub(super) fn words(out: &mut String, experiment: &str) {
    let known: &[Effect] = experiment::find(experiment).map_or(&[], |one| one.effects());
    if known.is_empty() {
        return;
    }
    out.push_str("<dl>");
    for effect in known {
        put!(out, "<dt>{}</dt><dd>{}", effect.id, Text(effect.about));
        let [one, other] = effect.original;
        put!(out, ": {one} / {other}");
        let [one, other] = effect.corrected;
        put!(out, "; corrected: {one} / {other}</dd>");
    }
    out.push_str("</dl>\n");
}

/// A ratio with its interval.
pub(super) fn ratio(ratio: &Interval) -> String {
    let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(number::three);
    format!("x {value} [{low}, {high}]")
}
