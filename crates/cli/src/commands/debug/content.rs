//! A file in a core: its inode, and where its content is. Found without attaching, by looking
//! through directories entry by entry.

use conquest_format::fs::bucket::{FIRST, GRANULE, GRANULES, TAG_DENTRY};
use conquest_format::fs::dentry::Dentry;
use conquest_format::fs::{INODE, PACKED_SIZES, node, packed, root, tree};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::inode::{Content, FileType, Inode, number_of};
use conquest_format::kind::Kind;
use conquest_format::{Offset, PAGE, WORD, pointer};

use super::line;
use crate::commands::raw::{Raw, broken};
use crate::reason::{Reason, Result};
use conquest::quote;

/// An entry of a directory: its name, the inode's place, the bucket's place.
type Found = (Vec<u8>, Dentry, Offset);

/// The dump of the file at `path`.
pub(super) fn file(raw: &Raw, path: &[u8]) -> Result<String> {
    let word = raw.word(STATE_ROOTS.plus(root::DIRECTORY * WORD))?;
    let mut at = target(word, INODE, "root directory")?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        let inode = raw.inode(at)?;
        let Content::Directory { root } = inode.content else {
            return Err(conquest::Errno::ENOTDIR.into());
        };
        let entries = entries(raw, root)?;
        let found = entries.into_iter().find(|(other, ..)| other == name);
        at = found.ok_or(conquest::Errno::ENOENT)?.1.inode;
    }
    let inode = raw.inode(at)?;
    let mut out = String::new();
    show(&inode, at, &mut out);
    content(raw, &inode, &mut out)?;
    Ok(out)
}

fn target(word: u64, kind: Kind, what: &str) -> Result<Offset> {
    let at = pointer::unpack(word, kind).filter(|at| !at.is_none());
    at.ok_or_else(|| broken(what, Offset::NONE, word))
}

fn show(inode: &Inode, at: Offset, out: &mut String) {
    let number = number_of(at).unwrap_or(0);
    line(out, format_args!("inode {number} at {at}, generation {}", inode.generation));
    line(
        out,
        format_args!(
            "  {:?} {:04o}, flags {:#x}, user {}, group {}, links {}, project {}",
            inode.file_type,
            inode.permissions,
            inode.flags,
            inode.owner.uid,
            inode.owner.gid,
            inode.links.count,
            inode.links.project
        ),
    );
    line(
        out,
        format_args!(
            "  size {}, pages {}, change {}, parent {}, attributes {:#x}",
            inode.size, inode.pages, inode.change, inode.parent, inode.attributes
        ),
    );
    if let Some(bytes) = inode.threshold {
        line(out, format_args!("  threshold {bytes} bytes"));
    }
    line(
        out,
        format_args!(
            "  atime {} mtime {} ctime {} btime {} ns",
            inode.atime, inode.mtime, inode.ctime, inode.btime
        ),
    );
}

fn content(raw: &Raw, inode: &Inode, out: &mut String) -> Result<()> {
    match inode.content {
        Content::None => line(out, format_args!("content: none")),
        Content::Packed { root, class } => {
            let kind = packed(class as usize);
            let kind = kind.ok_or_else(|| broken("class", Offset::NONE, class))?;
            let at = target(root, kind, "packed content")?;
            let room = PACKED_SIZES.get(class as usize).copied().unwrap_or(0);
            line(out, format_args!("content: packed at {at}, room for {room} bytes"));
        }
        Content::Extent { root, pages } => {
            let at = target(root, conquest_format::fs::DATA, "extent")?;
            line(out, format_args!("content: extent of {pages} pages at {at}"));
        }
        Content::Tree { root, height } => {
            line(out, format_args!("content: tree of height {height}"));
            tree_of(raw, root, height, out)?;
        }
        Content::Large { root, height, chunk } => {
            line(out, format_args!("content: large, chunk at {chunk}, tree of height {height}"));
            if root != 0 {
                tree_of(raw, root, height, out)?;
            }
        }
        Content::Device { minor, major } => {
            line(out, format_args!("content: device {major}:{minor}"))
        }
        Content::Directory { root } => {
            line(out, format_args!("content: directory, root {root:#x}"));
            for (name, dentry, bucket) in entries(raw, root)? {
                let name = quote::name(&name);
                let number = number_of(dentry.inode).unwrap_or(0);
                let position = dentry.position.number();
                line(
                    out,
                    format_args!(
                        "  bucket {bucket} position {position:#x} inode {number} {:?} {name}",
                        dentry.file_type
                    ),
                );
            }
        }
    }
    if inode.file_type == FileType::Symlink
        && let Content::Packed { root, class } = inode.content
        && let Some(kind) = packed(class as usize)
    {
        let mut bytes = vec![0; inode.size.min(PAGE) as usize];
        raw.bytes(target(root, kind, "target")?, &mut bytes)?;
        line(out, format_args!("target: {}", quote::always(&bytes)));
    }
    Ok(())
}

