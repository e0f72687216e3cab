//! What is done with files, and with what makes them durable.

use conquest_access::Removal;
use conquest_fs::content::{Allocate, WriteAt};
use conquest_fs::locks::Wait;
use conquest_fs::names::{New, Renaming};
use conquest_fs::open::{End, How};
use conquest_fs::paths::Path;
use conquest_fs::walk::Base;
use conquest_fs::xattr::Setting;
use conquest_fs::{Errno, Error, FileId};
use std::sync::Arc;

use super::machine::{Process, not_durable};
use super::tree::{ATTRIBUTE, File, P, Tree, content};
use crate::Rng;
use crate::files::root_user;

/// Names that each actor has, half of them in the directory that all share.
const NAMES: u64 = 6;
/// Pages that the files of an actor have, in all, before some are removed.
const PAGES_MOST: u64 = 330;

/// Pages from which on a write goes to the volume at once.
const DIRECT_PAGES: u64 = 64;

/// An operation. Names are those of its actor; places and lengths are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Makes an empty file.
    Make(String),
    /// Writes so many bytes to this place.
    Write(String, u64, u64),
    /// The same by a descriptor, which is closed: what is in the core is pushed then.
    WriteAndClose(String, u64, u64),
    /// The same of whole pages with `O_DIRECT`: of a large file they go to the volume at once.
    Direct(String, u64, u64),
    /// Writes so many bytes to the end.
    Append(String, u64),
    /// Sets the size.
    Truncate(String, u64),
    /// Makes a hole, zeros or space.
    Range(String, Allocate, u64, u64),
    /// Renames; the second name may be taken.
    Rename(String, String),
    /// Exchanges two names.
    Exchange(String, String),
    /// Gives a file another name.
    Link(String, String),
    /// Removes a name.
    Unlink(String),
    /// Makes a file without a name, writes so many bytes to it, and gives it the name.
    Temporary(String, u64),
    /// Copies so many bytes from this place of the first file to that one of the second.
    Copy(String, u64, String, u64, u64),
    /// Gives a file an attribute of so many bytes, or none.
    Attribute(String, Option<u64>),
    /// Sets the permissions.
    Mode(String, u32),
    /// Pushes what is in the core of a file, which may be another actor's.
    Push(String, Wait),
    /// Makes all durable.
    Sync,
    /// What a keeper does: pushes what is to be pushed, whosever it is, and makes all durable.
    Keep,
    /// Writes a checkpoint of the core.
    Checkpoint,
    /// Trims what nobody needs.
    Trim,
    /// Writes a checkpoint of the volume.
    VolumeCheckpoint,
}

/// What an actor may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum May {
    /// Everything.
    All,
    /// While somebody else is at the volume, maybe for a file of this actor: what takes no turns.
    WithoutTurns,
}

impl Op {
    /// One by chance, for actor `actor` of `actors`, whose files are `tree`.
    #[must_use]
    pub fn random(rng: &mut Rng, tree: &Tree, actor: usize, actors: usize, may: May) -> Op {
        if tree.bytes() > PAGES_MOST * P {
            return Op::shrink(rng, tree);
        }
        match rng.below(100) {
            0..10 => return Op::Sync,
            10..14 => return Op::Keep,
            14..17 => return Op::Checkpoint,
            17..24 if may != May::WithoutTurns => return Op::Trim,
            24..26 if may == May::All => return Op::VolumeCheckpoint,
            26..32 if may != May::WithoutTurns => return Op::push(rng, actors),
            _ => {}
        }
        let op = Op::of_files(rng, tree, actor);
        let takes_turn = match &op {
            // To the volume at once, or behind what may be left there.
            Op::Write(name, at, len) | Op::WriteAndClose(name, at, len) => {
                *len >= 16 * P || *at > size(tree, name)
            }
            Op::Append(_, len) => *len >= 16 * P,
            Op::Truncate(name, len) => *len > size(tree, name),
            Op::Range(..) | Op::Temporary(..) | Op::Copy(..) | Op::Direct(..) => true,
            _ => false,
        };
        if takes_turn && may == May::WithoutTurns { Op::Sync } else { op }
    }

    /// Something is pushed, whosever it is.
    fn push(rng: &mut Rng, actors: usize) -> Op {
        let whose = rng.below(actors as u64) as usize;
        Op::Push(name(whose, rng.below(NAMES)), Wait::Forever)
    }

