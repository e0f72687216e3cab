//! The process's own credentials.
//!
//! Read once: a program that changes its user does so before it begins to work.

use std::sync::OnceLock;

use conquest::Credentials;

use crate::reason::Result;

static OWN: OnceLock<Credentials> = OnceLock::new();

/// Who makes the calls of this process.
///
/// # Errors
/// What of it can't be found out.
pub(crate) fn am_i() -> Result<&'static Credentials> {
    match OWN.get() {
        Some(own) => Ok(own),
        None => {
            let own = Credentials::of_thread()?;
            Ok(OWN.get_or_init(|| own))
        }
    }
}
