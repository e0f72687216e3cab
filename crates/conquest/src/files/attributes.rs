//! Extended attributes and access lists of a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use conquest_access::{Acl, AclKind, Errno};
use conquest_fs::xattr::{Setting, whole};

use super::Node;
use super::local::with_copy;
use crate::Result;

impl Node<'_> {
    /// The value of attribute `name`.
    ///
    /// # Errors
    /// As getxattr(2): `ENODATA` if there is none.
    pub fn attribute(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let name = name.as_ref().as_bytes();
        self.with_name(name, |fs, who, id, name| whole(|out| fs.attribute(who, id, name, out)))
    }

    /// Copies the value of attribute `name` to `out`: how many bytes it has. If `out` is empty, it
    /// says just that. Takes no memory but `out`.
    ///
    /// # Errors
    /// As getxattr(2): `ERANGE` if there is too little room.
    pub fn attribute_to(&self, name: impl AsRef<OsStr>, out: &mut [u8]) -> Result<usize> {
        let name = name.as_ref().as_bytes();
        self.with_name(name, |fs, who, id, name| fs.attribute(who, id, name, out))
    }

    /// The names of all attributes that the caller may know of.
    ///
    /// # Errors
    /// As listxattr(2).
    pub fn attributes(&self) -> Result<Vec<OsString>> {
        let names = self.with(|fs, who, id| whole(|out| fs.attributes(who, id, out)))?;
        // Each has a byte 0 after it.
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    /// Gives attribute `name` a value.
    ///
    /// # Errors
    /// As setxattr(2), with `how` for its flags.
    pub fn set_attribute(&self, name: impl AsRef<OsStr>, value: &[u8], how: Setting) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.with_name(name, |fs, who, id, name| {
            with_copy(&[value], |value| fs.set_attribute(who, id, name, value, how))
        })
    }

    /// Removes attribute `name`.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn remove_attribute(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.with_name(name, |fs, who, id, name| fs.remove_attribute(who, id, name))
    }

    /// The access list, or the default list of a directory; none if the permissions say it all.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a symbolic link.
    pub fn access_list(&self, kind: AclKind) -> Result<Option<Acl>> {
        let name = kind.attribute();
        let value =
            self.with(|fs, who, id| match whole(|out| fs.attribute(who, id, name, out)) {
                Err(error) if error.errno() == Errno::ENODATA => Ok(None),
                value => value.map(Some),
            })?;
        match value {
            Some(value) => Acl::from_xattr(&value).map_err(self.called.fail()),
            None => Ok(None),
        }
    }

    /// Gives it an access list, or a directory a default list, or takes it away. The permissions
    /// follow an access list.
    ///
    /// # Errors
    /// `EPERM` if the caller may not; `EINVAL` if it is no possible list; `EACCES` for a default
    /// list of what is no directory; `EOPNOTSUPP` for a symbolic link.
    pub fn set_access_list(&self, kind: AclKind, list: Option<&Acl>) -> Result<()> {
        let value = list.map(Acl::to_xattr).unwrap_or_default();
        self.with(|fs, who, id| match list {
            Some(_) => fs.set_attribute(who, id, kind.attribute(), &value, Setting::Any),
            None => fs.remove_attribute(who, id, kind.attribute()),
        })
    }
}