    /// Makes files smaller.
    fn shrink(rng: &mut Rng, tree: &Tree) -> Op {
        let largest = tree.names.keys().max_by_key(|name| size(tree, name));
        let name = largest.cloned().unwrap_or_default();
        match rng.below(3) {
            0 => Op::Truncate(name, rng.below(20 * P)),
            _ => Op::Unlink(name),
        }
    }

    fn of_files(rng: &mut Rng, tree: &Tree, actor: usize) -> Op {
        let there: Vec<&String> = tree.names.keys().collect();
        let free: Vec<String> =
            (0..NAMES).map(|it| name(actor, it)).filter(|it| !there.contains(&it)).collect();
        let pick = |rng: &mut Rng| there.get(rng.below(there.len() as u64) as usize).copied();
        let Some(one) = pick(rng).cloned() else {
            return Op::Make(name(actor, rng.below(NAMES)));
        };
        let other = pick(rng).cloned().unwrap_or_default();
        let fresh = free.get(rng.below(free.len() as u64) as usize).cloned();
        let size = size(tree, &one);
        let at = place(rng, size);
        match (rng.below(64), fresh) {
            (0..5, Some(fresh)) => Op::Make(fresh),
            (5..8, Some(fresh)) => Op::Temporary(fresh, 1 + rng.below(9 * P)),
            (8..10, Some(fresh)) => Op::Link(one, fresh),
            (10..13, Some(fresh)) => Op::Rename(one, fresh),
            (13..15, _) => Op::Rename(one, other),
            (15..16, _) => Op::Exchange(one, other),
            (16..20, _) => Op::Unlink(one),
            (20..28, _) => Op::Truncate(one, place(rng, size)),
            (28..34, _) => {
                let how = match rng.below(4) {
                    0 | 1 => Allocate::Hole,
                    2 => Allocate::Zeros { keeps_size: rng.chance(1, 2) },
                    _ => Allocate::Space { keeps_size: rng.chance(1, 2) },
                };
                Op::Range(one, how, at, 1 + rng.below(12 * P))
            }
            (34..36, _) if tree.names.get(&one) != tree.names.get(&other) => {
                Op::Copy(one, at, other, place(rng, size), 1 + rng.below(10 * P))
            }
            (36..38, _) => Op::Attribute(one, rng.chance(3, 4).then(|| 1 + rng.below(300))),
            (38..39, _) => Op::Mode(one, 0o600 + 4 * rng.below(8) as u32),
            (39..43, _) => Op::Append(one, 1 + rng.below(3 * P)),
            // At once, if it begins with a page.
            (43..48, _) => {
                Op::Write(one, at / P * P, (DIRECT_PAGES + rng.below(16)) * P + rng.below(2) * 77)
            }
            (48..51, _) => Op::WriteAndClose(one, at, 1 + rng.below(8 * P)),
            (51..54, _) => Op::Direct(one, at / P * P, (1 + rng.below(6)) * P),
            (54..58, _) => Op::Write(one, at / P * P, (1 + rng.below(6)) * P),
            _ => Op::Write(one, at, 1 + rng.below(2 * P)),
        }
    }

    /// Whether it makes durable all that was committed before.
    #[must_use]
    pub const fn is_sync(&self) -> bool {
        matches!(self, Op::Sync | Op::Keep | Op::Checkpoint)
    }

