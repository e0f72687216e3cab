//! Taking an option string apart, as mount(8) writes them: `a,b=value,c="x,y"`.
//!
//! Options stand between commas. In double quotes, and after a backslash, a comma is a part of a
//! value. A backslash stands for itself except before a comma, a quote, or another backslash.

use crate::reason::{Reason, Result};

/// An option: its name, and its value if it has one.
pub(super) type Item = (Vec<u8>, Option<Vec<u8>>);

/// The options in `text`; empty ones are left out.
///
/// # Errors
/// If a quote is not closed.
pub(super) fn split(text: &[u8]) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut item: Item = (Vec::new(), None);
    let mut is_quoted = false;
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        let escaped = match byte {
            b'\\' => rest.next_if(|next| matches!(next, b',' | b'"' | b'\\')),
            _ => None,
        };
        match (escaped, byte) {
            (Some(escaped), _) => append(&mut item, escaped),
            (None, b'"') => is_quoted = !is_quoted,
            (None, b',') if !is_quoted => items.push(std::mem::take(&mut item)),
            (None, b'=') if item.1.is_none() => item.1 = Some(Vec::new()),
            (None, byte) => append(&mut item, byte),
        }
    }
    if is_quoted {
        return Err(Reason::rule("a quote in the options is not closed (write \\\" for a quote)"));
    }
    items.push(item);
    items.retain(|(name, value)| !name.is_empty() || value.is_some());
    Ok(items)
}

fn append(item: &mut Item, byte: u8) {
    match item {
        (_, Some(value)) => value.push(byte),
        (name, None) => name.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options in `text`, one a line.
    fn of(text: &str) -> String {
        let show = |(name, value): Item| {
            let value = value.map(|value| format!("={}", String::from_utf8(value).unwrap()));
            format!("{}{}\n", String::from_utf8(name).unwrap(), value.unwrap_or_default())
        };
        split(text.as_bytes()).unwrap().into_iter().map(show).collect()
    }

    #[test]
    fn commas_separate_unless_they_are_quoted() {
        assert_eq!(of("ro,noatime"), "ro\nnoatime\n");
        assert_eq!(of(",,ro,,"), "ro\n");
        assert_eq!(of(""), "");
        assert_eq!(of("fsname=\"a,b\",ro"), "fsname=a,b\nro\n");
        assert_eq!(of("\"fsname=a,b\",ro"), "fsname=a,b\nro\n");
        assert_eq!(of(r"fsname=a\,b,ro"), "fsname=a,b\nro\n");
        assert_eq!(of(r#"fsname="a\"b\\",ro"#), "fsname=a\"b\\\nro\n");
        assert_eq!(of(r"fsname=\040=x"), "fsname=\\040=x\n");
        assert_eq!(of("fsname=,=x"), "fsname=\n=x\n");
    }

    #[test]
    fn quotes_have_to_be_closed() {
        let said = split(b"fsname=\"a,ro").unwrap_err().to_string();
        assert!(said.contains("not closed"), "{said}");
        assert!(split(br#"fsname=\"a"#).is_ok());
    }
}
