//! Operations on names and contents by several processes at once, in random schedules: there is an
//! order of them that explains every result and the tree in the end (linearizability).
//!
//! Reading at a position that others share is two steps there: the look at the bytes, and moving
//! the position, which has to be where it was.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conquest_access::Removal;
use conquest_format::checksum;
use conquest_fs::content::WriteAt;
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::{How, OpenFile, Whence};
use conquest_fs::{Errno, Error, FileId};
use conquest_testkit::files::{LISTING, SimFiles, attach, base, describe, root_user, shape};
use conquest_testkit::judge::judge;
use conquest_testkit::schedule::{ScheduleOptions, Search, run};
use conquest_testkit::{Actor, DyingMemory, Image, RecordingMemory, Rng, World};

const ACTORS: u32 = 3;
/// Operations of each actor.
const EACH: usize = 2;
const RUNS: u64 = 2000;

/// Directories, by their names in the first tree, of which all are in the root directory.
const DIRECTORIES: [&str; 4] = ["", "d", "e", "k"];
/// Names; the last one fills a bucket of `k`.
const NAMES: [&str; 6] = ["a", "d", "e", "f", "n", "long"];

/// A name in a directory: numbers of the two.
type Place = (usize, usize);

/// An operation on files that were looked up before. (A path is walked before the operation on
/// where it leads, so the two are not one: as with the kernel's calls.)
#[derive(Clone, Copy, Debug)]
enum Op {
    Make(Place),
    MakeDirectory(Place),
    Symlink(Place),
    /// Gives the file `a` a name.
    Link(Place),
    Unlink(Place),
    RemoveDirectory(Place),
    Rename(Place, Place, Renaming),
    /// Sets the mode of the file `a`.
    SetMode(u32),
    /// Links and mode of the file `a`.
    Stat,
    List(usize),
    LookUp(Place),
    /// Reads all of one of the files with content.
    Read(usize),
    /// Writes so many bytes to this place of one of them, or to the end.
    Write(usize, Option<u64>, u64),
    Truncate(usize, u64),
    /// So many bytes at the position of a description that all share.
    ReadNext(usize),
    /// Its two steps.
    Look(usize),
    Move,
    WriteNext(u64),
    Seek(i64, Whence),
}

impl Op {
    fn random(rng: &mut Rng) -> Op {
        let how = [
            Renaming::Replace,
            Renaming::Replace,
            Renaming::NoReplace,
            Renaming::Exchange,
            Renaming::Whiteout,
        ];
        let mut place = || {
            let directory = rng.below(DIRECTORIES.len() as u64) as usize;
            (directory, rng.below(NAMES.len() as u64) as usize)
        };
        let (first, second) = (place(), place());
        let (which, len) = (rng.below(2) as usize, 1 + rng.below(6000));
        match rng.below(36) {
            28..=30 => Op::WriteNext(1 + rng.below(200)),
            31 | 32 => Op::ReadNext(1 + rng.below(60) as usize),
            33 => Op::Seek(0, Whence::Current),
            34 => Op::Seek(rng.below(40) as i64 - 20, Whence::Current),
            35 => Op::Seek(rng.below(90) as i64, Whence::Start),
            20 | 21 => Op::Read(which),
            22 | 23 => Op::Write(which, Some(rng.below(12_000)), len),
            24 | 25 => Op::Write(which, None, len),
            26 => Op::Write(which, Some(rng.below(100)), 1 + len / 8),
            27 => Op::Truncate(which, rng.below(12_000)),
            0 | 1 => Op::Make(first),
            2 | 3 => Op::MakeDirectory(first),
            4 => Op::Symlink(first),
            5 => Op::Link(first),
            6 | 7 => Op::Unlink(first),
            8 | 9 => Op::RemoveDirectory(first),
            10 => Op::SetMode(rng.below(0o777) as u32),
            11 => Op::Stat,
            12 => Op::List(first.0),
            13 => Op::LookUp(first),
            _ => Op::Rename(first, second, how[rng.below(how.len() as u64) as usize]),
        }
    }