    /// Whether it may write in place, where nothing makes it durable but a sync if the core has no
    /// log: what is there after a power cut may be what was there before.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        match self {
            Op::Direct(..) => true,
            Op::Write(_, _, len) => *len >= DIRECT_PAGES * P,
            _ => false,
        }
    }

    /// Does it as operation `number`.
    ///
    /// # Errors
    /// Those of the store; `ENOSPC` also if less was done than was to be.
    pub fn perform(&self, process: &Process, number: u32) -> Result<(), Error> {
        let files = &process.files;
        let who = &root_user();
        let base = Base::new(files.root(), files.root());
        let at = |path| at(&base, path);
        let find = |path| files.find(who, at(path), true);
        match self {
            Op::Make(path) => files.create_at(who, at(path), New::Regular, 0o644).map(drop),
            Op::Write(path, from, len) => {
                let bytes = content(number, *from..from + len);
                let done = files.write(who, find(path)?, WriteAt::Offset(*from), &bytes)?;
                all(done.1, *len)
            }
            Op::WriteAndClose(path, from, len) | Op::Direct(path, from, len) => {
                let direct = if matches!(self, Op::Direct(..)) { libc::O_DIRECT } else { 0 };
                let open = files.open_at(who, at(path), &how(libc::O_WRONLY | direct)?)?;
                let done = files.write_at(who, &open, *from, &content(number, *from..from + len));
                files.close(&open)?;
                all(done? as u64, *len)
            }
            Op::Append(path, len) => self.append(process, find(path)?, number, *len),
            Op::Truncate(path, size) => files.truncate(who, find(path)?, *size),
            Op::Range(path, how, from, len) => files.allocate(who, find(path)?, *how, *from, *len),
            Op::Rename(from, to) => files.rename_at(who, at(from), at(to), Renaming::Replace),
            Op::Exchange(from, to) => files.rename_at(who, at(from), at(to), Renaming::Exchange),
            Op::Link(from, to) => files.link_at(who, at(from), false, at(to)),
            Op::Unlink(path) => files.remove_at(who, at(path), Removal::File),
            Op::Temporary(path, len) => temporary(process, at("."), at(path), number, *len),
            Op::Copy(from, at, to, place, len) => copy(process, (from, *at), (to, *place), *len),
            Op::Attribute(path, Some(len)) => {
                let value = content(number, 0..*len);
                files.set_attribute(who, find(path)?, ATTRIBUTE, &value, Setting::Any)
            }
            Op::Attribute(path, None) => {
                match files.remove_attribute(who, find(path)?, ATTRIBUTE) {
                    Err(Error::Refused(Errno::ENODATA)) => Ok(()),
                    done => done,
                }
            }
            Op::Mode(path, mode) => files.set_mode(who, find(path)?, *mode),
            Op::Push(path, wait) => push(process, find(path), *wait),
            Op::Sync => process.sync(),
            Op::Keep => {
                files.push_due(|| false)?;
                process.sync()
            }
            Op::Checkpoint => process.checkpoint(),
            Op::Trim => files.trim_chunks().map(drop),
            Op::VolumeCheckpoint => {
                process.volume.checkpoint().map_err(|error| not_durable(error.into()))
            }
        }
    }

    fn append(&self, process: &Process, file: FileId, number: u32, len: u64) -> Result<(), Error> {
        let files = &process.files;
        // Nobody else changes its size.
        let size = files.stat(file)?.size;
        let bytes = content(number, size..size + len);
        all(files.write(&root_user(), file, WriteAt::End, &bytes)?.1, len)
    }

    /// What it makes of `tree` as operation `number`.
    pub fn apply(&self, tree: &mut Tree, number: u32) {
        match self {
            Op::Make(path) => {
                let file = File { mode: 0o644, ..File::default() };
                tree.names.insert(path.clone(), number.into());
                tree.files.insert(number.into(), Arc::new(file));
            }
            Op::Write(path, at, len)
            | Op::WriteAndClose(path, at, len)
            | Op::Direct(path, at, len) => {
                tree.change(path, |file| file.write(*at, &content(number, *at..at + len)));
            }
            Op::Append(path, len) => tree.change(path, |file| {
                let size = file.size;
                file.write(size, &content(number, size..size + len));
            }),
            Op::Truncate(path, size) => tree.change(path, |file| file.resize(*size)),
            Op::Range(path, how, at, len) => {
                tree.change(path, |file| allocate(file, *how, *at..at + len));
            }
            Op::Rename(from, to) => {
                let both = [from, to].map(|name| tree.names.get(name).copied());
                // Two names of one file stay.
                if let [Some(file), other] = both
                    && other != Some(file)
                {
                    tree.names.remove(from);
                    tree.names.insert(to.clone(), file);
                }
            }
            Op::Exchange(from, to) => {
                let both = [from, to].map(|name| tree.names.get(name).copied());
                if let [Some(one), Some(other)] = both {
                    tree.names.insert(from.clone(), other);
                    tree.names.insert(to.clone(), one);
                }
            }
            Op::Link(from, to) => {
                if let Some(file) = tree.names.get(from).copied() {
                    tree.names.insert(to.clone(), file);
                }
            }
            Op::Unlink(path) => drop(tree.names.remove(path)),
            Op::Temporary(path, len) => {
                let mut file = File { mode: 0o600, ..File::default() };
                file.write(0, &content(number, 0..*len));
                tree.names.insert(path.clone(), number.into());
                tree.files.insert(number.into(), Arc::new(file));
            }
            Op::Copy(from, at, to, place, len) => {
                let bytes = tree.file(from).map(|(_, file)| file.read(*at..at + len));
                let bytes = bytes.filter(|bytes| !bytes.is_empty());
                tree.change(to, |file| bytes.iter().for_each(|bytes| file.write(*place, bytes)));
            }
            Op::Attribute(path, len) => {
                let value = len.map(|len| content(number, 0..len));
                tree.change(path, |file| file.attribute = value);
            }
            Op::Mode(path, mode) => tree.change(path, |file| file.mode = *mode),
            Op::Push(..)
            | Op::Sync
            | Op::Keep
            | Op::Checkpoint
            | Op::Trim
            | Op::VolumeCheckpoint => {}
        }
        tree.reap();
    }
}

