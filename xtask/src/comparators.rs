//! `cargo xtask comparators`: whether our own measuring loop is slow, judged by plain C and by the
//! programs that others measure with.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::{self, BUILD_LIMIT};
use crate::packages::{self, Need};
use crate::tally::Tally;
use crate::{Failure, child, tree};

/// What is run, and the Debian package that has it.
const NEEDED: [Need; 4] =
    [("cc", "gcc"), ("postmark", "postmark"), ("bonnie++", "bonnie++"), ("fio", "fio")];
/// How long it may take.
const LIMIT: Duration = Duration::from_secs(4 * 3600);
/// The C loop, from the workspace's root.
const PLAIN: &str = "crates/bench/comparators/loop.c";

/// Runs it with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<Tally, Failure> {
    if !packages::is_root() {
        return Err(Failure::Broken("comparators mounts a ramfs, which needs root".into()));
    }
    packages::provide("cargo xtask comparators", &NEEDED)?;
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "-p", "conquest-bench", "--bin", "comparators"]);
    build.current_dir(tree::root());
    if !child::run_shown(&mut build, BUILD_LIMIT, |_| true)?.is_well() {
        return Err(Failure::Broken("comparators does not build".into()));
    }
    let plain = compiled()?;
    let mut command = Command::new(tree::output().join("release/comparators"));
    command.arg("--plain").arg(plain).args(arguments).current_dir(tree::root());
    harness::counted(&mut command, LIMIT, "comparators")
}

/// The C loop, compiled as anybody would.
fn compiled() -> Result<PathBuf, Failure> {
    let directory = tree::output().join("comparators");
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::system("can't make", &directory, &error))?;
    let plain = directory.join("loop");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-std=c11", "-Wall", "-Wextra", "-o"]).arg(&plain);
    compile.arg(tree::root().join(PLAIN));
    if !child::run_shown(&mut compile, BUILD_LIMIT, |_| true)?.is_well() {
        return Err(Failure::Broken(format!("{PLAIN} does not compile")));
    }
    Ok(plain)
}
