//! Tests of the inode's layout.

use super::*;
use crate::kind::Kind;
use crate::pointer;

const NUMBER: u64 = 0x8000;

/// Random words: the checksum of a counter.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 += 1;
        checksum(self.0, b"inode")
    }

    fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    fn root(&mut self) -> u64 {
        let kind = Kind::new(self.below(24) as u8).unwrap();
        pointer::pack(Offset::new((1 + self.below(1 << 40)) * 64), kind)
    }

    fn content(&mut self, file_type: FileType) -> Content {
        let root = self.root();
        let packed = Content::Packed { root, class: self.below(PACKED_CLASSES) };
        let extent = Content::Extent { root, pages: 1 + self.below(EXTENT_PAGES_MAX) };
        let tree = Content::Tree { root, height: 1 + self.below(TREE_HEIGHT_MAX) };
        let height = self.below(TREE_HEIGHT_MAX + 1);
        let chunk = Offset::new((1 + self.below(1 << 41)) * 64);
        let large = Content::Large { root: if height == 0 { 0 } else { root }, height, chunk };
        let pick = self.below(5) as usize;
        match file_type {
            FileType::Regular => [Content::None, packed, extent, tree, large][pick],
            FileType::Directory => Content::Directory { root: [0, root][pick % 2] },
            FileType::Symlink => [packed, extent][pick % 2],
            FileType::Character | FileType::Block => {
                Content::Device { minor: self.word() as u32, major: self.word() as u32 }
            }
            FileType::Fifo | FileType::Socket => Content::None,
        }
    }

    fn inode(&mut self) -> Inode {
        let file_type = FileType::ALL[self.below(7) as usize];
        let content = self.content(file_type);
        let size = match file_type {
            FileType::Regular => self.below(SIZE_MAX + 1),
            FileType::Directory if content != (Content::Directory { root: 0 }) => {
                1 + self.below(u64::MAX)
            }
            FileType::Symlink => 1 + self.below(TARGET_MAX),
            _ => 0,
        };
        let pages = match content {
            Content::Extent { pages, .. } => pages,
            Content::Directory { root: 0 } | Content::Large { root: 0, .. } => 0,
            Content::Large { .. } | Content::Tree { .. } | Content::Directory { .. } => {
                1 + self.below(1 << 40)
            }
            _ => 0,
        };
        let is_directory = file_type == FileType::Directory;
        let bytes = [None, Some(0), Some(self.below(SIZE_MAX)), Some(SIZE_MAX)];
        let threshold = file_type.threshold_word().and(bytes[self.below(4) as usize]);
        Inode {
            file_type,
            permissions: self.below(1 << 12) as u16,
            flags: self.word() as u32 & flag::KNOWN,
            owner: Owner::unpack(self.word()),
            links: Links::unpack(self.word()),
            size,
            pages,
            mtime: self.word() as i64,
            ctime: self.word() as i64,
            atime: self.word() as i64,
            btime: self.word() as i64,
            change: self.word(),
            content,
            attributes: if self.below(2) == 0 { 0 } else { self.root() },
            parent: if is_directory { 1 + self.below(NUMBER_MAX) } else { 0 },
            threshold,
            generation: self.word(),
        }
    }
}

/// An inode with one field changed behind the checksum's back.
fn altered(inode: &Inode, offset: u64, value: u64) -> Result<Inode, Defect> {
    let mut words = inode.to_words(NUMBER);
    words[(offset / WORD) as usize] = value;
    words[WORDS - 1] = check(&words, NUMBER);
    Inode::from_words(words, NUMBER)
}

fn regular(content: Content, pages: u64) -> Inode {
    let mut inode = Random(0).inode();
    inode.file_type = FileType::Regular;
    inode.content = content;
    inode.size = 0;
    inode.pages = pages;
    inode.parent = 0;
    inode.threshold = None;
    inode
}

#[test]
fn inodes_round_trip() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let inode = random.inode();
        let number = 1 + random.below(NUMBER_MAX);
        assert_eq!(Inode::from_words(inode.to_words(number), number), Ok(inode));
    }
}

