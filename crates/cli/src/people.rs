//! Names of users and groups, as the machine's name service knows them.

use std::collections::HashMap;

use nix::unistd::{Gid, Group, Uid, User};

/// Names that were asked for, each once.
#[derive(Default)]
pub(crate) struct People {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl People {
    /// The name of user `uid`, or its number if it has none.
    pub(crate) fn user(&mut self, uid: u32) -> &str {
        self.users.entry(uid).or_insert_with(|| match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => user.name,
            _ => uid.to_string(),
        })
    }

    /// The name of group `gid`, or its number if it has none.
    pub(crate) fn group(&mut self, gid: u32) -> &str {
        self.groups.entry(gid).or_insert_with(|| match Group::from_gid(Gid::from_raw(gid)) {
            Ok(Some(group)) => group.name,
            _ => gid.to_string(),
        })
    }
}
