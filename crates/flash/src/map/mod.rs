//! Where everything is: the map from units of the space to units of the medium.

mod assign;
mod check;
mod edit;
mod extent;
mod node;
mod shape;
mod tree;

pub use check::Measure;
pub use edit::Room;
pub use extent::{Extent, LEN_MAX, PLACE_MAX, UNIT_MAX};
pub use node::{LEVELS_MAX, Reader, SLOTS, Words};
pub use shape::STEP;
pub use tree::Tree;
