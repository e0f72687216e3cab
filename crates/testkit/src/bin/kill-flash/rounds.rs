//! The rounds of a run: processes work, some are killed or stopped, all of them end in one way or
//! another, and what is there then is judged.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use conquest_testkit::Rng;
use conquest_testkit::flash::Medium;

use crate::board::Board;
use crate::examine::Examination;
use crate::judge::Kept;
use crate::kill::limit::Watchdog;
use crate::kill::tally::Tally;
use crate::os::child::{Child, End};
use crate::os::memory::Shared;
use crate::place::Place;
use crate::power;
use crate::space::Space;
use crate::worker::Stage;
use crate::{LEAST_BELOW, Plan};

/// Longest time without any operation, and for any process to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at the workers.
const PAUSE: Duration = Duration::from_micros(300);
/// After that, requests of processes that were killed would have landed.
const LATER: Duration = Duration::from_secs(2);
/// Every so many rounds in which all are killed, somebody looks again later.
const LATE: u64 = 40;
/// Every so many rounds the whole index is checked.
const CHECKED: u64 = 8;
/// In every so many rounds a log is kept; in which of them.
const LOGGED: u64 = 8;
const LOGGED_AT: u64 = 3;
/// Operations of such a round, at least, though those before it have done more than they had to.
const LOGGED_LEAST: u64 = 400;

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// All close the volume.
    Close,
    /// All are killed.
    Kill,
    /// All are killed, and the index is lost.
    Cut,
}

/// What there was.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    closed: u64,
    killed: u64,
    cut: u64,
    /// Looks after a flush whose index was lost then, and later looks.
    again: u64,
    later: u64,
    /// Openings by workers.
    workers: u64,
    kills: u64,
    /// Kills of who opened the volume.
    openers: u64,
    stops: u64,
    lost: u64,
    atomic: u64,
    /// The least that was in use, in thousandths, since it was filled.
    fullness: Option<u64>,
    operations: u64,
    bytes: u64,
    looks: u64,
    device: u64,
    processes: u64,
    /// Requests to queues, and writes with reserved space.
    queued: u64,
    reserving: u64,
    /// Requests of one slot that were under way when it was killed, at most; and of all slots.
    most_killed: u64,
    under_way: u64,
}

/// A run.
pub(crate) struct Run<'p> {
    plan: &'p Plan,
    place: Place,
    space: Space,
    board: Board,
    /// What [`crate::power`] counts.
    cuts: Shared,
    figures: Figures,
    rng: Rng,
}

