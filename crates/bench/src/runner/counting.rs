//! Runs of the library that count instead of taking time: of each set of parameters two, one on a
//! memory that counts, and one whose system calls are counted; and one in a simulated processor, if
//! that is wanted.

use super::{Alive, Point, Watcher};
use crate::Error;
use crate::experiment::Whole;
use crate::results::Found;
use crate::target::Name;
use crate::worker::Purpose;

impl Point<'_> {
    /// Does them, and keeps what was counted with the rows of all targets that are the library.
    /// Where something can't be counted, that is told, and nothing else changes.
    pub(super) fn count(
        &self,
        targets: &mut [Alive<'_>],
        found: &mut [Found],
        watcher: &mut dyn Watcher,
    ) {
        let is_library = |alive: &Alive<'_>| alive.wanted.name == Name::Conquest;
        let own: Vec<bool> = targets.iter().map(is_library).collect();
        let alive = targets.iter_mut().find(|alive| is_library(alive));
        let Some(alive) = alive.filter(|_| self.experiment.has_files()) else {
            return;
        };
        if self.experiment.program().is_some() {
            return;
        }
        let all = [
            (Purpose::Memory, "what is stored"),
            (Purpose::Calls, "system calls (does somebody trace this process, or forbid it?)"),
            (Purpose::Instructions, "instructions"),
        ];
        let is_wanted = |purpose| purpose != Purpose::Instructions || self.plan.simulates;
        for (purpose, what) in all.into_iter().filter(|(purpose, _)| is_wanted(*purpose)) {
            if watcher.is_stopped() {
                return;
            }
            match self.once(alive, 0, purpose, watcher) {
                Ok(measured) => {
                    for found in &mut *found {
                        let of = measured.iter().find(|one| one.phase == found.phase.id);
                        let whole: Option<Whole> = of.and_then(|one| one.whole);
                        let rows = found.rows.iter_mut().zip(&own).filter(|(_, own)| **own);
                        rows.for_each(|(row, _)| row.counted.extend(whole));
                    }
                }
                Err(Error::Stopped) => return,
                Err(error) => {
                    let (experiment, label) = (self.experiment.id(), &alive.wanted.label);
                    let text = format!("{experiment} on {label}: not counted: {what}: {error}");
                    watcher.note(&text);
                }
            }
        }
    }
}
