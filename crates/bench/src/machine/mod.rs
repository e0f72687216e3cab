//! What a reader of the figures has to know about the machine, and what happened to it meanwhile.

pub mod caches;
pub mod description;
pub mod disturbance;
pub mod group;
pub mod memory;
pub mod sweep;
pub mod work;
