//! All allocated inodes: what later passes need to know of each, and the pass that reads them.

use conquest_format::fs::INODE;
use conquest_format::inode::{
    self, Content, Defect, FileType, Inode, Mode, WORDS, number_of, offset_of, word,
};
use conquest_format::{Offset, WORD};

use crate::check::Check;
use crate::report::Hex;
use crate::space::Space;
use crate::{Code, View};

/// No inode.
pub(crate) const NONE: usize = usize::MAX;

/// What is known of an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) number: u64,
    /// The directory that it says is its parent.
    pub(crate) parent: u64,
    /// Where the dentry stands that names it, the parent's if there are several; or none.
    pub(crate) dentry: Offset,
    /// Rank of the directory with that dentry, or [`NONE`].
    pub(crate) named_by: usize,
    /// Names found.
    pub(crate) names: u32,
    /// Names that it says it has.
    pub(crate) links: u32,
    /// Directories found in it.
    pub(crate) directories: u32,
    /// Its type, if that is known.
    pub(crate) file_type: Option<FileType>,
    /// Whether an intent will free it.
    pub(crate) is_reaped: bool,
    /// Whether a holding keeps it.
    pub(crate) is_kept: bool,
}

/// A directory whose entries can be looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Rank of its inode.
    pub(crate) rank: usize,
    /// Its root: a slot.
    pub(crate) root: u64,
    /// Entries that it says it has.
    pub(crate) entries: u64,
    /// Pages that it says it has.
    pub(crate) pages: u64,
}

/// All allocated inodes, in the order of their numbers. An inode's *rank* is its place among them.
pub(crate) struct Inodes {
    states: Vec<State>,
    /// The directories.
    pub(crate) directories: Vec<Place>,
    /// Generations and numbers, of sound inodes.
    pub(crate) generations: Vec<(u64, u64)>,
}

impl Inodes {
    /// The inodes that slab maps say are allocated; nothing has been read of them.
    pub(crate) fn new(space: &mut Space) -> Inodes {
        let mut states = Vec::new();
        for index in 0..space.slabs.len() {
            let Some(slab) = space.slabs.get(index).copied() else { break };
            if slab.kind != INODE {
                continue;
            }
            if let Some(slab) = space.slabs.get_mut(index) {
                slab.inodes = states.len();
            }
            let there = (0..64).filter(|object| slab.map >> object & 1 == 1);
            let numbers = there.filter_map(|object| number_of(space.object_at(&slab, object)));
            states.extend(numbers.map(|number| State {
                number,
                parent: 0,
                dentry: Offset::NONE,
                named_by: NONE,
                names: 0,
                links: 0,
                directories: 0,
                file_type: None,
                is_reaped: false,
                is_kept: false,
            }));
        }
        Inodes { states, directories: Vec::new(), generations: Vec::new() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    /// The one of rank `rank`.
    pub(crate) fn get(&self, rank: usize) -> Option<&State> {
        self.states.get(rank)
    }

    pub(crate) fn get_mut(&mut self, rank: usize) -> Option<&mut State> {
        self.states.get_mut(rank)
    }

    /// Rank of object `index` of the slab that has `before` inodes in the slabs before it.
    pub(crate) fn rank(map: u64, before: usize, index: u64) -> usize {
        let lower = map & ((1 << index) - 1);
        before + lower.count_ones() as usize
    }
}

/// The code for a word of the inode of a file of type `file_type` that is impossible.
fn code_of(field: u64, file_type: Option<FileType>) -> Code {
    if file_type.and_then(FileType::threshold_word) == Some(field) {
        return Code::InodeThreshold;
    }
    match field {
        word::SIZE => Code::InodeSize,
        word::PAGES => Code::InodePages,
        word::CONTENT | word::SHAPE => Code::InodeContent,
        word::ATTRIBUTES => Code::InodeAttributes,
        word::PARENT => Code::InodeParent,
        _ => Code::InodeMode,
    }
}

impl<V: View + ?Sized> Check<'_, V> {
    /// Rank of the inode at `at`.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn rank_at(&self, at: Offset) -> Result<usize, crate::space::Wild> {
        let (slab, index) = self.space.find(at, INODE)?;
        let slab = self.space.slabs.get(slab).ok_or(crate::space::Wild::Place)?;
        Ok(Inodes::rank(slab.map, slab.inodes, index))
    }

    /// Reads and checks the inode of rank `rank` by itself: its number and what it says, if that
    /// can be followed. An inode that does not match its checksum is followed if its fields are
    /// possible, so that what it has is not taken for lost.
    pub(crate) fn load_inode(&mut self, rank: usize) -> Option<(u64, Inode)> {
        let number = self.inodes.get(rank)?.number;
        let at = offset_of(number)?;
        let mut words: [u64; WORDS] = self.bytes.words(at);
        let sum = inode::check(&words, number);
        let [.., found] = &mut words;
        if *found != sum {
            let check = at.plus(word::CHECK);
            self.find(Code::InodeChecksum, number, check, Hex(sum), Hex(*found));
        }
        let is_sound = *found == sum;
        *found = sum;
        let file_type = Mode::unpack(words[0]).map(|mode| mode.file_type);
        self.count(file_type);
        let loaded = Inode::from_words(words, number);
        if let Some(state) = self.inodes.get_mut(rank) {
            state.file_type = file_type;
            [_, _, state.links, ..] = words.map(|word| word as u32);
            state.parent = words[(word::PARENT / WORD) as usize];
        }
        match loaded {
            Ok(inode) => {
                if is_sound {
                    self.check_generation(number, at, inode.generation);
                }
                self.check_size(number, at, &inode);
                if let Content::Directory { root } = inode.content {
                    let (entries, pages) = (inode.size, inode.pages);
                    self.inodes.directories.push(Place { rank, root, entries, pages });
                }
                Some((number, inode))
            }
            Err(Defect::Field(field, value)) => {
                let at = at.plus(field);
                self.find(code_of(field, file_type), number, at, "a possible value", Hex(value));
                None
            }
            Err(_) => None,
        }
    }

    fn count(&mut self, file_type: Option<FileType>) {
        let counts = &mut self.counts;
        *match file_type {
            Some(FileType::Regular) => &mut counts.files,
            Some(FileType::Directory) => &mut counts.directories,
            Some(FileType::Symlink) => &mut counts.symlinks,
            Some(_) => &mut counts.others,
            None => &mut counts.damaged,
        } += 1;
    }

    /// Checks that a record of this number has been committed.
    fn check_generation(&mut self, number: u64, at: Offset, generation: u64) {
        let (lane, sequence) = (generation >> 48, generation & ((1 << 48) - 1));
        let last = usize::try_from(lane).ok().and_then(|lane| self.lanes.sequences.get(lane));
        if !last.is_some_and(|last| (1..=*last).contains(&sequence)) {
            let at = at.plus(word::GENERATION);
            let expected = "a lane, and a number up to that of its last record";
            self.find(Code::InodeGeneration, number, at, expected, Hex(generation));
        }
        self.inodes.generations.push((generation, number));
    }

    fn check_size(&mut self, number: u64, at: Offset, inode: &Inode) {
        let most = self.roots.file_max;
        if inode.file_type == FileType::Regular && inode.size > most {
            let at = at.plus(word::SIZE);
            let expected = format_args!("at most {most:#x}, as the root says");
            self.find(Code::InodeSize, number, at, expected, Hex(inode.size));
        }
    }
}
