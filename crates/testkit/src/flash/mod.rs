//! Crashes of volumes of the flash layer.
//!
//! - [`Recorder`]: a device with a totally ordered log of what is done to it.
//! - [`Log`]: one of what several processes do to their devices, which are [`Logged`] then.
//! - [`Watched`]: a device in whose requests something happens.
//! - [`crash()`](crash::crash): what a power cut at some point of the log may leave.
//! - [`scenario`]: runs of small volumes, and [`history`]: what they may hold afterwards.
//! - [`explore`]: goes through all of it.

pub mod crash;
pub mod explore;
pub mod history;
mod logged;
mod medium;
mod memory;
pub(crate) mod phases;
mod recorder;
pub mod scenario;
mod shared_log;
pub mod slice;
pub mod values;
mod watched;

pub use logged::Logged;
pub use medium::{Medium, SECTOR};
pub use memory::{HeapCopy, HeapMemory};
pub use recorder::{Event, Mark, Pending, Recorder, Sweep, Witness};
pub use shared_log::Log;
pub use watched::{Request, Watched};
