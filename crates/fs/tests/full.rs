//! Overwriting on a full store: what a file has space for can always be written, by all forms of
//! content; and what is freed needs no space.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use conquest_access::Removal;
use conquest_format::geometry::Shape;
use conquest_format::{PAGE, fs};
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::names::New;
use conquest_fs::{Errno, Error, FileId, FileSystem};
use conquest_peers::sys;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access, Region};
use conquest_testkit::Rng;
use conquest_testkit::files::{clock, files_options, new_file_system, root_user};
use conquest_testkit::judge::judge_attached;

type Files = FileSystem<Mapped, OsHost>;

const MIB: u64 = 1 << 20;
/// Space for this file was allocated ahead, inside its size and past it.
const AHEAD: &str = "ahead";

/// A file, and what should be in it.
struct Kept {
    name: &'static str,
    file: FileId,
    bytes: Vec<u8>,
    /// Bytes that it has space for.
    space: u64,
}

struct Store {
    files: Files,
    kept: Vec<Kept>,
    rng: Rng,
}

fn make(files: &Files, name: &str) -> FileId {
    files.create(&root_user(), files.root(), name.as_bytes(), New::Regular, 0o600).unwrap()
}

fn is_full<T>(done: &Result<T, Error>) -> bool {
    matches!(done, Err(error) if error.errno() == Errno::ENOSPC)
}

impl Store {
    /// A full store, with files of all forms.
    fn full(seed: u64) -> Store {
        let memory = sys::memory_file(c"store").unwrap();
        let copy = memory.try_clone().unwrap();
        let shape = Shape { max_groups: 4, lanes: 4, slots: 4, locks: 64, chunks: 4, log: 0 };
        let new = NewRegion { shape, kinds: fs::kinds(), uuid: [1; 16], created: 1, groups: 1 };
        Region::create(Source::from(memory), 0o600, &new).unwrap();
        let (source, access) = (Source::from(copy), Access::default());
        let core = Region::open(source, &fs::kinds(), access, files_options()).unwrap();
        FileSystem::make(&core, &new_file_system(), &clock()).unwrap();
        let files = FileSystem::open(core, clock()).unwrap();
        let mut store = Store { files, kept: Vec::new(), rng: Rng::stream(3, seed) };
        store.add("packed", &[(0, 1789)]);
        store.add("largest packed", &[(0, 2048)]);
        store.add("small extent", &[(0, 7000)]);
        store.add("extent", &[(0, 100_000)]);
        store.add("tree", &[(0, 5000), (10 * PAGE, 3 * PAGE), (20 * PAGE, 3000)]);
        store.add("run", &[(0, 3 * MIB)]);
        store.add_ahead();
        store.fill();
        store
    }

    /// Makes a file of these ranges.
    fn add(&mut self, name: &'static str, ranges: &[(u64, u64)]) {
        let file = make(&self.files, name);
        let mut kept = Kept { name, file, bytes: Vec::new(), space: 0 };
        for &(at, len) in ranges {
            let bytes = self.bytes(len);
            let end = (at + len) as usize;
            if kept.bytes.len() < end {
                kept.bytes.resize(end, 0);
            }
            kept.bytes[at as usize..end].copy_from_slice(&bytes);
            let done = self.files.write(&root_user(), file, WriteAt::Offset(at), &bytes).unwrap();
            assert_eq!(done, (at, len));
        }
        self.files.trim(file).unwrap();
        kept.space = kept.bytes.len() as u64;
        self.kept.push(kept);
    }

    fn add_ahead(&mut self) {
        let file = make(&self.files, AHEAD);
        for (from, len, keeps_size) in [(0, 50_000, false), (50_000, 3 * MIB, true)] {
            let how = Allocate::Space { keeps_size };
            self.files.allocate(&root_user(), file, how, from, len).unwrap();
        }
        let space = 50_000 + 3 * MIB;
        self.kept.push(Kept { name: AHEAD, file, bytes: vec![0; 50_000], space });
    }

    /// Fills the store until not even an inode can be had.
    fn fill(&mut self) {
        let who = &root_user();
        let filler = make(&self.files, "filler");
        let block = vec![0xF1; MIB as usize];
        for len in [MIB, PAGE] {
            loop {
                let bytes = &block[..len as usize];
                match self.files.write(who, filler, WriteAt::End, bytes) {
                    Ok((_, done)) if done == len => {}
                    Ok(_) => break,
                    done => {
                        assert!(is_full(&done), "{done:?}");
                        break;
                    }
                }
            }
        }
        // Objects of all sizes, too.
        for len in [2048, 64, 900] {
            for number in 0.. {
                let name = format!("filler {len} {number}");
                let made =
                    self.files.create(who, self.files.root(), name.as_bytes(), New::Regular, 0o600);
                if is_full(&made) {
                    break;
                }
                let file = made.unwrap();
                let done = self.files.write(who, file, WriteAt::End, &block[..len]);
                if is_full(&done) {
                    break;
                }
                done.unwrap();
            }
        }
        let done = self.files.write(who, filler, WriteAt::End, &block[..PAGE as usize]);
        assert!(is_full(&done), "{done:?}");
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let word = self.rng.word();
        (0..len).map(|index| (word >> (index % 7 * 8)) as u8 | 1).collect()
    }

