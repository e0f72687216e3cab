//! Two sides that are measured in turn, in slices so short that whatever the machine does it does
//! to both.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::calls::Outcome;
use crate::machine::work::own_time;
use crate::random::Random;
use crate::stopwatch::{Batch, Pieces};

/// What was done in slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// How much.
    pub units: u64,
    /// How long it took.
    pub time: Duration,
    /// Time of processors that this process used.
    pub used: Duration,
}

impl AddAssign for Taken {
    fn add_assign(&mut self, more: Taken) {
        self.units += more.units;
        self.time += more.time;
        self.used += more.used;
    }
}

impl Taken {
    /// Of `work`, which says how much it did.
    ///
    /// # Errors
    /// Its own.
    pub fn of(work: impl FnOnce() -> Outcome<u64>) -> Outcome<Taken> {
        let (used, begin) = (own_time(), Instant::now());
        let units = work()?;
        let time = begin.elapsed();
        Ok(Taken { units, time, used: own_time().saturating_sub(used) })
    }

    /// Seconds of processors for each unit.
    #[must_use]
    pub fn used_for_each(&self) -> f64 {
        self.used.as_secs_f64() / self.units.max(1) as f64
    }

    /// As one batch of `bytes` for each unit. `pieces` says what is made of time.
    #[must_use]
    pub fn batches(&self, bytes: u64, mut pieces: Pieces) -> Vec<Batch> {
        pieces.add(self.units * bytes, self.time);
        pieces.finish()
    }
}

/// Lets `ours` and `other` work in turn, `count` times each, in random order, until `is_enough`
/// says so at the latest. The first slice of each does not count. What each did.
///
/// # Errors
/// Theirs.
pub fn in_turn(
    count: u64,
    random: &mut Random,
    mut ours: impl FnMut() -> Outcome<u64>,
    mut other: impl FnMut() -> Outcome<u64>,
) -> Outcome<[Taken; 2]> {
    let mut all = [Taken::default(); 2];
    for slice in 0..=count {
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for side in order {
            let taken = match side {
                0 => Taken::of(&mut ours)?,
                _ => Taken::of(&mut other)?,
            };
            if let Some(sum) = all.get_mut(side).filter(|_| slice > 0) {
                *sum += taken;
            }
        }
    }
    Ok(all)
}

/// Does `step` until `time` has gone by: how much all of them did.
///
/// # Errors
/// Its own.
pub fn until(time: Duration, mut step: impl FnMut() -> Outcome<u64>) -> Outcome<u64> {
    let begin = Instant::now();
    let mut done = step()?;
    while begin.elapsed() < time {
        done += step()?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_work_as_often_and_the_first_slice_does_not_count() {
        let (mut ours, mut others) = (0, 0);
        let mut random = Random::new(3);
        let found = in_turn(
            10,
            &mut random,
            || {
                ours += 1;
                Ok(if ours == 1 { 1000 } else { 1 })
            },
            || {
                others += 1;
                until(Duration::from_millis(2), || Ok(3))
            },
        )
        .unwrap();
        assert_eq!((ours, others), (11, 11));
        assert_eq!(found[0].units, 10);
        assert!(found[1].units >= 30 && found[1].time >= Duration::from_millis(20), "{found:?}");
        let failed = in_turn(
            1,
            &mut random,
            || Ok(1),
            || Err(crate::calls::CallError::of("fail", std::io::ErrorKind::Other)),
        );
        assert!(failed.is_err());
    }

    #[test]
    fn taken_is_one_batch() {
        let taken =
            Taken { units: 10, time: Duration::from_millis(2), used: Duration::from_micros(50) };
        assert!((taken.used_for_each() - 5e-6).abs() < 1e-12);
        let batches = taken.batches(4096, Pieces::new(0.5));
        assert_eq!(batches, [Batch { units: 40_960, nanoseconds: 3_000_000 }]);
    }
}
