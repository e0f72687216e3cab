//! What is run of the tests for each mutant: enough to notice it, in a few seconds.

use super::operators::Aim;

/// Parts of a crate that are not mutated: below the trait `Memory` no test can tell a medium that
/// keeps its promises from one that breaks them; what a crate has to check itself is a test, with
/// tests of its own; and some devices are only for tests.
const LEFT_OUT: [(&str, &str); 10] = [
    ("pm", "media/"),
    ("pm", "persist.rs"),
    ("fs", "check.rs"),
    ("fs", "dir/check.rs"),
    ("flash", "check.rs"),
    ("flash", "map/check.rs"),
    ("flash", "device/faulty.rs"),
    ("flash", "device/memory.rs"),
    ("flash", "device/nand.rs"),
    ("flash", "device/openers.rs"),
];

/// Programs of the test kit that may notice a mutant: kind, crate, and arguments for a small slice.
const PROGRAMS: [(&str, &str, &[&str]); 8] = [
    ("explore", "pm", &["--states", "3000", "--seed", "1"]),
    ("kill", "pm", &["--kills", "20", "--seed", "1", "--step", "10"]),
    ("explore", "fs", &["--states", "3000", "--seed", "1"]),
    ("kill", "fs", &["--kills", "5", "--seed", "1", "--step", "100"]),
    ("explore", "store", &["--cuts", "300", "--seed", "1"]),
    ("explore", "flash", &["--cuts", "80", "--each", "48", "--seed", "2"]),
    ("fuzz", "flash", &["--cases", "500", "--seed", "1"]),
    ("kill", "flash", &["--operations", "12000", "--openings", "12", "--mib", "24"]),
];

/// Tests that are not run: crate and name. They take long, for what others notice as well.
const UNUSED: [(&str, &str); 3] = [("fs", "crash"), ("fs", "speed"), ("fs", "together")];

/// Crates whose tests may notice a mutant of parts of several crates, and those tests; all of them
/// if none are named. Those of crates that are mutated as a whole are used without being listed.
type Tests = &'static [(&'static str, &'static [&'static str])];
const TOGETHER: [(&str, Tests); 1] = [(
    "store",
    &[
        ("image", &[]),
        ("pm", &["residency", "threads_and_signals"]),
        (
            "testkit",
            &[
                "lead",
                "log_cuts",
                "log_keeper",
                "log_parts",
                "log_records",
                "log_words",
                "logged",
                "replay",
            ],
        ),
        (
            "fs",
            &[
                "attributes",
                "back",
                "due",
                "full",
                "growing",
                "hurry",
                "large_deaths",
                "meanwhile",
                "open_files",
                "over",
                "space",
                "thresholds",
                "unopened",
                "volume_cuts",
            ],
        ),
        ("conquest", &["large", "logged", "settled", "saved_large"]),
    ],
)];

/// Variables that make tests smaller: crate, test, name and value.
const SMALLER: [(&str, &str, &str, &str); 5] = [
    ("fs", "cut", "CONQUEST_STEP", "61"),
    ("fs", "fsx", "CONQUEST_OPERATIONS", "2000"),
    ("fs", "fsx", "CONQUEST_SEEDS", "1"),
    ("fs", "histories", "CONQUEST_RUNS", "250"),
    ("fs", "kernel", "CONQUEST_RUNS", "10"),
];

/// Whether the file `name` of crate `package` is mutated.
pub(super) fn is_mutated(package: &str, name: &str) -> bool {
    !LEFT_OUT.iter().any(|(of, start)| *of == package && name.starts_with(start))
}

/// Arguments for the program of the test kit of this `kind` for the crate or the parts `name`.
pub(super) fn arguments(kind: &str, name: &str) -> &'static [&'static str] {
    let found = PROGRAMS.iter().find(|(of, named, _)| *of == kind && *named == name);
    found.map_or(&[], |(_, _, arguments)| arguments)
}

/// The crates whose tests may notice a mutant of the crate or the parts `name`.
pub(super) fn tested(name: &str) -> Vec<&str> {
    match tests_of(name) {
        Some(tests) => tests.iter().map(|(of, _)| *of).collect(),
        None => vec![name],
    }
}

fn tests_of(name: &str) -> Option<Tests> {
    TOGETHER.iter().find(|(of, _)| *of == name).map(|(_, tests)| *tests)
}

/// Whether test `test` of crate `package` is run for mutants of the crate or the parts `name`.
pub(super) fn is_used(name: &str, package: &str, test: &str) -> bool {
    match tests_of(name) {
        Some(tests) => tests
            .iter()
            .any(|(of, used)| *of == package && (used.is_empty() || used.contains(&test))),
        None => !UNUSED.contains(&(package, test)),
    }
}

/// The variables for test `test` of crate `package`: names and values.
pub(super) fn variables(package: &str, test: &str) -> Vec<(&'static str, &'static str)> {
    let its = |(of, named, ..): &&(&str, &str, _, _)| *of == package && *named == test;
    SMALLER.iter().filter(its).map(|(_, _, name, value)| (*name, *value)).collect()
}

/// Whether the tests of the test kit, which are about words, may notice a mutant of crate
/// `package`.
pub(super) fn concerns_test_kit(package: &str) -> bool {
    package != "testkit" && Aim::of(package) == Aim::Words
}
