//! Times of files, in nanoseconds since 1970.

/// How coarse clocks may be: a time that is this little before another one is taken to be later.
const COARSE: i64 = 1_000_000;

/// The time of a change at `now` of what was last changed at `old`: two changes with a look in
/// between are told apart even if the clock has not moved on. A clock that was set back counts.
pub(crate) fn after(old: i64, now: i64) -> i64 {
    let is_close = (0..=COARSE).contains(&old.saturating_sub(now));
    if is_close { old.saturating_add(1) } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_later_unless_the_clock_was_set_back() {
        assert_eq!(after(5, 9), 9);
        assert_eq!(after(9, 9), 10);
        assert_eq!(after(12, 9), 13);
        assert_eq!(after(9 + COARSE, 9), 10 + COARSE);
        assert_eq!(after(10 + COARSE, 9), 9);
        assert_eq!(after(i64::MAX, i64::MIN), i64::MIN);
        assert_eq!(after(i64::MAX, i64::MAX), i64::MAX);
    }
}
