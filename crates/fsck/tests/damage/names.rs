//! Damage of directories: nodes, buckets, dentries, and what they say together.

use conquest_format::fs::bucket::{GRANULE, Header, TAG_DENTRY};
use conquest_format::fs::node::{SLOTS, Slot};
use conquest_format::fs::{INODE, NODE};
use conquest_format::inode::word;
use conquest_format::{Offset, PAGE, WORD, pointer};
use conquest_fsck::Code;

use super::{Case, Store, case};
use crate::support::{BUCKET, DEEP, WIDE, geometry};

pub(super) fn cases() -> Vec<Case> {
    [names(), nodes(), buckets(), dentries()].concat()
}

/// The bucket in which the dentry of `name` stands, and its granule there.
fn place(store: &Store, name: &str) -> (Offset, u64) {
    let at = store.dentry(name).bytes();
    (Offset::new(at / PAGE * PAGE), at % PAGE / GRANULE)
}

/// Takes the dentry of `name` out of its bucket.
fn untag(store: &mut Store, name: &str) {
    let (bucket, granule) = place(store, name);
    store.put_byte(bucket.plus(granule), 0);
    let mut next = bucket.plus(granule + 1);
    while store.byte(next) == 1 {
        store.put_byte(next, 0);
        next = next.plus(1);
    }
}

/// Removes the name of a file in the root directory, and nothing else.
pub(super) fn lose(store: &mut Store, name: &str) {
    untag(store, name);
    let entries = store.field("/", word::SIZE);
    store.set_inode("/", word::SIZE, entries - 1);
}

/// Makes the entry `name` that of another file, of type `file_type`.
fn lead(store: &mut Store, name: &str, inode: Offset, file_type: u64) {
    let at = store.dentry(name);
    store.put(at, pointer::pack(inode, INODE));
    let word = store.load(at.plus(WORD));
    store.put(at.plus(WORD), word & !0xF0 | file_type << 4);
}

fn names() -> Vec<Case> {
    vec![
        case("another parent", &[Code::DirectoryParent], |store| {
            store.set_inode("child", word::PARENT, store.number("/"));
        }),
        case("a root with another parent", &[Code::DirectoryParent], |store| {
            store.set_inode("/", word::PARENT, store.number("child"));
        }),
        case("a directory twice", &[Code::DirectoryNames, Code::InodeLinks, Code::InodeLost], {
            |store| lead(store, "fifo", store.at("child"), 4)
        }),
        case("a root with a name", &[Code::DirectoryNames, Code::InodeLinks, Code::InodeLost], {
            |store| lead(store, "fifo", store.at("/"), 4)
        }),
        case(
            "a circle",
            &[Code::DirectoryLoop, Code::DirectoryParent, Code::InodeLinks, Code::InodeLost],
            |store| {
                lose(store, BUCKET);
                lead(store, "grandchild", store.at(BUCKET), 4);
            },
        ),
        case("a file without a name", &[Code::InodeLost], |store| lose(store, "extent")),
        case("a directory without a name", &[Code::InodeLost, Code::InodeLinks], |store| {
            lose(store, "no-entries");
            let links = store.field("/", word::LINKS);
            store.set_inode("/", word::LINKS, links - 1);
            store.set_inode("no-entries", word::LINKS, 3);
        }),
        case("a file that is only open", &[Code::InodeUnnamed], |store| {
            lose(store, "extent");
            store.set_inode("extent", word::LINKS, 0);
        }),
        case("one entry more", &[Code::DirectoryEntries], |store| {
            let entries = store.field(WIDE, word::SIZE);
            store.set_inode(WIDE, word::SIZE, entries + 1);
        }),
        case("one bucket more", &[Code::InodePages], |store| {
            let pages = store.field(WIDE, word::PAGES);
            store.set_inode(WIDE, word::PAGES, pages + 1);
        }),
        case("another type", &[Code::DentryType], |store| {
            lead(store, "fifo", store.at("fifo"), 12);
        }),
        case("an inode that is free", &[Code::PointerFree, Code::InodeLost], |store| {
            let (_, _, free) = store.free_object(INODE);
            lead(store, "fifo", free, 1);
        }),
        case("an inode nowhere", &[Code::PointerPlace, Code::InodeLost], |store| {
            lead(store, "fifo", Offset::new(1 << 46), 1);
        }),
        case("no pointer", &[Code::PointerCheck, Code::InodeLost], |store| {
            let at = store.dentry("fifo");
            store.put(at, store.load(at) ^ 1 << 50);
        }),
    ]
}

/// The slots of the first node of a directory.
fn slots(store: &Store, name: &str) -> Vec<Offset> {
    let node = store.content(name);
    (0..SLOTS).map(|index| node.plus(index * WORD)).collect()
}

/// What is lost with the buckets behind a slot.
const LOST: &[Code] = &[
    Code::DirectorySlot,
    Code::DirectoryEntries,
    Code::InodePages,
    Code::PageUnreachable,
    Code::InodeLost,
];

