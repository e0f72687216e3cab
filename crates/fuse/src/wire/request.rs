//! A request of the kernel.

use super::abi::{
    ALIGNMENT, InHeader, InitFlags, MINOR_EXTENSIONS, Opcode, REQUEST_HEADER_SIZE, UNIQUE_RESENT,
};
use super::cursor::Cursor;
use super::extensions::Extensions;
use super::init::Agreed;
use super::malformed::{Fault, Malformed};
use super::operation::Operation;
use super::parse;

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Request<'a> {
    /// Its number, which its reply has to have.
    pub unique: u64,
    /// Whether it was read before, perhaps by somebody who is gone.
    pub resent: bool,
    /// The node it is about.
    pub node: u64,
    /// The caller's user for file systems; `u32::MAX` if it has none in the mount's namespace.
    pub uid: u32,
    /// The caller's group for file systems; likewise.
    pub gid: u32,
    /// The caller's thread; 0 if it has no number in the mount's namespace.
    pub pid: u32,
    /// What is asked for.
    pub operation: Operation<'a>,
    /// What comes with it.
    pub extensions: Extensions<'a>,
}

impl<'a> Request<'a> {
    /// The request in `bytes`, which are what was read at once, by what was agreed on in INIT.
    ///
    /// # Errors
    ///
    /// The bytes are not one whole request.
    pub fn parse(bytes: &'a [u8], agreed: &Agreed) -> Result<Request<'a>, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let header: InHeader =
            cursor.take().map_err(|fault| Malformed { unique: None, opcode: None, fault })?;
        let (operation, extensions) =
            body(&header, bytes.len(), cursor, agreed).map_err(|fault| Malformed {
                unique: Some(header.unique),
                opcode: Some(header.opcode),
                fault,
            })?;
        Ok(Request {
            unique: header.unique,
            resent: agreed.flags.contains(InitFlags::HAS_RESEND)
                && header.unique & UNIQUE_RESENT != 0,
            node: header.node,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            operation,
            extensions,
        })
    }
}

/// What follows the header of a request of `len` bytes.
fn body<'a>(
    header: &InHeader,
    len: usize,
    mut cursor: Cursor<'a>,
    agreed: &Agreed,
) -> Result<(Operation<'a>, Extensions<'a>), Fault> {
    if usize::try_from(header.len).ok() != Some(len) {
        return Err(Fault::Length { said: header.len, found: len });
    }
    let opcode = Opcode::from_number(header.opcode);
    // INIT is before any agreement, and a newer kernel's may be longer.
    let is_counted = agreed.minor >= MINOR_EXTENSIONS && opcode != Some(Opcode::Init);
    let room = len - REQUEST_HEADER_SIZE;
    let counted = if is_counted { usize::from(header.extensions_len) * ALIGNMENT } else { 0 };
    let Some(fields) = room.checked_sub(counted) else {
        return Err(Fault::Short { wanted: counted, found: room });
    };
    let mut fields = Cursor::new(cursor.bytes(fields)?);
    let operation = match opcode {
        Some(opcode) => parse::operation(opcode, &mut fields, agreed)?,
        None => {
            let body = fields.bytes(fields.len())?;
            Operation::Unknown { opcode: header.opcode, body }
        }
    };
    if !is_counted && agreed.flags.contains(InitFlags::SECURITY_CTX) && creates(&operation) {
        // Before extensions were counted, there was only this one.
        return Ok((operation, Extensions::parse(fields.rest())?));
    }
    fields.end()?;
    Ok((operation, Extensions::parse(cursor.rest())?))
}

/// Whether it makes an inode.
const fn creates(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Create(_)
            | Operation::Tmpfile { .. }
    )
}
