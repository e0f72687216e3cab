//! Extended attributes (xattr(7)), access lists among them: all of a file's together are one
//! object, or one run, which is made as a whole, never changed, and replaced when one of them is.

use conquest_access::{Acl, AclKind};
use conquest_format::fs::attributes::{BYTES_MAX, CLASS, HEADER, Header, ITEM, Item};
use conquest_format::fs::{DATA, PACKED_SIZES, packed};
use conquest_format::inode::Inode;
use conquest_format::kind::Kind;
use conquest_format::{Offset, PAGE, pointer};
use conquest_pm::check::Reachable;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Place, Tx};

use crate::error::corrupt;
use crate::{Reader, Result};

/// The name of an access list.
pub(crate) const fn name_of(kind: AclKind) -> &'static [u8] {
    match kind {
        AclKind::Access => b"system.posix_acl_access",
        AclKind::Default => b"system.posix_acl_default",
    }
}

/// A file's attributes: names and values, in the order of the names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Attributes {
    items: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// Those of `inode`.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] if they are damaged.
    pub(crate) fn load(reader: &impl Reader, inode: &Inode) -> Result<Attributes> {
        let Some(place) = place(reader, inode.attributes)? else {
            return Ok(Attributes::default());
        };
        let mut bytes = vec![0; place.len() as usize];
        reader.bytes(place.offset(), &mut bytes);
        let wrong = || corrupt("attributes", place.offset(), "names and values", place.len());
        Ok(Attributes { items: unpack(&bytes).ok_or_else(wrong)? })
    }

    /// The value of `name`.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let place = self.items.binary_search_by(|(other, _)| other.as_slice().cmp(name)).ok()?;
        self.items.get(place).map(|(_, value)| value.as_slice())
    }

    /// Gives `name` a value, or none.
    pub(crate) fn set(&mut self, name: &[u8], value: Option<Vec<u8>>) {
        let found = self.items.binary_search_by(|(other, _)| other.as_slice().cmp(name));
        match (found, value) {
            (Ok(place), Some(value)) => {
                if let Some((_, old)) = self.items.get_mut(place) {
                    *old = value;
                }
            }
            (Ok(place), None) => _ = self.items.remove(place),
            (Err(place), Some(value)) => self.items.insert(place, (name.to_vec(), value)),
            (Err(_), None) => {}
        }
    }

    /// The names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().map(|(name, _)| name.as_slice())
    }

    /// The list `kind`, if there is one.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] if it is none.
    pub(crate) fn list(&self, kind: AclKind) -> Result<Option<Acl>> {
        let Some(value) = self.get(name_of(kind)) else {
            return Ok(None);
        };
        let len = value.len() as u64;
        let wrong = |_| corrupt("attributes", Offset::NONE, "an access list", len);
        Ok(Acl::from_xattr(value).map_err(wrong)?)
    }

    /// Stages them: the word of an inode that leads to them; none if they are too many.
    pub(crate) fn stage<M: Memory, H: Host>(&self, tx: &mut Tx<'_, M, H>) -> Result<Option<u64>> {
        if self.items.is_empty() {
            return Ok(Some(0));
        }
        let bytes = pack(&self.items);
        let len = bytes.len() as u64;
        if len > BYTES_MAX {
            return Ok(None);
        }
        let class = PACKED_SIZES.iter().position(|&size| len <= size);
        let Some((class, kind)) = class.and_then(|class| Some((class, packed(class)?))) else {
            let mut run = tx.alloc_run(DATA, len.div_ceil(PAGE), None)?;
            tx.append(&mut run, &bytes)?;
            return Ok(Some(pointer::pack(tx.finish_run(run), DATA)));
        };
        let fresh = tx.alloc_untyped(kind)?;
        tx.fill(&fresh, 0, &bytes)?;
        let word = pointer::pack(tx.seal_untyped(fresh), kind);
        Ok(Some(word | (class as u64 + 1)))
    }
}

/// The bytes of an item.
fn pack_item(bytes: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let item = Item { name: name.len() as u64, value: value.len() as u64 };
    bytes.extend(item.pack().to_le_bytes());
    bytes.extend(name);
    bytes.extend(value);
}

