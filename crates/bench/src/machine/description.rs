//! What a reader of the figures has to know about the machine. Nothing says whose it is.

use serde::{Deserialize, Serialize};

use super::caches::{Cache, Caches};
use super::sweep::{self, Latency};

/// The machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The processor's name.
    pub processor: String,
    /// How many processors this process may use.
    pub processors: usize,
    /// Whether the system says that it runs on another one.
    pub is_virtual: bool,
    /// The caches that the system tells of; none if it tells of none.
    pub caches: Vec<Cache>,
    /// What loads cost, by how much memory is loaded from.
    pub latencies: Vec<Latency>,
    /// Bytes above which they cost more.
    pub steps: Vec<u64>,
    /// Bytes of memory.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// What the kernel does with huge pages of programs.
    pub huge_pages: String,
    /// What it does with those of shared memory.
    pub shared_huge_pages: String,
    /// Whether the kernel reclaims pages that nobody uses, while there is memory (DAMON).
    pub reclaims_idle: bool,
    /// The load average of the last minute when it began.
    pub load: f64,
    /// What could not be seen.
    pub not_visible: Vec<String>,
}

/// A file's text; none if it is not there or empty.
fn text(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The choice in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word).to_owned()
}

/// The value behind `key` and a colon.
fn value(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

impl Description {
    /// Looks, and measures memory up to `most` bytes.
    #[must_use]
    pub fn look(most: u64) -> Description {
        let mut not_visible = Vec::new();
        let mut seen = |what: &str, found: Option<String>| {
            found.unwrap_or_else(|| {
                not_visible.push(what.to_owned());
                "unknown".to_owned()
            })
        };
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        let model = ["model name", "Processor", "cpu model"].iter();
        let processor = seen("processor", model.filter_map(|key| value(&cpuinfo, key)).next());
        let meminfo = text("/proc/meminfo").unwrap_or_default();
        let memory = seen("memory", value(&meminfo, "MemTotal"));
        let kernel = seen("kernel", text("/proc/sys/kernel/osrelease"));
        let thp = "/sys/kernel/mm/transparent_hugepage";
        let huge = |name: &str| text(&format!("{thp}/{name}")).map(|words| chosen(&words));
        let huge_pages = seen("huge pages", huge("enabled"));
        let shared_huge_pages = seen("huge pages of shared memory", huge("shmem_enabled"));
        let load = seen("load", text("/proc/loadavg"));
        seen("pressure", text("/proc/pressure/memory"));
        // Nothing in user space can see it otherwise.
        let counters = "/sys/bus/event_source/devices/cpu";
        seen("hardware counters", std::path::Path::new(counters).exists().then(String::new));
        let caches = Caches::visible();
        seen("caches", caches.as_ref().map(|_| String::new()));
        let damon = |module: &str| text(&format!("/sys/module/{module}/parameters/enabled"));
        let reclaims =
            ["damon_reclaim", "damon_lru_sort"].iter().filter_map(|module| damon(module));
        let latencies = sweep::sweep(most);
        Description {
            processor,
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            is_virtual: cpuinfo.contains(" hypervisor"),
            caches: caches.map(|caches| caches.0).unwrap_or_default(),
            steps: sweep::steps(&latencies),
            latencies,
            memory: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10,
            kernel,
            huge_pages,
            shared_huge_pages,
            reclaims_idle: reclaims.into_iter().any(|word| word == "Y"),
            load: load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
            not_visible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
        assert_eq!(value("a: 1\nMemTotal:   7 kB\n", "MemTotal").as_deref(), Some("7 kB"));
        assert_eq!(value("", "MemTotal"), None);
    }

    #[test]
    fn this_machine_is_described() {
        let found = Description::look(8192);
        assert!(found.memory > 1 << 20 && found.processors > 0, "{found:?}");
        assert_eq!(found.latencies.len(), 2);
        assert_ne!(found.kernel, "unknown");
    }
}
