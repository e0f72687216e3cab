//! How many workers there are, and what each does next.
//!
//! A worker reads, serves, or is parked. A few wait in reads; who would be one more is parked, and
//! ends when nobody has needed him for a while: nobody who waits in a read can be told to end. When
//! the last one who reads has got something to do, he calls another one: a parked or a new one.
//!
//! Invariant: unless all workers are serving and there are as many as there may be, one is reading
//! or *coming*, that is, called and on the way to read. That a worker parks in the moment in which
//! the last reader leaves is excluded by looking at the number of readers again under the lock,
//! which the one who leaves takes afterwards.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long who stays sleeps at once.
const STAYING: Duration = Duration::from_secs(3600);

/// The workers of a session.
#[derive(Debug)]
pub(crate) struct Pool {
    /// How many wait in a read, or are about to.
    reading: AtomicUsize,
    state: Mutex<State>,
    called: Condvar,
    live_max: usize,
    reading_max: usize,
    parked_time: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// Workers there are, coming ones included.
    live: usize,
    parked: usize,
    /// Parked workers that have been called and have not noticed yet; at most `parked`.
    wanted: usize,
    /// Workers on the way to read that were called or made for that.
    coming: usize,
    is_ending: bool,
}

/// Who was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Called {
    /// Nobody has to be made.
    Nobody,
    /// The caller has to make a worker, which arrives, or to say that it can't.
    New,
}

/// What a worker does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Read,
    End,
}

