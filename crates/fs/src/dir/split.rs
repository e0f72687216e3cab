//! Making room: a full bucket is replaced by two.

use conquest_format::WORD;
use conquest_format::fs::BUCKET;
use conquest_format::fs::bucket::{GRANULE, Header};
use conquest_format::fs::dentry::{HASH_BITS, granules};
use conquest_format::fs::node::{BITS, SLOTS, Slot, slots_filled};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::bucket::{Bucket, Tags};
use crate::dir::insert::Vacancy;
use crate::dir::page::NewBucket;
use crate::dir::path::{Path, slot_at, span};
use crate::dir::{Directory, Name, NameHash, Node};
use crate::error::corrupt;
use crate::{Reader, Result};

/// What [`Directory::make_room`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Room {
    /// Nothing: there is room, or the name exists.
    There,
    /// A split is staged: commit it and ask again.
    Staged,
}

impl<N: NameHash> Directory<N> {
    /// Stages one step towards room for an entry named `name`, if there is none: the bucket is
    /// split. The transaction holds the directory's lock exclusively. A split alters what is where,
    /// but no entry. It takes at most 70 journal entries, two pages and a node.
    ///
    /// # Errors
    /// [`crate::Error::Collisions`] if no split would help; those of the region, of which
    /// [`conquest_pm::Error::Corrupt`] names what is damaged.
    pub fn make_room<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        name: &Name<'_>,
    ) -> Result<Room> {
        let path = self.descend(tx, name.hash())?;
        let Some(at) = path.bucket else {
            return Ok(Room::There);
        };
        let bucket = Bucket::open(tx, at, path.hash, path.len)?;
        let tags = bucket.tags(tx);
        match self.vacancy(tx, &bucket, &tags, name)? {
            Vacancy::Taken(_) | Vacancy::Free(..) => return Ok(Room::There),
            Vacancy::Full => {}
        }
        let halves = self.divide(tx, &bucket, &tags, name)?;
        let (mut slots, mut pages) = ([Slot::Empty; 2], -1);
        for ((half, slot), bit) in halves.into_iter().zip(&mut slots).zip(0..) {
            if !half.is_empty() {
                let header = half_of(bucket.header, bit);
                *slot = Slot::Bucket(half.finish(tx, header)?);
                pages += 1;
            }
        }
        self.link(tx, &path, bucket.header.depth(), slots)?;
        tx.free_run(bucket.at, 1, BUCKET)?;
        self.count(tx, self.root.pages, pages)?;
        Ok(Room::Staged)
    }

    /// The dentries of `bucket`, by the hash bit after its prefix.
    fn divide(
        &self,
        reader: &impl Reader,
        bucket: &Bucket,
        tags: &Tags,
        name: &Name<'_>,
    ) -> Result<[NewBucket; 2]> {
        let mut halves = [NewBucket::new(), NewBucket::new()];
        let (mut all, mut same) = (0, 0);
        for granule in tags.heads() {
            let dentry = bucket.dentry(reader, granule)?;
            let hash = dentry.position.hash();
            all += 1;
            same += u64::from(hash == name.hash());
            let [low, high] = &mut halves;
            let second = half_of(bucket.header, 1).covers(hash);
            let count = granules(u64::from(dentry.name_len));
            let words = (0..count * GRANULE / WORD)
                .map(|index| reader.word(bucket.granule(granule).plus(index * WORD)));
            let half = if second { high } else { low };
            // Damaged dentries may be in each other, and so too many.
            if !bucket.header.covers(hash) || !half.add(tags.get(granule), count, words) {
                let (at, expected) = (bucket.granule(granule), "a dentry that leads to its bucket");
                return Err(corrupt("directory entry", at, expected, hash).into());
            }
        }
        // At the last depth all hashes of a bucket are the same.
        if all == same {
            return Err(self.collisions(name, same));
        }
        Ok(halves)
    }

    /// Stages that `halves` take the place of the bucket of depth `depth` at the end of `path`.
    fn link<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        path: &Path,
        depth: u32,
        halves: [Slot; 2],
    ) -> Result<()> {
        let [low, high] = halves;
        if depth == BITS * path.len {
            // The bucket has a slot, or the root, to itself: a node takes its place.
            let node = tx.alloc::<Node>()?;
            for index in 0..SLOTS {
                let slot = if index < SLOTS / 2 { low } else { high };
                tx.fill_word(&node, index, slot.pack())?;
            }
            let node = tx.seal(node);
            return Ok(tx.set(self.cell(path, path.len), Slot::Node(node.offset()).pack())?);
        }
        let Some((level, node, slot)) = path.last() else {
            return Ok(());
        };
        let span = span(slot, slots_filled(depth, level));
        let middle = span.start + (span.end - span.start) / 2;
        for index in span {
            let half = if index < middle { low } else { high };
            tx.set(slot_at(node, index), half.pack())?;
        }
        Ok(())
    }
}

/// The header of one half of what `header` covers: the lower one for bit 0.
fn half_of(header: Header, bit: u64) -> Header {
    let depth = (header.depth() + 1).min(HASH_BITS);
    Header::new(depth, header.first() | bit << (HASH_BITS - depth))
}
