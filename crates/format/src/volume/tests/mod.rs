//! Tests of what stands on the devices of a volume.

use super::*;

mod checkpoints;
mod records;
mod superblocks;
mod units;

/// Random words: the checksum of a counter.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 += 1;
        checksum(self.0, b"volume")
    }

    fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// A number that has any length: small ones are as likely as large ones.
    fn number(&mut self) -> u64 {
        let bits = self.below(64);
        self.word() >> bits
    }

    fn words(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.word()).collect()
    }

    /// Unit, place and length of a range that can be.
    fn range(&mut self, len_max: u64) -> [u64; 3] {
        let len = 1 + self.below(len_max.min(LEN_MAX - 1));
        let unit = self.number() % (SPACE - len + 1);
        let place = self.number() % (PLACE_MAX - len + 1);
        [unit, place, len]
    }
}

const UUID: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn bind() -> Bind {
    Bind::new(UUID)
}

/// `unit` with the checksum that it should have.
fn resealed(unit: &mut [u8]) {
    sealed(unit, bind(), &[]);
}

#[test]
fn checksums_are_those_that_are_documented() {
    assert_eq!(bind().0, 0x8355_E3A6_F617_70DB);
    assert_eq!(bind().with(0).0, 0xC744_C2F9_E663_3CEA);
    assert_eq!(bind().with(1).0, 0x7543_9963_4908_6A77);
    assert_eq!(bind().checksum(b"CONQUNIT"), 0x94E9_80CE_2F87_948B);
    assert_eq!(digest(&[0; 4096]), 0xDB11_E65B);
    assert_eq!(bind().sum(1000, 3, 0xDB11_E65B), 0x581E_3702);
}

#[test]
fn the_formula_is_that_which_is_documented() {
    let mut random = Random(1);
    for _ in 0..1000 {
        let (seed, number) = (random.word(), random.number());
        let x = u128::from(seed ^ number) * 0x9E37_79B9_7F4A_7C15 % (1 << 64);
        let x = (x ^ x >> 32) * 0xD6E8_FEB8_6659_FD93 % (1 << 64);
        assert_eq!(u128::from(Bind(seed).with(number).0), x ^ x >> 29);
    }
}

#[test]
fn sums_say_where_and_when() {
    let mut random = Random(2);
    for _ in 0..1000 {
        let (place, generation) = (random.number(), random.number());
        let found = random.word() as u32;
        let sum = bind().sum(place, generation, found);
        assert_eq!(bind().digest(place, generation, sum), found);
        // A bit that differs makes another one, in any of the three.
        let bit = random.below(32);
        assert_ne!(bind().sum(place ^ 1 << bit, generation, found), sum);
        assert_ne!(bind().sum(place, generation ^ 1 << bit, found), sum);
        assert_ne!(bind().sum(place, generation, found ^ 1 << bit), sum);
        assert_ne!(Bind::new([1; 16]).sum(place, generation, found), sum);
    }
}

#[test]
fn digests_depend_on_every_bit() {
    let mut unit = vec![7; UNIT as usize];
    let whole = digest(&unit);
    for at in 0..unit.len() {
        for bit in 0..8 {
            unit[at] ^= 1 << bit;
            assert_ne!(digest(&unit), whole, "{at} {bit}");
            unit[at] ^= 1 << bit;
        }
    }
}

#[test]
fn words_are_little_endian_and_whole() {
    let bytes: Vec<u8> = (1..=19).collect();
    let found: Vec<u64> = words(&bytes).collect();
    assert_eq!(found, [0x0807_0605_0403_0201, 0x100F_0E0D_0C0B_0A09]);
    let mut into = [0xFF; 19];
    put_words(&mut into, found.iter().copied().chain([5]));
    assert_eq!((&into[..16], &into[16..]), (&bytes[..16], &[0xFF; 3][..]));
    put_words(&mut into, [1]);
    assert_eq!(&into[..16], [&[1, 0, 0, 0, 0, 0, 0, 0], &bytes[8..16]].concat());
    assert_eq!(first_words::<3>(&bytes), [found[0], found[1], 0]);
    assert_eq!(uuid_words(UUID), [0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908]);
    assert_eq!(uuid_of(uuid_words(UUID)), UUID);
}

#[test]
fn ranges_are_within_the_space_and_the_medium() {
    let cases = [
        ((0, 0, 0), false),
        ((0, 0, 1), true),
        ((0, 0, LEN_MAX - 1), true),
        ((0, 0, LEN_MAX), false),
        ((SPACE - 1, PLACE_MAX - 1, 1), true),
        ((SPACE, 0, 1), false),
        ((SPACE - 1, 0, 2), false),
        ((0, PLACE_MAX, 1), false),
        ((0, PLACE_MAX - 1, 2), false),
        ((u64::MAX, 0, 1), false),
        ((0, u64::MAX, 1), false),
        ((u64::MAX, u64::MAX, u64::MAX), false),
    ];
    for ((unit, place, len), expected) in cases {
        assert_eq!(is_range(unit, place, len), expected, "{unit} {place} {len}");
    }
}
