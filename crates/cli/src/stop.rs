//! Ending on request: `SIGINT`, `SIGTERM` and `SIGHUP` let the work under way come to a good end.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::reason::{Reason, Result};

/// What was asked for so far.
struct Requests {
    stop: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

static REQUESTS: OnceLock<Requests> = OnceLock::new();

/// From now on those signals only ask: the first one. A second one ends the program at once.
///
/// # Errors
/// What the system says.
pub(crate) fn listen() -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds the flag down, sets it, and the second one acts.
        signal_hook::flag::register_conditional_default(number, Arc::clone(&stop))?;
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        signal_hook::flag::register(number, Arc::clone(&stop))?;
    }
    // Whoever listens twice has the first one's flags.
    let _ = REQUESTS.set(Requests { stop, signal });
    Ok(())
}

/// Whether the program was asked to end.
pub(crate) fn requested() -> bool {
    REQUESTS.get().is_some_and(|requests| requests.stop.load(Ordering::Relaxed))
}

/// Goes on only if the program was not asked to end.
///
/// # Errors
/// [`Reason::Stopped`].
pub(crate) fn check() -> Result<()> {
    if requested() { Err(Reason::Stopped) } else { Ok(()) }
}

/// Ends the program by the signal that asked for it, so that who started it sees why; returns if
/// there was none.
pub(crate) fn end_by_signal() {
    let number = REQUESTS.get().map_or(0, |requests| requests.signal.load(Ordering::Relaxed));
    if number != 0 {
        // If it returns, the caller ends the program with an exit code.
        let _ = signal_hook::low_level::emulate_default_handler(number as i32);
    }
}
