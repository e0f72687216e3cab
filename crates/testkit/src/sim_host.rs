//! Processes, claims, space and time without an operating system.
//!
//! Invariants:
//! - a claim is held exactly as long as its value lives and its process has not been killed, one to
//!   carry as long as its value lives;
//! - a killed process gets no new claims;
//! - which thread calls is what [`crate::become_actor`] said: actor `n` is thread `n + 1`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use conquest_pm::host::{Host, Identity};
use conquest_pm::{Error, Result};

use crate::thread::current_actor;
use crate::{Clock, RecordingMemory, lock};

/// The pid namespace of all simulated processes.
const NAMESPACE: u64 = 0xF000_0001;

/// Who holds what is carried: no process.
const CARRIED: u32 = u32::MAX;

/// A machine with simulated processes; clones are the same machine.
#[derive(Clone, Debug)]
pub struct World {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    /// Who holds what, and the number of the claim.
    claims: BTreeMap<Lock, (u32, u64)>,
    claimed: u64,
    killed: BTreeSet<u32>,
    stopped: BTreeSet<u32>,
    ended: BTreeSet<(u32, u32)>,
    /// Disjoint ranges in order, by their starts.
    backed: BTreeMap<u64, u64>,
    limit: u64,
    len: u64,
    calls: u64,
    refused_call: Option<u64>,
    boot_id: [u8; 16],
    orders: Option<RecordingMemory>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Lock {
    Slot(u32),
    Turn(u32),
    Attach,
}

impl World {
    /// A machine with `clock`, usually that of a [`crate::RecordingMemory`].
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let state = State {
            claims: BTreeMap::new(),
            claimed: 0,
            killed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            ended: BTreeSet::new(),
            backed: BTreeMap::new(),
            limit: u64::MAX,
            len: 0,
            calls: 0,
            refused_call: None,
            boot_id: *b"simulated boot 1",
            orders: None,
        };
        World { state: Arc::new(Mutex::new(state)), clock }
    }

    /// From now on each call of the system is a full fence of `memory`: the kernel's own locks
    /// order what happened before a death, say, before what follows its discovery.
    pub fn order(&self, memory: &RecordingMemory) {
        enter(&self.state).orders = Some(memory.clone());
    }

    /// Process `pid` as the host that it sees.
    #[must_use]
    pub fn process(&self, pid: u32) -> SimHost {
        SimHost { world: self.clone(), pid, forked: false }
    }

    /// Kills process `pid`: its claims are free at once.
    pub fn kill(&self, pid: u32) {
        let mut state = enter(&self.state);
        state.killed.insert(pid);
        state.claims.retain(|_, (holder, _)| *holder != pid);
    }

    /// Stops process `pid`, as far as others see: it is up to the test that it does nothing.
    pub fn stop(&self, pid: u32) {
        enter(&self.state).stopped.insert(pid);
    }

    /// Lets process `pid` go on.
    pub fn resume(&self, pid: u32) {
        enter(&self.state).stopped.remove(&pid);
    }

    /// Thread `thread` of process `pid` has ended; the process lives.
    pub fn end_thread(&self, pid: u32, thread: u32) {
        enter(&self.state).ended.insert((pid, thread));
    }

    /// From now on there is space for `bytes` bytes in all.
    pub fn limit_space(&self, bytes: u64) {
        enter(&self.state).limit = bytes;
    }

    /// The `call`-th call of [`Host::back`] from now (from 1) fails with `ENOSPC`.
    pub fn refuse_space(&self, call: u64) {
        let mut state = enter(&self.state);
        state.refused_call = Some(state.calls + call);
    }

    /// Bytes that have space, and the file's length.
    #[must_use]
    pub fn space(&self) -> (u64, u64) {
        let state = enter(&self.state);
        (total(&state.backed), state.len)
    }

    /// Whether all bytes of `range` have space.
    #[must_use]
    pub fn is_backed(&self, range: Range<u64>) -> bool {
        let state = enter(&self.state);
        let below = state.backed.range(..=range.start).next_back();
        range.is_empty() || below.is_some_and(|(_, &end)| end >= range.end)
    }

