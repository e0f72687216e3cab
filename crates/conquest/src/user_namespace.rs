//! The user namespace that this process is in (user_namespaces(7)): which ids it knows by which
//! numbers.
//!
//! The kernel tells a process of ids outside as the namespace around its own numbers them. So the
//! ids of a store are right for processes of the initial namespace and of those made in it; those
//! of one made deeper down would store ids of the one around it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use conquest_access::{IdMap, IdRange, UserNamespace};

use crate::{Error, Result};

/// The inode of the initial namespace, the same on every machine.
const INITIAL: u64 = 0xEFFF_FFFD;

/// The maps of the namespace that this process is in. By default, the initial one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnNamespace {
    is_other: bool,
    users: Vec<IdRange>,
    groups: Vec<IdRange>,
}

impl OwnNamespace {
    /// Reads them from `/proc/self`.
    ///
    /// # Errors
    /// [`Error::System`] if that is not there; [`Error::NoIdMap`] if there is something else.
    pub fn read() -> Result<OwnNamespace> {
        let at = Path::new("/proc/self/ns/user");
        let found = std::fs::metadata(at).map_err(|source| Error::System {
            path: at.into(),
            action: "look at it",
            source,
        })?;
        let map = |name: &str| {
            let path = Path::new("/proc/self").join(name);
            let text = std::fs::read_to_string(&path).map_err(|source| Error::System {
                path: path.clone(),
                action: "read it",
                source,
            })?;
            parse(&text).map_err(|line| Error::NoIdMap { path, line })
        };
        let is_other = found.ino() != INITIAL;
        Ok(OwnNamespace { is_other, users: map("uid_map")?, groups: map("gid_map")? })
    }

    /// The user and the group, as a store keeps them, that the process knows by these numbers.
    ///
    /// # Errors
    /// [`Error::NoId`] if there are none.
    pub fn outside(&self, uid: u32, gid: u32) -> Result<(u32, u32)> {
        let Some(space) = self.get() else {
            return Ok((uid, gid));
        };
        let user = space.users.outside(uid).ok_or(Error::NoId { what: "user", id: uid })?;
        let group = space.groups.outside(gid).ok_or(Error::NoId { what: "group", id: gid })?;
        Ok((user, group))
    }

    /// As credentials have it: none if it is the initial one.
    #[must_use]
    pub fn get(&self) -> Option<UserNamespace<'_>> {
        let (users, groups) = (IdMap(&self.users), IdMap(&self.groups));
        self.is_other.then_some(UserNamespace { users, groups })
    }
}

/// The ranges in the text of an `uid_map` or `gid_map`.
///
/// # Errors
/// The number of the first line, from 1 on, that is none: three numbers, of ids that there can be.
fn parse(text: &str) -> core::result::Result<Vec<IdRange>, usize> {
    text.lines().zip(1..).map(|(line, number)| parse_line(line).ok_or(number)).collect()
}

fn parse_line(line: &str) -> Option<IdRange> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    let range = IdRange { inside: next()?, outside: next()?, count: next()? };
    let ends = [range.inside, range.outside].map(|first| first.checked_add(range.count));
    let is_possible = range.count > 0 && ends.iter().all(Option::is_some);
    (is_possible && numbers.next().is_none()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_understood_and_others_refused() {
        let range = |inside, outside, count| IdRange { inside, outside, count };
        assert_eq!(parse("         0          0 4294967295\n"), Ok(vec![range(0, 0, u32::MAX)]));
        let two = vec![range(0, 1000, 1), range(1, 100_000, 65536)];
        assert_eq!(parse("0 1000 1\n1 100000 65536\n"), Ok(two));
        assert_eq!(parse(""), Ok(Vec::new()));
        for (text, line) in [
            ("0 0\n", 1),
            ("0 0 1\n0 0 1 1\n", 2),
            ("0 0 x\n", 1),
            ("0 0 0\n", 1),
            ("0 -1 1\n", 1),
            ("\n", 1),
            ("4294967295 0 1\n", 1),
            ("0 1 4294967295\n", 1),
        ] {
            assert_eq!(parse(text), Err(line), "{text}");
        }
    }

    #[test]
    fn the_own_one_is_there() {
        let own = OwnNamespace::read().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert!(own.get().is_none_or(|space| space.users.outside(uid).is_some()));
    }
}
