//! PostMark: what a mail server does to its files (CQ 5.2), also with some large ones (CQ 5.3).
//!
//! A pool of files is made; each transaction creates or deletes a file, with equal chances, and
//! reads a whole file or appends to one, four times as often the first; in the end all are deleted.
//! Files are shared out at random among sub-directories, as many as the square root of their
//! number. Bytes go through a buffer of 4 KiB, as those of the original, which uses the C library's
//! streams, do.
//!
//! With large files the last sync is part of the transactions, and memory may be limited, for all
//! that is done from the making of the target on: the core and all caches, or the page cache.
//! A second thread may sync all from time to time, so that what a power failure takes is as old
//! at most on each target: the kernel's file systems keep it for up to half a minute by themselves.

use std::ffi::CString;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::fs::OFlags;

use super::files::consume;
use super::{Experiment, Memory, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError, Calls};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;

/// Bytes of a buffer of the C library.
const BUFFER: usize = 4096;
/// Sizes of large files, in bytes (CQ 5.3).
const LARGE_BYTES: [u64; 2] = [2 << 20, 5 << 20];
/// Of so many reads and appends, one is an append.
const APPEND: u64 = 5;
/// Percentages of large files are counted in so many parts of a hundred, as parameters are whole
/// numbers.
const PARTS: u64 = 10;

/// Hundredths of the files' bytes that there are of memory, and with how many large files of a
/// thousand. The small ones are always in the core, so with few large ones there is more: for all
/// targets as much as a store takes at least.
const MEMORY: [(u64, &[u64]); 3] =
    [(200, &[0, 5, 10, 20, 40, 100]), (100, &[20, 40, 100]), (50, &[40, 100])];

/// Milliseconds from one sync of all to the next: what stores have by themselves.
const SYNC: u64 = 1000;
/// Bytes that a core has for what is on its way to the volume, besides small files.
const PASSING: u64 = 128 << 20;
/// Bytes that a store takes for itself, besides its core and its cache: what its keeper, and a
/// process that writes much, copy before they write it (up to 110 MiB each), with what a process of
/// the benchmark walks through before it measures.
const AROUND: u64 = 256 << 20;
/// Bytes of files for which its volume's index takes one, at least.
const INDEXED: u64 = 64;
/// Bytes of the smallest cache.
const LEAST: u64 = 8 << 20;

/// The experiment, in one of its two forms.
pub(super) struct PostMark {
    has_large: bool,
}

/// Small files only.
pub(super) const SMALL: PostMark = PostMark { has_large: false };
/// A few of them large.
pub(super) const LARGE: PostMark = PostMark { has_large: true };

const PHASES: [Phase; 6] = [
    Phase { id: "create", unit: Unit::Files, part: 0 },
    Phase { id: "transactions", unit: Unit::Transactions, part: 0 },
    Phase { id: "create-mixed", unit: Unit::Files, part: 0 },
    Phase { id: "read", unit: Unit::Files, part: 0 },
    Phase { id: "append", unit: Unit::Files, part: 0 },
    Phase { id: "delete", unit: Unit::Files, part: 0 },
];

