//! The crash model of `conquest_pm::memory`: which values a word may hold after a power failure.
//!
//! Fed with events in order, [`InFlight`] knows of every word stored its value at its last durable
//! point and the values since. A write-back covers the stores before it; the next fence of the same
//! actor moves the durable point of the line's words there, never back. Nothing else does.

use std::collections::{BTreeMap, HashMap};

use conquest_format::{LINE, WORD};

use crate::{Event, Kind};

const LINE_WORDS: u64 = LINE / WORD;

/// A word and its value.
pub(crate) type Patch = (u64, u64);

/// The words that may hold several values.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// Events so far; stamps stores and write-backs.
    time: u64,
    words: BTreeMap<u64, Word>,
    /// Per actor: lines written back since its last fence, and when.
    pending: HashMap<u32, Vec<(u64, u64)>>,
    volatile: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug)]
struct Word {
    /// What the image held when the first event came.
    base: u64,
    durable: u64,
    /// Values stored since the durable point, with the time.
    since: Vec<(u64, u64)>,
}

impl Word {
    fn latest(&self) -> u64 {
        self.since.last().map_or(self.durable, |&(_, value)| value)
    }
}

/// A word in flight with the values it may hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// The word's number.
    pub word: u64,
    /// What the image held at the start.
    pub base: u64,
    /// At least two different values; the first is the durable one.
    pub values: Vec<u64>,
    /// Which of them was stored last.
    pub latest: usize,
}

impl InFlight {
    /// Takes in the next event.
    pub fn apply(&mut self, event: &Event) {
        self.time += 1;
        match event.kind {
            Kind::Put { word, old, new } => {
                let time = self.time;
                let entry = self.words.entry(word).or_insert_with(|| Word {
                    base: old,
                    durable: old,
                    since: Vec::new(),
                });
                entry.since.push((time, new));
            }
            Kind::Store { word, new, .. } => {
                self.volatile.insert(word, new);
            }
            Kind::WriteBack { line } => {
                self.pending.entry(event.actor).or_default().push((line, self.time));
            }
            Kind::Fence => {
                for (line, time) in self.pending.remove(&event.actor).unwrap_or_default() {
                    let first = line * LINE_WORDS;
                    for (_, word) in self.words.range_mut(first..first + LINE_WORDS) {
                        let covered = word.since.partition_point(|&(at, _)| at < time);
                        if let Some((_, value)) = word.since.drain(..covered).next_back() {
                            word.durable = value;
                        }
                    }
                }
            }
            Kind::Mark(_) => {}
        }
    }

    /// Whether a fence of `actor` would make anything durable.
    #[must_use]
    pub fn would_settle(&self, actor: u32) -> bool {
        self.pending.get(&actor).is_some_and(|lines| !lines.is_empty())
    }

    /// The words with more than one possible value, in order.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidates> {
        let mut all = Vec::new();
        for (&number, word) in &self.words {
            if word.since.is_empty() {
                continue;
            }
            let mut values = vec![word.durable];
            for &(_, value) in &word.since {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            if values.len() > 1 {
                let latest = values.iter().position(|&v| v == word.latest()).unwrap_or(0);
                all.push(Candidates { word: number, base: word.base, values, latest });
            }
        }
        all
    }

    /// The words whose only possible value is known, with base and value.
    pub(crate) fn settled(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let single = |word: &Word| word.since.iter().all(|&(_, value)| value == word.durable);
        self.words
            .iter()
            .filter(move |(_, word)| single(word))
            .map(|(&number, word)| (number, word.base, word.durable))
    }

    /// Forgets the words that have nothing in flight and returns their values.
    pub(crate) fn drain_settled(&mut self) -> Vec<Patch> {
        let mut settled = Vec::new();
        self.words.retain(|&number, word| {
            if word.since.is_empty() {
                settled.push((number, word.durable));
            }
            !word.since.is_empty()
        });
        settled
    }

    /// Forgets the volatile words stored and returns their values.
    pub(crate) fn drain_volatile(&mut self) -> Vec<Patch> {
        std::mem::take(&mut self.volatile).into_iter().collect()
    }

    /// The value each persistent word holds in memory, with its base.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.words.iter().map(|(&number, word)| (number, word.base, word.latest()))
    }

    /// The volatile words stored.
    pub(crate) fn volatile(&self) -> impl Iterator<Item = Patch> + '_ {
        self.volatile.iter().map(|(&word, &value)| (word, value))
    }

    /// All actors died: what they wrote back without a fence stays uncertain.
    pub(crate) fn bury(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(actor: u32, word: u64, old: u64, new: u64) -> Event {
        Event { actor, kind: Kind::Put { word, old, new } }
    }

    fn values(events: &[Event]) -> Vec<(u64, Vec<u64>)> {
        let mut inflight = InFlight::default();
        events.iter().for_each(|event| inflight.apply(event));
        inflight.candidates().into_iter().map(|c| (c.word, c.values)).collect()
    }

    const BACK: Event = Event { actor: 0, kind: Kind::WriteBack { line: 0 } };
    const FENCE: Event = Event { actor: 0, kind: Kind::Fence };

    #[test]
    fn a_store_after_the_write_back_stays_in_flight() {
        let events = [put(0, 3, 1, 2), BACK, put(0, 3, 2, 5), FENCE];
        assert_eq!(values(&events), [(3, vec![2, 5])]);
        assert_eq!(values(&events[..3]), [(3, vec![1, 2, 5])]);
        let events = [put(0, 3, 1, 2), put(0, 3, 2, 5), BACK, FENCE];
        assert_eq!(values(&events), []);
    }

    #[test]
    fn only_the_fence_of_who_wrote_back_counts() {
        let fence = |actor| Event { actor, kind: Kind::Fence };
        let events = [put(0, 3, 1, 2), BACK, fence(1)];
        assert_eq!(values(&events), [(3, vec![1, 2])]);
        let events = [put(1, 3, 1, 2), BACK, fence(0)];
        assert_eq!(values(&events), [], "anybody's store counts");
    }

    #[test]
    fn an_old_fence_never_moves_the_durable_point_back() {
        let back = |actor| Event { actor, kind: Kind::WriteBack { line: 0 } };
        let fence = |actor| Event { actor, kind: Kind::Fence };
        let mut events =
            vec![put(0, 3, 1, 2), back(0), put(0, 3, 2, 5), back(1), fence(1), fence(0)];
        assert_eq!(values(&events), []);
        events.push(put(0, 3, 5, 6));
        events.push(fence(0));
        assert_eq!(values(&events), [(3, vec![5, 6])]);
    }

    #[test]
    fn a_value_that_came_back_counts_once() {
        let events = [put(0, 3, 1, 2), put(0, 3, 2, 1), put(0, 4, 7, 7)];
        let mut inflight = InFlight::default();
        events.iter().for_each(|event| inflight.apply(event));
        let all = inflight.candidates();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].values.as_slice(), all[0].latest), ([1, 2].as_slice(), 0));
    }
}