    /// Does it; what it tells.
    fn perform(self, files: &SimFiles, known: &Known) -> Result<String, Error> {
        let who = &root_user();
        let directory = |place: Place| known.directories[place.0];
        let name = |place: Place| match NAMES[place.1] {
            "long" => "l".repeat(255).into_bytes(),
            name => name.as_bytes().to_vec(),
        };
        let make = |place, what| files.create(who, directory(place), &name(place), what, 0o755);
        let nothing = |()| String::new();
        match self {
            Op::Make(place) => make(place, New::Regular).map(drop).map(nothing),
            Op::MakeDirectory(place) => make(place, New::Directory).map(drop).map(nothing),
            Op::Symlink(place) => make(place, New::Symlink(b"nowhere")).map(drop).map(nothing),
            Op::Link(place) => {
                files.link(who, known.file, directory(place), &name(place)).map(nothing)
            }
            Op::Unlink(place) => {
                files.remove(who, directory(place), &name(place), Removal::File).map(nothing)
            }
            Op::RemoveDirectory(place) => {
                files.remove(who, directory(place), &name(place), Removal::Directory).map(nothing)
            }
            Op::Rename(old, new, how) => files
                .rename(who, directory(old), &name(old), directory(new), &name(new), how)
                .map(nothing),
            Op::SetMode(mode) => files.set_mode(who, known.file, mode).map(nothing),
            Op::Stat => files.stat(known.file).map(|stat| format!("{} {}", stat.mode, stat.links)),
            Op::List(number) => {
                let mut room = vec![0; LISTING];
                let listed = files.list(known.directories[number], 0, &mut room)?;
                let told = listed.map(|entry| (entry.name, entry.file_type));
                Ok(format!("{:?}", told.collect::<Vec<_>>()))
            }
            Op::LookUp(place) => {
                let found = files.lookup(who, directory(place), &name(place))?;
                let is_known = |file| file == known.file || known.directories.contains(&file);
                Ok(format!("{:?}", found.map(|(file, what)| (what, is_known(file)))))
            }
            Op::Read(which) => {
                let mut bytes = vec![0; 1 << 16];
                let len = files.read_file(known.contents[which], 0, &mut bytes)?;
                Ok(told(&bytes[..len]))
            }
            Op::Write(which, at, len) => {
                let bytes: Vec<u8> = (0..len).map(|index| (len + index) as u8 | 1).collect();
                let at = at.map_or(WriteAt::End, WriteAt::Offset);
                let written = files.write(who, known.contents[which], at, &bytes)?;
                Ok(format!("{written:?}"))
            }
            Op::Look(_) | Op::Move => unreachable!("only steps of an order"),
            Op::ReadNext(len) => {
                let mut bytes = vec![0; len];
                let len = files.read_next(&known.open, &mut bytes)?;
                Ok(told(&bytes[..len]))
            }
            Op::WriteNext(len) => {
                let bytes = vec![len as u8 | 1; len as usize];
                Ok(files.write_next(who, &known.open, &bytes)?.to_string())
            }
            Op::Seek(offset, whence) => Ok(files.seek_to(&known.open, offset, whence)?.to_string()),
            Op::Truncate(which, size) => {
                files.truncate(who, known.contents[which], size).map(nothing)
            }
        }
    }
}

/// Files of the first tree.
struct Known {
    file: FileId,
    directories: Vec<FileId>,
    /// One with packed content, and one with a tree.
    contents: [FileId; 2],
    /// The one with packed content.
    open: OpenFile,
}

impl Known {
    /// What is known to each of `all`.
    fn of_all(all: &[SimFiles]) -> Vec<Known> {
        let (first, others) = all.split_first().unwrap();
        let how = How::from_open(libc::O_RDWR as u32, 0).unwrap();
        let file = first.lookup(&root_user(), first.root(), b"a").unwrap().unwrap().0;
        let open = first.open_file(&root_user(), file, &how).unwrap();
        let mut known = vec![Known::new(first, open)];
        for files in others {
            let parcel = first.core().parcel().unwrap();
            first.pack(&parcel, &open).unwrap();
            let parcel = files.core().receive(parcel.slot(), parcel.into_carried()).unwrap();
            known.push(Known::new(files, files.unpack(parcel).unwrap()[0].1));
        }
        known
    }