    /// The machine was started again: another boot, nobody lives. Files keep their space.
    pub fn reboot(&self, boot_id: [u8; 16]) {
        let mut state = enter(&self.state);
        state.boot_id = boot_id;
        let pids: Vec<u32> = state.claims.values().map(|&(pid, _)| pid).collect();
        state.killed.extend(pids.into_iter().filter(|&pid| pid != CARRIED));
        state.claims.clear();
    }

    fn claim(&self, pid: u32, what: Lock) -> Option<SimClaim> {
        let mut state = enter(&self.state);
        if state.claims.contains_key(&what) || state.killed.contains(&pid) {
            return None;
        }
        state.claimed += 1;
        let number = state.claimed;
        state.claims.insert(what, (pid, number));
        Some(SimClaim { state: Arc::clone(&self.state), what, number })
    }
}

/// A claim of a simulated process.
#[derive(Debug)]
pub struct SimClaim {
    state: Arc<Mutex<State>>,
    what: Lock,
    number: u64,
}

impl Drop for SimClaim {
    fn drop(&mut self) {
        let mut state = enter(&self.state);
        if state.claims.get(&self.what).is_some_and(|&(_, number)| number == self.number) {
            state.claims.remove(&self.what);
        }
    }
}

/// The host that one simulated process sees.
#[derive(Clone, Debug)]
pub struct SimHost {
    world: World,
    pid: u32,
    forked: bool,
}

impl SimHost {
    /// The same value as a forked child of the process sees it.
    #[must_use]
    pub fn forked(mut self) -> Self {
        self.forked = true;
        self
    }

    /// The machine.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }
}

impl Host for SimHost {
    type Claim = SimClaim;
    type Carried = SimClaim;

    fn claim(&self, slot: u32) -> Result<Option<SimClaim>> {
        Ok(self.world.claim(self.pid, Lock::Slot(slot)))
    }

    fn claim_to_carry(&self, slot: u32) -> Result<Option<SimClaim>> {
        // Nobody's death ends it.
        Ok(self.world.claim(CARRIED, Lock::Slot(slot)))
    }

    fn claim_turn(&self, slot: u32) -> Result<Option<SimClaim>> {
        Ok(self.world.claim(self.pid, Lock::Turn(slot)))
    }

    fn is_turn_taken(&self, slot: u32) -> Result<bool> {
        Ok(enter(&self.world.state).claims.contains_key(&Lock::Turn(slot)))
    }

    fn is_claimed(&self, slot: u32) -> Result<bool> {
        Ok(enter(&self.world.state).claims.contains_key(&Lock::Slot(slot)))
    }

    fn is_anyone_attached(&self) -> Result<bool> {
        let state = enter(&self.world.state);
        Ok(state.claims.keys().any(|what| matches!(what, Lock::Slot(_))))
    }

    fn claim_attach(&self) -> Result<Option<SimClaim>> {
        Ok(self.world.claim(self.pid, Lock::Attach))
    }

    fn identity(&self) -> Identity {
        Identity { process: self.pid, thread: current_actor() + 1, namespace: NAMESPACE }
    }

    fn is_thread_alive(&self, thread: u32) -> bool {
        let state = enter(&self.world.state);
        !state.killed.contains(&self.pid) && !state.ended.contains(&(self.pid, thread))
    }

    fn is_forked(&self) -> bool {
        self.forked
    }

    fn adopt(&self) -> Result<()> {
        Ok(())
    }

    fn process_state(&self, process: u32, namespace: u64) -> Option<char> {
        let state = enter(&self.world.state);
        if namespace != NAMESPACE || state.killed.contains(&process) {
            return None;
        }
        Some(if state.stopped.contains(&process) { 'T' } else { 'R' })
    }

