//! Removing a directory with all that is in it.

use super::{Trail, Tree};
use crate::reason::{Reason, Result};
use crate::stop;

/// A directory whose entries are being removed.
struct Level<N> {
    node: N,
    trail: Trail,
    name: Vec<u8>,
    left: Vec<Vec<u8>>,
    /// Whether something in it could not be removed.
    is_kept: bool,
}

/// Removes what is called `name` in `directory`, a directory with all that is in it. What can't be
/// removed is told to `fail`, with what leads there, and stays, with the directories above it.
///
/// # Errors
/// [`Reason::Stopped`].
pub(crate) fn remove_all<T: Tree>(
    tree: &T,
    directory: &T::Node,
    name: &[u8],
    removed: &mut dyn FnMut(&Trail, bool),
    fail: &mut dyn FnMut(&Trail, &Reason),
) -> Result<()> {
    let mut levels: Vec<Level<T::Node>> = Vec::new();
    let mut next = Some((Trail::root(), name.to_vec()));
    loop {
        stop::check()?;
        if let Some((trail, name)) = next.take() {
            let above = levels.last().map_or(directory, |level| &level.node);
            match enter(tree, above, &trail, name) {
                Ok(Some(level)) => levels.push(level),
                Ok(None) => removed(&trail, false),
                Err(reason) => {
                    fail(&trail, &reason);
                    levels.last_mut().into_iter().for_each(|level| level.is_kept = true);
                }
            }
        }
        let Some(level) = levels.last_mut() else {
            return Ok(());
        };
        if let Some(name) = level.left.pop() {
            next = Some((level.trail.join(&name), name));
            continue;
        }
        let Some(level) = levels.pop() else {
            return Ok(());
        };
        let above = levels.last().map_or(directory, |level| &level.node);
        let is_kept = level.is_kept || {
            let gone = tree.remove(above, &level.name, true);
            match &gone {
                Ok(()) => removed(&level.trail, true),
                Err(reason) => fail(&level.trail, reason),
            }
            gone.is_err()
        };
        if is_kept {
            levels.last_mut().into_iter().for_each(|level| level.is_kept = true);
        }
    }
}

/// Removes a file, or looks into a directory.
fn enter<T: Tree>(
    tree: &T,
    above: &T::Node,
    trail: &Trail,
    name: Vec<u8>,
) -> Result<Option<Level<T::Node>>> {
    let node = tree.child(above, &name)?;
    if !tree.meta(&node)?.is_directory() {
        tree.remove(above, &name, false)?;
        return Ok(None);
    }
    match tree.names(&node) {
        Ok(left) => Ok(Some(Level { node, trail: trail.clone(), name, left, is_kept: false })),
        // An empty directory that can't be read can be removed all the same.
        Err(reason) => match tree.remove(above, &name, true) {
            Ok(()) => Ok(None),
            Err(_) => Err(reason),
        },
    }
}
