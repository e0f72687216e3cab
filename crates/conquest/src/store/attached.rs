//! Who has a store attached.

use core::sync::atomic::Ordering;
use std::fmt;

use conquest_format::volatile::{current, slot};
use conquest_format::{Geometry, Offset};
use conquest_pm::host::Host;
use conquest_pm::log::keeper_slot;
use conquest_pm::memory::Memory;

/// A process that has a store attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Its process id, in its own pid namespace; 0 while it is not known yet.
    pub process: u32,
    /// Inode number of that pid namespace; 0 if the process could not tell.
    pub namespace: u64,
    /// State letter as in `/proc/PID/stat`, if it can be seen from here.
    pub state: Option<char>,
    /// Whether it is the store's keeper, which leaves when it is asked to.
    pub is_keeper: bool,
    /// Whether it is the calling process.
    pub is_self: bool,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, self.state) {
            (0, _) => write!(f, "a process that has just come"),
            (process, Some('T' | 't')) => write!(f, "process {process} (stopped)"),
            (process, Some(_)) => write!(f, "process {process}"),
            (process, None) => {
                write!(f, "process {process} of pid namespace {}", self.namespace)
            }
        }
    }
}

/// Processes, named one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names(pub Vec<Attached>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, process) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{process}")?;
        }
        Ok(())
    }
}

/// The living processes that have the region in `memory` attached, of attach generation `tag`: as
/// many system calls as there are slots in use.
///
/// # Errors
/// If the system can't tell who lives.
pub(crate) fn attached(
    memory: &impl Memory,
    host: &impl Host,
    geometry: &Geometry,
    tag: u32,
) -> conquest_pm::Result<Vec<Attached>> {
    let mut found = Vec::new();
    let me = host.identity();
    let keeper = keeper_slot(memory, geometry, tag);
    for number in 0..geometry.shape().slots {
        let record = geometry.slot(number);
        let word = |at| memory.load(Offset::plus(record, at), Ordering::Relaxed);
        // Who has a slot says so in it right after he has got it.
        let is_used = current(word(slot::STATE), tag) == Some(slot::PROCESS);
        if !is_used || !host.is_claimed(number)? {
            continue;
        }
        let process = current(word(slot::PID), tag).unwrap_or(0);
        let namespace = word(slot::PID_NAMESPACE);
        found.push(Attached {
            process,
            namespace,
            state: host.process_state(process, namespace),
            is_keeper: keeper == Some(number),
            is_self: process == me.process && namespace == me.namespace,
        });
    }
    Ok(found)
}
