//! What an operation costs besides time, in words.

use super::number::three;
use crate::operation::PerOperation;
use crate::results::{Found, Row};

/// Of the phase of `row`, what is worth telling; none if nothing is.
pub(super) fn words(found: &Found, row: &Row) -> Option<String> {
    let per = PerOperation::of(row, found.phase.unit)?;
    let mut all = Vec::new();
    let mut tell = |number: Option<f64>, what: &str| {
        all.extend(number.map(|number| format!("{} {what}", count(number))));
    };
    tell(per.fences, "fences (none in RAM)");
    tell(per.system_calls, "system calls");
    if per.is_counted() || per.has_faults() {
        tell(Some(per.page_faults), "page faults");
    }
    tell(per.journal_bytes, "journal bytes");
    tell(per.shared_lines, "shared lines");
    tell(per.instructions, "instructions");
    tell(per.first_misses, "misses of the first cache");
    tell(per.last_misses, "of the last one");
    if per.works_elsewhere() {
        tell(per.elsewhere_ns.map(|time| time / 1000.0), "us of CPU elsewhere");
    }
    (!all.is_empty()).then(|| all.join(", "))
}

/// `number` as people read counts: three digits, or hundredths.
pub(super) fn count(number: f64) -> String {
    match number {
        number if number == number.trunc() => format!("{number:.0}"),
        number if number >= 0.1 => three(number),
        number if number >= 0.005 => format!("{number:.2}"),
        _ => "<0.01".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Phase, Unit, Whole};
    use crate::machine::work::{Stores, Work};
    use crate::parameters::Parameters;
    use crate::results::Sample;
    use crate::simulation::Simulated;
    use crate::stopwatch::Total;
    use crate::target::Survives;

    #[test]
    fn counts_are_short() {
        let shown = [0.0, 3.0, 4200.0, 416.4, 9.52, 0.125, 0.05, 0.0049].map(count);
        assert_eq!(shown, ["0", "3", "4200", "416", "9.52", "0.12", "0.05", "<0.01"]);
    }

    #[test]
    fn only_what_there_is_is_told() {
        let total = Total { units: 100, calls: 300 };
        let whole = |work| Whole { total, work, ..Whole::default() };
        let sample = |work| Some(Sample { rate: 1.0, mark: None, whole: Some(whole(work)) });
        let mut row = Row {
            target: "ext4".into(),
            survives: Survives::Process,
            samples: vec![sample(Work { user: 100_000, ..Work::default() })],
            counted: Vec::new(),
        };
        let phase = Phase { id: "create", unit: Unit::Files, part: 0 };
        let parameters = Parameters::default();
        let found = Found { experiment: "x", phase, parameters, rows: Vec::new() };
        assert_eq!(words(&found, &row), None);
        let work =
            Work { page_faults: 5, user: 100_000, elsewhere: Some(250_000), ..Work::default() };
        row.samples = vec![sample(work)];
        let said = words(&found, &row).unwrap();
        assert_eq!(said, "0.05 page faults, 2.50 us of CPU elsewhere");
        row.samples = vec![sample(Work { user: 1, ..Work::default() })];
        let stores = Stores { fences: 300, shared_lines: 950, ..Stores::default() };
        row.counted = vec![Whole { stores: Some(stores), ..whole(Work::default()) }];
        let said = words(&found, &row).unwrap();
        let most = "3 fences (none in RAM), 0 page faults, 0 journal bytes, 9.50 shared lines";
        assert_eq!(said, most);
        let counts = Simulated { instructions: 123_400, first_misses: 310, last_misses: 0 };
        row.counted = vec![Whole { simulated: Some(counts), ..whole(Work::default()) }];
        let said = words(&found, &row).unwrap();
        assert_eq!(said, "1234 instructions, 3.10 misses of the first cache, 0 of the last one");
    }
}
