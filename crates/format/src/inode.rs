//! The inode: what a store knows of a file, in 128 bytes.
//!
//! An inode is an object of 16 words. Every word but the time of the last access is covered by the
//! checksum in the last one, whose seed is the inode's number: an inode that was damaged, or copied
//! to another place, is not taken for one. Its content is reached through one word ("root"), whose
//! meaning the content form says.
//!
//! | word | field |
//! | --- | --- |
//! | 0 | mode: `st_mode` (bits 0..16), content form (16..24), 0 (24..32), flags (32..64) |
//! | 1 | owner: user (0..32), group (32..64) |
//! | 2 | links: count (0..32), project (32..64) |
//! | 3 | size in bytes; of a directory, its entries |
//! | 4 | pages allocated to the content |
//! | 5..9 | times of the last modification, change and access, and of birth; nanoseconds since 1970, two's complement |
//! | 9 | change cookie, grows with every change |
//! | 10 | content: the root's pointer word, or a device number |
//! | 11 | shape of the content; of a directory, its threshold |
//! | 12 | pointer word to the extended attributes, or 0 |
//! | 13 | of a directory, its parent's number; of a regular file, its threshold; otherwise 0 |
//! | 14 | generation: tells apart the inodes that have had this number |
//! | 15 | checksum |

use crate::{Offset, WORD, checksum};

/// Words in an inode.
pub const WORDS: usize = 16;
/// Bytes in an inode.
pub const SIZE: u64 = WORDS as u64 * WORD;
/// An inode's number is its offset divided by this.
pub const NUMBER_UNIT: u64 = 64;
/// The highest number: offsets have 48 bits.
pub const NUMBER_MAX: u64 = (1 << 48) / NUMBER_UNIT - 1;
/// Most bytes in a file: offsets in files are signed.
pub const SIZE_MAX: u64 = (1 << 63) - 1;
/// Most bytes in a symbolic link's target.
pub const TARGET_MAX: u64 = 4095;
/// Capacity classes of packed content.
pub const PACKED_CLASSES: u64 = 16;
/// Most pages in the run of an extent.
pub const EXTENT_PAGES_MAX: u64 = 512;
/// Most levels of a tree above its data.
pub const TREE_HEIGHT_MAX: u64 = 6;

/// Offsets of the words, in bytes from the inode's start.
pub mod word {
    /// Mode, content form and flags.
    pub const MODE: u64 = 0;
    /// User and group.
    pub const OWNER: u64 = 8;
    /// Links and project.
    pub const LINKS: u64 = 16;
    /// Bytes, or entries of a directory.
    pub const SIZE: u64 = 24;
    /// Pages allocated to the content.
    pub const PAGES: u64 = 32;
    /// Time of the last modification of the content.
    pub const MTIME: u64 = 40;
    /// Time of the last change of the inode.
    pub const CTIME: u64 = 48;
    /// Time of the last access: the one word that the checksum does not cover.
    pub const ATIME: u64 = 56;
    /// Time at which the file was made.
    pub const BTIME: u64 = 64;
    /// Change cookie.
    pub const CHANGE: u64 = 72;
    /// The content's root, or a device number.
    pub const CONTENT: u64 = 80;
    /// Shape of the content; of a directory, its threshold.
    pub const SHAPE: u64 = 88;
    /// Pointer word to the extended attributes.
    pub const ATTRIBUTES: u64 = 96;
    /// A directory's parent; of a regular file, its threshold.
    pub const PARENT: u64 = 104;
    /// Generation.
    pub const GENERATION: u64 = 112;
    /// Checksum.
    pub const CHECK: u64 = 120;
}

/// Content forms, bits 16..24 of the mode word.
pub mod form {
    /// No content: an empty file, a file that is one hole, a fifo, a socket.
    pub const NONE: u8 = 0;
    /// One small object.
    pub const PACKED: u8 = 1;
    /// One run of pages.
    pub const EXTENT: u8 = 2;
    /// A tree of pages.
    pub const TREE: u8 = 3;
    /// Buckets of a directory, none if it is empty.
    pub const DIRECTORY: u8 = 4;
    /// A device number.
    pub const DEVICE: u8 = 5;
    /// A chunk of the volume's space, and a tree of the pages that are not there yet.
    pub const LARGE: u8 = 6;
}

