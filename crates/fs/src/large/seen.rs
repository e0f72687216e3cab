//! Where a space has blocks, as it was seen.

use core::any::Any;
use core::fmt;

/// Where a space had blocks when it was looked at: what that is only the space knows.
pub struct Seen(Box<dyn Any + Send>);

impl Seen {
    /// One that is `seen` to the space.
    pub fn new(seen: impl Any + Send) -> Seen {
        Seen(Box::new(seen))
    }

    /// What it is to the space, if it is of that kind.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seen")
    }
}
