//! File systems of the kernel on a volume, in turn with the same on a bare device.
//!
//! DFS measures devices at random and in order (Figures 4 and 5: 4 KiB as fast as can be, and
//! 1 MiB by two threads, past the kernel's cache), ext3 on its layer in the same way (Figures 7 and
//! 8, by 1 to 32 threads, on blocks that were allocated before), and applications by the time that
//! they take (Figure 13). Here it is the same file system on both sides, so what differs is what is
//! below it: a volume behind FUSE and a loop device, or a file behind a loop device.
//!
//! Each slice that writes ends when what it wrote is durable: the time for that counts.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::volume_pair::batches;
use super::{Experiment, Need, On, Pair, Phase, Run, Size, Unit, in_range};
use crate::calls::{CallError, Outcome};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;
use crate::target::{ON_DEVICE, ON_VOLUME};
use crate::volume::UNIT;
use crate::volume::aged::LARGE;
use crate::volume::flow::{self, Raw, Until, Way, flow};
use crate::volume::slices::{Taken, in_turn, until};

/// The experiment.
pub(super) struct VolumeFilesystems;

/// Requests of a unit under way at once.
const DEPTH: u32 = 32;
/// Large ones, as in the paper.
const DEPTH_LARGE: u32 = 2;
/// Most bytes of a file of a tree; half of that on average.
const TREE_FILE: u64 = 16 << 10;
/// Files of a directory of a tree.
const IN_DIRECTORY: u64 = 20;
/// The large file is at most one of so many parts of the device.
const PARTS: u64 = 2;

/// Each phase on a volume, followed by the same on the bare device.
const PHASES: [Phase; 18] = [
    phase("write-large", Unit::Bytes),
    phase("device-write-large", Unit::Bytes),
    phase("read-large", Unit::Bytes),
    phase("device-read-large", Unit::Bytes),
    phase("write", Unit::Requests),
    phase("device-write", Unit::Requests),
    phase("write-32", Unit::Requests),
    phase("device-write-32", Unit::Requests),
    phase("read", Unit::Requests),
    phase("device-read", Unit::Requests),
    phase("read-32", Unit::Requests),
    phase("device-read-32", Unit::Requests),
    phase("create-sync", Unit::Files),
    phase("device-create-sync", Unit::Files),
    phase("unpack", Unit::Files),
    phase("device-unpack", Unit::Files),
    phase("remove", Unit::Files),
    phase("device-remove", Unit::Files),
];
const PAIRS: [Pair; 9] = [
    pair("writes of 1 MiB in order, 2 under way", ["write-large", "device-write-large"]),
    pair("reads of 1 MiB in order, 2 under way", ["read-large", "device-read-large"]),
    pair("writes of 4 KiB at random, one at a time", ["write", "device-write"]),
    pair("writes of 4 KiB at random, 32 under way", ["write-32", "device-write-32"]),
    pair("reads of 4 KiB at random, one at a time", ["read", "device-read"]),
    pair("reads of 4 KiB at random, 32 under way", ["read-32", "device-read-32"]),
    pair("small files, each synced", ["create-sync", "device-create-sync"]),
    pair("trees unpacked, each synced as a whole", ["unpack", "device-unpack"]),
    pair("trees removed, each synced as a whole", ["remove", "device-remove"]),
];

const fn phase(id: &'static str, unit: Unit) -> Phase {
    Phase { id, unit, part: 0 }
}

/// Nothing is aimed at: how these compare is to be known.
const fn pair(id: &'static str, phases: [&'static str; 2]) -> Pair {
    Pair { id, phases, aim: None, other_aims: &[] }
}

impl Experiment for VolumeFilesystems {
    fn id(&self) -> &'static str {
        "volume-filesystems"
    }

    fn about(&self) -> &'static str {
        "file systems of the kernel on a volume, in turn with the same on a bare device"
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn pairs(&self) -> &'static [Pair] {
        &PAIRS
    }

    fn on(&self) -> On {
        On::Twins
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |mebibytes, file, [slices, slice]: [u64; 2], [trees, files]: [u64; 2]| {
            Parameters::of(&[
                ("mebibytes", mebibytes),
                ("file", file),
                ("slices", slices),
                ("slice", slice),
                ("trees", trees),
                ("files", files),
            ])
        };
        vec![match size {
            Size::Smoke => point(448, 8, [1, 5], [1, 40]),
            Size::Short => point(1024, 256, [15, 50], [5, 200]),
            Size::Full => point(4096, 1024, [40, 100], [20, 1000]),
        }]
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        // XFS takes no less than 300 MiB, of which a volume of so much has more.
        let mebibytes = in_range(parameters, "mebibytes", 448..=1 << 20)?;
        in_range(parameters, "file", 1..=mebibytes / PARTS)?;
        in_range(parameters, "slices", 1..=1 << 20)?;
        in_range(parameters, "slice", 1..=60_000)?;
        let trees = in_range(parameters, "trees", 1..=1 << 16)?;
        let files = in_range(parameters, "files", 1..=1 << 20)?;
        let bytes = mebibytes << 20;
        // One tree more than count. The rest is for those that are synced one by one.
        let all = (trees + 1) * files;
        if all * TREE_FILE > bytes / 4 {
            let most = bytes / 4 / TREE_FILE;
            return Err(format!("trees and files make {all} files, of at most {most}"));
        }
        Ok(Need { bytes, files: 2 * all + (32 << 10), ..Need::default() })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let parameters = run.parameters.clone();
        let number = |name: &str| parameters.get(name);
        let mut random = run.random.clone();
        let content = random.bytes(LARGE as usize);
        let bytes = number("file") << 20;
        let sides =
            [Side::new(ON_VOLUME, bytes, &content)?, Side::new(ON_DEVICE, bytes, &content)?];
        let work = Work {
            sides,
            content,
            bytes,
            slices: number("slices"),
            slice: Duration::from_millis(number("slice")),
            trees: number("trees"),
            files: number("files"),
        };
        run.begin_all();
        let all = work.all(&mut random)?;
        let pairs = PAIRS.iter().zip(&all);
        let phases =
            pairs.flat_map(|(pair, (both, bytes))| batches(run, pair, both, *bytes)).collect();
        run.end_all(phases);
        Ok(())
    }
}

