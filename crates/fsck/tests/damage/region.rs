//! Damage of superblocks, state page, lanes and of what says what is allocated.

use conquest_format::descriptor::Descriptor;
use conquest_format::fs::{CHUNK, DATA, INODE, NODE, PACKED, chunk, cut, root};
use conquest_format::geometry::{STATE, STATE_CHUNKS, STATE_GROUPS, STATE_ROOTS, SUPERBLOCKS};
use conquest_format::inode::{Inode, number_of, word};
use conquest_format::journal::{Action, COMMIT, Commit, Entry, INTENT, ImagePart, PAGES_USED};
use conquest_format::kind::Kind;
use conquest_format::superblock::SIZE;
use conquest_format::{Offset, WORD, checksum, pointer};
use conquest_fsck::Code;

use super::{Case, Store, case, set};
use crate::support::geometry;

/// Changes superblock copy `copy` and makes its checksum right.
fn superblock(store: &mut Store, copy: usize, offset: u64, bytes: &[u8]) {
    let at = SUPERBLOCKS[copy];
    let start = (at.bytes() + offset) as usize;
    store.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    let start = at.bytes() as usize;
    let sum = checksum(0, &store.bytes[start..start + SIZE - 8]);
    store.put(at.plus(SIZE as u64 - 8), sum);
}

/// The copy that counts.
fn counting(store: &Store) -> usize {
    let sequence = |copy: usize| store.load(SUPERBLOCKS[copy].plus(80));
    usize::from(sequence(1) > sequence(0))
}

fn root_at(index: u64) -> Offset {
    STATE_ROOTS.plus(index * WORD)
}

fn lane(number: u32, word: u64) -> Offset {
    geometry().lane(number).plus(word)
}

/// An entry that copies `len` bytes to pages of `kind`.
pub(super) fn copy(target: Offset, len: u64, kind: Kind) -> [u64; 2] {
    let operand = ImagePart { from: 8, len, kind }.pack();
    Entry { target, action: Action::Copy, operand }.pack()
}

/// Puts an intent about a file into lane 1.
pub(super) fn intend(store: &mut Store, code: u64, name: &str) {
    let arguments = [code, store.number(name), store.field(name, word::GENERATION)];
    for (index, value) in (0..).zip(arguments) {
        store.put(lane(1, INTENT + index * WORD), value);
    }
}

/// Number of the page of the heap where the content of `name` is.
fn page_of(store: &Store, name: &str) -> u64 {
    geometry().page_of(store.content(name)).unwrap()
}

/// A free page of the last group.
fn free_page(store: &Store) -> u64 {
    let groups = store.load(STATE_GROUPS);
    let is_free = |page: &u64| {
        let word = geometry().bitmap(page / 512).plus(page % 512 / 64 * 8);
        store.load(word) >> (page % 64) & 1 == 0
    };
    (0..groups * 512).rev().find(is_free).unwrap()
}

/// The first page of a slab of `kind`.
fn slab(store: &Store, kind: Kind) -> u64 {
    let is_slab = |page: &u64| {
        let word = store.load(geometry().descriptor(*page));
        Descriptor::unpack(word, *page) == Some(Descriptor::Slab(kind))
    };
    (0..512).find(is_slab).unwrap()
}

fn describe(store: &mut Store, page: u64, descriptor: Descriptor) {
    store.put(geometry().descriptor(page), descriptor.pack(page));
}

pub(super) fn cases() -> Vec<Case> {
    [superblocks(), state(), roots(), lanes(), copies(), space()].concat()
}

