//! What the process of the disk is asked for, by lines of its standard input, and how it answers.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use conquest_fuse::{MountOptions, Session, SessionOptions, mount};
use conquest_testkit::Rng;
use conquest_testkit::flash::crash::{Choice, crash};
use conquest_testkit::flash::{Event, Medium, Sweep};

use crate::Outcome;
use crate::disk::Disk;
use crate::record::Record;

/// Threads that serve at most: writes and flushes take their time.
const THREADS: usize = 32;

/// The record so far as the cuts have come.
struct Cuts {
    sweep: Sweep,
    /// Events that it has passed.
    passed: usize,
}

/// Serves a disk of `len` bytes at `point`, under the name `source`, until the input ends.
pub(crate) fn serve(point: &Path, source: &str, len: u64) -> Outcome<()> {
    let mut options = MountOptions::new("disk", source);
    options.allow_other = true;
    let (device, mounted) = mount(point, &options).map_err(|e| e.to_string())?;
    let disk = Arc::new(Disk::new(len));
    let told = SessionOptions { threads_max: THREADS, ..SessionOptions::default() };
    let told = told.report(|incident| eprintln!("disk: {incident}"));
    let session = Session::new(device, Arc::clone(&disk), told);
    let serving = std::thread::spawn(move || session.run());
    let mut cuts = Cuts { sweep: Sweep::new(Medium::new(len)), passed: 0 };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let answer = answer(&disk, &mut cuts, &line).unwrap_or_else(|why| format!("failed: {why}"));
        let mut output = std::io::stdout().lock();
        let written = writeln!(output, "{answer}").and_then(|()| output.flush());
        written.map_err(|e| e.to_string())?;
    }
    let unmounted = mounted.unmount(true).map_err(|e| e.to_string());
    // It ends when nobody uses it any more.
    if let Ok(Err(error)) = serving.join() {
        return Err(error.to_string());
    }
    unmounted
}

/// Does what a line asks for: an answer of one line.
fn answer(disk: &Disk, cuts: &mut Cuts, line: &str) -> Outcome<String> {
    let mut words = line.split(' ');
    let command = words.next().unwrap_or_default();
    let mut number = || {
        let word = words.next().unwrap_or_default();
        word.parse::<u64>().map_err(|_| format!("{line:?} lacks a number"))
    };
    match command {
        "new" => {
            let mut state = disk.state();
            if state.openers > 0 {
                return Err("the volume's file is open".to_owned());
            }
            state.medium = Medium::new(state.medium.len());
            state.record = Record::default();
            state.is_recording = true;
            *cuts = Cuts { sweep: Sweep::new(state.medium.clone()), passed: 0 };
        }
        "stop" => {
            let mut state = disk.state();
            state.is_recording = false;
            return Ok(numbers(&state.record));
        }
        "openers" => return Ok(disk.state().openers.to_string()),
        "events" => return Ok(disk.state().record.events.len().to_string()),
        "acknowledged" => {
            let state = disk.state();
            let marks = state.record.events.iter().enumerate();
            let marks = marks.filter(|(_, event)| matches!(event, Event::Mark(_)));
            let lines = marks.zip(&state.record.lines);
            return Ok(lines.map(|((at, _), line)| format!("{at} {line}\t")).collect());
        }
        "cut" => {
            let (event, seed) = (number()? as usize, number()?);
            return cut(disk, cuts, event, seed);
        }
        "save" => {
            let path = line.strip_prefix("save ").unwrap_or_default();
            disk.state().record.save(Path::new(path)).map_err(|e| format!("{path}: {e}"))?;
        }
        "load" => {
            let path = line.strip_prefix("load ").unwrap_or_default();
            let record = Record::load(Path::new(path)).map_err(|e| format!("{path}: {e}"))?;
            let said = numbers(&record);
            disk.state().record = record;
            return Ok(said);
        }
        _ => return Err(format!("{line:?} is not understood")),
    }
    Ok("done".to_owned())
}

/// How many events, writes, flushes and mebibytes a record has.
fn numbers(record: &Record) -> String {
    let (mut writes, mut flushes, mut bytes) = (0, 0, 0);
    for event in &record.events {
        match event {
            Event::Write { bytes: written, .. } => {
                writes += 1;
                bytes += written.len();
            }
            Event::Flushed { .. } => flushes += 1,
            _ => {}
        }
    }
    format!("{} {writes} {flushes} {}", record.events.len(), bytes >> 20)
}

/// Lets the volume's file be what a power cut behind `event` may leave: what that is.
fn cut(disk: &Disk, cuts: &mut Cuts, event: usize, seed: u64) -> Outcome<String> {
    let mut state = disk.state();
    if state.openers > 0 {
        return Err("the volume's file is open".to_owned());
    }
    if event < cuts.passed {
        *cuts = Cuts { sweep: Sweep::new(Medium::new(state.medium.len())), passed: 0 };
    }
    let events = state.record.events.get(cuts.passed..=event).ok_or("there is no such event")?;
    for passed in events {
        cuts.sweep.pass(passed);
    }
    cuts.passed = event + 1;
    let mut rng = Rng::new(seed);
    let choice = Choice::random(&mut rng);
    let block = if rng.chance(1, 2) { 512 } else { 4096 };
    state.medium = crash(&cuts.sweep, block, choice, &mut rng);
    let under_way = cuts.sweep.pending.iter().filter(|pending| !pending.is_done).count();
    let waiting = cuts.sweep.pending.len();
    Ok(format!("{waiting} {under_way} {choice} of blocks of {block}"))
}
