//! Damage of inodes, contents and attributes.

use conquest_format::fs::tree::Slot;
use conquest_format::fs::{DATA, PACKED, TREE, chunk, root};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::inode::word;
use conquest_format::{Offset, PAGE, WORD, pointer};
use conquest_fsck::Code;

use super::{Case, Store, case};
use crate::support::geometry;

pub(super) fn cases() -> Vec<Case> {
    [inodes(), thresholds(), contents(), trees(), chunks(), attributes()].concat()
}

const UNFOLLOWED: [Code; 4] =
    [Code::InodeThreshold, Code::InodeLinks, Code::InodeLost, Code::PageUnreachable];

fn thresholds() -> Vec<Case> {
    vec![
        case("a file's threshold past all sizes", &[Code::InodeThreshold], |store| {
            store.set_inode("empty", word::PARENT, (1 << 63) + 1);
        }),
        // Nothing of such an inode is followed.
        case("a directory's threshold past all sizes", &UNFOLLOWED, |store| {
            store.set_inode("child", word::SHAPE, u64::MAX);
        }),
    ]
}

fn inodes() -> Vec<Case> {
    vec![
        case("another time", &[Code::InodeChecksum], |store| {
            store.put(store.at("extent").plus(word::MTIME), 1);
        }),
        case("another time of access", &[], |store| {
            store.put(store.at("extent").plus(word::ATIME), 1);
        }),
        case("no such type", &[Code::InodeMode], |store| {
            store.set_inode("empty", word::MODE, 0x3000);
        }),
        case("a form of another type", &[Code::InodeMode], |store| {
            store.set_inode("empty", word::MODE, 0x8000 | 5 << 16);
        }),
        case("no such flag", &[Code::InodeMode], |store| {
            let mode = store.field("empty", word::MODE);
            store.set_inode("empty", word::MODE, mode | 1 << 63);
        }),
        case("no such class", &[Code::InodeContent, Code::ObjectUnreachable], |store| {
            store.set_inode("packed", word::SHAPE, 16);
        }),
        case("content of none", &[Code::InodeContent], |store| {
            store.set_inode("empty", word::CONTENT, 1 << 20);
        }),
        case("a fifo with a size", &[Code::InodeSize], |store| {
            store.set_inode("fifo", word::SIZE, 1);
        }),
        case("a file beyond all", &[Code::InodeSize, Code::PageUnreachable], |store| {
            store.set_inode("extent", word::SIZE, 1 << 63);
        }),
        case("pages of a packed file", &[Code::InodePages, Code::ObjectUnreachable], |store| {
            store.set_inode("packed", word::PAGES, 1);
        }),
        case("one page more in a tree", &[Code::InodePages], |store| {
            let pages = store.field("tree", word::PAGES);
            store.set_inode("tree", word::PAGES, pages + 1);
        }),
        case("attributes nowhere", &[Code::InodeAttributes], |store| {
            store.set_inode("empty", word::ATTRIBUTES, 1 << 48);
        }),
        case("attributes of no class", &[Code::InodeAttributes], |store| {
            store.set_inode("empty", word::ATTRIBUTES, geometry().page(0).bytes() | 0x3F);
        }),
        case("a fifo with a parent", &[Code::InodeParent], |store| {
            store.set_inode("fifo", word::PARENT, store.number("/"));
        }),
        case("a generation of no lane", &[Code::InodeGeneration], |store| {
            store.set_inode("empty", word::GENERATION, 7 << 48 | 1);
        }),
        case("a generation to come", &[Code::InodeGeneration], |store| {
            store.set_inode("empty", word::GENERATION, 1 << 40);
        }),
        case("a generation twice", &[Code::GenerationShared], |store| {
            let other = store.field("fifo", word::GENERATION);
            store.set_inode("empty", word::GENERATION, other);
        }),
        case("one link more", &[Code::InodeLinks], |store| {
            store.set_inode("empty", word::LINKS, 2);
        }),
        case("a directory with a link less", &[Code::InodeLinks], |store| {
            store.set_inode("child", word::LINKS, 2);
        }),
        case("an inode of another place", &[Code::InodeChecksum, Code::DentryType], |store| {
            let words = store.words(store.at("fifo"));
            let at = store.at("empty");
            (0..).zip(words).for_each(|(index, word)| store.put(at.plus(index * WORD), word));
        }),
    ]
}

/// A pointer word with right check bits to where nothing can be.
fn beyond(kind: conquest_format::kind::Kind) -> u64 {
    pointer::pack(Offset::new(1 << 46), kind)
}

