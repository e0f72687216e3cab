//! Generations and paths of the files that findings are about.

use conquest_format::fs::bucket::GRANULE;
use conquest_format::fs::dentry::name_len_of;
use conquest_format::inode::{offset_of, word};
use conquest_format::{Offset, WORD};

use crate::View;
use crate::check::Check;

/// Most bytes of a path that is told.
pub const PATH_MAX: usize = 65536;

/// Fills in what is not known before all directories have been looked at.
pub(crate) fn fill<V: View + ?Sized>(check: &mut Check<'_, V>) {
    let mut kept = core::mem::take(&mut check.findings.kept);
    for file in kept.iter_mut().filter_map(|finding| finding.file.as_mut()) {
        let at = offset_of(file.number).unwrap_or(Offset::NONE);
        file.generation = check.bytes.load(at.plus(word::GENERATION));
        file.path = path(check, file.number);
    }
    check.findings.kept = kept;
}

/// A path of inode `number`; none if it has no way up to the root directory, or a longer one than
/// [`PATH_MAX`], which also ends loops.
fn path<V: View + ?Sized>(check: &Check<'_, V>, number: u64) -> Option<Vec<u8>> {
    let mut rank = check.rank_at(offset_of(number)?).ok()?;
    let mut names = Vec::new();
    let mut len = 0;
    loop {
        let state = check.inodes.get(rank)?;
        if check.is_root(state.number) {
            break;
        }
        let name = name(check, state.dentry)?;
        len += 1 + name.len();
        if len > PATH_MAX {
            return None;
        }
        names.push(name);
        rank = state.named_by;
    }
    if names.is_empty() {
        return Some(b"/".to_vec());
    }
    Some(names.iter().rev().flat_map(|name| [b"/", name.as_slice()].concat()).collect())
}

/// The name in the dentry at `at`.
fn name<V: View + ?Sized>(check: &Check<'_, V>, at: Offset) -> Option<Vec<u8>> {
    if at.is_none() {
        return None;
    }
    let mut name = vec![0; name_len_of(check.bytes.load(at.plus(WORD))) as usize];
    check.bytes.copy(at.plus(GRANULE), &mut name);
    Some(name)
}
