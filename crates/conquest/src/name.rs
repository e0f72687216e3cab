//! Names of files as errors keep and show them.

use std::fmt;

use crate::quote;

/// Bytes of a name that is kept without memory of its own.
const SHORT: usize = 54;

/// What the caller called a file: a path as it was given, or an inode's number. Shown as a shell
/// would take it: quoted where it needs to be.
#[derive(Clone, PartialEq, Eq)]
pub struct Name(Bytes);

#[derive(Clone, PartialEq, Eq)]
enum Bytes {
    Number(u64),
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Name {
    /// The path `path`. Up to 54 bytes take no memory.
    pub(crate) fn new(path: &[u8]) -> Name {
        let mut bytes = [0; SHORT];
        Name(match bytes.get_mut(..path.len()) {
            Some(place) => {
                place.copy_from_slice(path);
                Bytes::Short { len: path.len() as u8, bytes }
            }
            None => Bytes::Long(path.into()),
        })
    }

    /// The file of inode `number`, of which no path is known.
    pub(crate) const fn of_number(number: u64) -> Name {
        Name(Bytes::Number(number))
    }

    /// The path, if it is known.
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        match &self.0 {
            Bytes::Number(_) => None,
            Bytes::Short { len, bytes } => bytes.get(..usize::from(*len)),
            Bytes::Long(bytes) => Some(bytes),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.path()) {
            (Bytes::Number(number), _) => write!(f, "inode {number}"),
            (_, path) => f.write_str(&quote::message(path.unwrap_or_default())),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_whole_and_shown_quoted() {
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 5000] {
            let path = vec![b'a'; len];
            assert_eq!(Name::new(&path).path(), Some(&path[..]), "{len}");
        }
        assert_eq!(Name::new(b"a/b").to_string(), "a/b");
        assert_eq!(Name::new(b"a\nb").to_string(), "'a'$'\\n''b'");
        assert_eq!(Name::of_number(17).to_string(), "inode 17");
    }
}