    fn new(files: &SimFiles, open: OpenFile) -> Known {
        let find = |name: &str| match name {
            "" => files.root(),
            name => {
                let found = files.lookup(&root_user(), files.root(), name.as_bytes());
                found.unwrap().unwrap().0
            }
        };
        let directories = DIRECTORIES.map(find).to_vec();
        let tree = files.lookup(&root_user(), find("e"), b"f").unwrap().unwrap().0;
        Known { file: find("a"), directories, contents: [find("a"), tree], open }
    }
}

type Outcome = Result<String, Errno>;

/// What the bytes are in which `len` were read.
fn told(bytes: &[u8]) -> String {
    format!("{} {:x}", bytes.len(), checksum(0, bytes))
}

/// What readers at the shared position have seen: of each actor, where, and how many bytes.
type Looks = [(u64, u64); ACTORS as usize];

/// Does a step of an order.
fn step(files: &SimFiles, known: &Known, looks: &mut Looks, done: &Done) -> Outcome {
    let look = &mut looks[done.actor];
    match done.op {
        Op::Look(len) => {
            let mut bytes = vec![0; len];
            let from = files.position(&known.open);
            let read = files.read_at(&known.open, from, &mut bytes);
            let len = read.map_err(|error| error.errno())?;
            *look = (from, len as u64);
            Ok(told(&bytes[..len]))
        }
        // At the end there is nothing to move over.
        Op::Move if look.1 == 0 => Ok(String::new()),
        Op::Move if files.position(&known.open) == look.0 => {
            let to = (look.0 + look.1) as i64;
            let moved = files.seek_to(&known.open, to, Whence::Start);
            moved.map(|_| String::new()).map_err(|error| error.errno())
        }
        Op::Move => Err(Errno::EAGAIN),
        op => attempt(files, known, op),
    }
}

type Step = (Done, Option<usize>);

/// The steps of a history, each with the one that comes before it in any case.
fn steps(history: &[Done]) -> Vec<Step> {
    let mut steps = Vec::new();
    for done in history {
        match (done.op, &done.outcome) {
            (Op::ReadNext(len), Ok(_)) => {
                steps.push((Done { op: Op::Look(len), ..done.clone() }, None));
                let moved = Done { op: Op::Move, outcome: Ok(String::new()), ..done.clone() };
                steps.push((moved, Some(steps.len() - 1)));
            }
            _ => steps.push((done.clone(), None)),
        }
    }
    steps
}

/// An operation that was done: between two moments.
#[derive(Clone, Debug)]
struct Done {
    actor: usize,
    op: Op,
    outcome: Outcome,
    begun: u64,
    ended: u64,
}

fn attempt(files: &SimFiles, known: &Known, op: Op) -> Outcome {
    op.perform(files, known).map_err(|error| error.errno())
}

/// The tree, and the position that all share.
fn tell(files: &SimFiles, known: &Known) -> Result<String, String> {
    Ok(format!("{}position {}", describe(files)?, files.position(&known.open)))
}

/// What trees there are, by what was done to the first one.
struct Trees {
    image: Arc<Image>,
    known: HashMap<Vec<usize>, (Vec<Outcome>, String)>,
}

impl Trees {
    /// The outcomes of the operations of `history` that `order` names, done one after the other,
    /// and the tree after them.
    fn after(&mut self, history: &[Step], order: &[usize]) -> &(Vec<Outcome>, String) {
        let image = &self.image;
        self.known.entry(order.to_vec()).or_insert_with(|| {
            let geometry = conquest_format::Geometry::new(shape()).unwrap();
            let memory = RecordingMemory::new(Arc::clone(image), geometry.volatile(), false);
            let world = World::new(memory.clock());
            let files = attach(DyingMemory::counting(memory.actor(0)), &world, 0).unwrap();
            let known = &Known::of_all(core::slice::from_ref(&files))[0];
            let mut looks = Looks::default();
            let perform = |&index: &usize| step(&files, known, &mut looks, &history[index].0);
            let done = order.iter().map(perform).collect();
            (done, tell(&files, known).unwrap())
        })
    }
}

