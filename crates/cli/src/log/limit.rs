//! How often a message may come: a burst of each kind in a window of time, then a count.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tenths of a second of a window.
const WINDOW: u32 = 100;

/// How many messages of one kind came in the current window. One word: when the window began, in
/// tenths of a second, in the upper half, the count in the lower. 0 before the first message.
pub(super) struct Limit {
    state: AtomicU64,
    burst: u32,
}

/// Messages that were left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeftOut {
    pub(super) count: u32,
    pub(super) seconds: u32,
}

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It is written, after a word on those left out before.
    Written(Option<LeftOut>),
    /// It is left out, as the first one of the window or a later one.
    LeftOut { is_first: bool },
}

impl Limit {
    /// Admits `burst` messages in a window.
    pub(super) const fn new(burst: u32) -> Limit {
        Limit { state: AtomicU64::new(0), burst }
    }

    /// What becomes of a message at time `now`, in tenths of a second from a beginning.
    pub(super) fn admit(&self, now: u32) -> Admission {
        let next = |state: u64| {
            let (begin, count) = split(state);
            let is_over = now.wrapping_sub(begin) >= WINDOW;
            Some(if is_over { join(now, 1) } else { join(begin, count.saturating_add(1)) })
        };
        let before = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let (begin, count) = split(before.unwrap_or(0));
        if now.wrapping_sub(begin) >= WINDOW {
            return Admission::Written(self.left_out(begin, count, now));
        }
        match count < self.burst {
            true => Admission::Written(None),
            false => Admission::LeftOut { is_first: count == self.burst },
        }
    }

    /// The messages left out in a window that is over, to be told now, and only once.
    pub(super) fn settle(&self, now: u32) -> Option<LeftOut> {
        let state = self.state.load(Ordering::Relaxed);
        let (begin, count) = split(state);
        let left_out = self.left_out(begin, count, now);
        if left_out.is_none() || now.wrapping_sub(begin) < WINDOW {
            return None;
        }
        // Whoever changed it meanwhile has told.
        let settled = self.state.compare_exchange(state, 0, Ordering::Relaxed, Ordering::Relaxed);
        settled.ok().and(left_out)
    }

    fn left_out(&self, begin: u32, count: u32, now: u32) -> Option<LeftOut> {
        let count = count.checked_sub(self.burst).filter(|count| *count > 0)?;
        Some(LeftOut { count, seconds: now.wrapping_sub(begin).div_ceil(10) })
    }
}

const fn split(state: u64) -> (u32, u32) {
    ((state >> 32) as u32, state as u32)
}

const fn join(begin: u32, count: u32) -> u64 {
    (begin as u64) << 32 | count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_written_then_counted() {
        let limit = Limit::new(2);
        assert_eq!(limit.admit(1000), Admission::Written(None));
        assert_eq!(limit.admit(1001), Admission::Written(None));
        assert_eq!(limit.admit(1002), Admission::LeftOut { is_first: true });
        assert_eq!(limit.admit(1099), Admission::LeftOut { is_first: false });
        assert_eq!(limit.settle(1099), None);
        let told = LeftOut { count: 2, seconds: 10 };
        assert_eq!(limit.admit(1100), Admission::Written(Some(told)));
        assert_eq!(limit.settle(1300), None);
    }

    #[test]
    fn what_was_left_out_is_told_once_by_whoever_comes() {
        let limit = Limit::new(1);
        for _ in 0..5 {
            limit.admit(1000);
        }
        assert_eq!(limit.settle(1123), Some(LeftOut { count: 4, seconds: 13 }));
        assert_eq!(limit.settle(1124), None);
        assert_eq!(limit.admit(1125), Admission::Written(None));
        assert_eq!(limit.admit(1126), Admission::LeftOut { is_first: true });
    }

    #[test]
    fn many_threads_are_admitted_no_more_than_one() {
        let limit = Limit::new(100);
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        if matches!(limit.admit(5000), Admission::Written(_)) {
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(written.into_inner(), 100);
        assert_eq!(limit.settle(5100), Some(LeftOut { count: 3900, seconds: 10 }));
    }
}
