//! Where everything is: the map from units of the space to units of the medium.
//!
//! A [`Tree`] of [`Extent`]s in the volume's region: nodes of 1 KiB with 62 slots in no order.
//! Looking up takes no lock ([`Tree::find`], [`Tree::leaf`]), and units in rising order share their
//! way down ([`Cursor`]). Changes are staged in a transaction that holds the tree's lock for itself
//! ([`Tree::assign`], [`Tree::clear`], [`Tree::insert`]), in as many records as that takes, each of
//! which leaves a valid tree.

mod assign;
mod check;
mod cursor;
mod edit;
mod extent;
mod load;
mod node;
mod shape;
mod tree;

pub use check::Measure;
pub use cursor::Cursor;
pub use edit::Room;
pub use extent::{Extent, LEN_MAX, PLACE_MAX, UNIT_MAX};
pub use node::{LEVELS_MAX, Reader, SLOTS, Words};
pub use shape::STEP;
pub use tree::Tree;
