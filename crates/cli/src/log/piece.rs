//! What messages are made of.
//!
//! Invariant: what files in a store are called is private to those who may read their directories,
//! and a log has other readers. So messages are made of pieces, text is a piece only if it stands
//! in the program, and a name is one only as a [`Named`], which shows it only in a log of level
//! [`Level::Debug`](super::Level::Debug). `Piece` is never implemented for strings or paths.

use std::fmt::{Display, Write};
use std::io;
use std::path::Path;
use std::time::Duration;

use conquest::quote;

use crate::place;
use crate::reason::{Reason, words};

/// A part of a message.
pub(crate) trait Piece {
    /// Appends it to `out`; names of files too if `names` is set.
    fn put(&self, out: &mut String, names: bool);
}

/// The name or the path of a file in a store.
pub(crate) struct Named<'n>(pub(crate) &'n [u8]);

/// A mount point, or a store's directory: on the host, where administrators put it.
pub(crate) struct Place<'p>(pub(crate) &'p Path);

/// What a process calls itself.
pub(crate) struct Program<'p>(pub(crate) &'p str);

/// Why something failed: the message does not repeat the names of files.
pub(crate) struct Cause<'r>(pub(crate) &'r Reason);

impl Piece for &'static str {
    fn put(&self, out: &mut String, _: bool) {
        out.push_str(self);
    }
}

impl Piece for Named<'_> {
    fn put(&self, out: &mut String, names: bool) {
        match names {
            true => out.push_str(&quote::message(self.0)),
            false => out.push('\u{2026}'),
        }
    }
}

impl Piece for Place<'_> {
    fn put(&self, out: &mut String, _: bool) {
        out.push_str(&place::host_label(self.0));
    }
}

impl Piece for Program<'_> {
    fn put(&self, out: &mut String, _: bool) {
        out.push_str(&quote::message(self.0.as_bytes()));
    }
}

impl Piece for Cause<'_> {
    fn put(&self, out: &mut String, _: bool) {
        put(out, self.0);
    }
}

impl Piece for io::Error {
    fn put(&self, out: &mut String, _: bool) {
        out.push_str(&words(self));
    }
}

impl Piece for Duration {
    fn put(&self, out: &mut String, _: bool) {
        put(out, format_args!("{:.1} s", self.as_secs_f64()));
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Piece for $kind {
            fn put(&self, out: &mut String, _: bool) {
                put(out, self);
            }
        }
    )*};
}

numbers! { u32 u64 usize i32 }

fn put(out: &mut String, value: impl Display) {
    // Writing to a string does not fail.
    let _ = write!(out, "{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[&dyn Piece], names: bool) -> String {
        let mut out = String::new();
        for piece in pieces {
            piece.put(&mut out, names);
        }
        out
    }

    #[test]
    fn names_are_shown_only_on_request() {
        let pieces: [&dyn Piece; 4] =
            [&"read ", &Named(b"/secret\n"), &" in ", &Place("/m".as_ref())];
        assert_eq!(text(&pieces, false), "read \u{2026} in /m");
        assert_eq!(text(&pieces, true), "read '/secret'$'\\n' in /m");
    }

    #[test]
    fn values_are_written_as_messages_have_them() {
        let error = io::Error::from_raw_os_error(2);
        let pieces: [&dyn Piece; 5] = [&7_u32, &" ", &error, &" ", &Duration::from_millis(1500)];
        assert_eq!(text(&pieces, false), "7 No such file or directory 1.5 s");
        assert_eq!(text(&[&Cause(&Reason::from(error)), &Program("a b")], false).len(), 30);
    }
}
