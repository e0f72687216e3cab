//! The page descriptor: what a page is.
//!
//! One word a page, in a table of its own, so that an offset's type is checked without touching the
//! object (Conquest 2002, 3.5). A descriptor means something only while the page's bit in its
//! group's bitmap is set.
//!
//! | bits | field |
//! | --- | --- |
//! | 0..8 | tag |
//! | 8..16 | kind |
//! | 16..48 | argument: pages back to the slab's head (slab tail); otherwise 0 |
//! | 48..64 | [`check16`] of bits 0..48 at the page's number |

use crate::check16;
use crate::kind::Kind;

/// Tag of a page of a run.
pub const TAG_RUN: u64 = 1;
/// Tag of a slab's first page.
pub const TAG_SLAB: u64 = 2;
/// Tag of a slab's other pages.
pub const TAG_SLAB_TAIL: u64 = 3;

/// What an allocated page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptor {
    /// A page of a run of `Kind`.
    Run(Kind),
    /// The first page of a slab of `Kind`.
    Slab(Kind),
    /// A later page of a slab of `Kind`, so many pages after its head.
    SlabTail(Kind, u64),
}

impl Descriptor {
    /// The word for page number `page`.
    #[must_use]
    pub const fn pack(self, page: u64) -> u64 {
        let (tag, kind, argument) = match self {
            Descriptor::Run(kind) => (TAG_RUN, kind, 0),
            Descriptor::Slab(kind) => (TAG_SLAB, kind, 0),
            Descriptor::SlabTail(kind, back) => (TAG_SLAB_TAIL, kind, back & 0xFFFF_FFFF),
        };
        let payload = tag | (kind.number() as u64) << 8 | argument << 16;
        payload | (check16(payload, page) as u64) << 48
    }

    /// The kind of what is on the page.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Descriptor::Run(kind) | Descriptor::Slab(kind) | Descriptor::SlabTail(kind, _) => kind,
        }
    }

    /// The descriptor of page number `page`, if `word` is one.
    #[must_use]
    pub const fn unpack(word: u64, page: u64) -> Option<Descriptor> {
        let payload = word & 0xFFFF_FFFF_FFFF;
        if (word >> 48) as u16 != check16(payload, page) {
            return None;
        }
        let Some(kind) = Kind::new((payload >> 8) as u8) else {
            return None;
        };
        match (payload & 0xFF, payload >> 16) {
            (TAG_RUN, 0) => Some(Descriptor::Run(kind)),
            (TAG_SLAB, 0) => Some(Descriptor::Slab(kind)),
            (TAG_SLAB_TAIL, back) if back != 0 && back < crate::kind::SLAB_PAGES => {
                Some(Descriptor::SlabTail(kind, back))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_unpacks_at_its_own_page_only() {
        let kind = Kind::new(7).unwrap();
        for d in [Descriptor::Run(kind), Descriptor::Slab(kind), Descriptor::SlabTail(kind, 3)] {
            assert_eq!(Descriptor::unpack(d.pack(99), 99), Some(d));
            assert_eq!(Descriptor::unpack(d.pack(99), 100), None);
            for bit in 0..64 {
                assert_ne!(Descriptor::unpack(d.pack(99) ^ 1 << bit, 99), Some(d));
            }
        }
        assert_eq!(Descriptor::unpack(0, 0), None);
    }
}
