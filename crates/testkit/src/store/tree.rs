//! What a tree of files is: names, metadata, and every page of every file.
//!
//! Bytes that are written say which operation wrote them, and for which offset of a file, so that
//! those of another file, of an older version, or of another place are told from what belongs
//! there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use conquest_fs::FileSystem;
use conquest_fs::dir::FileType;
use conquest_fs::placement::Form;
use conquest_fs::xattr::whole;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::files::{LISTING, root_user};
use crate::rng::mix;

/// Bytes of a page.
pub const P: u64 = 4096;
/// The attribute that files may have.
pub const ATTRIBUTE: &[u8] = b"user.some";
/// The directory that all share, beside the root directory.
pub const SHARED: &str = "d";
/// Above so many bytes files are large.
pub const THRESHOLD: u64 = 16 << 10;

/// Odd, so that multiplying by it loses nothing.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// A page; none if it is zeros.
pub type Page = Option<Arc<[u8; P as usize]>>;

/// The word at byte `at` (a multiple of 8) of a file as operation `op` writes it.
const fn word(op: u32, at: u64) -> u64 {
    (((op as u64) << 32) | (at / 8)).wrapping_mul(FACTOR)
}

/// The bytes of `range` of a file, as operation `op` writes them.
#[must_use]
pub fn content(op: u32, range: Range<u64>) -> Vec<u8> {
    let from = range.start / 8 * 8;
    let words = (from..range.end).step_by(8).flat_map(|at| word(op, at).to_le_bytes());
    words.skip((range.start - from) as usize).take((range.end - range.start) as usize).collect()
}

/// What wrote `bytes`, which begin at byte `at` of a page, a multiple of 8: for messages.
fn origin(bytes: &[u8]) -> String {
    let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    if word == 0 {
        return "zeros".to_owned();
    }
    // Newton: each step doubles the bits that are right.
    let inverse = (0..6).fold(FACTOR, |inverse, _| {
        inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)))
    });
    let plain = word.wrapping_mul(inverse);
    format!("operation {}, offset {}", plain >> 32, (plain & 0xFFFF_FFFF) * 8)
}

/// A regular file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct File {
    /// Bytes.
    pub size: u64,
    /// Its pages, as far as the size; behind the size they have zeros.
    pub pages: Vec<Page>,
    /// Permissions.
    pub mode: u32,
    /// Its attribute.
    pub attribute: Option<Vec<u8>>,
    /// Whether it has a chunk: of what was found, not of what is expected.
    pub is_large: bool,
}

impl File {
    /// Makes it `size` bytes long.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size..self.size);
        }
        self.size = size;
        self.pages.resize(size.div_ceil(P) as usize, None);
    }

    /// Zeros the bytes of `range` that are inside.
    pub fn zero(&mut self, range: Range<u64>) {
        self.put(range.start..range.end.min(self.size), |_, part| part.fill(0));
    }

    /// Writes `bytes` from byte `at` on.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        self.resize(self.size.max(end));
        self.put(at..end, |from, part| {
            let from = (from - at) as usize;
            part.copy_from_slice(bytes.get(from..from + part.len()).unwrap_or_default());
        });
    }

    /// Calls `set` with the parts of pages that are in `range`, and where each begins.
    fn put(&mut self, range: Range<u64>, set: impl Fn(u64, &mut [u8])) {
        let mut at = range.start;
        while at < range.end {
            let (page, within) = (at / P, at % P);
            let end = range.end.min((page + 1) * P);
            let Some(place) = self.pages.get_mut(page as usize) else {
                return;
            };
            let mut bytes = place.as_ref().map_or([0; P as usize], |page| **page);
            let part = bytes.get_mut(within as usize..(within + end - at) as usize);
            set(at, part.unwrap_or_default());
            let is_zeros = bytes.iter().all(|byte| *byte == 0);
            *place = (!is_zeros).then(|| Arc::new(bytes));
            at = end;
        }
    }

    /// The bytes of `range`.
    #[must_use]
    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end.min(self.size) {
            let end = range.end.min(self.size).min((at / P + 1) * P);
            let (from, to) = ((at % P) as usize, (at % P + end - at) as usize);
            match self.pages.get((at / P) as usize) {
                Some(Some(page)) => bytes.extend(page.get(from..to).unwrap_or_default()),
                _ => bytes.resize(bytes.len() + to - from, 0),
            }
            at = end;
        }
        bytes
    }

    /// Whether page `page` of this one has the first `len` bytes of `other`.
    fn has(&self, page: u64, other: &Page, len: usize) -> bool {
        let mine = self.pages.get(page as usize).unwrap_or(&None);
        match (mine, other) {
            (None, None) => true,
            (Some(one), Some(two)) if Arc::ptr_eq(one, two) => true,
            (Some(one), Some(two)) => one.get(..len) == two.get(..len),
            (Some(one), None) | (None, Some(one)) => {
                one.get(..len).is_some_and(|part| part.iter().all(|byte| *byte == 0))
            }
        }
    }
}

