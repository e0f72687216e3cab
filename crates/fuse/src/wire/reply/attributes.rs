//! Inodes in replies.

use core::time::Duration;

use zerocopy::FromZeros;

use crate::wire::abi::{Attr, AttrOut, AttributeFlags, CreateOut, EntryOut, OpenOut, OpenedFlags};
use crate::wire::device_number::DeviceNumber;
use crate::wire::time::{Time, lifetime};

/// An inode's attributes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attributes {
    /// `st_ino`.
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated.
    pub blocks: u64,
    /// The time of the last read.
    pub atime: Time,
    /// The time of the last write.
    pub mtime: Time,
    /// The time of the last change.
    pub ctime: Time,
    /// `st_mode`, the type included.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u32,
    /// The owning user.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// The device that a special file stands for.
    pub device: DeviceNumber,
    /// Bytes that are best read or written at once.
    pub block_size: u32,
    /// What is special about it.
    pub flags: AttributeFlags,
}

impl Attributes {
    fn to_wire(self) -> Attr {
        Attr {
            number: self.number,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds,
            mtime: self.mtime.seconds,
            ctime: self.ctime.seconds,
            atime_nanoseconds: self.atime.nanoseconds,
            mtime_nanoseconds: self.mtime.nanoseconds,
            ctime_nanoseconds: self.ctime.nanoseconds,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.device.word(),
            block_size: self.block_size,
            flags: self.flags.bits(),
        }
    }
}

/// Attributes, and how long they may be believed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AttributesReply {
    /// The attributes.
    pub attributes: Attributes,
    /// How long the kernel need not ask again.
    pub lifetime: Duration,
}

body!(AttributesReply as AttrOut: |it| {
    let (attr_seconds, attr_nanoseconds) = lifetime(it.lifetime);
    let attr = it.attributes.to_wire();
    AttrOut { attr_seconds, attr_nanoseconds, _padding: 0, attr }
});

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entry {
    /// The node; 0 says that there is no such name, for as long as the name's lifetime.
    pub node: u64,
    /// Tells an inode from an earlier one of the same node.
    pub generation: u64,
    /// How long the kernel need not ask for the name again.
    pub name_lifetime: Duration,
    /// How long the kernel need not ask for the attributes again.
    pub attributes_lifetime: Duration,
    /// The attributes.
    pub attributes: Attributes,
}

impl Entry {
    /// That there is no such name, which the kernel may believe for `lifetime`.
    #[must_use]
    pub fn none(lifetime: Duration) -> Entry {
        Entry { name_lifetime: lifetime, ..Entry::default() }
    }

    pub(crate) fn to_wire(self) -> EntryOut {
        if self.node == 0 {
            // The kernel looks at nothing else.
            let mut entry = EntryOut::new_zeroed();
            (entry.entry_seconds, entry.entry_nanoseconds) = lifetime(self.name_lifetime);
            return entry;
        }
        let (entry_seconds, entry_nanoseconds) = lifetime(self.name_lifetime);
        let (attr_seconds, attr_nanoseconds) = lifetime(self.attributes_lifetime);
        EntryOut {
            node: self.node,
            generation: self.generation,
            entry_seconds,
            attr_seconds,
            entry_nanoseconds,
            attr_nanoseconds,
            attr: self.attributes.to_wire(),
        }
    }
}

body!(Entry as EntryOut: |it| it.to_wire());

/// An open file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opened {
    /// What later requests name it by.
    pub handle: u64,
    /// How the kernel is to treat it.
    pub flags: OpenedFlags,
    /// The backing file that reads and writes go to, with `PASSTHROUGH`; otherwise 0.
    pub backing: i32,
}

impl Opened {
    const fn to_wire(self) -> OpenOut {
        OpenOut { handle: self.handle, open_flags: self.flags.bits(), backing: self.backing }
    }
}

body!(Opened as OpenOut: |it| it.to_wire());

/// A file that was made, or was there, and is open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Created {
    /// What the name stands for.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

body!(Created as CreateOut: |it| {
    CreateOut { entry: it.entry.to_wire(), open: it.opened.to_wire() }
});
