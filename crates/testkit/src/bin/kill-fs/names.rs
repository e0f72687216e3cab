//! Operations on the files of one directory, and what there is after them: names and contents.

use std::collections::BTreeMap;

use conquest_access::Removal;
use conquest_fs::content::WriteAt;
use conquest_fs::dir::FileType;
use conquest_fs::names::{New, Renaming};
use conquest_fs::{Error, FileId};
use conquest_testkit::Rng;
use conquest_testkit::files::{LISTING, root_user};

use crate::arena::Files;

/// Names that a directory may have.
const NAMES: u64 = 10;

/// An operation; names are numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Make(u64),
    MakeDirectory(u64),
    Symlink(u64),
    Link(u64, u64),
    Unlink(u64),
    RemoveDirectory(u64),
    Rename(u64, u64),
    /// Writes to this place so many bytes.
    Write(u64, u64, u64),
    /// Writes so many bytes to the end.
    Append(u64, u64),
    Truncate(u64, u64),
}

/// Bytes that are written: never 0, and quickly made, or those who work would leave the checks
/// far behind.
fn content(len: u64) -> Vec<u8> {
    vec![len as u8 | 1; len as usize]
}

fn name(number: u64) -> Vec<u8> {
    // Some of them long, so that buckets are split.
    let width = if number.is_multiple_of(2) { 255 } else { 3 };
    format!("{number:0>width$}").into_bytes()
}

impl Op {
    /// Operation number `number` of the sequence `seed`.
    pub(crate) fn random(seed: u64, number: u64) -> Op {
        let mut rng = Rng::stream(seed, number);
        let (first, second) = (rng.below(NAMES), rng.below(NAMES));
        let place = |rng: &mut Rng| {
            let most = [100, 100, 3000, 3000, 30_000][rng.below(5) as usize];
            rng.below(most)
        };
        match rng.below(15) {
            9..=11 => Op::Write(first, place(&mut rng), place(&mut rng)),
            12 => Op::Append(first, place(&mut rng)),
            13 => Op::Truncate(first, place(&mut rng)),
            14 => Op::Truncate(first, 0),
            0 | 1 => Op::Make(first),
            2 => Op::MakeDirectory(first),
            3 => Op::Symlink(first),
            4 => Op::Link(first, second),
            5 => Op::Unlink(first),
            6 => Op::RemoveDirectory(first),
            _ => Op::Rename(first, second),
        }
    }

    /// Does it in `directory`. That it can't be done, for what names there are, is no error.
    pub(crate) fn perform(self, files: &Files, directory: FileId) -> Result<(), String> {
        let who = &root_user();
        let make =
            |number, what| files.create(who, directory, &name(number), what, 0o755).map(drop);
        let remove = |number, how| files.remove(who, directory, &name(number), how);
        let find = |number| {
            let found = files.lookup(who, directory, &name(number))?;
            found.map(|(file, _)| file).ok_or(Error::Stale)
        };
        let done = match self {
            Op::Make(number) => make(number, New::Regular),
            Op::MakeDirectory(number) => make(number, New::Directory),
            Op::Symlink(number) => make(number, New::Symlink(&[b't'; 100])),
            Op::Link(old, new) => match files.lookup(who, directory, &name(old)) {
                Ok(Some((file, _))) => files.link(who, file, directory, &name(new)),
                found => found.map(drop),
            },
            Op::Unlink(number) => remove(number, Removal::File),
            Op::RemoveDirectory(number) => remove(number, Removal::Directory),
            Op::Rename(old, new) => {
                let how = Renaming::Replace;
                files.rename(who, directory, &name(old), directory, &name(new), how)
            }
            Op::Write(number, at, len) => find(number).and_then(|file| {
                files.write(who, file, WriteAt::Offset(at), &content(len)).map(drop)
            }),
            Op::Append(number, len) => find(number)
                .and_then(|file| files.write(who, file, WriteAt::End, &content(len)).map(drop)),
            Op::Truncate(number, size) => {
                find(number).and_then(|file| files.truncate(who, file, size))
            }
        };
        match done {
            Ok(()) | Err(Error::Refused(_) | Error::Stale) => Ok(()),
            Err(error) => Err(format!("{self:?}: {error}")),
        }
    }
}

/// What there should be: of each name its file's type and which file it is, and of regular files
/// the content.
#[derive(Clone, Default)]
pub(crate) struct Model {
    names: BTreeMap<u64, (FileType, u64)>,
    contents: BTreeMap<u64, Vec<u8>>,
    made: u64,
}

