//! Buffers for requests.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

const PAGE: usize = 4096;

/// A page, where pages begin: the kernel copies to it with the least effort.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// A buffer of whole pages.
pub(crate) struct Buffer(Vec<Page>);

impl Buffer {
    /// A buffer of at least `len` bytes; none if there is no memory.
    pub(crate) fn new(len: usize) -> Option<Buffer> {
        Page::new_vec_zeroed(len.div_ceil(PAGE)).ok().map(Buffer)
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_mut_bytes()
    }
}
