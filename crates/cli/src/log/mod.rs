//! The log of a process that serves: for those who administer the machine.
//!
//! A message has a [`Kind`], a static of the program, which says how much it matters and limits how
//! often it is written; and pieces, which keep names of files out of it ([`Piece`]).
//! Whoever logs never waits: no lock is taken but by the first message that is left out of each
//! kind, and no sink blocks.

mod level;
mod limit;
mod piece;
mod sink;

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

pub(crate) use level::{Level, Unknown};
use limit::{Admission, LeftOut, Limit};
pub(crate) use piece::{Cause, Named, Piece, Place, Program};
pub(crate) use sink::Sink;

/// Messages of a kind that are written in ten seconds.
const BURST: u32 = 10;

/// A kind of message.
pub(crate) struct Kind {
    level: Level,
    name: &'static str,
    limit: Limit,
}

impl Kind {
    /// Messages of level `level`, called `name` in the journal.
    pub(crate) const fn new(level: Level, name: &'static str) -> Kind {
        Kind { level, name, limit: Limit::new(BURST) }
    }
}

/// A log.
pub(crate) struct Log {
    level: Level,
    sink: Sink,
    begin: Instant,
    /// Kinds of which messages were left out, each once.
    limited: Mutex<Vec<&'static Kind>>,
}

impl Log {
    /// A log in `sink`, of messages of `level` and those that matter more.
    pub(crate) fn new(level: Level, sink: Sink) -> Log {
        Log { level, sink, begin: Instant::now(), limited: Mutex::default() }
    }

    /// Writes the message that `pieces` make, unless there were too many of its kind.
    pub(crate) fn tell(&self, kind: &'static Kind, pieces: &[&dyn Piece]) {
        self.tell_at(kind, pieces, self.now());
    }

    /// Tells how many messages were left out. To be called every few seconds, and at the end.
    pub(crate) fn flush(&self) {
        self.flush_at(self.now());
    }

    /// Tenths of a second, far enough from 0 for a first window.
    fn now(&self) -> u32 {
        (self.begin.elapsed().as_millis() / 100) as u32 + 1_000
    }

    fn tell_at(&self, kind: &'static Kind, pieces: &[&dyn Piece], now: u32) {
        if kind.level > self.level {
            return;
        }
        match kind.limit.admit(now) {
            Admission::Written(left_out) => {
                self.tell_left_out(kind, left_out);
                let mut text = String::with_capacity(128);
                for piece in pieces {
                    piece.put(&mut text, self.level >= Level::Debug);
                }
                self.sink.write(kind.level, kind.name, &text);
            }
            Admission::LeftOut { is_first: true } => {
                let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
                if !limited.iter().any(|other| std::ptr::eq(*other, kind)) {
                    limited.push(kind);
                }
            }
            Admission::LeftOut { is_first: false } => {}
        }
    }

    fn flush_at(&self, now: u32) {
        let kinds = self.limited.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for kind in kinds {
            self.tell_left_out(kind, kind.limit.settle(now));
        }
    }

    fn tell_left_out(&self, kind: &Kind, left_out: Option<LeftOut>) {
        if let Some(LeftOut { count, seconds }) = left_out {
            let text = format!("{}: {count} more like it in {seconds} s", kind.name);
            self.sink.write(kind.level, kind.name, &text);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
