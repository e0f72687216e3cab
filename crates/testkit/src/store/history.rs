//! What actors have done, and what a power cut may leave of it.
//!
//! Each actor has files of its own, so each knows what they were after each of its operations. What
//! is found must be, for each, what they were after some of them, or in the middle of the next one
//! if that takes several records; all that was committed before a sync began which has returned;
//! and all together must be the first ones in one order: whatever had returned before an operation
//! began that is there is there, too, whoever did it.
//!
//! Of a large file, a page may be newer than that: as a later operation has made it which was
//! begun, unless the page was cut off in between, or the file was removed.
//!
//! A core that needs no log stays as it was: then all that has returned is there. But a page that
//! was written in place may be older: as it was before, or in between, since it was synced.

use std::collections::HashMap;
use std::sync::Arc;

use super::tree::{File, Instead, P, Tree, compare, has_page};
use crate::flash::{Event, Mark};

/// Behind the end of every log.
const NEVER: usize = usize::MAX;

/// An operation that an actor has done, and what its files were then.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number.
    pub number: u32,
    /// The files behind it.
    pub tree: Arc<Tree>,
    /// Whether it has made all durable that was committed before it.
    pub is_sync: bool,
    /// Whether it may have written in place ([`super::operation::Op::is_quiet`]).
    pub is_quiet: bool,
}

/// When something was done: events of the log before the remark that it was begun, and before that
/// it has returned.
#[derive(Clone, Copy)]
struct When {
    begun: usize,
    done: usize,
}

/// What all have done.
pub struct History {
    actors: Vec<Actor>,
    /// Syncs.
    syncs: Vec<When>,
    /// Events before the one that says that the store is attached.
    started: usize,
    /// Whether the core stays when the power goes.
    core_stays: bool,
}

struct Actor {
    /// The files before the first operation, and behind each.
    states: Vec<Arc<Tree>>,
    /// When each operation was done.
    when: Vec<When>,
    /// Whether each may have written in place.
    quiet: Vec<bool>,
}

/// A state of an actor's files: behind so many operations, and maybe in the middle of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    done: usize,
    is_between: bool,
}

impl Place {
    /// Operations of which there is something.
    const fn reached(self) -> usize {
        self.done + self.is_between as usize
    }
}

impl History {
    /// Of actors that had `initial` files and have done `steps`, each, as `log` tells; of a store
    /// whose core is gone with the power, or `core_stays`.
    #[must_use]
    pub fn new(
        initial: Vec<Tree>,
        steps: Vec<Vec<Step>>,
        log: &[Event],
        core_stays: bool,
    ) -> History {
        let mut times: HashMap<u32, When> = HashMap::new();
        let mut started = 0;
        for (at, event) in log.iter().enumerate() {
            match event {
                Event::Mark(Mark::Begun(number)) => {
                    times.insert(*number, When { begun: at, done: NEVER });
                }
                Event::Mark(Mark::Done(number)) => {
                    if let Some(when) = times.get_mut(number) {
                        when.done = at;
                    }
                }
                Event::Mark(Mark::Recovered) => started = at,
                _ => {}
            }
        }
        let when = |step: &Step| {
            times.get(&step.number).copied().unwrap_or(When { begun: NEVER, done: NEVER })
        };
        let all = steps.iter().flatten();
        let syncs = all.filter(|step| step.is_sync).map(when).collect();
        let actor = |(initial, steps): (Tree, &Vec<Step>)| Actor {
            states: core::iter::once(Arc::new(initial))
                .chain(steps.iter().map(|step| Arc::clone(&step.tree)))
                .collect(),
            when: steps.iter().map(when).collect(),
            quiet: steps.iter().map(|step| step.is_quiet).collect(),
        };
        let actors = initial.into_iter().zip(&steps).map(actor).collect();
        History { actors, syncs, started, core_stays }
    }

    /// Events before the store was attached.
    #[must_use]
    pub const fn started(&self) -> usize {
        self.started
    }

