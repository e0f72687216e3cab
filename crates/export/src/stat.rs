//! What there is to see: a directory with one file, and what the kernel is told of them.

use std::time::{Duration, SystemTime};

use conquest_fuse::wire::{Attributes, AttributesReply, Entry, Time};

/// The name of the file.
pub const NAME: &str = "space";

/// The node of the directory: the protocol says so.
pub(crate) const DIRECTORY: u64 = 1;
/// The node of the file.
pub(crate) const FILE: u64 = 2;
/// Bytes that are best read or written at once.
const BEST: u32 = 1 << 20;
/// Bytes of which files count their space.
const COUNTED: u64 = 512;
/// How long a name is believed: it stays what it is.
const NAME_LIFETIME: Duration = Duration::from_secs(3600);
/// How long attributes are: what is allocated may change at any time, by others too.
const LIFETIME: Duration = Duration::ZERO;

/// What never changes while it is exported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permissions to write are left out.
    pub(crate) is_read_only: bool,
}

/// The time that is so many nanoseconds after 1970.
pub(crate) fn time(nanoseconds: u64) -> Time {
    let since = Duration::from_nanos(nanoseconds);
    Time { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}

impl Owner {
    /// The directory, which was made at `time`.
    pub(crate) fn directory(self, time: Time) -> Attributes {
        Attributes { number: DIRECTORY, mode: libc::S_IFDIR | 0o500, nlink: 2, ..self.common(time) }
    }

    /// The file, of `size` bytes, of which `used` have space; changed at `time`.
    pub(crate) fn file(self, size: u64, used: u64, time: Time) -> Attributes {
        let mode = if self.is_read_only { 0o400 } else { 0o600 };
        Attributes {
            number: FILE,
            size,
            blocks: used / COUNTED,
            mode: libc::S_IFREG | mode,
            nlink: 1,
            ..self.common(time)
        }
    }

    fn common(self, time: Time) -> Attributes {
        let Owner { uid, gid, .. } = self;
        Attributes {
            atime: time,
            mtime: time,
            ctime: time,
            uid,
            gid,
            block_size: BEST,
            ..Attributes::default()
        }
    }
}

/// Attributes as a reply.
pub(crate) fn reply(attributes: Attributes) -> AttributesReply {
    AttributesReply { attributes, lifetime: LIFETIME }
}

/// What the name of the file stands for.
pub(crate) fn entry(attributes: Attributes) -> Entry {
    Entry {
        node: FILE,
        generation: 0,
        name_lifetime: NAME_LIFETIME,
        attributes_lifetime: LIFETIME,
        attributes,
    }
}
