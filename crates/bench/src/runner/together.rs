//! A run of several targets that take turns.

use super::{Alive, Follow, Point, Watcher, measured};
use crate::experiment::Measured;
use crate::target::{self, Survives};
use crate::worker::{Purpose, Request};
use crate::{Result, turns};

impl Point<'_> {
    /// Whether a target may take turns with others: if nothing of it is left to be done later.
    pub(super) fn takes_turns(&self, alive: &Alive<'_>) -> bool {
        let is_in_memory = matches!(alive.target.survives(), Survives::Nothing | Survives::Process);
        // Other people's programs know nothing of turns.
        let is_ours = self.experiment.program().is_none();
        // Memory is limited for one at a time.
        let is_free = self.need.memory.is_none();
        self.plan.follow == Follow::Turns && is_in_memory && is_ours && is_free
    }

    /// Whether there is memory for so many targets at once.
    pub(super) fn fit(&self, count: usize) -> bool {
        let bytes = self.need.bytes + self.need.files * PER_FILE;
        count < 2 || target::available("turns", bytes.saturating_mul(count as u64)).is_ok()
    }

    /// One run of each target of `group`: all are made, do each part in turns, and are removed.
    pub(super) fn together(
        &self,
        targets: &mut [Alive<'_>],
        group: &[usize],
        round: usize,
        watcher: &dyn Watcher,
    ) -> Vec<Result<Vec<Measured>>> {
        let mut make = |number: &usize| match targets.get_mut(*number) {
            Some(alive) => self.make(alive).map(|()| Vec::new()),
            None => Ok(Vec::new()),
        };
        let mut all: Vec<Result<Vec<Measured>>> = group.iter().map(&mut make).collect();
        for part in 0..self.count_parts() {
            self.part(targets, group, (part, round), &mut all, watcher);
        }
        for (number, measured) in group.iter().zip(&mut all) {
            let removed = targets.get_mut(*number).map_or(Ok(()), |alive| alive.target.remove());
            if let (Ok(_), Err(error)) = (&measured, removed) {
                *measured = Err(error);
            }
        }
        all
    }

    /// One part: `all` gets what those measured that have not failed.
    fn part(
        &self,
        targets: &[Alive<'_>],
        group: &[usize],
        (part, round): (usize, usize),
        all: &mut [Result<Vec<Measured>>],
        watcher: &dyn Watcher,
    ) {
        let request = |(number, measured): (&usize, &Result<Vec<Measured>>)| {
            let alive = targets.get(*number).filter(|_| measured.is_ok())?;
            let request = self.request(alive, part, round, Purpose::Time);
            Some((self.program(alive), Request { takes_turns: true, ..request }))
        };
        let requests: Vec<_> = group.iter().zip(&*all).filter_map(request).collect();
        let is_stopped = || watcher.is_stopped();
        let answers = turns::run(&requests, self.plan.limit, &is_stopped);
        let going = all.iter_mut().filter(|measured| measured.is_ok());
        for (before, answer) in going.zip(answers) {
            match (answer.and_then(|answer| measured(answer, part)), &mut *before) {
                (Ok(more), Ok(measured)) => measured.extend(more),
                (Err(error), _) => *before = Err(error),
                (Ok(_), Err(_)) => {}
            }
        }
    }
}

/// Bytes of memory that a file takes at most besides its content.
const PER_FILE: u64 = 8 << 10;
