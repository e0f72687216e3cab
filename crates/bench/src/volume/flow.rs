//! Many requests under way at once, to a volume or to the device beside it: the same loop.

use std::fs::File;
use std::time::{Duration, Instant};

use conquest_pm::media::{Mapped, OsHost};
use conquest_uring::Buffer;

use super::failed;
use crate::calls::{CallError, Outcome};

/// What requests do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They read.
    Read,
    /// They write.
    Write,
}

/// Who takes requests.
pub trait Side {
    /// Begins one, for which there is room, `at` a byte of the side.
    ///
    /// # Errors
    /// If it is refused.
    fn submit(&mut self, tag: u64, at: u64, way: Way, buffer: Buffer) -> Outcome<()>;

    /// Waits for `least` at least: those that are complete, each with its buffer.
    ///
    /// # Errors
    /// If one of them failed.
    fn wait(&mut self, least: usize) -> Outcome<Vec<(u64, Buffer)>>;
}

/// A volume.
pub struct Ours<'v>(pub conquest_flash::Queue<'v, Mapped, OsHost>);

impl Side for Ours<'_> {
    fn submit(&mut self, tag: u64, at: u64, way: Way, buffer: Buffer) -> Outcome<()> {
        let job = match way {
            Way::Read => conquest_flash::Job::Read(buffer),
            Way::Write => conquest_flash::Job::Write(buffer),
        };
        let block = at / conquest_format::volume::BLOCK;
        let submitted = self.0.submit(conquest_flash::Request { tag, block, job });
        submitted.map_err(|_| refused())
    }

    fn wait(&mut self, least: usize) -> Outcome<Vec<(u64, Buffer)>> {
        let complete = self.0.wait(least).map_err(failed("wait for a volume"))?;
        let of = |one: conquest_flash::Completion| {
            one.outcome.map_err(failed("a request to a volume"))?;
            let (conquest_flash::Job::Read(buffer) | conquest_flash::Job::Write(buffer)) = one.job;
            Ok((one.tag, buffer))
        };
        complete.into_iter().map(of).collect()
    }
}

/// A device: a part of the first file of a queue, from byte `start` on.
pub struct Raw {
    queue: conquest_uring::Queue,
    start: u64,
}

impl Raw {
    /// The part of `file` from byte `start` on, with `depth` requests under way at once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(file: &File, depth: u32, start: u64) -> Outcome<Raw> {
        let queue = file.try_clone().and_then(|file| conquest_uring::Queue::new(depth, vec![file]));
        Ok(Raw { queue: queue.map_err(|source| CallError::of("make a queue", source))?, start })
    }
}

impl Side for Raw {
    fn submit(&mut self, tag: u64, at: u64, way: Way, buffer: Buffer) -> Outcome<()> {
        let job = match way {
            Way::Read => conquest_uring::Job::Read(buffer),
            Way::Write => conquest_uring::Job::Write(buffer),
        };
        let request = conquest_uring::Request { tag, file: 0, at: self.start + at, job };
        self.queue.submit(request).map_err(|(source, _)| CallError::of("submit", source))
    }

    fn wait(&mut self, least: usize) -> Outcome<Vec<(u64, Buffer)>> {
        let complete = self.queue.wait(least).map_err(|source| CallError::of("wait", source))?;
        let of = |one: conquest_uring::Completion| {
            let done = one.outcome.map_err(|source| CallError::of("transfer", source))?;
            let (conquest_uring::Job::Read(buffer) | conquest_uring::Job::Write(buffer)) = one.job
            else {
                return Err(refused());
            };
            match done == buffer.len() {
                true => Ok((one.tag, buffer)),
                false => Err(CallError::of("transfer", std::io::ErrorKind::UnexpectedEof)),
            }
        };
        complete.into_iter().map(of).collect()
    }
}

fn refused() -> CallError {
    CallError::of("submit", std::io::Error::other("the queue refuses what it has room for"))
}

/// Buffers for as many requests as are to be under way.
///
/// # Errors
/// No memory.
pub fn buffers(count: usize, content: &[u8]) -> Outcome<Vec<Buffer>> {
    let made = || {
        let mut buffer = Buffer::new(content.len())?;
        buffer.copy_from_slice(content);
        Ok(buffer)
    };
    (0..count).map(|_| made()).collect::<std::io::Result<_>>().map_err(|source| {
        let call = "get memory for requests";
        CallError::of(call, source)
    })
}

/// When a row of requests ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// When so much time has gone by.
    Time(Duration),
    /// When so many were begun.
    Count(u64),
}

/// Keeps as many requests under way as there are `buffers`, each at the byte that `next` says, and
/// waits for all that it has begun; `told` gets how long each took. How many there were.
///
/// # Errors
/// Those of the side: buffers that are under way then are lost.
pub fn flow(
    side: &mut dyn Side,
    buffers: &mut Vec<Buffer>,
    way: Way,
    until: Until,
    next: &mut dyn FnMut() -> u64,
    told: &mut dyn FnMut(Duration),
) -> Outcome<u64> {
    let begin = Instant::now();
    let mut begun = vec![begin; buffers.len()];
    let mut free: Vec<u64> = (0..buffers.len() as u64).collect();
    let (mut submitted, mut done, mut now) = (0, 0, begin);
    loop {
        let is_over = |submitted| match until {
            Until::Time(time) => now - begin >= time,
            Until::Count(count) => submitted >= count,
        };
        while !is_over(submitted)
            && let (Some(tag), Some(buffer)) = (free.pop(), buffers.pop())
        {
            if let Some(place) = begun.get_mut(tag as usize) {
                *place = Instant::now();
            }
            side.submit(tag, next(), way, buffer)?;
            submitted += 1;
        }
        if submitted == done {
            return Ok(done);
        }
        let complete = side.wait(1)?;
        now = Instant::now();
        done += complete.len() as u64;
        for (tag, buffer) in complete {
            told(now - begun.get(tag as usize).copied().unwrap_or(now));
            free.push(tag);
            buffers.push(buffer);
        }
    }
}
