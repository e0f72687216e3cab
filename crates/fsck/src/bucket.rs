//! A bucket: its header, its tags and its dentries.

use conquest_format::fs::INODE;
use conquest_format::fs::bucket::{FIRST, GRANULE, GRANULES, Header, TAG_FREE, TAG_MORE, tag};
use conquest_format::fs::dentry::{
    DUP_BITS, FileType, granules, hash_of, is_name, name_len_of, position_of,
};
use conquest_format::fs::node::slots_filled;
use conquest_format::{Offset, PAGE, WORD};
use siphasher::sip::SipHasher13;

use crate::check::Check;
use crate::directory::Visit;
use crate::inodes::NONE;
use crate::report::Hex;
use crate::{Code, View};

/// Bits of a name's hash that are not used.
const UNUSED_BITS: u32 = 16;
/// Offset of the first byte of a dentry's name.
const NAME: u64 = GRANULE;

/// A bucket's bytes, and where they stand.
struct Bucket {
    at: Offset,
    bytes: [u8; PAGE as usize],
}

/// A dentry whose length is possible.
struct Entry<'b> {
    /// Position number: hash and dup.
    position: u64,
    at: Offset,
    name: &'b [u8],
    /// The type that it says its inode has, if there is such a type.
    file_type: Option<FileType>,
    /// Pointer word to the inode.
    inode: u64,
}

impl Bucket {
    fn at(&self, granule: u64) -> Offset {
        self.at.plus(granule * GRANULE)
    }

    fn tag(&self, granule: u64) -> u8 {
        // The tag of granule `g` is byte `g`; there are none for the granules that hold the tags.
        self.bytes.get(granule as usize).copied().unwrap_or(TAG_FREE)
    }

    fn word(&self, granule: u64, index: u64) -> u64 {
        let at = (granule * GRANULE + index * WORD) as usize;
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        u64::from_le_bytes(*word.unwrap_or(&[0; WORD as usize]))
    }

    /// How many granules follow `granule` that are not the first of a dentry.
    fn more(&self, granule: u64) -> u64 {
        let after = granule + 1..GRANULES;
        after.take_while(|granule| self.tag(*granule) == TAG_MORE).count() as u64
    }
}

/// Where a bucket is in its directory.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The first hash that leads there.
    pub(crate) first: u64,
    /// Level of the node whose slot leads there; none if that is the root.
    pub(crate) level: Option<u32>,
}

impl Place {
    /// Whether a bucket with this header can be there.
    fn fits(self, header: Header) -> bool {
        let has_depth = match self.level {
            None => header.depth() == 0,
            Some(level) => slots_filled(header.depth(), level) != 0,
        };
        has_depth && header.first() == self.first
    }
}

/// Checks the bucket at `at` of a directory; its header, if it is one for its place.
pub(crate) fn check<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    visit: &mut Visit,
    at: Offset,
    place: Place,
) -> Option<Header> {
    let mut bucket = Bucket { at, bytes: [0; PAGE as usize] };
    check.bytes.copy(at, &mut bucket.bytes);
    let word = bucket.word(0, 0);
    let header = Header::unpack(word).filter(|header| place.fits(*header));
    if header.is_none() {
        let expected = format_args!("prefix {:#x}, and a depth for where it is", place.first);
        check.find(Code::BucketHeader, visit.number, at, expected, Hex(word));
    }
    let mut entries = Vec::new();
    let before = visit.entries;
    let mut granule = FIRST;
    while granule < GRANULES {
        let more = bucket.more(granule);
        match bucket.tag(granule) {
            TAG_FREE => granule += 1,
            TAG_MORE => {
                let at = at.plus(granule);
                check.find(Code::BucketTags, visit.number, at, "a dentry before it", TAG_MORE);
                granule += 1 + more;
            }
            _ => {
                visit.entries += 1;
                entries.extend(check_dentry(check, visit, &bucket, header, granule));
                granule += 1 + more;
            }
        }
    }
    if visit.entries == before {
        check.find(Code::BucketEmpty, visit.number, at, "a dentry", "none");
    }
    check_positions(check, visit.number, &mut entries);
    for entry in &entries {
        check_inode(check, visit, entry);
    }
    header
}

