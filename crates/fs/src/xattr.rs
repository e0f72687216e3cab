//! Extended attributes and access lists, by their names (xattr(7), acl(5)).

use conquest_access::{
    Acl, AclKind, Credentials, Errno, NameSpace, XattrAccess, is_listed, read_acl, set_acl, xattr,
};
use conquest_format::fs::attributes::VALUE_MAX;
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::extended::{Attributes, name_of};
use crate::inode::{Draft, FileId, access_list, load, rules_of};
use crate::{FileSystem, Result};

/// Most bytes in a name.
const NAME_MAX: usize = 255;

/// How an attribute is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Whether there is one of this name or not.
    Any,
    /// Only if there is none.
    Create,
    /// Only if there is one.
    Replace,
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX { Err(Errno::ERANGE.into()) } else { Ok(()) }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// The value of attribute `name` of `file`.
    ///
    /// # Errors
    /// - `ERANGE`: a name of 0, or of more than 255 bytes;
    /// - `ENODATA`: there is none, or the caller may not know;
    /// - `EACCES`, `EPERM`: the caller may not; - `EINVAL`, `EOPNOTSUPP`: no such name can be;
    /// - [`crate::Error::Stale`]; those of the region.
    pub fn attribute(&self, who: &Credentials, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let acl = access_list(view, &inode)?;
            let rules = rules_of(&inode, acl.as_ref());
            match NameSpace::of(name) {
                NameSpace::Acl(_) => read_acl(&rules)?,
                _ => xattr(who, &rules, name, XattrAccess::Read)?,
            }
            let attributes = Attributes::load(view, &inode)?;
            Ok(attributes.get(name).ok_or(Errno::ENODATA)?.to_vec())
        })
    }

    /// The names of the attributes of `file` that `who` may know of.
    ///
    /// # Errors
    /// [`crate::Error::Stale`]; those of the region.
    pub fn attributes(&self, who: &Credentials, file: FileId) -> Result<Vec<Vec<u8>>> {
        self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let attributes = Attributes::load(view, &inode)?;
            let listed = attributes.names().filter(|name| is_listed(who, name));
            Ok(listed.map(<[u8]>::to_vec).collect())
        })
    }

    /// Gives attribute `name` of `file` a value.
    ///
    /// # Errors
    /// - `ERANGE`: a name of 0, or of more than 255 bytes; - `E2BIG`: a value of more than 64 KiB;
    /// - `EEXIST`, `ENODATA`: as `how` says;
    /// - `EACCES`, `EPERM`: the caller may not; - `EINVAL`, `EOPNOTSUPP`: no such name or value can
    ///   be;
    /// - `ENOSPC`: more than 2 MiB of attributes, or the store is full;
    /// - [`crate::Error::Stale`]; those of the region.
    pub fn set_attribute(
        &self,
        who: &Credentials,
        file: FileId,
        name: &[u8],
        value: &[u8],
        how: Setting,
    ) -> Result<()> {
        check_name(name)?;
        if value.len() as u64 > VALUE_MAX {
            return Err(Errno::E2BIG.into());
        }
        self.alter(file, |tx, draft, now| {
            if let NameSpace::Acl(kind) = NameSpace::of(name) {
                return set_list(tx, who, draft, kind, value, now);
            }
            xattr(who, &draft.rules(), name, XattrAccess::Write(value))?;
            let mut attributes = Attributes::load(tx, &draft.inode)?;
            match (attributes.get(name), how) {
                (Some(_), Setting::Create) => return Err(Errno::EEXIST.into()),
                (None, Setting::Replace) => return Err(Errno::ENODATA.into()),
                // The change of nothing is none.
                (Some(old), _) if old == value => return Ok(()),
                _ => {}
            }
            attributes.set(name, Some(value.to_vec()));
            draft.change(now);
            draft.set_attributes(tx, &attributes)
        })
    }

    /// Removes attribute `name` of `file`.
    ///
    /// # Errors
    /// - `ERANGE`: a name of 0, or of more than 255 bytes; - `ENODATA`: there is none;
    /// - `EACCES`, `EPERM`: the caller may not; - `EINVAL`, `EOPNOTSUPP`: no such name can be;
    /// - [`crate::Error::Stale`]; those of the region.
    pub fn remove_attribute(&self, who: &Credentials, file: FileId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.alter(file, |tx, draft, now| {
            if let NameSpace::Acl(kind) = NameSpace::of(name) {
                return set_list(tx, who, draft, kind, &[], now);
            }
            xattr(who, &draft.rules(), name, XattrAccess::Remove)?;
            let mut attributes = Attributes::load(tx, &draft.inode)?;
            attributes.get(name).ok_or(Errno::ENODATA)?;
            attributes.set(name, None);
            draft.change(now);
            draft.set_attributes(tx, &attributes)
        })
    }
}

/// Stages that an access list is what `value` says, and the mode what follows.
fn set_list<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    who: &Credentials,
    draft: &mut Draft,
    kind: AclKind,
    value: &[u8],
    now: i64,
) -> Result<()> {
    let set = set_acl(who, &draft.rules(), kind, value)?;
    let old = Attributes::load(tx, &draft.inode)?;
    let mut new = old.clone();
    new.set(name_of(kind), set.acl.as_ref().map(Acl::to_xattr));
    let permissions = (set.mode & 0o7777) as u16;
    // The change of nothing is none.
    if new == old && permissions == draft.inode.permissions {
        return Ok(());
    }
    draft.inode.permissions = permissions;
    draft.change(now);
    draft.set_attributes(tx, &new)
}
