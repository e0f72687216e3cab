//! A check under way: what all passes share, and their order.
//!
//! 1. Superblocks, state page, lanes: how the region is laid out, and its state after recovery.
//! 2. Space: what bitmaps, descriptors and slab maps say.
//! 3. Inodes, in the order of their places: each with its content and attributes.
//! 4. Directories: each one's nodes and buckets, and which inodes they name.
//! 5. Names: link counts, parents, loops, what has no name.
//! 6. Leaks: what is allocated and was not reached.
//!
//! Each inode and each page of a directory or tree is read once. What a pass finds out for a later
//! one is in vectors with an element for each page or inode. The third and the fourth pass could be
//! shared out by ranges of slabs if reaching became atomic; findings would have to be sorted then.

use conquest_format::fs::{INODE, root};
use conquest_format::geometry::STATE_GROUPS;
use conquest_format::journal::PAGES_USED;
use conquest_format::kind::Kind;
use conquest_format::superblock::Superblock;
use conquest_format::{Geometry, Offset, inode, pointer};

use crate::chunks::Chunks;
use crate::inodes::Inodes;
use crate::journal::Lanes;
use crate::overlay::Overlay;
use crate::report::{Counts, Findings, Hex};
use crate::space::{Space, Wild};
use crate::state::{Roots, root_word};
use crate::{Code, Error, Options, Report, View};
use crate::{
    attributes, chunks, content, directory, journal, names, orphans, paths, state, superblock,
};

/// Share of the work that is done before each pass, in percent, and at the end.
const SHARES: [u64; 6] = [0, 20, 60, 90, 95, 100];

/// What all passes share.
pub(crate) struct Check<'v, V: ?Sized> {
    pub(crate) bytes: Overlay<'v, V>,
    pub(crate) findings: Findings,
    pub(crate) counts: Counts,
    pub(crate) space: Space,
    pub(crate) inodes: Inodes,
    pub(crate) lanes: Lanes,
    pub(crate) roots: Roots,
    pub(crate) geometry: Geometry,
    /// Chunks of holdings that have space.
    pub(crate) chunks: u32,
    /// Chunks of the volume's space.
    pub(crate) chunks_of_volume: Chunks,
}

/// Checks the region in `view`.
pub(crate) fn run<V: View + ?Sized>(view: &V, options: &Options<'_>) -> Result<Report, Error> {
    let mut findings = Findings::new(options.most_findings);
    let mut counts = Counts::default();
    let superblock = superblock::read(view, &mut findings)?;
    let geometry = layout(&superblock)?;
    let mut bytes = Overlay::new(view);
    let before = bytes.load(STATE_GROUPS);
    let mut groups = state::groups(&bytes, &geometry, &mut findings)?;
    let lanes = journal::replay(&mut bytes, &geometry, groups, &mut findings, &mut counts);
    if bytes.load(STATE_GROUPS) != before {
        groups = state::groups(&bytes, &geometry, &mut findings)?;
    }
    let roots = state::roots(&bytes, &mut findings)?;
    if roots.is_some() {
        superblock::check_kinds(&superblock, &mut findings);
    }
    let mut space = Space::new(&geometry, &superblock.kinds, groups);
    space.load(&bytes, &mut findings, &|done, all| options.tell(SHARES, 0, done, all));
    space.count(&mut counts);
    if lanes.pages_used != counts.pages_used {
        let expected = format_args!("{} in all", counts.pages_used);
        let found = lanes.pages_used.cast_signed();
        findings.add(Code::PagesUsed, 0, geometry.lane(0).plus(PAGES_USED), expected, found);
    }
    let slabs = space.slabs.iter();
    let last = slabs.map(|slab| slab.head / conquest_format::GROUP_PAGES).next_back();
    state::check_slab_groups(&bytes, last, &mut findings);
    let Some(roots) = roots else {
        space.check_leaks(None, &mut findings);
        options.tell(SHARES, 5, 0, 1);
        return Ok(findings.finish(counts, superblock.clean));
    };
    let inodes = Inodes::new(&mut space);
    let chunks = orphans::chunks(&bytes, &geometry, &mut findings);
    let mut check = Check {
        bytes,
        findings,
        counts,
        space,
        inodes,
        lanes,
        roots,
        geometry,
        chunks,
        chunks_of_volume: Chunks::default(),
    };
    check.passes(options);
    paths::fill(&mut check);
    Ok(check.findings.finish(check.counts, superblock.clean))
}

