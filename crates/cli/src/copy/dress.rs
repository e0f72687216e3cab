//! Giving a copy what its original has besides bytes: owner, mode, attributes, times, flags.
//!
//! The order matters: a new owner takes set-id bits away, an access list agrees with a mode, times
//! are those of before any of it, and a file that is immutable can't be changed at all.

use conquest::{Errno, THRESHOLD};

use super::Job;
use crate::reason::{Reason, Result};
use crate::tree::{Attributes, FIXED, FileType, Meta, Tree};

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;

/// How the names of access lists begin.
const LISTS: &[u8] = b"system.posix_acl_";

/// Whether a caller without privileges has to live with it.
fn is_refused(reason: &Reason) -> bool {
    [Errno::EPERM, Errno::EACCES, Errno::EOPNOTSUPP, Errno::ENODATA].iter().any(|e| reason.is(*e))
}

fn is_threshold((name, _): &(Vec<u8>, Vec<u8>)) -> bool {
    name == THRESHOLD
}

/// Of `found`, the attributes of a copy, those that are to be like `wanted`, the original's. A
/// threshold that it has got of its directory stays if the original has none.
pub(super) fn comparable(mut found: Attributes, wanted: &Attributes) -> Attributes {
    if !wanted.iter().any(is_threshold) {
        found.retain(|attribute| !is_threshold(attribute));
    }
    found
}

impl<S: Tree, T: Tree> Job<'_, S, T> {
    /// Makes `copy` like `file`, of which `meta` is known, as far as the job keeps such things,
    /// but for flags.
    pub(super) fn dress(
        &self,
        file: &S::Node,
        meta: &Meta,
        copy: &T::Node,
        label: &dyn Fn() -> String,
    ) -> Result<()> {
        let keep = self.options.keep;
        let mut now = self.target.meta(copy)?;
        let mut mode = meta.mode;
        if keep.owner && (now.uid, now.gid) != (meta.uid, meta.gid) {
            if !self.give(copy, meta, label)? {
                mode &= !SET_IDS;
            }
            now.mode = u32::MAX;
        }
        if keep.mode && meta.file_type != FileType::Symlink && now.mode != mode {
            self.permitted("mode not kept", label, self.target.set_mode(copy, mode))?;
        }
        if keep.attributes || keep.lists {
            let wanted = self.source.attributes(file)?;
            self.dress_attributes(wanted, copy, label)?;
        }
        if keep.times {
            let set = self.target.set_times(copy, meta.atime, meta.mtime);
            self.permitted("times not kept", label, set)?;
        }
        Ok(())
    }

    /// Gives the directory `copy` the threshold of `file`, if the job keeps such things, before
    /// anything is made in it: where that goes is decided as it is written.
    pub(super) fn dress_early(&self, file: &S::Node, copy: &T::Node) -> Result<()> {
        if !self.options.keep.attributes {
            return Ok(());
        }
        if let Some((name, value)) = self.source.attributes(file)?.into_iter().find(is_threshold) {
            // It is tried again with the other attributes, and noted then.
            let (Ok(()) | Err(_)) = self.target.set_attribute(copy, &name, Some(&value));
        }
        Ok(())
    }

    /// Gives `copy` its owner; whether it has got both user and group.
    fn give(&self, copy: &T::Node, meta: &Meta, label: &dyn Fn() -> String) -> Result<bool> {
        let both = self.target.set_owner(copy, Some(meta.uid), Some(meta.gid));
        let Err(reason) = both else {
            return Ok(true);
        };
        if !is_refused(&reason) {
            return Err(reason);
        }
        // The group alone may be the caller's to give; if not, one note is enough.
        let _ = self.target.set_owner(copy, None, Some(meta.gid));
        self.permitted("owner not kept", label, Err(reason))?;
        Ok(false)
    }

    /// Makes the attributes of `copy` those of `wanted`.
    fn dress_attributes(
        &self,
        mut wanted: Attributes,
        copy: &T::Node,
        label: &dyn Fn() -> String,
    ) -> Result<()> {
        let mut found = comparable(self.target.attributes(copy)?, &wanted);
        if !self.options.keep.attributes {
            let is_list = |(name, _): &(Vec<u8>, Vec<u8>)| name.starts_with(LISTS);
            found.retain(is_list);
            wanted.retain(is_list);
        }
        if found == wanted {
            return Ok(());
        }
        for (name, _) in &found {
            if !wanted.iter().any(|(other, _)| other == name) {
                let removed = self.target.set_attribute(copy, name, None);
                self.permitted("attribute not removed", label, removed)?;
            }
        }
        for attribute in &wanted {
            if !found.contains(attribute) {
                let (name, value) = attribute;
                let set = self.target.set_attribute(copy, name, Some(value));
                self.permitted("attribute not kept", label, set)?;
            }
        }
        Ok(())
    }

    /// Gives `copy` the flags of `file`, if the job keeps them. After everything else.
    pub(super) fn flag(
        &self,
        file: &S::Node,
        copy: &T::Node,
        label: &dyn Fn() -> String,
    ) -> Result<()> {
        if !self.options.keep.flags {
            return Ok(());
        }
        let wanted = self.source.flags(file)?;
        if wanted == self.target.flags(copy)? {
            return Ok(());
        }
        match self.target.set_flags(copy, wanted) {
            // A file system that knows no flags.
            Err(Reason::System(error)) if error.raw_os_error() == Some(libc::ENOTTY) => {
                self.permitted("flags not kept", label, Err(Errno::EOPNOTSUPP.into()))
            }
            set => self.permitted("flags not kept", label, set),
        }
    }

    /// Makes `copy` a file that can be changed: takes those flags from it that forbid it.
    pub(super) fn unfix(&self, copy: &T::Node, meta: &Meta) -> Result<()> {
        if !(meta.is_regular() || meta.is_directory()) {
            return Ok(());
        }
        let flags = match self.target.flags(copy) {
            Ok(flags) => flags,
            // Who may not even look at flags finds out when it matters.
            Err(_) => return Ok(()),
        };
        if flags & FIXED == 0 { Ok(()) } else { self.target.set_flags(copy, flags & !FIXED) }
    }

    /// Goes on if `result` is fine, or if it is what the caller has to live with: noted, then.
    pub(super) fn permitted(
        &self,
        what: &'static str,
        label: &dyn Fn() -> String,
        result: Result<()>,
    ) -> Result<()> {
        match result {
            Err(reason) if is_refused(&reason) => {
                self.notes.add(what, label, reason.to_string());
                Ok(())
            }
            result => result,
        }
    }
}
