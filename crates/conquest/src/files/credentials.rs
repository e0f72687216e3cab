//! Who makes calls: a value that a program gives, or what the kernel says of the calling thread.

use std::path::Path;

use conquest_access::{self as access, Capabilities};

use crate::Result;
use crate::error::failed;

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
}

impl Credentials {
    /// Those of the calling thread, as they are now: what changes later is not followed.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or of a Linux before 4.7, which does not tell the mask.
    pub fn of_thread() -> Result<Credentials> {
        let path = Path::new("/proc/thread-self/status");
        let action = "ask who calls (mount proc there)";
        let text = std::fs::read_to_string(path).map_err(failed(path, action))?;
        parse(&text).ok_or_else(|| {
            let action = "find users, groups, capabilities and mask (Linux 4.7 or newer)";
            failed(path, action)(std::io::Error::from_raw_os_error(libc::EINVAL))
        })
    }

    /// As the rules take them.
    pub(crate) fn rules(&self) -> access::Credentials<'_> {
        access::Credentials {
            fsuid: self.fsuid,
            fsgid: self.fsgid,
            groups: &self.groups,
            capabilities: self.capabilities,
            umask: self.umask,
        }
    }
}

fn parse(status: &str) -> Option<Credentials> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let fourth = |key: &str| line(key)?.split_whitespace().nth(3)?.parse().ok();
    let groups = line("Groups:")?.split_whitespace().map(str::parse);
    Some(Credentials {
        fsuid: fourth("Uid:")?,
        fsgid: fourth("Gid:")?,
        groups: groups.collect::<core::result::Result<_, _>>().ok()?,
        capabilities: Capabilities(u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?),
        umask: u32::from_str_radix(line("Umask:")?.trim(), 8).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_understood() {
        let text = "Name:\tx\nUmask:\t0027\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n\
                    Groups:\t10 20 \nCapEff:\t00000000a80425fb\n";
        let who = parse(text).unwrap();
        assert_eq!((who.fsuid, who.fsgid, who.umask), (4, 8, 0o27));
        assert_eq!((who.groups, who.capabilities.0), (vec![10, 20], 0xA804_25FB));
        assert!(parse("Umask:\t0022\n").is_none());
    }

    #[test]
    fn the_own_status_is_there() {
        let who = Credentials::of_thread().unwrap();
        assert_eq!(who.fsuid, rustix::process::geteuid().as_raw());
        assert_eq!(who.rules().fsgid, rustix::process::getegid().as_raw());
    }
}