fn superblocks() -> Vec<Case> {
    vec![
        case("a copy is torn", &[Code::SuperblockCopy], |store| {
            let at = SUPERBLOCKS[1 - counting(store)].plus(300);
            store.put_byte(at, store.byte(at) ^ 1);
        }),
        case("another identity", &[Code::SuperblockIdentity], |store| {
            superblock(store, 1 - counting(store), 40, &[9]);
        }),
        case("a sequence of the other place", &[Code::SuperblockSequence], |store| {
            let copy = counting(store);
            let sequence = store.load(SUPERBLOCKS[copy].plus(80));
            superblock(store, copy, 80, &(sequence + 1).to_le_bytes());
        }),
        case("a sequence that does not follow", &[Code::SuperblockSequence], |store| {
            let copy = counting(store);
            let sequence = store.load(SUPERBLOCKS[copy].plus(80));
            superblock(store, copy, 80, &(sequence + 2).to_le_bytes());
        }),
        case("a tag of 0", &[Code::AttachGeneration], |store| {
            superblock(store, counting(store), 88, &(1_u64 << 32).to_le_bytes());
        }),
        case("a compatible feature", &[Code::FeaturesUnknown], |store| {
            superblock(store, counting(store), 16, &[2]);
        }),
        case("a feature for writers", &[Code::FeaturesUnknown], |store| {
            superblock(store, counting(store), 24, &[2]);
        }),
        case("another kind", &[Code::KindTable], |store| {
            // Of a class that no file has: 1,280 bytes.
            let kind = u64::from(PACKED.number()) + 12;
            for copy in [0, 1] {
                superblock(store, copy, 252 + kind * 8, &[64, 0, 1]);
            }
        }),
    ]
}

fn state() -> Vec<Case> {
    vec![
        case("a longer file", &[Code::RegionLength], |store| store.bytes.extend([0; 4096])),
        case("no groups", &[Code::StateGroups], |store| store.put(STATE_GROUPS, 0)),
        case("too many groups", &[Code::StateGroups], |store| store.put(STATE_GROUPS, 5)),
        case("too many chunks", &[Code::StateChunks], |store| store.put(STATE_CHUNKS, 5)),
        case("an orphan nowhere", &[Code::Orphan], |store| store.put(geometry().orphan(3), 77)),
        case("a slab past the mask", &[Code::SlabGroups], |store| {
            let groups = store.load(STATE_GROUPS);
            store.put(STATE_GROUPS, groups + 1);
            store.bytes.resize(geometry().len_at(groups + 1) as usize, 0);
            let page = groups * 512;
            describe(store, page, Descriptor::Slab(PACKED));
            store.put(geometry().slab_map(page), 0);
            store.set_allocated(geometry().page(page), true);
        }),
    ]
}

fn roots() -> Vec<Case> {
    vec![
        case("no version", &[Code::RootVersion], |store| store.put(root_at(root::VERSION), 0)),
        case("no roots", &[Code::NoFileSystem, Code::PageUnreachable, Code::ObjectUnreachable], {
            |store| (0..=root::UNUSED).for_each(|index| store.put(root_at(index), 0))
        }),
        case("no root directory", &[Code::RootDirectory, Code::InodeLost], |store| {
            store.put(root_at(root::DIRECTORY), 0);
        }),
        case("a file for root", &[Code::RootDirectory, Code::InodeLost], |store| {
            let word = conquest_format::pointer::pack(store.at("fifo"), INODE);
            store.put(root_at(root::DIRECTORY), word);
        }),
        case("too large files", &[Code::RootFileMax], |store| {
            store.put(root_at(root::FILE_MAX), 1 << 63);
        }),
        case("files that are too large", &[Code::InodeSize], |store| {
            store.put(root_at(root::FILE_MAX), 3000);
        }),
        case("the largest file, and no larger", &[], |store| {
            let largest = store.field("large", word::SIZE);
            store.put(root_at(root::FILE_MAX), largest);
        }),
        case("a byte less than the largest file", &[Code::InodeSize], |store| {
            let largest = store.field("large", word::SIZE);
            store.put(root_at(root::FILE_MAX), largest - 1);
        }),
        case("too much reserved", &[Code::RootReserve], |store| {
            store.put(root_at(root::RESERVE), 51);
        }),
        case("as much reserved as can be", &[], |store| store.put(root_at(root::RESERVE), 50)),
        case("a chunk of no size", &[Code::RootChunks], |store| {
            store.put(root_at(root::CHUNK_BLOCKS), 0);
        }),
        case("chunks of an odd size", &[Code::RootChunks], |store| {
            store.put(root_at(root::CHUNK_BLOCKS), 3 << 21);
        }),
        case("chunks that nobody has drawn", &[Code::ChunkNumber], |store| {
            store.put(root_at(root::NEXT_CHUNK), 7);
        }),
        case(
            "no list of what is to be trimmed",
            &[Code::ChunkList, Code::ObjectUnreachable],
            |store| {
                store.put(root_at(root::DUE), 0);
            },
        ),
        case("a list of something else", &[Code::ChunkList, Code::ObjectUnreachable], |store| {
            store.put(root_at(root::UNUSED), store.load(root_at(root::DIRECTORY)));
        }),
        case(
            "a chunk of a file among the unused ones",
            &[Code::ChunkList, Code::ObjectUnreachable],
            |store| {
                store.put(root_at(root::UNUSED), pointer::pack(store.chunk("large"), CHUNK));
            },
        ),
        case("a list in a circle", &[Code::ChunkList], |store| {
            let first = store.load(root_at(root::DUE));
            assert_ne!(first, 0);
            let mut at = store.target(first);
            while store.load(at.plus(chunk::word::LIST)) & !chunk::WHOLE != chunk::LAST {
                at = store.target(store.load(at.plus(chunk::word::LIST)));
            }
            store.put(at.plus(chunk::word::LIST), first);
        }),
        case("one more root", &[Code::RootUnused], |store| store.put(root_at(63), 1)),
        case("another key", &[Code::DentryHash], |store| store.put(root_at(root::KEY), 7)),
    ]
}

