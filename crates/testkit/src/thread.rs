//! Who the calling thread is, for memories and hosts that several threads share.

use std::cell::Cell;

thread_local! {
    static ACTOR: Cell<u32> = const { Cell::new(0) };
}

/// Makes the calling thread actor `actor`, until it becomes another one. Threads start as actor 0.
pub fn become_actor(actor: u32) {
    ACTOR.with(|cell| cell.set(actor));
}

/// The actor that the calling thread is.
#[must_use]
pub fn current_actor() -> u32 {
    ACTOR.with(Cell::get)
}