/// What becomes of `file` if `range` is to be so.
fn allocate(file: &mut File, how: Allocate, range: core::ops::Range<u64>) {
    let (Allocate::Space { keeps_size } | Allocate::Zeros { keeps_size }) = how else {
        return file.zero(range);
    };
    if !keeps_size {
        file.resize(file.size.max(range.end));
    }
    if matches!(how, Allocate::Zeros { .. }) {
        file.zero(range);
    }
}

/// Name number `number` of actor `actor`.
fn name(actor: usize, number: u64) -> String {
    let directory = if number.is_multiple_of(2) { "" } else { "d/" };
    format!("{directory}{}{number}", char::from(b'a' + actor as u8))
}

fn size(tree: &Tree, name: &str) -> u64 {
    tree.file(name).map_or(0, |(_, file)| file.size)
}

/// A place in a file of `size` bytes, or behind its end; the end itself, now and then.
fn place(rng: &mut Rng, size: u64) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => size,
        2 => size + rng.below(9 * P),
        3 => rng.below(size + 1) / P * P,
        4 => rng.below(40 * P),
        _ => rng.below(size + 1),
    }
}

fn at<'b>(base: &'b Base, path: &'b str) -> Path<'b> {
    Path { base, bytes: path.as_bytes() }
}

fn how(flags: i32) -> Result<How, Error> {
    Ok(How::from_open(flags as u32, 0o600)?)
}

/// That all was done that was to be.
fn all(done: u64, wanted: u64) -> Result<(), Error> {
    if done == wanted { Ok(()) } else { Err(Errno::ENOSPC.into()) }
}

/// Pushes a file, if it is there.
fn push(process: &Process, file: Result<FileId, Error>, wait: Wait) -> Result<(), Error> {
    match file.and_then(|file| process.files.push(file, wait)) {
        Err(Error::Refused(Errno::ENOENT | Errno::EAGAIN) | Error::Stale) => Ok(()),
        done => done,
    }
}

fn temporary(
    process: &Process,
    directory: Path<'_>,
    path: Path<'_>,
    number: u32,
    len: u64,
) -> Result<(), Error> {
    let (files, who) = (&process.files, &root_user());
    let open = files.open_at(who, directory, &how(libc::O_TMPFILE | libc::O_RDWR)?)?;
    let written = files.write_at(who, &open, 0, &content(number, 0..len));
    let done = written.and_then(|done| all(done as u64, len));
    let done = done.and_then(|()| files.link_open(who, &open, path));
    files.close(&open)?;
    done
}

fn copy(
    process: &Process,
    (from, at_from): (&str, u64),
    (to, at_to): (&str, u64),
    len: u64,
) -> Result<(), Error> {
    let (files, who) = (&process.files, &root_user());
    let base = Base::new(files.root(), files.root());
    let source = files.open_at(who, at(&base, from), &how(libc::O_RDONLY)?)?;
    let target = files.open_at(who, at(&base, to), &how(libc::O_WRONLY)?)?;
    let wanted = files.stat(source.file)?.size.saturating_sub(at_from).min(len);
    let mut done = 0;
    while done < wanted {
        let ends = [
            End { open: &source, at: Some(at_from + done) },
            End { open: &target, at: Some(at_to + done) },
        ];
        match files.copy_range(who, ends[0], ends[1], wanted - done, 0) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) => {
                files.close(&source)?;
                files.close(&target)?;
                return Err(error);
            }
        }
    }
    files.close(&source)?;
    files.close(&target)?;
    all(done, wanted)
}
