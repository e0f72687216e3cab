//! What the serving process may do, and what the kernel may do to it.
//!
//! A server of files must not be killed for memory that its users take, nor wait for pages that
//! only it can write back. And of what root may, it keeps what it needs: who finds a way into it
//! should not find the whole machine.

use rustix::process::{configure_io_flusher_behavior, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use crate::log::{Kind, Level, Log};

/// The least likely to be killed that a process can be and still be killed.
const OOM_SCORE: &[u8] = b"-999";

/// What a server needs: to unmount, to look at the processes that call, to reach the core and its
/// directory whoever owns them.
const NEEDED: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER);

static NOT_DROPPED: Kind = Kind::new(Level::Warn, "privileges");

/// Asks the kernel to spare this process, where it is permitted, and gives up privileges that a
/// server does not need. Counts for this thread and those that it starts.
pub(crate) fn drop_needless(log: &Log) {
    // Ordinary users may do neither, and their servers do without.
    let _spared = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let _flusher = configure_io_flusher_behavior(true);
    if geteuid().is_root() {
        // Users need the set-uid program fusermount3 to unmount.
        let _confined = set_no_new_privs(true);
    }
    let dropped = capabilities(None).and_then(|had| {
        let kept = |set: CapabilitySet| set.intersection(NEEDED);
        let sets = CapabilitySets {
            effective: kept(had.effective),
            permitted: kept(had.permitted),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets)
    });
    if let Err(error) = dropped {
        log.tell(&NOT_DROPPED, &[&"privileges are not given up: ", &std::io::Error::from(error)]);
    }
}
