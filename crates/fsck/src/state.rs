//! The state page: number of groups, mask of slab groups, roots.

use conquest_format::fs::root;
use conquest_format::geometry::{ROOTS, STATE_GROUPS, STATE_ROOTS, STATE_SLAB_GROUPS};
use conquest_format::inode::SIZE_MAX;
use conquest_format::{GROUP, Geometry, Offset, WORD, fs};

use crate::overlay::Overlay;
use crate::report::{Findings, Hex};
use crate::{Code, Error, View};

/// The roots of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots {
    /// Pointer word to the root directory's inode.
    pub(crate) directory: u64,
    /// Key by which names are hashed.
    pub(crate) key: [u64; 2],
    /// Most bytes in a regular file.
    pub(crate) file_max: u64,
}

/// Where root `index` stands.
pub(crate) fn root_word(index: u64) -> Offset {
    STATE_ROOTS.plus(index * WORD)
}

/// The number of groups that have space.
///
/// # Errors
/// [`Error::Truncated`] if the region is shorter than they are.
pub(crate) fn groups<V: View + ?Sized>(
    bytes: &Overlay<'_, V>,
    geometry: &Geometry,
    findings: &mut Findings,
) -> Result<u64, Error> {
    let most = geometry.shape().max_groups;
    let found = bytes.load(STATE_GROUPS);
    let there = bytes.len().saturating_sub(geometry.len_at(0)) / GROUP;
    let groups = if (1..=most).contains(&found) {
        found
    } else {
        let expected = format_args!("1 to {most}");
        findings.add(Code::StateGroups, 0, STATE_GROUPS, expected, found);
        there.clamp(1, most)
    };
    let (expected, found) = (geometry.len_at(groups), bytes.len());
    if found < expected {
        return Err(Error::Truncated { offset: STATE_GROUPS, groups, expected, found });
    }
    if found > expected {
        let at = Offset::new(expected);
        findings.add(Code::RegionLength, 0, at, Hex(expected), Hex(found));
    }
    Ok(groups)
}

/// The roots; none if there is no file system.
///
/// # Errors
/// [`Error::FileSystemVersion`] if it is of another version.
pub(crate) fn roots<V: View + ?Sized>(
    bytes: &Overlay<'_, V>,
    findings: &mut Findings,
) -> Result<Option<Roots>, Error> {
    let word = |index: u64| bytes.load(root_word(index));
    let mut found = Roots {
        directory: word(root::DIRECTORY),
        key: [word(root::KEY), word(root::KEY + 1)],
        file_max: word(root::FILE_MAX),
    };
    let version = word(root::VERSION);
    for index in root::NEXT_MARK + 1..ROOTS {
        if word(index) != 0 {
            findings.add(Code::RootUnused, 0, root_word(index), 0, Hex(word(index)));
        }
    }
    let at = root_word(root::VERSION);
    match version {
        fs::VERSION => {}
        0 if (root::DIRECTORY..=root::NEXT_MARK).all(|index| word(index) == 0) => {
            findings.add(Code::NoFileSystem, 0, at, fs::VERSION, 0);
            return Ok(None);
        }
        0 => findings.add(Code::RootVersion, 0, at, fs::VERSION, 0),
        found => {
            return Err(Error::FileSystemVersion { offset: at, expected: fs::VERSION, found });
        }
    }
    if found.file_max > SIZE_MAX {
        let at = root_word(root::FILE_MAX);
        let expected = format_args!("at most {SIZE_MAX:#x}");
        findings.add(Code::RootFileMax, 0, at, expected, Hex(found.file_max));
        found.file_max = SIZE_MAX;
    }
    if word(root::RESERVE) > fs::RESERVE_MAX {
        let expected = format_args!("at most {}", fs::RESERVE_MAX);
        findings.add(Code::RootReserve, 0, root_word(root::RESERVE), expected, word(root::RESERVE));
    }
    Ok(Some(found))
}

/// Checks the mask of slab groups; `last` is the highest group that has a slab.
pub(crate) fn check_slab_groups<V: View + ?Sized>(
    bytes: &Overlay<'_, V>,
    last: Option<u64>,
    findings: &mut Findings,
) {
    let found = bytes.load(STATE_SLAB_GROUPS);
    // Every bit up to the highest one of the number.
    let bits = last.map_or(0, |group| u64::BITS - group.leading_zeros());
    let needed = 1_u64.checked_shl(bits).map_or(u64::MAX, |next| next - 1);
    if found & needed != needed {
        let expected = format_args!("the bits {needed:#x}");
        findings.add(Code::SlabGroups, 0, STATE_SLAB_GROUPS, expected, Hex(found));
    }
}
