//! Names for people: bytes that a terminal would act on are written as a shell would take them.
//!
//! The style is that of GNU ls: `plain`, `'with blank'`, `"it's"`, `'a'$'\n''b'`.

use std::fmt::Write as _;

/// How `name` stands in a listing on a terminal: as it is, or quoted if it needs to be.
#[must_use]
pub fn name(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:@_".contains(byte);
    match core::str::from_utf8(name) {
        Ok("") => "''".into(),
        Ok(text) if name.iter().all(is_plain) => text.into(),
        // Names that begin with these mean something to a shell only at their beginning.
        Ok(text) if text.chars().all(is_shown) && !needs_quotes(text) => text.into(),
        _ => always(name),
    }
}

/// `name` in quotes, whatever it is: how messages name things.
#[must_use]
pub fn always(name: &[u8]) -> String {
    if let Ok(text) = core::str::from_utf8(name)
        && text.chars().all(is_shown)
    {
        if !text.contains('\'') {
            return format!("'{text}'");
        }
        if !text.contains(['"', '$', '`', '\\', '!']) {
            return format!("\"{text}\"");
        }
    }
    in_pieces(name)
}

/// `text` as messages have it: quoted only where it is needed.
#[must_use]
pub fn message(text: &[u8]) -> String {
    name(text)
}

fn is_shown(c: char) -> bool {
    !c.is_control()
        // What ends lines, or turns the direction of writing.
        && !matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

fn needs_quotes(text: &str) -> bool {
    let special = " !\"$&'()*;<=>?[\\]^`{|}";
    text.contains(|c| special.contains(c)) || text.starts_with(['#', '~'])
}

/// Pieces in quotes: `'shown'`, and `$'\n'` for the rest.
fn in_pieces(name: &[u8]) -> String {
    let mut out = String::new();
    let mut open = Piece::None;
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' => {
                    open.turn(Piece::None, &mut out);
                    out.push_str("\\'");
                }
                c if is_shown(c) => {
                    open.turn(Piece::Plain, &mut out);
                    out.push(c);
                }
                c => {
                    open.turn(Piece::Escaped, &mut out);
                    escape(c, &mut out);
                }
            }
        }
        for byte in chunk.invalid() {
            open.turn(Piece::Escaped, &mut out);
            // Writing to a string can't fail.
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    open.turn(Piece::None, &mut out);
    // GNU ls closes what it never had to open, so that the whole begins with a quote.
    if out.starts_with('$') { format!("''{out}") } else { out }
}

fn escape(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{B}' => out.push_str("\\v"),
        '\u{C}' => out.push_str("\\f"),
        other => {
            let mut bytes = [0; 4];
            for byte in other.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}

/// What quotes are open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    None,
    Plain,
    Escaped,
}

impl Piece {
    fn turn(&mut self, to: Piece, out: &mut String) {
        if *self == to {
            return;
        }
        if *self != Piece::None {
            out.push('\'');
        }
        match to {
            Piece::None => {}
            Piece::Plain => out.push('\''),
            Piece::Escaped => out.push_str("$'"),
        }
        *self = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_ls() {
        for (bytes, expected) in [
            (&b"plain-1.0_x"[..], "plain-1.0_x"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $5", "'it'\\''s $5'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"\nb", "''$'\\n''b'"),
            (b"x\xFFy", "'x'$'\\377''y'"),
            (b"\x1b[31m", "''$'\\033''[31m'"),
            ("\u{e9}t\u{e9}".as_bytes(), "\u{e9}t\u{e9}"),
            (b"#a", "'#a'"),
            (b"a#", "a#"),
        ] {
            assert_eq!(name(bytes), expected, "{bytes:?}");
        }
        assert_eq!(always(b"plain"), "'plain'");
    }
}
