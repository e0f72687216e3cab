//! What is allocated: pages by bitmaps and descriptors, objects by slab maps; and what of it has
//! been reached.
//!
//! Whatever leads to a page of a run, or to an object that has one owner, reaches it. That succeeds
//! once, and only for what is allocated and of the kind that is expected. Nothing is followed that
//! could not be reached, so every page and object is followed once at most, whatever the damage.

use conquest_format::descriptor::Descriptor;
use conquest_format::kind::{Kind, KindSpec, KindTable, SLAB_PAGES};
use conquest_format::{GROUP_PAGES, Geometry, Offset, PAGE, WORD};

use crate::overlay::Overlay;
use crate::report::{Counts, Findings, Hex};
use crate::{Code, View};

/// Words in a group's bitmap.
const GROUP_WORDS: u64 = GROUP_PAGES / 64;
/// No slab.
const NONE: u32 = u32::MAX;
/// A page of a run, in [`Space::runs`]: its kind is in the low six bits.
const RUN: u8 = 0x80;

/// A slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slab {
    /// Number of its first page.
    pub(crate) head: u64,
    /// Kind of its objects.
    pub(crate) kind: Kind,
    /// Objects allocated, without any past its last one.
    pub(crate) map: u64,
    /// Objects that have been reached.
    reached: u64,
    /// How many inodes stand in the slabs before it.
    pub(crate) inodes: usize,
}

/// Why what a pointer word leads to can't be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wild {
    /// There can't be such an object.
    Place,
    /// It is not allocated.
    Free,
    /// Something else is there.
    Kind,
    /// It is somebody else's.
    Shared,
}

/// The heap's pages.
pub(crate) struct Space {
    geometry: Geometry,
    kinds: KindTable,
    pages: u64,
    /// A bit for each page: allocated.
    allocated: Vec<u64>,
    /// A bit for each page: reached, as a page of a run.
    reached: Vec<u64>,
    /// For each page its kind with [`RUN`], or 0.
    runs: Vec<u8>,
    /// For each page the number of the slab it belongs to, or [`NONE`].
    slab_of: Vec<u32>,
    /// All slabs, in the order of their pages.
    pub(crate) slabs: Vec<Slab>,
}

fn bit(bits: &[u64], page: u64) -> bool {
    bits.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
}

fn set(bits: &mut [u64], page: u64) {
    if let Some(word) = bits.get_mut((page / 64) as usize) {
        *word |= 1 << (page % 64);
    }
}

impl Space {
    /// The heap of `groups` groups, all of it free: [`Self::load`] reads what is allocated.
    pub(crate) fn new(geometry: &Geometry, kinds: &KindTable, groups: u64) -> Space {
        let pages = groups * GROUP_PAGES;
        Space {
            geometry: geometry.clone(),
            kinds: *kinds,
            pages,
            allocated: vec![0; (pages / 64) as usize],
            reached: vec![0; (pages / 64) as usize],
            runs: vec![0; pages as usize],
            slab_of: vec![NONE; pages as usize],
            slabs: Vec::new(),
        }
    }

    /// Groups.
    pub(crate) const fn groups(&self) -> u64 {
        self.pages / GROUP_PAGES
    }

    /// Reads and checks bitmaps, descriptors and slab maps, telling `progress` of each group.
    pub(crate) fn load<V: View + ?Sized>(
        &mut self,
        bytes: &Overlay<'_, V>,
        findings: &mut Findings,
        progress: &impl Fn(u64, u64),
    ) {
        for group in 0..self.groups() {
            progress(group, self.groups());
            self.load_bitmap(bytes, group);
        }
        for index in 0..self.allocated.len() {
            let mut left = self.allocated.get(index).copied().unwrap_or(0);
            while left != 0 {
                let page = index as u64 * 64 + u64::from(left.trailing_zeros());
                left &= left - 1;
                self.load_page(bytes, page, findings);
            }
        }
        self.check_tails(bytes, findings);
    }

    fn load_bitmap<V: View + ?Sized>(&mut self, bytes: &Overlay<'_, V>, group: u64) {
        for word in 0..GROUP_WORDS {
            let at = self.geometry.bitmap(group).plus(word * WORD);
            if let Some(to) = self.allocated.get_mut((group * GROUP_WORDS + word) as usize) {
                *to = bytes.load(at);
            }
        }
    }

