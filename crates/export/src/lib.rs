//! The space of a volume as one sparse file, for programs that know nothing of volumes: loop
//! devices with other file systems on them, machines in machines, and tools for disk images.
//!
//! It translates requests of the kernel to operations of the flash layer, and nothing more: it
//! keeps no bytes. `docs/FLASH.md` says what the file can do.
//!
//! Invariants:
//! - the file is as long as it was when the mount was made, and nothing else has a name there;
//! - reads, and writes of whole blocks, do not wait for each other here;
//! - what was flushed through the file is durable, because nothing is kept between the kernel and
//!   the volume: no page cache, and no buffer here.

mod server;
mod space;
mod stat;

pub use server::{Options, Reporter, Server};
pub use space::{SIZE_MAX, Space, Volume};
/// The name of the file.
pub use stat::NAME;
