//! Ending on request: `SIGINT`, `SIGTERM` and `SIGHUP` let the work under way come to a good end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::reason::{Reason, Result};

/// The signal that asked; 0 if there was none.
static ASKED: AtomicI32 = AtomicI32::new(0);
/// Whether somebody listens.
static LISTENING: Mutex<bool> = Mutex::new(false);

/// What comes so soon after the first signal is the same wish: timeout(1) sends its signal to the
/// program and to the program's group.
const SAME: Duration = Duration::from_millis(500);

/// From now on those signals only ask: the first one. Another one ends the program at once.
///
/// # Errors
/// What the system says.
pub(crate) fn listen() -> Result<()> {
    let mut is_listening = LISTENING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *is_listening {
        return Ok(());
    }
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || hear(signals))?;
    *is_listening = true;
    Ok(())
}

/// Takes one signal after the other, for as long as the program lives.
fn hear(mut signals: Signals) {
    let mut first: Option<Instant> = None;
    for number in signals.forever() {
        match first {
            None => {
                first = Some(Instant::now());
                ASKED.store(number, Ordering::Relaxed);
            }
            Some(first) if first.elapsed() >= SAME => {
                // If it returns, there is still SIGKILL.
                let _ = emulate_default_handler(number);
            }
            Some(_) => {}
        }
    }
}

/// Whether the program was asked to end.
pub(crate) fn requested() -> bool {
    ASKED.load(Ordering::Relaxed) != 0
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
    let number = ASKED.load(Ordering::Relaxed);
    if number != 0 {
        // If it returns, the caller ends the program with an exit code.
        let _ = emulate_default_handler(number);
    }
}