/// Files by their names. What numbers they have is the owner's business.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// The file of each name.
    pub names: BTreeMap<String, u64>,
    /// The files.
    pub files: BTreeMap<u64, Arc<File>>,
}

impl Tree {
    /// The file with the name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<(u64, &Arc<File>)> {
        let number = *self.names.get(name)?;
        Some((number, self.files.get(&number)?))
    }

    /// Gives the file with the name to `change`.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.names.get(name).and_then(|number| self.files.get_mut(number)) {
            change(Arc::make_mut(file));
        }
    }

    /// Forgets files that have no name.
    pub fn reap(&mut self) {
        let Tree { names, files } = self;
        files.retain(|number, _| names.values().any(|named| named == number));
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.size).sum()
    }

    /// A number that follows from all of it but the numbers of files.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut digest = 7;
        let mut add = |word: u64| digest = mix(digest ^ word);
        for (name, number) in &self.names {
            name.bytes().for_each(|byte| add(byte.into()));
            let first = self.names.values().position(|other| other == number);
            add(first.unwrap_or(0) as u64);
            let Some(file) = self.files.get(number) else { continue };
            add(file.size);
            add(file.mode.into());
            add(file.attribute.as_ref().map_or(0, |value| value.len() as u64 + 1));
            // Each page names who wrote it, in each of its words.
            for page in file.pages.iter().flatten() {
                let words = page.as_chunks::<8>().0;
                words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
            }
        }
        digest
    }
}

/// What may be instead of a page that should be there: by the number of the file as it is expected,
/// the page, and the bytes of it that count.
pub type Instead<'i> = &'i dyn Fn(u64, u64, &File, usize) -> bool;

/// Whether `found` is what operations have made of `before`, if that were to be `after`, each step
/// having been done or not: with two equal ones, whether it is that.
///
/// # Errors
/// The first difference, as text.
pub fn compare(
    found: &Tree,
    before: &Tree,
    after: &Tree,
    instead: Instead<'_>,
) -> Result<(), String> {
    let expected = if found.names.keys().eq(before.names.keys()) { before } else { after };
    if !found.names.keys().eq(expected.names.keys()) {
        let (there, names) = (found.names.keys(), before.names.keys());
        return Err(format!("there are {there:?}, not {names:?}"));
    }
    let mut known: BTreeMap<u64, u64> = BTreeMap::new();
    for (name, number) in &found.names {
        let wanted = expected.names.get(name).copied().unwrap_or(0);
        if *known.entry(*number).or_insert(wanted) != wanted {
            return Err(format!("{name} is another name's file"));
        }
    }
    let mut seen: Vec<u64> = known.values().copied().collect();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != known.len() {
        return Err("two files are to be one".to_owned());
    }
    for (number, wanted) in known {
        let name = expected.names.iter().find(|(_, it)| **it == wanted).map(|(name, _)| name);
        let Some(file) = found.files.get(&number) else { continue };
        let states = [before.files.get(&wanted), after.files.get(&wanted)];
        compare_file(file, wanted, states, instead)
            .map_err(|what| format!("{}: {what}", name.map_or("?", |name| name)))?;
    }
    Ok(())
}

/// [`compare`] for one file, which may be missing in one of `states`.
fn compare_file(
    found: &File,
    number: u64,
    states: [Option<&Arc<File>>; 2],
    instead: Instead<'_>,
) -> Result<(), String> {
    let states: Vec<&File> = states.into_iter().flatten().map(|file| &**file).collect();
    let sizes = || states.iter().map(|file| file.size);
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if !(least..=most).contains(&found.size) {
        return Err(format!("it has {} bytes, not {least} to {most}", found.size));
    }
    if !states.iter().any(|file| file.mode == found.mode) {
        return Err(format!("its mode is {:o}", found.mode));
    }
    if !states.iter().any(|file| file.attribute == found.attribute) {
        return Err("its attribute is another one".to_owned());
    }
    for page in 0..found.size.div_ceil(P) {
        let len = (found.size - page * P).min(P) as usize;
        let is_one = |file: &&File| {
            let there = found.pages.get(page as usize).unwrap_or(&None);
            file.has(page, there, len)
        };
        if states.iter().any(is_one) || found.is_large && instead(number, page, found, len) {
            continue;
        }
        return Err(differing(found, &states, page, len));
    }
    Ok(())
}

/// Which bytes of page `page` are others than those of any of `states`.
fn differing(found: &File, states: &[&File], page: u64, len: usize) -> String {
    let bytes = |file: &File| {
        let mut bytes = file.read(page * P..page * P + len as u64);
        bytes.resize(len.next_multiple_of(8), 0);
        bytes
    };
    let there = bytes(found);
    let mut text = format!("page {page} (of {} bytes)", found.size);
    let form = if found.is_large { "large" } else { "in the core" };
    text.push_str(&format!(", {form}"));
    for state in states {
        let wanted = bytes(state);
        let mut words = there.chunks(8).zip(wanted.chunks(8));
        let Some(at) = words.position(|(one, other)| one != other) else { continue };
        let (one, other) = (origin(there.get(at * 8..).unwrap_or_default()), wanted.get(at * 8..));
        let other = origin(other.unwrap_or_default());
        text.push_str(&format!(": at byte {} is {one}, not {other}", at * 8));
    }
    text
}

