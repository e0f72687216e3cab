//! Who calls.

use conquest_access::Capabilities;
use conquest_fs::Credentials;

/// How many there are: one with all capabilities, and ordinary ones.
pub const USERS: u64 = 4;

/// Somebody.
pub struct Caller {
    pub user: usize,
    groups: Vec<u32>,
}

impl Caller {
    pub fn new(user: usize) -> Caller {
        Caller { user, groups: if user == 2 { vec![1001, 1003] } else { Vec::new() } }
    }

    pub fn credentials(&self) -> Credentials<'_> {
        let is_root = self.user < 2;
        let id = if is_root { 0 } else { 999 + self.user as u32 };
        let capabilities = if is_root { Capabilities::ALL } else { Capabilities::NONE };
        Credentials { fsuid: id, fsgid: id, groups: &self.groups, capabilities, umask: 0o002 }
    }
}
