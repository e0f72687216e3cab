//! Replies of a few numbers.

use crate::wire::abi::{
    BmapOut, CopyFileRangeOut, GetxattrOut, IoctlFlags, IoctlOut, LseekOut, PollOut, StatfsOut,
    WriteOut,
};

/// Sizes of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatFs {
    /// Fragments that the file system has.
    pub blocks: u64,
    /// Fragments that are free.
    pub blocks_free: u64,
    /// Fragments that are free for everybody.
    pub blocks_available: u64,
    /// Inodes that the file system can have.
    pub files: u64,
    /// Inodes that could be made.
    pub files_free: u64,
    /// Bytes that are best read or written at once.
    pub block_size: u32,
    /// Bytes of the longest name.
    pub name_max: u32,
    /// Bytes of a fragment, the unit of the numbers above.
    pub fragment_size: u32,
}

body!(StatFs as StatfsOut: |it| StatfsOut {
    blocks: it.blocks,
    blocks_free: it.blocks_free,
    blocks_available: it.blocks_available,
    files: it.files,
    files_free: it.files_free,
    block_size: it.block_size,
    name_max: it.name_max,
    fragment_size: it.fragment_size,
    _padding: 0,
    _spare: [0; 6],
});

/// How many bytes were written or copied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Written {
    /// Bytes.
    pub size: u32,
}

body!(Written as WriteOut: |it| WriteOut { size: it.size, _padding: 0 });

/// How many bytes were copied, however many.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RangeCopied {
    /// Bytes.
    pub bytes: u64,
}

body!(RangeCopied as CopyFileRangeOut: |it| CopyFileRangeOut { bytes: it.bytes });

/// How large an extended attribute, or the list of their names, is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct XattrSize {
    /// Bytes.
    pub size: u32,
}

body!(XattrSize as GetxattrOut: |it| GetxattrOut { size: it.size, _padding: 0 });

/// Where a block of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Block {
    /// The block of the device; 0 for a hole.
    pub block: u64,
}

body!(Block as BmapOut: |it| BmapOut { block: it.block });

/// What a control has given; bytes for the caller follow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IoctlReply {
    /// What the system call gives.
    pub result: i32,
    /// Whether it is to be called again, which the kernel allows only the unrestricted.
    pub flags: IoctlFlags,
    /// Then, how many parts of the caller's memory are to be read.
    pub in_count: u32,
    /// Then, how many are to be written.
    pub out_count: u32,
}

body!(IoctlReply as IoctlOut: |it| {
    let IoctlReply { result, flags, in_count, out_count } = *it;
    IoctlOut { result, flags: flags.bits(), in_count, out_count }
});

/// What an open file is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Polled {
    /// Bits as of `poll`.
    pub events: u32,
}

body!(Polled as PollOut: |it| PollOut { events: it.events, _padding: 0 });

/// Where a seek has led.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Position {
    /// The byte.
    pub offset: u64,
}

body!(Position as LseekOut: |it| LseekOut { offset: it.offset });
