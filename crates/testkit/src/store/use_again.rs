//! Using a store that was brought back: files grow over what may have been left on the volume.

use conquest_access::Removal;
use conquest_fs::content::WriteAt;
use conquest_fs::locks::Wait;
use conquest_fs::names::New;
use conquest_fs::{Error, FileId};

use super::machine::{Machine, Process, Start};
use super::run::Setup;
use super::tree::{P, Tree, compare, content, read};
use crate::Rng;
use crate::files::root_user;

/// The number of an operation that is none of a run.
const OTHER: u32 = u32::MAX / 2;
/// A file of an actor that there is only here.
const NEW: &str = "a9";

/// Lets the files of `machine`, which are `trees`, grow, makes that durable, brings the store back
/// once more, and compares: whether what was brought back can be used, and nothing comes to be seen
/// that nobody has.
///
/// # Errors
/// What went wrong, as text.
pub(super) fn use_again(
    setup: &Setup,
    machine: Machine,
    mut trees: Vec<Tree>,
    rng: &mut Rng,
) -> Result<(), String> {
    grow_all(&machine, &mut trees, rng).map_err(|what| format!("used again: {what}"))?;
    let process = machine.first()?;
    let text = |error: Error| format!("used again: {error}");
    if rng.chance(1, 2) {
        process.sync().map_err(text)?;
        process.files.trim_chunks().map_err(|error| format!("used again: trimming: {error}"))?;
        same(process, &trees, "trimmed")?;
    }
    if rng.chance(1, 2) {
        process.checkpoint().map_err(text)?;
    }
    process.sync().map_err(text)?;
    let Start { medium, core } = machine.stop();
    let again = setup.device(medium, false)?;
    let machine = Machine::start(&again, core.as_ref(), 1);
    let machine = machine.map_err(|what| format!("used again: {what}"))?;
    same(machine.first()?, &trees, "brought back")
}

/// That the files are `trees`.
fn same(process: &Process, trees: &[Tree], when: &str) -> Result<(), String> {
    let found = read(&process.files, trees.len(), None)?;
    for (found, tree) in found.iter().zip(trees) {
        compare(found, tree, tree, &|_, _, _, _| false)
            .map_err(|what| format!("used again, {when}: {what}"))?;
    }
    Ok(())
}

/// Each file gets longer by a hole, and by a write behind that, which may go to the volume at once;
/// and so does a new one.
fn grow_all(machine: &Machine, trees: &mut [Tree], rng: &mut Rng) -> Result<(), String> {
    let process = machine.first()?;
    let (files, who) = (&process.files, &root_user());
    let text = |error: Error| error.to_string();
    let made = files.create(who, files.root(), NEW.as_bytes(), New::Regular, 0o644);
    let made = made.map_err(text)?.number;
    if let Some(tree) = trees.first_mut() {
        let file = super::tree::File { mode: 0o644, ..Default::default() };
        tree.names.insert(NEW.to_owned(), made);
        tree.files.insert(made, std::sync::Arc::new(file));
    }
    let mut number = OTHER;
    for tree in trees.iter_mut() {
        let mut names: Vec<(String, u64)> =
            tree.names.iter().map(|(name, file)| (name.clone(), *file)).collect();
        names.sort_by_key(|(_, file)| *file);
        names.dedup_by_key(|(_, file)| *file);
        for (name, _) in names {
            number += 1;
            grow(process, tree, &name, number, rng).map_err(|what| format!("{name}: {what}"))?;
        }
    }
    same(process, trees, "grown")?;
    if rng.chance(1, 2) {
        let removed = files.remove(who, files.root(), NEW.as_bytes(), Removal::File);
        removed.map_err(text)?;
        if let Some(tree) = trees.first_mut() {
            tree.names.remove(NEW);
            tree.reap();
        }
    }
    Ok(())
}

fn grow(
    process: &Process,
    tree: &mut Tree,
    name: &str,
    number: u32,
    rng: &mut Rng,
) -> Result<(), String> {
    let files = &process.files;
    let text = |error: Error| error.to_string();
    let file = find(process, name)?;
    let size = files.stat(file).map_err(text)?.size;
    if rng.chance(1, 2) {
        let longer = size + 1 + rng.below(9 * P);
        files.truncate(&root_user(), file, longer).map_err(text)?;
        tree.change(name, |file| file.resize(longer));
    }
    let size = files.stat(file).map_err(text)?.size;
    let at = if rng.chance(1, 2) { size.next_multiple_of(P) } else { size } + rng.below(5) * P;
    let len = if rng.chance(1, 8) { 64 * P } else { 1 + rng.below(3 * P) };
    let bytes = content(number, at..at + len);
    match files.write(&root_user(), file, WriteAt::Offset(at), &bytes) {
        Ok((_, done)) if done == len => tree.change(name, |file| file.write(at, &bytes)),
        Ok((_, done)) => return Err(format!("{done} of {len} bytes were written")),
        Err(error) => return Err(error.to_string()),
    }
    files.push(file, Wait::Forever).map_err(text)
}

fn find(process: &Process, name: &str) -> Result<FileId, String> {
    use conquest_fs::paths::Path;
    use conquest_fs::walk::Base;
    let base = Base::new(process.files.root(), process.files.root());
    let path = Path { base: &base, bytes: name.as_bytes() };
    process.files.find(&root_user(), path, true).map_err(|error| error.to_string())
}
