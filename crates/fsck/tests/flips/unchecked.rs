//! What of a store may change unnoticed, from the format: reserved bytes, hints, what is free, the
//! bytes of files, and no more.

use std::collections::BTreeMap;
use std::ops::Range;

use conquest_format::descriptor::Descriptor;
use conquest_format::fs::bucket::{FIRST, GRANULE, GRANULES, TAG_DENTRY, TAG_MORE};
use conquest_format::fs::{BUCKET, INODE, attributes, root};
use conquest_format::geometry::{
    ROOTS, STATE_CHUNKS, STATE_GROUPS, STATE_ROOTS, STATE_SLAB_GROUPS,
};
use conquest_format::inode::{Content, FileType, Inode, number_of, word};
use conquest_format::journal::{CHECKSUM, COMMIT, ENTRIES, INTENT, PAGES_USED};
use conquest_format::superblock::SIZE;
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD, fs};

use crate::support::{SHAPE, Store, geometry};

/// Bits that nothing checks.
pub(crate) struct Unchecked {
    /// For each word of the region the bits that may change.
    pub(crate) bits: Vec<u64>,
    /// The same by what it is, in ranges of bytes in which there are such bits.
    pub(crate) parts: BTreeMap<&'static str, Vec<Range<u64>>>,
}

impl Unchecked {
    /// Words of which nothing is checked.
    pub(crate) fn words(&self) -> usize {
        self.bits.iter().filter(|mask| **mask == u64::MAX).count()
    }

    /// Bytes of which nothing is checked.
    fn bytes(&mut self, what: &'static str, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for byte in range.clone() {
            self.bits[(byte / WORD) as usize] |= 0xFF << (byte % WORD * 8);
        }
        self.parts.entry(what).or_default().push(range);
    }

    /// Bytes that are checked, within others that are not.
    fn checked(&mut self, range: Range<u64>) {
        for byte in range {
            self.bits[(byte / WORD) as usize] &= !(0xFF << (byte % WORD * 8));
        }
    }

    /// Bits of a word that are not checked.
    fn of_word(&mut self, what: &'static str, at: Offset, mask: u64) {
        self.bits[(at.bytes() / WORD) as usize] |= mask;
        self.parts.entry(what).or_default().push(at.bytes()..at.plus(WORD).bytes());
    }
}

/// What may change unnoticed in `store`.
pub(crate) fn unchecked(store: &Store) -> Unchecked {
    let bits = vec![0; store.bytes.len() / WORD as usize];
    let mut found = Unchecked { bits, parts: BTreeMap::new() };
    let pages = store.load(STATE_GROUPS) * GROUP_PAGES;
    fixed(&mut found, store, pages);
    for page in 0..pages {
        heap(&mut found, store, page);
    }
    for number in inodes(store, pages) {
        contents(&mut found, store, number);
    }
    found
}

fn after(at: Offset, from: u64, to: u64) -> Range<u64> {
    at.plus(from).bytes()..at.plus(to).bytes()
}

/// Superblocks, state page, lanes, tables for more groups than there are, and the volatile part.
fn fixed(found: &mut Unchecked, store: &Store, pages: u64) {
    let geometry = geometry();
    for copy in conquest_format::geometry::SUPERBLOCKS {
        found.bytes("reserved", after(copy, SIZE as u64, PAGE));
    }
    // There are three of four: that there are fewer is seen only if one of the others keeps a file.
    found.of_word("chunks", STATE_CHUNKS, 0b11);
    found.bytes("reserved", STATE_CHUNKS.plus(WORD).bytes()..STATE_ROOTS.bytes());
    found.bytes("reserved", after(STATE_ROOTS, ROOTS * WORD, PAGE - 64));
    // No slab is past the first group here.
    found.bytes("slab-groups", after(STATE_SLAB_GROUPS, 0, WORD));
    // How far down is not checked but against the files.
    found.bytes("file-max", after(STATE_ROOTS.plus(root::FILE_MAX * WORD), 0, WORD));
    // Which files are large nothing else says; numbers of chunks may be left out.
    found.bytes("threshold", after(STATE_ROOTS.plus(root::THRESHOLD * WORD), 0, WORD));
    // Nothing in the region says what the volume's mark is.
    found.bytes("marks", after(STATE_ROOTS.plus(root::MARK * WORD), 0, 2 * WORD));
    let next = STATE_ROOTS.plus(root::NEXT_CHUNK * WORD);
    found.of_word("chunks", next, !store.load(next));
    // Bits of which any one alone is a possible percentage; there is none.
    found.of_word("reserve", STATE_ROOTS.plus(root::RESERVE * WORD), 0b11_1111);
    for lane in (0..SHAPE.lanes).map(|number| geometry.lane(number)) {
        // The sequence, up to that of inodes; what belongs to a record that was retired.
        found.of_word("lanes", lane.plus(COMMIT), (1 << 48) - 1);
        found.bytes("retired", after(lane, CHECKSUM, PAGES_USED));
        found.bytes("retired", after(lane, PAGES_USED + WORD, INTENT));
        found.bytes("retired", after(lane, INTENT + WORD, ENTRIES));
        found.bytes("retired", after(lane, ENTRIES, PAGE));
    }
    let ends = [
        (geometry.bitmap(pages / GROUP_PAGES), geometry.descriptor(0)),
        (geometry.descriptor(pages), geometry.slab_map(0)),
        (geometry.slab_map(pages), geometry.orphan(0)),
        (geometry.orphan(SHAPE.slots.min(SHAPE.chunks) * 56), geometry.image_page(0)),
    ];
    for (start, end) in ends {
        found.bytes("tables", start.bytes()..end.bytes());
    }
    found.bytes("images", geometry.image_page(0).bytes()..geometry.volatile().start);
    found.bytes("volatile", geometry.volatile());
}

