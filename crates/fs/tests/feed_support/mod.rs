//! What the tests of the feed work on: a store in memory, and a cache that follows.

#![allow(dead_code)] // Each test uses its part.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use conquest_format::fs;
use conquest_format::geometry::Shape;
use conquest_fs::attributes::Stat;
use conquest_fs::dir::FileType;
use conquest_fs::feed::{Follower, NameBuffer, Notice, NoticeKind, Told};
use conquest_fs::xattr::whole;
use conquest_fs::{Clock, FileId, FileSystem};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::host::Host;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::memory::Memory;
use conquest_pm::{Access, Region};
use conquest_testkit::files::{files_options, new_file_system, root_user};

pub(crate) type Files = FileSystem<Mapped, OsHost>;

fn clock() -> Clock {
    Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
}

/// A store with nothing in it.
pub(crate) fn store() -> Files {
    let memory = sys::memory_file(c"store").unwrap();
    let copy = memory.try_clone().unwrap();
    // Each thread may have a parcel on its way, which has a slot of its own.
    let shape = Shape { max_groups: 16, lanes: 8, slots: 16, locks: 64, chunks: 64, log: 0 };
    let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 2 };
    Region::create(Source::from(memory), 0o600, &new).unwrap();
    let source = Source::from(copy);
    let core = Region::open(source, &fs::kinds(), Access::default(), files_options()).unwrap();
    FileSystem::make(&core, &new_file_system(), &clock()).unwrap();
    FileSystem::open(core, clock()).unwrap()
}

/// What there is to know of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    stat: Stat,
    /// What `..` leads to.
    parent: Option<FileId>,
    content: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Names = BTreeMap<(FileId, Vec<u8>), FileId>;

/// What is known of a tree to whom only the feed tells that something has changed.
pub(crate) struct Cache<M: Memory, H: Host> {
    pub(crate) follower: Follower<M, H>,
    names: Names,
    files: BTreeMap<FileId, Known>,
    /// Notices.
    pub(crate) told: u64,
    /// Times that some were lost.
    pub(crate) lost: u64,
}

fn stat_of<M: Memory, H: Host>(files: &FileSystem<M, H>, file: FileId) -> Option<Stat> {
    // The time of access is not told of.
    files.stat(file).ok().map(|stat| Stat { atime: 0, ..stat })
}

fn parent_of<M: Memory, H: Host>(files: &FileSystem<M, H>, stat: &Stat) -> Option<FileId> {
    let is_directory = stat.mode & libc::S_IFMT == libc::S_IFDIR;
    let above = || files.lookup(&root_user(), stat.file, b"..").ok().flatten();
    is_directory.then(above).flatten().map(|(parent, _)| parent)
}

fn content_of<M: Memory, H: Host>(files: &FileSystem<M, H>, stat: &Stat) -> Vec<u8> {
    match stat.mode & libc::S_IFMT {
        libc::S_IFREG => {
            let mut bytes = vec![0; stat.size as usize];
            let len = files.read_file(stat.file, 0, &mut bytes).unwrap_or(0);
            bytes.truncate(len);
            bytes
        }
        libc::S_IFLNK => {
            let mut bytes = vec![0; stat.size as usize];
            let len = files.read_link(stat.file, &mut bytes).unwrap_or(0);
            bytes.truncate(len);
            bytes
        }
        _ => Vec::new(),
    }
}

fn attributes_of<M: Memory, H: Host>(
    files: &FileSystem<M, H>,
    file: FileId,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let who = &root_user();
    let names = whole(|out| files.attributes(who, file, out)).unwrap_or_default();
    let value = |name: &[u8]| {
        let value = whole(|out| files.attribute(who, file, name, out)).unwrap_or_default();
        (name.to_vec(), value)
    };
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(value).collect()
}

fn know<M: Memory, H: Host>(files: &FileSystem<M, H>, file: FileId) -> Option<Known> {
    let stat = stat_of(files, file)?;
    let (parent, content) = (parent_of(files, &stat), content_of(files, &stat));
    Some(Known { stat, parent, content, attributes: attributes_of(files, file) })
}

