//! Where a file was found: the names that lead to it from where a walk began.

use std::sync::Arc;

/// The names from the beginning of a walk to a file; cheap to extend and to share.
#[derive(Clone, Default)]
pub(crate) struct Trail(Option<Arc<Step>>);

struct Step {
    above: Trail,
    name: Vec<u8>,
}

impl Trail {
    /// Where a walk begins.
    pub(crate) const fn root() -> Trail {
        Trail(None)
    }

    /// What is called `name` there.
    pub(crate) fn join(&self, name: &[u8]) -> Trail {
        Trail(Some(Arc::new(Step { above: self.clone(), name: name.to_vec() })))
    }

    /// The names, from the beginning of the walk on.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(step) = &at.0 {
            names.push(step.name.as_slice());
            at = &step.above;
        }
        names.reverse();
        names
    }

    /// The path: names with slashes between.
    pub(crate) fn path(&self) -> Vec<u8> {
        self.names().join(&b'/')
    }
}

impl Drop for Step {
    /// Undone step by step: the default would nest as deep as the trail is long.
    fn drop(&mut self) {
        let mut above = self.above.0.take();
        while let Some(step) = above.and_then(Arc::into_inner) {
            let mut step = step;
            above = step.above.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trails_know_their_names_and_end_without_nesting() {
        let mut trail = Trail::root();
        assert!(trail.path().is_empty());
        for _ in 0..200_000 {
            trail = trail.join(b"a");
        }
        assert_eq!(trail.names().len(), 200_000);
        drop(trail);
        assert_eq!(Trail::root().join(b"a").join(b"b").path(), b"a/b");
    }
}