    /// Reads what the allocated page `page` is.
    fn load_page<V: View + ?Sized>(
        &mut self,
        bytes: &Overlay<'_, V>,
        page: u64,
        findings: &mut Findings,
    ) {
        let at = self.geometry.descriptor(page);
        let word = bytes.load(at);
        let Some(descriptor) = Descriptor::unpack(word, page) else {
            let expected = format_args!("a descriptor of page {page}");
            return findings.add(Code::PageDescriptor, 0, at, expected, Hex(word));
        };
        let (Descriptor::Run(kind) | Descriptor::Slab(kind) | Descriptor::SlabTail(kind, _)) =
            descriptor;
        let is_run = matches!(descriptor, Descriptor::Run(_));
        let spec = self.spec(kind);
        if spec == KindSpec::UNUSED || spec.is_object() == is_run {
            let expected = "a kind that has such pages";
            return findings.add(Code::PageKind, 0, at, expected, kind.number());
        }
        if is_run {
            if let Some(run) = self.runs.get_mut(page as usize) {
                *run = RUN | kind.number();
            }
        } else if matches!(descriptor, Descriptor::Slab(_)) {
            self.load_slab(bytes, page, kind, findings);
        }
    }

    /// Reads the slab whose first page is `head`. Its other pages are its own if their descriptors
    /// say so, or nothing that can be understood.
    fn load_slab<V: View + ?Sized>(
        &mut self,
        bytes: &Overlay<'_, V>,
        head: u64,
        kind: Kind,
        findings: &mut Findings,
    ) {
        let spec = self.spec(kind);
        for back in 0..u64::from(spec.slab_pages) {
            let page = head + back;
            let at = self.geometry.descriptor(page);
            let word = if page < self.pages { bytes.load(at) } else { 0 };
            let found = Descriptor::unpack(word, page);
            let is_tail = found == Some(Descriptor::SlabTail(kind, back));
            if back > 0 && !(is_tail && self.is_allocated(page)) {
                let expected = format_args!("page {back} of the slab of page {head}");
                findings.add(Code::SlabPages, 0, at, expected, Hex(word));
            }
            if (back == 0 || is_tail || found.is_none())
                && let Some(slab) = self.slab_of.get_mut(page as usize)
            {
                *slab = self.slabs.len() as u32;
            }
        }
        let at = self.geometry.slab_map(head);
        let map = bytes.load(at);
        let possible = 1_u64.checked_shl(spec.objects() as u32).map_or(u64::MAX, |next| next - 1);
        if map & !possible != 0 {
            let expected = format_args!("bits of {possible:#x}");
            findings.add(Code::SlabMap, 0, at, expected, Hex(map));
        }
        let map = map & possible;
        self.slabs.push(Slab { head, kind, map, reached: 0, inodes: 0 });
    }

    /// Looks for pages of slabs that are of none.
    fn check_tails<V: View + ?Sized>(&self, bytes: &Overlay<'_, V>, findings: &mut Findings) {
        for page in self.each_allocated() {
            let run = self.runs.get(page as usize).copied().unwrap_or(0);
            if run != 0 || self.slab_at(page).is_some_and(|slab| slab.head == page) {
                continue;
            }
            let at = self.geometry.descriptor(page);
            let word = bytes.load(at);
            let Some(Descriptor::SlabTail(kind, back)) = Descriptor::unpack(word, page) else {
                continue;
            };
            let head = page.checked_sub(back).filter(|_| back < SLAB_PAGES);
            let slab = self.slab_at(page).filter(|slab| Some(slab.head) == head);
            if slab.is_none_or(|slab| slab.kind != kind) {
                let expected = format_args!("a slab that begins {back} pages before");
                findings.add(Code::SlabTail, 0, at, expected, "none");
            }
        }
    }

