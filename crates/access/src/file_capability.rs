//! The values of `security.capability` (capabilities(7)): which program gets capabilities, and in
//! the namespaces of whose root.

use crate::{Credentials, Errno};

/// Bytes of a value that counts in the initial namespace.
const PLAIN: usize = 20;
/// Bytes of a value that names the user who is root where it counts.
const ROOTED: usize = 24;
/// Versions, in the upper byte of the first word.
const PLAIN_VERSION: u32 = 0x0200_0000;
const ROOTED_VERSION: u32 = 0x0300_0000;
/// The bit of the first word that is kept when the version changes.
const EFFECTIVE: u32 = 1;

/// A value of `security.capability`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileCapability {
    bytes: [u8; ROOTED],
    len: usize,
}

impl FileCapability {
    /// That in an attribute; none if it is no value.
    #[must_use]
    pub fn new(value: &[u8]) -> Option<FileCapability> {
        let magic = value.first_chunk().map(|&magic| u32::from_le_bytes(magic) & !EFFECTIVE)?;
        let is_value =
            matches!((magic, value.len()), (PLAIN_VERSION, PLAIN) | (ROOTED_VERSION, ROOTED));
        let mut bytes = [0; ROOTED];
        bytes.get_mut(..value.len()).filter(|_| is_value)?.copy_from_slice(value);
        Some(FileCapability { bytes, len: value.len() })
    }

    /// The attribute's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The user who is root in the namespaces where it counts.
    fn root(&self) -> u32 {
        let last = self.bytes().last_chunk().filter(|_| self.len == ROOTED);
        last.map_or(0, |&root| u32::from_le_bytes(root))
    }

    /// The same with another root; none is the initial namespace's.
    fn with_root(mut self, root: Option<u32>) -> FileCapability {
        let version = if root.is_some() { ROOTED_VERSION } else { PLAIN_VERSION };
        let effective = u32::from(self.bytes[0]) & EFFECTIVE;
        let parts = [(0, version | effective), (PLAIN, root.unwrap_or(0))];
        for (at, word) in parts {
            if let Some(place) = self.bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        self.len = if root.is_some() { ROOTED } else { PLAIN };
        self
    }

    /// What is kept if `who` sets this one: in a namespace, it counts for that one's root.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if the namespace has no such root.
    pub fn meant_by(self, who: &Credentials) -> Result<FileCapability, Errno> {
        match who.namespace {
            None if self.root() == u32::MAX => Err(Errno::EINVAL),
            None => Ok(self),
            Some(_) => Ok(self.with_root(Some(who.user_meant(self.root())?))),
        }
    }

    /// What `who` is told if this one is kept.
    ///
    /// # Errors
    ///
    /// [`Errno::EOVERFLOW`] if it counts for a root that the caller's namespace does not know.
    pub fn seen_by(self, who: &Credentials) -> Result<FileCapability, Errno> {
        match who.user_number(self.root()) {
            Some(root) if root != 0 => Ok(self.with_root(Some(root))),
            // The root of a namespace further up, or of this one.
            None if self.root() != 0 => Err(Errno::EOVERFLOW),
            _ => Ok(self.with_root(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capabilities, IdMap, IdRange, UserNamespace};

    fn value(version: u32, root: Option<u32>) -> Vec<u8> {
        let words = [Some(version | EFFECTIVE), Some(1), Some(2), Some(3), Some(4), root];
        words.into_iter().flatten().flat_map(u32::to_le_bytes).collect()
    }

    fn plain() -> Vec<u8> {
        value(PLAIN_VERSION, None)
    }

    fn rooted(root: u32) -> Vec<u8> {
        value(ROOTED_VERSION, Some(root))
    }

    #[test]
    fn roots_are_translated() {
        let ranges = [
            IdRange { inside: 0, outside: 7000, count: 1 },
            IdRange { inside: 5, outside: 2000, count: 1 },
        ];
        let space = UserNamespace { users: IdMap(&ranges), groups: IdMap(&ranges) };
        let who = |namespace| Credentials {
            fsuid: 0,
            fsgid: 0,
            groups: &[],
            capabilities: Capabilities::ALL,
            umask: 0,
            namespace,
        };
        let (outside, inside) = (who(None), who(Some(space)));
        let bytes =
            |found: Result<FileCapability, Errno>| found.map(|found| found.bytes().to_vec());
        let meant = |value: &[u8], who| bytes(FileCapability::new(value).unwrap().meant_by(who));
        let seen = |value: &[u8], who| bytes(FileCapability::new(value).unwrap().seen_by(who));
        assert_eq!(meant(&plain(), &outside), Ok(plain()));
        assert_eq!(meant(&rooted(9), &outside), Ok(rooted(9)));
        assert_eq!(meant(&rooted(u32::MAX), &outside), Err(Errno::EINVAL));
        assert_eq!(meant(&plain(), &inside), Ok(rooted(7000)));
        assert_eq!(meant(&rooted(5), &inside), Ok(rooted(2000)));
        assert_eq!(meant(&rooted(6), &inside), Err(Errno::EINVAL));
        assert_eq!(seen(&plain(), &outside), Ok(plain()));
        assert_eq!(seen(&rooted(0), &outside), Ok(plain()));
        assert_eq!(seen(&rooted(9), &outside), Ok(rooted(9)));
        assert_eq!(seen(&plain(), &inside), Ok(plain()));
        assert_eq!(seen(&rooted(7000), &inside), Ok(plain()));
        assert_eq!(seen(&rooted(2000), &inside), Ok(rooted(5)));
        assert_eq!(seen(&rooted(9), &inside), Err(Errno::EOVERFLOW));
        assert_eq!(FileCapability::new(&plain()[1..]), None);
        assert_eq!(FileCapability::new(&value(ROOTED_VERSION, None)), None);
    }
}
