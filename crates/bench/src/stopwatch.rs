//! Time, measured in batches: the clock is looked at so seldom that looking costs nothing, and each
//! batch is long against the clock's steps.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::turns::Turn;

/// Least time of a batch.
pub const BATCH: Duration = Duration::from_millis(1);
/// So often the clock is looked at in a batch.
const LOOKS: u64 = 16;

/// Work, and how long it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// Files, transactions or bytes.
    pub units: u64,
    /// Its time.
    pub nanoseconds: u64,
}

impl Batch {
    /// Nanoseconds for one unit.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.nanoseconds as f64 / self.units as f64
    }
}

/// Measures one phase.
#[derive(Debug)]
pub struct Stopwatch {
    begin: Instant,
    units: u64,
    /// Calls of [`Stopwatch::did`] since the batch began, as of the last look.
    counted: u64,
    between_looks: u64,
    until_look: u64,
    batches: Vec<Batch>,
    delay: f64,
    turn: Option<Turn>,
    /// Whether the caches are still those of who had the turn before.
    is_cold: bool,
    /// Calls of [`Stopwatch::did`], and units, before what is counted above.
    before: Total,
}

/// All that was done, with what was for warming up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Total {
    /// Files, transactions or bytes.
    pub units: u64,
    /// Calls of [`Stopwatch::did`].
    pub calls: u64,
}

impl Stopwatch {
    /// Begins now. `delay` is a share of its time by which each batch is made longer, by doing
    /// nothing: with it the method itself is tested. If there is a turn, it is passed on when it is
    /// up, and the first batch of the next one does not count.
    #[must_use]
    pub fn start(delay: f64, turn: Option<Turn>) -> Stopwatch {
        Stopwatch {
            // Phases of hundreds of milliseconds don't grow it.
            batches: Vec::with_capacity(1 << 10),
            begin: Instant::now(),
            units: 0,
            counted: 0,
            between_looks: 1,
            until_look: 1,
            delay,
            turn,
            is_cold: false,
            before: Total::default(),
        }
    }

    /// So many units more are done.
    #[inline]
    pub fn did(&mut self, units: u64) {
        self.units += units;
        self.until_look -= 1;
        if self.until_look == 0 {
            self.look();
        }
    }

    /// Ends the batch if it is long enough, and decides when to look again.
    #[inline(never)]
    fn look(&mut self) {
        self.counted += self.between_looks;
        let taken = self.begin.elapsed();
        let per_call = (taken.as_nanos() as u64 / self.counted).max(1);
        let wanted = BATCH.as_nanos() as u64 / LOOKS / per_call;
        // Not much more at once than was seen so far.
        self.between_looks = wanted.clamp(1, 2 * self.between_looks);
        self.until_look = self.between_looks;
        if taken >= BATCH {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.delay > 0.0 {
            let end = Instant::now() + self.begin.elapsed().mul_f64(self.delay);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        let now = Instant::now();
        let nanoseconds = (now - self.begin).as_nanos() as u64;
        if !std::mem::take(&mut self.is_cold) {
            self.batches.push(Batch { units: self.units, nanoseconds });
        }
        self.forget();
        self.begin = now;
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.is_up()) {
            turn.pass();
            self.is_cold = true;
            self.begin = Instant::now();
        }
    }

    /// Forgets what was measured, and begins now: what came first was for warming up.
    pub fn restart(&mut self) {
        self.batches.clear();
        self.before.calls += self.between_looks - self.until_look;
        self.until_look = self.between_looks;
        self.forget();
        self.begin = Instant::now();
    }

    fn forget(&mut self) {
        self.before.calls += self.counted;
        self.before.units += self.units;
        self.units = 0;
        self.counted = 0;
    }

    /// All that was done until now.
    #[must_use]
    pub fn total(&self) -> Total {
        let since = self.counted + (self.between_looks - self.until_look);
        Total { units: self.before.units + self.units, calls: self.before.calls + since }
    }

    /// Ends the phase. What is left over, be it only time, belongs to the last batch.
    #[must_use]
    pub fn stop(mut self) -> Vec<Batch> {
        if self.batches.is_empty() && self.units == 0 {
            return Vec::new();
        }
        self.close();
        if let [.., before, last] = self.batches.as_mut_slice()
            && (last.units == 0 || u128::from(last.nanoseconds) < BATCH.as_nanos())
        {
            before.units += last.units;
            before.nanoseconds += last.nanoseconds;
            self.batches.pop();
        }
        self.batches
    }
}

/// Measures work that is done in pieces, with something else in between.
#[derive(Clone, Debug)]
pub struct Pieces {
    batches: Vec<Batch>,
    /// What is not yet long enough.
    open: Batch,
    delay: f64,
}

impl Pieces {
    /// None yet. `delay` is a share of its time by which each piece is counted longer.
    #[must_use]
    pub fn new(delay: f64) -> Pieces {
        Pieces { batches: Vec::new(), open: Batch::default(), delay }
    }

