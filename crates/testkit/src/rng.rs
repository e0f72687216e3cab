//! A small random number generator, the same on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014): one word of state, passes the usual tests, and good as
/// a hash of its seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// Scrambles a word: the finaliser of SplitMix64, a bijection.
#[must_use]
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

impl Rng {
    /// The generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Rng(mix(seed))
    }

    /// The generator of `seed` for purpose `stream`.
    #[must_use]
    pub const fn stream(seed: u64, stream: u64) -> Self {
        Rng(mix(mix(seed) ^ stream))
    }

    /// The next 64 bits.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`, 0 if `end` is 0. Biased by less than `end` / 2^64.
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.word() as u128 * end as u128) >> 64) as u64
    }

    /// True in `part` of `whole` cases.
    pub const fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_repeat_by_seed_and_spread() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..1000).map(|_| rng.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        for digit in 0..10 {
            let count = draw(7).iter().filter(|&&d| d == digit).count();
            assert!((50..200).contains(&count), "{digit}: {count}");
        }
    }
}