    fn back(&self, ranges: &[Range<u64>], len: u64) -> Result<()> {
        let mut state = enter(&self.world.state);
        state.calls += 1;
        let mut backed = state.backed.clone();
        ranges.iter().for_each(|range| add(&mut backed, range.clone()));
        if state.refused_call == Some(state.calls) || total(&backed) > state.limit {
            return Err(Error::System {
                path: PathBuf::from("simulated"),
                action: "allocate space",
                source: io::Error::from_raw_os_error(libc::ENOSPC),
            });
        }
        state.backed = backed;
        state.len = state.len.max(len);
        Ok(())
    }

    fn boot_id(&self) -> [u8; 16] {
        enter(&self.world.state).boot_id
    }

    fn now(&self) -> u64 {
        self.world.clock.now()
    }
}

/// Enters the kernel.
fn enter(state: &Mutex<State>) -> MutexGuard<'_, State> {
    let state = lock(state);
    if let Some(memory) = &state.orders {
        memory.this_thread().order_all();
    }
    state
}

fn total(ranges: &BTreeMap<u64, u64>) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// Adds a range to disjoint ones, melting together those that touch.
fn add(ranges: &mut BTreeMap<u64, u64>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    let (mut start, mut end) = (range.start, range.end);
    while let Some((&at, &until)) = ranges.range(..=end).next_back() {
        if until < start {
            break;
        }
        ranges.remove(&at);
        (start, end) = (start.min(at), end.max(until));
    }
    ranges.insert(start, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_lives_as_long_as_value_and_process() {
        let world = World::new(Clock::default());
        let (one, two) = (world.process(1), world.process(2));
        let claim = one.claim(5).unwrap().unwrap();
        assert!(one.claim(5).unwrap().is_none() && two.claim(5).unwrap().is_none());
        assert!(two.is_claimed(5).unwrap() && two.is_anyone_attached().unwrap());
        drop(claim);
        let attach = two.claim_attach().unwrap().unwrap();
        assert!(one.claim_attach().unwrap().is_none());
        assert!(!two.is_anyone_attached().unwrap());
        let claim = two.claim(5).unwrap().unwrap();
        world.kill(2);
        assert!(!one.is_claimed(5).unwrap());
        assert!(two.claim(6).unwrap().is_none());
        let taken = one.claim(5).unwrap();
        drop((claim, attach));
        assert!(one.is_claimed(5).unwrap(), "the dead man's claim is not ours");
        drop(taken);
        assert!(!one.is_claimed(5).unwrap());
    }

    #[test]
    fn space_is_counted_once_and_runs_out() {
        let world = World::new(Clock::default());
        let host = world.process(1);
        world.limit_space(100);
        host.back(&[0..40, 60..80], 80).unwrap();
        host.back(&[30..70, 5..6], 70).unwrap();
        assert_eq!(world.space(), (80, 80));
        assert!(world.is_backed(0..80) && !world.is_backed(79..81));
        let full = host.back(&[80..90, 90..101], 101);
        assert!(matches!(&full, Err(Error::System { source, .. })
            if source.raw_os_error() == Some(libc::ENOSPC)));
        assert_eq!(world.space(), (80, 80));
        world.refuse_space(2);
        let more = std::slice::from_ref(&(81..82));
        host.back(more, 0).unwrap();
        assert!(host.back(more, 0).is_err());
        host.back(more, 0).unwrap();
    }

    #[test]
    fn what_others_see_of_a_process() {
        let world = World::new(Clock::default());
        let (one, two) = (world.process(1), world.process(2));
        let me = one.identity();
        assert_eq!((me.process, me.thread), (1, 1));
        world.stop(1);
        assert_eq!(two.process_state(1, me.namespace), Some('T'));
        assert_eq!(two.process_state(1, 7), None);
        world.resume(1);
        world.end_thread(1, 4);
        assert!(one.is_thread_alive(1) && !one.is_thread_alive(4) && two.is_thread_alive(4));
        world.kill(1);
        assert_eq!(two.process_state(1, me.namespace), None);
        assert!(one.clone().forked().is_forked() && !one.is_forked());
        world.reboot([7; 16]);
        assert_eq!(one.boot_id(), [7; 16]);
    }
}
