//! The program `conquest`.

use std::process::ExitCode;

fn main() -> ExitCode {
    conquest_cli::run()
}
