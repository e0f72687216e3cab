//! Processes that take turns: of several that are there at once only one works, for some
//! milliseconds, then the next one does.
//!
//! Where a processor is shared with others who can't be seen, its speed changes by tens of percent
//! within a tenth of a second. What is measured so is measured at the same time, but for these
//! milliseconds, and whatever the processor does it does to all. After each phase the first ones
//! wait for the last one, so that all phases are those of the others too.
//!
//! A process says `.` on standard output when its turn is up and `|` when a phase has ended, and
//! then waits for a byte on standard input.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::process::{self, Ended, LOOK};
use crate::worker::{Answer, Request};
use crate::{Error, Result};

/// How long one works. The first of these milliseconds does not count: the caches are still those
/// of the one before.
const TURN: Duration = Duration::from_millis(4);
const UP: u8 = b'.';
const PHASE: u8 = b'|';

/// The turn of this process.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    since: Instant,
}

impl Turn {
    /// Waits for the first one.
    #[must_use]
    pub fn first() -> Turn {
        let mut turn = Turn { since: Instant::now() };
        turn.wait();
        turn
    }

    /// Whether it has lasted long enough.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.since.elapsed() >= TURN
    }

    /// Lets the next one work, and waits for the next turn.
    pub fn pass(&mut self) {
        self.say(UP);
    }

    /// The same at the end of a phase: until all have ended it.
    pub fn end_phase(&mut self) {
        self.say(PHASE);
    }

    fn say(&mut self, what: u8) {
        let mut out = std::io::stdout().lock();
        // Who would hear it has ended, and ends this process.
        let _ = out.write_all(&[what]).and_then(|()| out.flush());
        self.wait();
    }

    fn wait(&mut self) {
        // The same.
        let _ = std::io::stdin().lock().read_exact(&mut [0]);
        self.since = Instant::now();
    }
}

/// What a process says.
enum Event {
    Up,
    Phase,
    /// All that it has to say; it has ended, or will.
    Said(Vec<u8>),
}

/// What a process waits for.
#[derive(PartialEq, Eq)]
enum Waiting {
    Turn,
    OthersToEndThePhase,
    Nothing,
}

/// One of them.
struct Player {
    child: Ended,
    to: Option<ChildStdin>,
    waiting: Waiting,
    said: Vec<u8>,
}

/// Lets processes do what they are told, each by its program, in turns, for at most `limit` each;
/// they are ended when `is_stopped` says so. One answer for each.
pub fn run(
    all: &[(&Path, Request)],
    limit: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Vec<Result<Answer>> {
    let (to, events) = channel();
    let started = all.iter().enumerate().map(|(number, one)| Player::start(number, one, &to));
    let mut players: Vec<Result<Player>> = started.collect();
    let end = Instant::now() + limit * all.len() as u32;
    let played = play(&mut players, &events, end, is_stopped);
    let answers = players.into_iter().zip(all).map(|(player, (program, _))| {
        let mut player = player?;
        match (played, player.waiting) {
            (Played::Well, _) | (_, Waiting::Nothing) => {
                process::answer(program, &mut player.child.0, &player.said)
            }
            (Played::Stopped, _) => Err(Error::Stopped),
            (Played::Late, _) => Err(Error::Slow(limit)),
        }
    });
    answers.collect()
}

/// Why playing has ended.
#[derive(Clone, Copy)]
enum Played {
    Well,
    Stopped,
    Late,
}

/// Gives turns until all have said all.
fn play(
    players: &mut [Result<Player>],
    events: &Receiver<(usize, Event)>,
    end: Instant,
    is_stopped: &dyn Fn() -> bool,
) -> Played {
    let mut last = players.len();
    while let Some(next) = next(players, last) {
        last = next;
        if let Some(Ok(player)) = players.get_mut(next) {
            player.give();
        }
        loop {
            match events.recv_timeout(LOOK) {
                Ok((number, event)) => {
                    if let Some(Ok(player)) = players.get_mut(number) {
                        player.hear(event);
                    }
                    if number == next {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) if is_stopped() => return Played::Stopped,
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => return Played::Late,
            }
        }
    }
    Played::Well
}

/// Who is next after `last`; none if all have ended.
fn next(players: &mut [Result<Player>], last: usize) -> Option<usize> {
    let count = players.len();
    let waiting = |players: &[Result<Player>]| {
        let is_waiting = |number: &usize| {
            let player = players.get(*number).and_then(|player| player.as_ref().ok());
            player.is_some_and(|player| player.waiting == Waiting::Turn)
        };
        (1..=count).map(|step| (last + step) % count).find(is_waiting)
    };
    if let Some(next) = waiting(players) {
        return Some(next);
    }
    // All that are left have ended the phase.
    for player in players.iter_mut().flatten() {
        if player.waiting == Waiting::OthersToEndThePhase {
            player.waiting = Waiting::Turn;
        }
    }
    waiting(players)
}

impl Player {
    /// Starts one, which waits for its first turn.
    fn start(
        number: usize,
        (program, request): &(&Path, Request),
        events: &Sender<(usize, Event)>,
    ) -> Result<Player> {
        let mut child = process::start(Command::new(program))?;
        let to = process::tell(&mut child.0, request)?;
        listen(number, &mut child.0, events.clone());
        Ok(Player { child, to, waiting: Waiting::Turn, said: Vec::new() })
    }

    fn give(&mut self) {
        if let Some(to) = &mut self.to {
            // If it has ended, that is heard.
            let _ = to.write_all(b"g");
        }
    }

    fn hear(&mut self, event: Event) {
        self.waiting = match event {
            Event::Up => Waiting::Turn,
            Event::Phase => Waiting::OthersToEndThePhase,
            Event::Said(said) => {
                self.said = said;
                Waiting::Nothing
            }
        };
    }
}

/// Tells all that `child` says, until it says no more.
fn listen(number: usize, child: &mut Child, events: Sender<(usize, Event)>) {
    let Some(from) = child.stdout.take() else { return };
    // It ends with the process, which closes the pipe.
    std::thread::spawn(move || {
        let mut from = std::io::BufReader::new(from);
        let mut byte = [0];
        loop {
            let event = match from.read_exact(&mut byte) {
                Ok(()) if byte == [UP] => Event::Up,
                Ok(()) if byte == [PHASE] => Event::Phase,
                Ok(()) => {
                    let mut said = byte.to_vec();
                    // What can't be read is not understood.
                    let _ = from.read_to_end(&mut said);
                    Event::Said(said)
                }
                Err(_) => Event::Said(Vec::new()),
            };
            let is_last = matches!(event, Event::Said(_));
            // Whoever asked may have given up.
            if events.send((number, event)).is_err() || is_last {
                break;
            }
        }
    });
}
