//! Copies of the caller's bytes, for operations that read them while they hold locks.
//!
//! The caller's memory may fault: it may be a mapping of a slow file, or of one in a mount that
//! this very process serves, or be filled in by `userfaultfd`. Nobody else may wait for that. So
//! bytes, names and values are copied before an operation begins. (What is read goes to the
//! caller's memory directly: nothing is held then.)
//!
//! Copies of up to 512 bytes are on the stack. Larger ones are in a buffer of the thread, up to
//! 1 MiB, which it keeps for the next call; a signal handler that finds it in use gets its own.

use core::cell::Cell;
use core::hint::black_box;
use core::ops::Deref;

use conquest_access::Errno;
use conquest_fs::open::CALL_MAX;

/// Bytes of a copy on the stack.
const ON_STACK: usize = 512;
/// Most bytes of a thread's buffer.
const KEPT: usize = 1 << 20;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with a copy of the bytes of `parts`, one after the other, at most
/// [`CALL_MAX`]. `ENOMEM` if there is no memory for the copy.
pub(crate) fn with_copy<P: Deref<Target = [u8]>, T, E: From<Errno>>(
    parts: &[P],
    work: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, E> {
    let all = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    let len = all.min(CALL_MAX as usize);
    let mut small = [0; ON_STACK];
    if let Some(place) = small.get_mut(..len) {
        let mut left: &mut [u8] = place;
        for part in parts {
            let (to, rest) = left.split_at_mut(part.len().min(left.len()));
            to.copy_from_slice(part.get(..to.len()).unwrap_or_default());
            left = rest;
        }
        // Or the compiler might see that the original would do.
        return work(black_box(small.get(..len).unwrap_or_default()));
    }
    // At a thread's end there may be none any more.
    let own = if len > KEPT { None } else { BUFFER.try_with(Cell::take).ok() };
    let mut buffer = own.unwrap_or_default();
    buffer.clear();
    buffer.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    for part in parts {
        let most = len - buffer.len();
        buffer.extend_from_slice(part.get(..most).unwrap_or(part));
    }
    let done = work(black_box(&buffer));
    if buffer.capacity() <= KEPT {
        let (Ok(()) | Err(_)) = BUFFER.try_with(|place| place.set(buffer));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_whole_whatever_the_parts() {
        let bytes: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
        for len in [0, 1, ON_STACK - 1, ON_STACK, ON_STACK + 1, KEPT, KEPT + 1, bytes.len()] {
            let whole = &bytes[..len];
            for cut in [0, len / 3, len] {
                let parts = [&whole[..cut], &whole[cut..]];
                let copied = with_copy(&parts, |copy| {
                    assert!(copy.is_empty() || !whole.as_ptr_range().contains(&copy.as_ptr()));
                    // Of one inside the other, each has its own.
                    let inner = with_copy(&[whole], |inner| Ok::<_, Errno>(inner == copy));
                    assert_eq!(inner, Ok(true));
                    Ok::<_, Errno>(copy == whole)
                });
                assert_eq!(copied, Ok(true), "{len} {cut}");
            }
        }
        let kept = BUFFER.with(|place| {
            let buffer = place.take();
            let capacity = buffer.capacity();
            place.set(buffer);
            capacity
        });
        assert!(kept <= KEPT && kept > ON_STACK, "{kept}");
    }
}
