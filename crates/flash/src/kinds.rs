//! What the region of a volume consists of: its kinds of objects.

use conquest_format::kind::{KINDS, Kind, KindSpec, KindTable};
use conquest_pm::Object;

const fn kind(number: u8) -> Kind {
    match Kind::new(number) {
        Some(kind) => kind,
        None => kind(0),
    }
}

/// A node of the map.
#[derive(Debug)]
pub struct Node;

impl Object for Node {
    const KIND: Kind = kind(1);
}

/// Bytes of a [`Node`].
pub const NODE: u64 = 1024;

/// Units of the space by which units of a segment are known.
#[derive(Debug)]
pub(crate) struct Names;

impl Object for Names {
    const KIND: Kind = kind(2);
}

/// Bytes of [`Names`].
pub(crate) const NAMES: u64 = 1024;

/// The table of the packets that the region keeps.
#[derive(Debug)]
pub(crate) struct Ring;

impl Object for Ring {
    const KIND: Kind = kind(3);
}

/// Bytes of a [`Ring`].
pub(crate) const RING: u64 = 4096;

/// A process that writes.
#[derive(Debug)]
pub(crate) struct Writer;

impl Object for Writer {
    const KIND: Kind = kind(4);
}

/// Bytes of a [`Writer`].
pub(crate) const WRITER: u64 = 4096;

/// Ranges that are being trimmed.
#[derive(Debug)]
pub(crate) struct Trims;

impl Object for Trims {
    const KIND: Kind = kind(8);
}

/// Bytes of [`Trims`].
pub(crate) const TRIMS: u64 = 256;

/// Numbers that tell what has happened, and what stands in roots.
#[derive(Debug)]
pub(crate) struct Counts;

impl Object for Counts {
    const KIND: Kind = kind(9);
}

/// Bytes of [`Counts`].
pub(crate) const COUNTS: u64 = 4096;

/// Checksums of a segment: an object or a run, by their size.
pub(crate) const SUMS: Kind = kind(5);
/// Bytes of packets: runs.
pub(crate) const PACKET: Kind = kind(6);
/// The table of segments: runs.
pub(crate) const SEGMENTS: Kind = kind(7);

/// What the cache has: runs.
pub(crate) const CACHED: Kind = kind(10);

/// The kinds of a region with nothing but maps.
#[must_use]
pub fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    if let Some(place) = kinds.get_mut(usize::from(Node::KIND.number())) {
        *place = KindSpec::object(NODE).unwrap_or(KindSpec::UNUSED);
    }
    kinds
}
