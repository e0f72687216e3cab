//! Two things at once, for one caller who waits for both.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Does `one`, and meanwhile `other` in a thread of its own: what both return. If there is no
/// thread to be had, they are done one after the other.
pub(crate) fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl Fn() -> B + Sync) -> (A, B) {
    scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, &other);
        let one = one();
        let other = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => other(),
        };
        (one, other)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::current;

    use super::*;

    #[test]
    fn both_are_done_at_once() {
        let (one, other) = (channel(), channel());
        // Each waits for the other.
        let first = || {
            other.0.send(1).unwrap();
            (one.1.recv().unwrap(), current().id())
        };
        let (give, take) = (one.0, std::sync::Mutex::new(other.1));
        let second = || {
            give.send(2).unwrap();
            (take.lock().unwrap().recv().unwrap(), current().id())
        };
        let ((found, here), (found_there, there)) = both(first, second);
        assert_eq!((found, found_there, here), (2, 1, current().id()));
        assert_ne!(here, there);
    }

    #[test]
    #[should_panic(expected = "in the thread")]
    fn who_panics_is_heard() {
        both(|| 1, || panic!("in the thread"));
    }
}