/// One of the two file systems.
struct Side {
    root: PathBuf,
    /// A file that is all there, open past the kernel's cache.
    file: File,
    /// Small files that were made.
    made: Cell<u64>,
}

/// Both, and what is done on them.
struct Work {
    sides: [Side; 2],
    content: Vec<u8>,
    /// Of the large file of each.
    bytes: u64,
    slices: u64,
    slice: Duration,
    trees: u64,
    files: u64,
}

fn of(call: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> CallError {
    let path = Some(path.display().to_string());
    move |source| CallError { call, path, source }
}

impl Side {
    /// The one in the directory `root`, with a file of `bytes` bytes, repeats of `content`.
    fn new(root: &str, bytes: u64, content: &[u8]) -> Outcome<Side> {
        let path = Path::new(root).join("large");
        let flags = OFlags::DIRECT.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(flags);
        let file = options.open(&path).map_err(of("open", &path))?;
        let mut buffers = flow::buffers(1, content)?;
        for at in (0..bytes).step_by(content.len().max(1)) {
            for buffer in &mut buffers {
                file.write_all_at(buffer, at).map_err(of("pwrite", &path))?;
            }
        }
        file.sync_all().map_err(of("fsync", &path))?;
        Ok(Side { root: root.into(), file, made: Cell::new(0) })
    }

    /// Makes what was written to the large file durable.
    fn sync(&self) -> Outcome<()> {
        self.file.sync_data().map_err(|source| CallError::of("fdatasync", source))
    }

    /// A new small file, with `content`.
    fn create(&self, path: &Path, content: &[u8]) -> Outcome<File> {
        let mut file = File::create_new(path).map_err(of("open", path))?;
        file.write_all(content).map_err(of("write", path))?;
        Ok(file)
    }

    fn directory(&self, path: &Path) -> Outcome<()> {
        DirBuilder::new().create(path).map_err(of("mkdir", path))
    }

    /// Makes all that was done to the file system durable.
    fn sync_all(&self) -> Outcome<()> {
        let root = File::open(&self.root).map_err(of("open", &self.root))?;
        rustix::fs::syncfs(&root).map_err(|error| of("syncfs", &self.root)(error.into()))
    }

    /// Where tree number `number` is.
    fn tree(&self, number: u64) -> PathBuf {
        self.root.join(format!("tree-{number}"))
    }

    /// Unpacks tree number `number` of `files` files with parts of `content`: how many there are.
    fn unpack(&self, number: u64, files: u64, content: &[u8]) -> Outcome<u64> {
        // The same on both sides.
        let mut random = Random::new(number);
        let tree = self.tree(number);
        self.directory(&tree)?;
        for file in 0..files {
            let directory = tree.join((file / IN_DIRECTORY).to_string());
            if file.is_multiple_of(IN_DIRECTORY) {
                self.directory(&directory)?;
            }
            let len = 1 + random.below(TREE_FILE);
            let bytes = content.get(..len as usize).unwrap_or(content);
            self.create(&directory.join(file.to_string()), bytes)?;
        }
        self.sync_all()?;
        Ok(files)
    }

    /// Removes tree number `number` of `files` files: how many there were.
    fn remove(&self, number: u64, files: u64) -> Outcome<u64> {
        let tree = self.tree(number);
        std::fs::remove_dir_all(&tree).map_err(of("unlink", &tree))?;
        self.sync_all()?;
        Ok(files)
    }

    /// Makes one small file more, and makes it durable, with its name.
    fn create_synced(&self, content: &[u8]) -> Outcome<u64> {
        let number = self.made.replace(self.made.get() + 1);
        let mut name = OsString::from("small-");
        name.push(number.to_string());
        let path = self.root.join(name);
        let file = self.create(&path, content)?;
        file.sync_all().map_err(of("fsync", &path))?;
        Ok(1)
    }
}

/// What both sides took of a phase, and the bytes of a unit that it counts.
type Found = ([Taken; 2], u64);

impl Work {
    /// All phases, in order. Reads at random come behind writes at random: what is next to each
    /// other in the file is not so on the volume's device then.
    fn all(&self, random: &mut Random) -> Outcome<Vec<Found>> {
        Ok(vec![
            (self.large(Way::Write, random)?, LARGE),
            (self.large(Way::Read, random)?, LARGE),
            (self.one_by_one(Way::Write, random)?, 1),
            (self.side_by_side(Way::Write, random)?, 1),
            (self.one_by_one(Way::Read, random)?, 1),
            (self.side_by_side(Way::Read, random)?, 1),
            (self.create_synced(random)?, 1),
            (self.each_tree(random, |side, tree| side.unpack(tree, self.files, &self.content))?, 1),
            (self.each_tree(random, |side, tree| side.remove(tree, self.files))?, 1),
        ])
    }

    fn unit(&self) -> &[u8] {
        self.content.get(..UNIT as usize).unwrap_or_default()
    }

    /// Lets both sides do `work` in turn.
    fn in_turn(
        &self,
        count: u64,
        random: &mut Random,
        mut work: impl FnMut(&Side, usize) -> Outcome<u64>,
    ) -> Outcome<[Taken; 2]> {
        let [ours, other] = &self.sides;
        let work = std::cell::RefCell::new(&mut work);
        in_turn(count, random, || (work.borrow_mut())(ours, 0), || (work.borrow_mut())(other, 1))
    }

    /// One request after the other, at random.
    fn one_by_one(&self, way: Way, random: &mut Random) -> Outcome<[Taken; 2]> {
        let mut buffers = flow::buffers(1, self.unit())?;
        let Some(buffer) = buffers.first_mut() else {
            return Ok(Default::default());
        };
        let mut places = Random::new(random.number());
        let failed = |source| CallError::of("transfer", source);
        self.in_turn(self.slices, random, |side, _| {
            let done = until(self.slice, || {
                let at = places.below(self.bytes / UNIT) * UNIT;
                match way {
                    Way::Read => side.file.read_exact_at(buffer, at),
                    Way::Write => side.file.write_all_at(buffer, at),
                }
                .map_err(failed)?;
                Ok(1)
            })?;
            self.durable(side, way, done)
        })
    }

    /// Many requests at once, at random.
    fn side_by_side(&self, way: Way, random: &mut Random) -> Outcome<[Taken; 2]> {
        let (unit, depth) = (self.unit(), DEPTH);
        let mut places = Random::new(random.number());
        let units = self.bytes / UNIT;
        self.flowing((way, depth), unit, random, || places.below(units) * UNIT)
    }

    /// Large requests in order, from the first byte to the last, and again.
    fn large(&self, way: Way, random: &mut Random) -> Outcome<[Taken; 2]> {
        // Both sides have their share of the places in order.
        let mut number = 0;
        self.flowing((way, DEPTH_LARGE), &self.content, random, || {
            number += 1;
            number * LARGE % self.bytes
        })
    }

    /// Requests of as many bytes as `content` has, so many at once, at what `next` says.
    fn flowing(
        &self,
        (way, depth): (Way, u32),
        content: &[u8],
        random: &mut Random,
        mut next: impl FnMut() -> u64,
    ) -> Outcome<[Taken; 2]> {
        let mut buffers = flow::buffers(depth as usize, content)?;
        let [ours, other] = &self.sides;
        let mut queues = [Raw::new(&ours.file, depth, 0)?, Raw::new(&other.file, depth, 0)?];
        self.in_turn(self.slices, random, |side, number| {
            let Some(queue) = queues.get_mut(number) else { return Ok(0) };
            let until = Until::Time(self.slice);
            let done = flow(queue, &mut buffers, way, until, &mut next, &mut |_| {})?;
            self.durable(side, way, done)
        })
    }

    /// What `side` has `done`, when it is durable.
    fn durable(&self, side: &Side, way: Way, done: u64) -> Outcome<u64> {
        match way {
            Way::Read => Ok(done),
            Way::Write => side.sync().map(|()| done),
        }
    }

    fn create_synced(&self, random: &mut Random) -> Outcome<[Taken; 2]> {
        self.in_turn(self.slices, random, |side, _| {
            until(self.slice, || side.create_synced(self.unit()))
        })
    }

    /// Does `work` to one tree after the other.
    fn each_tree(
        &self,
        random: &mut Random,
        work: impl Fn(&Side, u64) -> Outcome<u64>,
    ) -> Outcome<[Taken; 2]> {
        let mut next = [0; 2];
        self.in_turn(self.trees, random, |side, number| {
            let Some(tree) = next.get_mut(number) else { return Ok(0) };
            *tree += 1;
            work(side, *tree)
        })
    }
}
