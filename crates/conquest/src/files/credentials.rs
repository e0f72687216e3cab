//! Who makes calls: a value that a program gives, or what the kernel says of the calling thread.

use std::path::Path;

use conquest_access::{self as access, Capabilities};

use crate::error::failed;
use crate::{OwnNamespace, Result};

/// Who makes calls, as the rules of access take it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The user that counts for files: the effective one, unless `setfsuid` was used.
    pub fsuid: u32,
    /// The group that counts for files.
    pub fsgid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities. User 0 is nobody special without them.
    pub capabilities: Capabilities,
    /// Permission bits that new files don't get.
    pub umask: u32,
    /// The user namespace, by whose numbers the caller knows users and groups. All ids above are
    /// those outside it.
    pub namespace: OwnNamespace,
}

impl Credentials {
    /// Those of the calling thread, as they are now: what changes later is not followed.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or of a Linux before 4.7, which does not tell the mask; if the
    /// user or the group has no id outside the user namespace.
    pub fn of_thread() -> Result<Credentials> {
        let path = Path::new("/proc/thread-self/status");
        let action = "ask who calls (mount proc there)";
        let text = std::fs::read_to_string(path).map_err(failed(path, action))?;
        parse(&text, OwnNamespace::read()?).ok_or_else(|| {
            let action = "find users, groups, capabilities and mask (Linux 4.7 or newer)";
            failed(path, action)(std::io::Error::from_raw_os_error(libc::EINVAL))
        })?
    }

    /// The number by which the caller knows the user `uid`, if there is one.
    #[must_use]
    pub fn user_number(&self, uid: u32) -> Option<u32> {
        self.rules().user_number(uid)
    }

    /// As the rules take them.
    pub(crate) fn rules(&self) -> access::Credentials<'_> {
        access::Credentials {
            fsuid: self.fsuid,
            fsgid: self.fsgid,
            groups: &self.groups,
            capabilities: self.capabilities,
            umask: self.umask,
            namespace: self.namespace.get(),
        }
    }
}

/// What is in `status`, of a thread in `namespace`; an error if its ids can't be kept in stores.
fn parse(status: &str, namespace: OwnNamespace) -> Option<Result<Credentials>> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let fourth = |key: &str| line(key)?.split_whitespace().nth(3)?.parse().ok();
    let groups = line("Groups:")?.split_whitespace().map(str::parse);
    let groups = groups.collect::<core::result::Result<Vec<u32>, _>>().ok()?;
    // Groups without a number have that of nobody here, by which they can't be told apart.
    let outside = |id: &u32| namespace.get().map_or(Some(*id), |space| space.groups.outside(*id));
    let groups = groups.iter().filter_map(outside).collect();
    let capabilities = Capabilities(u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?);
    let umask = u32::from_str_radix(line("Umask:")?.trim(), 8).ok()?;
    let ids = namespace.outside(fourth("Uid:")?, fourth("Gid:")?);
    Some(ids.map(|(fsuid, fsgid)| Credentials {
        fsuid,
        fsgid,
        groups,
        capabilities,
        umask,
        namespace,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_understood() {
        let text = "Name:\tx\nUmask:\t0027\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n\
                    Groups:\t10 20 \nCapEff:\t00000000a80425fb\n";
        let who = parse(text, OwnNamespace::default()).unwrap().unwrap();
        assert_eq!((who.fsuid, who.fsgid, who.umask), (4, 8, 0o27));
        assert_eq!((who.groups, who.capabilities.0), (vec![10, 20], 0xA804_25FB));
        assert!(parse("Umask:\t0022\n", OwnNamespace::default()).is_none());
    }

    #[test]
    fn the_own_status_is_there() {
        let who = Credentials::of_thread().unwrap();
        let rules = who.rules();
        assert_eq!(rules.user_number(who.fsuid), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(rules.group_number(who.fsgid), Some(rustix::process::getegid().as_raw()));
    }
}