#[test]
fn every_flipped_bit_is_noticed_but_those_of_the_time_of_access() {
    let mut random = Random(2);
    for _ in 0..50 {
        let inode = random.inode();
        let words = inode.to_words(NUMBER);
        for bit in 0..WORDS * 64 {
            let mut flipped = words;
            flipped[bit / 64] ^= 1 << (bit % 64);
            let found = Inode::from_words(flipped, NUMBER);
            if bit / 64 == (word::ATIME / WORD) as usize {
                assert_eq!(found.unwrap(), Inode { atime: flipped[7] as i64, ..inode });
            } else {
                assert!(matches!(found, Err(Defect::Checksum(..))), "bit {bit}: {found:?}");
            }
        }
        let elsewhere = Inode::from_words(words, NUMBER + 1);
        assert!(matches!(elsewhere, Err(Defect::Checksum(..))));
    }
}

#[test]
fn the_words_stand_where_their_offsets_say() {
    let root = pointer::pack(Offset::new(0x12_3456_7840), Kind::new(5).unwrap());
    let inode = Inode {
        file_type: FileType::Directory,
        permissions: 0o1755,
        flags: flag::APPEND,
        owner: Owner { uid: 1, gid: 2 },
        links: Links { count: 3, project: 4 },
        size: 5,
        pages: 6,
        mtime: 7,
        ctime: -8,
        atime: 9,
        btime: 10,
        change: 11,
        content: Content::Directory { root },
        attributes: root,
        parent: 12,
        threshold: Some(13),
        generation: 15,
    };
    let words = inode.to_words(NUMBER);
    let at = |offset: u64| words[(offset / WORD) as usize];
    assert_eq!(at(word::MODE), 0x0000_0020_0004_43ED);
    assert_eq!(at(word::OWNER), 0x0000_0002_0000_0001);
    assert_eq!(at(word::LINKS), 0x0000_0004_0000_0003);
    assert_eq!((at(word::SIZE), at(word::PAGES)), (5, 6));
    assert_eq!((at(word::MTIME), at(word::CTIME)), (7, 8_u64.wrapping_neg()));
    assert_eq!((at(word::ATIME), at(word::BTIME)), (9, 10));
    assert_eq!((at(word::CHANGE), at(word::CONTENT)), (11, root));
    assert_eq!((at(word::SHAPE), at(word::ATTRIBUTES)), (14, root));
    assert_eq!((at(word::PARENT), at(word::GENERATION)), (12, 15));
    let file = Inode { size: 5, threshold: Some(SIZE_MAX), ..regular(Content::None, 0) };
    let file = file.to_words(NUMBER);
    let at = |offset: u64| file[(offset / WORD) as usize];
    assert_eq!((at(word::SHAPE), at(word::PARENT)), (0, SIZE_MAX + 1));
    let at = |offset: u64| words[(offset / WORD) as usize];
    assert_eq!(at(word::CHECK), check(&words, NUMBER));
    assert_eq!(inode.mode().st_mode(), 0o41755);
    let device = Content::Device { minor: 3, major: 1 };
    assert_eq!(device.pack(), (form::DEVICE, 0x0000_0001_0000_0003, 0));
}

/// The example of the document.
#[test]
fn the_checksum_is_the_documented_one() {
    let mut words = [0; WORDS];
    words.iter_mut().zip(0..).for_each(|(word, number)| *word = number);
    assert_eq!(check(&words, 0x8000), 0x2802_8128_46A5_D411);
}

#[test]
fn only_the_forms_that_fit_a_type_are_possible() {
    let possible: [(FileType, &[u8]); 7] = [
        (FileType::Fifo, &[0]),
        (FileType::Character, &[5]),
        (FileType::Directory, &[4]),
        (FileType::Block, &[5]),
        (FileType::Regular, &[0, 1, 2, 3, 6]),
        (FileType::Symlink, &[1, 2]),
        (FileType::Socket, &[0]),
    ];
    for (file_type, forms) in possible {
        for form in 0..=u8::MAX {
            let mode = Mode { file_type, permissions: 0o7777, form, flags: flag::KNOWN };
            let found = Mode::unpack(mode.pack());
            assert_eq!(found, forms.contains(&form).then_some(mode));
        }
    }
    for number in [0, 3, 5, 7, 9, 11, 13, 14, 15] {
        assert_eq!(FileType::new(number), None);
        assert_eq!(Mode::unpack(u64::from(number) << 12), None);
    }
    for bit in (24..32).chain((32..64).filter(|bit| flag::KNOWN & 1 << (bit - 32) == 0)) {
        assert_eq!(Mode::unpack(0o100_644 | 1 << bit), None, "bit {bit}");
    }
}