/// The nodes and runs of a tree: each is looked at once, so at most as many as the region has
/// pages.
fn tree_of(raw: &Raw, root: u64, height: u64, out: &mut String) -> Result<()> {
    let top = tree::Slot::unpack(root, height + 1);
    let mut left = vec![(top, height, 0)];
    let mut budget = raw.len / PAGE;
    while let Some((slot, level, first)) = left.pop() {
        match slot {
            None => return Err(broken("slot of a tree", Offset::NONE, root)),
            Some(tree::Slot::Hole) => {}
            Some(tree::Slot::Page(at)) => line(out, format_args!("  page {first} at {at}")),
            Some(tree::Slot::Run(at, pages)) => {
                line(out, format_args!("  pages {first}..{} at {at}", first + pages));
            }
            Some(tree::Slot::Node(at)) => {
                budget = budget.checked_sub(1).ok_or_else(|| looped(at))?;
                line(out, format_args!("  node of level {level} at {at}, from page {first} on"));
                for index in (0..tree::SLOTS).rev() {
                    let word = raw.word(at.plus(index * WORD))?;
                    if word != 0 {
                        let below = first + index * tree::pages_below(level - 1);
                        left.push((tree::Slot::unpack(word, level), level - 1, below));
                    }
                }
            }
        }
    }
    Ok(())
}

fn looped(at: Offset) -> Reason {
    Reason::rule(format!("more nodes than the region has pages, up to {at}: they lead in a circle"))
}

/// The entries of the directory whose root slot is `root`, in the order of their hashes.
fn entries(raw: &Raw, root: u64) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut left = vec![root];
    let mut budget = raw.len / PAGE * 4;
    while let Some(word) = left.pop() {
        match node::Slot::unpack(word) {
            None => return Err(broken("slot of a directory", Offset::NONE, word)),
            Some(node::Slot::Empty) => {}
            Some(node::Slot::Bucket(at)) => bucket(raw, at, &mut found)?,
            Some(node::Slot::Node(at)) => {
                budget = budget.checked_sub(1).ok_or_else(|| looped(at))?;
                let mut words = Vec::new();
                for index in 0..node::SLOTS {
                    words.push(raw.word(at.plus(index * WORD))?);
                }
                // Several slots lead to a bucket that is less deep than they are.
                words.dedup();
                left.extend(words.into_iter().rev());
            }
        }
    }
    Ok(found)
}

fn bucket(raw: &Raw, at: Offset, found: &mut Vec<Found>) -> Result<()> {
    let mut bytes = vec![0; PAGE as usize];
    raw.bytes(at, &mut bytes)?;
    let mut granule = FIRST;
    while granule < GRANULES {
        let is_head = bytes.get(granule as usize).is_some_and(|tag| *tag >= TAG_DENTRY);
        let place = at.plus(granule * GRANULE);
        granule += 1;
        if !is_head {
            continue;
        }
        let words = [raw.word(place)?, raw.word(place.plus(WORD))?];
        let dentry = Dentry::unpack(words).ok_or_else(|| broken("dentry", place, words))?;
        let mut name = vec![0; usize::from(dentry.name_len)];
        raw.bytes(place.plus(2 * WORD), &mut name)?;
        found.push((name, dentry, at));
    }
    Ok(())
}
