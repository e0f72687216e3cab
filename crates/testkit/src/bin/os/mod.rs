//! What the programs of the test kit ask of the system, and the crates under test don't offer:
//! processes, memory that they share, processors.

pub(crate) mod child;
pub(crate) mod memory;
pub(crate) mod processors;

/// The last error of the system as text.
pub(crate) fn system(action: &str) -> String {
    format!("can't {action}: {}", std::io::Error::last_os_error())
}
