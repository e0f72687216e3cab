//! A sample of the mutants, for an estimate where trying all of them takes too long.

/// Keeps `count` of `all`, chosen at random by `seed`, in the order in which they are.
pub(super) fn take<T>(all: &mut Vec<T>, count: usize, seed: u64) {
    let (mut left, mut wanted) = (all.len() as u64, count as u64);
    let mut state = seed;
    all.retain(|_| {
        // Each as likely as what is wanted still asks for: so there are `count` at the end.
        let is_taken = number(&mut state) % left.max(1) < wanted;
        left -= 1;
        wanted -= u64::from(is_taken);
        is_taken
    });
}

/// The next number of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", 2014).
fn number(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn samples_have_the_size_that_was_asked_for() {
    for (of, count, expected) in [(100, 10, 10), (100, 100, 100), (3, 10, 3), (0, 1, 0)] {
        let mut all: Vec<u32> = (0..of).collect();
        take(&mut all, count, 7);
        assert_eq!(all.len(), expected);
        assert!(all.is_sorted());
    }
}

#[test]
fn samples_are_spread_and_depend_on_the_seed() {
    let chosen = |seed| {
        let mut all: Vec<u32> = (0..1000).collect();
        take(&mut all, 100, seed);
        all
    };
    assert_eq!(chosen(1), chosen(1));
    assert_ne!(chosen(1), chosen(2));
    let in_the_first_half = chosen(1).iter().filter(|it| **it < 500).count();
    assert!((30..=70).contains(&in_the_first_half), "{in_the_first_half} of 100");
}
