//! Items in a request, one after the other.

use core::marker::PhantomData;

use zerocopy::FromBytes;

use super::cursor::Cursor;
use super::malformed::Fault;

/// A node of which the kernel gives up some of its lookups. At none it does not know it any more.
#[derive(FromBytes, Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Forget {
    /// The node.
    pub node: u64,
    /// How many replies with this node are given up.
    pub lookups: u64,
}

/// A part of the memory window that is shared with a guest.
#[derive(FromBytes, Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Mapping {
    /// Where it begins in the window.
    pub memory_offset: u64,
    /// Its bytes.
    pub length: u64,
}

/// Items as the kernel sends them.
const _: () = assert!(size_of::<Forget>() == 16 && size_of::<Mapping>() == 16);

/// Items of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List<'a, T> {
    bytes: &'a [u8],
    items: PhantomData<T>,
}

/// Nodes to forget.
pub type Forgets<'a> = List<'a, Forget>;
/// Parts of the memory window.
pub type Mappings<'a> = List<'a, Mapping>;

impl<T> Default for List<'_, T> {
    /// No items.
    fn default() -> Self {
        List { bytes: &[], items: PhantomData }
    }
}

impl<'a, T: FromBytes> List<'a, T> {
    /// `count` items, `what` they are.
    pub(crate) fn take(
        from: &mut Cursor<'a>,
        what: &'static str,
        count: u32,
    ) -> Result<List<'a, T>, Fault> {
        Ok(List { bytes: from.items(what, count, size_of::<T>())?, items: PhantomData })
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / size_of::<T>()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        self.bytes.chunks_exact(size_of::<T>()).filter_map(|item| T::read_from_bytes(item).ok())
    }
}
