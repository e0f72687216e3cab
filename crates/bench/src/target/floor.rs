//! Targets that keep nothing.

use super::{Survives, Target};
use crate::Result;
use crate::calls::Answering;
use crate::experiment::Need;

/// One of them.
pub(super) struct Floor(pub(super) Answering);

impl Target for Floor {
    fn make(&mut self, _: Need, _: Option<(u32, u32)>) -> Result<()> {
        Ok(())
    }

    fn answering(&self) -> Answering {
        self.0.clone()
    }

    fn options(&self) -> Vec<String> {
        Vec::new()
    }

    fn survives(&self) -> Survives {
        Survives::Nothing
    }

    fn remove(&mut self) -> Result<()> {
        Ok(())
    }
}
