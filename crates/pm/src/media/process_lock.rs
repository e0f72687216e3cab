//! A lock between the threads of one process that a fork can't leave locked in the child.
//!
//! `std`'s mutex is copied into a forked child as it is: if another thread held it just then,
//! nobody in the child ever unlocks it. Here the lock word is the holder's process id, and what
//! another process's id stands in is free.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks at the word before the first sleep.
const SPINS: u32 = 100;
/// Sleep between two looks.
const NAP: Duration = Duration::from_micros(50);

/// The lock; guards no data of its own.
#[derive(Debug, Default)]
pub(super) struct ProcessLock(AtomicU32);

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct Held<'l>(&'l AtomicU32);

impl ProcessLock {
    pub(super) const fn new() -> Self {
        ProcessLock(AtomicU32::new(0))
    }

    /// Waits for the lock, in process `process`.
    pub(super) fn lock(&self, process: u32) -> Held<'_> {
        let mut spins = 0;
        loop {
            let found = self.0.load(Ordering::Relaxed);
            let take = |found| {
                self.0.compare_exchange(found, process, Ordering::Acquire, Ordering::Relaxed)
            };
            if found != process && take(found).is_ok() {
                return Held(&self.0);
            }
            spins += 1;
            if spins > SPINS {
                std::thread::sleep(NAP);
            } else {
                core::hint::spin_loop();
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let lock = ProcessLock::new();
        let counter = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _held = lock.lock(7);
                        let seen = counter.load(Ordering::Relaxed);
                        counter.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 4000);
    }

    #[test]
    fn what_another_process_held_is_free() {
        let lock = ProcessLock::new();
        let parents = lock.lock(7);
        let childs = lock.lock(8);
        drop(childs);
        drop(parents);
    }
}
