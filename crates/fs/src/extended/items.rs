//! Attributes read where they are.

use conquest_access::{Acl, AclKind, VALUE_SMALL};
use conquest_format::fs::attributes::{HEADER, Header, ITEM, Item};
use conquest_format::inode::Inode;
use conquest_format::{Checksum, WORD};
use conquest_pm::Place;

use crate::buffer::Buffer;
use crate::error::corrupt;
use crate::extended::{name_of, place};
use crate::{Reader, Result};

/// Most bytes in a name.
const NAME_MAX: usize = 255;
/// Bytes that are looked at together.
const PIECE: u64 = 1024;

/// The attributes of an inode, one after the other, in the order of their names.
pub(crate) struct Items<'r, R: Reader> {
    reader: &'r R,
    /// All of them; none if there are none.
    place: Option<Place>,
    /// Where the next one begins.
    at: u64,
    /// The last one's name.
    name: [u8; NAME_MAX],
    len: usize,
}

impl<'r, R: Reader> Items<'r, R> {
    /// Those of `inode`.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] if they are damaged.
    pub(crate) fn open(reader: &'r R, inode: &Inode) -> Result<Items<'r, R>> {
        let place = place(reader, inode.attributes)?;
        if let Some(place) = place {
            check(reader, place)?;
        }
        Ok(Items { reader, place, at: HEADER, name: [0; NAME_MAX], len: 0 })
    }

    /// The next one's name, and where its value is.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] if there can't be such a one.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], Place)>> {
        let Some(all) = self.place.filter(|all| self.at < all.len()) else {
            return Ok(None);
        };
        let wrong = || corrupt("attributes", all.offset(), "names and values", all.len());
        let head = all.part(self.at, ITEM).ok_or_else(wrong)?;
        let mut word = [0; ITEM as usize];
        self.reader.bytes(head.offset(), &mut word);
        let item = Item::unpack(u64::from_le_bytes(word));
        let name_at = self.at + ITEM;
        let place = all.part(name_at, item.name).ok_or_else(wrong)?;
        let value = all.part(name_at + item.name, item.value).ok_or_else(wrong)?;
        let mut bytes = [0; NAME_MAX];
        let name = bytes.get_mut(..item.name as usize).unwrap_or_default();
        self.reader.bytes(place.offset(), name);
        // The first one comes after no name at all.
        if *name <= *self.name.get(..self.len).unwrap_or_default() {
            return Err(wrong().into());
        }
        self.len = name.len();
        self.name = bytes;
        self.at = name_at + item.name + item.value;
        Ok(Some((self.name.get(..self.len).unwrap_or_default(), value)))
    }

    /// Where the value of `name` is, if there is one.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn find(mut self, name: &[u8]) -> Result<Option<Place>> {
        while let Some((found, value)) = self.next()? {
            if found >= name {
                return Ok((found == name).then_some(value));
            }
        }
        Ok(None)
    }
}

/// Checks that the attributes at `place` are as their header says.
fn check(reader: &impl Reader, place: Place) -> Result<()> {
    let found = [0, WORD].map(|at| reader.word(place.offset().plus(at)));
    let mut piece = [0; PIECE as usize];
    let mut sum = Checksum::new(place.len());
    let mut at = HEADER;
    while let Some(part) = place.part(at, PIECE.min(place.len().saturating_sub(at)))
        && !part.is_empty()
    {
        let bytes = piece.get_mut(..part.len() as usize).unwrap_or_default();
        reader.bytes(part.offset(), bytes);
        sum.add(bytes);
        at += part.len();
    }
    let wanted = Header { len: place.len(), checksum: sum.finish() };
    if found == wanted.pack() {
        return Ok(());
    }
    Err(corrupt("attributes", place.offset(), "names and values", place.len()).into())
}

/// The list `kind` of `inode`, if it has one.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if its attributes are damaged, or this one is no list.
pub(crate) fn access_list(
    reader: &impl Reader,
    inode: &Inode,
    kind: AclKind,
) -> Result<Option<Acl>> {
    if inode.attributes == 0 {
        return Ok(None);
    }
    let Some(place) = Items::open(reader, inode)?.find(name_of(kind))? else {
        return Ok(None);
    };
    let mut value = Buffer::<VALUE_SMALL>::new(place.len() as usize);
    reader.bytes(place.offset(), &mut value);
    let wrong = |_| corrupt("attributes", place.offset(), "an access list", place.len());
    Ok(Acl::from_xattr(&value).map_err(wrong)?)
}
