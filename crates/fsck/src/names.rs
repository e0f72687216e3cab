//! What only all directories together tell: link counts, parents, loops, and what has no name.

use conquest_format::fs::INODE;
use conquest_format::fs::cut;
use conquest_format::inode::{FileType, offset_of, word};
use conquest_format::pointer;

use crate::check::Check;
use crate::inodes::{NONE, State};
use crate::report::Hex;
use crate::{Code, View};

/// How far the way up from a directory has been followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// On the way that is being followed.
    Way,
    /// Its way ends, at the root or at what has no name.
    Done,
}

/// Checks names, links and parents of all inodes, and generations and intents.
pub(crate) fn check<V: View + ?Sized>(check: &mut Check<'_, V>) {
    check_intents(check);
    check_generations(check);
    let root = check_root(check);
    for rank in 0..check.inodes.len() {
        let Some(state) = check.inodes.get(rank).copied() else { break };
        let is_root = root == Some(state.number);
        let is_directory = state.file_type == Some(FileType::Directory);
        let is_nameless = state.names == 0 && !is_root;
        if is_nameless {
            check_nameless(check, &state);
        }
        // A directory that was removed while somebody had it open has no links.
        let is_removed = is_nameless && state.links == 0 && state.directories == 0;
        if !is_nameless || is_directory && !is_removed {
            check_links(check, &state);
        }
        if is_directory && !is_nameless {
            check_parent(check, &state, is_root);
        }
    }
    check_loops(check);
}

/// Checks that the root directory is one; its number.
fn check_root<V: View + ?Sized>(check: &mut Check<'_, V>) -> Option<u64> {
    let at = check.root_at();
    let number = check.root_number();
    let rank = number.and_then(offset_of).and_then(|at| check.rank_at(at).ok());
    let state = rank.and_then(|rank| check.inodes.get(rank)).copied();
    let found = state.and_then(|state| state.file_type);
    if state.is_none() || found.is_some_and(|found| found != FileType::Directory) {
        let expected = "a pointer to a directory's inode";
        let found = Hex(check.roots.directory);
        check.find(Code::RootDirectory, number.unwrap_or(0), at, expected, found);
    }
    number
}

/// Checks an inode that no entry names.
fn check_nameless<V: View + ?Sized>(check: &mut Check<'_, V>, state: &State) {
    let Some(at) = offset_of(state.number).map(|at| at.plus(word::LINKS)) else { return };
    // A file that should have a name is not kept without one by its link count.
    if state.is_reaped || state.is_kept && state.links == 0 {
        return;
    }
    let (code, expected) = match state.links {
        0 => (Code::InodeUnnamed, "a holding that keeps it, or an intent to reap it"),
        _ => (Code::InodeLost, "a name"),
    };
    check.find(code, state.number, at, expected, format_args!("{} links", state.links));
}

/// Checks the link count of an inode that is named, or a directory's.
fn check_links<V: View + ?Sized>(check: &mut Check<'_, V>, state: &State) {
    let Some(at) = offset_of(state.number).map(|at| at.plus(word::LINKS)) else { return };
    let expected = match state.file_type {
        None => return,
        Some(FileType::Directory) => 2 + u64::from(state.directories),
        Some(_) => state.names.into(),
    };
    if expected != u64::from(state.links) {
        check.find(Code::InodeLinks, state.number, at, expected, state.links);
    }
}

/// Checks names and parent of a directory that has a name, or of the root directory.
fn check_parent<V: View + ?Sized>(check: &mut Check<'_, V>, state: &State, is_root: bool) {
    let (number, Some(at)) = (state.number, offset_of(state.number)) else { return };
    let most = u32::from(!is_root);
    if state.names > most {
        let expected = format_args!("{most} names");
        check.find(Code::DirectoryNames, number, state.dentry, expected, state.names);
    }
    let parent = if is_root { Some(number) } else { check.number_of(state.named_by) };
    if let Some(parent) = parent
        && parent != state.parent
    {
        check.find(Code::DirectoryParent, number, at.plus(word::PARENT), parent, state.parent);
    }
}

/// Looks for directories whose way up leads back to themselves.
fn check_loops<V: View + ?Sized>(check: &mut Check<'_, V>) {
    let root = check.root_number();
    let mut marks = vec![Mark::New; check.inodes.len()];
    let mut way = Vec::new();
    for rank in 0..check.inodes.len() {
        let mut here = rank;
        way.clear();
        while let Some(mark) = marks.get_mut(here)
            && *mark == Mark::New
        {
            *mark = Mark::Way;
            way.push(here);
            // The way from the root ends there, whatever names it.
            here = match check.inodes.get(here) {
                Some(state) if Some(state.number) != root => state.named_by,
                _ => NONE,
            };
        }
        let is_loop = marks.get(here) == Some(&Mark::Way);
        if is_loop && let Some(state) = check.inodes.get(here).copied() {
            let expected = "a way up to the root directory";
            let found = format_args!("one that leads back here");
            check.find(Code::DirectoryLoop, state.number, state.dentry, expected, found);
        }
        for rank in &way {
            if let Some(mark) = marks.get_mut(*rank) {
                *mark = Mark::Done;
            }
        }
    }
}

/// Checks that no two inodes have the same generation.
fn check_generations<V: View + ?Sized>(check: &mut Check<'_, V>) {
    let mut generations = core::mem::take(&mut check.inodes.generations);
    generations.sort_unstable();
    for pair in generations.windows(2) {
        if let [(one, first), (other, number)] = *pair
            && one == other
            && let Some(at) = offset_of(number)
        {
            let at = at.plus(word::GENERATION);
            let expected = format_args!("another one than inode {first} has");
            check.find(Code::GenerationShared, number, at, expected, Hex(one));
        }
    }
}

/// Checks that the intents' files can be what they say, and notes which will be freed.
fn check_intents<V: View + ?Sized>(check: &mut Check<'_, V>) {
    for intent in core::mem::take(&mut check.lanes.intents) {
        let at = intent.at;
        let rank = offset_of(intent.number).and_then(|at| check.rank_at(at).ok());
        let generation =
            offset_of(intent.number).map(|at| check.bytes.load(at.plus(word::GENERATION)));
        let rank = rank.filter(|_| generation == Some(intent.generation));
        let Some(state) = rank.and_then(|rank| check.inodes.get_mut(rank)) else {
            let expected = format_args!("a file of generation {:#x}", intent.generation);
            let found = format_args!("inode {} is not that one", intent.number);
            check.find(Code::IntentStale, 0, at, expected, found);
            continue;
        };
        if intent.code != cut::REAP {
            continue;
        }
        let (number, links, names) = (state.number, state.links, state.names);
        if links != 0 || names != 0 {
            let found = format_args!("{links} links, {names} names");
            check.find(Code::IntentNamed, number, at, "a file without names", found);
        } else {
            state.is_reaped = true;
        }
    }
}

impl<V: View + ?Sized> Check<'_, V> {
    /// Number of the inode of rank `rank`.
    pub(crate) fn number_of(&self, rank: usize) -> Option<u64> {
        self.inodes.get(rank).map(|state| state.number)
    }

    /// Whether the root directory's inode is where `word` says.
    pub(crate) fn is_root(&self, number: u64) -> bool {
        pointer::unpack(self.roots.directory, INODE) == offset_of(number)
    }
}
