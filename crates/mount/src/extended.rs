//! Requests about extended attributes. Access lists are among them: the kernel asks for these, and
//! checks by them.

use conquest_access::Capability;
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, Result};

use crate::caller::Caller;
use crate::server::Server;

/// Names that only administrators are told of; the kernel sees to the rest.
const TRUSTED: &[u8] = b"trusted.";

impl Server {
    /// Copies the value of `name` to `out`: how many bytes it has. If `out` is empty, says just
    /// that.
    pub(crate) fn attribute(
        &self,
        caller: Caller<'_>,
        node: u64,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let who = caller.as_administrator().credentials();
        self.fs().attribute(&who, self.file(node)?, name, out)
    }

    /// Copies the names of attributes to `out`, each with a byte 0 after it: how many bytes. If
    /// `out` is empty, says just that.
    pub(crate) fn attributes(
        &self,
        caller: Caller<'_>,
        node: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        let file = self.file(node)?;
        let all = conquest_fs::xattr::whole(|out| {
            self.fs().attributes(&caller.as_administrator().credentials(), file, out)
        })?;
        let names = || all.split_inclusive(|byte| *byte == 0);
        let hides = names().any(|name| name.starts_with(TRUSTED))
            && !caller.has_initially(Capability::SysAdmin);
        let told = || names().filter(|name| !hides || !name.starts_with(TRUSTED));
        let len = told().map(<[u8]>::len).sum();
        if out.is_empty() {
            return Ok(len);
        }
        let mut room = out.get_mut(..len).ok_or(Errno::ERANGE)?;
        for name in told() {
            let (to, rest) = room.split_at_mut_checked(name.len()).ok_or(Errno::ERANGE)?;
            to.copy_from_slice(name);
            room = rest;
        }
        Ok(len)
    }

    /// Gives `name` a value, as the flags of setxattr(2) say. With `kills_sgid`, the caller loses
    /// the set-group-id bit by giving an access list.
    pub(crate) fn set_attribute(
        &self,
        caller: Caller<'_>,
        node: u64,
        (name, value): (&[u8], &[u8]),
        flags: u32,
        kills_sgid: bool,
    ) -> Result<()> {
        let how = match flags.cast_signed() {
            0 => Setting::Any,
            libc::XATTR_CREATE => Setting::Create,
            libc::XATTR_REPLACE => Setting::Replace,
            _ => return Err(Errno::EINVAL.into()),
        };
        let file = self.file(node)?;
        caller.as_administrator().dropping(kills_sgid).with_space(|caller| {
            self.fs().set_attribute(&caller.credentials(), file, name, value, how)
        })
    }

    /// Removes `name`.
    pub(crate) fn remove_attribute(
        &self,
        caller: Caller<'_>,
        node: u64,
        name: &[u8],
    ) -> Result<()> {
        let who = caller.as_administrator().credentials();
        self.fs().remove_attribute(&who, self.file(node)?, name)
    }
}
