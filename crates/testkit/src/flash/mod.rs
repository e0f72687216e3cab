//! Crashes of volumes of the flash layer.
//!
//! - [`Recorder`]: a device with a totally ordered log of what is done to it.
//! - [`crash()`](crash::crash): what a power cut at some point of the log may leave.
//! - [`scenario`]: runs of small volumes, and [`history`]: what they may hold afterwards.
//! - [`explore`]: goes through all of it.

pub mod crash;
pub mod explore;
pub mod history;
mod medium;
mod memory;
mod phases;
mod recorder;
pub mod scenario;
pub mod slice;
pub mod values;

pub use medium::{Medium, SECTOR};
pub use memory::HeapMemory;
pub use recorder::{Event, Mark, Pending, Recorder, Sweep};
