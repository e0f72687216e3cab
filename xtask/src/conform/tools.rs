//! Suites from the crate registry, installed where the build output is.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::BUILD_LIMIT;
use crate::{Failure, child, tree};

/// Where `name` is once it is installed: a directory for each version, so that another is not
/// taken for it.
pub(super) fn path(name: &str, version: &str) -> PathBuf {
    tree::output().join("tools").join(format!("{name}-{version}")).join("bin").join(name)
}

/// Sees to it that `name` is installed.
pub(super) fn provide(name: &str, version: &str) -> Result<(), Failure> {
    let path = path(name, version);
    if path.is_file() {
        return Ok(());
    }
    let mut install = Command::new("cargo");
    install.args(["install", name, "--locked", "--version", &format!("={version}"), "--root"]);
    install.arg(tree::output().join("tools").join(format!("{name}-{version}")));
    // Not beside the workspace's own output: nothing of it could be shared.
    install.env("CARGO_TARGET_DIR", tree::output().join("tools/build"));
    let ended = child::run_shown(&mut install, BUILD_LIMIT, |_| true)?;
    if ended.is_well() && path.is_file() {
        return Ok(());
    }
    Err(Failure::Broken(format!(
        "can't install {name} {version} of the crate registry: {ended}; it has to be in {}",
        path.display()
    )))
}
