//! The two check functions of the format.

use core::hash::Hasher;

use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

/// XXH3-64 of `bytes` with seed `seed`. Several pieces are chained by seeding each with the result
/// of the one before; the first seed is 0.
#[must_use]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// [`checksum`] of bytes that come piece by piece. It takes no memory from the heap.
pub struct Checksum(RawHasher<[u8; DEFAULT_SECRET_LENGTH]>);

impl core::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Checksum").field(&self.finish()).finish()
    }
}

impl Checksum {
    /// Of no bytes yet.
    #[must_use]
    pub fn new(seed: u64) -> Checksum {
        let buffer = SecretBuffer::with_seed(seed, [0; DEFAULT_SECRET_LENGTH]);
        // It is refused only if it is shorter than that.
        Checksum(RawHasher::new(buffer.unwrap_or_else(|_| std::process::abort())))
    }

    /// `bytes` come next.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all that came.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Sixteen check bits over a 48-bit payload and the place it stands at: a word that was copied to
/// another place, or scribbled over, does not pass.
///
/// `x = (payload ^ place * 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93`, then
/// `x ^= x >> 32`, and the result is the low sixteen bits of `x ^ (x >> 16)`; arithmetic is modulo
/// 2^64.
#[must_use]
pub const fn check16(payload: u64, place: u64) -> u16 {
    let mixed = place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut x = (payload ^ mixed).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^= x >> 32;
    x ^= x >> 16;
    (x & 0xFFFF) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5000_u32).map(|index| ((index * 31) >> 3) as u8).collect();
        for (len, piece) in [(0, 1), (16, 3), (240, 240), (241, 100), (5000, 1024)] {
            let mut sum = Checksum::new(9);
            bytes[..len].chunks(piece).for_each(|piece| sum.add(piece));
            assert_eq!(sum.finish(), checksum(9, &bytes[..len]));
        }
    }
}
