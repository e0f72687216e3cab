//! Memory that orders no more than the program asked for: loads of scheduled actors may return
//! older values, wherever the orderings of C11 allow it.
//!
//! Words remember every store, in the order in which the schedule made them; that is the order in
//! which everybody sees the stores to one word. Each actor has a vector clock of what happened
//! before what it does now. A load returns any store that is not older than one which happened
//! before, nor than one which a load that happened before has seen; so a release that is missing,
//! an acquire that is missing, and a missing fence show as stale values.
//!
//! What is weaker still on paper is left out: stores take effect in the order of the program, so a
//! load never sees a store that is yet to come, and an exchange always finds the newest value.
//! Sequentially consistent accesses count as acquire and release; only fences are stronger.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use crate::Rng;

/// Actors at most.
pub(crate) const ACTORS: usize = 8;

/// How many events of each actor happened before.
type Clock = [u32; ACTORS];

/// One store.
#[derive(Debug)]
struct Message {
    value: u64,
    author: usize,
    /// The store's number among its author's events.
    event: u32,
    /// What an acquire that reads it learns of.
    carries: Clock,
}

/// A load, kept while it was the last to see its message: number of the event, and the message.
#[derive(Clone, Copy, Debug)]
struct Seen {
    event: u32,
    message: usize,
}

/// The stores to one word since the start.
#[derive(Debug)]
struct Word {
    /// In modification order; the first is the value at the start, known to all.
    messages: Vec<Message>,
    /// By reader.
    seen: [Vec<Seen>; ACTORS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// What happened before.
    now: Clock,
    /// What relaxed loads have seen; an acquire fence makes it part of `now`.
    pending: Clock,
    /// What relaxed stores carry: `now` at the last release fence.
    fenced: Clock,
}

/// The orderings of one scheduled run.
#[derive(Debug)]
pub(crate) struct Weak {
    words: HashMap<u64, Word>,
    threads: [Thread; ACTORS],
    /// What the full fences up to now have published.
    fences: Clock,
    rng: Rng,
    /// Of 16 loads that may return an older value, so many do.
    stale: u64,
}

fn join(into: &mut Clock, other: &Clock) {
    for (into, other) in into.iter_mut().zip(other) {
        *into = (*into).max(*other);
    }
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

impl Word {
    fn new(start: u64) -> Word {
        let first = Message { value: start, author: 0, event: 0, carries: Clock::default() };
        Word { messages: vec![first], seen: Default::default() }
    }

    /// The oldest message that may still be read by who knows of `now`.
    fn floor(&self, now: &Clock) -> usize {
        let known = |message: &Message| now[message.author] >= message.event;
        let stored = self.messages.iter().rposition(known).unwrap_or(0);
        let seen = self.seen.iter().zip(now).filter_map(|(seen, now)| {
            let known = seen.iter().rev().find(|seen| seen.event <= *now);
            known.map(|seen| seen.message)
        });
        seen.fold(stored, usize::max)
    }
}

impl Weak {
    pub(crate) fn new(mut rng: Rng) -> Weak {
        let stale = [1, 4, 8, 14][rng.below(4) as usize];
        Weak {
            words: HashMap::new(),
            threads: Default::default(),
            fences: Clock::default(),
            rng,
            stale,
        }
    }

    /// The next event of `actor`: its number.
    fn event(&mut self, actor: usize) -> u32 {
        let thread = &mut self.threads[actor];
        thread.now[actor] += 1;
        thread.now[actor]
    }

    /// What `actor` loads from `word`, of which `newest` is the newest value.
    pub(crate) fn load(&mut self, actor: usize, word: u64, newest: u64, order: Ordering) -> u64 {
        let Some(place) = self.words.get(&word) else {
            return newest;
        };
        let last = place.messages.len() - 1;
        let floor = place.floor(&self.threads[actor].now);
        let mut chosen = last;
        if floor < last && self.rng.chance(self.stale, 16) {
            chosen = floor + self.rng.below((last - floor) as u64) as usize;
        }
        self.see(actor, word, chosen, order)
    }

    /// `actor` reads message `chosen` of `word`: its value.
    fn see(&mut self, actor: usize, word: u64, chosen: usize, order: Ordering) -> u64 {
        let event = self.event(actor);
        let Some(place) = self.words.get_mut(&word) else {
            return 0;
        };
        let seen = &mut place.seen[actor];
        if seen.last().is_none_or(|last| last.message < chosen) {
            seen.push(Seen { event, message: chosen });
        }
        let message = &place.messages[chosen];
        let thread = &mut self.threads[actor];
        join(&mut thread.pending, &message.carries);
        if acquires(order) {
            join(&mut thread.now, &message.carries);
        }
        message.value
    }

    /// `actor` stores `new` into `word`, which held `old`.
    pub(crate) fn store(&mut self, actor: usize, word: u64, old: u64, new: u64, order: Ordering) {
        self.append(actor, word, old, new, order, Clock::default());
    }

    /// `actor` replaces `old`, the newest value of `word`, by `new`, if it is one, in one step.
    pub(crate) fn exchange(
        &mut self,
        actor: usize,
        word: u64,
        old: u64,
        new: Option<u64>,
        order: Ordering,
    ) {
        let mut carried = Clock::default();
        if let Some(place) = self.words.get(&word) {
            let last = place.messages.len() - 1;
            carried = place.messages[last].carries;
            self.see(actor, word, last, order);
        }
        if let Some(new) = new {
            // Whoever reads this store also learns of what the replaced one carried.
            self.append(actor, word, old, new, order, carried);
        }
    }

    fn append(
        &mut self,
        actor: usize,
        word: u64,
        old: u64,
        new: u64,
        order: Ordering,
        mut carries: Clock,
    ) {
        let event = self.event(actor);
        let thread = &self.threads[actor];
        join(&mut carries, if releases(order) { &thread.now } else { &thread.fenced });
        let place = self.words.entry(word).or_insert_with(|| Word::new(old));
        place.messages.push(Message { value: new, author: actor, event, carries });
    }

    /// A full fence of `actor`.
    pub(crate) fn full_fence(&mut self, actor: usize) {
        self.load_fence(actor);
        let thread = &mut self.threads[actor];
        join(&mut self.fences, &thread.now);
        thread.now = self.fences;
        thread.fenced = self.fences;
    }

    /// A fence of `actor` that keeps earlier loads before what follows.
    pub(crate) fn load_fence(&mut self, actor: usize) {
        let thread = &mut self.threads[actor];
        let pending = thread.pending;
        join(&mut thread.now, &pending);
    }
}
