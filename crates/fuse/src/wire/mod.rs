//! The words of the protocol, version 7.45 (Linux 6.18): requests of the kernel from bytes, replies
//! and notices to bytes.
//!
//! Invariants:
//! - there is no I/O and no state: a function depends on its arguments alone;
//! - bytes from the kernel's side are not trusted: what is not a request gives [`Malformed`];
//! - encoding allocates nothing: small bodies are arrays on the stack, data are borrowed;
//! - numbers are in the byte order of the machine, as the kernel has them.
//!
//! The source of facts is the header `fuse.h` of the kernel's user interface, and `fs/fuse` for
//! what is sent when. Kernels from 7.31 on are spoken with.

mod abi;
mod cursor;
mod device_number;
mod extensions;
mod init;
mod list;
mod listing;
mod lock;
mod malformed;
mod notice;
mod operation;
mod parse;
mod reply;
mod request;
mod set_attributes;
mod time;

pub use abi::{
    AttributeFlags, INIT_REPLY_SIZE, InitFlags, IoctlFlags, MAJOR, MINOR, MINOR_MIN, Opcode,
    OpenedFlags, REPLY_HEADER_SIZE, REQUEST_HEADER_SIZE, ROOT,
};
pub use device_number::DeviceNumber;
pub use extensions::{Extensions, SecurityContext};
pub use init::{Agreed, InitReply, Offer, Settings, UnsupportedVersion};
pub use list::{Forget, Forgets, List, Mapping, Mappings};
pub use listing::Listing;
pub use lock::{FileLock, LockKind, LockType};
pub use malformed::{Fault, Malformed};
pub use notice::{EncodedNotice, Notice};
pub use operation::{CopyRange, Create, Ioctl, Lock, Operation, Read, Statx, Write};
pub use reply::{
    Attributes, AttributesReply, Block, Body, Created, Entry, IoctlReply, Opened, Polled, Position,
    RangeCopied, StatFs, StatxReply, Written, XattrSize, header,
};
pub use request::Request;
pub use set_attributes::{SetAttributes, SetTime};
pub use time::Time;
