//! The commands, one a file.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod cp;
pub(crate) mod debug;
pub(crate) mod demo;
pub(crate) mod destroy;
pub(crate) mod df;
pub(crate) mod doctor;
mod entry;
pub(crate) mod export;
pub(crate) mod fsck;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod keeper;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod manual;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
mod mode;
pub(crate) mod mount;
pub(crate) mod mv;
mod raw;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod save;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod umount;
pub(crate) mod volume;
pub(crate) mod wait;

use std::ffi::OsString;

use crate::place::{Inside, Place};
use crate::report::Report;
use crate::session::Session;

/// The files in stores that `operands` name, each with its store's place in `session`. What names
/// none, or a store that can't be attached, is reported.
fn places(session: &mut Session, report: &Report, operands: &[OsString]) -> Vec<(usize, Inside)> {
    let mut found = Vec::new();
    for operand in operands {
        let label = Place::parse(operand).label();
        if let Some(inside) = report.take(label, Place::inside(operand))
            && let Some(at) = report.take_plain(session.open(&inside.store))
        {
            found.push((at, inside));
        }
    }
    found
}
