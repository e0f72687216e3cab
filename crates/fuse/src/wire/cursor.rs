//! Takes fields from bytes, one after the other.

use zerocopy::FromBytes;

use super::malformed::Fault;

/// What is still to be taken of a request.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    /// A structure, wherever it is aligned.
    pub(crate) fn take<T: FromBytes>(&mut self) -> Result<T, Fault> {
        let short = Fault::Short { wanted: size_of::<T>(), found: self.rest.len() };
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| short)?;
        self.rest = rest;
        Ok(value)
    }

    /// `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let short = Fault::Short { wanted: len, found: self.rest.len() };
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// `len` bytes, a length as requests tell it.
    pub(crate) fn data(&mut self, len: u32) -> Result<&'a [u8], Fault> {
        self.bytes(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// The bytes of `count` items of `size` bytes each.
    pub(crate) fn items(
        &mut self,
        what: &'static str,
        count: u32,
        size: usize,
    ) -> Result<&'a [u8], Fault> {
        let room = self.rest.len() / size.max(1);
        let fits = usize::try_from(count).ok().filter(|&count| count <= room);
        match fits {
            Some(count) => self.bytes(count.saturating_mul(size)),
            None => Err(Fault::Count { what, count: count.into(), room: room as u64 }),
        }
    }

    /// A text up to its NUL, which is taken as well. It may be empty.
    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a [u8], Fault> {
        let at = self.rest.iter().position(|&byte| byte == 0).ok_or(Fault::Endless { what })?;
        let text = self.bytes(at)?;
        self.bytes(1)?;
        Ok(text)
    }

    /// A text that is not empty.
    pub(crate) fn name(&mut self, what: &'static str) -> Result<&'a [u8], Fault> {
        let name = self.text(what)?;
        if name.is_empty() { Err(Fault::Empty { what }) } else { Ok(name) }
    }

    /// Bytes that are left.
    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// That nothing is left.
    pub(crate) fn end(self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(Fault::Trailing { bytes }),
        }
    }
}