    /// Whether the event at `at` says that a sync has returned.
    #[must_use]
    pub fn promises(&self, at: usize) -> bool {
        self.syncs.iter().any(|sync| sync.done == at)
    }

    /// Whether `found`, which a cut behind `at` events has left, is what it may be.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub fn judge(&self, at: usize, found: &[Tree]) -> Result<(), String> {
        let mut places = Vec::new();
        for (number, (actor, tree)) in self.actors.iter().zip(found).enumerate() {
            let there = self.places(actor, at, tree);
            places.push(there.map_err(|what| format!("actor {number}: {what}"))?);
        }
        // The latest of each; an earlier one, if it needs what another one has lost.
        while let Some((one, other)) = self.unmet(&places) {
            let Some(left) = places.get_mut(one).filter(|left| left.len() > 1) else {
                return Err(format!(
                    "actor {one} has what came after an operation of actor {other} that is lost"
                ));
            };
            left.remove(0);
        }
        Ok(())
    }

    /// Of two actors the first one has an operation that began when one of the second had returned
    /// which is lost.
    fn unmet(&self, places: &[Vec<Place>]) -> Option<(usize, usize)> {
        let latest = |places: &[Vec<Place>], actor: usize| places.get(actor)?.first().copied();
        for (one, actor) in self.actors.iter().enumerate() {
            let reached = latest(places, one).map_or(0, Place::reached);
            let last = reached.checked_sub(1).and_then(|index| actor.when.get(index));
            let Some(begun) = last.map(|when| when.begun) else { continue };
            for (other, actor) in self.actors.iter().enumerate() {
                let needed = actor.when.iter().take_while(|when| when.done < begun).count();
                let there = latest(places, other).map_or(0, |place| place.done);
                if needed > there {
                    return Some((one, other));
                }
            }
        }
        None
    }

    /// Where `found` may be in the row of the states of `actor`, the latest place first.
    fn places(&self, actor: &Actor, at: usize, found: &Tree) -> Result<Vec<Place>, String> {
        let synced = self.syncs.iter().filter(|sync| sync.done < at).map(|sync| sync.begun).max();
        let is_durable = |when: &&When| synced.is_some_and(|synced| when.done < synced);
        let settled = actor.when.iter().take_while(is_durable).count();
        let least = match self.core_stays {
            true => actor.when.iter().take_while(|when| when.done < at).count(),
            false => settled,
        };
        let most = actor.when.iter().take_while(|when| when.begun < at).count();
        let mut places = Vec::new();
        let mut first = None;
        for done in (least..=most).rev() {
            let Some(state) = actor.states.get(done) else { continue };
            let instead = |file: u64, page: u64, found: &File, len: usize| match self.core_stays {
                true => actor.is_older((settled, done), file, page, (found, len)),
                false => actor.is_newer((done, most), file, page, (found, len)),
            };
            let instead: Instead<'_> = &instead;
            if let Some(next) = actor.states.get(done + 1).filter(|_| done < most)
                && compare(found, state, next, instead).is_ok()
                && compare(found, next, next, instead).is_err()
                && compare(found, state, state, instead).is_err()
            {
                places.push(Place { done, is_between: true });
            }
            match compare(found, state, state, instead) {
                Ok(()) => places.push(Place { done, is_between: false }),
                Err(what) => _ = first.get_or_insert(what),
            }
        }
        match (places.is_empty(), first) {
            (true, what) => Err(format!(
                "its files are as after none of its operations {least} to {most}; the last: {}",
                what.unwrap_or_default()
            )),
            (false, _) => Ok(places),
        }
    }
}

impl Actor {
    /// Whether page `page` of `file` is as an operation has made it that came behind state `done`,
    /// and was begun, as there are `most`; and as far as `len` bytes go.
    fn is_newer(
        &self,
        (done, most): (usize, usize),
        file: u64,
        page: u64,
        (found, len): (&File, usize),
    ) -> bool {
        let later = self.states.iter().take(most + 1).skip(done + 1);
        for state in later {
            let Some(file) = state.files.get(&file) else {
                return false;
            };
            if has_page(found, page, file, len) {
                return true;
            }
            if file.size <= page * P {
                return false;
            }
        }
        false
    }