#[test]
fn impossible_fields_are_found_behind_a_right_checksum() {
    let root = Random(3).root();
    let bare = regular(Content::None, 0);
    let packed = regular(Content::Packed { root, class: 3 }, 0);
    let extent = regular(Content::Extent { root, pages: 9 }, 9);
    let tree = regular(Content::Tree { root, height: 2 }, 40);
    let empty = Content::Directory { root: 0 };
    let parent = |parent| Inode { file_type: FileType::Directory, content: empty, parent, ..bare };
    let directory = Inode { content: Content::Directory { root }, ..parent(1) };
    let directory = Inode { pages: 2, size: 5, ..directory };
    let link = Inode { file_type: FileType::Symlink, size: 5, ..packed };
    let check_bits_only = root & !((1 << 48) - 1) | 1 << 63;
    let chunk = Offset::new(0x1240);
    let large = regular(Content::Large { root: 0, height: 0, chunk }, 0);
    let partly = regular(Content::Large { root, height: 3, chunk }, 9);
    let fifo = Inode { file_type: FileType::Fifo, ..bare };
    let cases: [(&Inode, u64, u64); 36] = [
        (&bare, word::MODE, 0),
        (&bare, word::SIZE, SIZE_MAX + 1),
        (&bare, word::PAGES, 1),
        (&bare, word::CONTENT, root),
        (&bare, word::SHAPE, 1),
        (&bare, word::ATTRIBUTES, check_bits_only),
        (&bare, word::PARENT, SIZE_MAX + 2),
        (&bare, word::PARENT, u64::MAX),
        (&fifo, word::PARENT, 1),
        (&packed, word::CONTENT, 0),
        (&packed, word::CONTENT, check_bits_only),
        (&packed, word::SHAPE, PACKED_CLASSES),
        (&packed, word::PAGES, 1),
        (&extent, word::SHAPE, 0),
        (&extent, word::SHAPE, EXTENT_PAGES_MAX + 1),
        (&extent, word::PAGES, 8),
        (&tree, word::SHAPE, 0),
        (&tree, word::SHAPE, TREE_HEIGHT_MAX + 1),
        (&tree, word::PAGES, 0),
        (&tree, word::CONTENT, 0),
        (&directory, word::PARENT, 0),
        (&directory, word::PARENT, NUMBER_MAX + 1),
        (&directory, word::SHAPE, SIZE_MAX + 2),
        (&directory, word::PAGES, 0),
        (&directory, word::SIZE, 0),
        (&parent(1), word::SIZE, 1),
        (&link, word::SIZE, 0),
        (&link, word::SIZE, TARGET_MAX + 1),
        (&large, word::SHAPE, 0),
        (&large, word::SHAPE, 1 << 48),
        (&large, word::CONTENT, root),
        (&large, word::PAGES, 1),
        (&partly, word::SHAPE, 0x1240 + TREE_HEIGHT_MAX + 1),
        (&partly, word::CONTENT, 0),
        (&partly, word::CONTENT, check_bits_only),
        (&partly, word::PAGES, 0),
    ];
    for (inode, offset, value) in cases {
        assert_eq!(Inode::from_words(inode.to_words(NUMBER), NUMBER), Ok(*inode));
        assert_eq!(altered(inode, offset, value), Err(Defect::Field(offset, value)));
    }
}

#[test]
fn numbers_and_offsets_map_to_each_other() {
    for number in [1, 2, 0x8000, NUMBER_MAX] {
        let offset = offset_of(number).unwrap();
        assert_eq!(offset.bytes(), number * 64);
        assert_eq!(number_of(offset), Some(number));
        assert_eq!(number_of(offset.plus(8)), None);
    }
    let inode = regular(Content::None, 0);
    for number in [0, NUMBER_MAX + 1, u64::MAX] {
        assert_eq!(offset_of(number), None);
        let found = Inode::from_words(inode.to_words(number), number);
        assert_eq!(found, Err(Defect::Number(number)));
    }
    assert_eq!(number_of(Offset::NONE), None);
    assert_eq!(number_of(Offset::new(1 << 48)), None);
}

#[test]
fn without_its_chunk_a_file_has_its_tree_or_nothing() {
    let (chunk, root) = (Offset::new(640), 77);
    let large = |root, height| Content::Large { root, height, chunk };
    assert_eq!(large(0, 0).without_chunk(), Content::None);
    assert_eq!(large(root, 2).without_chunk(), Content::Tree { root, height: 2 });
    let other = Content::Packed { root, class: 3 };
    assert_eq!(other.without_chunk(), other);
}
