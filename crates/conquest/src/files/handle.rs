//! Open files of this process: the one place where an open file's description is kept and closed.
//!
//! A description is a holding of the process that opened the file. A forked child has a copy of the
//! value, but no part in the holding: what it does with the copy is refused, and when it drops the
//! copy, or ends, its parent's file stays open.

use std::sync::Arc;

use conquest_access::{self as access, Errno};
use conquest_fs::locks::Owner;
use conquest_fs::open::OpenFile;

use super::actor::{Actor, Called, Counted};
use super::error::Reason;
use crate::name::Name;
use crate::{Fs, Result};

/// An open file. Closed when it is dropped.
#[derive(Debug)]
pub(super) struct Handle {
    counted: Counted,
    open: OpenFile,
    name: Name,
    is_closed: bool,
}

impl Handle {
    /// What `work` opens for `actor`, and the caller calls so.
    pub(super) fn open(
        actor: &Arc<Actor>,
        called: Called<'_>,
        work: impl FnOnce(&Fs, &access::Credentials<'_>) -> conquest_fs::Result<OpenFile>,
    ) -> Result<Handle> {
        let opened = Counted::new(actor).and_then(|counted| {
            let open = work(actor.fs(), &actor.who())?;
            Ok((counted, open))
        });
        let (counted, open) = opened.map_err(called.fail())?;
        Ok(Handle { counted, open, name: called.name(), is_closed: false })
    }

    /// Who opened it.
    pub(super) fn actor(&self) -> &Arc<Actor> {
        self.counted.actor()
    }

    /// What the caller called it.
    pub(super) fn called(&self) -> Called<'_> {
        Called::Kept(&self.name)
    }

    /// Lets the caller have called it so.
    pub(super) fn set_name(&mut self, name: Name) {
        self.name = name;
    }

    /// What it is, in whatever process.
    pub(super) fn description(&self) -> &OpenFile {
        &self.open
    }

    fn is_own(&self) -> bool {
        self.actor().fs().is_own(&self.open)
    }

    /// The description, for the process that opened it.
    pub(super) fn own(&self) -> Result<&OpenFile> {
        if self.is_own() { Ok(&self.open) } else { Err(self.called().fail()(Reason::Inherited)) }
    }

    /// The same, for what more is needed than to name the file (`O_PATH`).
    pub(super) fn opened(&self) -> Result<&OpenFile> {
        match self.own()? {
            open if open.how.path_only => Err(self.called().fail()(Errno::EBADF)),
            open => Ok(open),
        }
    }

    /// Tells whether what was done to it is as durable as it can get.
    pub(super) fn sync(&self) -> Result<()> {
        self.actor().fs().sync(self.own()?).map_err(self.called().fail())
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the region: it is closed all the same. `EBADF` in a forked child.
    pub(super) fn close(mut self) -> Result<()> {
        self.own()?;
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.is_closed = true;
        let fs = self.actor().fs();
        // As POSIX has it: closing any descriptor of a file ends all the process's locks on it.
        let released = match self.actor().store.may_have_records() {
            true => fs.release_records(&self.open, Owner::Process(0)),
            false => Ok(()),
        };
        fs.close(&self.open).and(released).map_err(self.called().fail())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_closed && self.is_own() {
            // As with `close`, nobody is there to be told.
            let _ = self.end();
        }
    }
}