/// What is lost if a bucket's slots are another one's.
const SWALLOWED: &[Code] = &[
    Code::DirectorySlots,
    Code::DirectoryEntries,
    Code::InodePages,
    Code::PageUnreachable,
    Code::InodeLost,
];

fn nodes() -> Vec<Case> {
    vec![
        case("no slot", LOST, |store| {
            let slots = slots(store, WIDE);
            let word = store.load(slots[0]);
            for slot in slots {
                if store.load(slot) == word {
                    store.put(slot, 0x7F00);
                }
            }
        }),
        case(
            "no root",
            &[
                Code::DirectorySlot,
                Code::DirectoryEntries,
                Code::InodePages,
                Code::PageUnreachable,
                Code::InodeLost,
                Code::InodeLinks,
            ],
            |store| {
                let root = store.field(BUCKET, word::CONTENT);
                store.set_inode(BUCKET, word::CONTENT, root ^ 1 << 55);
            },
        ),
        case("slots too many", SWALLOWED, swallow),
        case("a last slot too few", &[Code::DirectorySlots], last_slot),
        case("a slot too few", &[Code::DirectorySlots], |store| {
            let slots = slots(store, WIDE);
            assert_eq!(store.load(slots[0]), store.load(slots[1]));
            store.put(slots[1], 0);
        }),
        case("a slot of another bucket", &[Code::DirectorySlots, Code::BucketHeader], |store| {
            let slots = slots(store, WIDE);
            let other = slots.iter().find(|slot| store.load(**slot) != store.load(slots[0]));
            let other = store.load(*other.unwrap());
            store.put(slots[1], other);
        }),
        case(
            "a node without slots",
            &[Code::DirectoryNode, Code::DirectoryEntries, Code::InodePages],
            |store| {
                let node = free_node(store);
                for index in 0..SLOTS {
                    store.put(node.plus(index * WORD), 0);
                }
                for (word, value) in [(word::SIZE, 1), (word::PAGES, 1)] {
                    store.set_inode("no-entries", word, value);
                }
                store.set_inode("no-entries", word::CONTENT, Slot::Node(node).pack());
            },
        ),
        case("a node that leads to itself", &[Code::ObjectShared], |store| {
            let slots = slots(store, DEEP);
            let empty = slots.iter().find(|slot| store.load(**slot) == 0).unwrap();
            let node = store.content(DEEP);
            store.put(*empty, Slot::Node(node).pack());
        }),
        case(
            "nodes of eight levels",
            &[Code::DirectorySlot, Code::ObjectUnreachable],
            eight_levels,
        ),
    ]
}

/// Takes the last one of its slots from the first bucket of [`WIDE`].
fn last_slot(store: &mut Store) {
    let slots = slots(store, WIDE);
    let first = store.load(slots[0]);
    let last = slots.iter().rev().find(|slot| store.load(**slot) == first);
    store.put(*last.unwrap(), 0);
}

/// Gives the first bucket of [`WIDE`] the slots of the second one, too.
fn swallow(store: &mut Store) {
    let slots = slots(store, WIDE);
    let all: Vec<u64> = slots.iter().map(|slot| store.load(*slot)).collect();
    let next = all.iter().find(|word| **word != all[0]).unwrap();
    for slot in slots {
        if store.load(slot) == *next {
            store.put(slot, all[0]);
        }
    }
}

/// A node that is not allocated, which is made so.
fn free_node(store: &mut Store) -> Offset {
    let (map, index, node) = store.free_object(NODE);
    store.put(map, store.load(map) | 1 << index);
    node
}

/// Makes a chain of nodes, one below the other, below an empty slot of [`DEEP`].
fn eight_levels(store: &mut Store) {
    let empty = slots(store, DEEP).into_iter().find(|slot| store.load(*slot) == 0).unwrap();
    let mut hook = empty;
    // Slabs of nodes of their own, so that there are enough.
    for slab in 0..2 {
        let page = (0..512).rev().find(|page| {
            let word = geometry().bitmap(0).plus(page / 64 * 8);
            store.load(word) >> (page % 64) & 1 == 0
        });
        let page = page.unwrap();
        let descriptor = conquest_format::descriptor::Descriptor::Slab(NODE);
        store.put(geometry().descriptor(page), descriptor.pack(page));
        store.put(geometry().slab_map(page), 0xF);
        store.set_allocated(geometry().page(page), true);
        for index in 0..4 {
            let node = geometry().page(page).plus(index * 1024);
            (0..SLOTS).for_each(|slot| store.put(node.plus(slot * WORD), 0));
            store.put(hook, Slot::Node(node).pack());
            hook = node.plus(slab * WORD);
        }
    }
}

