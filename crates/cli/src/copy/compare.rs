//! Comparing two trees in everything that a copy keeps.

use std::collections::{BTreeSet, HashMap};

use super::dress::comparable;
use crate::reason::Result;
use crate::stop;
use crate::tree::{FileType, Meta, Trail, Tree};

/// Bytes compared at a time.
const CHUNK: usize = 1 << 18;

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Compared {
    /// Files of all types.
    pub(crate) files: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Differences.
    pub(crate) differences: u64,
}

struct Compare<'a, S: Tree, T: Tree> {
    one: &'a S,
    other: &'a T,
    /// Files with several names: which is which.
    links: HashMap<(u64, u64), (u64, u64)>,
    done: Compared,
    tell: &'a mut dyn FnMut(&Trail, &str),
}

/// Compares the trees of two nodes; each difference is told with where it is.
///
/// # Errors
/// What can't be read, and [`crate::reason::Reason::Stopped`].
pub(crate) fn compare<S: Tree, T: Tree>(
    one: (&S, S::Node),
    other: (&T, T::Node),
    tell: &mut dyn FnMut(&Trail, &str),
) -> Result<Compared> {
    let links = HashMap::new();
    let mut compare =
        Compare { one: one.0, other: other.0, links, done: Compared::default(), tell };
    let root = Trail::root();
    let mut left = Vec::new();
    if compare.file(&one.1, &other.1, &root)? {
        let names = compare.names(&one.1, &other.1, &root)?.into_iter();
        left.push((one.1, other.1, root, names));
    }
    // Open are only directories on the way to where the comparison is.
    while let Some((a, b, trail, names)) = left.last_mut() {
        stop::check()?;
        let Some(name) = names.next() else {
            left.pop();
            continue;
        };
        let (a, b) = (compare.one.child(a, &name)?, compare.other.child(b, &name)?);
        let trail = trail.join(&name);
        if compare.file(&a, &b, &trail)? {
            let names = compare.names(&a, &b, &trail)?.into_iter();
            left.push((a, b, trail, names));
        }
    }
    Ok(compare.done)
}

impl<S: Tree, T: Tree> Compare<'_, S, T> {
    fn differs(&mut self, trail: &Trail, what: &str) {
        self.done.differences += 1;
        (self.tell)(trail, what);
    }

    /// Compares two files without what is in them, if they are directories; whether both are.
    fn file(&mut self, a: &S::Node, b: &T::Node, trail: &Trail) -> Result<bool> {
        self.done.files += 1;
        let (one, other) = (self.one.meta(a)?, self.other.meta(b)?);
        if one.file_type != other.file_type {
            self.differs(trail, &format!("type: {:?}, {:?}", one.file_type, other.file_type));
            return Ok(false);
        }
        self.fields(&one, &other, trail);
        self.names_of(&one, &other, trail);
        let attributes = self.one.attributes(a)?;
        if comparable(self.other.attributes(b)?, &attributes) != attributes {
            self.differs(trail, "extended attributes or access lists");
        }
        let flags = (self.one.flags(a)?, self.other.flags(b)?);
        if flags.0 != flags.1 {
            self.differs(trail, &format!("flags: {:#x}, {:#x}", flags.0, flags.1));
        }
        match one.file_type {
            FileType::Symlink if self.one.target(a)? != self.other.target(b)? => {
                self.differs(trail, "target of a symbolic link");
            }
            FileType::Regular if one.size == other.size => self.bytes(a, b, one.size, trail)?,
            _ => {}
        }
        Ok(one.is_directory())
    }

    fn fields(&mut self, one: &Meta, other: &Meta, trail: &Trail) {
        let has_size = one.is_regular();
        let modes =
            if one.file_type == FileType::Symlink { (0, 0) } else { (one.mode, other.mode) };
        let size = |meta: &Meta| if has_size { meta.size as i64 } else { 0 };
        let numbers = [
            ("user", one.uid.into(), other.uid.into()),
            ("group", one.gid.into(), other.gid.into()),
            ("size", size(one), size(other)),
            ("time of modification", one.mtime, other.mtime),
            ("major device number", one.device.0.into(), other.device.0.into()),
            ("minor device number", one.device.1.into(), other.device.1.into()),
        ];
        if modes.0 != modes.1 {
            self.differs(trail, &format!("mode: {:04o}, {:04o}", modes.0, modes.1));
        }
        for (what, a, b) in numbers {
            if a != b {
                self.differs(trail, &format!("{what}: {a}, {b}"));
            }
        }
    }

    /// Whether the same names are one file's on both sides.
    fn names_of(&mut self, one: &Meta, other: &Meta, trail: &Trail) {
        if one.is_directory() || one.links < 2 && other.links < 2 {
            return;
        }
        let seen = *self.links.entry(one.id).or_insert(other.id);
        if seen != other.id || (one.links < 2) != (other.links < 2) {
            self.differs(trail, "names that are the same file's");
        }
    }

    fn bytes(&mut self, a: &S::Node, b: &T::Node, size: u64, trail: &Trail) -> Result<()> {
        self.one.open(a)?;
        self.other.open(b)?;
        let mut buffers = [vec![0; CHUNK.min(size as usize)], vec![0; CHUNK.min(size as usize)]];
        let mut at = 0;
        while at < size {
            stop::check()?;
            let [x, y] = &mut buffers;
            let x = read_full(self.one, a, at, x)?;
            let y = read_full(self.other, b, at, y)?;
            if x != y {
                let same = x.iter().zip(y).take_while(|(x, y)| x == y).count() as u64;
                self.differs(trail, &format!("bytes from {} on", at + same));
                return Ok(());
            }
            if x.is_empty() {
                return Ok(());
            }
            at += x.len() as u64;
            self.done.bytes += x.len() as u64;
        }
        Ok(())
    }

    /// The names that both directories have; those that only one has are told.
    fn names(&mut self, a: &S::Node, b: &T::Node, trail: &Trail) -> Result<Vec<Vec<u8>>> {
        let one: BTreeSet<Vec<u8>> = self.one.names(a)?.into_iter().collect();
        let other: BTreeSet<Vec<u8>> = self.other.names(b)?.into_iter().collect();
        for name in one.difference(&other) {
            self.differs(&trail.join(name), "only on the first side");
        }
        for name in other.difference(&one) {
            self.differs(&trail.join(name), "only on the second side");
        }
        Ok(one.intersection(&other).cloned().collect())
    }
}

/// Reads until `out` is full or the file ends: what was read.
fn read_full<'o, T: Tree>(
    tree: &T,
    node: &T::Node,
    at: u64,
    out: &'o mut [u8],
) -> Result<&'o [u8]> {
    let mut len = 0;
    while let Some(rest) = out.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match tree.read(node, at + len as u64, rest)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(out.get(..len).unwrap_or_default())
}
