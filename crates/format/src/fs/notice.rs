//! A notice: what the change feed says of one change to a file or to a name.
//!
//! | word | bits | field |
//! | --- | --- | --- |
//! | 0 | 0..8 | kind |
//! | 0 | 8..16 | 1 if the file is a directory, otherwise 0 |
//! | 0 | 16..24 | bytes of the name; 0 for a notice without one |
//! | 1 | 0..64 | number of the file's inode |
//! | 2 | 0..64 | its generation |
//! | 3 | 0..64 | with a name: number of the directory's inode |
//! | 4 | 0..64 | with a name: its generation |
//! | 5 and up | | with a name: its bytes, padded with zeros |

use crate::WORD;

/// Words of a notice without a name.
pub const WORDS: u64 = 3;
/// Words before the name.
pub const NAME: u64 = 5;
/// Most words of a notice.
pub const WORDS_MAX: u64 = 37;

/// What has happened. The numbers stay what they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The file was made, with this name.
    Created = 1,
    /// The file, which there was, got this name.
    Linked = 2,
    /// The file lost this name.
    Removed = 3,
    /// The file lost this name, and got another one.
    MovedFrom = 4,
    /// The file got this name, and lost another one. Whatever had the name before has lost it.
    MovedTo = 5,
    /// What `stat` tells of the file changed, other than its content and the time of access.
    Attributes = 6,
    /// Bytes of the file were written, or became a hole or zeros, or got space.
    Content = 7,
    /// The file was given a size.
    Size = 8,
    /// Extended attributes of the file changed, or its access lists.
    ExtendedAttributes = 9,
    /// The file is there no more.
    Gone = 10,
}

impl NoticeKind {
    /// The kind of number `number`.
    #[must_use]
    pub const fn new(number: u8) -> Option<NoticeKind> {
        Some(match number {
            1 => NoticeKind::Created,
            2 => NoticeKind::Linked,
            3 => NoticeKind::Removed,
            4 => NoticeKind::MovedFrom,
            5 => NoticeKind::MovedTo,
            6 => NoticeKind::Attributes,
            7 => NoticeKind::Content,
            8 => NoticeKind::Size,
            9 => NoticeKind::ExtendedAttributes,
            10 => NoticeKind::Gone,
            _ => return None,
        })
    }

    /// Whether such a notice has a directory and a name.
    #[must_use]
    pub const fn has_name(self) -> bool {
        (self as u8) <= NoticeKind::MovedTo as u8
    }
}

/// The first word of a notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoticeHeader {
    /// What has happened.
    pub kind: NoticeKind,
    /// Whether the file is a directory.
    pub is_directory: bool,
    /// Bytes of the name, 0 for none.
    pub name_len: u8,
}

impl NoticeHeader {
    /// The word.
    #[must_use]
    pub const fn pack(&self) -> u64 {
        self.kind as u64 | (self.is_directory as u64) << 8 | (self.name_len as u64) << 16
    }

    /// What `word` says; none if it is no such word.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<NoticeHeader> {
        let name_len = (word >> 16) as u8;
        let Some(kind) = NoticeKind::new(word as u8) else {
            return None;
        };
        if word >> 24 != 0 || word >> 8 & 0xFF > 1 || kind.has_name() != (name_len != 0) {
            return None;
        }
        Some(NoticeHeader { kind, is_directory: word >> 8 & 1 == 1, name_len })
    }

    /// Words of the notice.
    #[must_use]
    pub const fn words(&self) -> u64 {
        match self.name_len {
            0 => WORDS,
            len => NAME + (len as u64).div_ceil(WORD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_what_it_is() {
        for number in 1..=10 {
            let kind = NoticeKind::new(number).unwrap();
            let name_len = if kind.has_name() { 255 } else { 0 };
            let header = NoticeHeader { kind, is_directory: number % 2 == 0, name_len };
            assert_eq!(NoticeHeader::unpack(header.pack()), Some(header));
            assert_eq!(header.words(), if kind.has_name() { WORDS_MAX } else { WORDS });
            let wrong = NoticeHeader { name_len: 255 - name_len, ..header };
            assert_eq!(NoticeHeader::unpack(wrong.pack()), None);
        }
        assert_eq!(NoticeHeader::unpack(0), None);
        assert_eq!(NoticeHeader::unpack(11), None);
        assert_eq!(NoticeHeader::unpack(6 | 2 << 8), None);
        assert_eq!(NoticeHeader::unpack(6 | 1 << 24), None);
    }
}
