//! Extended attributes: where they are, their checksum, their items.

use conquest_format::fs::attributes::{BYTES_MAX, CLASS, HEADER, Header, ITEM, Item, VALUE_MAX};
use conquest_format::fs::{DATA, PACKED_SIZES, packed};
use conquest_format::inode::{Inode, offset_of, word};
use conquest_format::{Offset, PAGE};

use crate::check::Check;
use crate::report::Hex;
use crate::{Code, View, access_list};

/// Most bytes of attributes that are an object.
const OBJECT_MAX: u64 = PACKED_SIZES[PACKED_SIZES.len() - 1];

/// Checks the attributes of the inode of number `number`.
pub(crate) fn check<V: View + ?Sized>(check: &mut Check<'_, V>, number: u64, inode: &Inode) {
    let word = inode.attributes;
    let Some(at) = offset_of(number).map(|at| at.plus(word::ATTRIBUTES)) else { return };
    if word == 0 {
        return;
    }
    let class = word & CLASS;
    let kind = class.checked_sub(1).map_or(Some(DATA), |class| packed(class as usize));
    let Some(kind) = kind else {
        let expected = format_args!("a class of at most {}", PACKED_SIZES.len());
        return check.find(Code::InodeAttributes, number, at, expected, Hex(word));
    };
    let Some(target) = check.target(number, at, word & !CLASS, kind) else { return };
    let possible = match class.checked_sub(1) {
        None => {
            if let Err(wild) = check.space.check_page(target, DATA) {
                return check.wild(number, at, target, DATA, wild);
            }
            OBJECT_MAX + 1..=BYTES_MAX
        }
        Some(class) => {
            if !check.reach_object(number, at, target, kind) {
                return;
            }
            HEADER..=PACKED_SIZES.get(class as usize).copied().unwrap_or(0)
        }
    };
    let len = check.bytes.load(target);
    let is_possible = possible.contains(&len);
    if !is_possible {
        let expected = format_args!("{} to {} bytes", possible.start(), possible.end());
        check.find(Code::AttributesLength, number, target, expected, len);
    }
    if class == 0 {
        let pages = if is_possible { len.div_ceil(PAGE) } else { 1 };
        if !check.reach_run(number, at, (target, pages), DATA) {
            return;
        }
    }
    if is_possible {
        let mut bytes = vec![0; len as usize];
        check.bytes.copy(target, &mut bytes);
        check_bytes(check, number, inode, target, &bytes);
    }
}

/// Checks the header and the items in `bytes`, which stand at `at`.
fn check_bytes<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    inode: &Inode,
    at: Offset,
    bytes: &[u8],
) {
    let expected = Header::of(bytes).checksum;
    let found = check.bytes.load(at.plus(8));
    if expected != found {
        let at = at.plus(8);
        check.find(Code::AttributesChecksum, number, at, Hex(expected), Hex(found));
    }
    let mut rest = bytes.get(HEADER as usize..).unwrap_or_default();
    let mut last: &[u8] = &[];
    if rest.is_empty() {
        check.find(Code::AttributesItems, number, at, "an item", "none");
    }
    while !rest.is_empty() {
        let at = at.plus((bytes.len() - rest.len()) as u64);
        let Some((name, value, after)) = split(rest) else {
            let expected = "an item whose name and value are there";
            return check.find(Code::AttributesItems, number, at, expected, "none");
        };
        if name.is_empty() || name <= last || value.len() as u64 > VALUE_MAX {
            let expected = "a name after the last one, and at most 64 KiB";
            let found = format_args!("\"{}\", {} bytes", name.escape_ascii(), value.len());
            check.find(Code::AttributesItems, number, at, expected, found);
        }
        access_list::check(check, number, inode, at, (name, value));
        (last, rest) = (name, after);
    }
}

/// Name and value of the first item, and what comes after it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<{ ITEM as usize }>()?;
    let item = Item::unpack(u64::from_le_bytes(*word));
    let (name, rest) = rest.split_at_checked(item.name as usize)?;
    let (value, rest) = rest.split_at_checked(item.value as usize)?;
    Some((name, value, rest))
}
