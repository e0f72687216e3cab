//! What stands behind the fields of a request, if it was agreed on.

use super::abi::{
    EXTENSION_CONTEXTS_MAX, EXTENSION_GROUPS, ExtensionHeader, SecurityContextIn, padded,
};
use super::cursor::Cursor;
use super::list::List;
use super::malformed::Fault;

/// An extended attribute that a security module wants a new inode to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecurityContext<'a> {
    /// The attribute's name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The extensions of a request; those that are not there are empty.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extensions<'a> {
    contexts_count: u32,
    /// The contexts' bytes; they were parsed once.
    contexts: &'a [u8],
    groups: List<'a, u32>,
}

impl<'a> Extensions<'a> {
    /// Extensions of types that nobody knows are passed over.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Extensions<'a>, Fault> {
        let mut all = Cursor::new(bytes);
        let mut extensions = Extensions::default();
        while !all.is_empty() {
            let header: ExtensionHeader = all.take()?;
            let size = usize::try_from(header.size).unwrap_or(usize::MAX);
            let Some(len) = padded(size).checked_sub(size_of::<ExtensionHeader>()) else {
                let what = "size of an extension";
                return Err(Fault::Value { what, value: header.size.into() });
            };
            let body = all.bytes(len)?;
            match header.extension_type {
                count @ 0..=EXTENSION_CONTEXTS_MAX => {
                    let mut contexts = Cursor::new(body);
                    for _ in 0..count {
                        context(&mut contexts)?;
                    }
                    contexts.end()?;
                    (extensions.contexts_count, extensions.contexts) = (count, body);
                }
                EXTENSION_GROUPS => {
                    let mut groups = Cursor::new(body);
                    let count = groups.take()?;
                    extensions.groups = List::take(&mut groups, "groups", count)?;
                }
                _ => {}
            }
        }
        Ok(extensions)
    }

    /// What security modules want a new inode to have.
    pub fn security_contexts(&self) -> impl Iterator<Item = SecurityContext<'a>> {
        let mut contexts = Cursor::new(self.contexts);
        (0..self.contexts_count).map_while(move |_| context(&mut contexts).ok())
    }

    /// Groups that the caller is in besides its own: of those, the one that the parent of a new
    /// inode has.
    pub fn groups(&self) -> impl Iterator<Item = u32> + 'a {
        self.groups.iter()
    }
}

/// The next context with its padding.
fn context<'a>(contexts: &mut Cursor<'a>) -> Result<SecurityContext<'a>, Fault> {
    let before = contexts.len();
    let header: SecurityContextIn = contexts.take()?;
    let name = contexts.name("name of a security context")?;
    let value = contexts.data(header.size)?;
    let taken = before - contexts.len();
    contexts.bytes(padded(taken) - taken)?;
    Ok(SecurityContext { name, value })
}
