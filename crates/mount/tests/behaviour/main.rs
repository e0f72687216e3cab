//! What programs meet in a store that is mounted: each test on a mount of its own, and, where the
//! two can be compared, on ext4 as well, where the same has to be found.
//!
//! Needs root, `/dev/fuse`, and loop devices with `mkfs.ext4`.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod access_lists;
mod attributes;
mod content;
mod death;
mod failure;
mod handles;
mod listings;
mod locks;
mod names;
mod namespaces;
mod others;
mod set_ids;
mod space;
mod support;
mod thresholds;
