//! Where everything is: the map from units of the space to units of the medium.

mod extent;

pub use extent::{Extent, LEN_MAX, PLACE_MAX, UNIT_MAX};
