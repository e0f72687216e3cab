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

/// The kinds of a volume's region.
#[must_use]
pub fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    let specs = [(Node::KIND, KindSpec::object(NODE))];
    for (kind, spec) in specs {
        if let Some(place) = kinds.get_mut(usize::from(kind.number())) {
            *place = spec.unwrap_or(KindSpec::UNUSED);
        }
    }
    kinds
}
