//! Giving one file of the source a name in the target.

use std::io::{BufRead, Write};
use std::sync::{Arc, PoisonError};

use conquest::Errno;

use super::dress::comparable;
use super::links::{Turn, Waiting};
use super::pair::Pair;
use super::{Existing, Job, Task, temporary};
use crate::reason::{Reason, Result};
use crate::tree::{Bits, FileType, Meta, New, Trail, Tree};

impl<S: Tree, T: Tree> Job<'_, S, T> {
    /// Sees to it that `node`, which was found at `from`, has the name `to` in the target.
    pub(super) fn place(
        &self,
        pair: &Arc<Pair<S, T>>,
        node: S::Node,
        from: &Trail,
        to: &[u8],
    ) -> Result<()> {
        let meta = self.source.meta(&node)?;
        self.place_known(pair, node, meta, from, to)
    }

    /// The same, with what is known of the file.
    pub(super) fn place_known(
        &self,
        pair: &Arc<Pair<S, T>>,
        node: S::Node,
        meta: Meta,
        from: &Trail,
        to: &[u8],
    ) -> Result<()> {
        if meta.is_directory() {
            return self.directory(pair, node, meta, from, to);
        }
        if !self.options.keep.links || meta.links < 2 {
            return self.file(pair, &node, &meta, from, to).map(drop);
        }
        let waiting = || {
            pair.begin();
            let last = from.names().last().map_or(Vec::new(), |name| name.to_vec());
            Waiting { pair: Arc::clone(pair), from: last, to: to.to_vec() }
        };
        match self.links.turn(meta.id, waiting) {
            Turn::Wait => Ok(()),
            Turn::Link(first) => self.link(pair, &meta, &first, to),
            Turn::Copy => {
                let copied = self.file(pair, &node, &meta, from, to);
                let trail = matches!(copied, Ok(true)).then(|| pair.to.join(to));
                for other in self.links.done(meta.id, trail.clone()) {
                    self.queue.push(Task::Name(other.pair, other.from, other.to));
                }
                // Few files have flags: their nodes are kept until the end.
                let has_flags = self.options.keep.flags && self.source.flags(&node)? != 0;
                if let Some(trail) = trail.filter(|_| has_flags) {
                    let mut fixed = self.fixed.lock().unwrap_or_else(PoisonError::into_inner);
                    fixed.push((node, trail));
                }
                copied.map(drop)
            }
        }
    }

    /// What has the name `to` in the target, if anything has.
    pub(super) fn existing(&self, at: &T::Node, to: &[u8]) -> Result<Option<(T::Node, Meta)>> {
        match self.target.child(at, to) {
            Err(reason) if reason.is(Errno::ENOENT) => Ok(None),
            Err(reason) => Err(reason),
            Ok(node) => {
                let meta = self.target.meta(&node)?;
                Ok(Some((node, meta)))
            }
        }
    }

    /// Copies a file that is no directory; whether it has the name now.
    fn file(
        &self,
        pair: &Arc<Pair<S, T>>,
        node: &S::Node,
        meta: &Meta,
        from: &Trail,
        to: &[u8],
    ) -> Result<bool> {
        let existing = self.existing(&pair.target, to)?;
        let label = || self.label_of_source(from);
        if let Some((old, old_meta)) = &existing {
            if self.options.same_tree && old_meta.id == meta.id {
                let to = self.label_of_target(&pair.to.join(to));
                return Err(Reason::rule(format!("is the same file as {to}")));
            }
            if old_meta.is_directory() {
                self.clear_directory(pair, to, meta)?;
            } else if self.stays(node, meta, old, old_meta)? {
                self.counts.add(4, 1);
                if self.options.existing == Existing::Update {
                    self.redress(node, meta, old, old_meta, &label)?;
                }
                return Ok(true);
            } else if !self.may_replace(&pair.to.join(to)) {
                return Ok(false);
            } else {
                self.unfix(old, old_meta)?;
            }
        }
        let old = existing.filter(|(_, meta)| !meta.is_directory());
        self.make_complete(pair, node, meta, old.as_ref(), to, &label)?;
        self.counts.add(if meta.is_regular() { 0 } else { 3 }, 1);
        if self.options.verbose {
            self.say(format_args!("{} -> {}", label(), self.label_of_target(&pair.to.join(to))));
        }
        Ok(true)
    }

    /// Makes the copy under a temporary name, complete, and gives it its name.
    fn make_complete(
        &self,
        pair: &Arc<Pair<S, T>>,
        node: &S::Node,
        meta: &Meta,
        old: Option<&(T::Node, Meta)>,
        to: &[u8],
        label: &dyn Fn() -> String,
    ) -> Result<()> {
        let temporary = temporary::new_name();
        let copy = self.make(&pair.target, node, meta, &temporary)?;
        let filled = self.fill_in(node, meta, &copy, old, label).and_then(|steady| {
            crate::stop::check()?;
            self.target.rename(&pair.target, &temporary, to)?;
            Ok(steady)
        });
        let steady = match filled {
            Ok(steady) => steady,
            Err(reason) => {
                // The reason to report is the first one; what stays is removed the next time.
                let _ = self.target.remove(&pair.target, &temporary, false);
                return Err(reason);
            }
        };
        if meta.links < 2 || !self.options.keep.links {
            self.flag(node, &copy, label)?;
        }
        if steady { Ok(()) } else { Err(Self::unsteady()) }
    }

    /// Makes an empty file, or a complete one of a type that has no bytes.
    fn make(&self, at: &T::Node, node: &S::Node, meta: &Meta, name: &[u8]) -> Result<T::Node> {
        let bits = match self.options.keep.mode {
            true => Bits::Exact(0o600),
            false => Bits::Masked(meta.mode & 0o777),
        };
        let (major, minor) = meta.device;
        let target;
        let what = match meta.file_type {
            FileType::Regular => New::Regular,
            FileType::Symlink => {
                target = self.source.target(node)?;
                New::Symlink(&target)
            }
            FileType::Fifo => New::Fifo,
            FileType::Socket => New::Socket,
            FileType::Character => New::Character(major, minor),
            FileType::Block => New::Block(major, minor),
            FileType::Directory => New::Directory,
        };
        self.target.make(at, name, what, bits)
    }

    /// Gives the new `copy` all that it is to have; whether the original stood still meanwhile.
    fn fill_in(
        &self,
        node: &S::Node,
        meta: &Meta,
        copy: &T::Node,
        old: Option<&(T::Node, Meta)>,
        label: &dyn Fn() -> String,
    ) -> Result<bool> {
        let (meta, steady) = match meta.is_regular() {
            true => self.copy_bytes(node, meta, copy)?,
            false => (*meta, true),
        };
        if let Some((old, old_meta)) = old.filter(|_| !self.options.keep.mode) {
            self.succeed(old, old_meta, copy, label)?;
        }
        self.dress(node, &meta, copy, label)?;
        Ok(steady)
    }

    /// Makes `copy` what the file was whose place it takes: a copy without options changes bytes
    /// only.
    fn succeed(
        &self,
        old: &T::Node,
        meta: &Meta,
        copy: &T::Node,
        label: &dyn Fn() -> String,
    ) -> Result<()> {
        let now = self.target.meta(copy)?;
        if (now.uid, now.gid) != (meta.uid, meta.gid) {
            let given = self.target.set_owner(copy, Some(meta.uid), Some(meta.gid));
            self.permitted("owner of the old file not kept", label, given)?;
        }
        if now.file_type != FileType::Symlink {
            self.target.set_mode(copy, meta.mode)?;
        }
        for (name, value) in self.target.attributes(old)? {
            let set = self.target.set_attribute(copy, &name, Some(&value));
            self.permitted("attribute of the old file not kept", label, set)?;
        }
        Ok(())
    }

    /// Whether the existing file can stay as it is, but for what it has besides bytes.
    fn stays(&self, node: &S::Node, meta: &Meta, old: &T::Node, old_meta: &Meta) -> Result<bool> {
        match self.options.existing {
            Existing::Replace | Existing::Ask => return Ok(false),
            Existing::Keep => return Ok(true),
            Existing::Update => {}
        }
        if old_meta.file_type != meta.file_type {
            return Ok(false);
        }
        // A file that has other names too may be like this one, but not that one as well.
        let is_free = if meta.links > 1 && self.options.keep.links {
            self.links.claim(old_meta.id, meta.id)
        } else {
            old_meta.links < 2
        };
        let is_equal = match meta.file_type {
            FileType::Regular => (meta.size, meta.mtime) == (old_meta.size, old_meta.mtime),
            FileType::Symlink => self.source.target(node)? == self.target.target(old)?,
            FileType::Character | FileType::Block => meta.device == old_meta.device,
            FileType::Fifo | FileType::Socket | FileType::Directory => true,
        };
        Ok(is_free && is_equal)
    }

    /// Brings what an equal file has besides bytes up to date.
    fn redress(
        &self,
        node: &S::Node,
        meta: &Meta,
        old: &T::Node,
        old_meta: &Meta,
        label: &dyn Fn() -> String,
    ) -> Result<()> {
        let of = |meta: &Meta| (meta.mode, meta.uid, meta.gid, meta.mtime, meta.atime);
        let keep = self.options.keep;
        let has_same_attributes = || -> Result<bool> {
            let wanted = self.source.attributes(node)?;
            Ok(comparable(self.target.attributes(old)?, &wanted) == wanted)
        };
        let has_same = of(meta) == of(old_meta) && (!keep.attributes || has_same_attributes()?);
        if !has_same {
            self.unfix(old, old_meta)?;
            self.dress(node, meta, old, label)?;
        }
        self.flag(node, old, label)
    }

    /// Whether the file at `to` may be replaced; asks, if that was wanted.
    fn may_replace(&self, to: &Trail) -> bool {
        self.options.existing != Existing::Ask
            || ask(&format!(
                "conquest: {}: overwrite {}? ",
                self.report.command(),
                self.label_of_target(to)
            ))
    }

    /// Gives the file at `first`, which was copied already, the name `to` as well.
    fn link(&self, pair: &Arc<Pair<S, T>>, meta: &Meta, first: &Trail, to: &[u8]) -> Result<()> {
        let mut node = None;
        for name in first.names() {
            let at = node.as_ref().unwrap_or(&self.root.target);
            node = Some(self.target.child(at, name)?);
        }
        let node = node.ok_or(Errno::ENOENT)?;
        let id = self.target.meta(&node)?.id;
        match self.existing(&pair.target, to)? {
            None => self.target.link(&node, &pair.target, to)?,
            Some((_, old)) if old.id == id => {
                self.counts.add(4, 1);
                return Ok(());
            }
            Some((old_node, old)) => {
                if old.is_directory() {
                    self.clear_directory(pair, to, meta)?;
                } else if self.options.existing == Existing::Keep
                    || !self.may_replace(&pair.to.join(to))
                {
                    return Ok(());
                } else {
                    self.unfix(&old_node, &old)?;
                }
                let temporary = temporary::new_name();
                self.target.link(&node, &pair.target, &temporary)?;
                self.target.rename(&pair.target, &temporary, to)?;
            }
        }
        self.counts.add(2, 1);
        Ok(())
    }

    /// Gives files with several names their flags, now that all names are there.
    pub(super) fn flag_late(&self) {
        let fixed =
            core::mem::take(&mut *self.fixed.lock().unwrap_or_else(PoisonError::into_inner));
        for (original, trail) in fixed {
            let label = || self.label_of_target(&trail);
            let mut found = Err(Errno::ENOENT.into());
            for (nth, name) in trail.names().into_iter().enumerate() {
                found = match (&found, nth) {
                    (_, 0) => self.target.child(&self.root.target, name),
                    (Ok(at), _) => self.target.child(at, name),
                    (Err(_), _) => break,
                };
            }
            let flagged = found.and_then(|copy| self.flag(&original, &copy, &label));
            self.report.take(label(), flagged);
        }
    }

    /// A line of what was done, for those who want to see it.
    pub(super) fn say(&self, line: core::fmt::Arguments<'_>) {
        // If nobody reads it, the program ends; nothing else can be done about it here.
        let _ = crate::output::all(format!("{line}\n").as_bytes());
    }
}

/// Asks a question that `y` is the answer to.
pub(crate) fn ask(question: &str) -> bool {
    let mut error = std::io::stderr().lock();
    if error.write_all(question.as_bytes()).and_then(|()| error.flush()).is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let read = std::io::stdin().lock().read_until(b'\n', &mut answer);
    read.is_ok() && matches!(answer.first(), Some(b'y' | b'Y'))
}
