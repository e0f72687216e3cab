//! Extended attributes and access lists, by their names (xattr(7), acl(5)); and the threshold of a
//! file's own ([`THRESHOLD`]), which is one by its name, and by who may do what with it.

use conquest_access::{
    Acl, AclKind, Credentials, Errno, FileCapability, NameSpace, XattrAccess, is_listed, read_acl,
    set_acl, show_list, xattr,
};
use conquest_format::fs::attributes::VALUE_MAX;
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::extended::{Attributes, Items, name_of};
use crate::inode::{Draft, FileId, access_list, load, rules_of};
use crate::placement::{THRESHOLD, ThresholdText, parse_threshold};
use crate::{Error, FileSystem, Result};

/// Most bytes in a name.
const NAME_MAX: usize = 255;
/// Most bytes of names that are listed, as in Linux.
pub const NAMES_MAX: usize = 65536;

/// Bytes of the longest value of `security.capability`.
const CAPABILITY_MAX: usize = 24;

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

/// What `call` copies to the memory that it gets, where empty memory asks how much it takes:
/// [`FileSystem::attribute`] and [`FileSystem::attributes`].
///
/// # Errors
/// Those of `call`.
pub fn whole(mut call: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    loop {
        let mut bytes = vec![0; call(&mut [])?];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        match call(&mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                return Ok(bytes);
            }
            // It has become longer.
            Err(Error::Refused(Errno::ERANGE)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Copies `value` to `out`: how many bytes it has. If `out` is empty, it says just that.
fn put(value: &[u8], out: &mut [u8]) -> Result<usize> {
    if !out.is_empty() {
        out.get_mut(..value.len()).ok_or(Errno::ERANGE)?.copy_from_slice(value);
    }
    Ok(value.len())
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX { Err(Errno::ERANGE.into()) } else { Ok(()) }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Copies the value of attribute `name` of `file` to `out`: how many bytes it has. If `out` is
    /// empty, it says just that.
    ///
    /// # Errors
    /// - `ERANGE`: a name of 0, or of more than 255 bytes; or `out` has too little room;
    /// - `ENODATA`: there is none, or the caller may not know;
    /// - `EACCES`, `EPERM`: the caller may not; - `EINVAL`, `EOPNOTSUPP`: no such name can be;
    /// - `EOVERFLOW`: capabilities for a namespace of which the caller's knows nothing;
    /// - [`crate::Error::Stale`]; those of the region.
    pub fn attribute(
        &self,
        who: &Credentials,
        file: FileId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        check_name(name)?;
        let space = NameSpace::of(name);
        if space == NameSpace::FileCapability {
            let mut value = [0; CAPABILITY_MAX];
            let len = self.read_value(who, file, name, &mut value)?;
            let value = FileCapability::new(value.get(..len).unwrap_or_default());
            return put(value.ok_or(Errno::EINVAL)?.seen_by(who)?.bytes(), out);
        }
        let len = self.read_value(who, file, name, out)?;
        if let NameSpace::Acl(_) = space {
            show_list(who, out.get_mut(..len).unwrap_or_default());
        }
        Ok(len)
    }

    /// [`Self::attribute`], as it is kept.
    fn read_value(
        &self,
        who: &Credentials,
        file: FileId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        self.read_to(file.number, out, |view, out| {
            let (inode, _) = load(view, file)?;
            let acl = access_list(view, &inode)?;
            let rules = rules_of(&inode, acl.as_ref());
            match NameSpace::of(name) {
                NameSpace::Acl(_) => read_acl(&rules)?,
                _ => xattr(who, &rules, name, XattrAccess::Read)?,
            }
            if name == THRESHOLD {
                let bytes = inode.threshold.ok_or(Errno::ENODATA)?;
                return put(ThresholdText::new(bytes).bytes(), out);
            }
            let value = Items::open(view, &inode)?.find(name)?.ok_or(Errno::ENODATA)?;
            let len = value.len() as usize;
            if out.is_empty() {
                return Ok(len);
            }
            let out = out.get_mut(..len).ok_or(Errno::ERANGE)?;
            view.bytes(value.offset(), out);
            Ok(len)
        })
    }

    /// Copies the names of the attributes of `file` that `who` may know of to `out`, each with a
    /// byte 0 after it: how many bytes these are. If `out` is empty, it says just that.
    ///
    /// # Errors
    /// - `ERANGE`: `out` has too little room; `E2BIG`: they are more than [`NAMES_MAX`], so that no
    ///   call of the kernel could tell them;
    /// - [`crate::Error::Stale`]; those of the region.
    pub fn attributes(&self, who: &Credentials, file: FileId, out: &mut [u8]) -> Result<usize> {
        self.read_to(file.number, out, |view, out| {
            let (inode, _) = load(view, file)?;
            let mut items = Items::open(view, &inode)?;
            let room = out.len().min(NAMES_MAX);
            let mut len = 0;
            let mut list = |name: &[u8]| {
                let end = len + name.len() + 1;
                if let Some([place @ .., last]) = out.get_mut(len..end) {
                    place.copy_from_slice(name);
                    *last = 0;
                }
                len = end;
            };
            let mut own = inode.threshold.map(|_| THRESHOLD);
            while let Some((name, _)) = items.next()? {
                if let Some(own) = own.take_if(|own| *own < name) {
                    list(own);
                }
                if is_listed(who, name) {
                    list(name);
                }
            }
            if let Some(own) = own {
                list(own);
            }
            match len <= room || room == 0 {
                true => Ok(len),
                false if room == NAMES_MAX => Err(Errno::E2BIG.into()),
                false => Err(Errno::ERANGE.into()),
            }
        })
    }

    /// Gives attribute `name` of `file` a value.
    ///
    /// # Errors
    /// - `ERANGE`: a name of 0, or of more than 255 bytes; - `E2BIG`: a value of more than 64 KiB;
    /// - `EEXIST`, `ENODATA`: as `how` says;
    /// - `EACCES`, `EPERM`: the caller may not; - `EINVAL`, `EOPNOTSUPP`: no such name or value can
    ///   be; the latter for [`THRESHOLD`] in a store without a volume, too;
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
            self.keep_reserve(tx, who);
            if let NameSpace::Acl(kind) = NameSpace::of(name) {
                return set_list(tx, who, draft, kind, value, now);
            }
            xattr(who, &draft.rules(), name, XattrAccess::Write(value))?;
            if name == THRESHOLD {
                if self.chunk_blocks() == 0 {
                    return Err(Errno::EOPNOTSUPP.into());
                }
                return set_threshold(draft, Some(parse_threshold(value)?), how, now);
            }
            let capability = match NameSpace::of(name) {
                NameSpace::FileCapability => FileCapability::new(value),
                _ => None,
            };
            let capability = capability.map(|capability| capability.meant_by(who)).transpose()?;
            let value = capability.as_ref().map_or(value, FileCapability::bytes);
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
            if name == THRESHOLD {
                return set_threshold(draft, None, Setting::Replace, now);
            }
            let mut attributes = Attributes::load(tx, &draft.inode)?;
            attributes.get(name).ok_or(Errno::ENODATA)?;
            attributes.set(name, None);
            draft.change(now);
            draft.set_attributes(tx, &attributes)
        })
    }
}

/// Lets the threshold of the file of `draft` be `threshold`. What is on the volume, or in the core,
/// stays there until the file grows.
fn set_threshold(draft: &mut Draft, threshold: Option<u64>, how: Setting, now: i64) -> Result<()> {
    match (draft.inode.threshold, how) {
        (Some(_), Setting::Create) => return Err(Errno::EEXIST.into()),
        (None, Setting::Replace) => return Err(Errno::ENODATA.into()),
        // The change of nothing is none.
        (old, _) if old == threshold => return Ok(()),
        _ => {}
    }
    draft.inode.threshold = threshold;
    draft.change(now);
    Ok(())
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