    fn check(&self) {
        for kept in &self.kept {
            let mut found = vec![9; kept.bytes.len()];
            let len = self.files.read_file(kept.file, 0, &mut found).unwrap();
            assert_eq!(len, kept.bytes.len(), "{}", kept.name);
            let wrong = found.iter().zip(&kept.bytes).position(|(found, wanted)| found != wanted);
            assert_eq!(wrong, None, "{}", kept.name);
        }
    }

    fn check_all(&self) {
        self.check();
        judge_attached(self.files.core()).unwrap();
        assert_eq!(self.files.check().unwrap().findings, []);
    }

    /// Writes to, or zeros, `len` bytes of file `number` from `at` on, all in space that it has.
    fn overwrite(&mut self, number: usize, at: u64, len: u64, zeros: bool) {
        let bytes = if zeros { vec![0; len as usize] } else { self.bytes(len) };
        let kept = &mut self.kept[number];
        let who = &root_user();
        let what = format!("{} bytes at {at} of {}", bytes.len(), kept.name);
        if zeros {
            let how = Allocate::Zeros { keeps_size: false };
            let done = self.files.allocate(who, kept.file, how, at, len);
            assert!(done.is_ok(), "{what}: {done:?}");
        } else {
            let done = self.files.write(who, kept.file, WriteAt::Offset(at), &bytes);
            assert!(matches!(done, Ok(found) if found == (at, len)), "{what}: {done:?}");
        }
        let end = (at + len) as usize;
        if kept.bytes.len() < end {
            kept.bytes.resize(end, 0);
        }
        kept.bytes[at as usize..end].copy_from_slice(&bytes);
    }

    /// The holes of file `number`: overwriting them may fail.
    fn is_covered(&self, number: usize, at: u64, len: u64) -> bool {
        let kept = &self.kept[number];
        if at >= kept.bytes.len() as u64 {
            return true;
        }
        self.files.seek(kept.file, Seek::Hole, at).unwrap()
            >= (at + len).min(kept.bytes.len() as u64)
    }
}

#[test]
fn overwriting_what_a_file_has_always_succeeds() {
    for seed in 0..4 {
        let mut store = Store::full(seed);
        store.check_all();
        let before = store.files.core().pages_used();
        for round in 0..600 {
            let number = store.rng.below(store.kept.len() as u64) as usize;
            let space = store.kept[number].space;
            let most = [40, 1500, 2 * PAGE, 40 * PAGE, space][store.rng.below(5) as usize];
            let len = 1 + store.rng.below(most.min(space));
            let mut at = store.rng.below(space - len + 1);
            if store.rng.chance(1, 3) {
                at = at / PAGE * PAGE;
            }
            let zeros = store.rng.chance(1, 6);
            if store.is_covered(number, at, len) {
                store.overwrite(number, at, len, zeros);
            }
            if round % 20 == 0 {
                store.check();
            }
        }
        store.check_all();
        assert!(store.files.core().pages_used() <= before);
        // Whole files.
        for number in 0..store.kept.len() {
            let len = store.kept[number].space;
            if store.is_covered(number, 0, len) {
                store.overwrite(number, 0, len, false);
            }
        }
        store.check_all();
    }
}

#[test]
fn pages_that_are_too_few_are_given_back() {
    let mut store = Store::full(5);
    let run = store.kept.iter().position(|kept| kept.name == "run").unwrap();
    let filler = store.files.lookup(&root_user(), store.files.root(), b"filler").unwrap();
    let (filler, _) = filler.unwrap();
    for page in [10, 300] {
        let size = store.files.stat(filler).unwrap().size;
        store.files.truncate(&root_user(), filler, size - PAGE).unwrap();
        let before = store.files.core().pages_used();
        // A page of a run can only be replaced if there is one for a node, too.
        store.overwrite(run, page * PAGE, 3 * PAGE, false);
        assert_eq!(store.files.core().pages_used(), before);
        store.check_all();
        // Fills the page again.
        let done = store.files.write(&root_user(), filler, WriteAt::End, &[1; PAGE as usize]);
        assert!(matches!(done, Ok((_, PAGE))), "{done:?}");
    }
}

#[test]
fn a_full_store_can_be_emptied() {
    let store = Store::full(7);
    let who = &root_user();
    for kept in &store.kept {
        store.files.truncate(who, kept.file, kept.bytes.len() as u64 / 3).unwrap();
    }
    judge_attached(store.files.core()).unwrap();
    let root = store.files.root();
    let mut room = vec![0; 1 << 20];
    for entry in store.files.list(root, 2, &mut room).unwrap() {
        store.files.remove(who, root, entry.name, Removal::File).unwrap();
    }
    judge_attached(store.files.core()).unwrap();
    assert_eq!(store.files.check().unwrap().findings, []);
    assert_eq!(store.files.list(root, 2, &mut room).unwrap().next(), None);
    assert!(store.files.core().pages_used() < 100, "{}", store.files.core().pages_used());
}