impl<'p> Run<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Result<Run<'p>, String> {
        let device = plan.mib << 20;
        let place = Place::new(plan.devices, device, plan.segment, plan.directory.as_deref())?;
        let capacity = capacity(plan, &place)?;
        let units = capacity * (plan.full + LEAST_BELOW).min(99) / 100;
        let space = Space::new(plan.processes * plan.threads, units as usize);
        let each = plan.operations / plan.openings.max(1) / space.slots() as u64;
        let board = Board::new(&space, each * 4 + 64)?;
        board.capacity().store(capacity, Ordering::SeqCst);
        let figures = Figures { device, ..Figures::default() };
        let cuts = Shared::of(power::WORDS)?;
        Ok(Run { plan, place, space, board, cuts, figures, rng: Rng::stream(plan.seed, 1 << 50) })
    }

    fn stage(&self) -> Stage<'_> {
        Stage { plan: self.plan, place: &self.place, space: &self.space, board: &self.board }
    }

    /// All rounds.
    pub(crate) fn run(&mut self, tally: &Tally) -> Result<(), String> {
        let rounds = self.plan.openings;
        for round in 0..rounds {
            let target = (u128::from(self.plan.operations) * u128::from(round + 1)
                / u128::from(rounds)) as u64;
            self.round(round, target, tally).map_err(|error| format!("round {round}: {error}"))?;
        }
        let last = Examination { check: true, verify: true, close: true, flush: false };
        self.examine(last).map_err(|error| format!("in the end: {error}"))?;
        tally.pass();
        if self.figures.fullness.is_none() && rounds > 1 {
            return Err("the volume never got as full as it was to be".into());
        }
        Ok(())
    }

    fn round(&mut self, round: u64, target: u64, tally: &Tally) -> Result<(), String> {
        let ending = match self.rng.below(20) {
            0..9 => Ending::Close,
            9..13 => Ending::Kill,
            _ => Ending::Cut,
        };
        let cuts = self.cuts_of(round);
        let start = if cuts > 0 { self.begin_log()? } else { Vec::new() };
        let mut workers = Vec::new();
        for process in 0..self.plan.processes {
            workers.push(self.worker(process)?);
        }
        let is_early = ending != Ending::Close && cuts == 0 && self.rng.chance(1, 10);
        if is_early {
            std::thread::sleep(Duration::from_micros(self.rng.below(8000)));
        } else {
            let least = if cuts > 0 { self.board.operations() + LOGGED_LEAST } else { 0 };
            self.load(&mut workers, target.max(least), cuts > 0)?;
        }
        match ending {
            Ending::Close => self.close(&mut workers)?,
            Ending::Kill | Ending::Cut => self.kill_all(&mut workers)?,
        }
        if ending == Ending::Cut {
            self.place.remove_index()?;
        }
        drop(workers);
        if cuts > 0 {
            self.cut_power(start, cuts, tally).map_err(|e| format!("after {ending:?}: {e}"))?;
        }
        self.look(round, ending, tally)?;
        self.board.begin_round();
        Ok(())
    }

    /// In how many moments of round `round` the power is cut.
    fn cuts_of(&self, round: u64) -> u64 {
        let all = (self.plan.openings + LOGGED - 1 - LOGGED_AT) / LOGGED;
        let before = |number: u64| self.plan.cuts * number / all.max(1);
        match round % LOGGED == LOGGED_AT {
            true => before(round / LOGGED + 1) - before(round / LOGGED),
            false => 0,
        }
    }

    /// Begins a log, with all flushed and nobody there: what the devices hold.
    fn begin_log(&self) -> Result<Vec<Medium>, String> {
        let how = Examination { flush: true, close: true, ..Examination::default() };
        self.examine(how).map_err(|error| format!("before a log: {error}"))?;
        self.place.begin_log()
    }

    /// Cuts the power at `count` moments of the log, which ends.
    fn cut_power(&mut self, start: Vec<Medium>, count: u64, tally: &Tally) -> Result<(), String> {
        let seed = self.rng.word();
        let (stage, words) = (self.stage(), &self.cuts);
        let mut child = Child::fork(|| stage.cut_power(start, (count, seed), words, tally))?;
        // Each cut has a time limit of its own.
        match child.wait()? {
            End::Exit(0) => self.place.end_log(),
            end => Err(format!("who cuts the power has ended: {end:?}")),
        }
    }

    fn worker(&mut self, process: usize) -> Result<Child, String> {
        self.figures.workers += 1;
        let stage = self.stage();
        Child::fork(|| stage.work(process).map_err(|error| format!("process {process}: {error}")))
    }

    /// Lets the workers work until there were `target` operations; meanwhile kills some, and stops
    /// some for a while.
    fn load(&mut self, workers: &mut [Child], target: u64, is_logged: bool) -> Result<(), String> {
        let begin = self.board.operations();
        let share = target.saturating_sub(begin);
        let mut events: Vec<(u64, bool)> = Vec::new();
        if is_logged {
            events.extend((0..4).map(|event| (begin + self.rng.below(share), event > 0)));
        }
        while self.rng.chance(1, 3) && events.len() < 4 {
            events.push((begin + self.rng.below(share), self.rng.chance(3, 4)));
        }
        events.sort_unstable();
        let mut events = events.into_iter().peekable();
        let mut seen = (begin, Instant::now());
        loop {
            let now = self.board.operations();
            if now >= target {
                return Ok(());
            }
            if now > seen.0 {
                seen = (now, Instant::now());
            } else if seen.1.elapsed() > LIMIT {
                return Err(format!("nobody has done anything for {} s", LIMIT.as_secs()));
            }
            self.expect_alive(workers)?;
            while let Some((_, is_kill)) = events.next_if(|&(at, _)| at <= now) {
                let victim = self.rng.below(workers.len() as u64) as usize;
                if is_kill {
                    self.kill(victim, &mut workers[victim])?;
                    workers[victim] = self.worker(victim)?;
                } else {
                    self.figures.stops += 1;
                    workers[victim].signal(libc::SIGSTOP);
                    std::thread::sleep(self.stop_time());
                    workers[victim].signal(libc::SIGCONT);
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// How long a process is stopped: mostly for a moment, sometimes so long that others write what
    /// it was about to write.
    fn stop_time(&mut self) -> Duration {
        let least = if self.rng.chance(1, 4) { 400 } else { 20 };
        Duration::from_millis(least + self.rng.below(80))
    }

    fn expect_alive(&self, workers: &mut [Child]) -> Result<(), String> {
        for (process, worker) in workers.iter_mut().enumerate() {
            match worker.end()? {
                None | Some(End::Stopped) => {}
                Some(end) => return Err(format!("process {process} has ended: {end:?}")),
            }
        }
        Ok(())
    }

    fn kill(&mut self, process: usize, worker: &mut Child) -> Result<(), String> {
        worker.signal(libc::SIGKILL);
        expect_killed(worker)?;
        self.note_killed(process);
        Ok(())
    }

    /// Counts what a process had under way that was killed.
    fn note_killed(&mut self, process: usize) {
        self.figures.kills += 1;
        let threads = self.plan.threads;
        for slot in process * threads..(process + 1) * threads {
            let under_way = self.board.under_way(slot).swap(0, Ordering::Relaxed);
            self.figures.most_killed = self.figures.most_killed.max(under_way);
            self.figures.under_way += under_way;
        }
    }

    fn kill_all(&mut self, workers: &mut [Child]) -> Result<(), String> {
        workers.iter().for_each(|worker| worker.signal(libc::SIGKILL));
        workers.iter_mut().try_for_each(expect_killed)?;
        (0..workers.len()).for_each(|process| self.note_killed(process));
        Ok(())
    }

    fn close(&mut self, workers: &mut [Child]) -> Result<(), String> {
        self.board.stop(true);
        for (process, worker) in workers.iter_mut().enumerate() {
            match wait(worker)? {
                End::Exit(0) => {}
                end => return Err(format!("process {process} has ended: {end:?}")),
            }
        }
        match self.place.found_indices()?.first() {
            None => Ok(()),
            Some(left) => Err(format!("all have closed it, and {} is there", left.display())),
        }
    }

    /// Opens the volume and judges what it holds.
    fn look(&mut self, round: u64, ending: Ending, tally: &Tally) -> Result<(), String> {
        let context = |error: String| format!("after {ending:?}: {error}");
        if ending != Ending::Close && self.rng.chance(1, 5) {
            self.kill_opener().map_err(context)?;
        }
        let count = match ending {
            Ending::Close => &mut self.figures.closed,
            Ending::Kill => &mut self.figures.killed,
            Ending::Cut => &mut self.figures.cut,
        };
        *count += 1;
        let is_late =
            ending != Ending::Close && (self.figures.killed + self.figures.cut) % LATE == 1;
        let first = Examination {
            check: round.is_multiple_of(CHECKED),
            flush: !is_late,
            close: !is_late && self.rng.chance(1, 2),
            verify: false,
        };
        self.examine(first).map_err(context)?;
        let kept = if ending == Ending::Cut { Kept::Flushed } else { Kept::Ended };
        let verdict = self.stage().judge(kept).map_err(context)?;
        tally.pass();
        self.figures.lost += verdict.lost;
        self.figures.atomic += verdict.atomic;
        let fullness = verdict.live * 1000 / self.board.capacity().load(Ordering::SeqCst).max(1);
        if fullness >= self.plan.full * 10 || self.figures.fullness.is_some() {
            self.figures.fullness =
                Some(self.figures.fullness.map_or(fullness, |least| least.min(fullness)));
        }
        if is_late {
            std::thread::sleep(LATER);
            self.figures.later += 1;
            self.look_again("later", first.check)?;
            tally.pass();
        }
        if ending != Ending::Close && self.rng.chance(1, 3) {
            self.place.remove_index()?;
            self.figures.again += 1;
            self.look_again("flushed, and its index lost", false)?;
            tally.pass();
        }
        Ok(())
    }

    /// Kills somebody who opens the volume, at some moment.
    fn kill_opener(&mut self) -> Result<(), String> {
        let stage = self.stage();
        let mut opener = Child::fork(|| stage.open().map(drop))?;
        std::thread::sleep(Duration::from_micros(self.rng.below(20_000)));
        opener.signal(libc::SIGKILL);
        self.figures.openers += 1;
        match wait(&mut opener)? {
            End::Exit(0) | End::Signal(libc::SIGKILL) => Ok(()),
            end => Err(format!("who opened it has ended: {end:?}")),
        }
    }

    /// What is found is what was found before.
    fn look_again(&self, when: &str, check: bool) -> Result<(), String> {
        let values = || {
            let found = [self.board.reserved()].into_iter().chain(self.board.found());
            found.map(|value| value.load(Ordering::Relaxed))
        };
        let before: Vec<u64> = values().collect();
        let how = Examination { check, flush: true, close: false, verify: false };
        self.examine(how).map_err(|error| format!("{when}: {error}"))?;
        match before.iter().zip(values()).position(|(&one, other)| one != other) {
            None => Ok(()),
            Some(0) => Err(format!("{when}: other space is reserved")),
            Some(at) => Err(format!("{when}: block {} of the model is another one", at - 1)),
        }
    }

    fn examine(&self, how: Examination) -> Result<(), String> {
        let stage = self.stage();
        let mut child = Child::fork(|| {
            let _watchdog = Watchdog::start();
            stage.examine(how)
        })?;
        match wait(&mut child)? {
            End::Exit(0) => Ok(()),
            end => Err(format!("who examines it has ended: {end:?}")),
        }
    }

    /// What there was.
    pub(crate) fn figures(&self) -> String {
        let (operations, bytes) = (self.board.operations(), self.board.bytes());
        let (queued, reserving) = (self.board.queued(), self.board.reserving());
        let processes = self.plan.processes as u64;
        let looks = self.board.looks();
        let all =
            Figures { operations, bytes, looks, processes, queued, reserving, ..self.figures };
        format!("{all}\n{}", power::figures(&self.cuts))
    }
}

/// Waits for a child to end.
fn wait(child: &mut Child) -> Result<End, String> {
    loop {
        match child.wait_for(LIMIT)? {
            End::Stopped => std::thread::sleep(PAUSE),
            end => return Ok(end),
        }
    }
}

fn expect_killed(worker: &mut Child) -> Result<(), String> {
    match wait(worker)? {
        End::Signal(libc::SIGKILL) => Ok(()),
        end => Err(format!("a process that was killed has ended otherwise: {end:?}")),
    }
}

/// Units that the volume can have payload in.
fn capacity(plan: &Plan, place: &Place) -> Result<u64, String> {
    let words = Shared::new()?;
    Child::fork(|| {
        let volume = crate::worker::open(place)?;
        let info = volume.info().map_err(|error| error.to_string())?;
        if info.unit != 4096 {
            return Err(format!("units of {} bytes; devices of 4096 are wanted", info.unit));
        }
        words[0].store(info.capacity, Ordering::SeqCst);
        volume.close().map_err(|error| error.to_string())
    })?
    .finish()?;
    let capacity = words[0].load(Ordering::SeqCst);
    let least = plan.processes * plan.threads * 64;
    if capacity < least as u64 {
        return Err(format!("{capacity} units are too few: {least} at least; give more --mib"));
    }
    Ok(capacity)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { operations, bytes, device, processes, .. } = self;
        let overwrites = bytes / device.max(&1);
        writeln!(
            f,
            "{operations} operations by {processes} processes, {} MiB written: the devices \
             {overwrites} times",
            bytes >> 20
        )?;
        writeln!(
            f,
            "{} requests by queues, {} under way when their processes were killed, up to {} of a \
             thread; {} writes with reserved space",
            self.queued, self.under_way, self.most_killed, self.reserving
        )?;
        let killed = self.killed + self.cut + self.again;
        writeln!(f, "{} reopenings, {killed} of them after kills", self.closed + killed)?;
        writeln!(
            f,
            "openings: {} by workers, {} after all had closed, {} after all were killed, {} after \
             a cut, {} after a flush and a cut, {} later again",
            self.workers, self.closed, self.killed, self.cut, self.again, self.later
        )?;
        writeln!(
            f,
            "{} processes killed, {} while they opened it, {} stopped for a while",
            self.kills, self.openers, self.stops
        )?;
        writeln!(
            f,
            "{} atomic changes judged, and sets looked at {} times meanwhile; {} steps lost that \
             were not flushed",
            self.atomic, self.looks, self.lost
        )?;
        let fullness = self.fullness.unwrap_or(0);
        write!(f, "at least {}.{} % in use since it was filled", fullness / 10, fullness % 10)
    }
}
