//! What a run made the system do: software counters, which there are everywhere.

use std::time::Duration;

use conquest_pm::counting::Counts;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// Nanoseconds of a tick of `/proc/stat`.
const TICK: u64 = 10_000_000;

/// What was done between two moments.
///
/// Page faults, waits and time are those of this process, with all of its threads, and of the
/// processes that it has waited for. `elsewhere` is the time of all others: programs, servers of
/// mounts, and threads of the kernel, such as those of loop devices. It can't be told which of them
/// worked for this process, and it comes in ticks of 10 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Page faults, whether something had to be read for them or not.
    pub page_faults: u64,
    /// Times that a processor was given up to wait for something.
    pub waits: u64,
    /// Times that a processor was taken away.
    pub preemptions: u64,
    /// Nanoseconds of processors outside of the kernel.
    pub user: u64,
    /// Nanoseconds of processors in the kernel.
    pub system: u64,
    /// Nanoseconds of processors that others used.
    pub elsewhere: Option<u64>,
}

/// What was done to the memory of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stores {
    /// Fences, if the medium needed write-back.
    pub fences: u64,
    /// Lines written back, if the medium needed it.
    pub written_back: u64,
    /// Bytes stored into the journal.
    pub journal_bytes: u64,
    /// Lines stored into that other processes read: see [`conquest_pm::counting`].
    pub shared_lines: u64,
}

impl From<Counts> for Stores {
    fn from(counts: Counts) -> Stores {
        let Counts { fences, written_back, journal_bytes, shared_lines, .. } = counts;
        Stores { fences, written_back, journal_bytes, shared_lines }
    }
}

/// What was done up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    work: Work,
    /// Nanoseconds that all processors were busy.
    busy: u64,
}

fn nanoseconds(time: nix::sys::time::TimeVal) -> u64 {
    let of = |part: i64| u64::try_from(part).unwrap_or(0);
    of(time.tv_sec()) * 1_000_000_000 + of(time.tv_usec()) * 1000
}

/// Time of processors that this process has used, with all of its threads.
#[must_use]
pub fn own_time() -> Duration {
    let used = getrusage(UsageWho::RUSAGE_SELF);
    let all = |usage: Usage| nanoseconds(usage.user_time()) + nanoseconds(usage.system_time());
    Duration::from_nanos(used.map(all).unwrap_or_default())
}

impl Work {
    fn of(usage: &Usage) -> Work {
        let count = |number: std::ffi::c_long| u64::try_from(number).unwrap_or(0);
        Work {
            page_faults: count(usage.minor_page_faults()) + count(usage.major_page_faults()),
            waits: count(usage.voluntary_context_switches()),
            preemptions: count(usage.involuntary_context_switches()),
            user: nanoseconds(usage.user_time()),
            system: nanoseconds(usage.system_time()),
            elsewhere: None,
        }
    }

    /// `join` of each number of both.
    fn with(self, other: Work, join: fn(u64, u64) -> u64) -> Work {
        Work {
            page_faults: join(self.page_faults, other.page_faults),
            waits: join(self.waits, other.waits),
            preemptions: join(self.preemptions, other.preemptions),
            user: join(self.user, other.user),
            system: join(self.system, other.system),
            elsewhere: None,
        }
    }
}

impl Done {
    /// Looks now. What the system does not tell counts as nothing.
    #[must_use]
    pub fn now() -> Done {
        let busy = busy(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
        let of = |who| getrusage(who).map(|usage| Work::of(&usage)).unwrap_or_default();
        let own = of(UsageWho::RUSAGE_SELF);
        Done { work: own.with(of(UsageWho::RUSAGE_CHILDREN), u64::saturating_add), busy }
    }

    /// What was done since.
    #[must_use]
    pub fn until_now(&self) -> Work {
        let now = Done::now();
        let work = now.work.with(self.work, u64::saturating_sub);
        let busy = now.busy.saturating_sub(self.busy);
        let elsewhere = busy.saturating_sub(work.user + work.system);
        // A single tick may be of before.
        let elsewhere = if elsewhere > TICK { elsewhere } else { 0 };
        Work { elsewhere: Some(elsewhere), ..work }
    }
}

/// Of `/proc/stat`: nanoseconds that processors were used, for programs (with those of low
/// priority), in the kernel, and for interrupts.
fn busy(text: &str) -> u64 {
    let all = text.lines().next().unwrap_or_default();
    let numbers: Vec<u64> =
        all.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // In between stand idle time and waiting for disks.
    let ticks: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| numbers.get(*at)).sum();
    ticks * TICK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_kernels_numbers_are_understood() {
        assert_eq!(busy("cpu  1 20 300 7 7 4000 50000 9 0 0\ncpu0 5"), 54_321 * TICK);
        assert_eq!(busy(""), 0);
    }

    #[test]
    fn memory_faults_when_it_is_touched_first() {
        // So large that it is not memory that was used before.
        let mut memory: Vec<u8> = Vec::with_capacity(64 << 20);
        let before = Done::now();
        memory.resize(memory.capacity(), 1);
        let first = before.until_now();
        // Huge pages of up to 2 MiB are one each.
        assert!(first.page_faults >= 32, "{first:?}");
        // Other tests of this process may touch memory meanwhile.
        let begin = Instant::now();
        loop {
            let before = Done::now();
            memory.fill(2);
            std::hint::black_box(&memory);
            let again = before.until_now();
            if again.page_faults < 16 {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{again:?}");
        }
    }

    #[test]
    fn time_is_that_of_who_took_it() {
        let busy = Duration::from_millis(60);
        let (before, begin) = (Done::now(), Instant::now());
        while begin.elapsed() < busy {}
        let own = before.until_now();
        assert!(own.user + own.system > 1_000_000, "{own:?}");
        assert!(own_time() >= Duration::from_nanos(own.user + own.system));
        let before = Done::now();
        let mut child = std::process::Command::new("sleep").arg("0.2").spawn().unwrap();
        child.wait().unwrap();
        let waited = before.until_now();
        // The child's start is counted with this process, which waited for it.
        assert!(waited.page_faults > 0 && waited.waits > 0, "{waited:?}");
    }
}