    /// A piece of `units` units took `time`.
    pub fn add(&mut self, units: u64, time: Duration) {
        self.open.units += units;
        self.open.nanoseconds += time.mul_f64(1.0 + self.delay).as_nanos() as u64;
        if u128::from(self.open.nanoseconds) >= BATCH.as_nanos() {
            self.batches.push(std::mem::take(&mut self.open));
        }
    }

    /// Time of all of them.
    #[must_use]
    pub fn taken(&self) -> Duration {
        let all = self.batches.iter().chain([&self.open]);
        Duration::from_nanos(all.map(|batch| batch.nanoseconds).sum())
    }

    /// Begins anew: what came first was for warming up.
    pub fn forget(&mut self) {
        *self = Pieces::new(self.delay);
    }

    /// The batches. What is left over belongs to the last one.
    #[must_use]
    pub fn finish(mut self) -> Vec<Batch> {
        match self.batches.last_mut() {
            Some(last) => {
                last.units += self.open.units;
                last.nanoseconds += self.open.nanoseconds;
            }
            None if self.open.units > 0 => self.batches.push(self.open),
            None => {}
        }
        self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {}
    }

    #[test]
    fn batches_are_long_and_nothing_is_left_out() {
        let begin = Instant::now();
        let mut watch = Stopwatch::start(0.0, None);
        for _ in 0..5000 {
            busy(Duration::from_micros(2));
            watch.did(3);
        }
        assert_eq!(watch.total(), Total { units: 15_000, calls: 5000 });
        let batches = watch.stop();
        let taken = begin.elapsed().as_nanos() as u64;
        assert_eq!(batches.iter().map(|batch| batch.units).sum::<u64>(), 15_000);
        assert!(batches.iter().all(|batch| u128::from(batch.nanoseconds) >= BATCH.as_nanos()));
        let measured: u64 = batches.iter().map(|batch| batch.nanoseconds).sum();
        assert!(measured <= taken && measured > taken / 10 * 9, "{measured} of {taken}");
        assert!(batches.len() >= 3, "{batches:?}");
    }

    #[test]
    fn what_is_short_is_one_batch() {
        let mut watch = Stopwatch::start(0.0, None);
        watch.did(1);
        watch.restart();
        watch.did(7);
        assert_eq!(watch.total(), Total { units: 8, calls: 2 });
        let batches = watch.stop();
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].units, 7);
        assert_eq!(Stopwatch::start(0.0, None).stop(), []);
    }

    #[test]
    fn delays_are_measured_too() {
        let cost = |delay| {
            let mut watch = Stopwatch::start(delay, None);
            for _ in 0..200 {
                busy(Duration::from_micros(50));
                watch.did(1);
            }
            let batches = watch.stop();
            // The least of them: what else the machine does makes nothing faster.
            batches.iter().map(Batch::cost).fold(f64::INFINITY, f64::min)
        };
        // Twice the time, whatever else the machine does.
        let (without, with) = (cost(0.0), cost(1.0));
        assert!(with > 1.5 * without, "{without}, {with}");
    }

    #[test]
    fn pieces_make_batches() {
        let mut pieces = Pieces::new(1.0);
        for _ in 0..5 {
            pieces.add(10, Duration::from_micros(200));
        }
        assert_eq!(pieces.taken(), Duration::from_millis(2));
        // 400 us each, as everything takes twice its time.
        assert_eq!(pieces.clone().finish(), [Batch { units: 50, nanoseconds: 2_000_000 }]);
        pieces.forget();
        assert_eq!(pieces.clone().finish(), []);
        pieces.add(1, Duration::from_nanos(1));
        assert_eq!(pieces.finish(), [Batch { units: 1, nanoseconds: 2 }]);
    }
}
