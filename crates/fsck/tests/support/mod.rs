//! What the tests of the checker share: a store in which there is everything, made by the engine on
//! a simulated medium, and ways to change its bytes.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use conquest_access::Removal;
use conquest_format::descriptor::Descriptor;
use conquest_format::fs::chunk;
use conquest_format::fs::dentry::HASH_BITS;
use conquest_format::geometry::Shape;
use conquest_format::inode::{self, Inode, WORDS, offset_of, word};
use conquest_format::kind::Kind;
use conquest_format::{Geometry, Offset, WORD, fs, pointer};
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::large::NewLarge;
use conquest_fs::locks::Wait;
use conquest_fs::names::New;
use conquest_fs::xattr::Setting;
use conquest_fs::{FileId, FileSystem, NewFileSystem, dir};
use conquest_fsck::{Code, Options, Report, Severity, View, check};
use conquest_pm::Core;
use conquest_pm::attach::{NewRegion, make};
use conquest_testkit::files::{
    RamSpace, SimFiles, clock, files_options, new_file_system, root_user,
};
use conquest_testkit::{DyingMemory, Image, RecordingMemory, World};

pub const SHAPE: Shape = Shape { max_groups: 4, lanes: 3, slots: 3, locks: 8, chunks: 4, log: 0 };

/// Names of directories with one, two and three levels.
pub const BUCKET: &str = "bucket";
pub const WIDE: &str = "wide";
pub const DEEP: &str = "deep";

/// Bytes above which files are large.
const THRESHOLD: u64 = 24 << 20;

pub fn geometry() -> Geometry {
    Geometry::new(SHAPE).unwrap()
}

/// A new store with nothing in it, and the memory it is in.
pub fn new_store(needs_write_back: bool) -> (RecordingMemory, SimFiles) {
    let image = Arc::new(Image::new(geometry().len()));
    let memory = RecordingMemory::new(image, geometry().volatile(), needs_write_back);
    let world = World::new(memory.clock());
    let new = NewRegion { shape: SHAPE, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
    let path = Path::new("simulated core");
    make(&memory.actor(0), &world.process(9), path, &new).unwrap();
    let alive = DyingMemory::counting(memory.actor(0));
    let core = Core::attach(alive, world.process(9), path, &fs::kinds(), files_options()).unwrap();
    let large = NewLarge { threshold: THRESHOLD, chunk_blocks: chunk::BLOCKS_MIN };
    let new = NewFileSystem { large: Some(large), ..new_file_system() };
    FileSystem::make(&core, &new, &clock()).unwrap();
    let files = FileSystem::open(core, clock()).unwrap();
    let files = files.with_space(Box::new(RamSpace::default()));
    (memory, files)
}

/// `count` names of 255 bytes, each with a hash whose first `bits` bits are those of `first`.
pub fn names_of_hash(first: u64, bits: u32, count: usize) -> Vec<Vec<u8>> {
    let hasher = siphasher::sip::SipHasher13::new_with_keys(1, 2);
    let all = (0..).map(|number: u64| format!("{number:0>255}").into_bytes());
    let rest = 64 - bits.min(HASH_BITS);
    all.filter(|name| bits == 0 || hasher.hash(name) >> rest == first).take(count).collect()
}

/// The first byte of the region's image up to the end of its last group.
pub fn bytes_of(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; image.len() as usize];
    image.copy(Offset::NONE, &mut bytes);
    let groups = image.get(conquest_format::geometry::STATE_GROUPS.bytes() / WORD);
    bytes.truncate(geometry().len_at(groups) as usize);
    bytes
}

/// A region's bytes, with the numbers of the inodes in it that have been given a name here.
#[derive(Clone)]
pub struct Store {
    pub bytes: Vec<u8>,
    pub files: BTreeMap<String, u64>,
}

/// Bytes with which files are filled.
pub fn filler(len: usize) -> Vec<u8> {
    (0..len).map(|index| index as u8 | 1).collect()
}