/// Whether page `page` of `found` is, as far as `len` bytes go, that of `file`.
#[must_use]
pub fn has_page(found: &File, page: u64, file: &File, len: usize) -> bool {
    found.has(page, file.pages.get(page as usize).unwrap_or(&None), len)
}

/// Reads the trees of `count` actors, or that of `only` one of them: names begin with the letter of
/// their actor.
///
/// # Errors
/// What can't be read, or is nobody's, as text.
pub fn read<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    count: usize,
    only: Option<usize>,
) -> Result<Vec<Tree>, String> {
    let mut trees = vec![Tree::default(); count];
    let text = |error: conquest_fs::Error| format!("reading: {error}");
    let found = files.lookup(&root_user(), files.root(), SHARED.as_bytes()).map_err(text)?;
    let (shared, _) = found.ok_or("the shared directory is gone")?;
    let mut room = vec![0; LISTING];
    for (directory, path) in [(files.root(), ""), (shared, "d/")] {
        for entry in files.list(directory, 2, &mut room).map_err(text)? {
            if entry.file_type == FileType::Directory {
                continue;
            }
            let name = format!("{path}{}", String::from_utf8_lossy(entry.name));
            let actor = usize::from(entry.name.first().map_or(0, |first| first.wrapping_sub(b'a')));
            // Files of others may come and go.
            if only.is_some_and(|only| only != actor) {
                continue;
            }
            let tree = trees.get_mut(actor).ok_or_else(|| format!("{name} is nobody's"))?;
            let looked = files.lookup(&root_user(), directory, entry.name).map_err(text)?;
            let (file, _) = looked.ok_or_else(|| format!("{name} is listed, and not there"))?;
            tree.names.insert(name.clone(), file.number);
            if tree.files.contains_key(&file.number) {
                continue;
            }
            let found = read_file(files, file).map_err(|what| format!("{name}: {what}"))?;
            tree.files.insert(file.number, Arc::new(found));
        }
    }
    Ok(trees)
}

fn read_file<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    file: conquest_fs::FileId,
) -> Result<File, String> {
    let text = |error: conquest_fs::Error| error.to_string();
    let stat = files.stat(file).map_err(text)?;
    let mut bytes = vec![9; stat.size as usize];
    let len = files.read_file(file, 0, &mut bytes).map_err(text)?;
    if len != bytes.len() {
        return Err(format!("{len} of {} bytes can be read", bytes.len()));
    }
    let value = whole(|out| files.attribute(&root_user(), file, ATTRIBUTE, out));
    let form = files.placement(file, THRESHOLD).map_err(text)?.form;
    let pages = bytes.chunks(P as usize).map(|part| {
        let mut page = [0; P as usize];
        page.get_mut(..part.len()).unwrap_or_default().copy_from_slice(part);
        part.iter().any(|byte| *byte != 0).then(|| Arc::new(page))
    });
    Ok(File {
        size: stat.size,
        pages: pages.collect(),
        mode: stat.mode & 0o7777,
        attribute: value.ok(),
        is_large: form == Form::Large,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(op: u32, size: u64) -> Tree {
        let mut file = File { is_large: true, ..File::default() };
        file.write(0, &content(op, 0..size));
        Tree {
            names: BTreeMap::from([("a0".to_owned(), 3)]),
            files: BTreeMap::from([(3, Arc::new(file))]),
        }
    }

    #[test]
    fn bytes_of_another_operation_or_place_are_told() {
        let none: Instead<'_> = &|_, _, _, _| false;
        let (one, two) = (tree(5, 10_000), tree(6, 10_000));
        assert_eq!(compare(&one, &one, &one, none), Ok(()));
        let told = compare(&two, &one, &one, none).unwrap_err();
        assert!(told.contains("is operation 6, offset 0, not operation 5, offset 0"), "{told}");
        assert_eq!(compare(&one, &one, &two, none), Ok(()));
        let mut moved = tree(5, 10_000);
        moved.change("a0", |file| file.write(4096, &content(5, 0..100)));
        assert!(compare(&moved, &one, &two, none).is_err());
        let mut mixed = tree(5, 10_000);
        mixed.change("a0", |file| file.write(4096, &content(6, 4096..8192)));
        assert_eq!(compare(&mixed, &one, &two, none), Ok(()));
        mixed.change("a0", |file| file.write(0, &content(6, 0..100)));
        assert!(compare(&mixed, &one, &two, none).is_err());
    }

    #[test]
    fn what_is_cut_off_is_zeros() {
        let mut tree = tree(5, 10_000);
        tree.change("a0", |file| {
            file.resize(5000);
            file.resize(9000);
        });
        let (_, file) = tree.file("a0").unwrap();
        assert_eq!(file.read(0..5000), content(5, 0..5000));
        assert_eq!(file.read(5000..9000), vec![0; 4000]);
    }
}