fn pack(items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER as usize];
    for (name, value) in items {
        pack_item(&mut bytes, name, value);
    }
    let header = Header::of(&bytes).pack();
    for (to, word) in bytes.chunks_exact_mut(8).zip(header) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The names and values in `bytes`, all that there are; none if they are damaged.
fn unpack(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if [word(0)?, word(8)?] != Header::of(bytes).pack() {
        return None;
    }
    let mut items: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut at = HEADER as usize;
    while at < bytes.len() {
        let item = Item::unpack(word(at)?);
        let name = at + ITEM as usize;
        let value = name + item.name as usize;
        let end = value + item.value as usize;
        let name = bytes.get(name..value)?;
        if name.is_empty() || items.last().is_some_and(|(last, _)| last.as_slice() >= name) {
            return None;
        }
        items.push((name.to_vec(), bytes.get(value..end)?.to_vec()));
        at = end;
    }
    Some(items)
}

/// What an inode's word leads to: a class of packed objects, or a run; and where it is.
fn target(word: u64) -> conquest_pm::Result<(Offset, Kind)> {
    let wrong = || corrupt("attributes", Offset::NONE, "a pointer to them", word);
    let class = word & CLASS;
    let kind = match class {
        0 => DATA,
        class => packed(class as usize - 1).ok_or_else(wrong)?,
    };
    let at = pointer::unpack(word & !CLASS, kind).filter(|at| !at.is_none());
    Ok((at.ok_or_else(wrong)?, kind))
}

/// Where the attributes of the inode's word `word` are, their bytes only; none if there are none.
fn place(reader: &impl Reader, word: u64) -> conquest_pm::Result<Option<Place>> {
    if word == 0 {
        return Ok(None);
    }
    let (at, kind) = target(word)?;
    let first = match kind {
        DATA => reader.core().resolve_run(at, 1, DATA)?,
        kind => reader.core().resolve_kind(at, kind)?,
    };
    let len = reader.word(at);
    let wrong = || corrupt("attributes", at, "a possible length", len);
    if !(HEADER..=BYTES_MAX).contains(&len) {
        return Err(wrong());
    }
    let whole = match kind {
        DATA => reader.core().resolve_run(at, len.div_ceil(PAGE), DATA)?,
        _ => first,
    };
    whole.part(0, len).ok_or_else(wrong).map(Some)
}

/// Stages that the attributes of the inode's word `word` are no more.
///
/// # Errors
/// Those of the region.
pub(crate) fn free<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, word: u64) -> Result<()> {
    if let Some(place) = place(tx, word)? {
        match target(word)? {
            (at, DATA) => tx.free_run(at, place.len().div_ceil(PAGE), DATA)?,
            (at, kind) => tx.free_untyped(at, kind)?,
        }
    }
    Ok(())
}

/// Adds the attributes of the inode's word `word` to `reachable`.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if they are not there.
pub(crate) fn reach(reader: &impl Reader, word: u64, reachable: &mut Reachable) -> Result<()> {
    if let Some(place) = place(reader, word)? {
        match target(word)? {
            (at, DATA) => reachable.run(at, place.len().div_ceil(PAGE)),
            (at, _) => reachable.object(at),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_some_and_in_order() {
        let items = |names: &[&str]| -> Vec<(Vec<u8>, Vec<u8>)> {
            names.iter().map(|name| (name.as_bytes().to_vec(), b"value".to_vec())).collect()
        };
        for good in [&["a", "b"][..], &["a"], &["a", "aa", "b"]] {
            assert_eq!(unpack(&pack(&items(good))), Some(items(good)));
        }
        for bad in [&["b", "a"][..], &["a", "a"], &[""], &["", "a"]] {
            assert_eq!(unpack(&pack(&items(bad))), None, "{bad:?}");
        }
        let mut bytes = pack(&items(&["a"]));
        bytes[HEADER as usize + ITEM as usize] ^= 1;
        assert_eq!(unpack(&bytes), None);
    }
}
