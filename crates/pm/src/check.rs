//! Checking the managers' state against what the layer above can reach.
//!
//! For a region at rest: no operation may run meanwhile.

use core::fmt;
use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use conquest_format::descriptor::Descriptor;
use conquest_format::kind::Kind;
use conquest_format::volatile::lane;
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};

use crate::Result;
use crate::bits::{GroupBits, WORDS};
use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;

/// Everything that the layer above can reach.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    objects: BTreeSet<Offset>,
    pages: BTreeSet<Offset>,
    twice: Vec<Finding>,
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What is wrong.
    pub what: &'static str,
    /// Where.
    pub at: Offset,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what, self.at)
    }
}

impl Reachable {
    /// An object was reached.
    pub fn object(&mut self, at: Offset) {
        if !self.objects.insert(at) {
            self.twice.push(Finding { what: "object reached twice", at });
        }
    }

    /// A run was reached.
    pub fn run(&mut self, at: Offset, pages: u64) {
        for page in 0..pages {
            let at = at.plus(page * PAGE);
            if !self.pages.insert(at) {
                self.twice.push(Finding { what: "page reached twice", at });
            }
        }
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    /// Compares what is allocated with what is `reachable`, and looks for anything left over from
    /// dead operations. Empty if all is well.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if a lane can't be read.
    pub fn check(&self, reachable: &Reachable) -> Result<Vec<Finding>> {
        let mut findings = reachable.twice.clone();
        let mut left = reachable.clone();
        let mut used = 0;
        for group in 0..self.groups() {
            used += self.check_group(group, &mut left, &mut findings);
        }
        let lost = |what| move |at: &Offset| Finding { what, at: *at };
        findings.extend(left.objects.iter().map(lost("reachable object is not allocated")));
        findings.extend(left.pages.iter().map(lost("reachable page is not allocated")));
        if used != self.pages_used() {
            let at = self.geometry().lane(0);
            findings.push(Finding { what: "lanes' page counts don't add up", at });
        }
        self.check_lanes(&mut findings)?;
        self.check_locks(&mut findings);
        Ok(findings)
    }

    /// Checks the pages of one group; how many are allocated.
    fn check_group(&self, group: u64, left: &mut Reachable, findings: &mut Vec<Finding>) -> u64 {
        let bitmap = self.geometry.bitmap(group);
        let at = |word: usize| bitmap.plus(word as u64 * WORD);
        let bits: [u64; WORDS] =
            core::array::from_fn(|word| self.memory.load(at(word), Ordering::Relaxed));
        if (0..WORDS).any(|word| self.busy(at(word)) != 0) {
            findings.push(Finding { what: "busy pages in a group at rest", at: bitmap });
        }
        if !self.is_group_lease_known(group) {
            findings.push(Finding { what: "group leased by a lane that has another", at: bitmap });
        }
        let free = GroupBits(bits);
        for page in (0..GROUP_PAGES).filter(|&page| !free.has(page)) {
            let page = group * GROUP_PAGES + page;
            let at = self.geometry.page(page);
            match self.descriptor(page) {
                Err(_) => findings.push(Finding { what: "allocated page without descriptor", at }),
                Ok(Descriptor::Run(_)) => {
                    if !left.pages.remove(&at) {
                        findings.push(Finding { what: "page allocated but not reachable", at });
                    }
                }
                Ok(Descriptor::Slab(kind)) => self.check_slab(page, kind, left, findings),
                Ok(Descriptor::SlabTail(kind, back)) => {
                    let head = page.checked_sub(back);
                    let found = head.and_then(|head| self.descriptor(head).ok());
                    if found != Some(Descriptor::Slab(kind)) {
                        findings.push(Finding { what: "slab page without a slab", at });
                    }
                }
            }
        }
        bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn check_slab(&self, head: u64, kind: Kind, left: &mut Reachable, findings: &mut Vec<Finding>) {
        let spec = self.spec(kind);
        let at = self.geometry.slab_map(head);
        let map = self.memory.load(at, Ordering::Relaxed);
        if self.busy(at) != 0 {
            findings.push(Finding { what: "busy objects in a slab at rest", at });
        }
        let is_full = u64::from(map.count_ones()) >= spec.objects();
        if !self.is_lease_known(head, kind) {
            findings.push(Finding { what: "slab leased by a lane that has another", at });
        } else if !is_full
            && !self.is_slab_leased(head)
            && !self.is_hinted(head / GROUP_PAGES, kind)
        {
            findings.push(Finding { what: "room in a slab that no search finds", at });
        }
        for back in 1..u64::from(spec.slab_pages) {
            if self.descriptor(head + back).ok() != Some(Descriptor::SlabTail(kind, back)) {
                findings.push(Finding { what: "slab lacks a page", at });
            }
        }
        for index in (0..64).filter(|index| map >> index & 1 == 1) {
            let size = u64::from(spec.object_size);
            let at = self.geometry.page(head).plus(index * size);
            if index >= spec.objects() {
                findings.push(Finding { what: "allocated object past the slab's end", at });
            } else if !left.objects.remove(&at) {
                findings.push(Finding { what: "object allocated but not reachable", at });
            }
        }
    }

    fn check_lanes(&self, findings: &mut Vec<Finding>) -> Result<()> {
        for number in 0..self.geometry.shape().lanes {
            let at = self.geometry.lane(number);
            if self.commit_word(number)?.is_armed() {
                findings.push(Finding { what: "record not retired in a lane at rest", at });
            }
            if self.intent(number).code != 0 {
                findings.push(Finding { what: "unfinished intent in a lane at rest", at });
            }
            let at = self.geometry.lane_record(number);
            if self.lane_owner(number) != 0 {
                findings.push(Finding { what: "owner of a lane at rest", at });
            }
            for place in 0..lane::HELD_MAX as u32 {
                if self.value(self.held_word(number, place), Ordering::Relaxed) != 0 {
                    findings.push(Finding { what: "lock name in a lane at rest", at });
                }
            }
        }
        Ok(())
    }

    fn check_locks(&self, findings: &mut Vec<Finding>) {
        let table = 0..self.geometry.shape().locks;
        for number in table.chain([crate::lock::GROW_LOCK]) {
            let at = self.lock_word(number);
            if self.holder(number).is_some() {
                findings.push(Finding { what: "holder of a lock at rest", at });
            }
            if self.version(number, Ordering::Relaxed) % 2 == 1 {
                findings.push(Finding { what: "odd version of a lock at rest", at });
            }
        }
    }
}
