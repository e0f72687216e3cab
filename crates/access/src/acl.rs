//! POSIX access control lists (acl(5)): what they are, and what they grant.

mod entries;

use crate::{Credentials, Errno};
use entries::{Entries, FEW};

/// Version of the attributes' format.
pub const VERSION: u32 = 2;

const HEADER: usize = 4;
const ENTRY: usize = 8;
/// Bytes of the largest value whose list takes no memory from the heap.
pub const VALUE_SMALL: usize = HEADER + FEW * ENTRY;
/// What stands in the place of an id where there is none.
const NO_ID: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Qualifier {
    /// The owning user.
    Owner,
    /// A user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A group.
    Group(u32),
    /// The most that users, groups and the owning group get.
    Mask,
    /// Everybody else.
    Other,
}

impl Qualifier {
    /// Tag and id, as an attribute has them.
    const fn pack(self) -> (u16, u32) {
        match self {
            Qualifier::Owner => (0x01, NO_ID),
            Qualifier::User(uid) => (0x02, uid),
            Qualifier::OwningGroup => (0x04, NO_ID),
            Qualifier::Group(gid) => (0x08, gid),
            Qualifier::Mask => (0x10, NO_ID),
            Qualifier::Other => (0x20, NO_ID),
        }
    }

    const fn unpack(tag: u16, id: u32) -> Option<Qualifier> {
        match tag {
            0x01 => Some(Qualifier::Owner),
            0x02 => Some(Qualifier::User(id)),
            0x04 => Some(Qualifier::OwningGroup),
            0x08 => Some(Qualifier::Group(id)),
            0x10 => Some(Qualifier::Mask),
            0x20 => Some(Qualifier::Other),
            _ => None,
        }
    }
}

/// One line of a list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Whom it is about.
    pub qualifier: Qualifier,
    /// Permissions, one digit of a mode; in a list below 8.
    pub permissions: u16,
}

/// A valid list: owner, users, owning group, groups, mask, others, in this order; users and groups
/// any number of times, a mask at most once and if there is a user or group, the rest once. A user
/// or group may come twice, which acl(5) forbids and the kernel does not; the first user counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acl {
    entries: Entries,
}

impl Acl {
    /// The list of `entries`.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if they are not valid.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Result<Acl, Errno> {
        Acl::of(entries.into_iter().collect())
    }

    /// [`Self::new`].
    pub(crate) fn of(entries: Entries) -> Result<Acl, Errno> {
        if is_valid(&entries) { Ok(Acl { entries }) } else { Err(Errno::EINVAL) }
    }

    /// The list that says the same as the permissions of `mode`.
    #[must_use]
    pub fn from_mode(mode: u32) -> Acl {
        let entry = |qualifier, shift: u32| Entry { qualifier, permissions: digit(mode, shift) };
        let owner = entry(Qualifier::Owner, 6);
        let entries = [owner, entry(Qualifier::OwningGroup, 3), entry(Qualifier::Other, 0)];
        Acl { entries: entries.into_iter().collect() }
    }

    /// The list in an attribute's value, in memory from the heap only if it is longer than
    /// [`VALUE_SMALL`]; none if the value is empty or has no entries.
    ///
    /// # Errors
    ///
    /// [`Errno::EOPNOTSUPP`] for another version, [`Errno::EINVAL`] for anything else.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, Errno> {
        decode(value)?.map(Acl::of).transpose()
    }

    /// The attribute's value: the version, then tag (2 bytes), permissions (2) and id (4) of each
    /// entry, all little-endian.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in self.entries() {
            let (tag, id) = entry.qualifier.pack();
            value.extend(tag.to_le_bytes());
            value.extend(entry.permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether permission bits can say the same: there are but owner, owning group and others.
    #[must_use]
    pub fn is_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// The nine permission bits that go with the list: the group's are the mask, if there is one.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.entries.iter().fold(0, |mode, entry| {
            let digit = u32::from(entry.permissions);
            match entry.qualifier {
                Qualifier::Owner => mode | digit << 6,
                Qualifier::OwningGroup => mode | digit << 3,
                // The mask comes after the owning group, and replaces it.
                Qualifier::Mask => mode & !0o70 | digit << 3,
                Qualifier::Other => mode | digit,
                Qualifier::User(_) | Qualifier::Group(_) => mode,
            }
        })
    }

    /// The list after its file's mode was changed to `mode`: the group's bits are the mask's, or
    /// the owning group's if there is no mask.
    #[must_use]
    pub fn with_mode(&self, mode: u32) -> Acl {
        self.map_class(|_, class| class, mode)
    }

    /// The list without what `mode` lacks.
    #[must_use]
    pub(crate) fn masked(&self, mode: u32) -> Acl {
        self.map_class(|own, class| own & class, mode)
    }

    /// Changes the entries that the mode's digits are about, by `change(own, digit)`.
    fn map_class(&self, change: impl Fn(u16, u16) -> u16, mode: u32) -> Acl {
        let has_mask = self.entries.iter().any(|entry| entry.qualifier == Qualifier::Mask);
        let changed = self.entries.iter().map(|entry| {
            let shift = match entry.qualifier {
                Qualifier::Owner => 6,
                Qualifier::Mask => 3,
                Qualifier::OwningGroup if !has_mask => 3,
                Qualifier::Other => 0,
                _ => return *entry,
            };
            Entry { permissions: change(entry.permissions, digit(mode, shift)), ..*entry }
        });
        Acl { entries: changed.collect() }
    }

    /// Whether `who`, who is not the owner, gets all of `wanted` of a file of group `gid`.
    pub(crate) fn grants(&self, who: &Credentials, gid: u32, wanted: u32) -> bool {
        let allows = |permissions: u16| wanted & !u32::from(permissions) == 0;
        let is_masked = |entry: &Entry| match entry.qualifier {
            Qualifier::Mask => allows(entry.permissions),
            _ => true,
        };
        let mut is_member = false;
        for entry in self.entries() {
            let is_about = match entry.qualifier {
                Qualifier::User(uid) => uid == who.fsuid,
                Qualifier::OwningGroup => who.is_in(gid),
                Qualifier::Group(gid) => who.is_in(gid),
                Qualifier::Other => return !is_member && allows(entry.permissions),
                Qualifier::Owner | Qualifier::Mask => false,
            };
            let is_user = matches!(entry.qualifier, Qualifier::User(_));
            // Of several groups, one that grants everything is enough.
            if is_about && (is_user || allows(entry.permissions)) {
                return allows(entry.permissions) && self.entries.iter().all(is_masked);
            }
            is_member |= is_about;
        }
        false
    }
}

