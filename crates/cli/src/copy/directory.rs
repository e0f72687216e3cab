//! Copying directories: made first, dressed last.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::pair::Pair;
use super::{BATCH, Existing, Job, Task, temporary};
use crate::reason::{Reason, Result};
use crate::tree::{Bits, Meta, New, Trail, Tree, remove_all};

/// What an owner needs to work in a directory.
const OWN: u32 = 0o700;

impl<S: Tree, T: Tree> Job<'_, S, T> {
    /// Makes the directory `to` like `node`, and everything in it a task.
    pub(super) fn directory(
        &self,
        pair: &Arc<Pair<S, T>>,
        node: S::Node,
        meta: Meta,
        from: &Trail,
        to: &[u8],
    ) -> Result<()> {
        if !self.options.recursive {
            return Err(Reason::rule("-r not specified; omitting directory"));
        }
        let above = pair.source.as_ref().map(|(_, meta)| meta.mount);
        let is_mount = self.options.one_file_system && above.is_some_and(|it| it != meta.mount);
        let (target, lent, is_new) = self.make_directory(pair, &meta, to)?;
        self.dress_early(&node, &target)?;
        self.counts.add(1, 1);
        if self.options.verbose && is_new {
            self.say(format_args!(
                "{} -> {}",
                self.label_of_source(from),
                self.label_of_target(&pair.to.join(to))
            ));
        }
        pair.begin();
        let child = Arc::new(Pair {
            above: Some(Arc::clone(pair)),
            source: Some((node, meta)),
            target,
            from: from.clone(),
            to: pair.to.join(to),
            lent,
            pending: AtomicUsize::new(1),
        });
        let filled = match is_mount {
            true => {
                let label = || self.label_of_source(from);
                let why = "another file system is mounted there".into();
                self.notes.add("content left out", label, why);
                Ok(())
            }
            false => self.fill(&child, !is_new),
        };
        self.end(&child);
        filled
    }

    /// The directory `to` of the target, made if need be; permissions lent to it; whether it is
    /// new.
    fn make_directory(
        &self,
        pair: &Arc<Pair<S, T>>,
        meta: &Meta,
        to: &[u8],
    ) -> Result<(T::Node, u32, bool)> {
        let existing = self.existing(&pair.target, to)?;
        if let Some((node, old)) = existing {
            if old.is_directory() {
                if self.options.same_tree && old.id == meta.id {
                    let to = self.label_of_target(&pair.to.join(to));
                    return Err(Reason::rule(format!("is the same file as {to}")));
                }
                self.unfix(&node, &old)?;
                let lent = OWN & !old.mode;
                let who = crate::who::am_i()?;
                let is_own = who.user_number(who.fsuid) == Some(old.uid);
                if lent != 0 && is_own {
                    self.target.set_mode(&node, old.mode | OWN)?;
                }
                return Ok((node, if is_own { lent } else { 0 }, false));
            }
            if self.options.existing != Existing::Update {
                let to = self.label_of_target(&pair.to.join(to));
                return Err(Reason::rule(format!(
                    "cannot overwrite non-directory {to} with directory"
                )));
            }
            self.unfix(&node, &old)?;
            self.target.remove(&pair.target, to, false)?;
            self.counts.add(5, 1);
        }
        let (bits, lent) = match self.options.keep.mode {
            true => (Bits::Exact(OWN), 0),
            false => (Bits::Masked(meta.mode & 0o777 | OWN), OWN & !meta.mode),
        };
        Ok((self.target.make(&pair.target, to, New::Directory, bits)?, lent, true))
    }

    /// Makes everything in the source directory of `pair` a task, and removes from the target what
    /// is not to be there.
    pub(super) fn fill(&self, pair: &Arc<Pair<S, T>>, existed: bool) -> Result<()> {
        let Some((source, _)) = &pair.source else {
            return Ok(());
        };
        let mut names = self.source.names(source)?;
        if existed {
            self.delete_from(pair, &names)?;
        }
        // A temporary on the host is of a copy that somebody else makes there, or was left behind.
        names.retain(|name| !temporary::is_one(name));
        names.sort_unstable();
        for batch in names.chunks(BATCH) {
            pair.begin();
            self.queue.push(Task::Names(Arc::clone(pair), batch.to_vec()));
        }
        Ok(())
    }

    /// One task of the directory is done; if it was the last, the directory gets what it is to
    /// have, and one task of that above it is done.
    pub(super) fn end(&self, pair: &Arc<Pair<S, T>>) {
        let mut at = Some(Arc::clone(pair));
        while let Some(pair) = at.take() {
            if !pair.end() {
                return;
            }
            if let Some((source, meta)) = pair.source.as_ref().filter(|_| self.goes_on().is_ok()) {
                let finished = self.finish(&pair, source, meta);
                self.report.take(self.label_of_target(&pair.to), finished);
            }
            at = pair.above.clone();
        }
    }

    fn finish(&self, pair: &Pair<S, T>, source: &S::Node, meta: &Meta) -> Result<()> {
        let label = || self.label_of_target(&pair.to);
        if pair.lent != 0 && !self.options.keep.mode {
            let mode = self.target.meta(&pair.target)?.mode & !pair.lent;
            self.target.set_mode(&pair.target, mode)?;
        }
        self.dress(source, meta, &pair.target, &label)?;
        if self.source.meta(source)?.mtime != meta.mtime {
            let why = "run again when it is at rest".into();
            self.notes.add("changed while it was copied", || self.label_of_source(&pair.from), why);
        }
        self.flag(source, &pair.target, &label)
    }

    /// Removes the directory `to` of the target, where something else is to be.
    pub(super) fn clear_directory(
        &self,
        pair: &Arc<Pair<S, T>>,
        to: &[u8],
        meta: &Meta,
    ) -> Result<()> {
        let label = self.label_of_target(&pair.to.join(to));
        if !self.options.delete {
            let advice = match self.options.existing {
                Existing::Update => " (remove it, or use --delete)",
                _ => "",
            };
            let kind = if meta.is_directory() { "directory" } else { "non-directory" };
            return Err(Reason::rule(format!(
                "cannot overwrite directory {label} with {kind}{advice}"
            )));
        }
        self.remove_tree(&pair.target, &pair.to, to)
    }

    /// Removes what is called `name`, with all that is in it.
    pub(super) fn remove_tree(&self, at: &T::Node, trail: &Trail, name: &[u8]) -> Result<()> {
        let mut first = None;
        remove_all(
            self.target,
            at,
            name,
            &mut |_, _| self.counts.add(5, 1),
            &mut |below, reason| {
                let place = below.names().into_iter().fold(trail.join(name), |t, n| t.join(n));
                first.get_or_insert(format!("{}: {reason}", self.label_of_target(&place)));
            },
        )?;
        first.map_or(Ok(()), |text| Err(Reason::Rule(text)))
    }
}
