//! The process's own credentials, as the rules of access take them.
//!
//! Read once: a program that changes its user does so before it begins to work.

use std::sync::OnceLock;

use conquest::OwnNamespace;
use conquest_access::{Capabilities, Credentials};

use crate::reason::{Reason, Result};

struct Own {
    /// Ids are those outside it.
    namespace: OwnNamespace,
    fsuid: u32,
    fsgid: u32,
    groups: Vec<u32>,
    capabilities: u64,
    umask: u32,
}

static OWN: OnceLock<Own> = OnceLock::new();

/// Reads them from `/proc/self/status`.
///
/// # Errors
/// A rule that says what is missing there.
pub(crate) fn load() -> Result<()> {
    if OWN.get().is_none() {
        let path = "/proc/self/status";
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| {
            let words = crate::reason::words(&error);
            Reason::rule(format!("{path}: {words} (mount proc there: users are read from it)"))
        })?;
        let own = parse(&text, OwnNamespace::read()?).ok_or_else(|| {
            Reason::rule(format!(
                "{path}: no user, group, capabilities or mask (Linux 4.7 or newer)"
            ))
        })??;
        // Whoever was first has read the same.
        let _ = OWN.set(own);
    }
    Ok(())
}

/// Who makes calls, with what was loaded.
pub(crate) fn am_i() -> Credentials<'static> {
    match OWN.get() {
        Some(own) => Credentials {
            fsuid: own.fsuid,
            fsgid: own.fsgid,
            groups: &own.groups,
            capabilities: Capabilities(own.capabilities),
            umask: own.umask,
            namespace: own.namespace.get(),
        },
        // Before it was loaded: nobody.
        None => Credentials {
            fsuid: u32::MAX - 1,
            fsgid: u32::MAX - 1,
            groups: &[],
            capabilities: Capabilities::NONE,
            umask: 0o077,
            namespace: None,
        },
    }
}

/// What is in `status`, of a process in `namespace`; an error if its ids can't be kept in stores.
fn parse(status: &str, namespace: OwnNamespace) -> Option<conquest::Result<Own>> {
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let fourth = |key: &str| line(key)?.split_whitespace().nth(3)?.parse().ok();
    let groups = line("Groups:")?.split_whitespace().map(str::parse);
    let groups = groups.collect::<core::result::Result<Vec<u32>, _>>().ok()?;
    // Groups without a number have that of nobody here, by which they can't be told apart.
    let outside = |id: &u32| namespace.get().map_or(Some(*id), |space| space.groups.outside(*id));
    let groups = groups.iter().filter_map(outside).collect();
    let capabilities = u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?;
    let umask = u32::from_str_radix(line("Umask:")?.trim(), 8).ok()?;
    let ids = namespace.outside(fourth("Uid:")?, fourth("Gid:")?);
    Some(ids.map(|(fsuid, fsgid)| Own { namespace, fsuid, fsgid, groups, capabilities, umask }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_understood() {
        let text = "Name:\tx\nUmask:\t0027\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n\
                    Groups:\t10 20 \nCapEff:\t00000000a80425fb\n";
        let initial = OwnNamespace::default;
        let own = parse(text, initial()).unwrap().unwrap();
        assert_eq!((own.fsuid, own.fsgid, own.umask), (4, 8, 0o27));
        assert_eq!((own.groups, own.capabilities), (vec![10, 20], 0xA804_25FB));
        assert!(parse("Umask:\t0022\n", initial()).is_none());
    }

    #[test]
    fn the_own_status_is_there() {
        load().unwrap();
        let who = am_i();
        assert_eq!(who.user_number(who.fsuid), Some(rustix::process::geteuid().as_raw()));
    }
}
