//! Access lists among the attributes: whether they are lists, and agree with the mode.

use conquest_format::Offset;
use conquest_format::inode::{FileType, Inode};

use crate::check::Check;
use crate::{Code, View};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Version of the attributes' format on Linux.
const VERSION: u32 = 2;
/// What stands in the place of an id where there is none.
const NO_ID: u32 = u32::MAX;

/// Tags, in the order in which entries stand.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Checks the attribute with this name and value, whose item stands at `at`, if it is a list.
pub(crate) fn check<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    inode: &Inode,
    at: Offset,
    (name, value): (&[u8], &[u8]),
) {
    let can_have = match name {
        ACCESS => inode.file_type != FileType::Symlink,
        DEFAULT => inode.file_type == FileType::Directory,
        _ => return,
    };
    let Some(permissions) = permissions(value).filter(|_| can_have) else {
        let expected = "a list of version 2, in order and complete, of a file that can have it";
        let found = format_args!("{} bytes, of a {:?}", value.len(), inode.file_type);
        return check.find(Code::AccessList, number, at, expected, found);
    };
    let mode = inode.permissions & 0o777;
    if name == ACCESS && permissions != mode {
        let (expected, found) = (format_args!("{mode:o}"), format_args!("{permissions:o}"));
        check.find(Code::AccessListMode, number, at, expected, found);
    }
}

/// The permission bits of a mode that go with the list in `value`; none if it is no list.
fn permissions(value: &[u8]) -> Option<u16> {
    let (version, rest) = value.split_first_chunk::<4>()?;
    let (entries, left) = rest.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !left.is_empty() {
        return None;
    }
    let mut digits = [None; 4];
    let mut has_named = false;
    let mut last = 0;
    for &[tag, tag_high, low, high, id @ ..] in entries {
        let tag = u16::from_le_bytes([tag, tag_high]);
        let digit = u16::from_le_bytes([low, high]);
        let is_named = matches!(tag, USER | GROUP);
        let is_in_order = tag > last || tag == last && is_named;
        if !is_in_order || digit > 7 || is_named && u32::from_le_bytes(id) == NO_ID {
            return None;
        }
        last = tag;
        match tag {
            USER | GROUP => has_named = true,
            OWNER => digits[0] = Some(digit),
            OWNING_GROUP => digits[1] = Some(digit),
            MASK => digits[2] = Some(digit),
            OTHER => digits[3] = Some(digit),
            _ => return None,
        }
    }
    let [owner, group, mask, other] = digits;
    if has_named && mask.is_none() {
        return None;
    }
    // The mask, if there is one, is what the mode says of the group.
    let group = group.map(|group| mask.unwrap_or(group));
    Some(owner? << 6 | group? << 3 | other?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tag, permissions and id.
    type Entry = (u16, u16, u32);

    fn list(entries: &[Entry]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, digit, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(digit.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    #[test]
    fn lists_are_in_order_and_complete() {
        let owner = (OWNER, 6, NO_ID);
        let group = (OWNING_GROUP, 5, NO_ID);
        let (mask, other) = ((MASK, 4, NO_ID), (OTHER, 1, NO_ID));
        let (one, two) = ((USER, 7, 8), (USER, 7, 9));
        let good: [(&[Entry], u16); 3] = [
            (&[owner, group, other], 0o651),
            (&[owner, group, mask, other], 0o641),
            (&[owner, one, two, group, (GROUP, 0, 0), mask, other], 0o641),
        ];
        for (entries, mode) in good {
            assert_eq!(permissions(&list(entries)), Some(mode), "{entries:?}");
        }
        let bad: [&[Entry]; 8] = [
            &[],
            &[owner, group],
            &[group, owner, other],
            &[owner, owner, group, other],
            &[owner, one, group, other],
            &[owner, (USER, 7, NO_ID), group, mask, other],
            &[owner, group, (OTHER, 8, NO_ID)],
            &[owner, group, other, (0x40, 0, 0)],
        ];
        for entries in bad {
            assert_eq!(permissions(&list(entries)), None, "{entries:?}");
        }
        let good = list(&[owner, group, other]);
        assert_eq!(permissions(good.get(1..).unwrap()), None);
        assert_eq!(permissions(&[&[3], good.get(1..).unwrap()].concat()), None);
    }
}