/// Checks the dentry that begins at `granule` by itself: what it says, if that is possible.
fn check_dentry<'b, V: View + ?Sized>(
    check: &mut Check<'_, V>,
    visit: &Visit,
    bucket: &'b Bucket,
    header: Option<Header>,
    granule: u64,
) -> Option<Entry<'b>> {
    let number = visit.number;
    let at = bucket.at(granule);
    let [inode, word] = [0, 1].map(|index| bucket.word(granule, index));
    let len = name_len_of(word);
    let count = granules(len);
    let file_type = FileType::new((word >> DUP_BITS) as u8 & 15);
    let is_inside = len != 0 && granule + count <= GRANULES;
    if !is_inside || file_type.is_none() {
        let expected = "a type, and a length that ends inside the page";
        check.find(Code::DentryFields, number, at.plus(WORD), expected, Hex(word));
    }
    if !is_inside {
        return None;
    }
    let found = bucket.tag(granule);
    let wanted = tag(hash_of(word));
    if found != wanted || bucket.more(granule) != count - 1 {
        let expected = format_args!("tag {wanted:#x}, then {} of 1", count - 1);
        let found = format_args!("tag {found:#x}, then {} of 1", bucket.more(granule));
        check.find(Code::BucketTags, number, bucket.at.plus(granule), expected, found);
    }
    let start = (granule * GRANULE + NAME) as usize;
    let end = ((granule + count) * GRANULE) as usize;
    let padded = bucket.bytes.get(start..end).unwrap_or_default();
    let (name, padding) = padded.split_at_checked(len as usize)?;
    if padding.iter().any(|byte| *byte != 0) {
        let at = at.plus(NAME + len);
        check.find(Code::DentryPadding, number, at, "zeros", padding.escape_ascii());
    }
    if !is_name(name) || matches!(name, b"." | b"..") {
        let expected = "neither . nor .., and no byte that is 0 or a slash";
        check.find(Code::DentryName, number, at.plus(NAME), expected, name.escape_ascii());
    }
    let hash = SipHasher13::new_with_keys(check.roots.key[0], check.roots.key[1]).hash(name);
    let hash = hash >> UNUSED_BITS;
    if hash != hash_of(word) || header.is_some_and(|header| !header.covers(hash)) {
        let expected = format_args!("{hash:#x}, in the bucket of that hash");
        check.find(Code::DentryHash, number, at.plus(WORD), expected, Hex(hash_of(word)));
    }
    let position = position_of(word).number();
    Some(Entry { position, at, name, file_type, inode })
}

/// Checks that no two entries have the same position or the same name.
fn check_positions<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    entries: &mut [Entry<'_>],
) {
    entries.sort_unstable_by_key(|entry| (entry.position, entry.at));
    for pair in entries.windows(2) {
        if let [one, other] = pair
            && one.position == other.position
        {
            let expected = format_args!("another position than that at {}", one.at);
            let found = Hex(other.position);
            check.find(Code::DentryPosition, number, other.at.plus(WORD), expected, found);
        }
    }
    let mut names: Vec<(&[u8], Offset)> = entries.iter().map(|one| (one.name, one.at)).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        if let [one, other] = pair
            && one.0 == other.0
        {
            let expected = format_args!("another name than that at {}", one.1);
            let found = format_args!("\"{}\"", other.0.escape_ascii());
            check.find(Code::DentryTwice, number, other.1.plus(NAME), expected, found);
        }
    }
}

/// Notes what the entry names, and whether it says the right type.
fn check_inode<V: View + ?Sized>(check: &mut Check<'_, V>, visit: &Visit, entry: &Entry<'_>) {
    let Some(target) = check.target(visit.number, entry.at, entry.inode, INODE) else { return };
    let rank = match check.rank_at(target) {
        Ok(rank) => rank,
        Err(wild) => return check.wild(visit.number, entry.at, target, INODE, wild),
    };
    let Some(named) = check.inodes.get_mut(rank) else { return };
    named.names = named.names.saturating_add(1);
    // Of several names of a directory the one in its parent counts, as its path.
    if named.named_by == NONE || named.parent == visit.number {
        (named.named_by, named.dentry) = (visit.rank, entry.at);
    }
    let (number, found) = (named.number, named.file_type);
    let is_directory = found.or(entry.file_type) == Some(FileType::Directory);
    if is_directory && let Some(directory) = check.inodes.get_mut(visit.rank) {
        directory.directories = directory.directories.saturating_add(1);
    }
    if let (Some(found), Some(said)) = (found, entry.file_type)
        && found != said
    {
        let at = entry.at.plus(WORD);
        let expected = format_args!("{found:?}");
        let said = format_args!("{said:?}");
        check.find(Code::DentryType, number, at, expected, said);
    }
}