impl Model {
    pub(crate) fn apply(&mut self, op: Op) {
        let is_directory = |found: Option<&(FileType, u64)>| {
            found.map(|(file_type, _)| *file_type == FileType::Directory)
        };
        match op {
            Op::Make(number) => self.make(number, FileType::Regular),
            Op::MakeDirectory(number) => self.make(number, FileType::Directory),
            Op::Symlink(number) => self.make(number, FileType::Symlink),
            Op::Link(old, new) => {
                if let (Some(false), Some(&file)) =
                    (is_directory(self.names.get(&old)), self.names.get(&old))
                {
                    self.names.entry(new).or_insert(file);
                }
            }
            Op::Unlink(number) => {
                if is_directory(self.names.get(&number)) == Some(false) {
                    self.remove(number);
                }
            }
            Op::RemoveDirectory(number) => {
                if is_directory(self.names.get(&number)) == Some(true) {
                    self.names.remove(&number);
                }
            }
            Op::Rename(old, new) => {
                let [source, target] = [old, new].map(|number| self.names.get(&number).copied());
                let fits = target.is_none()
                    || is_directory(target.as_ref()) == is_directory(source.as_ref());
                if let Some(source) = source.filter(|&source| fits && target != Some(source)) {
                    self.remove(new);
                    self.names.remove(&old);
                    self.names.insert(new, source);
                }
            }
            Op::Write(number, at, len) => self.write(number, Some(at), &content(len)),
            Op::Append(number, len) => self.write(number, None, &content(len)),
            Op::Truncate(number, size) => {
                if let Some(bytes) = self.content(number) {
                    bytes.resize(size as usize, 0);
                }
            }
        }
    }

    /// The content of the regular file with a name.
    fn content(&mut self, number: u64) -> Option<&mut Vec<u8>> {
        let (file_type, file) = *self.names.get(&number)?;
        (file_type == FileType::Regular).then(|| self.contents.entry(file).or_default())
    }

    fn write(&mut self, number: u64, at: Option<u64>, new: &[u8]) {
        let Some(bytes) = self.content(number).filter(|_| !new.is_empty()) else {
            return;
        };
        let at = at.map_or(bytes.len(), |at| at as usize);
        bytes.resize(bytes.len().max(at + new.len()), 0);
        bytes[at..at + new.len()].copy_from_slice(new);
    }

    /// Removes a name, and with a file's last one its content.
    fn remove(&mut self, number: u64) {
        let Some((_, file)) = self.names.remove(&number) else { return };
        if self.names.values().all(|(_, other)| *other != file) {
            self.contents.remove(&file);
        }
    }

    fn make(&mut self, number: u64, file_type: FileType) {
        self.made += 1;
        self.names.entry(number).or_insert((file_type, self.made));
    }

    /// Whether these are the names in `directory`, of files with these contents.
    pub(crate) fn is_in(&self, files: &Files, directory: FileId) -> Result<bool, String> {
        let mut room = vec![0; LISTING];
        let listed = files.list(directory, 2, &mut room).map_err(|error| error.to_string())?;
        let listed: Vec<_> = listed.collect();
        let mut files_of = BTreeMap::new();
        let is_here = |(number, (file_type, file)): (&u64, &(FileType, u64))| {
            let name = name(*number);
            let entry = listed.iter().find(|entry| entry.name == name);
            entry.is_some_and(|entry| {
                let same = *files_of.entry(*file).or_insert(entry.number) == entry.number;
                same && entry.file_type == *file_type
            })
        };
        if self.names.len() != listed.len() || !self.names.iter().all(is_here) {
            return Ok(false);
        }
        for (number, (file_type, file)) in &self.names {
            if *file_type != FileType::Regular {
                continue;
            }
            let found = read(files, directory, *number).map_err(|error| error.to_string())?;
            if found != self.contents.get(file).map_or(&[][..], Vec::as_slice) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// All bytes of a file.
fn read(files: &Files, directory: FileId, number: u64) -> Result<Vec<u8>, Error> {
    let found = files.lookup(&root_user(), directory, &name(number))?;
    let (file, _) = found.ok_or(Error::Stale)?;
    let mut bytes = vec![0; files.stat(file)?.size as usize];
    files.read_file(file, 0, &mut bytes)?;
    Ok(bytes)
}
