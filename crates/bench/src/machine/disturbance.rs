//! What else the machine did during a phase.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Words of `/proc/vmstat` that count the kernel's search for memory. Page faults that read from a
/// disk are none: each run of a program has some, and they are its own doing.
const RECLAIM: [&str; 5] = [
    "pgscan_direct ",
    "pgscan_kswapd ",
    "compact_stall ",
    "allocstall_normal ",
    "allocstall_movable ",
];
/// Ticks of `/proc/stat` in a second.
const TICKS: u64 = 100;

/// What was counted up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    at: Instant,
    /// Ticks that the hypervisor gave to others, on all processors.
    steal: u64,
    /// Nanoseconds that this process waited for a processor.
    waited: u64,
    /// Pages that the kernel looked for, and searches that made somebody wait.
    reclaim: u64,
    /// Microseconds that somebody waited for memory.
    pressure: u64,
}

/// What happened in between.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Disturbance {
    /// Share of the time that the hypervisor gave to others.
    pub steal: f64,
    /// Share of the time that the process waited for a processor.
    pub waited: f64,
    /// Pages that the kernel looked for, and searches that made somebody wait.
    pub reclaim: u64,
    /// Share of the time that somebody waited for memory.
    pub pressure: f64,
}

/// From this share of time on a sample counts as disturbed.
pub const SHARE_MAX: f64 = 0.02;

impl Disturbance {
    /// Why a sample is not to be trusted, if it is not.
    #[must_use]
    pub fn mark(&self) -> Option<&'static str> {
        if self.steal > SHARE_MAX {
            Some("steal")
        } else if self.waited > SHARE_MAX {
            Some("waited")
        } else if self.reclaim > 0 {
            Some("reclaim")
        } else if self.pressure > SHARE_MAX {
            Some("pressure")
        } else {
            None
        }
    }
}

impl Counted {
    /// Looks now. What the system does not tell counts as nothing.
    #[must_use]
    pub fn now() -> Counted {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Counted {
            at: Instant::now(),
            steal: steal(&read("/proc/stat")),
            waited: waited(&read("/proc/self/schedstat")),
            reclaim: reclaim(&read("/proc/vmstat")),
            pressure: pressure(&read("/proc/pressure/memory")),
        }
    }

    /// What has happened since.
    #[must_use]
    pub fn until_now(&self) -> Disturbance {
        let now = Counted::now();
        let seconds = (now.at - self.at).as_secs_f64().max(1e-9);
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        // A single tick may be of before.
        let steal = since(now.steal, self.steal).saturating_sub(1);
        Disturbance {
            steal: steal as f64 / (TICKS * processors as u64) as f64 / seconds,
            waited: since(now.waited, self.waited) as f64 / 1e9 / seconds,
            reclaim: since(now.reclaim, self.reclaim),
            pressure: since(now.pressure, self.pressure) as f64 / 1e6 / seconds,
        }
    }
}

/// How long a thread has waited for a processor up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    at: Instant,
    nanoseconds: u64,
}

impl Waited {
    /// How long this thread has. What the system does not tell counts as nothing.
    #[must_use]
    pub fn of_thread() -> Waited {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Waited { at: Instant::now(), nanoseconds: waited(&text) }
    }

    /// The share of the time since in which this thread has waited.
    #[must_use]
    pub fn until_now(&self) -> f64 {
        let now = Waited::of_thread();
        let waited = now.nanoseconds.saturating_sub(self.nanoseconds);
        waited as f64 / 1e9 / (now.at - self.at).as_secs_f64().max(1e-9)
    }
}

/// Of `/proc/stat`: ticks that were stolen.
fn steal(text: &str) -> u64 {
    let all = text.lines().next().unwrap_or_default();
    all.split_ascii_whitespace().nth(8).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Of `/proc/self/schedstat`: nanoseconds on a run queue.
fn waited(text: &str) -> u64 {
    text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Of `/proc/vmstat`.
fn reclaim(text: &str) -> u64 {
    let count = |line: &str| {
        let word = RECLAIM.iter().find_map(|name| line.strip_prefix(name))?;
        word.trim().parse::<u64>().ok()
    };
    text.lines().filter_map(count).sum()
}

/// Of `/proc/pressure/memory`: microseconds.
fn pressure(text: &str) -> u64 {
    let some = text.lines().find(|line| line.starts_with("some")).unwrap_or_default();
    some.rsplit_once("total=").and_then(|(_, word)| word.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(steal("cpu  686050 475846 567951 781315 12741 0 5216 2749 0 0\ncpu0 1"), 2749);
        assert_eq!(waited("2841290 131 7\n"), 131);
        let vmstat = "nr_free_pages 7\npgscan_direct 5\npgscan_direct_throttle 9\npgmajfault 2\n";
        assert_eq!(reclaim(vmstat), 5);
        let memory = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5637\nfull avg10=0.00 total=1\n";
        assert_eq!(pressure(memory), 5637);
        assert_eq!((steal(""), waited(""), reclaim(""), pressure("")), (0, 0, 0, 0));
    }

    #[test]
    fn what_disturbs_is_marked() {
        let calm = Disturbance::default();
        assert_eq!(calm.mark(), None);
        assert_eq!(Disturbance { steal: 0.03, ..calm }.mark(), Some("steal"));
        assert_eq!(Disturbance { waited: 0.5, ..calm }.mark(), Some("waited"));
        assert_eq!(Disturbance { reclaim: 1, ..calm }.mark(), Some("reclaim"));
        assert_eq!(Disturbance { pressure: 0.03, ..calm }.mark(), Some("pressure"));
        // More threads than there are processors wait for each other.
        let threads = 1 + 2 * std::thread::available_parallelism().map_or(1, |count| count.get());
        let share = || {
            let (waited, begin) = (Waited::of_thread(), Instant::now());
            while begin.elapsed() < std::time::Duration::from_millis(200) {}
            waited.until_now()
        };
        let most = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
            all.into_iter().map(|one| one.join().unwrap()).fold(0.0, f64::max)
        });
        assert!((0.2..1.5).contains(&most), "{most}");
        let since = Counted::now().until_now();
        assert!(since.waited >= 0.0 && since.steal >= 0.0, "{since:?}");
    }
}
