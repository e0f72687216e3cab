//! Who may do what to a file: the rules of Linux's local file systems.
//!
//! Every function here is a question about plain values: who asks ([`Credentials`]), about which
//! files ([`File`]), to do what. The answer is what may be done and what it changes besides, or the
//! [`Errno`] that ext4 on Linux 6 gives.
//!
//! Invariants:
//! - a function depends on its arguments alone: there is no I/O, no clock and no state, so that one
//!   process and the next one decide alike;
//! - checks are made in the kernel's order, so that where several fail, the error is the kernel's.
//!   Where the kernel and its manual differ, the kernel is right, and a comment says so;
//! - a [`File`]'s mode and access list agree: the entries for owner and others and the mask
//!   (without one, the owning group's entry) are the nine permission bits. What these functions
//!   return agrees again;
//! - a mode is `st_mode`, the type included; a user or group of `u32::MAX` is none.
//!
//! What is not here, because it is not about who asks: whether names exist, whether a directory is
//! empty, limits, quotas, and whether the file system may be written to at all (`EROFS`). And what
//! Linux leaves to settings of the machine: security modules, mounts without devices or programs,
//! mounts with mapped ids, and `fs.protected_*` in `sysctl`. With `fs.protected_hardlinks` a link
//! to another user's file needs `CAP_FOWNER`, or a regular file that is not set-user-id, nor
//! set-group-id and executable for the group, and that the caller may read and write; otherwise
//! `EPERM`. The kernel checks that after both directories were searched and before [`link`].

#![forbid(unsafe_code)]

mod acl;
mod acl_rules;
mod create;
mod credentials;
mod directory;
mod errno;
mod file;
mod file_capability;
mod namespace;
mod open;
mod owner;
mod permission;
mod xattr;

pub use acl::{Acl, Entry, Qualifier, VALUE_SMALL, VERSION, show_list};
pub use acl_rules::{AclKind, SetAcl, read_acl, set_acl};
pub use create::{New, create, new_file};
pub use credentials::{Capabilities, Capability, Credentials};
pub use directory::{Removal, Rename, link, remove, rename};
pub use errno::Errno;
pub use file::{File, flag};
pub use file_capability::FileCapability;
pub use namespace::{IdMap, IdRange, OVERFLOW_ID, UserNamespace};
pub use open::{Open, allocate, open, truncate, truncate_open, write_open};
pub use owner::{Change, Times, chmod, chown, is_owner_or_capable, set_flags, set_times};
pub use permission::{Access, permission};
pub use xattr::{NameSpace, XattrAccess, is_listed, xattr};
