//! What explorers of power cuts have in common: which cuts, how many, and the program.

mod program;
mod tally;
mod way;

pub use program::{Program, Replay, main};
pub use tally::Tally;
pub use way::{Cut, Way};

pub(crate) use tally::FAILURES;
