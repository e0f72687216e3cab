//! Checking every rule of a directory, for tools and tests.

use conquest_format::Offset;
use conquest_format::fs::bucket::{FIRST, GRANULES, TAG_DENTRY, TAG_FREE, TAG_MORE, tag};
use conquest_format::fs::dentry::{HASH_BITS, Position, granules};
use conquest_format::fs::node::{BITS, LEVELS, SLOTS, Slot, slots_filled};
use conquest_format::{WORD, fs};
use conquest_pm::Result;
use conquest_pm::check::Reachable;

use core::ops::ControlFlow;

use crate::Reader;
use crate::dir::bucket::{Bucket, Tags};
use crate::dir::path::{read_slot, resolve_node, slot_at, span};
use crate::dir::{Directory, Entry, NameHash};
use crate::error::corrupt;

/// What a directory consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Entries.
    pub entries: u64,
    /// Buckets: pages.
    pub buckets: u64,
    /// Nodes.
    pub nodes: u64,
}

/// A check under way: what it has seen, and whom it tells.
struct Walk<'a, R, F> {
    reader: &'a R,
    reachable: &'a mut Reachable,
    visit: F,
    census: Census,
}

impl<N: NameHash> Directory<N> {
    /// Checks the whole directory, adds what it consists of to `reachable`, and gives `visit` every
    /// entry with its name, in the order of positions. The directory's inode and those that entries
    /// name are not looked at. Nobody may change the directory meanwhile.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] for the first rule that is broken.
    pub fn check(
        &self,
        reader: &impl Reader,
        reachable: &mut Reachable,
        visit: impl FnMut(&Entry, &[u8]),
    ) -> Result<Census> {
        let mut walk = Walk { reader, reachable, visit, census: Census::default() };
        match read_slot(reader, self.root.content)? {
            Slot::Empty => {}
            Slot::Bucket(at) => {
                self.check_bucket(&mut walk, at, 0, 0)?;
            }
            Slot::Node(at) => self.check_node(&mut walk, at, 0, 0)?,
        }
        let census = walk.census;
        for (at, count) in [(self.root.entries, census.entries), (self.root.pages, census.buckets)]
        {
            if reader.word(at) != count {
                return Err(corrupt("directory's count", at, "what there is", reader.word(at)));
            }
        }
        Ok(census)
    }

    /// Checks the node at `node` of level `level`, to which `hash` leads first.
    fn check_node<R: Reader, F: FnMut(&Entry, &[u8])>(
        &self,
        walk: &mut Walk<'_, R, F>,
        node: Offset,
        level: u32,
        hash: u64,
    ) -> Result<()> {
        let wrong = |at, expected, found| Err(corrupt("directory node", at, expected, found));
        if level >= LEVELS {
            return wrong(node, "at most seven nodes on the way to a bucket", level.into());
        }
        resolve_node(walk.reader, node)?;
        walk.reachable.object(node);
        walk.census.nodes += 1;
        let (mut index, mut used) = (0, false);
        while index < SLOTS {
            let at = slot_at(node, index);
            let rest = HASH_BITS + 1 - BITS * (level + 1);
            let hash = hash | index << rest >> 1;
            let slot = read_slot(walk.reader, at)?;
            used |= slot != Slot::Empty;
            let width = match slot {
                Slot::Empty => 1,
                Slot::Node(below) => {
                    self.check_node(walk, below, level + 1, hash)?;
                    1
                }
                Slot::Bucket(bucket) => {
                    let depth = self.check_bucket(walk, bucket, level + 1, hash)?;
                    slots_filled(depth, level)
                }
            };
            let same = |index| walk.reader.word(slot_at(node, index)) == slot.pack();
            if span(index, width).start != index || !(index..index + width).all(same) {
                return wrong(at, "all slots of a bucket, and no other", slot.pack());
            }
            index += width;
        }
        if used { Ok(()) } else { wrong(node, "a slot that is not empty", 0) }
    }

    /// Checks the bucket at `at`, to which `hash` leads first, past `nodes` nodes; its depth.
    fn check_bucket<R: Reader, F: FnMut(&Entry, &[u8])>(
        &self,
        walk: &mut Walk<'_, R, F>,
        at: Offset,
        nodes: u32,
        hash: u64,
    ) -> Result<u32> {
        let bucket = Bucket::open(walk.reader, at, hash, nodes)?;
        walk.reachable.run(at, 1);
        walk.census.buckets += 1;
        if bucket.header.first() != hash {
            let expected = "the slots of its prefix";
            return Err(corrupt("directory bucket", at, expected, bucket.header.pack()));
        }
        let tags = bucket.tags(walk.reader);
        check_tags(walk.reader, &bucket, &tags)?;
        let before = walk.census.entries;
        let mut last = None;
        let Walk { reader, visit, census, .. } = walk;
        let mut twice = None;
        let flow = self.list_bucket(*reader, &bucket, Position::START, &mut |entry, name| {
            if last == Some(entry.position) {
                twice = Some(entry.position);
                return ControlFlow::Break(());
            }
            last = Some(entry.position);
            census.entries += 1;
            visit(entry, name);
            ControlFlow::Continue(())
        })?;
        match twice {
            Some(position) => {
                let expected = "positions that differ";
                Err(corrupt("directory bucket", at, expected, position.number()))
            }
            None if census.entries == before || flow.is_break() => {
                Err(corrupt("directory bucket", at, "an entry", 0))
            }
            None => Ok(bucket.header.depth()),
        }
    }
}

/// Checks that the tags are those of the dentries, that names are padded with zeros, and that no
/// two are equal.
fn check_tags(reader: &impl Reader, bucket: &Bucket, tags: &Tags) -> Result<()> {
    let mut granule = FIRST;
    while granule < GRANULES {
        let at = bucket.granule(granule);
        let found = tags.get(granule);
        if found < TAG_DENTRY {
            if found != TAG_FREE {
                return Err(corrupt("tag in a directory", at, "a dentry before it", found.into()));
            }
            granule += 1;
            continue;
        }
        let dentry = bucket.dentry(reader, granule)?;
        let hash = dentry.position.hash();
        let count = granules(u64::from(dentry.name_len));
        let mut more = granule + 1..granule + count;
        if found != tag(hash) || !more.all(|granule| tags.get(granule) == TAG_MORE) {
            return Err(corrupt("tag in a directory", at, "that of its dentry", found.into()));
        }
        let name = |granule: u64| {
            let at = bucket.granule(granule + 1);
            let words = 0..(count - 1) * fs::bucket::GRANULE / WORD;
            words.map(move |index| reader.word(at.plus(index * WORD)))
        };
        let padding = name(granule).flat_map(u64::to_le_bytes).skip(dentry.name_len.into());
        if padding.into_iter().any(|byte| byte != 0) {
            return Err(corrupt("name in a directory", at, "zeros after it", found.into()));
        }
        for (other, word) in bucket.of_hash(reader, tags, hash) {
            let len = fs::dentry::name_len_of(word);
            let equal = other != granule && len == u64::from(dentry.name_len);
            if equal && name(other).eq(name(granule)) {
                return Err(corrupt("name in a directory", at, "names that differ", other));
            }
        }
        granule += count;
    }
    Ok(())
}
