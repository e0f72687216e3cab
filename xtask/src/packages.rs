//! Commands that the project's tools run, and the system packages that have them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Failure, child};

/// How long installing may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(1800);

/// A command and the Debian package that has it.
pub(crate) type Need = (&'static str, &'static str);

/// Sees to it that the commands `needed` are there, for `whom`.
pub(crate) fn provide(whom: &str, needed: &[Need]) -> Result<(), Failure> {
    let missing = |(command, _): &&Need| !is_installed(command);
    let wanted: Vec<&Need> = needed.iter().filter(missing).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = wanted.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    if is_root() {
        println!("installing {}", packages.join(" "));
        let mut install = vec!["install", "--yes", "--no-install-recommends"];
        install.extend(&packages);
        for arguments in [&["update"][..], &install] {
            let mut command = Command::new("apt-get");
            command.args(arguments);
            command.env("DEBIAN_FRONTEND", "noninteractive");
            child::run_shown(&mut command, INSTALL_LIMIT, |_| true)?;
        }
    }
    let names: Vec<&str> = wanted.into_iter().filter(missing).map(|w| w.0).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Failure::Broken(format!(
        "{whom} needs the commands {}; install the packages {}",
        names.join(", "),
        packages.join(", ")
    )))
}

/// Whether this process may do what only root may.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|l| l.starts_with("Uid:\t0\t0\t")))
}

fn is_installed(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| Path::new(&directory).join(command).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_looked_up() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-command-anywhere"));
    }
}
