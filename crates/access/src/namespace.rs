//! User namespaces (user_namespaces(7)): by which numbers a process knows users and groups.
//!
//! The files of a store have ids of the initial namespace, and so have [`Credentials`] and all that
//! the rules compare. Only what a caller says or is told is translated: ids to set, ids that `stat`
//! tells, and those in access lists and in capabilities of files. And a capability counts only for
//! what its namespace has a number for; some count in the initial one only.

use crate::{Capability, Credentials, Errno, File};

/// What is told in the place of an id that has no number.
pub const OVERFLOW_ID: u32 = 65534;

/// Ids in a row: a line of `/proc/PID/uid_map`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdRange {
    /// The first one's number in the namespace.
    pub inside: u32,
    /// The first one's number outside.
    pub outside: u32,
    /// How many there are.
    pub count: u32,
}

/// The users, or the groups, of a namespace: at most 340 ranges, in any order. No number is in two
/// of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdMap<'a>(pub &'a [IdRange]);

/// A user namespace other than the initial one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UserNamespace<'a> {
    /// Its users.
    pub users: IdMap<'a>,
    /// Its groups.
    pub groups: IdMap<'a>,
}

/// The number at the place in a range at which `id` is in another one, which begins at `from`.
fn translate(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let place = id.checked_sub(from).filter(|place| *place < count)?;
    to.checked_add(place).filter(|id| *id != u32::MAX)
}

impl IdMap<'_> {
    /// The id that has the number `id` in the namespace; none if none has.
    #[must_use]
    pub fn outside(self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|range| translate(id, range.inside, range.outside, range.count))
    }

    /// The number of the id `id` in the namespace, if it has one.
    #[must_use]
    pub fn inside(self, id: u32) -> Option<u32> {
        self.0.iter().find_map(|range| translate(id, range.outside, range.inside, range.count))
    }
}

impl Credentials<'_> {
    /// The user whom the caller knows as `uid`.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is none.
    pub fn user_meant(&self, uid: u32) -> Result<u32, Errno> {
        self.namespace.map_or(Some(uid), |space| space.users.outside(uid)).ok_or(Errno::EINVAL)
    }

    /// The group that the caller knows as `gid`.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is none.
    pub fn group_meant(&self, gid: u32) -> Result<u32, Errno> {
        self.namespace.map_or(Some(gid), |space| space.groups.outside(gid)).ok_or(Errno::EINVAL)
    }

    /// The number by which the caller knows the user `uid`, if there is one.
    #[must_use]
    pub fn user_number(&self, uid: u32) -> Option<u32> {
        self.namespace.map_or(Some(uid), |space| space.users.inside(uid))
    }

    /// The number by which the caller knows the group `gid`, if there is one.
    #[must_use]
    pub fn group_number(&self, gid: u32) -> Option<u32> {
        self.namespace.map_or(Some(gid), |space| space.groups.inside(gid))
    }

    /// Whether `capability` is effective in the initial namespace.
    #[must_use]
    pub const fn has_initially(&self, capability: Capability) -> bool {
        self.namespace.is_none() && self.has(capability)
    }

    /// Whether `capability` is effective for `file`: the caller's namespace knows its user and its
    /// group.
    #[must_use]
    pub fn has_over(&self, capability: Capability, file: &File) -> bool {
        self.has(capability)
            && self.user_number(file.uid).is_some()
            && self.group_number(file.gid).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_translated_both_ways() {
        let ranges = [
            IdRange { inside: 0, outside: 1000, count: 1 },
            IdRange { inside: 5, outside: 2000, count: 10 },
            IdRange { inside: 4_000_000_000, outside: 100, count: u32::MAX },
        ];
        let map = IdMap(&ranges);
        for (inside, outside) in [
            (Some(0), Some(1000)),
            (Some(5), Some(2000)),
            (Some(14), Some(2009)),
            (Some(4_000_000_001), Some(101)),
        ] {
            assert_eq!(inside.and_then(|id| map.outside(id)), outside);
            assert_eq!(outside.and_then(|id| map.inside(id)), inside);
        }
        for id in [1, 4, 15, u32::MAX] {
            assert_eq!(IdMap(&ranges[..2]).outside(id), None);
        }
        assert_eq!(IdMap(&ranges[..2]).inside(999), None);
        // What passes the last id is none.
        assert_eq!(map.inside(u32::MAX - 10), None);
    }
}
