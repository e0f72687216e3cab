//! Names and their hashes.

use conquest_format::WORD;
use conquest_format::fs::dentry::{HASH_BITS, is_name};
use siphasher::sip::SipHasher13;

/// How names are hashed. All directories of a store hash alike for its whole life.
pub trait NameHash {
    /// The hash of `name`: 64 bits, of which the top 48 are used.
    fn hash(&self, name: &[u8]) -> u64;
}

/// SipHash-1-3 with the store's key: without the key nobody can find names whose hashes collide.
#[derive(Clone, Copy, Debug)]
pub struct Key(SipHasher13);

impl Key {
    /// The hash of the key whose two words are `words`.
    #[must_use]
    pub fn new(words: [u64; 2]) -> Key {
        Key(SipHasher13::new_with_keys(words[0], words[1]))
    }
}

impl NameHash for Key {
    fn hash(&self, name: &[u8]) -> u64 {
        self.0.hash(name)
    }
}

/// A name that an entry can have, hashed.
#[derive(Clone, Copy, Debug)]
pub struct Name<'n> {
    bytes: &'n [u8],
    hash: u64,
}

impl<'n> Name<'n> {
    pub(super) fn new(bytes: &'n [u8], names: &impl NameHash) -> Option<Self> {
        is_name(bytes).then(|| Name { bytes, hash: hash(names, bytes) })
    }

    /// The name itself.
    #[must_use]
    pub const fn bytes(&self) -> &'n [u8] {
        self.bytes
    }

    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) const fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The name's words as they stand in a dentry, the last one padded with zeros.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> + use<'n> {
        self.bytes.chunks(WORD as usize).map(|chunk| {
            let mut word = [0; WORD as usize];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            u64::from_le_bytes(word)
        })
    }
}

/// The bits of `name`'s hash that are used.
pub(super) fn hash(names: &impl NameHash, name: &[u8]) -> u64 {
    names.hash(name) >> (u64::BITS - HASH_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_siphash_1_3() {
        // As the reference implementation says, of no bytes and of the byte 0.
        let key = Key::new([0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908]);
        assert_eq!(key.hash(&[]).to_le_bytes(), [0xDC, 0xC4, 0x0F, 0x05, 0x58, 0x01, 0xAC, 0xAB]);
        assert_eq!(key.hash(&[0]).to_le_bytes(), [0x93, 0xCA, 0x57, 0x7D, 0xF3, 0x9B, 0xF4, 0xC9]);
        assert_eq!(hash(&key, b"name"), 0x8F99_65E4_DBBC);
    }

    #[test]
    fn words_are_padded() {
        let name = Name::new(b"123456789", &Key::new([0, 0])).unwrap();
        let words: Vec<u64> = name.words().collect();
        assert_eq!(words, [u64::from_le_bytes(*b"12345678"), u64::from(b'9')]);
    }
}