/// Flags: bits of the high half of the mode word, with the numbers of `FS_IOC_GETFLAGS`.
pub mod flag {
    /// Changes are made durable at once.
    pub const SYNC: u32 = 0x8;
    /// Nothing of the file may change.
    pub const IMMUTABLE: u32 = 0x10;
    /// The file may only grow, the directory only get entries.
    pub const APPEND: u32 = 0x20;
    /// Backup programs leave it out.
    pub const NODUMP: u32 = 0x40;
    /// The time of access is not kept.
    pub const NOATIME: u32 = 0x80;
    /// Changes of the directory are made durable at once.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// Space past the end was asked for, and stays when the file is closed. Nobody is told.
    pub const KEEPS_TAIL: u32 = 0x40_0000;
    /// The file has never had a name, and may get one. Nobody is told.
    pub const LINKABLE: u32 = 0x80_0000;
    /// What is made in the directory gets its project.
    pub const PROJINHERIT: u32 = 0x2000_0000;
    /// The flags that users see and set.
    pub const OF_USERS: u32 = SYNC | IMMUTABLE | APPEND | NODUMP | NOATIME | DIRSYNC | PROJINHERIT;
    /// All flags there are.
    pub const KNOWN: u32 = OF_USERS | KEEPS_TAIL | LINKABLE;
}

/// Type of a file: bits 12..16 of its mode, which are also the `DT_` numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FileType {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    Character = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    Block = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

impl FileType {
    /// All of them.
    pub const ALL: [FileType; 7] = [
        FileType::Fifo,
        FileType::Character,
        FileType::Directory,
        FileType::Block,
        FileType::Regular,
        FileType::Symlink,
        FileType::Socket,
    ];

    /// The type numbered `number`, if there is one.
    #[must_use]
    pub const fn new(number: u8) -> Option<FileType> {
        Some(match number {
            1 => FileType::Fifo,
            2 => FileType::Character,
            4 => FileType::Directory,
            6 => FileType::Block,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Offset of the word with the threshold of such a file: one that it needs for nothing else.
    /// None if it can have no threshold of its own.
    #[must_use]
    pub const fn threshold_word(self) -> Option<u64> {
        match self {
            FileType::Regular => Some(word::PARENT),
            FileType::Directory => Some(word::SHAPE),
            _ => None,
        }
    }

    /// Whether a file of this type can have content of form `form`.
    #[must_use]
    pub const fn fits(self, form: u8) -> bool {
        match self {
            FileType::Regular => {
                matches!(form, form::NONE | form::PACKED | form::EXTENT | form::TREE | form::LARGE)
            }
            FileType::Directory => form == form::DIRECTORY,
            FileType::Symlink => matches!(form, form::PACKED | form::EXTENT),
            FileType::Character | FileType::Block => form == form::DEVICE,
            FileType::Fifo | FileType::Socket => form == form::NONE,
        }
    }
}

/// The mode word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Type of the file.
    pub file_type: FileType,
    /// Permission, set-id and sticky bits, below 2^12.
    pub permissions: u16,
    /// Content form, a number of [`form`] that fits the type.
    pub form: u8,
    /// Bits of [`flag`].
    pub flags: u32,
}

impl Mode {
    /// `st_mode`.
    #[must_use]
    pub const fn st_mode(self) -> u16 {
        (self.file_type.number() as u16) << 12 | self.permissions & 0xFFF
    }

    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.st_mode() as u64 | (self.form as u64) << 16 | (self.flags as u64) << 32
    }

    /// The mode in `word`, if the type, the form for it and the flags are possible and the bits in
    /// between are 0.
    #[must_use]
    pub fn unpack(word: u64) -> Option<Mode> {
        let file_type = FileType::new((word >> 12 & 0xF) as u8)?;
        let form = (word >> 16 & 0xFF) as u8;
        let flags = (word >> 32) as u32;
        let is_possible =
            word >> 24 & 0xFF == 0 && flags & !flag::KNOWN == 0 && file_type.fits(form);
        let permissions = (word & 0xFFF) as u16;
        is_possible.then_some(Mode { file_type, permissions, form, flags })
    }
}

/// Two numbers of 32 bits in a word: the owner, the links and a device number.
const fn pack_pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The owner word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// User, bits 0..32.
    pub uid: u32,
    /// Group, bits 32..64.
    pub gid: u32,
}

impl Owner {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        pack_pair(self.uid, self.gid)
    }

    /// The owner in `word`; every word is one.
    #[must_use]
    pub const fn unpack(word: u64) -> Owner {
        Owner { uid: word as u32, gid: (word >> 32) as u32 }
    }
}

