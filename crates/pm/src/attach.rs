//! Making, attaching and detaching a region.
//!
//! Processes attach and detach one at a time, under a kernel lock that dies with its holder. Who
//! finds nobody attached begins a new attach generation: the superblock with the new tag is durable
//! before any volatile word carries it, so volatile words of earlier lives, and whatever a power
//! failure left of them, read as never set. The cost does not depend on the region's size: two
//! superblocks, one line a lane, the slots.

use core::sync::atomic::Ordering;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conquest_format::geometry::{STATE, STATE_CHUNKS, STATE_GROUPS, Shape};
use conquest_format::kind::KindTable;
use conquest_format::log::{CHUNKS_MAX, CHUNKS_PER_LANE};
use conquest_format::superblock::{LIVE_PROTOCOL, LOADING, LOGGED, Superblock};
use conquest_format::volatile::holding::PER_CHUNK;
use conquest_format::volatile::{self, head, slot};
use conquest_format::{Geometry, Offset, WORD};

use crate::core::{Core, NO_SLOT, Options};
use crate::host::Host;
use crate::log::{self, Origin};
use crate::memory::{Memory, Window};
use crate::superblock;
use crate::thread::{self, Open};
use crate::{Error, Result};

/// What a new region is to be.
#[derive(Clone, Debug)]
pub struct NewRegion {
    /// Its layout.
    pub shape: Shape,
    /// Its kinds.
    pub kinds: KindTable,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Groups that have space from the start, at least 1.
    pub groups: u64,
}

/// Makes a region in `memory`: everything zero, then the superblocks, so that a region is there
/// only when it is complete.
///
/// # Errors
/// [`Error::Shape`], and those of the host.
pub fn make<M: Memory, H: Host>(memory: &M, host: &H, path: &Path, new: &NewRegion) -> Result<()> {
    make_numbered(memory, host, path, new, Origin::NEW)?;
    write_superblocks(memory, host, new, 0);
    Ok(())
}

/// Makes a region but for its superblocks; if it has a log, that begins as `origin` says.
pub(crate) fn make_numbered<M: Memory, H: Host>(
    memory: &M,
    host: &H,
    path: &Path,
    new: &NewRegion,
    origin: Origin,
) -> Result<Geometry> {
    let geometry = checked_geometry(path, new)?;
    let groups = new.groups.clamp(1, new.shape.max_groups);
    // Each process can have a chunk without asking for space.
    let chunks = new.shape.chunks.min(new.shape.slots);
    host.back(&geometry.space(0, groups), geometry.len_at(groups))?;
    host.back(&geometry.chunk_space(0, chunks), geometry.len_at(groups))?;
    // The state page, the lanes and the bitmaps, which follow each other.
    memory.put_zeros(STATE, geometry.bitmap(groups).bytes() - STATE.bytes());
    let orphans = geometry.orphan(0);
    let len = u64::from(chunks) * PER_CHUNK * WORD;
    memory.put_zeros(orphans, len);
    memory.put(STATE_GROUPS, groups, Ordering::Relaxed);
    memory.put(STATE_CHUNKS, chunks.into(), Ordering::Relaxed);
    // Durable before the first superblock is begun, whose writing begins with a fence.
    memory.write_back(Offset::NONE, geometry.bitmap(groups).bytes());
    memory.write_back(orphans, len);
    log::make(memory, &geometry, origin);
    Ok(geometry)
}

/// Writes the superblocks of a region that is complete but for them. Of `features`, only one that
/// has a log can have some.
pub(crate) fn write_superblocks<M: Memory, H: Host>(
    memory: &M,
    host: &H,
    new: &NewRegion,
    features: u64,
) {
    let first = Superblock {
        uuid: new.uuid,
        boot_id: host.boot_id(),
        created: new.created,
        sequence: 0,
        attach_generation: 0,
        clean: true,
        shape: new.shape,
        kinds: new.kinds,
        live_protocol: LIVE_PROTOCOL,
        features_compatible: 0,
        features_read_only: 0,
        features_incompatible: if new.shape.log == 0 { 0 } else { LOGGED | features },
    };
    superblock::write(memory, &first);
    superblock::write(memory, &Superblock { sequence: 1, ..first });
}

