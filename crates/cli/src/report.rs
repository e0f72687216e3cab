//! Messages of a command, and what its exit code is.
//!
//! A message is one line: `conquest: COMMAND: OBJECT: reason (remedy)`.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::progress::Progress;
use crate::reason::Reason;

/// The messages of one command.
pub(crate) struct Report {
    command: &'static str,
    failures: AtomicU64,
    progress: Option<Progress>,
}

impl Report {
    /// Of the command `command`.
    pub(crate) const fn new(command: &'static str) -> Report {
        Report { command, failures: AtomicU64::new(0), progress: None }
    }

    /// The same, with a bar that messages stand above.
    pub(crate) const fn with(command: &'static str, progress: Progress) -> Report {
        Report { command, failures: AtomicU64::new(0), progress: Some(progress) }
    }

    /// The command.
    pub(crate) const fn command(&self) -> &'static str {
        self.command
    }

    /// The bar.
    pub(crate) const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// So much more is done.
    pub(crate) fn advance(&self, amount: u64) {
        if let Some(progress) = &self.progress {
            progress.add(amount);
        }
    }

    /// Something that is worth knowing, and no failure.
    pub(crate) fn note(&self, text: impl Display) {
        let line = format!("conquest: {}: {text}", self.command);
        match &self.progress {
            Some(progress) => progress.line(&line),
            None => eprintln!("{line}"),
        }
    }

    /// `object` failed.
    pub(crate) fn fail(&self, object: impl Display, reason: &Reason) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.note(format_args!("{object}: {reason}"));
    }

    /// The value of `result`; none, with a message about `object`, if there is none.
    pub(crate) fn take<T>(&self, object: impl Display, result: Result<T, Reason>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(reason) => {
                self.fail(object, &reason);
                None
            }
        }
    }

    /// The value of `result`; none, with a message, if there is none. The reason names the object.
    pub(crate) fn take_plain<T>(&self, result: Result<T, Reason>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(reason) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.note(&reason);
                None
            }
        }
    }

    /// How many objects failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The exit code that follows.
    pub(crate) fn code(&self) -> ExitCode {
        if let Some(progress) = &self.progress {
            progress.finish();
        }
        if self.failures() == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }
}
