//! INIT: what kernel and file system agree on.

use core::cmp::min;

use thiserror::Error;

use super::abi::{InitFlags, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN};
use super::cursor::Cursor;
use super::malformed::Fault;
use super::reply::body;

/// What the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The kernel's major version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
    /// Bytes that it reads ahead at most.
    pub max_readahead: u32,
    /// What it can do.
    pub flags: InitFlags,
}

/// What the file system wants. What the kernel does not offer is not asked for, and sizes are cut
/// to what their fields hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What is wanted of what is offered.
    pub flags: InitFlags,
    /// Bytes to read ahead at most; the kernel does not go above its own.
    pub max_readahead: u32,
    /// Requests in the background at most, such as reads ahead; 0 leaves it to the kernel.
    pub max_background: u16,
    /// At how many of those the kernel sends less; 0 leaves it to the kernel.
    pub congestion_threshold: u16,
    /// Bytes in a WRITE at most; the kernel takes at least a page.
    pub max_write: u32,
    /// Pages in a request at most; 0 leaves it to the kernel. With `MAX_PAGES`.
    pub max_pages: u16,
    /// To how many nanoseconds times are kept: 1 to 1,000,000,000.
    pub time_granularity: u32,
    /// How many file systems may be stacked below backing files: 1 or 2. With `PASSTHROUGH`.
    pub max_stack_depth: u32,
    /// Seconds after which the kernel gives up the whole connection because of a request; 0 for
    /// never. With `REQUEST_TIMEOUT`.
    pub request_timeout: u16,
    /// To how many bits offsets of mappings have to be aligned. With `MAP_ALIGNMENT`.
    pub map_alignment: u16,
}

/// By what requests are read after INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The minor version, that of the older side.
    pub minor: u32,
    /// What both want.
    pub flags: InitFlags,
}

impl Default for Agreed {
    /// Before INIT.
    fn default() -> Agreed {
        Agreed { minor: MINOR, flags: InitFlags::NONE }
    }
}

/// The kernel is too old.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the kernel speaks version {major}.{minor} of FUSE, and at least {MAJOR}.{MINOR_MIN} is \
     needed: use Linux 5.4 or newer"
)]
pub struct UnsupportedVersion {
    /// The kernel's major version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
}

impl Offer {
    /// Takes all there is: newer kernels may tell more.
    pub(crate) fn parse(from: &mut Cursor<'_>) -> Result<Offer, Fault> {
        let fields: InitIn = from.take()?;
        let mut flags = u64::from(fields.flags);
        let rest = from.bytes(from.len())?;
        if InitFlags::from_bits(flags).contains(InitFlags::INIT_EXT) {
            flags |= u64::from(Cursor::new(rest).take::<u32>()?) << 32;
        }
        let InitIn { major, minor, max_readahead, .. } = fields;
        Ok(Offer { major, minor, max_readahead, flags: InitFlags::from_bits(flags) })
    }

    /// Whether the kernel's major version is newer: it is to be told ours
    /// ([`InitReply::major_only`]), and sends another INIT.
    #[must_use]
    pub const fn is_newer_major(&self) -> bool {
        self.major > MAJOR
    }

    /// The answer, and what is agreed on by it.
    ///
    /// # Errors
    ///
    /// The kernel is too old; `EPROTO` is the answer that it understands.
    pub fn accept(&self, wanted: &Settings) -> Result<(InitReply, Agreed), UnsupportedVersion> {
        let Offer { major, minor, .. } = *self;
        if major != MAJOR || minor < MINOR_MIN {
            return Err(UnsupportedVersion { major, minor });
        }
        // The kernel would take no pages for one.
        let unlimited = InitFlags::MAX_PAGES.when(wanted.max_pages == 0);
        let flags = self.flags.and(wanted.flags).without(InitFlags::INIT_EXT.with(unlimited));
        // The high half is read only with this flag, which older kernels don't have.
        let has_high = flags.bits() >> 32 != 0;
        let flags = flags.with(InitFlags::INIT_EXT.when(has_high));
        let has = |flag| flags.contains(flag);
        let minor = min(minor, MINOR);
        let fields = InitOut {
            major: MAJOR,
            minor,
            max_readahead: min(self.max_readahead, wanted.max_readahead),
            flags: flags.bits() as u32,
            max_background: wanted.max_background,
            congestion_threshold: wanted.congestion_threshold,
            max_write: wanted.max_write,
            time_granularity: wanted.time_granularity,
            max_pages: if has(InitFlags::MAX_PAGES) { wanted.max_pages } else { 0 },
            map_alignment: if has(InitFlags::MAP_ALIGNMENT) { wanted.map_alignment } else { 0 },
            flags2: (flags.bits() >> 32) as u32,
            max_stack_depth: if has(InitFlags::PASSTHROUGH) { wanted.max_stack_depth } else { 0 },
            request_timeout: if has(InitFlags::REQUEST_TIMEOUT) {
                wanted.request_timeout
            } else {
                0
            },
            _unused: [0; 11],
        };
        Ok((InitReply { fields }, Agreed { minor, flags }))
    }
}

/// The answer to INIT.
#[derive(Clone, Copy, Debug)]
pub struct InitReply {
    fields: InitOut,
}

impl InitReply {
    /// What tells a newer kernel our major version.
    #[must_use]
    pub fn major_only() -> InitReply {
        let mut fields: InitOut = zerocopy::FromZeros::new_zeroed();
        (fields.major, fields.minor) = (MAJOR, MINOR);
        InitReply { fields }
    }
}

body!(InitReply as InitOut: |it| it.fields);