fn contents() -> Vec<Case> {
    vec![
        case("wrong check bits", &[Code::PointerCheck, Code::ObjectUnreachable], |store| {
            let root = store.field("packed", word::CONTENT);
            store.set_inode("packed", word::CONTENT, root ^ 1 << 60);
        }),
        case("an object nowhere", &[Code::PointerPlace, Code::ObjectUnreachable], |store| {
            let class = store.field("packed", word::SHAPE) as u8;
            let kind = conquest_format::kind::Kind::new(PACKED.number() + class).unwrap();
            store.set_inode("packed", word::CONTENT, beyond(kind));
        }),
        case("between two objects", &[Code::PointerPlace, Code::ObjectUnreachable], |store| {
            let class = store.field("packed", word::SHAPE) as u8;
            let kind = conquest_format::kind::Kind::new(PACKED.number() + class).unwrap();
            let at = store.content("packed").plus(64);
            store.set_inode("packed", word::CONTENT, pointer::pack(at, kind));
        }),
        case("a run nowhere", &[Code::PointerPlace, Code::PageUnreachable], |store| {
            store.set_inode("extent", word::CONTENT, beyond(DATA));
        }),
        case(
            "a run in the middle of a page",
            &[Code::PointerPlace, Code::PageUnreachable],
            |store| {
                let at = store.content("extent").plus(64);
                store.set_inode("extent", word::CONTENT, pointer::pack(at, DATA));
            },
        ),
        case(
            "a run of tree nodes",
            &[Code::PointerKind, Code::PageShared, Code::PageUnreachable],
            |store| {
                let at = store.content("tree");
                store.set_inode("extent", word::CONTENT, pointer::pack(at, DATA));
            },
        ),
        case("a shorter run", &[Code::PageUnreachable], |store| {
            let pages = store.field("extent", word::SHAPE);
            store.put(store.at("extent").plus(word::SHAPE), pages - 1);
            store.set_inode("extent", word::PAGES, pages - 1);
        }),
        case("an object of two files", &[Code::ObjectShared], |store| {
            for word in [word::MODE, word::CONTENT, word::SHAPE] {
                let value = store.field("packed", word);
                store.set_inode("empty", word, value);
            }
        }),
        case("a short link in a run", &[Code::SymlinkForm], |store| {
            store.set_inode("long-link", word::SIZE, 2048);
        }),
        case("a link longer than its object", &[Code::SymlinkForm], |store| {
            store.set_inode("link", word::SIZE, 65);
        }),
        case("a link with a byte of 0", &[Code::SymlinkTarget], |store| {
            let at = store.content("link").plus(4);
            store.put_byte(at, 0);
        }),
        case("bytes of a file", &[], |store| {
            let at = store.content("packed").plus(8);
            store.put(at, 77);
        }),
    ]
}

/// Where slot `index` of the top of a file's tree is.
fn slot(store: &Store, name: &str, index: u64) -> Offset {
    store.content(name).plus(index * WORD)
}

fn trees() -> Vec<Case> {
    vec![
        case("no slot", &[Code::TreeSlot, Code::InodePages, Code::PageUnreachable], |store| {
            let at = slot(store, "tree", 1);
            store.put(at, store.load(at) ^ 1 << 62);
        }),
        case("a slot of another level", &[Code::TreeSlot], |store| {
            let at = slot(store, "tree", 9);
            let page = geometry().page(0);
            store.put(at, Slot::Run(page, 3).pack());
        }),
        case("a page twice", &[Code::PageShared, Code::InodePages], |store| {
            let (from, to) = (slot(store, "tree", 1), slot(store, "tree", 9));
            store.put(to, store.load(from));
        }),
        case("a run one page longer", &[Code::InodePages, Code::PointerFree], |store| {
            longer_run(store);
        }),
        case("a node that leads to itself", &[Code::PageShared, Code::InodePages], |store| {
            let (at, top) = (slot(store, "tall", 9), store.content("tall"));
            store.put(at, Slot::Node(top).pack());
        }),
        case("a page of data as a node", &[Code::PointerKind, Code::InodePages], |store| {
            let at = slot(store, "tall", 9);
            store.put(at, Slot::Node(store.content("extent")).pack());
        }),
        case(
            "a top that is data",
            &[Code::PointerKind, Code::InodePages, Code::PageUnreachable],
            {
                |store| {
                    let at = store.content("extent");
                    store.set_inode("tree", word::CONTENT, pointer::pack(at, TREE));
                }
            },
        ),
        case("a lower tree", &[Code::TreeSlot, Code::InodePages, Code::PageUnreachable], |store| {
            store.set_inode("tall", word::SHAPE, 1);
        }),
    ]
}

/// Makes the run of the tall tree one page longer, over a page that is made free.
fn longer_run(store: &mut Store) {
    let at = slot(store, "tall", 3);
    let Some(Slot::Run(run, pages)) = Slot::unpack(store.load(at), 2) else {
        panic!("no run: {:#x}", store.load(at));
    };
    // A run of 512 pages can't be longer: the page after one that is a page shorter is its last.
    assert_eq!(pages, 512);
    store.set_allocated(run.plus(511 * PAGE), false);
    let pages = store.field("tall", word::PAGES);
    store.set_inode("tall", word::PAGES, pages - 1);
}

