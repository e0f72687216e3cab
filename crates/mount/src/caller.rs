//! Who a request is from, as the rules of access take it.
//!
//! The kernel has asked already whether the caller may (`default_permissions`), and knows more of
//! him than it tells: groups, capabilities. So here the caller may do everything to files; what is
//! left to decide is whose a new file is, which mask it gets, and the few things that the kernel
//! leaves to file systems: space that is reserved, attributes that only administrators are told of,
//! set-id bits. For these, capabilities are asked of `/proc` when it comes to that. The caller
//! can't be gone meanwhile: he waits for the answer.

use std::path::PathBuf;

use conquest::OwnNamespace;
use conquest_access::{Capabilities, Capability, Credentials, UserNamespace};
use conquest_fs::Errno;

/// The initial user namespace's inode, the same on every machine.
const INITIAL: u64 = 0xEFFF_FFFD;

/// Whom a request is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'s> {
    uid: u32,
    gid: u32,
    /// The thread, as this process sees it; 0 if it does not.
    thread: u32,
    umask: u32,
    namespace: Option<UserNamespace<'s>>,
    lacks: Capabilities,
}

impl<'s> Caller<'s> {
    /// The thread `thread` that acts as `uid` and `gid`, by the numbers of `own`.
    pub(crate) fn new(uid: u32, gid: u32, thread: u32, own: &'s OwnNamespace) -> Caller<'s> {
        let lacks = Capabilities::NONE.with(Capability::SysResource).with(Capability::SysAdmin);
        Caller { uid, gid, thread, umask: 0, namespace: own.get(), lacks }
    }

    /// The same, with a mask for what he makes.
    pub(crate) fn masked(self, umask: u32) -> Caller<'s> {
        Caller { umask: umask & 0o777, ..self }
    }

    /// The same, who loses set-id bits of what he changes if `drops`.
    pub(crate) fn dropping(self, drops: bool) -> Caller<'s> {
        if drops { self.without(Capability::Fsetid) } else { self }
    }

    fn without(self, capability: Capability) -> Caller<'s> {
        Caller { lacks: self.lacks.with(capability), ..self }
    }

    fn with(self, capability: Capability) -> Caller<'s> {
        let others = Capabilities(!Capabilities::NONE.with(capability).0);
        Caller { lacks: Capabilities(self.lacks.0 & others.0), ..self }
    }

    /// As the rules take him, for what exists already.
    pub(crate) fn credentials(&self) -> Credentials<'s> {
        let mut credentials = self.base();
        (credentials.fsuid, credentials.fsgid) = (self.uid, self.gid);
        credentials
    }

    /// As the rules take him, for what he makes: it belongs to him.
    ///
    /// # Errors
    /// `EOVERFLOW` if his user or his group has no number in a store.
    pub(crate) fn maker(&self) -> Result<Credentials<'s>, Errno> {
        let mut credentials = self.base();
        let known =
            |id: u32, found: Option<u32>| found.filter(|_| id != u32::MAX).ok_or(Errno::EOVERFLOW);
        let space = self.namespace;
        credentials.fsuid =
            known(self.uid, space.map_or(Some(self.uid), |space| space.users.outside(self.uid)))?;
        credentials.fsgid =
            known(self.gid, space.map_or(Some(self.gid), |space| space.groups.outside(self.gid)))?;
        Ok(credentials)
    }

    fn base(&self) -> Credentials<'s> {
        Credentials {
            fsuid: 0,
            fsgid: 0,
            groups: &[],
            capabilities: Capabilities(!self.lacks.0),
            umask: self.umask,
            namespace: self.namespace,
        }
    }

    /// Does `work`, and if there is no space for it but what is reserved, once more with that if
    /// the caller may have it.
    pub(crate) fn with_space<T>(
        self,
        mut work: impl FnMut(Caller<'s>) -> conquest_fs::Result<T>,
    ) -> conquest_fs::Result<T> {
        match work(self) {
            Err(error)
                if error.errno() == Errno::ENOSPC
                    && self.has_initially(Capability::SysResource) =>
            {
                work(self.with(Capability::SysResource))
            }
            done => done,
        }
    }

    /// The same with what the kernel does not tell of him, for what administrators alone may see.
    pub(crate) fn as_administrator(self) -> Caller<'s> {
        self.with(Capability::SysAdmin)
    }

    /// Whether `capability` is effective for the caller, in whatever namespace he is.
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.effective().is_some_and(|effective| effective.has(capability))
    }

    /// Whether `capability` is effective for the caller in the initial user namespace.
    pub(crate) fn has_initially(&self, capability: Capability) -> bool {
        let is_there = || {
            let space = std::fs::metadata(self.proc("ns/user"));
            space.is_ok_and(|space| std::os::unix::fs::MetadataExt::ino(&space) == INITIAL)
        };
        self.namespace.is_none() && self.has(capability) && is_there()
    }

    /// Whether he loses set-id bits of what he changes.
    pub(crate) fn drops(&self) -> bool {
        self.lacks.has(Capability::Fsetid)
    }

    /// The same as a member of group `gid`.
    pub(crate) fn member_of(self, gid: u32) -> Caller<'s> {
        Caller { gid, ..self }
    }

    /// Whether he is a member of group `gid`, by the numbers of this process.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        // The last one of the first line is what counts for files.
        let own = self.status("Gid:");
        let own = own.as_deref().and_then(|ids| ids.split_whitespace().next_back());
        let others = self.status("Groups:").unwrap_or_default();
        own.into_iter().chain(others.split_whitespace()).any(|id| id.parse() == Ok(gid))
    }

    /// His capabilities, as far as this process can find out.
    fn effective(&self) -> Option<Capabilities> {
        u64::from_str_radix(self.status("CapEff:")?.trim(), 16).ok().map(Capabilities)
    }

    /// What `/proc` says of him under `name`.
    fn status(&self, name: &str) -> Option<String> {
        if self.thread == 0 {
            return None;
        }
        let status = std::fs::read_to_string(self.proc("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
    }

    fn proc(&self, what: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{what}", self.thread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_what_the_kernel_says() {
        let own = OwnNamespace::default();
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let thread = thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let me = Caller::new(0, 0, thread, &own);
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let is_capable = status.lines().any(|line| {
            line.strip_prefix("CapEff:")
                .is_some_and(|set| u64::from_str_radix(set.trim(), 16).unwrap() & 1 << 24 != 0)
        });
        assert_eq!(me.has(Capability::SysResource), is_capable);
        assert!(!Caller::new(0, 0, 0, &own).has(Capability::Chown), "nobody is seen");
        assert!(!me.credentials().has(Capability::SysResource));
        assert!(me.with(Capability::SysResource).credentials().has(Capability::SysResource));
        assert!(me.is_in(rustix::process::getegid().as_raw()) && !me.is_in(u32::MAX));
        assert!(me.dropping(true).drops() && !me.drops());
        assert!(!me.dropping(true).credentials().has(Capability::Fsetid));
    }
}