    /// Whether page `page` of `file`, which is in its place behind `done` operations, of which the
    /// first `settled` are durable, is as it was before one that wrote in place, as far as `len`
    /// bytes go.
    fn is_older(
        &self,
        (settled, done): (usize, usize),
        file: u64,
        page: u64,
        (found, len): (&File, usize),
    ) -> bool {
        let mut states = self.states.iter().take(done + 1).skip(settled).rev();
        let Some(mut now) = states.next().and_then(|state| state.files.get(&file)) else {
            return false;
        };
        // Of each operation, the last one first: what the page was before it.
        let quiet = self.quiet.iter().take(done).rev();
        for (before, is_quiet) in states.zip(quiet) {
            let Some(before) = before.files.get(&file) else {
                return false;
            };
            if before.size <= page * P {
                return false;
            }
            if !has_page(now, page, before, P as usize) {
                if !is_quiet {
                    return false;
                }
                if has_page(found, page, before, len) {
                    return true;
                }
            }
            now = before;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tree::content;
    use super::*;

    /// A large file, each page of which is as the operation with this number has written it.
    fn tree(pages: [u32; 2]) -> Tree {
        let mut file = File { is_large: true, ..File::default() };
        for (page, op) in (0..).zip(pages) {
            file.write(page * P, &content(op, page * P..(page + 1) * P));
        }
        Tree {
            names: BTreeMap::from([("a0".to_owned(), 3)]),
            files: BTreeMap::from([(3, Arc::new(file))]),
        }
    }

    /// Operations that have left these pages, of which some have written in place, or are syncs.
    fn history(core_stays: bool, steps: &[([u32; 2], bool, bool)]) -> (History, usize) {
        let mut log = Vec::new();
        let step = |(number, &(pages, is_quiet, is_sync)): (u32, &([u32; 2], bool, bool))| {
            log.extend([Event::Mark(Mark::Begun(number)), Event::Mark(Mark::Done(number))]);
            Step { number, tree: Arc::new(tree(pages)), is_sync, is_quiet }
        };
        let steps = (1..).zip(steps).map(step).collect();
        (History::new(vec![tree([90, 91])], vec![steps], &log, core_stays), log.len())
    }

    #[test]
    fn what_was_written_in_place_and_not_synced_may_be_older() {
        let steps = [
            ([1, 91], true, false),
            ([1, 91], false, true),
            ([3, 91], true, false),
            ([4, 91], true, false),
            ([4, 5], false, false),
        ];
        let (history, end) = history(true, &steps);
        for page in [1, 3, 4] {
            assert_eq!(history.judge(end, &[tree([page, 5])]), Ok(()));
        }
        // It was synced; it was not written in place; it was never there.
        for pages in [[90, 5], [4, 91], [5, 5]] {
            assert!(history.judge(end, &[tree(pages)]).is_err(), "{pages:?}");
        }
        // While the last one is under way, and before it.
        assert_eq!(history.judge(end - 1, &[tree([3, 91])]), Ok(()));
        assert_eq!(history.judge(end - 1, &[tree([3, 5])]), Ok(()));
        assert!(history.judge(end - 2, &[tree([3, 5])]).is_err());
    }

    #[test]
    fn what_was_not_synced_is_gone_with_the_core_as_a_whole() {
        let steps = [([1, 91], false, false), ([1, 91], false, true), ([1, 3], false, false)];
        let (history, end) = history(false, &steps);
        assert_eq!(history.judge(end, &[tree([1, 91])]), Ok(()));
        assert_eq!(history.judge(end, &[tree([1, 3])]), Ok(()));
        assert!(history.judge(end, &[tree([90, 91])]).is_err());
    }
}
