//! A persistent memory region that many processes share and any of them may die in.
pub mod error;
pub mod host;
pub mod media;
pub mod memory;
pub mod persist;
pub use error::{Error, Result};
