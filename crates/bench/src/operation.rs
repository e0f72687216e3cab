//! What an operation costs besides time: counted by software, which there is everywhere.

use serde::{Deserialize, Serialize};

use crate::experiment::{Unit, Whole};
use crate::machine::work::{Stores, Work};
use crate::results::Row;
use crate::simulation::Simulated;
use crate::statistics::median;

/// What is done for one operation, on average. An operation is a unit where a phase counts files or
/// transactions, and a call that reads or writes where it counts bytes.
///
/// What has a name that ends with `_ns` is time of processors, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerOperation {
    /// Page faults of the process that measures. These and the next five are medians of all runs.
    pub page_faults: f64,
    /// Times that it waited for something.
    pub waits: f64,
    /// Times that a processor was taken from it.
    pub preemptions: f64,
    /// Its own time outside of the kernel.
    pub user_ns: f64,
    /// Its own time in the kernel.
    pub system_ns: f64,
    /// Time of all others: servers of mounts, threads of the kernel, and whatever else ran.
    pub elsewhere_ns: Option<f64>,
    /// System calls of the threads that measure; none if they were not counted.
    pub system_calls: Option<f64>,
    /// Fences, on a medium that needs write-back; none if they were not counted.
    pub fences: Option<f64>,
    /// Lines written back, on such a medium.
    pub written_back: Option<f64>,
    /// Bytes stored into the journal.
    pub journal_bytes: Option<f64>,
    /// Lines stored into that other processes read.
    pub shared_lines: Option<f64>,
    /// Instructions outside of the kernel; none if they were not counted.
    pub instructions: Option<f64>,
    /// Loads and stores that a simulated first cache did not hold.
    pub first_misses: Option<f64>,
    /// Those of them that a simulated last cache did not hold either.
    pub last_misses: Option<f64>,
}

/// Time elsewhere is told to people from this share of the own time on.
const SHARE_MIN: f64 = 0.1;
/// Page faults are told to people from so many on.
const FAULTS_MIN: f64 = 0.01;

/// Operations of the phase of which `whole` is known.
fn operations(whole: &Whole, unit: Unit) -> f64 {
    match unit {
        Unit::Files | Unit::Transactions | Unit::Attachments | Unit::Requests => {
            whole.total.units as f64
        }
        Unit::Bytes => whole.total.calls as f64,
        Unit::Seconds | Unit::Each => 0.0,
    }
}

impl PerOperation {
    /// Of the phase of `row`, which counts in `unit`; none if it is not known how many operations
    /// there were.
    #[must_use]
    pub fn of(row: &Row, unit: Unit) -> Option<PerOperation> {
        let is_known = |whole: &Whole| operations(whole, unit) > 0.0;
        let samples = row.samples.iter().flatten().filter_map(|sample| sample.whole);
        let wholes: Vec<Whole> = samples.filter(is_known).collect();
        if wholes.is_empty() {
            return None;
        }
        let of = |number: fn(&Work) -> u64| {
            let each = |one: &Whole| number(&one.work) as f64 / operations(one, unit);
            median(&wholes.iter().map(each).collect::<Vec<f64>>())
        };
        let elsewhere: Option<Vec<f64>> = wholes
            .iter()
            .map(|one| Some(one.work.elsewhere? as f64 / operations(one, unit)))
            .collect();
        let elsewhere = elsewhere.map(|each| median(&each));
        let counted = || row.counted.iter().filter(|whole| is_known(whole));
        let stored = |number: fn(&Stores) -> u64| {
            let mut all = counted().filter_map(|one| Some((one, one.stores?)));
            all.next().map(|(one, stores)| number(&stores) as f64 / operations(one, unit))
        };
        let simulated = |number: fn(&Simulated) -> u64| {
            let mut all = counted().filter_map(|one| Some((one, one.simulated?)));
            all.next().map(|(one, counts)| number(&counts) as f64 / operations(one, unit))
        };
        let called =
            counted().find_map(|one| Some(one.system_calls? as f64 / operations(one, unit)));
        Some(PerOperation {
            page_faults: of(|work| work.page_faults),
            waits: of(|work| work.waits),
            preemptions: of(|work| work.preemptions),
            user_ns: of(|work| work.user),
            system_ns: of(|work| work.system),
            elsewhere_ns: elsewhere,
            system_calls: called,
            fences: stored(|stores| stores.fences),
            written_back: stored(|stores| stores.written_back),
            journal_bytes: stored(|stores| stores.journal_bytes),
            shared_lines: stored(|stores| stores.shared_lines),
            instructions: simulated(|counts| counts.instructions),
            first_misses: simulated(|counts| counts.first_misses),
            last_misses: simulated(|counts| counts.last_misses),
        })
    }

    /// Whether so much was done elsewhere that it is worth telling.
    #[must_use]
    pub fn works_elsewhere(&self) -> bool {
        self.elsewhere_ns.is_some_and(|time| time > SHARE_MIN * (self.user_ns + self.system_ns))
    }

    /// Whether there were page faults that are worth telling.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.page_faults >= FAULTS_MIN
    }

    /// Whether anything was counted that is not counted for all targets.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.system_calls.is_some() || self.fences.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Sample;
    use crate::stopwatch::Total;
    use crate::target::Survives;

    #[test]
    fn an_operation_is_a_unit_or_a_call() {
        let total = Total { units: 4096 * 100, calls: 100 };
        let whole = |page_faults, stores, system_calls| {
            let work = Work { page_faults, user: 1000, elsewhere: Some(200), ..Work::default() };
            Whole { total, work, stores, system_calls, simulated: None }
        };
        let sample =
            |faults| Some(Sample { rate: 1.0, mark: None, whole: Some(whole(faults, None, None)) });
        let stores = Stores { fences: 300, written_back: 7, journal_bytes: 0, shared_lines: 50 };
        let mut row = Row {
            target: "conquest".into(),
            survives: Survives::Process,
            samples: vec![sample(50), None, sample(10), sample(900)],
            counted: vec![whole(0, Some(stores), None), whole(0, None, Some(200))],
        };
        let counts = Simulated { instructions: 12_000, first_misses: 250, last_misses: 0 };
        row.counted.push(Whole { simulated: Some(counts), ..whole(0, None, None) });
        let found = PerOperation::of(&row, Unit::Bytes).unwrap();
        assert_eq!((found.page_faults, found.user_ns, found.elsewhere_ns), (0.5, 10.0, Some(2.0)));
        assert_eq!((found.fences, found.system_calls), (Some(3.0), Some(2.0)));
        assert_eq!((found.journal_bytes, found.shared_lines), (Some(0.0), Some(0.5)));
        assert_eq!((found.instructions, found.first_misses), (Some(120.0), Some(2.5)));
        assert_eq!(found.last_misses, Some(0.0));
        assert!(found.works_elsewhere() && found.has_faults() && found.is_counted());
        let files = PerOperation::of(&row, Unit::Files).unwrap();
        assert_eq!(files.fences, Some(300.0 / 409_600.0));
        row.counted.clear();
        let found = PerOperation::of(&row, Unit::Bytes).unwrap();
        assert_eq!((found.fences, found.system_calls), (None, None));
        assert!(!found.is_counted());
        row.samples = vec![None, Some(Sample { rate: 1.0, mark: None, whole: None })];
        assert_eq!(PerOperation::of(&row, Unit::Files), None);
    }
}
