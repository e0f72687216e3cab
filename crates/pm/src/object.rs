//! Typed offsets, and the one place that turns an offset into something to touch.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use conquest_format::descriptor::Descriptor;
use conquest_format::kind::Kind;
use conquest_format::{Offset, PAGE, WORD, pointer};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::{Error, Result};

/// A type of object in the region: a kind's number in this program.
pub trait Object {
    /// Its kind in the region's table.
    const KIND: Kind;
}

/// A typed, unchecked offset: what a pointer word holds. [`Core::resolve`] checks it.
pub struct Ptr<T> {
    target: Offset,
    object: PhantomData<fn() -> T>,
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}
impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}
impl<T> Eq for Ptr<T> {}
impl<T> core::fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Ptr({:?})", self.target)
    }
}

impl<T: Object> Ptr<T> {
    /// "No object".
    pub const NONE: Ptr<T> = Ptr { target: Offset::NONE, object: PhantomData };

    pub(crate) fn new(target: Offset) -> Self {
        Ptr { target, object: PhantomData }
    }

    /// The offset of the object's first byte.
    pub fn offset(self) -> Offset {
        self.target
    }

    /// Whether there is no object.
    pub fn is_none(self) -> bool {
        self.target.is_none()
    }

    /// The pointer word that names the object.
    pub fn word(self) -> u64 {
        pointer::pack(self.target, T::KIND)
    }

    /// The pointer in `word`, which was read at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if `word` is no pointer to an object of this kind.
    pub fn from_word(word: u64, at: Offset) -> Result<Self> {
        let target = pointer::unpack(word, T::KIND);
        target.map(Ptr::new).ok_or(Error::Corrupt {
            what: "pointer",
            offset: at,
            expected: "an offset with the check bits of its kind",
            found: word,
        })
    }
}

/// A checked object: its bytes are allocated to an object of its kind, as of the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    at: Offset,
    len: u64,
}

impl Place {
    pub(crate) fn new(at: Offset, len: u64) -> Self {
        Place { at, len }
    }

    /// The object's first byte.
    pub fn offset(self) -> Offset {
        self.at
    }

    /// The object's bytes.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Never: objects have bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Word number `index` of the object; none past its end.
    pub fn word(self, index: u64) -> Option<Offset> {
        (index < self.len / WORD).then(|| self.at.plus(index * WORD))
    }

    /// `len` bytes at `start` within the object; none if they pass its end.
    pub fn part(self, start: u64, len: u64) -> Option<Place> {
        let end = start.checked_add(len)?;
        (end <= self.len).then(|| Place { at: self.at.plus(start), len })
    }
}

/// Where a slab object stands in its slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlabPlace {
    /// The slab's head page.
    pub(crate) head: u64,
    /// The object's bit in the slab map.
    pub(crate) index: u64,
}

fn refuse(what: &'static str, at: Offset, expected: &'static str, found: u64) -> Error {
    Error::Corrupt { what, offset: at, expected, found }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// The descriptor of page `page`, if its bit is set.
    pub(crate) fn descriptor(&self, page: u64) -> Result<Descriptor> {
        let at = self.geometry.page(page);
        let group = page / conquest_format::GROUP_PAGES;
        let bit = page % conquest_format::GROUP_PAGES;
        let word = self.geometry.bitmap(group).plus(bit / 64 * WORD);
        // Who sees the bit sees what was stored before it was set: the descriptor, a slab's lease.
        let bits = self.memory.load(word, Ordering::Acquire);
        if group >= self.groups() || bits >> (bit % 64) & 1 == 0 {
            return Err(refuse("page", at, "an allocated page", bits));
        }
        self.described(page)
    }

    /// The descriptor of page `page`, whether its bit is set or not.
    pub(crate) fn described(&self, page: u64) -> Result<Descriptor> {
        let word = self.memory.load(self.geometry.descriptor(page), Ordering::Relaxed);
        Descriptor::unpack(word, page).ok_or(refuse(
            "page descriptor",
            self.geometry.descriptor(page),
            "a tag, a kind and matching check bits",
            word,
        ))
    }

    /// Finds the slab and the bit of the object of `kind` at `at`, allocated or not.
    pub(crate) fn slab_place(&self, at: Offset, kind: Kind) -> Result<SlabPlace> {
        let wrong = || refuse("object", at, "the start of an object of its kind", at.bytes());
        let page = self.geometry.page_of(at).ok_or_else(wrong)?;
        let (found, head) = match self.descriptor(page)? {
            Descriptor::Slab(found) => (found, page),
            Descriptor::SlabTail(found, back) => (found, page.saturating_sub(back)),
            Descriptor::Run(_) => return Err(wrong()),
        };
        if self.descriptor(head)? != Descriptor::Slab(found) || found != kind {
            return Err(wrong());
        }
        let size = u64::from(self.spec(kind).object_size);
        let within = at.bytes() - self.geometry.page(head).bytes();
        if size == 0 || !within.is_multiple_of(size) || within / size >= self.spec(kind).objects() {
            return Err(wrong());
        }
        Ok(SlabPlace { head, index: within / size })
    }

    /// Checks that `ptr` leads to an allocated object of its kind, before it is followed
    /// (Conquest 2002, 3.5).
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it does not.
    pub fn resolve<T: Object>(&self, ptr: Ptr<T>) -> Result<Place> {
        self.resolve_kind(ptr.offset(), T::KIND)
    }

    /// [`Self::resolve`] for a kind known at run time.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no object of `kind` is allocated at `at`.
    pub fn resolve_kind(&self, at: Offset, kind: Kind) -> Result<Place> {
        let place = self.slab_place(at, kind)?;
        let map = self.memory.load(self.geometry.slab_map(place.head), Ordering::Relaxed);
        if map >> place.index & 1 == 0 {
            return Err(refuse("object", at, "an allocated object", map));
        }
        Ok(Place::new(at, u64::from(self.spec(kind).object_size)))
    }

    /// Checks that `pages` pages at `at` belong to runs of `kind`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one of them does not.
    pub fn resolve_run(&self, at: Offset, pages: u64, kind: Kind) -> Result<Place> {
        let wrong = || refuse("page run", at, "pages of a run of its kind", at.bytes());
        let first = self.geometry.page_of(at).ok_or_else(wrong)?;
        let end = first.checked_add(pages).ok_or_else(wrong)?;
        if pages == 0 || !at.is_aligned(PAGE) || end > self.groups() * conquest_format::GROUP_PAGES
        {
            return Err(wrong());
        }
        for page in first..end {
            if self.descriptor(page)? != Descriptor::Run(kind) {
                return Err(wrong());
            }
        }
        Ok(Place::new(at, pages * PAGE))
    }
}
