//! Transfers of one size, as fio makes them: sequential and random, reading and writing, by threads
//! that have a file each (SIM 6.1.1).
//!
//! Unlike fio, who reads looks at what was read (`look`), so that no target gets away with bytes
//! that it has not fetched: a mapping could.
//!
//! The same past all caches, as DFS's Figures 7 and 8 have it: files are opened with `O_DIRECT`,
//! where there are any.

use rustix::fs::OFlags;

use super::files::{Buffer, consume};
use super::{Experiment, Need, On, Phase, Run, Size, Unit, in_range};
use crate::calls::{self, CallError};
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::random::Random;

/// The experiment, in one of its two forms.
pub(super) struct Throughput {
    is_direct: bool,
}

/// Through the caches that there are.
pub(super) const BUFFERED: Throughput = Throughput { is_direct: false };
/// Past them.
pub(super) const DIRECT: Throughput = Throughput { is_direct: true };

/// Bytes of a thread's file that no cache is to hold.
const DIRECT_BYTES: u64 = 32 << 20;
/// Multiples of this are transferred past caches.
const BLOCK: u64 = 4096;

/// Bytes written at once when files are made.
const PIECE: usize = 1 << 20;

pub(super) const PHASES: [Phase; 4] = [
    Phase { id: "read-seq", unit: Unit::Bytes, part: 0 },
    Phase { id: "read-random", unit: Unit::Bytes, part: 0 },
    Phase { id: "write-seq", unit: Unit::Bytes, part: 0 },
    Phase { id: "write-random", unit: Unit::Bytes, part: 0 },
];

impl Experiment for Throughput {
    fn id(&self) -> &'static str {
        if self.is_direct { "direct" } else { "throughput" }
    }

    fn about(&self) -> &'static str {
        match self.is_direct {
            true => "the same past all caches (DFS Figures 7, 8)",
            false => {
                "transfers of one size by threads with a file each, as fio makes them (SIM 6.1.1)"
            }
        }
    }

    fn phases(&self) -> &'static [Phase] {
        &PHASES
    }

    fn points(&self, size: Size, caches: &Caches) -> Vec<Parameters> {
        let point = |request, threads, bytes| {
            let passes = if size == Size::Smoke { 1 } else { 2 };
            Parameters::of(&[
                ("request", request),
                ("threads", threads),
                ("bytes", bytes),
                ("passes", passes),
                ("look", 1),
            ])
        };
        if self.is_direct {
            let threads: &[u64] = match size {
                Size::Smoke => &[2],
                Size::Short => &[1, 8],
                Size::Full => &[1, 2, 4, 8, 16, 32],
            };
            let bytes = if size == Size::Smoke { 2 << 20 } else { DIRECT_BYTES };
            let of = |request| threads.iter().map(move |count| point(request, *count, bytes));
            return [BLOCK, 1 << 20].into_iter().flat_map(of).collect();
        }
        // Files that no cache holds.
        let bytes = (2 * caches.last()).next_power_of_two();
        match size {
            Size::Smoke => vec![point(4096, 2, 1 << 20)],
            Size::Short => [1 << 10, 4 << 10, 64 << 10, 1 << 20]
                .map(|request| point(request, 1, bytes))
                .to_vec(),
            Size::Full => {
                let processors =
                    std::thread::available_parallelism().map_or(1, |count| count.get());
                let mut threads = vec![1, 2, 4, processors as u64];
                threads.sort_unstable();
                threads.dedup();
                let requests = (10..=20).map(|shift| 1 << shift);
                requests
                    .flat_map(|request| threads.iter().map(move |count| (request, *count)))
                    .map(|(request, count)| point(request, count, bytes))
                    .collect()
            }
        }
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        let bytes = in_range(parameters, "bytes", 1 << 10..=1 << 42)?;
        let request = in_range(parameters, "request", 1..=bytes)?;
        if self.is_direct && !(request.is_multiple_of(BLOCK) && bytes.is_multiple_of(request)) {
            return Err(format!(
                "request is {request}, and bytes {bytes}: no multiples of {BLOCK}"
            ));
        }
        in_range(parameters, "passes", 1..=1 << 20)?;
        in_range(parameters, "look", 0..=1)?;
        let threads = in_range(parameters, "threads", 1..=1024)?;
        Ok(Need { bytes: bytes * threads, files: threads, ..Need::default() })
    }

    fn on(&self) -> On {
        if self.is_direct { On::Direct } else { On::Files }
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let number = |name: &str| run.parameters.get(name);
        let (threads, bytes, passes) = (number("threads"), number("bytes"), number("passes"));
        let (request, is_looked_at) = (number("request"), number("look") == 1);
        let content = run.random.bytes(PIECE.max(request as usize));
        let how = if self.is_direct { OFlags::DIRECT | OFlags::CLOEXEC } else { OFlags::CLOEXEC };
        for thread in 0..threads {
            fill(run, thread, bytes, &content)?;
        }
        if self.is_direct {
            run.calls.sync_all()?;
        }
        let seed = run.random.number();
        let in_order: Vec<u64> = (0..bytes / request).map(|at| at * request).collect();
        for phase in PHASES {
            let is_read = phase.id.starts_with("read");
            let is_random = phase.id.ends_with("random");
            run.threads(phase.id, threads as usize, |thread, calls, counter| {
                let mut random = Random::new(seed ^ thread as u64);
                let mut offsets = in_order.clone();
                let mut buffer = Buffer::of(content.get(..request as usize).unwrap_or_default());
                let buffer = buffer.bytes();
                let flags = if is_read { OFlags::RDONLY } else { OFlags::WRONLY };
                let file = calls.open(&name(thread as u64), flags | how)?;
                for _ in 0..passes {
                    if is_random {
                        random.shuffle(&mut offsets);
                    }
                    for &offset in &offsets {
                        let count = match is_read {
                            true => calls.read_at(file, buffer, offset)?,
                            false => calls.write_at(file, buffer, offset)?,
                        };
                        if is_read && is_looked_at {
                            consume(buffer);
                        }
                        counter.did(count as u64);
                    }
                }
                calls.close(file)
            })?;
        }
        Ok(())
    }
}

fn name(thread: u64) -> std::ffi::CString {
    calls::path(&format!("file{thread}"))
}

/// Makes a thread's file.
pub(super) fn fill(
    run: &mut Run<'_>,
    thread: u64,
    bytes: u64,
    content: &[u8],
) -> Result<(), CallError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = run.calls.open(&name(thread), flags)?;
    let mut done = 0;
    while done < bytes {
        let piece = content.get(..(bytes - done).min(PIECE as u64) as usize).unwrap_or_default();
        done += run.calls.write(file, piece)? as u64;
    }
    run.calls.close(file)
}
