//! Removing from a directory of the target what is not to be there: what copies have left behind
//! that did not get to their end, and on request what the source does not have.

use std::collections::HashSet;

use conquest::Errno;

use super::pair::Pair;
use super::{Job, temporary};
use crate::reason::Result;
use crate::tree::Tree;

impl<S: Tree, T: Tree> Job<'_, S, T> {
    /// Removes from the target of `pair` what neither `names` has nor a copy under way needs.
    pub(super) fn delete_from(&self, pair: &Pair<S, T>, names: &[Vec<u8>]) -> Result<()> {
        let deletes = self.options.delete && pair.source.is_some();
        let wanted: HashSet<&[u8]> = match deletes {
            true => names.iter().map(Vec::as_slice).collect(),
            false => HashSet::new(),
        };
        for name in self.target.names(&pair.target)? {
            self.goes_on()?;
            if temporary::is_one(&name) {
                self.clean(pair, &name)?;
            } else if deletes && !wanted.contains(name.as_slice()) {
                let child = self.target.child(&pair.target, &name)?;
                self.unfix(&child, &self.target.meta(&child)?)?;
                self.remove_tree(&pair.target, &pair.to, &name)?;
            }
        }
        Ok(())
    }

    /// Removes the temporary `name`, if it was left behind.
    fn clean(&self, pair: &Pair<S, T>, name: &[u8]) -> Result<()> {
        let cleaned = self.target.child(&pair.target, name).and_then(|node| {
            let meta = self.target.meta(&node)?;
            let is_left = !meta.is_directory() && temporary::is_left_behind(name, &meta, self.now);
            if is_left { self.target.remove(&pair.target, name, false) } else { Ok(()) }
        });
        match cleaned {
            // Whoever made it has given it its name meanwhile.
            Err(reason) if reason.is(Errno::ENOENT) => Ok(()),
            cleaned => cleaned,
        }
    }
}