/// The links word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Links {
    /// Names of the file, bits 0..32; 0 for one that is only open.
    pub count: u32,
    /// Project, bits 32..64.
    pub project: u32,
}

impl Links {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        pack_pair(self.count, self.project)
    }

    /// The links in `word`; every word is one.
    #[must_use]
    pub const fn unpack(word: u64) -> Links {
        Links { count: word as u32, project: (word >> 32) as u32 }
    }
}

/// What the words form, content and shape say together. A `root` is a pointer word; whoever follows
/// it checks it against the kind it expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Nothing.
    None,
    /// One object of a capacity class, below [`PACKED_CLASSES`].
    Packed {
        /// Pointer word to the object.
        root: u64,
        /// Capacity class.
        class: u64,
    },
    /// One run.
    Extent {
        /// Pointer word to the run.
        root: u64,
        /// Pages of the run, 1 to [`EXTENT_PAGES_MAX`].
        pages: u64,
    },
    /// A tree of pages.
    Tree {
        /// Pointer word to the tree's top.
        root: u64,
        /// Levels above the data, up to [`TREE_HEIGHT_MAX`].
        height: u64,
    },
    /// Buckets of a directory.
    Directory {
        /// The root: a slot word as in directory nodes, 0 if there is no entry.
        root: u64,
    },
    /// A device.
    Device {
        /// Minor number, bits 0..32 of the content word.
        minor: u32,
        /// Major number, bits 32..64.
        major: u32,
    },
    /// A chunk of the volume's space. Pages of the file that are in the core take the place of
    /// what is there.
    Large {
        /// Pointer word to the top of the tree of these pages, 0 if there are none.
        root: u64,
        /// Levels above these pages, 0 if there are none: bits 0..6 of the shape word.
        height: u64,
        /// Offset of the [chunk](crate::fs::chunk), a multiple of 64: the other bits.
        chunk: Offset,
    },
}

impl Content {
    /// The form, a number of [`form`], and the words content and shape.
    #[must_use]
    pub const fn pack(self) -> (u8, u64, u64) {
        match self {
            Content::None => (form::NONE, 0, 0),
            Content::Packed { root, class } => (form::PACKED, root, class),
            Content::Extent { root, pages } => (form::EXTENT, root, pages),
            Content::Tree { root, height } => (form::TREE, root, height),
            Content::Directory { root } => (form::DIRECTORY, root, 0),
            Content::Device { minor, major } => (form::DEVICE, pack_pair(minor, major), 0),
            Content::Large { root, height, chunk } => (form::LARGE, root, chunk.bytes() | height),
        }
    }

    /// The tree of pages that it has: root and height.
    #[must_use]
    pub const fn tree(self) -> Option<(u64, u64)> {
        match self {
            Content::Tree { root, height } => Some((root, height)),
            Content::Large { root, height, .. } if root != 0 => Some((root, height)),
            _ => None,
        }
    }

    /// The same with another tree of pages.
    #[must_use]
    pub const fn with_tree(self, root: u64, height: u64) -> Content {
        match self {
            Content::Large { chunk, .. } => Content::Large { root, height, chunk },
            _ => Content::Tree { root, height },
        }
    }

    /// The same without its tree of pages.
    #[must_use]
    pub const fn without_tree(self) -> Content {
        match self {
            Content::Large { chunk, .. } => Content::Large { root: 0, height: 0, chunk },
            _ => Content::None,
        }
    }

    /// The same without a chunk of the volume's space.
    #[must_use]
    pub const fn without_chunk(self) -> Content {
        match self {
            Content::Large { root: 0, .. } => Content::None,
            Content::Large { root, height, .. } => Content::Tree { root, height },
            other => other,
        }
    }

    /// The content that form, content word and shape stand for.
    ///
    /// # Errors
    ///
    /// The field that is impossible.
    pub const fn unpack(form: u8, content: u64, shape: u64) -> Result<Content, Defect> {
        if form == form::LARGE {
            return Content::unpack_large(content, shape);
        }
        let (least, most) = match form {
            form::PACKED => (0, PACKED_CLASSES - 1),
            form::EXTENT => (1, EXTENT_PAGES_MAX),
            form::TREE => (1, TREE_HEIGHT_MAX),
            _ => (0, 0),
        };
        if shape < least || shape > most {
            return Err(Defect::Field(word::SHAPE, shape));
        }
        let has_root = match form {
            form::NONE | form::DEVICE => false,
            form::DIRECTORY => content != 0,
            _ => true,
        };
        if has_root && !names_something(content) || form == form::NONE && content != 0 {
            return Err(Defect::Field(word::CONTENT, content));
        }
        Ok(match form {
            form::NONE => Content::None,
            form::PACKED => Content::Packed { root: content, class: shape },
            form::EXTENT => Content::Extent { root: content, pages: shape },
            form::TREE => Content::Tree { root: content, height: shape },
            form::DIRECTORY => Content::Directory { root: content },
            form::DEVICE => {
                Content::Device { minor: content as u32, major: (content >> 32) as u32 }
            }
            other => return Err(Defect::Field(word::MODE, (other as u64) << 16)),
        })
    }

