//! Processes with limits, and the end of all of them.
//!
//! This process becomes the parent of whatever loses its own, so that all that it has started,
//! daemons included, are below it, and it ends no others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use crate::Outcome;

/// How often something is looked at.
const POLL: Duration = Duration::from_millis(3);
/// How long what was killed may take to end.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Makes this process the parent of what loses its own.
pub(crate) fn become_parent() -> Outcome<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| format!("can't become the parent of daemons: {e}"))
}

/// A file without a name for what a process says.
pub(crate) fn scratch() -> Outcome<std::fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("output", flags).map_err(|e| e.to_string())?;
    Ok(file.into())
}

pub(crate) fn text(mut file: std::fs::File) -> String {
    let mut bytes = Vec::new();
    // What can't be read back is no reason to fail.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Waits for `child` until `deadline`; then its group is killed, and it is not waited for any
/// longer: it may be stuck in a call on a mount.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Outcome<ExitStatus> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status);
        }
        if begin.elapsed() > limit {
            tell_who_waits();
            let group = Pid::from_raw(child.id().cast_signed());
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return Err(format!("no end within {} s", limit.as_secs()));
        }
        std::thread::sleep(POLL);
    }
}

/// Runs `command` for at most `limit`, and it must end well: what it says on its standard output.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Outcome<String> {
    let (output, errors) = (scratch()?, scratch()?);
    let copy = |file: &std::fs::File| file.try_clone().map_err(|e| e.to_string());
    command.stdin(Stdio::null()).stdout(copy(&output)?).stderr(copy(&errors)?).process_group(0);
    let shown = format!("{command:?}");
    let name: String = shown.chars().take(200).collect();
    let mut child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
    let status = wait(&mut child, limit);
    let said = text(errors);
    match status {
        Ok(status) if status.success() => Ok(text(output)),
        Ok(status) => Err(format!("{name}: {status}: {} {said}", text(output))),
        Err(why) => Err(format!("{name}: {why}: {said}")),
    }
}

/// Looks that have to find nobody, one after the other: while one is taken, a process whose parent
/// ends has none that is seen.
const LOOKS: u32 = 2;

/// All processes below this one, but `spared` and what is below that; whether each has ended.
fn below(spared: u32) -> BTreeMap<u32, bool> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(number) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // Behind the name, which may have any characters.
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut words = rest.split(' ');
        let is_over = words.next() == Some("Z");
        let parent = words.next().and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
        parents.insert(number, (parent, is_over));
    }
    let own = std::process::id();
    let is_below = |mut number: u32| {
        while let Some(&(parent, _)) = parents.get(&number) {
            if number == spared {
                return false;
            }
            if parent == own {
                return true;
            }
            number = parent;
        }
        false
    };
    let found = parents.iter().filter(|(number, _)| is_below(**number));
    found.map(|(&number, &(_, is_over))| (number, is_over)).collect()
}

/// Says of each process below this one where in the kernel its threads are: one that hangs, and
/// those that it may wait for, are among them.
fn tell_who_waits() {
    for (process, _) in below(0).into_iter().filter(|(_, is_over)| !is_over) {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let at = Path::new("/proc").join(process.to_string());
        let mut places: BTreeMap<String, u32> = BTreeMap::new();
        for thread in std::fs::read_dir(at.join("task")).into_iter().flatten().flatten() {
            // Behind the address.
            let frame = |line: &str| line.split(' ').next_back().unwrap_or_default().to_owned();
            let stack = read(&thread.path().join("stack"));
            let stack: Vec<String> = stack.lines().take(4).map(frame).collect();
            *places.entry(stack.join(" ")).or_default() += 1;
        }
        let places = places.iter().map(|(stack, count)| format!("{count} x {stack}"));
        let places = places.collect::<Vec<_>>().join("; ");
        println!("  process {process} ({}): {places}", read(&at.join("comm")).trim());
    }
}

/// Kills all that this process has started, but `spared`, and waits for their ends.
pub(crate) fn end_all(spared: u32) -> Outcome<()> {
    let begin = Instant::now();
    let mut looks = 0;
    loop {
        let found = below(spared);
        looks = if found.is_empty() { looks + 1 } else { 0 };
        if looks == LOOKS {
            return Ok(());
        }
        if begin.elapsed() > END_LIMIT {
            return Err(format!("processes {:?} do not end", found.keys()));
        }
        for (number, is_over) in found {
            let Some(process) = Pid::from_raw(number.cast_signed()) else { continue };
            // It may be gone, or somebody else's child.
            if is_over {
                let _ = waitpid(Some(process), WaitOptions::NOHANG);
            } else {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until `is_so` says so, for at most `limit`.
pub(crate) fn until(
    what: &str,
    limit: Duration,
    mut is_so: impl FnMut() -> Outcome<bool>,
) -> Outcome<()> {
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > limit {
            return Err(format!("{what} did not come within {} s", limit.as_secs()));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Kills those that this process has started whose programs are in `directory`, and waits for their
/// ends.
pub(crate) fn end_named(directory: &Path) -> Outcome<()> {
    // One that is about to end has no program any more, but may have files open.
    let mut named = BTreeSet::new();
    let mut looks = 0;
    until("the end of a program", END_LIMIT, || {
        let found = below(0);
        for (number, has_ended) in &found {
            let Some(process) = Pid::from_raw(number.cast_signed()) else { continue };
            if *has_ended {
                let _ = waitpid(Some(process), WaitOptions::NOHANG);
                continue;
            }
            let program = std::fs::read_link(format!("/proc/{number}/exe"));
            if program.map_or(true, |program| program.starts_with(directory)) {
                named.insert(*number);
                let _ = kill_process(process, Signal::KILL);
            }
        }
        let is_one_there = named.iter().any(|number| found.contains_key(number));
        looks = if is_one_there { 0 } else { looks + 1 };
        Ok(looks == LOOKS)
    })
}