    fn each_allocated(&self) -> impl Iterator<Item = u64> {
        let words = (0..).step_by(64).zip(self.allocated.iter().copied());
        words.filter(|(_, word)| *word != 0).flat_map(|(first, word): (u64, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    fn spec(&self, kind: Kind) -> KindSpec {
        self.kinds.get(usize::from(kind.number())).copied().unwrap_or(KindSpec::UNUSED)
    }

    /// Whether `kind` is one of objects in slabs.
    pub(crate) fn is_object(&self, kind: Kind) -> bool {
        self.spec(kind).is_object()
    }

    fn is_allocated(&self, page: u64) -> bool {
        bit(&self.allocated, page)
    }

    fn slab_at(&self, page: u64) -> Option<&Slab> {
        self.slabs.get(*self.slab_of.get(page as usize)? as usize)
    }

    /// Where object `index` of `slab` is.
    pub(crate) fn object_at(&self, slab: &Slab, index: u64) -> Offset {
        let size = u64::from(self.spec(slab.kind).object_size);
        self.geometry.page(slab.head).plus(index * size)
    }

    /// Pages allocated.
    pub(crate) fn pages_used(&self) -> u64 {
        self.allocated.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Counts pages and objects.
    pub(crate) fn count(&self, counts: &mut Counts) {
        counts.pages_used = self.pages_used();
        counts.pages_free = self.pages - counts.pages_used;
        counts.objects = self.slabs.iter().map(|slab| u64::from(slab.map.count_ones())).sum();
    }

    /// The slab, and the number in it, of the object of `kind` at `at`.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn find(&self, at: Offset, kind: Kind) -> Result<(usize, u64), Wild> {
        let page = self.geometry.page_of(at).filter(|page| *page < self.pages);
        let page = page.ok_or(Wild::Place)?;
        let number = self.slab_of.get(page as usize).copied().unwrap_or(NONE) as usize;
        let Some(slab) = self.slabs.get(number) else {
            return Err(if self.is_allocated(page) { Wild::Kind } else { Wild::Free });
        };
        if slab.kind != kind {
            return Err(Wild::Kind);
        }
        let spec = self.spec(kind);
        let within = at.bytes() - self.geometry.page(slab.head).bytes();
        let size = u64::from(spec.object_size).max(1);
        let index = within / size;
        if !within.is_multiple_of(size) || index >= spec.objects() {
            return Err(Wild::Place);
        }
        if slab.map >> index & 1 == 1 { Ok((number, index)) } else { Err(Wild::Free) }
    }

    /// Reaches the object of `kind` at `at`.
    ///
    /// # Errors
    /// Why it can't be had.
    pub(crate) fn reach_object(&mut self, at: Offset, kind: Kind) -> Result<(), Wild> {
        let (number, index) = self.find(at, kind)?;
        let slab = self.slabs.get_mut(number).ok_or(Wild::Place)?;
        if slab.reached >> index & 1 == 1 {
            return Err(Wild::Shared);
        }
        slab.reached |= 1 << index;
        Ok(())
    }

    /// Why the page at `at` is not one that could be reached for a run of `kind`, if so.
    pub(crate) fn check_page(&self, at: Offset, kind: Kind) -> Result<u64, Wild> {
        let page = self.geometry.page_of(at).filter(|page| *page < self.pages);
        let page = page.filter(|_| at.is_aligned(PAGE)).ok_or(Wild::Place)?;
        if !self.is_allocated(page) {
            return Err(Wild::Free);
        }
        if self.runs.get(page as usize) != Some(&(RUN | kind.number())) {
            return Err(Wild::Kind);
        }
        if bit(&self.reached, page) { Err(Wild::Shared) } else { Ok(page) }
    }

    /// Reaches a run of `pages` pages of `kind` at `at`: all of its pages that can be had.
    ///
    /// # Errors
    /// The first page that can't, and why.
    pub(crate) fn reach_run(
        &mut self,
        at: Offset,
        pages: u64,
        kind: Kind,
    ) -> Result<(), (Offset, Wild)> {
        let mut first = Ok(());
        for index in 0..pages {
            let at = at.plus(index * PAGE);
            match self.check_page(at, kind) {
                Ok(page) => set(&mut self.reached, page),
                Err(wild) if first.is_ok() => first = Err((at, wild)),
                Err(_) => {}
            }
        }
        first
    }

    /// Looks for what is allocated and was not reached, but not among objects of kind `counted`,
    /// which are found otherwise.
    pub(crate) fn check_leaks(&self, counted: Option<Kind>, findings: &mut Findings) {
        let mut first = None;
        for page in 0..=self.pages {
            let run = self.runs.get(page as usize).copied().unwrap_or(0);
            let is_lost = run != 0 && !bit(&self.reached, page);
            match (first, is_lost) {
                (None, true) => first = Some(page),
                (Some(start), false) => {
                    let at = self.geometry.page(start);
                    let found = format_args!("{} pages allocated", page - start);
                    findings.add(Code::PageUnreachable, 0, at, "something that leads there", found);
                    first = None;
                }
                _ => {}
            }
        }
        for slab in self.slabs.iter().filter(|slab| Some(slab.kind) != counted) {
            let lost = slab.map & !slab.reached;
            for index in (0..64).filter(|index| lost >> index & 1 == 1) {
                let at = self.object_at(slab, index);
                let found = format_args!("an allocated object of kind {}", slab.kind.number());
                findings.add(Code::ObjectUnreachable, 0, at, "something that leads there", found);
            }
        }
    }
}
