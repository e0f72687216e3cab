//! What a reader of the figures has to know about the machine.

use conquest_pm::persist::Machine;

use crate::Plan;
use crate::report::Report;

fn line_of(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find(|line| line.starts_with(key));
    let value = found.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value);
    value.trim().to_owned()
}

fn whole(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// States the facts.
pub(crate) fn state(plan: &Plan, report: &mut Report) {
    let processors = std::thread::available_parallelism().map_or(0, |count| count.get() as u64);
    let instruction = format!("{:?}", Machine::detect().best());
    let facts = [
        ("processor", line_of("/proc/cpuinfo", "model name")),
        ("kernel", whole("/proc/sys/kernel/osrelease")),
        ("memory", line_of("/proc/meminfo", "MemTotal")),
        ("write-back instruction", instruction),
        ("huge pages of shared memory", whole("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
        ("load average at the start", whole("/proc/loadavg")),
        ("extent", if plan.quick { "a slice (--quick)" } else { "full" }.to_owned()),
        ("medium", "memory files (memfd): ordinary RAM".to_owned()),
    ];
    println!("processors: {processors}");
    report.keep("processors", processors);
    for (name, value) in facts {
        println!("{name}: {value}");
        report.keep(name, value.as_str());
    }
    println!("seed: {}", plan.seed);
    report.keep("seed", plan.seed);
    report.set_apart("machine");
}