fn buckets() -> Vec<Case> {
    vec![
        case("no header", &[Code::BucketHeader], |store| {
            store.put(store.content(BUCKET), 0);
        }),
        case("the header of another place", &[Code::BucketHeader], |store| {
            let at = store.load(slots(store, WIDE)[0]);
            store.put(store.target(at), Header::new(7, 1 << 47).pack());
        }),
        case(
            "entries of another bucket",
            &[Code::DentryHash, Code::DirectoryEntries, Code::InodeLinks, Code::InodeLost],
            |store| {
                let slots = slots(store, WIDE);
                let all: Vec<u64> = slots.iter().map(|slot| store.load(*slot)).collect();
                let other = all.iter().find(|word| **word != all[0]).unwrap();
                let [to, from] = [all[0], *other].map(|word| store.target(word));
                for index in 1..PAGE / WORD {
                    store.put(to.plus(index * WORD), store.load(from.plus(index * WORD)));
                }
            },
        ),
        case("a deeper header", &[Code::BucketHeader], |store| {
            let at = store.content(BUCKET);
            store.put(at, Header::new(0, 0).pack() | 9 << 48);
        }),
        case("another tag", &[Code::BucketTags], |store| {
            let (bucket, granule) = place(store, "fifo");
            let at = bucket.plus(granule);
            store.put_byte(at, store.byte(at) ^ 0x80 | TAG_DENTRY);
        }),
        case("a granule more", &[Code::BucketTags], |store| {
            store.put_byte(store.content(BUCKET).plus(255), 1);
        }),
        case("a name without its granules", &[Code::BucketTags], |store| {
            let (bucket, granule) = place(store, "fifo");
            store.put_byte(bucket.plus(granule + 1), 0);
        }),
        case(
            "an empty bucket",
            &[Code::BucketEmpty, Code::DirectoryEntries, Code::InodeLost, Code::InodeLinks],
            |store| {
                let at = store.content(BUCKET);
                (16..256).for_each(|granule| store.put_byte(at.plus(granule), 0));
            },
        ),
    ]
}

/// Changes the second word of the dentry of `name`.
fn change(store: &mut Store, name: &str, change: impl Fn(u64) -> u64) {
    let at = store.dentry(name).plus(WORD);
    store.put(at, change(store.load(at)));
}

fn dentries() -> Vec<Case> {
    vec![
        case("no length", &[Code::DentryFields, Code::InodeLost], |store| {
            change(store, "fifo", |word| word & !0xFF00);
        }),
        case("no type", &[Code::DentryFields], |store| {
            change(store, "fifo", |word| word | 0xF0);
        }),
        case("a longer name", &[Code::DentryHash, Code::DentryName], |store| {
            change(store, "fifo", |word| word & !0xFF00 | 5 << 8)
        }),
        case("another hash", &[Code::DentryHash], |store| {
            change(store, "fifo", |word| word ^ 1 << 63);
        }),
        case("another fingerprint", &[Code::DentryHash, Code::BucketTags], |store| {
            change(store, "fifo", |word| word ^ 1 << 16);
        }),
        case("a slash", &[Code::DentryHash, Code::DentryName], |store| {
            let at = store.dentry("fifo").plus(GRANULE);
            store.put_byte(at, b'/');
        }),
        case(
            "a name of dots",
            &[Code::DentryHash, Code::DentryName, Code::DentryPadding],
            |store| {
                let at = store.dentry("fifo").plus(GRANULE);
                change(store, "fifo", |word| word & !0xFF00 | 2 << 8);
                store.put_byte(at, b'.');
                store.put_byte(at.plus(1), b'.');
            },
        ),
        case("bytes after a name", &[Code::DentryPadding], |store| {
            let at = store.dentry("fifo").plus(GRANULE + 9);
            store.put_byte(at, 1);
        }),
        case(
            "a position twice",
            &[Code::DentryPosition, Code::DentryHash, Code::BucketTags],
            |store| {
                let other = store.load(store.dentry("child").plus(WORD)) >> 16;
                change(store, "named", |word| word & 0xFFFF | other << 16);
            },
        ),
        case("a name twice", &[Code::DentryTwice], same_name),
        case("another dup", &[], |store| change(store, "fifo", |word| word ^ 1)),
    ]
}

/// Gives the second name of a file the bytes of its first one, with another dup.
fn same_name(store: &mut Store) {
    let named = store.dentry("named");
    let (bucket, granule) = place(store, "named");
    let tag = store.byte(bucket.plus(granule));
    let number = store.at("named");
    let again = (16..256).map(|granule| bucket.plus(granule * GRANULE));
    let is_again = |at: &Offset| store.load(*at) == pointer::pack(number, INODE) && *at != named;
    let again = again.clone().find(is_again).unwrap();
    for word in [1, 2, 3] {
        store.put(again.plus(word * WORD), store.load(named.plus(word * WORD)));
    }
    let word = store.load(again.plus(WORD));
    store.put(again.plus(WORD), word ^ 1);
    store.put_byte(bucket.plus(again.bytes() % PAGE / GRANULE), tag);
}
