//! Identities: of stores, of regions, of boots.

use std::fmt;
use std::str::FromStr;

/// Sixteen bytes that name something for ever, written as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Id(pub [u8; 16]);

/// Bytes after which a UUID has a dash.
const DASHES: [usize; 4] = [4, 6, 8, 10];

impl Id {
    /// A new one: a random UUID (version 4).
    ///
    /// # Errors
    /// If the kernel has no random numbers to give.
    pub fn random() -> std::io::Result<Id> {
        let mut bytes = random()?;
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Ok(Id(bytes))
    }

    /// The id of a file system that has this UUID: its halves, as numbers with the lowest byte
    /// first, exclusive or. The kernel's file systems make theirs so.
    pub(crate) fn to_fsid(self) -> u64 {
        let word =
            |half: &[u8]| half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let (low, high) = self.0.split_at(8);
        word(low) ^ word(high)
    }
}

/// Sixteen random bytes that nobody can guess.
pub(crate) fn random() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if DASHES.contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is no UUID.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a UUID of 32 hexadecimal digits")]
pub struct NotAnId;

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Id, NotAnId> {
        let mut bytes = [0; 16];
        let mut digits = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16));
        for byte in &mut bytes {
            let mut digit = || digits.next().flatten().ok_or(NotAnId);
            *byte = (digit()? << 4 | digit()?) as u8;
        }
        if digits.next().is_some() { Err(NotAnId) } else { Ok(Id(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_and_read_as_uuids() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        let id: Id = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(id.0[15], 0xff);
        for bad in ["", "0011", "zz112233-4455-6677-8899-aabbccddeeff", &format!("{text}0")] {
            assert_eq!(bad.parse::<Id>(), Err(NotAnId), "{bad}");
        }
        assert_eq!(id.to_fsid(), 0x7766_5544_3322_1100 ^ 0xFFEE_DDCC_BBAA_9988);
        let (one, two) = (Id::random().unwrap(), Id::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.to_string().as_bytes()[14], b'4');
    }
}