/// The layout that the superblock says; a valid one has one.
fn layout(superblock: &Superblock) -> Result<Geometry, Error> {
    use conquest_format::superblock::Defect;
    let defect = Defect::Field(0, superblock.shape.max_groups);
    Geometry::new(superblock.shape).ok_or(Error::Superblocks { first: defect, second: defect })
}

impl<V: View + ?Sized> Check<'_, V> {
    fn passes(&mut self, options: &Options<'_>) {
        let inodes = self.inodes.len();
        for rank in 0..inodes {
            options.tell(SHARES, 1, rank as u64, inodes as u64);
            if let Some((number, found)) = self.load_inode(rank) {
                content::check(self, number, &found);
                attributes::check(self, number, &found);
            }
        }
        chunks::check(self);
        let directories = core::mem::take(&mut self.inodes.directories);
        for (index, place) in (0..).zip(&directories) {
            options.tell(SHARES, 2, index, directories.len() as u64);
            directory::check(self, place);
        }
        options.tell(SHARES, 3, 0, 1);
        orphans::check(self);
        names::check(self);
        options.tell(SHARES, 4, 0, 1);
        self.space.check_leaks(Some(INODE), &mut self.findings);
        options.tell(SHARES, 5, 0, 1);
    }

    /// Adds a finding about the file of inode `number`, 0 for none.
    pub(crate) fn find(
        &mut self,
        code: Code,
        number: u64,
        at: Offset,
        expected: impl core::fmt::Display,
        found: impl core::fmt::Display,
    ) {
        self.findings.add(code, number, at, expected, found);
    }

    /// What `word`, a pointer word at `at`, points to, if its check bits are right and it points
    /// to anything.
    pub(crate) fn target(
        &mut self,
        number: u64,
        at: Offset,
        word: u64,
        kind: Kind,
    ) -> Option<Offset> {
        let target = pointer::unpack(word, kind).filter(|target| !target.is_none());
        if target.is_none() {
            let expected = format_args!("a pointer to an object of kind {}", kind.number());
            self.find(Code::PointerCheck, number, at, expected, Hex(word));
        }
        target
    }

    /// Adds a finding about what a word at `at` leads to: an object of `kind` that can't be had.
    pub(crate) fn wild(&mut self, number: u64, at: Offset, target: Offset, kind: Kind, wild: Wild) {
        let is_object = self.space.is_object(kind);
        let code = match wild {
            Wild::Place => Code::PointerPlace,
            Wild::Free => Code::PointerFree,
            Wild::Kind => Code::PointerKind,
            Wild::Shared if is_object => Code::ObjectShared,
            Wild::Shared => Code::PageShared,
        };
        let expected =
            format_args!("what is of kind {}, allocated, and nobody else's", kind.number());
        self.find(code, number, at, expected, format_args!("a pointer to {target}"));
    }

    /// Reaches the object of `kind` at `target`, to which a word at `at` leads; whether it could.
    pub(crate) fn reach_object(
        &mut self,
        number: u64,
        at: Offset,
        target: Offset,
        kind: Kind,
    ) -> bool {
        let reached = self.space.reach_object(target, kind);
        if let Err(wild) = reached {
            self.wild(number, at, target, kind, wild);
        }
        reached.is_ok()
    }

    /// Reaches the run of `pages` pages of `kind` at `target`, as [`Self::reach_object`].
    pub(crate) fn reach_run(
        &mut self,
        number: u64,
        at: Offset,
        (target, pages): (Offset, u64),
        kind: Kind,
    ) -> bool {
        let reached = self.space.reach_run(target, pages, kind);
        if let Err((page, wild)) = reached {
            self.wild(number, at, page, kind, wild);
        }
        reached.is_ok()
    }

    /// Number of the root directory's inode, if the root leads to an inode.
    pub(crate) fn root_number(&self) -> Option<u64> {
        let target = pointer::unpack(self.roots.directory, INODE)?;
        self.space.find(target, INODE).ok()?;
        inode::number_of(target)
    }

    /// Where the root with the root directory stands.
    pub(crate) fn root_at(&self) -> Offset {
        root_word(root::DIRECTORY)
    }
}
