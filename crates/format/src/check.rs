//! The two check functions of the format.

/// XXH3-64 of `bytes` with seed `seed`. Several pieces are chained by seeding each with the result
/// of the one before; the first seed is 0.
#[must_use]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
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