impl Experiment for PostMark {
    fn id(&self) -> &'static str {
        if self.has_large { "postmark-large" } else { "postmark" }
    }

    fn about(&self) -> &'static str {
        match self.has_large {
            true => "PostMark with some files of 2 to 5 MiB (CQ 5.3)",
            false => "PostMark: a mail server's files (CQ 5.2)",
        }
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        let point = |files, transactions, large, memory| {
            let common = [
                ("files", files),
                ("transactions", transactions),
                ("low", 512),
                ("high", 16 << 10),
            ];
            let large = [
                ("large-per-mille", large),
                ("memory-percent", memory),
                ("sync-milliseconds", SYNC),
            ];
            match self.has_large {
                true => Parameters::of(&[&common[..], &large[..]].concat()),
                false => Parameters::of(&common),
            }
        };
        match (size, self.has_large) {
            (Size::Smoke, _) => vec![point(100, 100, 20, 0)],
            (Size::Short, false) => vec![point(5000, 20_000, 0, 0)],
            (Size::Short, true) => [0, 20].map(|large| point(1000, 4000, large, 0)).to_vec(),
            (Size::Full, false) => (1..=6).map(|step| point(step * 5000, 200_000, 0, 0)).collect(),
            (Size::Full, true) => MEMORY
                .iter()
                .flat_map(|&(memory, large)| large.iter().map(move |&large| (memory, large)))
                .map(|(memory, large)| point(10_000, 40_000, large, memory))
                .collect(),
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let files = in_range(parameters, "files", 1..=1 << 32)?;
        let transactions = in_range(parameters, "transactions", 1..=1 << 40)?;
        let low = in_range(parameters, "low", 1..=1 << 30)?;
        let high = in_range(parameters, "high", low..=1 << 30)?;
        let (large, percent) = match self.has_large {
            true => (
                in_range(parameters, "large-per-mille", 0..=1000)?,
                in_range(parameters, "memory-percent", 0..=100_000)?,
            ),
            false => (0, 0),
        };
        if self.has_large {
            in_range(parameters, "sync-milliseconds", 0..=1 << 30)?;
        }
        // The pool wanders like a drunkard: four times the root of the steps is far.
        let most = files + 4 * transactions.isqrt();
        let small = (u128::from(most) * u128::from(low.midpoint(high) + high / 4)) as u64;
        let bytes = small + most * large / (PARTS * 100) * (LARGE_BYTES[0] + LARGE_BYTES[1]);
        let set = (low.midpoint(high) * (PARTS * 100 - large)
            + LARGE_BYTES[0].midpoint(LARGE_BYTES[1]) * large)
            * files
            / (PARTS * 100);
        let memory = (percent > 0).then(|| {
            let core = small + small / 4 + PASSING;
            let besides = AROUND + bytes / INDEXED;
            let wanted = (u128::from(set) * u128::from(percent) / 100) as u64;
            let all = wanted.max(core + besides + LEAST);
            Memory { all, core, cache: all - core - besides }
        });
        Ok(Need { bytes, files: most + most.isqrt() + 1, memory })
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let pause = match self.has_large {
            true => Duration::from_millis(run.parameters.get("sync-milliseconds")),
            false => Duration::ZERO,
        };
        if pause.is_zero() {
            return self.deliver(run);
        }
        let mut calls = run.source().calls();
        let (stop, stopped) = mpsc::channel();
        std::thread::scope(|scope| {
            let synced = scope.spawn(move || sync_each(pause, &mut *calls, &stopped));
            let delivered = self.deliver(run);
            drop(stop);
            let synced = synced.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            delivered.and(synced)
        })
    }
}

/// Syncs all with a `pause` before each time, until the other end of `stopped` is gone.
fn sync_each(
    pause: Duration,
    calls: &mut dyn Calls,
    stopped: &Receiver<()>,
) -> Result<(), CallError> {
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        calls.sync_all()?;
    }
    Ok(())
}

impl PostMark {
    /// What the mail server does.
    fn deliver(&self, run: &mut Run<'_>) -> Result<(), CallError> {
        let mut pool = Pool::new(run);
        for number in 0..pool.directories {
            run.calls.mkdir(&calls::path(&format!("s{number}")))?;
        }
        let files = run.parameters.get("files");
        let mut watch = run.begin();
        for _ in 0..files {
            pool.create(&mut *run.calls)?;
            watch.did(1);
        }
        run.end("create", watch);
        let mut counts = [0; 3];
        let [created, read, appended] = &mut counts;
        let mut watch = run.begin();
        for _ in 0..run.parameters.get("transactions") {
            let calls = &mut *run.calls;
            if pool.random.below(2) == 0 || pool.live.is_empty() {
                pool.create(calls)?;
                *created += 1;
            } else {
                pool.delete_any(calls)?;
            }
            if !pool.live.is_empty() {
                match pool.random.below(APPEND) {
                    0 => {
                        pool.append(calls)?;
                        *appended += 1;
                    }
                    _ => {
                        pool.read(calls)?;
                        *read += 1;
                    }
                }
            }
            watch.did(1);
        }
        if self.has_large {
            run.calls.sync_all()?;
        }
        let parts = [("create-mixed", counts[0]), ("read", counts[1]), ("append", counts[2])];
        run.end_with("transactions", watch, &parts);
        let mut watch = run.begin();
        while pool.delete_last(&mut *run.calls)? {
            watch.did(1);
        }
        run.end("delete", watch);
        Ok(())
    }
}