/// Whether the rest of the history can follow `order` in some order.
fn is_explained(trees: &mut Trees, history: &[Step], order: &mut Vec<usize>, end: &str) -> bool {
    let (outcomes, tree) = trees.after(history, order);
    if let (Some(&last), Some(outcome)) = (order.last(), outcomes.last())
        && *outcome != history[last].0.outcome
    {
        return false;
    }
    if order.len() == history.len() {
        return tree == end;
    }
    for index in 0..history.len() {
        let (next, before) = &history[index];
        let is_next = !order.contains(&index)
            && before.is_none_or(|before| order.contains(&before))
            && (0..history.len())
                .filter(|other| !order.contains(other))
                .all(|other| history[other].0.ended >= next.begun || other == index);
        if is_next {
            order.push(index);
            let found = is_explained(trees, history, order, end);
            order.pop();
            if found {
                return true;
            }
        }
    }
    false
}

/// The operations of one actor in run `run`.
fn script(run: u64, actor: u32) -> Vec<Op> {
    let mut rng = Rng::stream(run, u64::from(actor));
    (0..EACH).map(|_| Op::random(&mut rng)).collect()
}

struct State {
    number: u64,
    files: Vec<SimFiles>,
    known: Vec<Known>,
    time: AtomicU64,
    history: Mutex<Vec<Done>>,
}

#[test]
fn every_history_is_one_of_operations_in_some_order() {
    let image = base(true).unwrap();
    let geometry = conquest_format::Geometry::new(shape()).unwrap();
    let runs = std::env::var("CONQUEST_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let options = ScheduleOptions {
        actors: ACTORS,
        search: Search::Random { seed: 17, first: 0, runs },
        step_time: core::time::Duration::from_micros(20),
        steps: 1_000_000,
        ..ScheduleOptions::default()
    };
    let mut number = 0;
    let setup = || {
        number += 1;
        let memory = RecordingMemory::new(Arc::clone(&image), geometry.volatile(), false);
        let world = World::new(memory.clock());
        let process = |id| attach(DyingMemory::counting(memory.actor(id)), &world, id).unwrap();
        let files: Vec<SimFiles> = (0..ACTORS).map(process).collect();
        let known = Known::of_all(&files);
        let (time, history) = (AtomicU64::new(0), Mutex::default());
        (memory, State { number, files, known, time, history })
    };
    let body = |state: &State, id: u32, _: &Actor| {
        let now = || state.time.fetch_add(1, Ordering::SeqCst);
        for op in script(state.number, id) {
            let begun = now();
            let outcome = attempt(&state.files[id as usize], &state.known[id as usize], op);
            let (actor, ended) = (id as usize, now());
            state.history.lock().unwrap().push(Done { actor, op, outcome, begun, ended });
        }
        Ok(())
    };
    let mut met = 0;
    let verdict = |state: &State, memory: &RecordingMemory| {
        let history = state.history.lock().unwrap().clone();
        let end = tell(&state.files[0], &state.known[0])?;
        judge(memory.image())?;
        let mut trees = Trees { image: Arc::clone(&image), known: HashMap::new() };
        let overlap = |one: &Done| {
            history.iter().any(|other| {
                other.actor != one.actor && other.begun < one.ended && one.begun < other.ended
            })
        };
        met += history.iter().filter(|one| overlap(one)).count();
        if is_explained(&mut trees, &steps(&history), &mut Vec::new(), &end) {
            return Ok(conquest_format::checksum(0, end.as_bytes()));
        }
        Err(format!("no order explains {history:#?}, which left\n{end}"))
    };
    let found = run(&options, setup, body, verdict);
    println!("{found}; {met} operations overlapped");
    assert_eq!(found.failed, 0, "{found}");
    assert!(met as u64 > runs * 3, "{met}");
}