    const fn unpack_large(root: u64, shape: u64) -> Result<Content, Defect> {
        let (height, chunk) = (shape % NUMBER_UNIT, shape - shape % NUMBER_UNIT);
        if chunk == 0 || chunk >= 1 << 48 || height > TREE_HEIGHT_MAX {
            return Err(Defect::Field(word::SHAPE, shape));
        }
        if (root == 0) != (height == 0) || root != 0 && !names_something(root) {
            return Err(Defect::Field(word::CONTENT, root));
        }
        Ok(Content::Large { root, height, chunk: Offset::new(chunk) })
    }

    /// Whether such content can have so many pages allocated.
    #[must_use]
    pub const fn can_have(self, pages: u64) -> bool {
        match self {
            Content::None | Content::Packed { .. } | Content::Device { .. } => pages == 0,
            Content::Extent { pages: run, .. } => pages == run,
            Content::Tree { .. } => pages != 0,
            Content::Directory { root } | Content::Large { root, .. } => {
                (pages == 0) == (root == 0)
            }
        }
    }
}

/// Whether a pointer word has an offset.
const fn names_something(pointer: u64) -> bool {
    pointer & ((1 << 48) - 1) != 0
}

/// Why words are no inode. Offsets are bytes from the inode's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// No inode can have this number.
    Number(u64),
    /// The checksum does not match: expected and found.
    Checksum(u64, u64),
    /// A word with an impossible value, at this offset, with this value.
    Field(u64, u64),
}

/// An inode whose fields are possible. Times are nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Type of the file.
    pub file_type: FileType,
    /// Permission, set-id and sticky bits, below 2^12.
    pub permissions: u16,
    /// Bits of [`flag`].
    pub flags: u32,
    /// User and group.
    pub owner: Owner,
    /// Names and project.
    pub links: Links,
    /// Bytes, or entries of a directory.
    pub size: u64,
    /// Pages allocated to the content.
    pub pages: u64,
    /// When the content was modified.
    pub mtime: i64,
    /// When anything was changed.
    pub ctime: i64,
    /// When the content was read.
    pub atime: i64,
    /// When the file was made.
    pub btime: i64,
    /// Change cookie.
    pub change: u64,
    /// Where the content is.
    pub content: Content,
    /// Pointer word to the extended attributes, 0 for none.
    pub attributes: u64,
    /// A directory's parent, an inode number; otherwise 0.
    pub parent: u64,
    /// Bytes above which its data is on the volume, up to [`SIZE_MAX`]; of a directory, those of
    /// what is made in it. None: what the store says.
    pub threshold: Option<u64>,
    /// Generation.
    pub generation: u64,
}

impl Inode {
    /// The inode in `words`, which stand at the place of inode `number`.
    ///
    /// # Errors
    ///
    /// The first defect, if there is one: these words must not be used.
    pub fn from_words(words: [u64; WORDS], number: u64) -> Result<Inode, Defect> {
        if offset_of(number).is_none() {
            return Err(Defect::Number(number));
        }
        let [mode, owner, links, size, pages, mtime, ctime, atime, btime, ..] = words;
        let [.., change, root, shape, attributes, parent, generation, found] = words;
        let expected = check(&words, number);
        if found != expected {
            return Err(Defect::Checksum(expected, found));
        }
        let Some(unpacked) = Mode::unpack(mode) else {
            return Err(Defect::Field(word::MODE, mode));
        };
        let Mode { file_type, permissions, form, flags } = unpacked;
        let (shape, parent, threshold) = match file_type {
            FileType::Regular => (shape, 0, parent),
            FileType::Directory => (0, parent, shape),
            _ => (shape, parent, 0),
        };
        let content = Content::unpack(form, root, shape)?;
        let inode = Inode {
            file_type,
            permissions,
            flags,
            owner: Owner::unpack(owner),
            links: Links::unpack(links),
            size,
            pages,
            mtime: mtime.cast_signed(),
            ctime: ctime.cast_signed(),
            atime: atime.cast_signed(),
            btime: btime.cast_signed(),
            change,
            content,
            attributes,
            parent,
            threshold: threshold.checked_sub(1),
            generation,
        };
        inode.validate()?;
        Ok(inode)
    }