fn lanes() -> Vec<Case> {
    vec![
        case("too many entries", &[Code::LaneCommit], |store| {
            store.put(lane(2, COMMIT), store.load(lane(2, COMMIT)) | 0xFFF << 48);
        }),
        case("ranges alone", &[Code::LaneCommit], |store| {
            store.put(lane(2, COMMIT), store.load(lane(2, COMMIT)) | 1 << 60);
        }),
        case("an older record", &[Code::InodeGeneration], |store| {
            store.put(lane(1, COMMIT), Commit { sequence: 1, ..Commit::default() }.pack());
        }),
        case("a record that is not there", &[Code::LaneDropped], |store| {
            store.put(lane(2, COMMIT), store.load(lane(2, COMMIT)) | 3 << 48);
        }),
        case("an unknown action", &[Code::LaneEntry], |store| {
            let target = store.at("fifo").bytes();
            store.arm(1, &[[target | 4, 0]]);
        }),
        case("an image page's word", &[Code::LaneEntry], |store| {
            store.arm(1, &[set(geometry().image_page(1), 0)]);
        }),
        case("a superblock's word", &[Code::LaneEntry], |store| {
            store.arm(1, &[set(SUPERBLOCKS[0], 0)]);
        }),
        case("a volatile word", &[Code::LaneEntry], |store| {
            store.arm(1, &[set(geometry().head(0), 0)]);
        }),
        case("a commit word", &[Code::LaneEntry], |store| {
            store.arm(1, &[set(lane(0, COMMIT), 0)]);
        }),
        case("a word past the groups", &[Code::LaneEntry], |store| {
            let end = Offset::new(store.bytes.len() as u64);
            store.arm(1, &[set(end, 0)]);
        }),
        case("a record that takes groups away", &[Code::RegionLength], |store| {
            let end = geometry().len_at(3) as usize;
            store.bytes.resize(end, 0);
            store.put(STATE_GROUPS, 3);
            store.arm(1, &[set(STATE_GROUPS, 2)]);
        }),
        case("two records of one word", &[Code::LaneConflict], |store| {
            let word = STATE.plus(16);
            store.arm(0, &[set(word, 0)]);
            store.arm(2, &[set(word, 0)]);
        }),
        case("one page more", &[Code::PagesUsed], |store| {
            let at = lane(1, PAGES_USED);
            store.put(at, store.load(at).wrapping_add(1));
        }),
        case("an unknown intent", &[Code::IntentUnknown], |store| intend(store, 3, "tree")),
        case("an intent for a file", &[], |store| intend(store, cut::CUT, "tree")),
        case("an intent for no file", &[Code::IntentStale], |store| {
            intend(store, cut::CUT, "tree");
            store.put(lane(1, INTENT + 2 * WORD), 1);
        }),
        case("an intent to reap a name", &[Code::IntentNamed], |store| {
            intend(store, cut::REAP, "tree");
        }),
    ]
}