impl Pool {
    /// A pool with one worker, that is to arrive.
    pub(crate) fn new(live_max: usize, reading_max: usize, parked_time: Duration) -> Pool {
        Pool {
            reading: AtomicUsize::new(0),
            state: Mutex::new(State { live: 1, coming: 1, ..State::default() }),
            called: Condvar::new(),
            live_max: live_max.max(1),
            reading_max: reading_max.max(1),
            parked_time,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker that was made is about to read for the first time.
    pub(crate) fn arrive(&self) {
        let mut state = self.lock();
        state.coming -= 1;
        self.reading.fetch_add(1, Ordering::SeqCst);
    }

    /// The caller could not make the worker that he had to. Meanwhile others may have relied on it.
    pub(crate) fn cannot_come(&self) {
        let mut state = self.lock();
        state.coming -= 1;
        state.live -= 1;
        if self.reading.load(Ordering::SeqCst) == 0 {
            self.call_parked(&mut state);
        }
    }

    /// Calls a parked worker, if there is one.
    fn call_parked(&self, state: &mut State) -> bool {
        let is_there = state.parked > state.wanted;
        if is_there {
            state.wanted += 1;
            state.coming += 1;
            self.called.notify_one();
        }
        is_there
    }

    /// The caller has read something, and is going to serve it.
    pub(crate) fn leave(&self) -> Called {
        if self.reading.fetch_sub(1, Ordering::SeqCst) > 1 {
            return Called::Nobody;
        }
        let mut state = self.lock();
        if state.coming > 0 || state.is_ending || self.call_parked(&mut state) {
            return Called::Nobody;
        }
        if state.live < self.live_max {
            state.live += 1;
            state.coming += 1;
            return Called::New;
        }
        Called::Nobody
    }

    /// Whether the caller may read, because not enough do.
    fn reads(&self) -> bool {
        let one_more = |reading| (reading < self.reading_max).then_some(reading + 1);
        self.reading.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// The caller has served, and asks what to do next; waits while he is parked, until the end if
    /// he `stays` whether he is needed or not.
    pub(crate) fn next(&self, stays: bool) -> Next {
        if self.reads() {
            return Next::Read;
        }
        let mut state = self.lock();
        if self.reads() {
            return Next::Read;
        }
        let since = Instant::now();
        state.parked += 1;
        loop {
            if state.is_ending {
                break;
            }
            if state.wanted > 0 {
                state.wanted -= 1;
                state.parked -= 1;
                state.coming -= 1;
                self.reading.fetch_add(1, Ordering::SeqCst);
                return Next::Read;
            }
            let left = self.parked_time.saturating_sub(since.elapsed());
            if left.is_zero() && !stays {
                break;
            }
            let waited = self.called.wait_timeout(state, if stays { STAYING } else { left });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.parked -= 1;
        state.live -= 1;
        Next::End
    }

    /// The connection has ended: the caller ends, and all others will.
    pub(crate) fn end(&self) {
        self.reading.fetch_sub(1, Ordering::SeqCst);
        let mut state = self.lock();
        state.live -= 1;
        state.is_ending = true;
        drop(state);
        self.called.notify_all();
    }

    /// How many workers there are.
    #[cfg(test)]
    fn live(&self) -> usize {
        self.lock().live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A pool of two workers of whom one is to read: one reads, the other has just served.
    fn with_surplus(parked_time: Duration) -> Pool {
        let pool = Pool::new(9, 1, parked_time);
        pool.arrive();
        assert_eq!(pool.leave(), Called::New);
        pool.arrive();
        pool
    }

    /// What the surplus worker of `pool` does next, after `meanwhile`, which begins when he is
    /// parked.
    fn parked_until(pool: &Pool, stays: bool, meanwhile: impl FnOnce()) -> Next {
        std::thread::scope(|scope| {
            let surplus = scope.spawn(|| pool.next(stays));
            while pool.lock().parked == 0 {
                std::thread::yield_now();
            }
            meanwhile();
            surplus.join().unwrap()
        })
    }

    #[test]
    fn the_last_reader_calls_a_new_one_up_to_the_limit() {
        let pool = Pool::new(3, 2, LONG);
        pool.arrive();
        assert_eq!(pool.leave(), Called::New);
        pool.arrive();
        assert_eq!(pool.next(false), Next::Read);
        // One of two leaves: the other one still reads.
        assert_eq!(pool.leave(), Called::Nobody);
        assert_eq!(pool.leave(), Called::New);
        pool.arrive();
        assert_eq!(pool.leave(), Called::Nobody, "three are the most");
        assert_eq!(pool.live(), 3);
    }

    #[test]
    fn who_can_not_be_made_is_tried_again_later() {
        let pool = Pool::new(3, 2, LONG);
        pool.arrive();
        assert_eq!(pool.leave(), Called::New);
        pool.cannot_come();
        assert_eq!(pool.next(false), Next::Read);
        assert_eq!(pool.leave(), Called::New);
    }

    #[test]
    fn nobody_is_called_while_somebody_is_coming() {
        let pool = Pool::new(9, 2, LONG);
        pool.arrive();
        assert_eq!(pool.leave(), Called::New);
        assert_eq!(pool.next(false), Next::Read);
        assert_eq!(pool.leave(), Called::Nobody, "the new one is still on the way");
    }

    #[test]
    fn the_surplus_is_parked_and_called() {
        let pool = with_surplus(LONG);
        let next = parked_until(&pool, false, || assert_eq!(pool.leave(), Called::Nobody));
        assert_eq!((next, pool.live()), (Next::Read, 2));
    }

    #[test]
    fn whom_nobody_needs_ends_after_a_while() {
        let pool = with_surplus(Duration::from_millis(20));
        assert_eq!((pool.next(false), pool.live()), (Next::End, 1));
    }

    #[test]
    fn who_stays_is_parked_until_he_is_called() {
        let pool = with_surplus(Duration::ZERO);
        let next = parked_until(&pool, true, || {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(pool.live(), 2);
            assert_eq!(pool.leave(), Called::Nobody);
        });
        assert_eq!(next, Next::Read);
    }

    #[test]
    fn who_was_relied_on_and_can_not_be_made_is_replaced_by_a_parked_one() {
        let pool = with_surplus(LONG);
        let next = parked_until(&pool, false, || {
            // As if the one who reads had left while somebody was coming.
            pool.lock().coming += 1;
            pool.lock().live += 1;
            assert_eq!(pool.leave(), Called::Nobody);
            pool.cannot_come();
        });
        assert_eq!(next, Next::Read);
    }

    #[test]
    fn the_end_wakes_the_parked() {
        for stays in [false, true] {
            let pool = with_surplus(LONG);
            let next = parked_until(&pool, stays, || pool.end());
            assert_eq!((next, pool.live()), (Next::End, 0));
        }
    }
}
