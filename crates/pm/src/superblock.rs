//! Reading and writing the two superblock copies.

use std::path::Path;

use conquest_format::geometry::SUPERBLOCKS;
use conquest_format::superblock::{Defect, FEATURES_KNOWN, FORMAT_VERSION, RawSuperblock, SIZE};
use conquest_format::superblock::{LIVE_PROTOCOL, Superblock};

use crate::memory::Memory;
use crate::{Error, Result};

/// The superblock that counts of two copies: the valid one with the higher sequence.
///
/// | A | B | decision |
/// | --- | --- | --- |
/// | valid | valid | the higher sequence |
/// | valid | defect | A; B is overwritten by the next update |
/// | defect | valid | B; A is overwritten by the next update |
/// | defect | defect | an error, by A's defect, unless only B looks like a region |
///
/// # Errors
/// Which of the errors says what the file is, or what is wrong with it.
pub fn choose(path: &Path, copies: &[[u8; SIZE]; 2]) -> Result<Superblock> {
    let [a, b] = copies.each_ref().map(RawSuperblock::from_bytes);
    match (a.check(), b.check()) {
        (Ok(a), Ok(b)) => Ok(core::cmp::max_by_key(a, b, |copy| copy.sequence)),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(Defect::Magic), Err(defect)) if defect != Defect::Magic => {
            Err(explain(path, defect, 1, &copies[1]))
        }
        (Err(defect), Err(_)) => Err(explain(path, defect, 0, &copies[0])),
    }
}

fn explain(path: &Path, defect: Defect, copy: usize, bytes: &[u8; SIZE]) -> Error {
    let path = path.to_owned();
    let [first, second] = SUPERBLOCKS;
    let offset = if copy == 0 { first } else { second };
    match defect {
        Defect::Magic => {
            let found = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            Error::NotARegion { path, offset, found }
        }
        Defect::Endianness => Error::Endianness { path, offset: offset.plus(8) },
        Defect::Version(found) => {
            Error::Version { path, offset: offset.plus(8), expected: FORMAT_VERSION, found }
        }
        Defect::Features(found) => {
            Error::Features { path, offset: offset.plus(32), expected: FEATURES_KNOWN, found }
        }
        Defect::Checksum(expected, found) => {
            Error::Superblocks { path, first, second, expected, found }
        }
        Defect::Field(at, found) => Error::Corrupt {
            what: "superblock field",
            offset: offset.plus(at),
            expected: "a possible value",
            found,
        },
    }
}

/// Both copies as they stand in `memory`.
pub(crate) fn read(memory: &impl Memory) -> [[u8; SIZE]; 2] {
    SUPERBLOCKS.map(|at| {
        let mut bytes = [0; SIZE];
        memory.read(at, &mut bytes);
        bytes
    })
}

/// Overwrites the copy that does not count with `next`, and makes it durable. `next.sequence` is
/// one more than the present one, and its lowest bit says which copy that is.
pub(crate) fn write(memory: &impl Memory, next: &Superblock) {
    let [a, b] = SUPERBLOCKS;
    let (at, other) = if next.sequence.is_multiple_of(2) { (a, b) } else { (b, a) };
    // The other copy may be the work of a process that died before its fence.
    memory.write_back(other, SIZE as u64);
    memory.fence();
    memory.put_bytes(at, &next.to_raw().to_bytes());
    memory.write_back(at, SIZE as u64);
    memory.fence();
}

/// The sequence of the superblock after `superblock`.
pub(crate) fn next_sequence(superblock: &Superblock) -> Result<u64> {
    superblock.sequence.checked_add(1).ok_or(Error::Corrupt {
        what: "superblock",
        offset: SUPERBLOCKS[0],
        expected: "a sequence that can be stepped",
        found: superblock.sequence,
    })
}

/// The superblock with the next attach generation, for whoever attaches first.
pub(crate) fn next_generation(superblock: &Superblock, boot_id: [u8; 16]) -> Result<Superblock> {
    Ok(Superblock {
        sequence: next_sequence(superblock)?,
        attach_generation: superblock.next_generation(),
        boot_id,
        clean: false,
        live_protocol: LIVE_PROTOCOL,
        ..superblock.clone()
    })
}