pub(crate) fn checked_geometry(path: &Path, new: &NewRegion) -> Result<Geometry> {
    use conquest_format::geometry::GROUPS_MAX;
    use conquest_format::volatile::{holding, lane, lock};
    let shape = new.shape;
    let numbers = [
        ("groups", shape.max_groups, GROUPS_MAX),
        ("lanes", shape.lanes.into(), lane::MAX.into()),
        ("slots", shape.slots.into(), slot::MAX.into()),
        ("locks (a power of two)", shape.locks.into(), lock::MAX.into()),
        ("chunks of holdings", shape.chunks.into(), holding::CHUNKS_MAX.into()),
    ];
    let bad = |&(what, value, most): &(&'static str, u64, u64)| {
        value < 1 || value > most || (what.starts_with("locks") && !value.is_power_of_two())
    };
    if let Some(&(what, value, most)) = numbers.iter().find(|number| bad(number)) {
        return Err(Error::Shape { path: path.to_owned(), what, value, least: 1, most });
    }
    let least = CHUNKS_PER_LANE * shape.lanes;
    if shape.log != 0 && !(least..=CHUNKS_MAX).contains(&shape.log) {
        return Err(Error::Shape {
            path: path.to_owned(),
            what: "chunks of the log",
            value: shape.log.into(),
            least: least.into(),
            most: CHUNKS_MAX.into(),
        });
    }
    Geometry::new(shape).ok_or(Error::Shape {
        path: path.to_owned(),
        what: "groups",
        value: shape.max_groups,
        least: 1,
        most: GROUPS_MAX,
    })
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Attaches the region in `memory`; `kinds` are those that the caller knows (entries that it
    /// leaves unused are not compared).
    ///
    /// # Errors
    /// What is wrong with the region, or who is in the way.
    pub fn attach(
        memory: M,
        host: H,
        path: &Path,
        kinds: &KindTable,
        options: Options<M, H>,
    ) -> Result<Arc<Self>> {
        let superblock = superblock::choose(path, &superblock::read(&memory))?;
        check_kinds(path, kinds, &superblock.kinds)?;
        let geometry = Geometry::new(superblock.shape).ok_or(Error::Corrupt {
            what: "superblock",
            offset: Offset::NONE,
            expected: "a valid shape",
            found: superblock.shape.max_groups,
        })?;
        if memory.len() < geometry.len() {
            return Err(Error::Truncated {
                path: path.to_owned(),
                expected: geometry.len(),
                found: memory.len(),
            });
        }
        let core = Core::new(memory, host, path, geometry, superblock.kinds, options);
        core.join()?;
        Ok(core)
    }

    /// Joins the processes attached, or begins an attach generation: at attach, and in a forked
    /// child before its first operation.
    pub(crate) fn join(&self) -> Result<()> {
        let _open = Open::new();
        let alone = self.attach_lock()?;
        let superblock = superblock::choose(&self.path, &superblock::read(&self.memory))?;
        self.look_for_table(&superblock)?;
        if self.host.is_anyone_attached()? {
            if superblock.live_protocol != LIVE_PROTOCOL {
                return Err(Error::LiveProtocol {
                    path: self.path.clone(),
                    expected: LIVE_PROTOCOL,
                    found: superblock.live_protocol,
                });
            }
            self.tag.store(superblock.tag(), Ordering::Relaxed);
        } else {
            self.check_groups()?;
            let next = superblock::next_generation(&superblock, self.host.boot_id())?;
            let _window = Window::open(&self.memory)?;
            self.write_superblock(next.clone())?;
            self.tag.store(next.tag(), Ordering::Relaxed);
            self.recover_all()?;
            // Orphans of files that were open.
            self.tell_of_burials();
        }
        self.take_slot()?;
        drop(alone);
        self.recover()
    }

    /// Tells the memory whether `superblock` names a residency table.
    fn look_for_table(&self, superblock: &Superblock) -> Result<()> {
        let is_there = superblock.features_incompatible & LOADING != 0;
        self.memory.found_table(is_there, self.life.load(Ordering::Relaxed))
    }

    /// Writes the superblock `next`, alone. If there is a residency table that nobody needs any
    /// more, it is gone then.
    fn write_superblock(&self, mut next: Superblock) -> Result<()> {
        let is_over = next.features_incompatible & LOADING != 0 && !self.memory.is_loading();
        if is_over {
            next.features_incompatible &= !LOADING;
        }
        superblock::write(&self.memory, &next);
        if is_over {
            self.memory.drop_table(self.geometry.len_at(self.groups()))?;
        }
        Ok(())
    }

    fn attach_lock(&self) -> Result<H::Claim> {
        let since = self.host.now();
        loop {
            if let Some(claim) = self.host.claim_attach()? {
                return Ok(claim);
            }
            let waited = Duration::from_nanos(self.host.now().saturating_sub(since));
            if waited > self.options.attach_patience {
                return Err(Error::AttachBusy { path: self.path.clone(), waited });
            }
            if let Some(reason) = self.memory.failure() {
                return Err(Error::Failed { reason });
            }
            // A sleep: nobody wakes this word.
            let idle = self.geometry.head(head::ATTACH);
            let seen = self.memory.load(idle, Ordering::Relaxed) as u32;
            self.memory.wait(idle, seen, Duration::from_millis(1));
        }
    }

    /// The word that says how large the region is must be possible, before anybody relies on it.
    pub(crate) fn check_groups(&self) -> Result<()> {
        let at = STATE_GROUPS;
        let found = self.memory.load(at, Ordering::Relaxed);
        if found == 0 || found > self.geometry.shape().max_groups {
            return Err(Error::Corrupt {
                what: "number of groups",
                offset: at,
                expected: "1 to the region's maximum",
                found,
            });
        }
        // Between the growth that somebody else does now and this look it can't get less.
        if found < self.groups_seen.fetch_max(found, Ordering::Relaxed) {
            return Err(self.damaged("number of groups", at, "no less than before", found));
        }
        Ok(())
    }

    /// Takes the first slot that no living process has; what a dead one left there is recovered.
    fn take_slot(&self) -> Result<()> {
        for number in 0..self.geometry.shape().slots {
            if let Some(taken) = self.claim_slot(number)? {
                let used = self.use_slot(number, taken.claim);
                drop(taken.turn);
                return used;
            }
        }
        let slots = self.geometry.shape().slots;
        Err(Error::Slots { path: self.path.clone(), slots })
    }

    /// Takes slot `number`, whose kernel lock is `claim`: it orders the words of the slot, here and
    /// wherever else somebody holds it or finds it free.
    fn use_slot(&self, number: u32, claim: H::Claim) -> Result<()> {
        let record = self.geometry.slot(number);
        let state = record.plus(slot::STATE);
        self.slot.store(number, Ordering::Relaxed);
        if self.value(state, Ordering::Relaxed) != 0 {
            self.recover_claimed_slot(number)?;
        }
        self.sign_slot(record);
        // From now on a forked child is a process like any other; one that found no slot remains
        // a child, and its next operation tries again.
        let adopted = self.host.adopt();
        self.keep_claim(claim);
        adopted
    }

    /// Says in the slot at `record` whose it is.
    fn sign_slot(&self, record: Offset) {
        let identity = self.host.identity();
        let tagged = |value| volatile::tagged(self.tag(), value);
        for (word, value) in [
            (slot::PID, tagged(identity.process)),
            (slot::PID_NAMESPACE, identity.namespace),
            (slot::STATE, tagged(slot::PROCESS)),
        ] {
            self.memory.store(record.plus(word), value, Ordering::Relaxed);
        }
    }

    /// Keeps this process's claim until it detaches. In a child that was forked while a thread of
    /// its parent was attaching or detaching, the place is locked for good, and the claim is kept
    /// until the child ends.
    fn keep_claim(&self, claim: H::Claim) {
        match self.claim.try_lock() {
            Ok(mut place) => *place = Some(claim),
            Err(_) => _ = Box::leak(Box::new(claim)),
        }
    }

    /// Takes the claim back, if it is kept and can be had.
    fn take_claim(&self) -> Option<H::Claim> {
        self.claim.try_lock().ok()?.take()
    }

    /// What every operation does first: the region must be healthy, the process attached (a forked
    /// child is not, yet), and nobody's unfinished work left lying.
    pub(crate) fn enter(&self) -> Result<()> {
        if self.host.is_forked() {
            self.join_as_child()?;
        }
        self.check_health()?;
        self.adopt_orphans()?;
        self.bury_all()
    }

    /// Gives a forked child a slot of its own. One thread of the child does it, the others wait.
    fn join_as_child(&self) -> Result<()> {
        if thread::has_inherited() {
            return Err(Error::ForkedInside);
        }
        let _turn = self.wait_for_thread_turn()?;
        if !self.host.is_forked() {
            return Ok(());
        }
        if self.memory.rejoin()? && self.slot.load(Ordering::Relaxed) != NO_SLOT {
            // What failed was the child's own copy.
            self.mend();
        }
        // What was the parent's is so before the child counts as a process.
        self.life.fetch_add(1, Ordering::Relaxed);
        self.memory.full_fence();
        // The parent's claim is not in this process; dropping the copy of it does nothing.
        drop(self.take_claim());
        self.join()
    }

    /// Detaches: the last process to do so marks the region clean.
    ///
    /// # Errors
    /// [`Error::InUse`] while operations of this process are under way: it stays attached. Those of
    /// the host; the region is detached all the same when the process ends.
    pub fn detach(&self) -> Result<()> {
        self.leave(false)
    }

    /// Detaches; with `for_good`, no operation can be under way, and lanes still in use are left
    /// to be recovered.
    fn leave(&self, for_good: bool) -> Result<()> {
        if self.host.is_forked() {
            return Ok(());
        }
        let _open = Open::new();
        let Some(claim) = self.take_claim() else {
            return Ok(());
        };
        self.end_holdings();
        let alone = self.attach_lock();
        // Whoever takes a lane from here on finds out; whoever has taken one is seen here.
        self.end("it was detached");
        self.memory.full_fence();
        let number = self.slot.load(Ordering::Relaxed);
        let in_use = (0..self.geometry.shape().lanes)
            .filter(|&lane| volatile::owner_slot(self.lane_owner(lane)) == Some(number))
            .count() as u32;
        if !for_good && (in_use > 0 || alone.is_err()) {
            self.mend();
            self.keep_claim(claim);
            return alone.and(Err(Error::InUse { path: self.path.clone(), lanes: in_use }));
        }
        self.slot.store(NO_SLOT, Ordering::Relaxed);
        if in_use == 0 {
            let state = self.geometry.slot(number).plus(slot::STATE);
            self.set_value(state, 0, Ordering::Relaxed);
        }
        drop(claim);
        let _alone = alone?;
        if in_use == 0 && !self.host.is_anyone_attached()? {
            let found = superblock::choose(&self.path, &superblock::read(&self.memory))?;
            let sequence = superblock::next_sequence(&found)?;
            let _window = Window::open(&self.memory)?;
            self.write_superblock(Superblock { sequence, clean: true, ..found })?;
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Ends what this process still holds. Whatever can't be ended now, others end.
    fn end_holdings(&self) {
        let number = self.slot.load(Ordering::Relaxed);
        if number != NO_SLOT && self.has_holdings(number) {
            self.mark_dead(number);
            let _left = self.bury_all();
            self.free_chunks(number);
        }
    }
}

impl<M: Memory, H: Host> Drop for Core<M, H> {
    fn drop(&mut self) {
        // Nothing is lost if this fails: the next attach finds the region dirty and recovers it.
        let _detached = self.leave(true);
    }
}

fn check_kinds(path: &Path, expected: &KindTable, found: &KindTable) -> Result<()> {
    for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
        if *expected != conquest_format::kind::KindSpec::UNUSED && expected != found {
            return Err(Error::Kind {
                path: path.to_owned(),
                offset: Offset::new(252 + 8 * number as u64),
                kind: number as u8,
                expected: expected.object_size,
                found: found.object_size,
            });
        }
    }
    Ok(())
}