fn descriptor(store: &Store, page: u64) -> Option<Descriptor> {
    let word = geometry().bitmap(page / GROUP_PAGES).plus(page % GROUP_PAGES / 64 * WORD);
    let is_allocated = store.load(word) >> (page % 64) & 1 == 1;
    is_allocated.then(|| Descriptor::unpack(store.load(geometry().descriptor(page)), page).unwrap())
}

/// What is free of a page of the heap, and its words in the tables.
fn heap(found: &mut Unchecked, store: &Store, page: u64) {
    let geometry = geometry();
    let at = geometry.page(page);
    let map_at = geometry.slab_map(page);
    let kind = match descriptor(store, page) {
        None => {
            found.bytes("free", after(at, 0, PAGE));
            found.bytes("free", after(geometry.descriptor(page), 0, WORD));
            found.bytes("free", after(map_at, 0, WORD));
            return;
        }
        Some(Descriptor::Run(kind)) => {
            found.bytes("free", after(map_at, 0, WORD));
            if kind == BUCKET {
                bucket(found, store, at);
            }
            return;
        }
        Some(Descriptor::SlabTail(..)) => {
            found.bytes("free", after(map_at, 0, WORD));
            return;
        }
        Some(Descriptor::Slab(kind)) => kind,
    };
    let spec = fs::kinds()[usize::from(kind.number())];
    let size = u64::from(spec.object_size);
    for object in 0..spec.objects() {
        if store.load(map_at) >> object & 1 == 0 {
            found.bytes("free", after(at, object * size, (object + 1) * size));
        } else if kind == INODE {
            let time = at.plus(object * size + word::ATIME);
            found.bytes("time of access", after(time, 0, WORD));
        }
    }
    found.bytes("free", after(at, spec.objects() * size, u64::from(spec.slab_pages) * PAGE));
}

/// Free granules, and the numbers that tell entries of a hash apart.
fn bucket(found: &mut Unchecked, store: &Store, at: Offset) {
    found.bytes("reserved", after(at, 8, 16));
    for granule in FIRST..GRANULES {
        let tag = store.byte(at.plus(granule));
        let place = at.plus(granule * GRANULE);
        if tag >= TAG_DENTRY {
            found.of_word("dup", place.plus(WORD), 0xF);
        } else if tag != TAG_MORE {
            found.bytes("free", after(place, 0, GRANULE));
        }
    }
}

/// Numbers of all inodes.
fn inodes(store: &Store, pages: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for page in 0..pages {
        if descriptor(store, page) != Some(Descriptor::Slab(INODE)) {
            continue;
        }
        let map = store.load(geometry().slab_map(page));
        let there = (0..64).filter(|object| map >> object & 1 == 1);
        let at = |object: u64| geometry().page(page).plus(object * conquest_format::inode::SIZE);
        numbers.extend(there.map(|object| number_of(at(object)).unwrap()));
    }
    numbers
}

/// The bytes of a file, and what its attributes leave free of their place.
fn contents(found: &mut Unchecked, store: &Store, number: u64) {
    let at = conquest_format::inode::offset_of(number).unwrap();
    let inode = Inode::from_words(store.words(at), number).unwrap();
    let what = if inode.file_type == FileType::Symlink { "targets" } else { "contents" };
    match inode.content {
        Content::Packed { root, class } => {
            let size = fs::PACKED_SIZES[class as usize];
            object(found, what, store.target(root), inode.size, size);
        }
        Content::Extent { root, pages } => {
            object(found, what, store.target(root), inode.size, pages * PAGE);
        }
        Content::Tree { root, height } => tree(found, store, store.target(root), height),
        Content::Large { root, height, .. } if root != 0 => {
            tree(found, store, store.target(root), height);
        }
        _ => {}
    }
    if inode.attributes != 0 {
        let place = store.target(inode.attributes);
        let len = store.load(place);
        let room = match inode.attributes & attributes::CLASS {
            0 => len.next_multiple_of(PAGE),
            class => fs::PACKED_SIZES[class as usize - 1],
        };
        found.bytes("free", after(place, len, room));
        found.checked(after(place, 0, len));
    }
}

/// Content in one piece.
fn object(found: &mut Unchecked, what: &'static str, at: Offset, size: u64, room: u64) {
    found.bytes(what, after(at, 0, size.min(room)));
    found.bytes("free", after(at, size.min(room), room));
}

/// The pages of a tree.
fn tree(found: &mut Unchecked, store: &Store, node: Offset, level: u64) {
    use conquest_format::fs::tree::{SLOTS, Slot};
    for index in 0..SLOTS {
        match Slot::unpack(store.load(node.plus(index * WORD)), level).unwrap() {
            Slot::Hole => {}
            Slot::Node(below) => tree(found, store, below, level - 1),
            Slot::Page(at) => found.bytes("contents", after(at, 0, PAGE)),
            Slot::Run(at, pages) => found.bytes("contents", after(at, 0, pages * PAGE)),
        }
    }
}