/// The files that there are.
struct Pool {
    live: Vec<(CString, u64)>,
    next: u64,
    directories: u64,
    small: [u64; 2],
    large: u64,
    buffer: Vec<u8>,
    random: Random,
}

impl Pool {
    fn new(run: &mut Run<'_>) -> Pool {
        let number = |name: &str| run.parameters.get(name);
        let (files, small) = (number("files"), [number("low"), number("high")]);
        let large = number("large-per-mille");
        Pool {
            live: Vec::with_capacity(files as usize * 2),
            next: 0,
            directories: files.isqrt().max(1),
            small,
            large,
            buffer: run.random.bytes(BUFFER),
            random: run.random.clone(),
        }
    }

    /// A new file, full of bytes.
    fn create(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        let is_large = self.random.below(PARTS * 100) < self.large;
        let [low, high] = if is_large { LARGE_BYTES } else { self.small };
        let bytes = self.random.between(low, high);
        let directory = self.random.below(self.directories);
        let path = calls::path(&format!("s{directory}/{}", self.next));
        self.next += 1;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        self.fill(calls, &path, flags, bytes)?;
        self.live.push((path, bytes));
        Ok(())
    }

    /// Opens the file at `path`, writes `bytes` bytes, and closes it.
    fn fill(
        &self,
        calls: &mut dyn Calls,
        path: &CString,
        flags: OFlags,
        bytes: u64,
    ) -> Result<(), CallError> {
        let file = calls.open(path, flags)?;
        let mut left = bytes as usize;
        while left > 0 {
            let piece = self.buffer.get(..left.min(BUFFER)).unwrap_or_default();
            left -= calls.write(file, piece)?.min(left);
        }
        calls.close(file)
    }

    fn any(&mut self) -> usize {
        self.random.below(self.live.len() as u64) as usize
    }

    fn delete_any(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        let number = self.any();
        let (path, _) = self.live.swap_remove(number);
        calls.unlink(&path)
    }

    /// Deletes the last one; whether there was one.
    fn delete_last(&mut self, calls: &mut dyn Calls) -> Result<bool, CallError> {
        match self.live.pop() {
            Some((path, _)) => calls.unlink(&path).map(|()| true),
            None => Ok(false),
        }
    }

    fn read(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        let number = self.any();
        if let Some((path, bytes)) = self.live.get(number) {
            let file = calls.open(path, OFlags::RDONLY | OFlags::CLOEXEC)?;
            for _ in 0..bytes.div_ceil(BUFFER as u64) {
                let count = calls.read(file, &mut self.buffer)?;
                consume(self.buffer.get(..count).unwrap_or_default());
            }
            calls.close(file)?;
        }
        Ok(())
    }

    /// Appends to a file that has room up to the greatest size.
    fn append(&mut self, calls: &mut dyn Calls) -> Result<(), CallError> {
        let number = self.any();
        let (most, drawn) = (self.small[1], self.random.number());
        let Some((path, bytes)) = self.live.get(number).cloned() else {
            return Ok(());
        };
        let more = drawn % most.saturating_sub(bytes).max(1) + 1;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        self.fill(calls, &path, flags, more)?;
        if let Some(one) = self.live.get_mut(number) {
            one.1 = bytes + more;
        }
        Ok(())
    }
}
