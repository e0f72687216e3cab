//! A directory's root, nodes and buckets: the radix over the hashes of names.

use conquest_format::fs::node::{BITS, LEVELS, SLOTS, Slot, slots_filled};
use conquest_format::fs::{BUCKET, NODE, dentry::HASH_BITS};
use conquest_format::inode::{offset_of, word};
use conquest_format::{Offset, WORD};

use crate::check::Check;
use crate::inodes::Place;
use crate::report::Hex;
use crate::{Code, View, bucket};

/// A directory whose entries are looked at.
pub(crate) struct Visit {
    /// Rank of its inode.
    pub(crate) rank: usize,
    /// Number of its inode.
    pub(crate) number: u64,
    /// Entries found.
    pub(crate) entries: u64,
    /// Buckets found, or led to.
    buckets: u64,
}

/// A node that is still to be looked at.
struct Left {
    /// The slot that leads to it.
    hook: Offset,
    node: Offset,
    level: u32,
    /// The first hash that leads there.
    first: u64,
}

/// Checks the directory at `place`: what it consists of, and which inodes it names.
pub(crate) fn check<V: View + ?Sized>(check: &mut Check<'_, V>, place: &Place) {
    let Some(number) = check.inodes.get(place.rank).map(|state| state.number) else { return };
    let Some(at) = offset_of(number) else { return };
    let mut visit = Visit { rank: place.rank, number, entries: 0, buckets: 0 };
    let hook = at.plus(word::CONTENT);
    let mut left = Vec::new();
    match Slot::unpack(place.root) {
        Some(Slot::Empty) => {}
        Some(Slot::Bucket(target)) => {
            let place = bucket::Place { first: 0, level: None };
            check_bucket(check, &mut visit, hook, target, place);
        }
        Some(Slot::Node(node)) => left.push(Left { hook, node, level: 0, first: 0 }),
        None => wrong_slot(check, number, hook, place.root),
    }
    while let Some(node) = left.pop() {
        check_node(check, &mut visit, &node, &mut left);
    }
    check.counts.entries += visit.entries;
    let counts = [
        (Code::DirectoryEntries, word::SIZE, visit.entries, place.entries),
        (Code::InodePages, word::PAGES, visit.buckets, place.pages),
    ];
    for (code, word, found, said) in counts {
        if found != said {
            check.find(code, number, at.plus(word), found, said);
        }
    }
}

fn wrong_slot<V: View + ?Sized>(check: &mut Check<'_, V>, number: u64, at: Offset, word: u64) {
    let expected = "0, or a pointer to a bucket, or to a node of level 6 or less";
    check.find(Code::DirectorySlot, number, at, expected, Hex(word));
}

/// Checks a node, and the buckets to which it leads; other nodes are `left` for later.
fn check_node<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    visit: &mut Visit,
    here: &Left,
    left: &mut Vec<Left>,
) {
    let Left { hook, node, level, first } = *here;
    if level >= LEVELS {
        return wrong_slot(check, visit.number, hook, check.bytes.load(hook));
    }
    if !check.reach_object(visit.number, hook, node, NODE) {
        return;
    }
    let words: [u64; SLOTS as usize] = check.bytes.words(node);
    if words.iter().all(|word| *word == 0) {
        check.find(Code::DirectoryNode, visit.number, node, "a slot that is not 0", "none");
    }
    let mut index = 0;
    let mut seen = Vec::new();
    while let Some(&word) = words.get(index) {
        let hook = node.plus(index as u64 * WORD);
        let first = first | (index as u64) << (HASH_BITS + 1 - BITS * (level + 1)) >> 1;
        let alike = words.iter().skip(index).take_while(|other| **other == word).count();
        let mut width = 1;
        match Slot::unpack(word) {
            Some(Slot::Empty) => {}
            Some(Slot::Node(node)) => left.push(Left { hook, node, level: level + 1, first }),
            Some(Slot::Bucket(_)) if seen.contains(&word) => {
                width = alike;
                let expected = "all slots of a bucket in a row";
                check.find(Code::DirectorySlots, visit.number, hook, expected, "slots apart");
            }
            Some(Slot::Bucket(target)) => {
                width = alike;
                seen.push(word);
                let place = bucket::Place { first, level: Some(level) };
                let depth = check_bucket(check, visit, hook, target, place);
                let slots = depth.map(|depth| slots_filled(depth, level));
                if slots.is_some_and(|slots| slots != width as u64) {
                    let expected = format_args!("{} slots in a row", slots.unwrap_or(0));
                    check.find(Code::DirectorySlots, visit.number, hook, expected, width);
                }
            }
            None => wrong_slot(check, visit.number, hook, word),
        }
        index += width;
    }
}

/// Checks the bucket at `target`, to which the slot at `hook` leads. The bucket's depth, if its
/// header is one for its place.
fn check_bucket<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    visit: &mut Visit,
    hook: Offset,
    target: Offset,
    place: bucket::Place,
) -> Option<u32> {
    visit.buckets += 1;
    if !check.reach_run(visit.number, hook, (target, 1), BUCKET) {
        return None;
    }
    bucket::check(check, visit, target, place).map(|header| header.depth())
}
