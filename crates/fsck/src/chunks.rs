//! Chunks of the volume's space: whose they are, and the lists that they are on.

use std::collections::BTreeMap;

use conquest_format::fs::chunk::{BLOCKS_MAX, BLOCKS_MIN, Chunk, LAST, WHOLE, word};
use conquest_format::fs::{CHUNK, root};
use conquest_format::inode::Inode;
use conquest_format::{Offset, WORD, pointer};

use crate::check::Check;
use crate::report::Hex;
use crate::state::root_word;
use crate::{Code, View};

/// What is known of the chunks that were reached.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// Where each is: its number, and whether its list word says that it is on a list.
    found: BTreeMap<Offset, (u64, bool)>,
    /// Whose they are: offsets by numbers.
    numbers: BTreeMap<u64, Offset>,
}

/// Checks the chunk at `at` that the inode of number `number` says it has.
pub(crate) fn check_owned<V: View + ?Sized>(
    check: &mut Check<'_, V>,
    number: u64,
    inode: &Inode,
    at: Offset,
) {
    let Some(chunk) = reach(check, number, at) else { return };
    let (owner, generation) = (chunk.inode, chunk.generation);
    if (owner, generation) != (number, inode.generation) {
        let expected = format_args!("inode {number} of generation {:#x}", inode.generation);
        let found = format_args!("inode {owner} of generation {generation:#x}");
        check.find(Code::ChunkOwner, number, at.plus(word::INODE), expected, found);
    }
}

/// Reaches the chunk at `at`, and checks it by itself.
fn reach<V: View + ?Sized>(check: &mut Check<'_, V>, number: u64, at: Offset) -> Option<Chunk> {
    if !check.reach_object(number, at, at, CHUNK) {
        return None;
    }
    let chunk = match Chunk::from_words(check.bytes.words(at), at) {
        Ok(chunk) => chunk,
        Err(field) => {
            let found = Hex(check.bytes.load(at.plus(field)));
            check.find(Code::Chunk, number, at.plus(field), "a sound chunk", found);
            // Whoever follows a list to it is not to look at it again.
            let is_listed = check.bytes.load(at.plus(word::LIST)) != 0;
            check.chunks_of_volume.found.insert(at, (0, is_listed));
            return None;
        }
    };
    let next = check.bytes.load(root_word(root::NEXT_CHUNK));
    if chunk.number >= next {
        let expected = format_args!("below {next}, as the root says");
        check.find(Code::ChunkNumber, number, at, expected, chunk.number);
    }
    if let Some(other) = check.chunks_of_volume.numbers.insert(chunk.number, at) {
        let expected = format_args!("another number than that of the chunk at {other}");
        check.find(Code::ChunkNumber, number, at, expected, chunk.number);
    }
    check.chunks_of_volume.found.insert(at, (chunk.number, chunk.list != 0));
    Some(chunk)
}

/// Checks the roots that are about the volume, and both lists, once all inodes were looked at.
pub(crate) fn check<V: View + ?Sized>(check: &mut Check<'_, V>) {
    let word = |check: &Check<'_, V>, index| check.bytes.load(root_word(index));
    let blocks = word(check, root::CHUNK_BLOCKS);
    let is_possible = (BLOCKS_MIN..=BLOCKS_MAX).contains(&blocks) && blocks.is_power_of_two();
    let lists = [root::THRESHOLD, root::NEXT_CHUNK, root::DUE, root::UNUSED];
    let others = lists.into_iter().chain([root::MARK, root::NEXT_MARK]);
    let is_without = blocks == 0 && others.into_iter().all(|index| word(check, index) == 0);
    if !is_possible && !is_without {
        let expected = "a power of two from 2^21 to 2^51, or 0 if there is no volume";
        check.find(Code::RootChunks, 0, root_word(root::CHUNK_BLOCKS), expected, Hex(blocks));
    }
    check_list(check, root::DUE);
    check_list(check, root::UNUSED);
    let missing = check.chunks_of_volume.found.iter().filter(|(_, (_, is_listed))| *is_listed);
    for at in missing.map(|(at, _)| *at).collect::<Vec<_>>() {
        let found = Hex(check.bytes.load(at.plus(word::LIST)));
        check.find(Code::ChunkList, 0, at.plus(word::LIST), "0, as it is on no list", found);
    }
}

/// Follows the list whose head is root `head`. What is found is not missing afterwards.
fn check_list<V: View + ?Sized>(check: &mut Check<'_, V>, head: u64) {
    let mut hook = root_word(head);
    loop {
        let flags = if hook == root_word(head) || head == root::UNUSED { 0 } else { WHOLE };
        let word = check.bytes.load(hook) & !flags;
        if word == 0 && hook == root_word(head) || word == LAST && hook != root_word(head) {
            return;
        }
        let Some(at) = pointer::unpack(word, CHUNK).filter(|at| !at.is_none()) else {
            let expected = "a pointer to a chunk, or that none follows";
            return check.find(Code::ChunkList, 0, hook, expected, Hex(word));
        };
        if !check.chunks_of_volume.found.contains_key(&at) {
            // No file has it, so the list does.
            let Some(chunk) = reach(check, 0, at) else { return };
            if chunk.inode != 0 {
                let found = chunk.inode;
                check.find(Code::ChunkOwner, 0, at.plus(word::INODE), "no inode", found);
            }
        } else if head == root::UNUSED {
            let expected = "a chunk that nobody has";
            check.find(Code::ChunkList, 0, hook, expected, format_args!("one at {at}"));
        }
        match check.chunks_of_volume.found.get_mut(&at) {
            Some((_, is_listed)) if *is_listed => *is_listed = false,
            // Its word is 0, or it was found before.
            _ => {
                let expected = "a chunk that is on this list, once";
                return check.find(Code::ChunkList, 0, hook, expected, format_args!("one at {at}"));
            }
        }
        hook = at.plus(word::LIST);
    }
}

const _: () = assert!(word::LIST == WORD);
