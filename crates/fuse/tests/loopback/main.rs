//! Sessions on a socket in place of the device: the tests are the kernel.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod handshake;
mod interrupts;
mod kernel;
mod replies;
mod scripted;
#[path = "../support/mod.rs"]
mod support;
mod threads;
