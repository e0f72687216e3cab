//! Numbers and structures as the kernel has them.

mod flags;
mod opcode;
mod reply;
mod request;

pub use flags::{AttributeFlags, InitFlags, IoctlFlags, OpenedFlags};
pub(crate) use flags::{
    FsyncFlags, GetattrFlags, LockFlags, NoticeEntryFlags, OpenFlags, PollFlags, ReadFlags,
    ReleaseFlags, SetattrValid, SetxattrFlags, WriteFlags,
};
pub use opcode::Opcode;
pub(crate) use reply::*;
pub(crate) use request::*;

/// The major version spoken.
pub const MAJOR: u32 = 7;
/// The newest minor version known: Linux 6.18 has it.
pub const MINOR: u32 = 45;
/// The oldest minor version spoken: Linux 5.4 has it.
pub const MINOR_MIN: u32 = 31;
/// The node of the mount's root.
pub const ROOT: u64 = 1;
/// Bytes of the header before every request.
pub const REQUEST_HEADER_SIZE: usize = size_of::<InHeader>();
/// Bytes of the header before every reply and notice.
pub const REPLY_HEADER_SIZE: usize = size_of::<OutHeader>();
/// Bytes of the reply to INIT.
pub const INIT_REPLY_SIZE: usize = size_of::<InitOut>();

/// Minor version from which on extensions are counted in the header of a request.
pub(crate) const MINOR_EXTENSIONS: u32 = 38;
/// The bit in `unique` of a request that is sent for a second time.
pub(crate) const UNIQUE_RESENT: u64 = 1 << 63;
/// What variable parts of messages are padded to, in bytes.
pub(crate) const ALIGNMENT: usize = 8;
/// Extensions of lower types are security contexts, as many as the type says.
pub(crate) const EXTENSION_CONTEXTS_MAX: u32 = 31;
/// The extension of supplementary groups.
pub(crate) const EXTENSION_GROUPS: u32 = 32;

/// `len` with padding.
pub(crate) const fn padded(len: usize) -> usize {
    len.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT)
}
