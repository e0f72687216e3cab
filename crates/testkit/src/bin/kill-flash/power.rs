//! Power cuts while several processes work: of the log that they have written together, what any
//! moment of it may leave of the devices is opened, and judged by what had returned by then.

use std::sync::atomic::{AtomicU64, Ordering};

use conquest_testkit::Rng;
use conquest_testkit::flash::crash::{Choice, crash};
use conquest_testkit::flash::scenario::recover;
use conquest_testkit::flash::{Event, Medium, Recorder, Sweep};

use crate::judge::Kept;
use crate::kill::limit::Watchdog;
use crate::kill::tally::Tally;
use crate::worker::Stage;

/// Of so many cuts one is looked at closely.
const CLOSELY: u64 = 4;

/// Words for what there was: of cuts, those with a process gone that had writes under way; writes
/// that were neither flushed nor lost, of all cuts; events; steps lost.
pub(crate) const WORDS: usize = 5;
const CUTS: usize = 0;
const OF_DEAD: usize = 1;
const PENDING: usize = 2;
const EVENTS: usize = 3;
const LOST: usize = 4;

/// What power cuts have come to.
pub(crate) fn figures(words: &[AtomicU64]) -> String {
    let get = |word: usize| words[word].load(Ordering::Relaxed);
    format!(
        "{} power cuts in logs of {} events, {} of them after a process was killed in a write; {} \
         writes were not flushed, and {} steps lost",
        get(CUTS),
        get(EVENTS),
        get(OF_DEAD),
        get(PENDING),
        get(LOST)
    )
}

impl Stage<'_> {
    /// Cuts the power at `count` moments of the log, at whose beginning the devices held `start`.
    pub(crate) fn cut_power(
        &self,
        start: Vec<Medium>,
        (count, seed): (u64, u64),
        words: &[AtomicU64],
        tally: &Tally,
    ) -> Result<(), String> {
        let log = self.place.load_log()?;
        words[EVENTS].fetch_add(log.len() as u64, Ordering::Relaxed);
        if log.is_empty() {
            return Ok(());
        }
        let mut rng = Rng::new(seed);
        let mut points: Vec<usize> =
            (0..count).map(|_| rng.below(log.len() as u64) as usize).collect();
        points.sort_unstable();
        let mut sweeps: Vec<Sweep> = start.into_iter().map(Sweep::new).collect();
        let (mut passed, mut has_died) = (0, false);
        for point in points {
            for (_, device, event) in &log[passed..passed.max(point + 1)] {
                sweeps[*device].pass(event);
                has_died |= matches!(event, Event::Ceased { .. });
            }
            passed = passed.max(point + 1);
            // Marks have moments of their own, so this is between two of them.
            let moment = log.get(point).map_or(0, |(time, ..)| time + 1);
            let pending = sweeps.iter().map(|sweep| sweep.pending.len() as u64).sum::<u64>();
            words[CUTS].fetch_add(1, Ordering::Relaxed);
            words[OF_DEAD].fetch_add(has_died.into(), Ordering::Relaxed);
            words[PENDING].fetch_add(pending, Ordering::Relaxed);
            let lost = self.cut(&sweeps, moment, &mut rng).map_err(|what| {
                format!("power cut at event {point} of {}, {pending} pending: {what}", log.len())
            })?;
            words[LOST].fetch_add(lost, Ordering::Relaxed);
            tally.pass();
        }
        Ok(())
    }

    /// Opens what a cut at `moment` may leave, and judges it: steps that are lost.
    fn cut(&self, sweeps: &[Sweep], moment: u64, rng: &mut Rng) -> Result<u64, String> {
        let _watchdog = Watchdog::start();
        let choice = Choice::random(rng);
        let block = if rng.chance(1, 3) { 4096 } else { 512 };
        let members: Vec<Recorder> = sweeps
            .iter()
            .map(|sweep| Recorder::new(crash(sweep, block, choice, rng), false))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let fail = |what: String| format!("{choice}: {what}");
        let is_close = rng.chance(1, CLOSELY);
        let volume = recover(&members).map_err(|error| fail(format!("recovery: {error}")))?;
        self.note(&volume, is_close).map_err(fail)?;
        let verdict = self.judge(Kept::Cut(moment)).map_err(fail)?;
        if is_close {
            volume.flush().map_err(|error| fail(format!("flush: {error}")))?;
            drop(volume);
            self.open_again(&members).map_err(|what| fail(format!("again: {what}")))?;
        }
        Ok(verdict.lost)
    }

    /// Opens the volume on `members` once more, which has to be what it was found to be.
    fn open_again(&self, members: &[Recorder]) -> Result<(), String> {
        let values = || self.board.found().iter().map(|value| value.load(Ordering::Relaxed));
        let before: Vec<u64> = values().collect();
        let volume = recover(members).map_err(|error| format!("recovery: {error}"))?;
        self.note(&volume, false)?;
        match before.into_iter().zip(values()).position(|(one, other)| one != other) {
            None => Ok(()),
            Some(at) => Err(format!("block {at} of the model is another one")),
        }
    }
}