fn copies() -> Vec<Case> {
    vec![
        case("a copy that is still to be made", &[], |store| {
            store.arm(1, &[copy(store.content("extent").plus(8), 64, DATA)]);
        }),
        case("a copy of nothing", &[Code::LaneEntry], |store| {
            store.arm(1, &[copy(store.content("extent"), 0, DATA)]);
        }),
        case("a copy to pages of another kind", &[Code::LaneEntry], |store| {
            store.arm(1, &[copy(store.at("fifo"), 64, DATA)]);
        }),
        case("a copy to what is not content", &[Code::LaneEntry], |store| {
            store.arm(1, &[copy(store.at("fifo"), 64, INODE)]);
        }),
        case("a copy to a free page", &[Code::LaneEntry], |store| {
            let page = free_page(store);
            describe(store, page, Descriptor::Run(DATA));
            store.arm(1, &[copy(geometry().page(page), 64, DATA)]);
        }),
    ]
}

fn space() -> Vec<Case> {
    vec![
        case("a page of no kind", &[Code::PageDescriptor, Code::PointerKind], |store| {
            let at = geometry().descriptor(page_of(store, "extent"));
            store.put(at, store.load(at) ^ 1 << 20);
        }),
        case("a run of objects", &[Code::PageKind, Code::PointerKind], |store| {
            describe(store, page_of(store, "extent"), Descriptor::Run(INODE));
        }),
        case("a slab of runs", &[Code::PageKind, Code::PointerKind], |store| {
            describe(store, page_of(store, "extent"), Descriptor::Slab(DATA));
        }),
        case("a slab without its tail", &[Code::PageDescriptor, Code::SlabPages], |store| {
            store.put(geometry().descriptor(page_of(store, "in-slab") + 1), 0);
        }),
        case("a slab whose tail is free", &[Code::SlabPages], |store| {
            let tail = geometry().page(page_of(store, "in-slab") + 1);
            store.set_allocated(tail, false);
        }),
        case("a tail without its slab", &[Code::SlabTail, Code::PointerKind], |store| {
            describe(store, page_of(store, "extent"), Descriptor::SlabTail(INODE, 1));
        }),
        case("one object too many", &[Code::SlabMap], |store| {
            let at = geometry().slab_map(slab(store, NODE));
            store.put(at, store.load(at) | 1 << 63);
        }),
        case("a page that is lost", &[Code::PageUnreachable], |store| {
            let page = free_page(store);
            describe(store, page, Descriptor::Run(DATA));
            store.set_allocated(geometry().page(page), true);
        }),
        case("an object that is lost", &[Code::ObjectUnreachable], |store| {
            let at = geometry().slab_map(slab(store, NODE));
            store.put(at, 0xF);
        }),
        case("an inode that is lost", &[Code::InodeLost], {
            |store| {
                let (map, index, object) = store.free_object(INODE);
                store.put(map, store.load(map) | 1 << index);
                // The record before one that made a file made none.
                let generation = store.inode("large").generation - 1;
                let lost = Inode { generation, ..store.inode("empty") };
                for (word, value) in (0..).zip(lost.to_words(number_of(object).unwrap())) {
                    store.put(object.plus(word * WORD), value);
                }
            }
        }),
        case("a page that is free", &[Code::PointerFree], |store| {
            store.set_allocated(store.content("extent"), false);
        }),
        case("an object that is free", &[Code::PointerFree], |store| {
            let page = page_of(store, "packed");
            store.put(geometry().slab_map(page), 0);
        }),
    ]
}
