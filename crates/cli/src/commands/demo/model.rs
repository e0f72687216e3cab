//! What a worker of the demonstration does, and what has to be there afterwards.
//!
//! Operations follow from a seed alone, so that who knows how many were acknowledged knows what
//! each of them was.

use std::collections::{BTreeMap, BTreeSet};

use crate::reason::Result;
use crate::rng::Rng;
use crate::tree::{Bits, FileType, New, Tree};

/// Names that operations choose from.
const NAMES: u64 = 40;
/// Most bytes of a file.
const SIZE_MAX: u64 = 100_000;
/// Most bytes of a write.
const WRITE_MAX: u64 = 20_000;

/// A file.
#[derive(Clone, PartialEq, Eq, Debug)]
enum File {
    Regular { mode: u32, bytes: Vec<u8> },
    Directory,
    Symlink(Vec<u8>),
}

/// What is in a worker's directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct World(BTreeMap<Vec<u8>, File>);

/// An operation: one change that happens as a whole, but for writes, of which whole pages may be
/// there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Create(Vec<u8>),
    Write { name: Vec<u8>, at: u64, bytes: Vec<u8> },
    Cut { name: Vec<u8>, size: u64 },
    Mode { name: Vec<u8>, mode: u32 },
    Rename { from: Vec<u8>, to: Vec<u8> },
    Remove { name: Vec<u8>, is_directory: bool },
    Directory(Vec<u8>),
    Symlink { name: Vec<u8>, target: Vec<u8> },
}

impl Op {
    /// The next operation on `world`; one that is possible there.
    pub(super) fn next(rng: &mut Rng, world: &World) -> Op {
        let name = format!("name-{}", rng.below(NAMES)).into_bytes();
        let choice = rng.below(10);
        let number = rng.next();
        match world.0.get(&name) {
            None => match choice {
                0 => Op::Directory(name),
                1 => Op::Symlink { name, target: format!("to/{number:x}").into_bytes() },
                _ => Op::Create(name),
            },
            Some(File::Regular { bytes, .. }) => match choice {
                0 => Op::Remove { name, is_directory: false },
                1 => Op::Cut { name, size: number % SIZE_MAX },
                2 => Op::Mode { name, mode: 0o600 | number as u32 & 0o177 },
                3 => {
                    let to = format!("name-{}", number % NAMES).into_bytes();
                    match world.0.get(&to) {
                        Some(File::Directory) => Op::Remove { name, is_directory: false },
                        _ => Op::Rename { from: name, to },
                    }
                }
                _ => {
                    let at = number % (bytes.len() as u64 + 1).min(SIZE_MAX - WRITE_MAX);
                    let len = 1 + rng.below(WRITE_MAX);
                    let first = rng.next();
                    let bytes = (0..len).map(|nth| (first.wrapping_add(nth * 7) >> 3) as u8);
                    Op::Write { name, at, bytes: bytes.collect() }
                }
            },
            Some(File::Directory) => Op::Remove { name, is_directory: true },
            Some(File::Symlink(_)) => Op::Remove { name, is_directory: false },
        }
    }

    /// What it makes of `world`.
    pub(super) fn apply(self, world: &mut World) {
        let files = &mut world.0;
        match self {
            Op::Create(name) => {
                files.insert(name, File::Regular { mode: 0o600, bytes: Vec::new() });
            }
            Op::Write { name, at, bytes: new } => {
                if let Some(File::Regular { bytes, .. }) = files.get_mut(&name) {
                    let (at, end) = (at as usize, at as usize + new.len());
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes.splice(at..end, new);
                }
            }
            Op::Cut { name, size } => {
                if let Some(File::Regular { bytes, .. }) = files.get_mut(&name) {
                    bytes.resize(size as usize, 0);
                }
            }
            Op::Mode { name, mode: new } => {
                if let Some(File::Regular { mode, .. }) = files.get_mut(&name) {
                    *mode = new;
                }
            }
            Op::Rename { from, to } => {
                if let Some(file) = files.remove(&from) {
                    files.insert(to, file);
                }
            }
            Op::Remove { name, .. } => _ = files.remove(&name),
            Op::Directory(name) => _ = files.insert(name, File::Directory),
            Op::Symlink { name, target } => _ = files.insert(name, File::Symlink(target)),
        }
    }

    /// Does it in `directory`.
    ///
    /// # Errors
    /// Those of the store: none of them should be.
    pub(super) fn perform<T: Tree>(&self, tree: &T, directory: &T::Node) -> Result<()> {
        let node = |name: &[u8]| tree.child(directory, name);
        match self {
            Op::Create(name) => {
                tree.make(directory, name, New::Regular, Bits::Exact(0o600)).map(drop)
            }
            Op::Write { name, at, bytes } => tree.write(&node(name)?, *at, bytes),
            Op::Cut { name, size } => tree.set_size(&node(name)?, *size),
            Op::Mode { name, mode } => tree.set_mode(&node(name)?, *mode),
            Op::Rename { from, to } => tree.rename(directory, from, to),
            Op::Remove { name, is_directory } => tree.remove(directory, name, *is_directory),
            Op::Directory(name) => {
                tree.make(directory, name, New::Directory, Bits::Exact(0o700)).map(drop)
            }
            Op::Symlink { name, target } => {
                tree.make(directory, name, New::Symlink(target), Bits::Exact(0o777)).map(drop)
            }
        }
    }
}

