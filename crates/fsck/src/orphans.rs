//! Orphans: files without names that processes had open.

use conquest_format::fs::INODE;
use conquest_format::geometry::STATE_CHUNKS;
use conquest_format::volatile::holding::PER_CHUNK;
use conquest_format::{Geometry, pointer};

use crate::check::Check;
use crate::overlay::Overlay;
use crate::report::{Findings, Hex};
use crate::{Code, View};

/// The number of chunks of holdings that have space; none, if it is impossible.
pub(crate) fn chunks<V: View + ?Sized>(
    bytes: &Overlay<'_, V>,
    geometry: &Geometry,
    findings: &mut Findings,
) -> u32 {
    let most = geometry.shape().chunks;
    let found = bytes.load(STATE_CHUNKS);
    u32::try_from(found).ok().filter(|chunks| *chunks <= most).unwrap_or_else(|| {
        findings.add(Code::StateChunks, 0, STATE_CHUNKS, format_args!("at most {most}"), found);
        0
    })
}

/// Notes which inodes are kept although they may have no name.
pub(crate) fn check<V: View + ?Sized>(check: &mut Check<'_, V>) {
    let words = check.chunks * PER_CHUNK as u32;
    for number in 0..words {
        let at = check.geometry.orphan(number);
        let word = check.bytes.load(at);
        if word == 0 {
            continue;
        }
        let target = pointer::unpack(word, INODE);
        let rank = target.and_then(|target| check.rank_at(target).ok());
        match rank.and_then(|rank| check.inodes.get_mut(rank)) {
            Some(state) => {
                state.is_kept = true;
                check.counts.orphans += 1;
            }
            None => check.find(Code::Orphan, 0, at, "0, or a pointer to an inode", Hex(word)),
        }
    }
}