/// An access list: owner, a user, group, mask, others; what it says in a mode is 0o651.
pub fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, !0), (2, 7, 1000), (4, 4, !0), (0x10, 5, !0), (0x20, 1, !0)];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, digit, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(digit.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

struct Builder {
    files: SimFiles,
    numbers: BTreeMap<String, u64>,
}

impl Builder {
    fn make(&mut self, parent: FileId, name: &str, what: New<'_>) -> FileId {
        self.make_with(parent, name, what, 0o755)
    }

    fn make_with(&mut self, parent: FileId, name: &str, what: New<'_>, mode: u16) -> FileId {
        let made = self.files.create(&root_user(), parent, name.as_bytes(), what, mode).unwrap();
        self.numbers.insert(name.into(), made.number);
        made
    }

    fn write(&self, file: FileId, at: u64, len: usize) {
        let bytes = filler(len);
        self.files.write(&root_user(), file, WriteAt::Offset(at), &bytes).unwrap();
    }

    fn attribute(&self, file: FileId, name: &[u8], value: &[u8]) {
        self.files.set_attribute(&root_user(), file, name, value, Setting::Any).unwrap();
    }

    fn fill(&self, parent: FileId, names: Vec<Vec<u8>>) {
        for name in names {
            self.files.create(&root_user(), parent, &name, New::Fifo, 0o600).unwrap();
        }
    }

    fn contents(&mut self) {
        let root = self.files.root();
        self.make(root, "empty", New::Regular);
        let packed = self.make(root, "packed", New::Regular);
        self.write(packed, 0, 100);
        // In a slab of three pages.
        let in_slab = self.make(root, "in-slab", New::Regular);
        self.write(in_slab, 0, 380);
        let extent = self.make(root, "extent", New::Regular);
        self.write(extent, 0, 20_000);
        // One level: a hole between two pages.
        let tree = self.make(root, "tree", New::Regular);
        self.write(tree, 4096, 4096);
        self.write(tree, 5 * 4096, 4096);
        // Two levels: a run below the top, and a page that stands alone.
        let tall = self.make(root, "tall", New::Regular);
        self.write(tall, 5 << 21, 100);
        let who = &root_user();
        let how = Allocate::Space { keeps_size: false };
        self.files.allocate(who, tall, how, 3 << 21, 2 << 20).unwrap();
        self.make(root, "link", New::Symlink(b"where"));
        self.make(root, "long-link", New::Symlink(&[b't'; 3000]));
        self.make(root, "fifo", New::Fifo);
        self.make(root, "socket", New::Socket);
        self.make(root, "character", New::Character(1, 3));
        self.make(root, "block", New::Block(8, 0));
    }

    /// Large files: one with a page in the core; one that is on the volume, and cut off; what was
    /// removed and is to be trimmed, and what nobody needs.
    fn large(&mut self) {
        let (root, who) = (self.files.root(), &root_user());
        let unused = self.make_with(root, "unused", New::Regular, 0o644);
        self.write(unused, THRESHOLD, 100);
        self.files.remove(who, root, b"unused", Removal::File).unwrap();
        self.files.trim_chunks().unwrap();
        let [large, cut, removed] =
            ["large", "cut", "removed"].map(|name| self.make_with(root, name, New::Regular, 0o644));
        // The first one has what the unused one had, as soon as there are others.
        for file in [large, cut, removed] {
            self.write(file, THRESHOLD, 100);
        }
        let more = self.make_with(root, "more", New::Regular, 0o644);
        self.write(more, THRESHOLD, 100);
        self.files.remove(who, root, b"more", Removal::File).unwrap();
        self.files.trim_chunks().unwrap();
        self.files.push(cut, Wait::Forever).unwrap();
        self.files.truncate(who, cut, 8192).unwrap();
        self.files.remove(who, root, b"removed", Removal::File).unwrap();
        self.numbers.retain(|name, _| !matches!(name.as_str(), "unused" | "removed" | "more"));
    }

    fn attributes(&mut self) {
        let root = self.files.root();
        let some = self.make(root, "some-attributes", New::Regular);
        self.attribute(some, b"user.a", b"one");
        self.attribute(some, b"user.b", b"two");
        let many = self.make(root, "many-attributes", New::Regular);
        self.attribute(many, b"user.a", &filler(5000));
        let large = self.make(root, "large-attributes", New::Regular);
        self.attribute(large, b"user.a", &filler(60_000));
        self.attribute(large, b"user.b", &filler(60_000));
        let listed = self.make(root, "listed", New::Regular);
        self.attribute(listed, b"system.posix_acl_access", &access_list());
        let default = self.make(root, "default", New::Directory);
        self.attribute(default, b"system.posix_acl_default", &access_list());
    }

    fn directories(&mut self) {
        let root = self.files.root();
        self.make(root, "no-entries", New::Directory);
        let bucket = self.make(root, BUCKET, New::Directory);
        let child = self.make(bucket, "child", New::Directory);
        self.make(child, "grandchild", New::Directory);
        let named = self.make(bucket, "named", New::Regular);
        self.files.link(&root_user(), named, bucket, b"again").unwrap();
        let wide = self.make(root, WIDE, New::Directory);
        self.fill(wide, names_of_hash(0, 0, 40));
        let deep = self.make(root, DEEP, New::Directory);
        self.fill(deep, names_of_hash(5, 7, 30));
    }
}

/// The store in which there is everything, with the memory it was made in.
pub fn everything() -> (RecordingMemory, SimFiles, Store) {
    let (memory, files) = new_store(false);
    let mut builder = Builder { files, numbers: BTreeMap::new() };
    builder.numbers.insert("/".into(), builder.files.root().number);
    // First, so that others get what the removed ones have left.
    builder.large();
    builder.contents();
    builder.attributes();
    builder.directories();
    let Builder { files, numbers } = builder;
    let store = Store { bytes: bytes_of(memory.image()), files: numbers };
    (memory, files, store)
}

/// Checks bytes.
pub fn examine(bytes: &[u8]) -> Report {
    check(bytes, &Options::default()).unwrap()
}

/// The codes of all findings, notes included.
pub fn codes(report: &Report) -> Vec<Code> {
    report.codes().map(|(code, _)| code).collect()
}

/// All that is found but notes, as text.
pub fn complaints(report: &Report) -> Vec<String> {
    let wrong = report.findings.iter().filter(|one| one.severity() > Severity::Note);
    wrong.map(ToString::to_string).collect()
}

impl Store {
    /// Where the chunk of a large file is.
    pub fn chunk(&self, name: &str) -> Offset {
        let at = self.field(name, word::SHAPE);
        Offset::new(at - at % conquest_format::inode::NUMBER_UNIT)
    }

    /// Makes the checksum of the chunk at `at` right.
    pub fn sum_chunk(&mut self, at: Offset) {
        let words = core::array::from_fn(|index| self.load(at.plus(index as u64 * WORD)));
        self.put(at.plus(chunk::word::CHECK), chunk::check(&words, at));
    }

    pub fn number(&self, name: &str) -> u64 {
        *self.files.get(name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn at(&self, name: &str) -> Offset {
        offset_of(self.number(name)).unwrap()
    }

    pub fn load(&self, at: Offset) -> u64 {
        self.bytes[..].load(at)
    }

    pub fn put(&mut self, at: Offset, value: u64) {
        let at = at.bytes() as usize;
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    pub fn byte(&self, at: Offset) -> u8 {
        self.bytes[at.bytes() as usize]
    }

    pub fn put_byte(&mut self, at: Offset, value: u8) {
        self.bytes[at.bytes() as usize] = value;
    }

    pub fn words(&self, at: Offset) -> [u64; WORDS] {
        core::array::from_fn(|index| self.load(at.plus(index as u64 * WORD)))
    }

    pub fn inode(&self, name: &str) -> Inode {
        Inode::from_words(self.words(self.at(name)), self.number(name)).unwrap()
    }

    /// Changes a word of an inode, and its checksum.
    pub fn set_inode(&mut self, name: &str, word: u64, value: u64) {
        let at = self.at(name);
        self.put(at.plus(word), value);
        self.sum_inode(name);
    }

    /// Makes an inode's checksum right.
    pub fn sum_inode(&mut self, name: &str) {
        let (at, number) = (self.at(name), self.number(name));
        let sum = inode::check(&self.words(at), number);
        self.put(at.plus(inode::word::CHECK), sum);
    }

    /// The word of an inode.
    pub fn field(&self, name: &str, word: u64) -> u64 {
        self.load(self.at(name).plus(word))
    }

    /// Where a word of an inode that is a pointer word, or a slot, leads to.
    pub fn follow(&self, word: u64) -> Offset {
        Offset::new(word & ((1 << 48) - 1) & !0x3FF)
    }

    /// Where the object is to which `word` points.
    pub fn target(&self, word: u64) -> Offset {
        Offset::new(word & ((1 << 48) - 1) & !0x3F)
    }

    /// The content's root, followed.
    pub fn content(&self, name: &str) -> Offset {
        self.target(self.field(name, inode::word::CONTENT))
    }

    /// Where the dentry of `name` stands, in any bucket.
    pub fn dentry(&self, name: &str) -> Offset {
        let number = self.number(name);
        let word = pointer::pack(offset_of(number).unwrap(), fs::INODE);
        let heap = geometry().page(0).bytes();
        let end = self.bytes.len() as u64;
        let mut places = (heap..end).step_by(16).map(Offset::new);
        let is_name = |at: &Offset| {
            let start = at.bytes() as usize + 16;
            self.load(*at) == word && self.bytes[start..].starts_with(name.as_bytes())
        };
        places.find(is_name).unwrap()
    }

    /// An object of `kind` that is not allocated, in a slab that is; where the slab's map stands,
    /// the object's number, and the object.
    pub fn free_object(&self, kind: Kind) -> (Offset, u64, Offset) {
        let spec = fs::kinds()[usize::from(kind.number())];
        let at = |page: u64| geometry().slab_map(page);
        let has_room = |page: &u64| {
            // What is free keeps its descriptor.
            let place = geometry().bitmap(0).plus(*page / 64 * WORD);
            let is_allocated = self.load(place) >> (page % 64) & 1 == 1;
            let word = self.load(geometry().descriptor(*page));
            is_allocated
                && Descriptor::unpack(word, *page) == Some(Descriptor::Slab(kind))
                && u64::from(self.load(at(*page)).trailing_ones()) < spec.objects()
        };
        let page = (0..512).find(has_room).unwrap();
        let index = u64::from(self.load(at(page)).trailing_ones());
        let object = geometry().page(page).plus(index * u64::from(spec.object_size));
        (at(page), index, object)
    }

    /// Makes a page free, or allocated, in the bitmap and in the count.
    pub fn set_allocated(&mut self, at: Offset, is_allocated: bool) {
        let page = geometry().page_of(at).unwrap();
        let word = geometry().bitmap(page / 512).plus(page % 512 / 64 * 8);
        let bit = 1 << (page % 64);
        let old = self.load(word);
        self.put(word, if is_allocated { old | bit } else { old & !bit });
        let count = geometry().lane(0).plus(conquest_format::journal::PAGES_USED);
        let change = if is_allocated { 1 } else { u64::MAX };
        if self.load(word) != old {
            self.put(count, self.load(count).wrapping_add(change));
        }
    }
}

/// A [`dir::Key`] as the stores here have it.
pub fn key() -> dir::Key {
    dir::Key::new([1, 2])
}
