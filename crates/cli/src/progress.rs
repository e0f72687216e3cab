//! The bar that shows how far long work has come: on standard error, if that is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for `what`, of which it is not known how much there is: it counts.
    pub(crate) fn counting(what: &'static str) -> Progress {
        Progress::styled(what, "{spinner} {msg}: {human_pos} in {elapsed} ({per_sec})", None)
    }

    /// A bar for `total` bytes of `what`.
    pub(crate) fn bytes(what: &'static str, total: u64) -> Progress {
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
        Progress::styled(what, template, Some(total))
    }

    /// A bar for a part of `what`, in percent.
    pub(crate) fn share(what: &'static str) -> Progress {
        Progress::styled(what, "{msg} [{bar:30}] {percent} % {eta} left", Some(1))
    }

    fn styled(what: &'static str, template: &str, total: Option<u64>) -> Progress {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        };
        // It is drawn as soon as anything of it changes, so it gets its looks first.
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(total, target).with_style(style).with_message(what);
        if !bar.is_hidden() {
            bar.tick();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Progress { bar }
    }

    /// So much more is done.
    pub(crate) fn add(&self, amount: u64) {
        self.bar.inc(amount);
    }

    /// There is so much to do.
    pub(crate) fn length(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// So much of so much is done.
    pub(crate) fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Prints a line to standard error, above the bar.
    pub(crate) fn line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Does `work` while the bar is not there.
    pub(crate) fn suspend(&self, work: impl FnOnce()) {
        self.bar.suspend(work);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