/// Three bits of a mode.
const fn digit(mode: u32, shift: u32) -> u16 {
    (mode >> shift & 7) as u16
}

/// The entries in an attribute's value, valid or not; none if there are none.
pub(crate) fn decode(value: &[u8]) -> Result<Option<Entries>, Errno> {
    if value.is_empty() {
        return Ok(None);
    }
    let (version, rest) = value.split_first_chunk::<HEADER>().ok_or(Errno::EINVAL)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Errno::EOPNOTSUPP);
    }
    let (chunks, remainder) = rest.as_chunks::<ENTRY>();
    if !remainder.is_empty() {
        return Err(Errno::EINVAL);
    }
    let entry = |&[tag, tag_high, low, high, id @ ..]: &[u8; ENTRY]| {
        let tag = u16::from_le_bytes([tag, tag_high]);
        let qualifier = Qualifier::unpack(tag, u32::from_le_bytes(id)).ok_or(Errno::EINVAL)?;
        Ok(Entry { qualifier, permissions: u16::from_le_bytes([low, high]) })
    };
    let entries: Entries = chunks.iter().map(entry).collect::<Result<_, _>>()?;
    Ok((!entries.is_empty()).then_some(entries))
}

/// The entries with the users and groups that `who` means by their numbers.
pub(crate) fn meant_by(who: &Credentials, entries: &Entries) -> Result<Entries, Errno> {
    let mut known = Ok(());
    let meant = entries.iter().map(|entry| {
        let qualifier = match entry.qualifier {
            Qualifier::User(id) => who.user_meant(id).map(Qualifier::User),
            Qualifier::Group(id) => who.group_meant(id).map(Qualifier::Group),
            other => Ok(other),
        };
        let qualifier = qualifier.unwrap_or_else(|error| {
            known = Err(error);
            entry.qualifier
        });
        Entry { qualifier, ..*entry }
    });
    let meant = meant.collect();
    known.map(|()| meant)
}

/// Puts into an attribute's value, a list that is kept, the numbers by which `who` knows its users
/// and groups; for one whom his namespace does not know, `u32::MAX`.
pub fn show_list(who: &Credentials, value: &mut [u8]) {
    if who.namespace.is_none() {
        return;
    }
    let entries = value.get_mut(HEADER..).unwrap_or_default();
    for [tag, tag_high, _, _, id @ ..] in entries.as_chunks_mut::<ENTRY>().0 {
        let number = u32::from_le_bytes(*id);
        let shown = match Qualifier::unpack(u16::from_le_bytes([*tag, *tag_high]), number) {
            Some(Qualifier::User(uid)) => who.user_number(uid),
            Some(Qualifier::Group(gid)) => who.group_number(gid),
            _ => Some(number),
        };
        *id = shown.unwrap_or(NO_ID).to_le_bytes();
    }
}

/// Whether the entries are in order, complete and possible.
fn is_valid(entries: &[Entry]) -> bool {
    let rank = |entry: &Entry| match entry.qualifier {
        Qualifier::Owner => 0,
        Qualifier::User(_) => 1,
        Qualifier::OwningGroup => 2,
        Qualifier::Group(_) => 3,
        Qualifier::Mask => 4,
        Qualifier::Other => 5,
    };
    let count = |wanted: u8| entries.iter().filter(|entry| rank(entry) == wanted).count();
    let named = count(1) + count(3);
    let ids_exist = entries.iter().all(|entry| match entry.qualifier {
        Qualifier::User(id) | Qualifier::Group(id) => id != NO_ID,
        _ => true,
    });
    entries.is_sorted_by_key(rank)
        && [0, 2, 5].into_iter().all(|wanted| count(wanted) == 1)
        && (count(4) == 1 || count(4) == 0 && named == 0)
        && ids_exist
        && entries.iter().all(|entry| entry.permissions < 8)
}

#[cfg(test)]
mod tests;
