//! Tells the crate of which commit it is.

use std::process::Command;

fn main() {
    let output =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let words = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = words.and_then(|words| String::from_utf8(words).ok()).unwrap_or_default();
    println!("cargo::rustc-env=CONQUEST_COMMIT={}", commit.trim());
    // Moved by each commit; where it is not, this is run again each time, which is quick.
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
}