    /// The checks of the fields that depend on others.
    fn validate(&self) -> Result<(), Defect> {
        let size_is_possible = match self.file_type {
            FileType::Regular => self.size <= SIZE_MAX,
            FileType::Directory => {
                (self.size == 0) == (self.content == Content::Directory { root: 0 })
            }
            FileType::Symlink => (1..=TARGET_MAX).contains(&self.size),
            _ => self.size == 0,
        };
        let has_parent = offset_of(self.parent).is_some();
        let parent_is_possible =
            if self.file_type == FileType::Directory { has_parent } else { self.parent == 0 };
        let checks = [
            (size_is_possible, word::SIZE, self.size),
            (self.content.can_have(self.pages), word::PAGES, self.pages),
            (
                self.attributes == 0 || names_something(self.attributes),
                word::ATTRIBUTES,
                self.attributes,
            ),
            (parent_is_possible, word::PARENT, self.parent),
            (
                self.threshold.is_none_or(|bytes| bytes <= SIZE_MAX),
                self.file_type.threshold_word().unwrap_or(0),
                self.pack_threshold(),
            ),
        ];
        match checks.into_iter().find(|(is_possible, ..)| !is_possible) {
            Some((_, offset, value)) => Err(Defect::Field(offset, value)),
            None => Ok(()),
        }
    }

    /// The mode word's fields.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        let (form, ..) = self.content.pack();
        Mode { file_type: self.file_type, permissions: self.permissions, form, flags: self.flags }
    }

    /// The word with the threshold: its bytes and one more, so that 0 is none.
    const fn pack_threshold(&self) -> u64 {
        match self.threshold {
            Some(bytes) => bytes.wrapping_add(1),
            None => 0,
        }
    }

    /// The words of inode `number`, the checksum included.
    #[must_use]
    pub fn to_words(&self, number: u64) -> [u64; WORDS] {
        let (_, root, shape) = self.content.pack();
        let (shape, parent) = match self.file_type {
            FileType::Regular => (shape, self.pack_threshold()),
            FileType::Directory => (self.pack_threshold(), self.parent),
            _ => (shape, self.parent),
        };
        let times = [self.mtime, self.ctime, self.atime, self.btime].map(i64::cast_unsigned);
        let [mtime, ctime, atime, btime] = times;
        let mut words = [
            self.mode().pack(),
            self.owner.pack(),
            self.links.pack(),
            self.size,
            self.pages,
            mtime,
            ctime,
            atime,
            btime,
            self.change,
            root,
            shape,
            self.attributes,
            parent,
            self.generation,
            0,
        ];
        let sum = check(&words, number);
        let [.., last] = &mut words;
        *last = sum;
        words
    }
}

/// The checksum of inode `number`: over all words but the time of access and the checksum itself,
/// with the number as seed.
#[must_use]
pub fn check(words: &[u64; WORDS], number: u64) -> u64 {
    let uncovered = [word::ATIME, word::CHECK];
    let mut bytes = [0; (WORDS - 2) * WORD as usize];
    let covered = (0..).step_by(WORD as usize).zip(words);
    let covered = covered.filter(|(offset, _)| !uncovered.contains(offset));
    for (to, (_, word)) in bytes.chunks_exact_mut(WORD as usize).zip(covered) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    checksum(number, &bytes)
}

/// Offset of inode `number`; none if no inode can have this number.
#[must_use]
pub const fn offset_of(number: u64) -> Option<Offset> {
    if number == 0 || number > NUMBER_MAX {
        return None;
    }
    Some(Offset::new(number * NUMBER_UNIT))
}

/// Number of the inode at `offset`; none if no inode can be there.
#[must_use]
pub const fn number_of(offset: Offset) -> Option<u64> {
    let number = offset.bytes() / NUMBER_UNIT;
    let is_possible = offset.is_aligned(NUMBER_UNIT) && number != 0 && number <= NUMBER_MAX;
    if is_possible { Some(number) } else { None }
}

#[cfg(test)]
mod tests;
