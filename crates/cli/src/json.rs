//! What `--json` prints. The schemas are described in `docs/JSON.md`, field by field.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::output;

/// Version of all schemas: grows when a field changes its meaning or goes; new fields don't count.
pub(crate) const VERSION: u32 = 1;

/// A whole answer: which schema it has, and what it says.
#[derive(Serialize)]
struct Answer<'a, T> {
    schema: String,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Bytes that are a name or a path: a string where they are UTF-8, base64 where not.
#[derive(Serialize, Default, Clone)]
pub(crate) struct Name {
    /// The name, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The name in base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
}

impl Name {
    /// `bytes`.
    pub(crate) fn new(bytes: &[u8]) -> Name {
        match core::str::from_utf8(bytes) {
            Ok(text) => Name { name: Some(text.into()), name_base64: None },
            Err(_) => Name { name: None, name_base64: Some(base64(bytes)) },
        }
    }
}

/// `bytes` in base64.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `bytes` in hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Prints the answer of `command`.
///
/// # Errors
/// What standard output says.
pub(crate) fn print<T: Serialize>(command: &str, body: &T) -> io::Result<()> {
    let answer = Answer { schema: format!("conquest.{command}"), version: VERSION, body };
    let mut text = serde_json::to_string_pretty(&answer)?;
    text.push('\n');
    output::all(text.as_bytes())
}
