//! Contents of regular files and symbolic links: objects, runs and trees.

use conquest_format::fs::tree::{SLOTS, Slot};
use conquest_format::fs::{DATA, PACKED_SIZES, TREE, packed};
use conquest_format::inode::{Content, FileType, Inode, offset_of, word};
use conquest_format::{Offset, PAGE, WORD};

use crate::check::Check;
use crate::chunks;
use crate::report::Hex;
use crate::{Code, View};

/// Most bytes of packed content: longer targets are extents.
const PACKED_MAX: u64 = PACKED_SIZES[PACKED_SIZES.len() - 1];

/// Checks what the inode of number `number` says of its content. Directories come later.
pub(crate) fn check<V: View + ?Sized>(check: &mut Check<'_, V>, number: u64, inode: &Inode) {
    let Some(inode_at) = offset_of(number) else { return };
    let at = inode_at.plus(word::CONTENT);
    match inode.content {
        Content::None | Content::Directory { .. } | Content::Device { .. } => {}
        Content::Packed { root, class } => check_packed(check, number, inode, at, root, class),
        Content::Extent { root, pages } => {
            let Some(target) = check.target(number, at, root, DATA) else { return };
            if check.reach_run(number, at, (target, pages), DATA) {
                check_symlink(check, number, inode, target, pages * PAGE);
            }
        }
        Content::Large { root, height, chunk } => {
            chunks::check_owned(check, number, inode, chunk);
            let found = match root {
                0 => 0,
                root => {
                    let Some(top) = check.target(number, at, root, TREE) else { return };
                    check_tree(check, number, at, top, height)
                }
            };
            check_pages(check, number, inode, found);
        }
        Content::Tree { root, height } => {
            let Some(top) = check.target(number, at, root, TREE) else { return };
            let found = check_tree(check, number, at, top, height);
            check_pages(check, number, inode, found);
        }
    }
}

fn check_pages<V: View + ?Sized>(check: &mut Check<'_, V>, number: u64, inode: &Inode, found: u64) {
    let Some(at) = offset_of(number) else { return };
    if found != inode.pages {
        check.find(Code::InodePages, number, at.plus(word::PAGES), found, inode.pages);
    }
}

fn check_packed<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    inode: &Inode,
    at: Offset,
    root: u64,
    class: u64,
) {
    let size = PACKED_SIZES.get(class as usize);
    let (Some(kind), Some(&room)) = (packed(class as usize), size) else { return };
    let Some(target) = check.target(number, at, root, kind) else { return };
    if check.reach_object(number, at, target, kind) {
        check_symlink(check, number, inode, target, room);
    }
}

/// Checks a symbolic link's target, which is at `target` in a place of `room` bytes.
fn check_symlink<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    inode: &Inode,
    target: Offset,
    room: u64,
) {
    if inode.file_type != FileType::Symlink {
        return;
    }
    let is_packed = matches!(inode.content, Content::Packed { .. });
    if inode.size > room || is_packed != (inode.size <= PACKED_MAX) {
        let expected = format_args!("room for {} bytes in the form for them", inode.size);
        let found = format_args!("{} bytes", room);
        return check.find(Code::SymlinkForm, number, target, expected, found);
    }
    let mut bytes = [0; PAGE as usize];
    let bytes = bytes.get_mut(..inode.size as usize).unwrap_or_default();
    check.bytes.copy(target, bytes);
    if let Some(place) = bytes.iter().position(|byte| *byte == 0) {
        let at = target.plus(place as u64);
        check.find(Code::SymlinkTarget, number, at, "another byte", 0);
    }
}

/// Checks the tree whose top is at `top`, to which the word at `hook` leads; how many pages it has,
/// those included that it says it has and that are not there.
fn check_tree<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    hook: Offset,
    top: Offset,
    height: u64,
) -> u64 {
    let mut left = vec![(hook, top, height)];
    let mut pages = 0;
    while let Some((hook, node, level)) = left.pop() {
        pages += 1;
        if !check.reach_run(number, hook, (node, 1), TREE) {
            continue;
        }
        let mut slots = [0; PAGE as usize];
        check.bytes.copy(node, &mut slots);
        for (index, word) in (0..SLOTS).zip(slots.as_chunks::<{ WORD as usize }>().0) {
            let word = u64::from_le_bytes(*word);
            let at = node.plus(index * WORD);
            match Slot::unpack(word, level) {
                Some(Slot::Hole) => {}
                Some(Slot::Node(below)) => left.push((at, below, level - 1)),
                Some(Slot::Page(page)) => {
                    pages += 1;
                    check.reach_run(number, at, (page, 1), DATA);
                }
                Some(Slot::Run(run, len)) => {
                    pages += len;
                    check.reach_run(number, at, (run, len), DATA);
                }
                None => {
                    let expected = format_args!("a slot of level {level}");
                    check.find(Code::TreeSlot, number, at, expected, Hex(word));
                }
            }
        }
    }
    pages
}
