//! What blocks hold: bytes that say by which operation, and for which block, they were written.
//!
//! The *value* of a block is a word: [`HOLE`], [`ZEROS`], or the number of the operation that wrote
//! it, times 2^32, plus the block of the model for which it was written. (What was moved keeps its
//! value.)

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// Blocks of a unit.
pub const PER_UNIT: usize = 8;
/// The value of a block that is nowhere.
pub const HOLE: u64 = 0;
/// The value of zeros in a unit that is somewhere.
pub const ZEROS: u64 = 1;

/// The value of block `block` of the model as operation `number`, which is not 0, writes it.
#[must_use]
pub const fn value(number: u64, block: usize) -> u64 {
    number << 32 | block as u64
}

/// The number of the operation that wrote `value`, 0 if none did.
#[must_use]
pub const fn number_of(value: u64) -> u64 {
    value >> 32
}

/// Puts the bytes of a block of this `value` into `block`.
pub fn fill(value: u64, block: &mut [u8]) {
    let value = if value == ZEROS { 0 } else { value };
    for (factor, word) in (1_u64..).step_by(2).zip(block.as_chunks_mut::<8>().0) {
        *word = value.wrapping_mul(factor).to_le_bytes();
    }
}

/// The value that the bytes of `block` have: [`HOLE`] for zeros, none if nobody wrote them.
#[must_use]
pub fn value_of(block: &[u8]) -> Option<u64> {
    let words = block.as_chunks::<8>().0;
    let first = words.first().map_or(0, |word| u64::from_le_bytes(*word));
    let mut differing = 0;
    for (factor, word) in (1_u64..).step_by(2).zip(words) {
        differing |= first.wrapping_mul(factor) ^ u64::from_le_bytes(*word);
    }
    (differing == 0).then_some(first)
}

/// Whether `bytes` are those of blocks of these `values`; the first one that differs, if not.
#[must_use]
pub fn differing(values: &[u64], bytes: &[u8]) -> Option<usize> {
    values.iter().zip(bytes.chunks(BLOCK)).position(|(&value, block)| {
        let expected = if value == ZEROS { HOLE } else { value };
        value_of(block) != Some(expected)
    })
}
