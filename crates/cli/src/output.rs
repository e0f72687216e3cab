//! Standard output and standard error.
//!
//! A reader that has gone away is no error of ours: the program ends by `SIGPIPE`, without a word,
//! like other tools. The standard library ignores that signal, so it is raised here.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output with a buffer.
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Standard output.
    pub(crate) fn new() -> Output {
        Output(BufWriter::with_capacity(1 << 16, io::stdout().lock()))
    }

    /// Writes what is still in the buffer.
    ///
    /// # Errors
    /// What standard output says.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        checked(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        checked(self.0.flush())
    }
}

/// Writes all of `bytes` to standard output.
///
/// # Errors
/// What standard output says.
pub(crate) fn all(bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::new();
    output.write_all(bytes)?;
    output.finish()
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// `written`, unless nobody reads any more: then the program ends.
fn checked<T>(written: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &written
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        // Should the signal be blocked, the error is reported like any other.
        let _ = signal_hook::low_level::emulate_default_handler(libc::SIGPIPE);
    }
    written
}
