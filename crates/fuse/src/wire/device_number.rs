//! Numbers of devices.

/// Which device a special file stands for.
///
/// A word has twelve bits of the major number and twenty of the minor one: 8 low bits of the minor
/// one, the major one, the rest of the minor one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct DeviceNumber {
    /// The driver; less than 2^12.
    pub major: u32,
    /// Which of the driver's; less than 2^20.
    pub minor: u32,
}

impl DeviceNumber {
    /// The number in a word.
    #[must_use]
    pub const fn from_word(word: u32) -> DeviceNumber {
        DeviceNumber { major: word >> 8 & 0xFFF, minor: word & 0xFF | word >> 12 & 0xF_FF00 }
    }

    /// The word; what does not fit is cut off.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.minor & 0xFF | (self.major & 0xFFF) << 8 | (self.minor & 0xF_FF00) << 12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_words_of_the_kernel() {
        let cases = [((8, 1), 0x0801), ((4095, 0xF_FFFF), u32::MAX), ((1, 0x1_2345), 0x1230_0145)];
        for ((major, minor), word) in cases {
            let number = DeviceNumber { major, minor };
            assert_eq!((number.word(), DeviceNumber::from_word(word)), (word, number));
        }
    }
}
