//! Files with several names: copied once, then linked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::pair::Pair;
use crate::tree::{Trail, Tree};

/// Tells a file from others of its tree.
type Id = (u64, u64);

/// A name that waits until its file was copied.
pub(super) struct Waiting<S: Tree, T: Tree> {
    pub(super) pair: Arc<Pair<S, T>>,
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

enum Link<S: Tree, T: Tree> {
    /// Somebody copies it.
    Copying(Vec<Waiting<S, T>>),
    /// It is there.
    Done(Trail),
}

/// What to do with a name of a file that has several.
pub(super) enum Turn {
    /// Copy the file.
    Copy,
    /// Link it to what is there.
    Link(Trail),
    /// Nothing: whoever copies it sees to this name afterwards.
    Wait,
}

struct State<S: Tree, T: Tree> {
    files: HashMap<Id, Link<S, T>>,
    /// Which file of the source a file of the target is a copy of.
    copies: HashMap<Id, Id>,
}

/// The files with several names that a job has met.
pub(super) struct Links<S: Tree, T: Tree>(Mutex<State<S, T>>);

impl<S: Tree, T: Tree> Links<S, T> {
    /// None so far.
    pub(super) fn new() -> Links<S, T> {
        Links(Mutex::new(State { files: HashMap::new(), copies: HashMap::new() }))
    }

    /// Whose turn it is: called with each name of file `id`.
    pub(super) fn turn(&self, id: Id, waiting: impl FnOnce() -> Waiting<S, T>) -> Turn {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.files.get_mut(&id) {
            None => {
                state.files.insert(id, Link::Copying(Vec::new()));
                Turn::Copy
            }
            Some(Link::Copying(others)) => {
                others.push(waiting());
                Turn::Wait
            }
            Some(Link::Done(trail)) => Turn::Link(trail.clone()),
        }
    }

    /// Whether the existing `copy` may count as one of file `id`: not if it is another one's.
    pub(super) fn claim(&self, copy: Id, id: Id) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state.copies.entry(copy).or_insert(id) == id
    }

    /// File `id` was copied to `trail`, or could not be: the names that have waited.
    pub(super) fn done(&self, id: Id, trail: Option<Trail>) -> Vec<Waiting<S, T>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = match trail {
            Some(trail) => state.files.insert(id, Link::Done(trail)),
            None => state.files.remove(&id),
        };
        match old {
            Some(Link::Copying(others)) => others,
            _ => Vec::new(),
        }
    }
}
