//! Who calls.

use std::sync::OnceLock;

use conquest_access::{Capabilities, IdMap, IdRange, UserNamespace};
use conquest_fs::Credentials;

/// How many there are: one with all capabilities, and ordinary ones.
pub const USERS: u64 = 4;

/// The user namespace that this process is in, if not the initial one: users and groups have the
/// same map.
static NAMESPACE: OnceLock<Vec<IdRange>> = OnceLock::new();

/// Says that this process is in a user namespace of these ids.
pub fn enter_namespace(ranges: &[IdRange]) {
    NAMESPACE.set(ranges.to_vec()).unwrap();
}

pub fn is_in_namespace() -> bool {
    NAMESPACE.get().is_some()
}

fn namespace() -> Option<UserNamespace<'static>> {
    let map = IdMap(NAMESPACE.get()?);
    Some(UserNamespace { users: map, groups: map })
}

/// Somebody.
pub struct Caller {
    pub user: usize,
    /// As the process calls them.
    groups: Vec<u32>,
    /// As they are outside.
    groups_outside: Vec<u32>,
}

impl Caller {
    pub fn new(user: usize) -> Caller {
        let groups = if user == 2 { vec![1001, 1002] } else { Vec::new() };
        let outside = |id: &u32| namespace().map_or(Some(*id), |space| space.groups.outside(*id));
        let groups_outside = groups.iter().map(|id| outside(id).unwrap()).collect();
        Caller { user, groups, groups_outside }
    }

    fn id(&self) -> u32 {
        // The third user is not known in a namespace.
        let users = if NAMESPACE.get().is_some() { 2 } else { 3 };
        match self.user.checked_sub(2) {
            None => 0,
            Some(number) => 1001 + number as u32 % users,
        }
    }

    fn capabilities(&self) -> Capabilities {
        if self.user < 2 { Capabilities::ALL } else { Capabilities::NONE }
    }

    /// As the rules take them.
    pub fn credentials(&self) -> Credentials<'_> {
        let namespace = namespace();
        let outside = |map: IdMap<'_>| map.outside(self.id()).unwrap();
        Credentials {
            fsuid: namespace.map_or(self.id(), |space| outside(space.users)),
            fsgid: namespace.map_or(self.id(), |space| outside(space.groups)),
            groups: &self.groups_outside,
            capabilities: self.capabilities(),
            umask: 0o002,
            namespace,
        }
    }

    /// By the numbers that the process calls them.
    pub fn own(&self) -> Credentials<'_> {
        let id = self.id();
        let capabilities = self.capabilities();
        let (groups, umask) = (&self.groups, 0o002);
        Credentials { fsuid: id, fsgid: id, groups, capabilities, umask, namespace: None }
    }
}