/// Adds what is in `directory` and below.
fn walk<M: Memory, H: Host>(files: &FileSystem<M, H>, directory: FileId, names: &mut Names) {
    let mut room = vec![0; 1 << 20];
    for entry in files.list(directory, 2, &mut room).unwrap_or_default() {
        let found = files.lookup(&root_user(), directory, entry.name).ok().flatten();
        let Some((file, file_type)) = found else { continue };
        // A directory that is moved meanwhile may be met twice, but not for ever.
        let is_new = names.insert((directory, entry.name.to_vec()), file).is_none();
        if file_type == FileType::Directory && is_new {
            walk(files, file, names);
        }
    }
}

fn all_of<M: Memory, H: Host>(files: &FileSystem<M, H>) -> (Names, BTreeMap<FileId, Known>) {
    let mut names = Names::new();
    walk(files, files.root(), &mut names);
    let mut ids: BTreeSet<FileId> = names.values().copied().collect();
    ids.insert(files.root());
    let known = ids.into_iter().filter_map(|file| Some((file, know(files, file)?))).collect();
    (names, known)
}

impl<M: Memory, H: Host> Cache<M, H> {
    pub(crate) fn new(files: &FileSystem<M, H>) -> Cache<M, H> {
        let follower = files.follow();
        let (names, known) = all_of(files);
        Cache { follower, names, files: known, told: 0, lost: 0 }
    }

    /// Takes in all that is told.
    pub(crate) fn listen(&mut self, files: &FileSystem<M, H>) {
        let mut name: NameBuffer = [0; 255];
        while let Some(told) = self.follower.next(&mut name).unwrap() {
            match told {
                Told::Notice(notice) => {
                    self.told += 1;
                    self.note(files, &notice, &name[..notice.name_len]);
                }
                Told::Lost { .. } => {
                    self.lost += 1;
                    (self.names, self.files) = all_of(files);
                }
            }
        }
    }

    fn note(&mut self, files: &FileSystem<M, H>, notice: &Notice, name: &[u8]) {
        let file = notice.file;
        if let Some(directory) = notice.directory {
            let place = (directory, name.to_vec());
            // What nobody has come to know of may not have happened.
            let named = match (notice.slot, notice.kind) {
                (None, _) => {
                    let found = files.lookup(&root_user(), directory, name).ok().flatten();
                    found.map(|(file, _)| file)
                }
                (_, NoticeKind::Removed | NoticeKind::MovedFrom) => {
                    self.names.get(&place).copied().filter(|&other| other != file)
                }
                _ => Some(file),
            };
            match named {
                Some(named) => _ = self.names.insert(place, named),
                None => _ = self.names.remove(&place),
            }
            self.look_again(files, directory);
            if !self.files.contains_key(&file)
                && let Some(known) = know(files, file)
            {
                self.files.insert(file, known);
            }
        }
        self.look_again(files, file);
        match (notice.kind, self.files.get_mut(&file)) {
            (NoticeKind::Gone, _) if files.stat(file).is_err() => _ = self.files.remove(&file),
            (NoticeKind::Content | NoticeKind::Size, Some(known)) => {
                known.content = content_of(files, &known.stat);
            }
            (NoticeKind::ExtendedAttributes, Some(known)) => {
                known.attributes = attributes_of(files, file);
            }
            _ => {}
        }
    }

    fn look_again(&mut self, files: &FileSystem<M, H>, file: FileId) {
        if let Some(known) = self.files.get_mut(&file)
            && let Some(stat) = stat_of(files, file)
        {
            known.stat = stat;
            known.parent = parent_of(files, &stat);
        }
    }

    /// Compares it with the tree, of which nothing is open and nothing changes.
    pub(crate) fn compare(&self, files: &FileSystem<M, H>) -> Result<(), String> {
        let (names, known) = all_of(files);
        let has = |place: &(FileId, Vec<u8>), all: &Names| format!("{:?}", all.get(place));
        for place in self.names.keys().chain(names.keys()) {
            let (mine, theirs) = (has(place, &self.names), has(place, &names));
            if mine != theirs {
                let name = String::from_utf8_lossy(&place.1);
                return Err(format!("{name} of {:?}: known {mine}, is {theirs}", place.0));
            }
        }
        for file in self.files.keys().chain(known.keys()) {
            let (mine, theirs) = (self.files.get(file), known.get(file));
            if mine != theirs {
                let brief = |known: Option<&Known>| {
                    let known = known.map(|it| (it.stat, it.parent, &it.attributes));
                    format!("{known:?}")
                };
                return Err(format!("{file:?}: known {}, is {}", brief(mine), brief(theirs)));
            }
        }
        Ok(())
    }
}