impl World {
    /// What there is in `directory`.
    ///
    /// # Errors
    /// What can't be read.
    pub(super) fn read<T: Tree>(tree: &T, directory: &T::Node) -> Result<World> {
        let mut world = World::default();
        for name in tree.names(directory)? {
            let node = tree.child(directory, &name)?;
            let meta = tree.meta(&node)?;
            let file = match meta.file_type {
                FileType::Directory => File::Directory,
                FileType::Symlink => File::Symlink(tree.target(&node)?),
                _ => {
                    let mut bytes = vec![0; meta.size as usize];
                    let mut len = 0;
                    while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
                        match tree.read(&node, len as u64, rest)? {
                            0 => break,
                            read => len += read,
                        }
                    }
                    bytes.truncate(len);
                    File::Regular { mode: meta.mode, bytes }
                }
            };
            world.0.insert(name, file);
        }
        Ok(world)
    }

    /// How this differs from `before`, and from what `op` makes of it, which was under way.
    pub(super) fn differences(&self, before: &World, op: &Op) -> Vec<String> {
        let mut after = before.clone();
        op.clone().apply(&mut after);
        if self == before || *self == after {
            return Vec::new();
        }
        let names: BTreeSet<&Vec<u8>> =
            self.0.keys().chain(before.0.keys()).chain(after.0.keys()).collect();
        let wrong = names.into_iter().filter(|name| {
            let [found, old, new] = [self, before, &after].map(|world| world.0.get(*name));
            !(found == old || found == new || is_part_of_write(found, old, new))
        });
        let mut told: Vec<String> = wrong
            .map(|name| format!("{} is not as acknowledged", conquest::quote::always(name)))
            .collect();
        let is_write = matches!(op, Op::Write { .. });
        if told.is_empty() && !is_write {
            told.push(format!("half of an operation is there: {}", op.name()));
        }
        told
    }
}

impl Op {
    fn name(&self) -> &'static str {
        match self {
            Op::Create(_) => "making a file",
            Op::Write { .. } => "a write",
            Op::Cut { .. } => "a change of size",
            Op::Mode { .. } => "a change of mode",
            Op::Rename { .. } => "a renaming",
            Op::Remove { .. } => "a removal",
            Op::Directory(_) => "making a directory",
            Op::Symlink { .. } => "making a link",
        }
    }
}

/// Whether `found` is what a write leaves that was on its way from `old` to `new`.
fn is_part_of_write(found: Option<&File>, old: Option<&File>, new: Option<&File>) -> bool {
    let (
        Some(File::Regular { mode, bytes }),
        Some(File::Regular { mode: old_mode, bytes: old }),
        Some(File::Regular { bytes: new, .. }),
    ) = (found, old, new)
    else {
        return false;
    };
    let is_between = (old.len()..=new.len()).contains(&bytes.len());
    let each = bytes
        .iter()
        .enumerate()
        .all(|(at, byte)| old.get(at) == Some(byte) || new.get(at) == Some(byte));
    mode == old_mode && is_between && each
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seed: u64, count: u64) -> (World, Rng) {
        let mut world = World::default();
        let mut rng = Rng::new(seed);
        for _ in 0..count {
            Op::next(&mut rng, &world).apply(&mut world);
        }
        (world, rng)
    }

    #[test]
    fn what_was_acknowledged_has_to_be_there() {
        let (before, mut rng) = after(7, 500);
        let op = Op::next(&mut rng, &before);
        let mut next = before.clone();
        op.clone().apply(&mut next);
        assert!(before.differences(&before, &op).is_empty());
        assert!(next.differences(&before, &op).is_empty());
        let (older, _) = after(7, 480);
        assert!(!older.differences(&before, &op).is_empty());
        let mut lost = before.clone();
        lost.0.pop_first();
        assert!(!lost.differences(&before, &Op::Create(b"x".to_vec())).is_empty());
    }

    #[test]
    fn a_write_may_be_there_in_part_and_nothing_else() {
        let file = |bytes: &[u8]| {
            let regular = File::Regular { mode: 0o600, bytes: bytes.to_vec() };
            World(BTreeMap::from([(b"a".to_vec(), regular)]))
        };
        let before = file(b"0000");
        let op = Op::Write { name: b"a".to_vec(), at: 1, bytes: b"1111".to_vec() };
        assert!(file(b"0110").differences(&before, &op).is_empty());
        assert!(!file(b"0210").differences(&before, &op).is_empty());
        assert!(!file(b"011").differences(&before, &op).is_empty());
        assert!(!file(b"011111").differences(&before, &op).is_empty());
    }
}
