//! The two superblock copies: which one counts, and whether they agree.

use conquest_format::geometry::SUPERBLOCKS;
use conquest_format::kind::KindSpec;
use conquest_format::superblock::{Defect, FORMAT_VERSION, RawSuperblock, SIZE, Superblock};
use conquest_format::{Offset, PAGE, fs};

use crate::report::{Findings, Hex};
use crate::{Code, Error, View};

/// Offsets of fields in a copy.
const FEATURES: u64 = 16;
const SEQUENCE: u64 = 80;
const GENERATION: u64 = 88;
const KINDS: u64 = 252;

/// The superblock that counts, once both copies have been looked at.
///
/// # Errors
/// What the region is instead, or that neither copy can be used.
pub(crate) fn read<V: View + ?Sized>(
    view: &V,
    findings: &mut Findings,
) -> Result<Superblock, Error> {
    let [first, second] = SUPERBLOCKS;
    let least = second.plus(PAGE).bytes();
    let copies = SUPERBLOCKS.map(|at| {
        let mut bytes = [0; SIZE];
        view.copy(at, &mut bytes);
        RawSuperblock::from_bytes(&bytes).check()
    });
    let counts = match copies {
        [Ok(a), Ok(b)] => {
            compare(&a, &b, findings);
            core::cmp::max_by_key(a, b, |copy| copy.sequence)
        }
        [Ok(one), Err(defect)] => {
            torn(findings, second, defect);
            one
        }
        [Err(defect), Ok(one)] => {
            torn(findings, first, defect);
            one
        }
        [Err(a), Err(b)] => return Err(explain(view, a, b)),
    };
    if view.len() < least {
        let (expected, found) = (least, view.len());
        return Err(Error::Truncated { offset: first, groups: 0, expected, found });
    }
    check(&counts, findings);
    Ok(counts)
}

fn torn(findings: &mut Findings, at: Offset, defect: Defect) {
    findings.add(Code::SuperblockCopy, 0, at, "a valid copy", format_args!("{defect:?}"));
}

/// Why neither copy can be used: what tells most.
fn explain<V: View + ?Sized>(view: &V, first: Defect, second: Defect) -> Error {
    for (offset, defect) in SUPERBLOCKS.into_iter().zip([first, second]) {
        let expected = FORMAT_VERSION;
        match defect {
            Defect::Endianness => return Error::Endianness { offset },
            Defect::Version(found) => return Error::Version { offset, expected, found },
            Defect::Features(found) => return Error::Features { offset, found },
            _ => {}
        }
    }
    if (first, second) == (Defect::Magic, Defect::Magic) {
        let mut found = [0; 8];
        view.copy(Offset::NONE, &mut found);
        return Error::NotARegion { found };
    }
    Error::Superblocks { first, second }
}

/// Compares two valid copies.
fn compare(a: &Superblock, b: &Superblock, findings: &mut Findings) {
    let [first, second] = SUPERBLOCKS;
    let for_life = |copy: &Superblock| (copy.uuid, copy.created, copy.shape, copy.kinds);
    if for_life(a) != for_life(b) {
        let expected = "what the first copy says of identity, shape and kinds";
        findings.add(Code::SuperblockIdentity, 0, second, expected, "something else");
    }
    let is_placed = a.sequence.is_multiple_of(2) && !b.sequence.is_multiple_of(2);
    if !is_placed || a.sequence.abs_diff(b.sequence) != 1 {
        let expected = "an even number, and in the second copy the one before or after";
        let found = format_args!("{} and {}", a.sequence, b.sequence);
        findings.add(Code::SuperblockSequence, 0, first.plus(SEQUENCE), expected, found);
    }
}

/// Checks what the superblock that counts says.
fn check(superblock: &Superblock, findings: &mut Findings) {
    let at = SUPERBLOCKS[(superblock.sequence % 2) as usize];
    let generation = superblock.attach_generation;
    // Nobody has attached yet if it is 0 as a whole.
    if generation != 0 && superblock.tag() == 0 {
        let expected = "a number whose low 32 bits are not 0";
        let found = Hex(generation);
        findings.add(Code::AttachGeneration, 0, at.plus(GENERATION), expected, found);
    }
    let features = [superblock.features_compatible, superblock.features_read_only];
    for (index, bits) in (0..).zip(features) {
        // None of these two kinds is known yet.
        if bits != 0 {
            let at = at.plus(FEATURES + index * 8);
            findings.add(Code::FeaturesUnknown, 0, at, Hex(0), Hex(bits));
        }
    }
}

/// Whether the table of kinds has those of the file system.
pub(crate) fn check_kinds(superblock: &Superblock, findings: &mut Findings) {
    let at = SUPERBLOCKS[(superblock.sequence % 2) as usize];
    for (number, (wanted, found)) in (0..).zip(fs::kinds().iter().zip(&superblock.kinds)) {
        // Slabs may be of other lengths than those that `mkfs` chooses, and kinds may be added.
        let is_same = found != &KindSpec::UNUSED && wanted.object_size == found.object_size;
        if *wanted != KindSpec::UNUSED && !is_same {
            let at = at.plus(KINDS + number * 8);
            let expected = format_args!("kind {number} with objects of {}", wanted.object_size);
            let found = format_args!("{} bytes, {} pages", found.object_size, found.slab_pages);
            findings.add(Code::KindTable, 0, at, expected, found);
        }
    }
}
