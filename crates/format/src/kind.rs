//! Object kinds: the types of typed memory (Conquest 2002, 3.5).
//!
//! A region carries the table of the kinds it may hold, in its superblock, so that a tool can read
//! any region without knowing the program that made it. A slab belongs to one kind; so does a page
//! run.

use crate::PAGE;

/// Kinds in a region's table.
pub const KINDS: usize = 64;
/// Objects in one slab: one bit each in the slab map word.
pub const SLAB_OBJECTS: u64 = 64;
/// Pages in one slab.
pub const SLAB_PAGES: u64 = 7;
/// Bytes in the smallest object; object sizes are multiples of it.
pub const OBJECT_ALIGN: u64 = 64;

/// A kind's number: its place in the region's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Kind(u8);

impl Kind {
    /// The kind numbered `number`, which is below [`KINDS`]; otherwise none.
    #[must_use]
    pub const fn new(number: u8) -> Option<Kind> {
        if (number as usize) < KINDS { Some(Kind(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// What a kind looks like in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindSpec {
    /// Bytes of one object; 0 for a kind of page runs.
    pub object_size: u16,
    /// Pages of one slab, 1 to [`SLAB_PAGES`]; 0 for an unused entry.
    pub slab_pages: u8,
}

impl KindSpec {
    /// An unused entry.
    pub const UNUSED: KindSpec = KindSpec { object_size: 0, slab_pages: 0 };
    /// A kind of page runs.
    pub const RUN: KindSpec = KindSpec { object_size: 0, slab_pages: 1 };

    /// The kind of slab objects of at least `bytes`, 1 to 4096, with the slab length that wastes
    /// least; none for other sizes.
    #[must_use]
    pub const fn object(bytes: u64) -> Option<KindSpec> {
        if bytes == 0 || bytes > PAGE {
            return None;
        }
        let size = bytes.div_ceil(OBJECT_ALIGN) * OBJECT_ALIGN;
        let mut best = 1;
        let mut best_waste = u64::MAX;
        let mut pages = 1;
        while pages <= SLAB_PAGES {
            let used = objects_in(size, pages) * size;
            // Waste per page, scaled to compare slabs of different lengths in integers.
            let waste = (pages * PAGE - used) * 420 / pages;
            if waste < best_waste {
                best_waste = waste;
                best = pages;
            }
            pages += 1;
        }
        Some(KindSpec { object_size: size as u16, slab_pages: best as u8 })
    }

    /// Whether this is a kind of slab objects.
    #[must_use]
    pub const fn is_object(self) -> bool {
        self.object_size != 0
    }

    /// Objects in one slab of this kind; 0 for a kind of page runs.
    #[must_use]
    pub const fn objects(self) -> u64 {
        if self.object_size == 0 {
            0
        } else {
            objects_in(self.object_size as u64, self.slab_pages as u64)
        }
    }

    /// Whether a table read from a region may hold this entry.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let size = self.object_size as u64;
        let pages = self.slab_pages as u64;
        if size == 0 {
            return pages <= 1;
        }
        size.is_multiple_of(OBJECT_ALIGN) && pages >= 1 && pages <= SLAB_PAGES && size <= PAGE
    }
}

const fn objects_in(size: u64, pages: u64) -> u64 {
    let fit = pages * PAGE / size;
    if fit < SLAB_OBJECTS { fit } else { SLAB_OBJECTS }
}

/// A region's table of kinds.
pub type KindTable = [KindSpec; KINDS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_class_wastes_at_most_an_eighth() {
        for bytes in 1..=PAGE {
            let spec = KindSpec::object(bytes).unwrap();
            assert!(spec.is_valid());
            let room = u64::from(spec.slab_pages) * PAGE;
            let used = spec.objects() * u64::from(spec.object_size);
            assert!(used <= room);
            assert!((room - used) * 8 <= room, "{bytes}: {used} of {room}");
        }
        assert_eq!(KindSpec::object(0), None);
        assert_eq!(KindSpec::object(PAGE + 1), None);
    }
}