fn chunks() -> Vec<Case> {
    vec![
        case("another end", &[Code::Chunk], |store| {
            store.put(store.chunk("large").plus(chunk::word::END), 3);
        }),
        case("more allocated than there is", &[Code::Chunk], |store| {
            let at = store.chunk("large");
            store.put(at.plus(chunk::word::ALLOCATED), 1 << 40);
            store.sum_chunk(at);
        }),
        case("the chunk of another file", &[Code::ChunkOwner], |store| {
            let at = store.chunk("large");
            store.put(at.plus(chunk::word::INODE), 1);
            store.sum_chunk(at);
        }),
        case("a chunk of an earlier file", &[Code::ChunkOwner], |store| {
            let at = store.chunk("large");
            store.put(at.plus(chunk::word::GENERATION), 1);
            store.sum_chunk(at);
        }),
        case("a number twice", &[Code::ChunkNumber], |store| {
            let (at, other) = (store.chunk("large"), store.chunk("cut"));
            store.put(at, store.load(other));
            store.sum_chunk(at);
        }),
        case("a chunk on no list", &[Code::ChunkList], |store| {
            // The list goes on behind it.
            let (large, head) = (store.chunk("large"), STATE_ROOTS.plus(root::DUE * WORD));
            let mut hook = head;
            while store.target(store.load(hook)) != large {
                hook = store.target(store.load(hook)).plus(chunk::word::LIST);
            }
            let next = store.load(large.plus(chunk::word::LIST)) & !chunk::WHOLE;
            store.put(hook, if hook == head && next == chunk::LAST { 0 } else { next });
        }),
        case("pages of a large file", &[Code::InodePages], |store| {
            let pages = store.field("large", word::PAGES);
            store.set_inode("large", word::PAGES, pages + 1);
        }),
    ]
}

/// Where the attributes of a file are.
pub(super) fn attributes_at(store: &Store, name: &str) -> Offset {
    store.target(store.field(name, word::ATTRIBUTES))
}

fn attributes() -> Vec<Case> {
    vec![
        case("attributes of no length", &[Code::AttributesLength], |store| {
            store.put(attributes_at(store, "some-attributes"), 15);
        }),
        case("attributes longer than their object", &[Code::AttributesLength], |store| {
            store.put(attributes_at(store, "some-attributes"), 1 << 20);
        }),
        case(
            "few attributes in a run",
            &[Code::AttributesLength, Code::PageUnreachable],
            |store| {
                store.put(attributes_at(store, "many-attributes"), 2048);
            },
        ),
        case("another value", &[Code::AttributesChecksum], |store| {
            let at = attributes_at(store, "many-attributes").plus(400);
            store.put_byte(at, 0);
        }),
        case("no items", &[Code::AttributesItems], |store| {
            let at = attributes_at(store, "some-attributes");
            store.put(at, 16);
            store.sum_attributes(at);
        }),
        case("a name twice", &[Code::AttributesItems], |store| {
            let at = attributes_at(store, "some-attributes");
            // The second name: after the first item, at its own item's end.
            store.put_byte(at.plus(16 + 8 + 6 + 3 + 8 + 5), b'a');
            store.sum_attributes(at);
        }),
        case("half an item", &[Code::AttributesItems], |store| {
            let at = attributes_at(store, "some-attributes");
            store.put(at, store.load(at) - 1);
            store.sum_attributes(at);
        }),
        case("a value that is too large", &[Code::AttributesItems], |store| {
            let at = attributes_at(store, "large-attributes");
            let value = store.load(at) - 16 - 8 - 6;
            store.put(at.plus(16), value | 6 << 32);
            store.sum_attributes(at);
        }),
        case("a value without end", &[Code::AttributesItems], |store| {
            let at = attributes_at(store, "some-attributes");
            store.put(at.plus(16), u64::from(u32::MAX) | 6 << 32);
            store.sum_attributes(at);
        }),
        case("a list without others", &[Code::AccessList], |store| {
            let at = attributes_at(store, "listed");
            // The tag of the last entry.
            let last = at.plus(16 + 8 + 23 + 4 + 4 * 8);
            assert_eq!(store.byte(last), 0x20);
            store.put_byte(last, 0x10);
            store.sum_attributes(at);
        }),
        case("a default list of a file", &[Code::AccessList], |store| {
            let word = store.field("default", word::ATTRIBUTES);
            store.set_inode("default", word::ATTRIBUTES, 0);
            store.set_inode("empty", word::ATTRIBUTES, word);
        }),
        case("another mode than the list's", &[Code::AccessListMode], |store| {
            let mode = store.field("listed", word::MODE);
            store.set_inode("listed", word::MODE, mode ^ 0o100);
        }),
    ]
}
