//! A sparse space of 2^64 blocks on files and block devices, that a power cut can't hurt.
//!
//! Writing allocates, trimming gives back, what was never written reads as zeros; several writes
//! can be one that happens as a whole (DFS 3.2). Any process that may open the devices works on
//! them directly, several at once, and any of them may die at any instruction. `docs/FLASH.md` says
//! how.

#![forbid(unsafe_code)]

pub mod device;
pub mod kinds;
pub mod map;
